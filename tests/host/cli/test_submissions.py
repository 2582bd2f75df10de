"""What is sent for what was typed."""

import io
import json
import os
import shlex
import sys
import time
from pathlib import Path

import pytest

from phalanx.client.launchers import find_called_launcher, find_launcher
from phalanx.client.shape import choose_shape
from phalanx.client.wrappers import name_of

SHAPES = {
    "-g 4": {"members": 4, "each": {"gpu": 1}},
    "-g 4.0": {"members": 4, "each": {"gpu": 1}},
    "-n 1 -g 4": {"members": 1, "each": {"gpu": 4}},
    "-n 2 -g 8": {"members": 2, "each": {"gpu": 4}},
    "-g 2:8": {"members": {"min": 2, "max": 8}, "each": {"gpu": 1}},
    "-g 2:8:2": {"members": {"min": 2, "max": 8, "step": 2}, "each": {"gpu": 1}},
    "-n 1:4 -g 2:8": {"members": {"min": 1, "max": 4}, "each": {"gpu": 2}},
    "-g 0.5": {"members": 1, "each": {"gpu": 0.5}},
    "-n 3 -g 1.5": {"members": 3, "each": {"gpu": 0.5}},
    "": {"members": 1, "each": {"gpu": 1}},
    "-n 3": {"members": 3, "each": {"gpu": 1}},
    "--cpus 2": {"members": 1, "each": {"cpu": 2}},
    "-n 2:4 --cpus 2": {"members": {"min": 2, "max": 4}, "each": {"cpu": 2}},
    "-g 2 --cpus 8 --memory 16Gi": {"members": 2, "each": {"gpu": 1, "cpu": 8, "memory": "16Gi"}},
}


@pytest.fixture
def sent(daemon, phalanx):
    """Submit, and see what arrived: the jobs, and the notes beside."""
    daemon.answer("POST", "/v1/jobs", accept)

    def run(*words, text=None, code=0):
        done = phalanx("submit", *words, text=text)
        assert done.exit_code == code, done.output
        bodies = [request.body for request in daemon.sent("POST", "/v1/jobs")]
        daemon.requests.clear()
        return [job for body in bodies for job in body.get("jobs", [body])], done.stderr

    return run


def accept(request):
    from types import SimpleNamespace

    jobs = request.body.get("jobs", [request.body])
    told = [{"id": 1 + at, "name": job["name"], "state": "running", "eta": None} for at, job in enumerate(jobs)]
    body = {"jobs": told} if "jobs" in request.body else told[0]
    return SimpleNamespace(body=body, status=200, headers={})


@pytest.mark.parametrize("words", SHAPES)
def test_shapes(sent, words):
    (job,), notes = sent(*words.split(), "true")
    assert job["gang"] == SHAPES[words]
    assert notes == ""


def test_a_plain_job_says_no_more_than_it_must(sent, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setenv("PHALANX_JOB", "12")
    monkeypatch.setenv("KEPT", "x")
    (job,), _ = sent("-g", "2", "--", sys.executable, "-c", "pass")
    env = job["run"].pop("env")
    assert job == {
        "name": name_of([sys.executable]),
        "gang": {"members": 2, "each": {"gpu": 1}},
        "run": {"command": [sys.executable, "-c", "pass"], "cwd": str(tmp_path), "umask": current_umask()},
    }
    assert env["KEPT"] == "x"
    assert not [name for name in env if name.startswith("PHALANX_") or name == "CUDA_VISIBLE_DEVICES"]


def current_umask():
    found = os.umask(0o022)
    os.umask(found)
    return found


def test_every_option_arrives(sent, tmp_path):
    (job,), _ = sent(
        *("-g", "2", "--name", "a", "--time", "1h30m", "--kill-after", "2h", "--warn", "USR1@90s", "--begin", "+10m"),
        *("--deadline", "6h", "--queue", "q", "--priority", "-3", "--after", "1,ok:2", "--after", "3", "--singleton"),
        *("--env", "A=b=c", "--cwd", tmp_path, "--preemptible", "--restarts", "2", "--requeue", "--grace", "5s"),
        *("--hold", "--allow-infeasible", "--progress-regex", r"(?P<step>\d+)", "--topology", "prefer:node"),
        *("true", "--name", "mine"),
    )
    assert job["run"].pop("env")["A"] == "b=c"
    del job["run"]["umask"]
    assert job == {
        "name": "a",
        "gang": {
            "members": 2,
            "each": {"gpu": 1},
            "queue": "q",
            "priority": -3,
            "walltime": "5400s",
            "kill_after": "7200s",
            "deadline": "21600s",
            "preemptible": True,
            "after": ["1", "2", "3"],
            "topology": {"prefer": "node"},
        },
        "run": {
            "command": ["true", "--name", "mine"],
            "cwd": str(tmp_path),
            "kill_after_warning": {"signal": "USR1", "before_s": 90.0},
            "grace_s": 5.0,
            "restarts": 2,
            "on_preempt": "requeue",
            "progress_regex": r"(?P<step>\d+)",
        },
        "begin": "+600s",
        "singleton": True,
        "allow_infeasible": True,
        "hold": True,
    }
    (job,), _ = sent("--after", "any:4", "--begin", "2099-01-02T03:04", "--time", "1-02:00:00", "true")
    assert job["gang"]["after"] == {"any": ["4"]}
    assert job["begin"] == "2099-01-02T03:04:00+00:00"
    assert job["gang"]["walltime"] == "93600s"


def test_an_array_is_one_request(daemon, sent):
    jobs, _ = sent("--array", "1,4-8:2%3", "--name", "sweep", "true")
    (key,) = {job["array"].pop("key") for job in jobs}
    assert [job["array"] for job in jobs] == [{"index": index, "of": "sweep", "at_most": 3} for index in (1, 4, 6, 8)]
    assert {json.dumps({**job, "array": None}) for job in jobs}.__len__() == 1
    jobs, _ = sent("--array", "5", "true")
    assert jobs[0]["array"].pop("key") != key, "another submit is another array, whatever it is called"
    assert [job["array"] for job in jobs] == [{"index": 5, "of": "true", "at_most": 0}]


def test_ids_of_an_array_come_as_a_list(daemon, phalanx):
    daemon.answer("POST", "/v1/jobs", accept)
    found = json.loads(phalanx("submit", "-o", "json", "--array", "0-2", "true").stdout)
    assert [job["id"] for job in found] == [1, 2, 3]
    found = json.loads(phalanx("submit", "-o", "json", "--array", "7", "true").stdout)
    assert [job["id"] for job in found] == [1], "a list, however short"
    assert phalanx("submit", "--array", "0-2", "true").stdout.startswith(
        "3 jobs: 1-3  true  running  1 rank × 1 GPU each\n"
    )


def test_each_line_is_a_job_of_one_request(daemon, sent):
    text = "python train.py --lr 1 > out\n\n# no\n  sleep 1; sleep 2\n"
    jobs, _ = sent("-g", "0.5", "--each", text=text)
    assert [(job["name"], job["run"]["command"]) for job in jobs] == [
        ("train", ["/bin/sh", "-c", "python train.py --lr 1 > out"]),
        ("sleep", ["/bin/sh", "-c", "sleep 1; sleep 2"]),
    ]
    assert {job["gang"]["each"]["gpu"] for job in jobs} == {0.5}


def test_each_line_that_begins_with_a_launcher_has_its_own_shape(sent):
    jobs, notes = sent("-g", "4", "--each", text="torchrun a.py\nsleep 1\ntorchrun b.py\n")
    assert [job["gang"]["members"] for job in jobs] == [1, 4, 1]
    assert notes.count("torchrun starts its own ranks") == 1


def test_many_lines_go_in_few_requests(daemon, phalanx, monkeypatch):
    monkeypatch.setattr("phalanx.cli.host.batches.SHARED_BYTES", 0)
    monkeypatch.setattr("phalanx.cli.host.batches.PART_BYTES", 20_000)
    daemon.answer("POST", "/v1/jobs", accept)
    assert phalanx("submit", "--clean-env", "--each", text="true\n" * 1000).exit_code == 0
    requests = daemon.sent("POST", "/v1/jobs")
    assert 1 < len(requests) < 20
    assert sum(len(request.body["jobs"]) for request in requests) == 1000
    assert len({request.headers["idempotency-key"] for request in requests}) == len(requests)
    assert all("env" in request.body["run"] for request in requests)


def test_what_many_jobs_have_in_common_is_sent_once(daemon, phalanx, monkeypatch):
    """2,300 elements with 20 KB of environment were a request; the next ones were another, which may be refused."""
    monkeypatch.setenv("BIG", "x" * 20_000)
    daemon.answer("POST", "/v1/jobs", accept)
    assert phalanx("submit", "--name", "arr", "--array", "0-9999", "--", "true").exit_code == 0
    (request,) = daemon.sent("POST", "/v1/jobs")
    assert len(request.body["jobs"]) == 10_000
    assert request.body["run"]["env"]["BIG"] == "x" * 20_000
    assert request.body["jobs"][7]["run"] == {}
    assert len(json.dumps(request.body)) < 3_000_000
    daemon.requests.clear()
    lines = "".join(f"echo {number}\n" for number in range(100))
    assert phalanx("submit", "--each", text=lines).exit_code == 0
    (request,) = daemon.sent("POST", "/v1/jobs")
    assert request.body["jobs"][7]["run"] == {"command": ["/bin/sh", "-c", "echo 7"]}


REFUSED = {"error": {"code": "too_many", "message": "ada has too many", "hint": "phalanx ps", "details": {}}}


@pytest.fixture
def second_refused(daemon, monkeypatch):
    """A daemon that takes in four jobs of a request, and refuses the second request."""
    from types import SimpleNamespace

    monkeypatch.setattr("phalanx.cli.host.batches.SHARED_BYTES", 0)
    monkeypatch.setattr("phalanx.cli.host.batches.SPREAD_BYTES", 0)
    first = [accept]

    def answer(request):
        if first:
            return first.pop()(request)
        return SimpleNamespace(body=REFUSED, status=429, headers={})

    daemon.answer("POST", "/v1/jobs", answer)
    return daemon


def test_a_submit_in_parts_is_whole_or_nothing(second_refused, phalanx, canned):
    second_refused.answer("POST", "/v1/cancel", {"jobs": [canned.PENDING]})
    done = phalanx("submit", "--array", "0-7", "true")
    assert done.stderr.splitlines() == [
        "phalanx: error: ada has too many; what came in before is cancelled again (1 job: 1)",
        "  next: phalanx ps",
    ]
    assert (done.exit_code, done.stdout) == (1, "")
    (request,) = second_refused.sent("POST", "/v1/cancel")
    assert request.body == {"jobs": ["1"]}


def test_gangs_that_wait_for_each_other_are_whole_or_nothing_too(second_refused, phalanx, canned, tmp_path):
    error = {"code": "conflict", "message": "job 1 has ended", "hint": "", "details": {}}
    second_refused.answer("POST", "/v1/cancel", {"jobs": [], "refused": [{"ref": "1", "error": error}]})
    gang = "members: 1, each: {gpu: 1}, command: [sleep, '1']"
    (tmp_path / "two.yaml").write_text(f"gangs:\n- {{name: A, {gang}}}\n- {{name: B, after: A, {gang}}}\n")
    done = phalanx("submit", "--json", tmp_path / "two.yaml")
    assert "what came in before is cancelled again (1 job: 1; had ended: 1)" in done.stderr


def test_what_could_not_be_taken_back_is_said(second_refused, phalanx):
    done = phalanx("submit", "--json", "--array", "0-7", "true")
    error = json.loads(done.stderr)["error"]
    assert (
        "what came in before is still there (1 job: 1), since it cannot be cancelled: there is no" in error["message"]
    )
    assert error["hint"] == "phalanx cancel 1"


LAUNCHERS = {
    "torchrun train.py": "torchrun",
    "/opt/bin/accelerate launch x.py": "accelerate",
    "deepspeed x.py": "deepspeed",
    "python -m torch.distributed.run x.py": "torch.distributed.run",
    "python3.11 -u -m torch.distributed.launch x.py": "torch.distributed.launch",
    "env A=b C=d torchrun x.py": "torchrun",
    "uv run torchrun x.py": "torchrun",
    "python train.py torchrun": None,
    "python -m torchrunner": None,
    "mytorchrun x": None,
    "": None,
}


@pytest.mark.parametrize("words", LAUNCHERS)
def test_launchers(words):
    assert find_launcher(words.split()) == LAUNCHERS[words]


def test_a_launcher_gets_one_member_and_the_output_says_so(sent, tmp_path):
    program = tmp_path / "torchrun"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (job,), notes = sent("-g", "4", program, "train.py")
    assert job["gang"] == {"members": 1, "each": {"gpu": 4}}
    assert notes == "phalanx: note: torchrun starts its own ranks: one member with 4 GPUs (-n 1; per GPU: -n 4)\n"
    (job,), notes = sent("-n", "4", "-g", "4", program, "train.py")
    assert (job["gang"]["members"], notes) == (4, ""), "who says -n is taken at his word"
    (job,), notes = sent("-g", "2:4", program, "train.py")
    assert job["gang"]["members"] == {"min": 2, "max": 4}
    assert "started once per GPU" in notes


@pytest.mark.parametrize("gpus", ["1", "1.0", "0.5"])
def test_the_shape_of_a_launcher_with_one_gpu_or_less_needs_no_word(gpus):
    """`-g 0.5` was advised to write `-n 0.5`, which is no number of members."""
    notes: list[str] = []
    shape = choose_shape(gpus, None, command=["torchrun"], notes=notes)
    assert shape == {"members": 1, "each": {"gpu": float(gpus)}}
    assert notes == []


IN_SCRIPTS = {
    "torchrun --nproc_per_node 4 train.py": "torchrun",
    "cd /x && exec torchrun train.py": "torchrun",
    "set -e\nexport A=b\nOMP_NUM_THREADS=1 torchrun \\\n  --nproc_per_node 4 x.py": "torchrun",
    "if true; then\n  accelerate launch x.py\nfi": "accelerate",
    "(deepspeed x.py; echo 'done; really') | tee log": "deepspeed",
    "python -m torch.distributed.run x.py > log 2>&1 &": "torch.distributed.run",
    "timeout 5m numactl -N 0 torchrun x.py": "torchrun",
    'LAUNCH="torchrun --nproc_per_node 4"\n$LAUNCH x.py': "torchrun",
    "echo $(torchrun x.py)": "torchrun",
    "# torchrun x.py\npython x.py": None,
    "echo torchrun x.py; pip install deepspeed": None,
    "accelerate config default": None,
    "command -v torchrun || exit 1": None,
    "echo 'a; torchrun x'": None,
    "python train.py --launcher torchrun": None,
}


@pytest.mark.parametrize("text", IN_SCRIPTS)
def test_launchers_in_scripts_and_in_lines_of_the_shell_are_started_once(sent, tmp_path, text):
    (tmp_path / "run.sh").write_text(f"#!/usr/bin/env bash\n{text}\n")
    (tmp_path / "run.sh").chmod(0o755)
    launcher = IN_SCRIPTS[text]
    for command in ([f"{tmp_path}/run.sh"], ["bash", "-e", f"{tmp_path}/run.sh", "x"], ["bash", "-lc", text]):
        (job,), notes = sent("-g", "4", "--", *command)
        if launcher is None:
            assert (job["gang"]["members"], notes) == (4, "")
            continue
        assert job["gang"] == {"members": 1, "each": {"gpu": 4}}
        named = launcher if "-lc" in command else f"run.sh calls {launcher}, which"
        told = f"phalanx: note: {named} starts its own ranks: one member with 4 GPUs (-n 1; per GPU: -n 4)\n"
        assert notes == told
    (job,), notes = sent("-n", "4", "-g", "4", "--", f"{tmp_path}/run.sh")
    assert (job["gang"]["members"], notes) == (4, ""), "who says -n is taken at his word"


#: What is typed, with `./run.sh` that calls torchrun: who is named as the one that calls it; None: nobody does.
AROUND_SCRIPTS = {
    "./run.sh": "run.sh",
    "bash -c ./run.sh": "run.sh",
    "bash -c 'cd {there} && ./run.sh'": "run.sh",
    "bash -c 'source env.sh; bash run.sh'": "run.sh",
    "bash -c './run.sh && echo x'": "run.sh",
    "bash -c 'exec ./run.sh'": "run.sh",
    "bash -c 'if true; then ./run.sh; fi'": "run.sh",
    "bash -c 'bash -c ./run.sh'": "run.sh",
    "bash -c 'timeout 60 ./run.sh'": "run.sh",
    "nohup ./run.sh": "run.sh",
    "time -p ./run.sh": "run.sh",
    "nice -n 5 ./run.sh": "run.sh",
    "timeout -s INT 60 ./run.sh": "run.sh",
    "stdbuf -o0 ./run.sh": "run.sh",
    "env -i ./run.sh": "run.sh",
    "setsid bash run.sh": "run.sh",
    "./outer.sh": "run.sh",
    "./outermost.sh": "run.sh",
    "sh folder/by-dirname.sh": "run.sh",
    "bash -c 'source sourced.sh'": "sourced.sh",
    "./loop.sh": None,
    "./deep0.sh": None,
    "bash -c 'cat ./run.sh'": None,
    "bash -c 'cd / && ./run.sh'": None,
    "bash -c 'echo ./run.sh'": None,
    "bash -c ./pipe": None,
    "sh ./nosuch.sh": None,
}


@pytest.fixture
def scripts(tmp_path, monkeypatch):
    """Scripts that call each other, in the directory one stands in."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    texts = {
        "run.sh": "set -e\ntorchrun train.py",
        "outer.sh": "export A=b\n./run.sh",
        "outermost.sh": "bash -e outer.sh",
        "folder/by-dirname.sh": 'cd "$(dirname "$0")"/..\n./run.sh',
        "sourced.sh": "deepspeed train.py",
        "env.sh": "export A=b",
        "loop.sh": "./loop.sh; ./loop2.sh",
        "loop2.sh": "./loop.sh",
        **{f"deep{at}.sh": f"./deep{at + 1}.sh" for at in range(30)},
        "deep30.sh": "torchrun train.py",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


@pytest.mark.parametrize("line", AROUND_SCRIPTS)
def test_scripts_are_found_behind_what_runs_them(sent, scripts, line):
    command = shlex.split(line.format(there=scripts))
    (job,), notes = sent("-g", "4", "--", *command)
    within = AROUND_SCRIPTS[line]
    if within is None:
        assert (job["gang"]["members"], notes) == (4, "")
        return
    launcher = "deepspeed" if within == "sourced.sh" else "torchrun"
    assert job["gang"] == {"members": 1, "each": {"gpu": 4}}
    assert notes.startswith(f"phalanx: note: {within} calls {launcher}, which starts its own ranks: one member")
    (job,), notes = sent("-g", "4", "--each", text=shlex.join(command) + "\n")
    assert job["gang"] == {"members": 1, "each": {"gpu": 4}}, "as a line of --each too"


def test_so_many_scripts_are_read_and_no_more(scripts, monkeypatch):
    """A script that runs thousands is not worth reading them all before a job is handed in."""
    (scripts / "all.sh").write_text("".join(f"./part{at}.sh\n" for at in range(1000)))
    for at in range(1000):
        (scripts / f"part{at}.sh").write_text("sleep 1\n" * 1000)
    read = []
    real = Path.open
    monkeypatch.setattr(Path, "open", lambda path, *args: [read.append(path.name), real(path, *args)][1])
    assert find_called_launcher(["sh", "all.sh"], str(scripts)) is None
    assert 1 < len(read) < 50


def test_a_program_in_python_that_seems_to_call_a_launcher_is_only_spoken_of(sent, tmp_path):
    script = tmp_path / "launch.py"
    script.write_text('import subprocess\nsubprocess.run(["torchrun", "x.py"])\n')
    (job,), notes = sent("-g", "4", "--", sys.executable, script)
    assert job["gang"]["members"] == 4
    assert "launch.py seems to call torchrun" in notes
    assert "for one start with all of them: -n 1 -g 4" in notes
    script.write_text('import subprocess\nprint("torchrun")  # as a word\n')
    script.write_text('"""Like torchrun."""\nimport accelerate\n')
    assert sent("-g", "4", "--", sys.executable, script)[1] == ""


ODD_TIMES = {
    "--begin 2020-01-01T00:00": "--begin 2020-01-01T00:00 is over already: it starts as soon as there is room",
    "--kill-after 1s --warn USR1@5s": "--warn USR1@5s is no shorter than --kill-after 1s: it comes at the start",
    "--kill-after 30s --warn USR1": "--warn USR1 is no shorter than --kill-after 30s: it comes at the start",
    "--kill-after 1h --warn USR1@5s --begin +1s": "",
}


@pytest.mark.parametrize("words", ODD_TIMES)
def test_times_that_cannot_be_meant_are_noted(sent, words):
    assert sent(*words.split(), "true")[1] == (f"phalanx: note: {ODD_TIMES[words]}\n" if ODD_TIMES[words] else "")


def test_headers_that_nobody_reads_are_noted(sent, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("slurm.sh").write_text("#!/bin/bash\n#SBATCH --ntasks=4\n#PHALANX -g 2\necho\n")
    Path("plain.sh").write_text("#!/bin/bash\necho\n")
    said = "the #SBATCH and #PHALANX lines of slurm.sh are not read: phalanx submit slurm.sh a reads them"
    for command in ("bash slurm.sh a", "nohup bash -e slurm.sh a"):
        assert sent(*command.split())[1] == f"phalanx: note: {said}\n"
    assert sent("bash", "plain.sh")[1] == ""
    assert sent("bash", "-c", "echo slurm.sh")[1] == ""


RANKS = {
    "-g 4": "4 ranks × 1 GPU",
    "-n 1 -g 4": "1 rank × 4 GPUs",
    "-g 2:8": "2 to 8 ranks × 1 GPU",
    "-g 0.5": "1 rank × 0.5 GPU",
    "--cpus 2": "1 rank × no GPU",
}


@pytest.mark.parametrize("words", RANKS)
def test_every_submit_says_how_often_the_command_is_started(daemon, phalanx, words):
    daemon.answer("POST", "/v1/jobs", accept)
    shown = phalanx("submit", *words.split(), "true").stdout
    assert shown.startswith(f"1 true  running  {RANKS[words]}\n")
    assert phalanx("submit", *words.split(), "--dry-run", "true").stdout.startswith(
        f"1 true  running  {RANKS[words]}\n"
    )


def test_gangs_of_a_file_say_it_each_for_itself(daemon, phalanx, tmp_path):
    daemon.answer("POST", "/v1/jobs", accept)
    file = tmp_path / "jobs.yaml"
    file.write_text(
        "gangs:\n- {name: a, after: b, members: 2, each: {gpu: 2}, command: [sleep, '1']}\n"
        "- {name: b, roles: [{name: x, members: 1, each: {gpu: 1}}, {name: y, members: 3, each: {cpu: 1}}], command: [sleep, '1']}\n"
    )
    lines = phalanx("submit", file).stdout.splitlines()
    assert lines[:2] == ["1 b  running  1 rank × 1 GPU + 3 ranks × no GPU", "1 a  running  2 ranks × 2 GPUs"]


NAMES = {
    "python train.py": "train",
    "python -m pkg.mod": "python",
    "/usr/bin/torchrun --x src/run.py a.py": "run",
    "bash -c 'x y'": "x",
    "bash -c 'cd /tmp && FOO=1 python x.py | tee log'": "x",
    "bash -c './run.sh && echo x'": "run.sh",
    "bash -c 'source env.sh; exec bash run.sh'": "run",
    "bash -c 'cd /tmp'": "cd",
    "bash -c ''": "bash",
    "bash run.sh": "run",
    "nohup ./run.sh": "run.sh",
    "time -p ./run.sh": "run.sh",
    "nice -n 5 python train.py": "train",
    "nice -5 ./run.sh": "run.sh",
    "timeout -k 5 60 ./run.sh": "run.sh",
    "stdbuf -o0 ./run.sh": "run.sh",
    "env -i ./run.sh": "run.sh",
    "env -u A -C /tmp B=c timeout 60 nohup ./run.sh": "run.sh",
    "uv run --with x python train.py": "train",
    "conda run -n base python train.py": "train",
    "time": "time",
    "conda install x": "conda",
    "env A=b python x.py": "x",
    "./weird name": "weird",
    "7": "job-7",
    "ls train.py": "ls",
}


@pytest.mark.parametrize("words", NAMES)
def test_names(words):
    assert name_of(shlex.split(words)) == NAMES[words]


# ---- keys and lost connections


def test_a_submit_is_repeated_with_the_same_key_after_a_lost_connection(daemon, phalanx):
    daemon.answer("POST", "/v1/jobs", accept)
    daemon.lose = 1
    assert phalanx("submit", "true").exit_code == 0
    first, second = daemon.sent("POST", "/v1/jobs")
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
    assert first.body == second.body
    phalanx("submit", "true")
    assert daemon.sent("POST", "/v1/jobs")[-1].headers["idempotency-key"] != first.headers["idempotency-key"]


def test_a_submit_is_not_repeated_for_ever(daemon, phalanx):
    daemon.lose = 1000
    done = phalanx("submit", "true")
    assert done.exit_code == 5
    assert "the connection to the daemon was lost" in done.stderr
    assert len(daemon.sent("POST", "/v1/jobs")) <= 4


def test_a_cancel_that_may_have_been_done_is_not_repeated(daemon, phalanx, canned):
    daemon.answer("POST", "/v1/cancel", {"jobs": [canned.PENDING]})
    daemon.lose = 1
    assert phalanx("cancel", "2").exit_code == 5
    assert len(daemon.sent("POST", "/v1/cancel")) == 1


# ---- files of gangs


def test_a_file_of_gangs(sent, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BASE", "1")
    Path("job.yaml").write_text("""\
cluster: {nodes: [{name: n0, resources: {gpu: 8}}]}
gangs:
  - name: yes
    members: {min: 2, max: 4}
    each: {gpu: 1}
    walltime: 2h
    select: {gpu-model: 01}
    duration: 60
    command: echo $RANK
  - name: B
    roles: [{name: w, members: 2, each: {gpu: 1}}, {name: l, members: 1, each: {cpu: 2}}]
    hold: true
    run: {commands: {w: [sleep, 01], l: "sleep 2"}, env: {X: 1e3}, restarts: 3, cwd: ..}
""")
    jobs, notes = sent("job.yaml")
    assert jobs[0]["name"] == "yes"
    assert jobs[0]["gang"] == {
        "members": {"min": 2, "max": 4},
        "each": {"gpu": 1},
        "walltime": "2h",
        "select": {"gpu-model": "01"},
    }
    assert jobs[0]["run"]["command"] == ["/bin/sh", "-c", "echo $RANK"]
    assert jobs[1]["run"]["commands"] == {"w": ["sleep", "01"], "l": ["/bin/sh", "-c", "sleep 2"]}
    assert (jobs[1]["run"]["restarts"], jobs[1]["run"]["cwd"]) == (3, str(tmp_path.parent))
    assert (jobs[1]["run"]["env"]["X"], jobs[1]["run"]["env"]["BASE"]) == ("1e3", "1")
    assert jobs[1]["hold"] is True
    assert "hold" not in jobs[1]["gang"]
    assert "job.yaml: cluster: means nothing here" in notes
    assert "job.yaml: line 3: gangs[0] 'yes': duration: only the simulator asks that" in notes


def test_rules_about_others_go_by_domains_that_the_daemon_knows(sent, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text("""\
gangs:
  - name: A
    bears: [01]
    roles:
      - {name: w, members: 2, each: {gpu: 1}, at_most: {rack: 1}, apart: {node: [yes]}}
      - {name: l, members: 1, each: {gpu: 1}, rather: [{weight: 2, beside: {block: yes}}]}
    command: "true"
""")
    (job,), _ = sent("job.yaml")
    assert job["gang"]["bears"] == ["01"]
    assert job["gang"]["roles"][0]["apart"] == {"node": ["yes"]}
    assert job["gang"]["roles"][1]["rather"] == [{"weight": 2, "beside": {"block": "yes"}}]


def test_the_command_line_goes_before_the_file(sent, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("job.toml").write_text('name = "a"\nmembers = 4\npriority = 1\ncommand = ["true"]\neach = {gpu = 1}\n')
    (job,), _ = sent("-g", "2", "--priority", "9", "--name", "b", "--array", "0-0", "job.toml")
    assert job["gang"] == {"members": 2, "each": {"gpu": 1}, "priority": 9}
    assert (job["name"], job["array"]["of"]) == ("b", "b")


def test_gangs_that_wait_for_each_other_are_sent_in_their_order(daemon, phalanx, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    gang = "members: 1, each: {gpu: 1}, command: [sleep, '1']"
    Path("job.yaml").write_text(
        f"gangs:\n- {{name: B, after: {{any: [A]}}, {gang}}}\n- {{name: A, after: [12], {gang}}}\n"
    )
    ids = iter((41, 42))

    def accept_one(request):
        from types import SimpleNamespace

        told = {"id": next(ids), "name": request.body["name"], "state": "running", "eta": None}
        return SimpleNamespace(body=told, status=200, headers={})

    daemon.answer("POST", "/v1/jobs", accept_one)
    assert phalanx("submit", "job.yaml").exit_code == 0
    first, second = (request.body for request in daemon.sent("POST", "/v1/jobs"))
    assert (first["name"], first["gang"]["after"]) == ("A", ["12"])
    assert (second["name"], second["gang"]["after"]) == ("B", {"any": ["41"]})
    Path("job.yaml").write_text(f"gangs:\n- {{name: B, after: [A], {gang}}}\n- {{name: A, after: [B], {gang}}}\n")
    error = "phalanx: error: job.yaml: line 2: gangs[0] 'B': B, A wait for each other"
    assert phalanx("submit", "job.yaml").stderr.splitlines()[0] == error


SHAPED = "members: 1\neach: {gpu: 1}\n"
BAD_FILES = {
    "gangs: []\n": "job.yaml: gangs must be a list with something in it",
    "- 1\n": "job.yaml: must be a mapping",
    "gangs: [1]\n": "job.yaml: line 1: gangs[0]: must be a mapping",
    "gangs: [\n": "job.yaml: line 2: is not YAML: did not find expected node content",
    f"name: a\n{SHAPED}": "job.yaml: line 1: gang 'a': says nothing of what to run",
    f"name: a\ncommand: ''\n{SHAPED}": "job.yaml: line 1: gang 'a': says nothing of what to run",
    f"command: {{a: 1}}\n{SHAPED}": "job.yaml: line 1: command must be a text or a list of words",
    f"command: [nosuchprogram]\n{SHAPED}": (
        "job.yaml: line 1: there is no command 'nosuchprogram' on the PATH of this job"
    ),
    f"run: {{command: 'true', env: [1]}}\n{SHAPED}": "job.yaml: line 1: env and commands must be mappings",
    "gangs:\n- {name: a, members: 1, each: {gpu: 1}, command: env}\n- name: data\n  command: env\n  each: {cpu: 4}\n": (
        "job.yaml: line 3: gangs[1] 'data': members is missing; write members: 4, or {min: 2, max: 8}"
    ),
    f"name: a\ncommand: env\npriority: high\n{SHAPED}": (
        "job.yaml: line 3: gang 'a': priority must be a whole number (got 'high')"
    ),
    f"name: a\nrun: {{command: env, restart: 3}}\n{SHAPED}": (
        "job.yaml: line 1: gang 'a': run has the unknown key 'restart'; did you mean restarts?"
    ),
    f"name: a\nrun: {{command: env, restarts: many}}\n{SHAPED}": (
        "job.yaml: line 1: gang 'a': run.restarts: expected int, got str"
    ),
    f"name: a\ncommand: [sleep 1 && env]\n{SHAPED}": (
        "job.yaml: line 1: gang 'a': 'sleep 1 && env' is a line for a shell, and is not run by one"
    ),
    f"name: a\ncommand: env\ncwd: nowhere\n{SHAPED}": "job.yaml: line 1: gang 'a': --cwd nowhere: does not exist",
}


@pytest.mark.parametrize("text", BAD_FILES)
def test_bad_files(daemon, phalanx, tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(text)
    done = phalanx("submit", "job.yaml")
    assert done.stderr.splitlines()[0] == f"phalanx: error: {BAD_FILES[text]}"
    assert "next: phalanx submit" not in done.stderr, "which would be about another job"
    assert (done.exit_code, daemon.requests) == (2, [])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("job.json", '{"gangs": [\n {"name": "a",\n  "members": 0, "each": {"gpu": 1}, "command": "env"}]}'),
        ("job.toml", '[[gangs]]\nname = "a"\nmembers = 0\neach = {gpu = 1}\ncommand = "env"\n'),
    ],
)
def test_json_and_toml_are_read_without_lines_and_the_gang_is_found_by_its_name(phalanx, daemon, tmp_path, name, text):
    (tmp_path / name).write_text(text)
    why = f"{tmp_path / name}: gangs[0] 'a': members must be at least 1"
    assert why in phalanx("submit", tmp_path / name).stderr
    (tmp_path / name).write_text(text.replace("0", "1", 1).replace("env", "").replace("gangs.1", "gangs"))
    assert f"{tmp_path / name}: line 2: gangs[0] 'a': " in phalanx("submit", tmp_path / name).stderr


def test_what_the_daemon_refuses_is_said_of_its_gang(daemon, phalanx, tmp_path):
    """A refusal of a batch does not say of which job it is: each is asked about alone."""
    from types import SimpleNamespace

    error = {"code": "usage", "message": "there is no queue 'q'", "hint": "phalanx submit --help", "details": {}}

    def answer(request):
        jobs = request.body.get("jobs", [request.body])
        if any(job["gang"].get("queue") == "q" for job in jobs):
            return SimpleNamespace(body={"error": error}, status=400, headers={})
        return accept(request)

    daemon.answer("POST", "/v1/jobs", answer)
    gang = "members: 1, each: {gpu: 1}, command: env"
    file = tmp_path / "job.yaml"
    for text, line in (
        (f"- {{name: a, {gang}}}\n- {{name: b, queue: q, {gang}}}\n", 3),
        (f"- {{queue: q, {gang}}}", 2),
    ):
        file.write_text(f"gangs:\n{text}")
        said = f"gangs[{line - 2}]" + (" 'b'" if line == 3 else "")
        done = phalanx("submit", file)
        assert done.stderr.splitlines() == [
            f"phalanx: error: {file}: line {line}: {said}: there is no queue 'q'",
            "  next: mend the file: docs/job-files.md",
        ]


BOMBS = {
    "aliases": "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)),
    "merges": "a0: &a0 {k: x}\n"
    + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 12)),
    "texts": f"a0: &a0 {'x' * 100_000}\na1: &a1 [{', '.join(['*a0'] * 200)}]\n",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_few_lines_do_not_keep_submit_busy(daemon, phalanx, tmp_path, bomb):
    """Eleven lines of aliases stood for thirty billion values, which were written out one by one."""
    last = "a1" if bomb == "texts" else "a11"
    env = f"command: env\nmembers: 1\neach: {{gpu: 1}}\nenv: {{A: *{last}}}\n"
    (tmp_path / "job.yaml").write_text(f"{BOMBS[bomb]}gangs:\n- " + env.replace("\n", "\n  ").rstrip() + "\n")
    began = time.process_time()
    done = phalanx("submit", tmp_path / "job.yaml")
    assert done.exit_code == 2
    assert time.process_time() - began < 2
    if bomb != "merges":
        assert "job.yaml: is more than 16 MiB once its aliases are written out" in done.stderr


def test_reading_lines_from_a_terminal_says_so(monkeypatch, capsys):
    from phalanx.cli.host.preparing import prepare_lines
    from phalanx.client.job_request import JobRequest

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert len(prepare_lines(JobRequest(), (), Terminal("true\n"), [])) == 1
    assert "Ctrl-D ends" in capsys.readouterr().err
