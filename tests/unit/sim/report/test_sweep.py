"""Several runs at a time: the order of the tasks, one clear failure, nobody left behind."""

import json
import multiprocessing
import os
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from phalanx.cli import main
from phalanx.control.spec.errors import BadInput
from phalanx.frontends.sim.sweep import RunBroke, RunLost, Task, count_cores, make_tasks, parse_seeds, play, run_sweep

TASKS = [Task("easy", {}, seed, "easy") for seed in range(4)]
FORK = multiprocessing.get_context("fork")


@pytest.fixture(autouse=True)
def _nobody_is_left():
    yield
    assert multiprocessing.active_children() == []


# ---- seeds and tasks


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("3", [3]), ("0-3", [0, 1, 2, 3]), ("1,3,5-6", [1, 3, 5, 6]), (" 2 - 3 , 9", [2, 3, 9]), ("4,2-4", [4, 2, 3])],
)
def test_seeds(text, seeds):
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "a", "1-", "-3", "1,,2", "5-2", "0-99999999999", "1.5", "²"])
def test_bad_seeds(text):
    with pytest.raises(BadInput, match="--seeds: "):
        parse_seeds(text)


def test_policies_are_outermost_and_labels_tell_options_apart():
    tasks = make_tasks([("easy", {"fill": "shortest"}), ("fcfs", {}), ("easy", {})], [1, 2])
    assert [(task.label, task.seed) for task in tasks] == [
        ("easy (fill: shortest)", 1), ("easy (fill: shortest)", 2), ("fcfs", 1), ("fcfs", 2), ("easy", 1), ("easy", 2),
    ]  # fmt: skip
    assert [task.label for task in make_tasks([("easy", {}), ("easy", {})], [0])] == ["easy", "easy'"]
    assert [task.label for task in make_tasks([("easy", {"fill": "shortest"})], [0])] == ["easy"]


# ---- processes


def test_one_at_a_time_stays_here_and_several_do_not():
    assert run_sweep(TASKS, lambda *_: os.getpid()) == [os.getpid()] * 4
    assert run_sweep(TASKS[:1], lambda *_: os.getpid(), jobs=4) == [os.getpid()]
    apart = run_sweep(TASKS, lambda *_: os.getpid(), jobs=2)
    assert os.getpid() not in apart
    assert len(set(apart)) == 4


def test_the_order_is_that_of_the_tasks_whoever_is_done_first():
    last_is_done = FORK.Event()

    def work(task, _):
        if task.seed == 0:
            assert last_is_done.wait(60)
        if task.seed == 3:
            last_is_done.set()
        return task.seed

    assert run_sweep(TASKS, work, jobs=2) == [0, 1, 2, 3]


def test_no_more_than_asked_for_run_at_a_time():
    running, most = FORK.Value("i", 0), FORK.Value("i", 0)
    together = FORK.Barrier(2)

    def work(task, _):
        with running.get_lock():
            running.value += 1
            most.value = max(most.value, running.value)
        together.wait(60)  # passes only if two really run side by side
        with running.get_lock():
            running.value -= 1
        return task.seed

    run_sweep(TASKS, work, jobs=2)
    assert most.value == 2


def test_a_large_answer_comes_through():
    assert [len(each) for each in run_sweep(TASKS, lambda task, _: b"x" * (1 << 22), jobs=4)] == [1 << 22] * 4


@pytest.mark.parametrize("jobs", [1, 2])
def test_progress_goes_from_nothing_to_all(jobs):
    said = []

    def work(task, tell):
        tell(0.5)
        return task.seed

    run_sweep(TASKS, work, jobs, said.append)
    assert said[-1] == 1
    assert said == sorted(said)
    assert 0 < said[0] < 0.5


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_refusal_is_the_refusal_itself(jobs):
    def work(task, _):
        if task.seed == 2:
            raise BadInput("is no good", file="x.yaml", line=3)
        return task.seed

    with pytest.raises(BadInput, match=r"^x\.yaml: line 3: is no good$"):
        run_sweep(TASKS, work, jobs)


def test_of_several_refusals_the_first_by_order_is_told():
    second_was_heard = FORK.Event()

    def work(task, _):
        if task.seed == 0:
            assert second_was_heard.wait(60)
            raise BadInput("first")
        raise BadInput("second")

    with pytest.raises(BadInput, match="first"):
        run_sweep(TASKS[:2], work, jobs=2, progress=lambda _: second_was_heard.set())


def test_after_a_refusal_nothing_new_starts_and_later_runs_are_stopped():
    started = FORK.Value("i", 0)

    def work(task, tell):
        with started.get_lock():
            started.value += 1
        if task.seed == 0:
            raise BadInput("no")
        signal.pause()  # until somebody stops it

    with pytest.raises(BadInput):
        run_sweep([Task("easy", {}, seed, "easy") for seed in range(40)], work, jobs=2)
    assert started.value <= 2


def test_a_killed_run_is_told_apart_from_a_result():
    def work(task, _):
        if task.seed == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return task.seed

    with pytest.raises(RunLost, match=r"policy easy with seed 1 ended by signal 9 .* --jobs 1"):
        run_sweep(TASKS, work, jobs=2)


def test_a_fault_of_ours_brings_its_story():
    def work(task, _):
        return 1 // task.seed

    with pytest.raises(RunBroke, match=r"(?s)policy easy, seed 0:.*ZeroDivisionError"):
        run_sweep(TASKS, work, jobs=2)


def test_an_interrupt_stops_everybody():
    def work(task, tell):
        tell(0.5)
        signal.pause()

    def interrupted(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_sweep(TASKS, work, jobs=2, progress=interrupted)
    assert multiprocessing.active_children() == []


def test_a_run_ignores_the_interrupt_that_is_meant_for_us():
    def work(task, _):
        os.kill(os.getpid(), signal.SIGINT)
        return task.seed

    assert run_sweep(TASKS, work, jobs=2) == [0, 1, 2, 3]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_cores():
    assert 1 <= count_cores() <= (os.cpu_count() or 1)


# ---- whole simulations


def test_apart_and_here_give_the_same(mixed):
    tasks = make_tasks([("fcfs", {}), ("goodput", {})], [0, 1])

    def work(task, tell):
        return play(mixed, task, tell).metrics

    assert run_sweep(tasks, work, jobs=2) == run_sweep(tasks, work)


LOG = "".join(
    f"{job} {job * 7} -1 {60 + job % 50} 4 -1 -1 4 200 -1 1 {job % 3} 1 -1 1 -1 -1 -1\n" for job in range(1, 51)
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    file = tmp_path / "log.swf"
    file.write_text(LOG)
    return file


def run(*arguments):
    done = CliRunner().invoke(main, ["sim", *map(str, arguments)])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def test_the_json_has_an_element_per_policy_and_seed(log):
    words = (log, "--cluster", "2x4", "--policy", "fcfs,goodput", "--seeds", "0-1", "--elastic", "0.5", "--json")
    apart, here = run(*words, "--jobs", 2), run(*words, "--jobs", 1)
    assert apart == here
    found = json.loads(apart)
    assert [(each["policy"], each["seed"]) for each in found] == [
        ("fcfs", 0),
        ("fcfs", 1),
        ("goodput", 0),
        ("goodput", 1),
    ]
    assert all(len(each["gangs"]) == 50 for each in found)
    alone = json.loads(run(log, "--cluster", "2x4", "--policy", "goodput", "--seed", 1, "--elastic", "0.5", "--json"))
    assert alone[0]["gangs"] == found[3]["gangs"], "a seed among several is the seed alone"
    assert found[2]["gangs"] != found[3]["gangs"], "or the seeds would all be one"


def test_the_table_shows_means_over_seeds(log):
    text = run(log, "--cluster", "2x4", "--policy", "fcfs,goodput", "--seeds", "0-2", "--elastic", "0.5")
    assert "means over seeds 0–2, ± standard deviation" in text
    header, *rows = text.splitlines()[2:]
    assert header.split() == ["fcfs", "goodput"]
    assert any("±" in row for row in rows)
    assert "all 50" in text


def test_one_seed_or_several_but_not_both(log):
    done = CliRunner().invoke(main, ["sim", str(log), "--cluster", "2x4", "--seed", "1", "--seeds", "0-2"])
    assert done.exit_code == 2
    assert done.stderr == "phalanx: error: --seed and --seeds say the same thing twice; keep one of them\n"


def test_a_report_of_several_seeds(log, tmp_path):
    out = tmp_path / "out.html"
    run(log, "--cluster", "2x4", "--policy", "easy", "--seeds", "3-4", "--elastic", "0.5", "--report", out)
    assert "Means over seeds 3–4, ± standard deviation." in out.read_text()
