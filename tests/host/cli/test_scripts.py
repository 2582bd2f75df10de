"""Scripts with header lines: ours, and those of Slurm, each done, refused or commented on."""

from pathlib import Path
from types import SimpleNamespace

import pytest


@pytest.fixture
def sent(daemon, phalanx, tmp_path, monkeypatch):
    """Submit a script with these header lines; the jobs that arrived and the notes."""
    monkeypatch.chdir(tmp_path)

    def accept(request):
        jobs = request.body.get("jobs", [request.body])
        told = [{"id": 1 + at, "name": job["name"], "state": "running", "eta": None} for at, job in enumerate(jobs)]
        return SimpleNamespace(body={"jobs": told} if "jobs" in request.body else told[0], status=200, headers={})

    daemon.answer("POST", "/v1/jobs", accept)
    daemon.answer("GET", "/v1/queues", {"queues": [{"name": "default"}, {"name": "gpu"}]})

    def run(*headers, options=(), body="echo hi", code=0, words=()):
        Path("job.sh").write_text("\n".join(["#!/bin/sh", "# a comment", *headers, "", body, "#SBATCH --gres=gpu:7"]))
        done = phalanx("submit", *options, "job.sh", *words)
        assert done.exit_code == code, done.output
        bodies = [request.body for request in daemon.sent("POST", "/v1/jobs")]
        daemon.requests.clear()
        return [job for body in bodies for job in body.get("jobs", [body])], done.stderr

    return run


def test_our_own_lines_are_our_options(sent, tmp_path):
    (job,), notes = sent("#PHALANX -g 2:4 --time 1h", "#PHALANX --name 'a b' --env X=1", words=["--lr", "3"])
    assert job["gang"] == {"members": {"min": 2, "max": 4}, "each": {"gpu": 1}, "walltime": "3600s"}
    assert job["name"] == "a b"
    assert job["run"]["env"]["X"] == "1"
    assert job["run"]["command"] == ["/bin/sh", str(tmp_path / "job.sh"), "--lr", "3"]
    assert notes == ""


def test_the_command_line_goes_before_the_headers(sent):
    (job,), _ = sent("#PHALANX -g 2 --priority 3 --env X=1", options=["-g", "8", "--env", "Y=2"])
    assert job["gang"] == {"members": 8, "each": {"gpu": 1}, "priority": 3}
    assert (job["run"]["env"]["X"], job["run"]["env"]["Y"], job["name"]) == ("1", "2", "job")


def test_an_executable_script_is_run_as_it_is(sent, tmp_path):
    Path("job.sh").touch()
    Path("job.sh").chmod(0o755)
    (job,), _ = sent("#PHALANX -g 1")
    assert job["run"]["command"] == [str(tmp_path / "job.sh")]


def test_a_script_without_headers_is_a_command(daemon, phalanx, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("job.sh").write_text("#!/bin/sh\necho\n#PHALANX -g 4\n")
    Path("job.sh").chmod(0o755)
    daemon.answer("POST", "/v1/jobs", {"id": 1, "name": "x", "state": "running", "eta": None})
    phalanx("submit", "./job.sh")
    (request,) = daemon.sent("POST", "/v1/jobs")
    assert request.body["run"]["command"] == ["./job.sh"]
    assert request.body["gang"]["members"] == 1, "headers end where the script begins"


def test_slurm_lines_that_mean_something(sent, tmp_path):
    (job,), notes = sent(
        "#SBATCH --job-name=llama --partition gpu -D ..",
        "#SBATCH --nodes=1 --ntasks=2 --gpus-per-task=2 --cpus-per-task=4 --mem-per-cpu=2G",
        "#SBATCH -t 1-12:00 --signal=B:USR1@120 --requeue --hold",
        "#SBATCH --dependency=afterok:12:13,singleton   # after both",
        "#SBATCH --begin=now+2hours --export=ALL,LR=3",
    )
    assert job["gang"] == {
        "members": 2,
        "each": {"gpu": 2, "cpu": 4, "memory": "8192Mi"},
        "queue": "gpu",
        "walltime": "129600s",
        "kill_after": "129600s",
        "after": ["12", "13"],
    }
    assert (job["name"], job["begin"], job["singleton"], job["hold"]) == ("llama", "+7200s", True, True)
    assert job["run"]["kill_after_warning"] == {"signal": "USR1", "before_s": 120.0}
    assert (job["run"]["on_preempt"], job["run"]["cwd"], job["run"]["env"]["LR"]) == (
        "requeue",
        str(tmp_path.parent),
        "3",
    )
    assert notes == "phalanx: note: job.sh: the script is started 2 times, once per task; srun is not needed\n"


def test_a_slurm_script_without_tasks_is_one_member_with_everything(sent):
    (job, *others), notes = sent("#SBATCH --gres=gpu:h100:4,shard:2", "#SBATCH --mem=64G -n1", "#SBATCH --array=0-9%2")
    assert job["gang"] == {"members": 1, "each": {"gpu": 4, "memory": "65536Mi"}}
    assert job["array"].pop("key")
    assert job["array"] == {"index": 0, "of": "job", "at_most": 2}
    assert len(others) == 9
    assert "line 3: the kind h100 means nothing here" in notes
    assert "line 3: --gres=shard:2 means nothing here" in notes


def test_our_lines_go_before_those_of_slurm(sent):
    (job,), _ = sent("#PHALANX -n 4 --kill-after 1h", "#SBATCH --gpus=4 --time=30")
    assert job["gang"] == {
        "members": 4, "each": {"gpu": 1}, "walltime": "1800s", "kill_after": "3600s",
    }  # fmt: skip
    (job,), _ = sent("#SBATCH --gpus=4", options=["-g", "2:8"])
    assert job["gang"]["members"] == {"min": 2, "max": 8}


TIMES = {
    "90": "5400s",
    "90:30": "5430s",
    "1:30:00": "5400s",
    "2-0": "172800s",
    "2-3:4": "183840s",
    "2-3:4:5": "183845s",
}


@pytest.mark.parametrize("time", TIMES)
def test_slurm_times(sent, time):
    (job,), notes = sent(f"#SBATCH --time={time}")
    assert job["gang"]["walltime"] == TIMES[time]
    assert "--time plans and does not kill here" in notes
    assert job["gang"]["each"] == {"cpu": 1}, "who asks for no GPU gets none, as in Slurm"


def test_a_deadline_and_a_word_for_a_time_of_day(sent):
    (job,), _ = sent("#SBATCH --deadline=2099-01-01T00:00:00 --begin=noon")
    left = float(job["gang"]["deadline"].removesuffix("s"))
    assert 20 < left / 86400 / 365 < 80
    assert "T12:00:00" in job["begin"]
    (job,), _ = sent("#SBATCH --begin=now --time=UNLIMITED")
    assert "begin" not in job
    assert "walltime" not in job["gang"]


WORDS = {
    "--output=x-%j.out": "phalanx keeps the output of every rank: phalanx logs JOB",
    "-o x-%j.out": "phalanx keeps the output of every rank: phalanx logs JOB",
    "--mail-type=END": "no mail is sent; phalanx wait JOB && mail ...",
    "--account=phys": "there are queues; write #PHALANX --queue NAME",
    "--priority=99": "Slurm's priorities are not ours; write #PHALANX --priority N",
    "--exclusive": "GPUs are never shared unless a job asks for part of one",
    "--frobnicate=1": "phalanx knows no such thing",
    "-x node7": "phalanx knows no such thing",
}


@pytest.mark.parametrize("option", WORDS)
def test_every_line_that_means_nothing_gets_a_word(sent, option):
    (_job,), notes = sent("#SBATCH --gpus=1", f"#SBATCH {option}")
    (line,) = notes.splitlines()
    assert line.startswith("phalanx: note: job.sh: line 4: --")
    assert line.endswith(f" means nothing here: {WORDS[option]}")


ERRORS = {
    "--nodes=2": "job.sh: line 3: --nodes=2, and this is one machine",
    "-N 2-4": "job.sh: line 3: --nodes=2-4, and this is one machine",
    "--dependency=afternotok:4": "job.sh: line 3: --dependency=afternotok:4 cannot be kept here",
    "--gres=gpu:99999999999999": "job.sh: line 3: --gres=gpu:99999999999999 is no number of GPUs",
    "--ntasks=²": "job.sh: line 3: --ntasks=² is no number above zero",
    "--array=9-1": "job.sh: line 3: --array=9-1 is no list of numbers that can be used",
    "--time=60 --signal=B:USR1@99999999999999": (
        "job.sh: line 3: --signal=B:USR1@99999999999999 is no signal with seconds before the end"
    ),
    "--time=60 --signal=USR9@60": "job.sh: line 3: --signal=USR9@60 is no signal with seconds before the end",
    "--gres=gpu:4x": "job.sh: line 3: --gres=gpu:4x is no number of GPUs",
    "--gpus=0": "job.sh: line 3: --gpus=0 is no number of GPUs",
    "--ntasks=x": "job.sh: line 3: --ntasks=x is no number above zero",
    "--mem=lots": "job.sh: line 3: --mem=lots is no amount of memory",
    "--time=soon": "job.sh: line 3: --time=soon is not understood",
    "oops": "job.sh: line 3: 'oops' is no option",
    "--job-name='a": "job.sh: line 3: cannot be read: No closing quotation",
    "--ntasks=3 --gpus=4": "4 GPUs cannot be divided among 3 members",
}


@pytest.mark.parametrize("option", ERRORS)
def test_what_would_go_wrong_is_an_error(sent, option):
    jobs, notes = sent(f"#SBATCH {option}", code=2)
    assert jobs == []
    assert f"phalanx: error: {ERRORS[option]}\n" in notes
    assert "\n  next: " in notes


def test_a_line_of_ours_that_is_none(sent):
    jobs, notes = sent("#PHALANX --gpu 4", code=2)
    assert jobs == []
    assert "phalanx: error: job.sh: line 3: #PHALANX: No such option '--gpu'." in notes


def test_a_script_that_reads_slurm_s_variables_is_told_ours(sent):
    _, notes = sent("#SBATCH --ntasks=2 --gpus=2", body='srun python x.py "$SLURM_PROCID" ${SLURM_JOB_ID}')
    assert "job.sh reads SLURM_PROCID, which is not set here; RANK is" in notes
    assert "job.sh reads SLURM_JOB_ID, which is not set here; PHALANX_JOB is" in notes
    assert "job.sh calls srun, which is Slurm's" in notes


def test_a_slurm_script_that_calls_a_launcher_itself_is_started_once_as_slurm_would(sent):
    (job,), notes = sent("#SBATCH --ntasks=4 --gpus=4", body="torchrun --nproc_per_node 4 train.py")
    assert job["gang"] == {"members": 1, "each": {"gpu": 4}}
    assert "job.sh calls torchrun, which starts its own ranks: started once with all GPUs, not 4 times" in notes
    (job,), notes = sent("#SBATCH --ntasks=4 --gpus=4", body="srun torchrun --nproc_per_node 1 train.py")
    assert job["gang"]["members"] == 4, "with srun Slurm starts it once a task"
    assert "started 4 times" in notes


def test_a_partition_is_the_queue_of_that_name_or_a_note(sent):
    (job,), notes = sent("#SBATCH --partition=long,gpu --gpus=1")
    assert (job["gang"]["queue"], notes) == ("gpu", "")
    (job,), notes = sent("#SBATCH -p a100 --gpus=1")
    assert "queue" not in job["gang"]
    assert "partition" not in job
    assert notes == (
        "phalanx: note: --partition=a100 is no queue here, so it goes to the default one; there are: default, gpu\n"
    )
    (job,), notes = sent("#SBATCH -p a100 --gpus=1", "#PHALANX --queue mine")
    assert (job["gang"]["queue"], notes) == ("mine", ""), "who names a queue means it"


@pytest.mark.parametrize(
    ("words", "said", "hint"),
    [
        ("-g nan", "-g 'nan' is no number of GPUs", "write -g 4, -g 2:8 or -g 0.5"),
        ("-n 0", "-n 0 asks for no member", "write -n 1"),
        ("--array 9-1", "--array '9-1' has an empty part 9-1", "write --array 0-99, 0-99%8 or 1,3,5"),
        ("--warn USR9", "there is no signal 'USR9'", "write --warn USR1@60s"),
        ("--time soon", "--time 'soon' is no length of time", "write --time 90, 5m, 1h30m, 2d or 01:30:00"),
    ],
)
def test_a_line_of_ours_that_cannot_be_used_is_named(sent, words, said, hint):
    jobs, error = sent("#PHALANX -g 4", f"#PHALANX {words}", code=2)
    assert jobs == []
    assert error == f"phalanx: error: job.sh: line 4: #PHALANX: {said}\n  next: {hint}\n"


def test_what_only_another_line_makes_whole_is_no_mistake(sent):
    (job,), _ = sent("#PHALANX --warn USR1@60s", "#PHALANX --kill-after 1h", "#PHALANX -n 2", "#PHALANX -g 4")
    assert job["run"]["kill_after_warning"] == {"signal": "USR1", "before_s": 60}
    assert job["gang"]["members"] == 2


def test_a_header_line_without_end_is_refused_at_once(sent):
    # 9 s for one of 100 MB, and all of it on the screen.
    jobs, error = sent(f"#PHALANX {'x' * 3_000_000}", code=2)
    assert jobs == []
    assert error == (
        "phalanx: error: job.sh: line 3: a header line of more than 16,384 characters\n"
        "  next: write its options on several lines\n"
    )
