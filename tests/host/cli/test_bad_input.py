"""Every way a verb can be used wrongly: the exact words, the next command, the exit code, and nothing sent."""

import json
import os
import shlex
from pathlib import Path

import pytest

from phalanx import __version__

USAGE = {
    "-g 0 true": (
        "-g 0 asks for no GPU",
        "write -g 1, or leave -g out and write --cpus 4 for a job without GPUs",
    ),
    "-g 0.0 true": (
        "-g 0.0 asks for no GPU",
        "write -g 1, or leave -g out and write --cpus 4 for a job without GPUs",
    ),
    "-g 8:2 true": ("-g 8:2 has its least above its most", "write -g 2:8"),
    "-g four true": ("-g 'four' is no number of GPUs", "write -g 4, -g 2:8 or -g 0.5"),
    "-g -1 true": ("-g '-1' is no number of GPUs", "write -g 4, -g 2:8 or -g 0.5"),
    "-g 1:2:3:4 true": ("-g '1:2:3:4' is no number of GPUs", "write -g 4, -g 2:8 or -g 0.5"),
    "-g 1.5 true": (
        "-g 1.5: shares of a GPU sit on one GPU, so above 1 only whole ones count",
        "write -g 1 or -g 2",
    ),
    "-g 0.0001 true": ("-g 0.0001 is finer than a thousandth of a GPU", "write -g 0.001"),
    "-g 0.5:2 true": ("-g 0.5:2: an elastic range counts whole GPUs", "write -g 1:4"),
    "-n 3 -g 4 true": ("4 GPUs cannot be divided among 3 members", "write -g 6, or -n 1 or -n 2 or -n 4"),
    "-n 2 -g 2:8 true": (
        "-g 2:8 is elastic and -n 2 is not: members come and go, they do not grow",
        "leave out -n for one GPU each, or write -n 2:8 -g 2:8",
    ),
    "-n 1:4 -g 2:4 true": (
        "-n 1:4 -g 2:4: the smallest and the largest size give a member different numbers of GPUs",
        "write -n 1:4 -g 2:8",
    ),
    "-n 0 -g 4 true": ("-n 0 asks for no member", "write -n 1"),
    "-n 0 -- true": ("-n 0 asks for no member", "write -n 1"),
    "--kill-after 1h --warn USR1@200y true": ("--warn '200y' is no length of time", "write --warn USR1@60s"),
    "--name '' true": ("--name is empty", "write --name train"),
    "-- -x.sh": (
        "there is no command '-x.sh' on the PATH, but a file of that name",
        "phalanx submit -- bash ./-x.sh",
    ),
    "-n x -g 4 true": ("-n 'x' is no number of members", "write -n 1 or -n 2:8"),
    "--cpus none true": ("--cpus 'none' is no number above zero", "write --cpus 4"),
    "": (
        "there is no command to run",
        "phalanx submit -g 1 -- python train.py, phalanx submit job.yaml, or phalanx submit --each < commands.txt",
    ),
    "nosuchprogram": (
        "there is no command 'nosuchprogram' on the PATH of this job",
        "check the spelling, or write its path; command -v nosuchprogram",
    ),
    "./nosuchfile": (
        "there is no file ./nosuchfile",
        "write the path of a program, or its name if it is on the PATH",
    ),
    "./plain.py": ("./plain.py is not executable", "phalanx submit -- python ./plain.py"),
    "plain.py": (
        "there is no command 'plain.py' on the PATH, but a file of that name",
        "phalanx submit -- python plain.py",
    ),
    "'sleep 1 && echo done'": (
        "'sleep 1 && echo done' is a line for a shell, and is not run by one",
        "phalanx submit -- bash -c 'sleep 1 && echo done'",
    ),
    "'sleep 1' x": ("there is no command 'sleep 1': it looks like several words", "phalanx submit -- sleep 1 x"),
    "LR=3 A='b c' true --x": (
        "LR=3 sets a variable, which only a shell does",
        "phalanx submit --env LR=3 --env 'A=b c' -- true --x",
    ),
    "-g 4 --time 2h 'a && b'": (
        "'a && b' is a line for a shell, and is not run by one",
        "phalanx submit -g 4 --time 2h -- bash -c 'a && b'",
    ),
    "-g 2 LR=3 true": ("LR=3 sets a variable, which only a shell does", "phalanx submit -g 2 --env LR=3 -- true"),
    "-g 2 plain.py --lr 3": (
        "there is no command 'plain.py' on the PATH, but a file of that name",
        "phalanx submit -g 2 -- python plain.py --lr 3",
    ),
    "'FOO=1 python x.py'": (
        "'FOO=1 python x.py' sets a variable, which only a shell does",
        "phalanx submit --env FOO=1 -- python x.py",
    ),
    "-g 2 'A=1 B=2 python x.py --lr 3'": (
        "'A=1 B=2 python x.py --lr 3' sets a variable, which only a shell does",
        "phalanx submit -g 2 --env A=1 --env B=2 -- python x.py --lr 3",
    ),
    "'FOO=1 python x.py > log'": (
        "'FOO=1 python x.py > log' is a line for a shell, and is not run by one",
        "phalanx submit -- bash -c 'FOO=1 python x.py > log'",
    ),
    "'FOO=$HOME'": (
        "FOO=$HOME sets a variable, which only a shell does",
        "phalanx submit --env 'FOO=$HOME' -- COMMAND",
    ),
    "./bash.sh -x": ("./bash.sh is not executable", "phalanx submit -- bash ./bash.sh -x"),
    "./env.sh": ("./env.sh is not executable", "phalanx submit -- zsh -f ./env.sh"),
    "./own.sh": ("./own.sh is not executable", "phalanx submit -- /opt/my/sh -e ./own.sh"),
    "./bare.sh": ("./bare.sh is not executable", "phalanx submit -- sh ./bare.sh"),
    "./bare.bash": ("./bare.bash is not executable", "phalanx submit -- bash ./bare.bash"),
    "bash.sh": (
        "there is no command 'bash.sh' on the PATH, but a file of that name",
        "phalanx submit -- bash bash.sh",
    ),
    "-g 2 pipe.sh a": (
        "there is no command 'pipe.sh' on the PATH, but a file of that name",
        "phalanx submit -g 2 -- ./pipe.sh a",
    ),
    "--deadline soon true": (
        "--deadline 'soon' is neither a length nor an instant",
        "write --deadline 6h, 18:30 or 2026-11-16T09:00",
    ),
    ".": ("there is no command '.' on the PATH of this job", "check the spelling"),
    "./": ("./ is a directory, not a program", "name a program in it"),
    "--cwd nowhere true": ("--cwd nowhere: does not exist", "name a directory that is there"),
    "--cwd plain.py true": ("--cwd plain.py: is no directory", "name a directory that is there"),
    "--name 7 true": ("--name 7 could be taken for a job's id", "write a name with a letter in it"),
    **{
        f"--name '{name}' true": (
            f"--name '{name}' could be taken for other jobs: ids, or elements of an array",
            "write a name without brackets, commas or any: before it, and with a letter in it",
        )
        for name in ("1-3", "arr[1]", "a[0-3]", "any:3")
    },
    "--env =x true": ("--env '=x' names no variable", "write --env NAME=value"),
    "--env NOSUCH true": ("--env NOSUCH: there is no such variable here", "write --env NOSUCH=value"),
    "--time soon true": ("--time 'soon' is no length of time", "write --time 90, 5m, 1h30m, 2d or 01:30:00"),
    "--time 0 true": ("--time '0' is no time at all", "write --time 5m"),
    "--time 9999999d true": ("--time '9999999d' is more than 100 years", "write --time 2d"),
    "--begin someday true": ("--begin 'someday' is no instant", "write --begin +10m, 18:30 or 2026-11-16T09:00"),
    "--begin 25:00 true": ("--begin '25:00' is no instant", "write --begin +10m, 18:30 or 2026-11-16T09:00"),
    "--deadline 2001-01-01T00:00 true": (
        "--deadline '2001-01-01T00:00' is over already",
        "write --deadline 6h, or an instant to come: 18:30",
    ),
    "--warn USR1@60s true": ("--warn is a signal before a kill, and nothing is to be killed", "add --kill-after 2h"),
    "--kill-after 1h --warn FOO@60s true": ("there is no signal 'FOO'", "write --warn USR1@60s"),
    "--after any:1,ok:2 true": (
        "--after mixes ok: and any:, and a job waits either for success or for any end of all it names",
        "write any: for all of them, or ok: for all of them",
    ),
    "--after maybe:1 true": ("--after 'maybe:1' names no job", "write --after 12, --after ok:12 or --after any:12"),
    "--array 5-1 true": ("--array '5-1' has an empty part 5-1", "write --array 0-99, 0-99%8 or 1,3,5"),
    "--array 0-9%0 true": (
        "--array '0-9%0': what follows % is how many may run at once",
        "write --array 0-99, 0-99%8 or 1,3,5",
    ),
    "--array 1,1 true": ("--array '1,1' names an index twice", "write --array 0-99, 0-99%8 or 1,3,5"),
    "--array 0-999999999 true": ("--array '0-999999999' has more than 100,000 jobs", "submit it in parts"),
    "--topology near:rack true": (
        "--topology 'near:rack' is not understood",
        "write --topology require:node or prefer:node",
    ),
    "--progress-regex x true": (
        "--progress-regex has no group named step",
        r"write --progress-regex 'step (?P<step>\d+)/(?P<total>\d+)'",
    ),
    "--restarts -1 true": ("--restarts -1 is below zero", "write --restarts 3"),
    "--priority 9999999999 true": ("--priority 9999999999 is out of bounds", "write one between ±1,000,000,000"),
    "missing.yaml": ("missing.yaml: cannot be read: No such file or directory", "name a file that is there"),
    "typo.yaml": ("typo.yaml: line 3: has the unknown key 'ech'; did you mean each?", "mend the file"),
    "typo.yaml --json": (
        "typo.yaml is a file of gangs, and what stands behind it is for nobody: --json",
        "write options before it: phalanx submit --json typo.yaml",
    ),
    "--each true": (
        "--each reads commands from standard input, and there is one on the line too",
        "keep one of them",
    ),
    "--each": ("standard input has no commands", "phalanx submit --each < commands.txt"),
    "--each --array 0-3": ("--each and --array both make many jobs", "keep one of them"),
}


@pytest.mark.parametrize("words", USAGE)
def test_submit_refuses(daemon, phalanx, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    Path("plain.py").write_text("print(1)\n")
    heads = {
        "-x.sh": "#!/bin/bash",
        "bash.sh": "#!/bin/bash",
        "env.sh": "#!/usr/bin/env -S zsh -f",
        "own.sh": "#! /opt/my/sh -e",
    }
    for name, head in {**heads, "bare.sh": "", "bare.bash": "", "pipe.sh": "#!/bin/bash"}.items():
        Path(name).write_text(f"{head}\nsleep 1\n")
    Path("pipe.sh").chmod(0o755)
    Path("typo.yaml").write_text("name: A\nmembers: 4\nech: {gpu: 1}\ncommand: [python, plain.py]\n")
    done = phalanx("submit", *shlex.split(words))
    message, hint = USAGE[words]
    assert done.stderr == f"phalanx: error: {message}\n  next: {hint}\n"
    assert (done.exit_code, done.stdout) == (2, "")
    assert daemon.requests == []


def test_a_name_with_a_line_break(daemon, phalanx):
    done = phalanx("submit", "--name", "a\nb", "true")
    assert done.exit_code == 2
    assert done.stderr.splitlines()[0] == r"phalanx: error: --name 'a\nb' contains a line break"
    assert "character '\\x1b'" in phalanx("submit", "--name", "a\x1b[31m", "true").stderr
    assert daemon.requests == []


def test_an_environment_of_two_megabytes_names_the_biggest(daemon, phalanx, monkeypatch):
    for number in range(20):
        monkeypatch.setenv(f"HUGE_{number:02d}", "x" * (100_000 + number * 2048))
    done = phalanx("submit", "true")
    assert done.exit_code == 2
    assert (
        "and 128 KiB is the most; the biggest: HUGE_19 (136 KiB), HUGE_18 (134 KiB), HUGE_17 (132 KiB)" in done.stderr
    )
    assert "--clean-env" in done.stderr
    assert daemon.requests == []
    daemon.answer("POST", "/v1/jobs", {"id": 1, "name": "true", "state": "running", "eta": None})
    assert phalanx("submit", "--clean-env", "--env", "A=1", "true").exit_code == 0
    (request,) = daemon.sent("POST", "/v1/jobs")
    env = request.body["run"]["env"]
    assert env["A"] == "1"
    assert set(env) <= {"A", "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG"}


def test_what_was_set_for_the_job_alone_is_not_to_be_unset(daemon, phalanx, tmp_path):
    """`unset A, or write --clean-env` gave the same error again."""
    gang = {"name": "a", "members": 1, "each": {"gpu": 1}, "command": "env", "env": {"A": "x" * 200_000}}
    (tmp_path / "job.json").write_text(json.dumps(gang))
    done = phalanx("submit", "--clean-env", tmp_path / "job.json")
    assert "the biggest: A (196 KiB)" in done.stderr
    assert done.stderr.splitlines()[1] == "  next: put what A holds into a file, and the path of the file into A"
    assert (done.exit_code, daemon.requests) == (2, [])


def test_a_working_directory_that_is_gone(daemon, phalanx, tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    try:
        done = phalanx("submit", "true")
        assert (done.exit_code, daemon.requests) == (2, [])
        assert "the working directory is gone" in done.stderr
        daemon.answer("POST", "/v1/jobs", {"id": 1, "name": "true", "state": "running", "eta": None})
        assert phalanx("submit", "--cwd", tmp_path, "true").exit_code == 0
    finally:
        os.chdir(tmp_path)


REFUSALS = {
    "usage": (400, 2),
    "unauthorised": (401, 1),
    "forbidden": (403, 1),
    "not_found": (404, 3),
    "ambiguous": (409, 2),
    "conflict": (409, 2),
    "too_large": (413, 2),
    "misdirected": (421, 1),
    "infeasible": (422, 4),
    "too_many": (429, 1),
    "internal": (500, 1),
    "unavailable": (503, 1),
}


@pytest.mark.parametrize("code", REFUSALS)
def test_a_refusal_of_the_daemon_ends_with_its_exit_code(daemon, phalanx, code):
    status, exit_code = REFUSALS[code]
    told = {"code": code, "message": "no: \x1b[31m1 and 12 match", "hint": "phalanx why 12", "details": {}}
    daemon.answer("GET", "/v1/jobs/tr/why", {"error": told}, status)
    done = phalanx("why", "tr")
    assert done.stderr == "phalanx: error: no: \\x1b[31m1 and 12 match\n  next: phalanx why 12\n"
    assert (done.exit_code, done.stdout) == (exit_code, "")


def test_one_bad_id_among_good_ones_does_not_keep_them(telling, phalanx, canned):
    refused = [
        {"ref": ref, "error": {"code": "not_found", "message": f"there is no job '{ref}'", "hint": "phalanx ps -a"}}
        for ref in ("77", "78")
    ]
    telling.answer("POST", "/v1/cancel", {"jobs": [canned.PENDING], "refused": refused})
    done = phalanx("cancel", "77", "2", "78")
    assert done.stdout == "2 sft  pending\n"
    assert "there is no job '77'" in done.stderr
    assert "there is no job '78'" in done.stderr
    assert done.exit_code == 3
    (request,) = telling.sent("POST", "/v1/cancel")
    assert request.body == {"jobs": ["77", "2", "78"]}, "one request: nothing is started between two of them"


def test_an_action_that_is_refused_prints_no_value(daemon, phalanx):
    told = {"code": "conflict", "message": "job 3 is completed", "hint": "phalanx retry 3", "details": {}}
    daemon.answer("POST", "/v1/jobs/3/preempt", {"error": told}, 409)
    done = phalanx("preempt", "--drill", "3", "-o", "json")
    assert "null" not in done.stdout
    assert "job 3 is completed" in done.stderr, done.stderr


def test_no_daemon_is_exit_code_5(home, phalanx):
    for words in ("ps", "why 1", "status", "nodes", "cancel 1", "logs 1", "wait 1", "events"):
        done = phalanx(*words.split())
        assert done.stderr == f"phalanx: error: no daemon is running (state directory {home})\n  next: phalanx up\n", (
            words
        )
        assert done.exit_code == 5
    assert phalanx("down").stdout == "no daemon is running\n"


def test_where_no_daemon_ever_ran_there_is_nothing_to_report(home, phalanx):
    said = f"no daemon has run here yet, so {home} tells nothing (phalanx up starts one)"
    for words, nothing in (("report", "nothing has run yet"), ("report eta", "no estimate has been put to the test")):
        done = phalanx(*words.split())
        assert (done.exit_code, done.stderr.partition("\n")[0]) == (0, f"phalanx: note: {said}")
        assert nothing in done.stdout + done.stderr
    assert json.loads(phalanx("report", "eta", "--json").stdout)["warnings"] == [said]


def test_a_daemon_that_died_is_said_to_be_gone(daemon, phalanx):
    daemon.close()
    try:
        done = phalanx("ps")
        assert done.exit_code == 5
        assert "the daemon is not running" in done.stderr
        assert "next: phalanx up" in done.stderr
    finally:
        daemon.close = lambda: None


def test_a_daemon_of_another_version_names_the_way_out(telling, phalanx, home):
    about = (home / "daemon.json").read_text()
    (home / "daemon.json").write_text(about.replace(f'"{__version__}"', '"0.0.9"'))
    why = f"phalanx: error: the daemon is phalanx 0.0.9, and this command is {__version__}\n"
    for words in ("ps", "submit true", "why 1", "up", "status"):
        done = phalanx(*words.split())
        assert done.stderr == f"{why}  next: phalanx down && phalanx up; running jobs go on meanwhile\n", words
        assert done.exit_code == 5
    assert telling.sent("POST", "/v1/jobs") == []
    assert "pid 77" in phalanx("status").stdout, "it is still told what runs there"


def test_a_misspelt_verb_brings_a_question(home, phalanx):
    assert "there is no verb 'submti'; did you mean submit?" in phalanx("submti").stderr
    assert "phalanx --help lists the verbs" in phalanx("xyzzy").stderr
    assert phalanx("xyzzy").exit_code == 2


VERBS = {
    "resize 1": "resize needs one size",
    "resize 1 many": "'many' is no number of members",
    "resize 1 0": "'0' is no number of members",
    "preempt 1": "only the scheduler preempts for real",
    "edit 1": "edit changes nothing",
    "edit 1 --time never": "--time 'never' is no length of time",
    "logs 1 --rank x": "--rank 'x' is no rank",
    "ps --columns id,nme": "--columns: there is no column 'nme'",
    "ps --state runing": "--state 'runing' is no state of a job",
    "report --by colour": "--by 'colour' is nothing to report by",
    "report --since ever": "--since 'ever' is no length of time",
    "gantt --past ever": "--past 'ever' is no length of time",
    "wait 1 --timeout ever": "--timeout 'ever' is no length of time",
}


@pytest.mark.parametrize("words", VERBS)
def test_other_verbs_refuse(daemon, phalanx, words):
    done = phalanx(*words.split())
    assert done.stderr.splitlines()[0] == f"phalanx: error: {VERBS[words]}"
    assert done.stderr.splitlines()[1].startswith("  next: ")
    assert (done.exit_code, daemon.requests) == (2, [])


#: What is typed about a job, and the next command, about the same one.
ABOUT_A_JOB = {
    "edit 43": "phalanx edit 43 --priority 5; phalanx edit --help",
    "resize el": "phalanx resize el 4, or phalanx resize el auto",
    "resize el abc": "phalanx resize el 4, or phalanx resize el auto",
    "resize 'arr[0-3]' abc": "phalanx resize 'arr[0-3]' 4, or phalanx resize 'arr[0-3]' auto",
    "edit el --deadline soon": "write --deadline 6h, 18:30 or 2026-11-16T09:00",
    "preempt el": "phalanx preempt --drill el, or phalanx cancel el",
    "ps --state PENDING": "did you mean pending?",
    "ps --state Runing,pending": "did you mean running?",
    "run -g 1 --array 0-2 -- true --raw": "phalanx submit -g 1 --array 0-2 -- true --raw",
    "run --raw -g 1 --array 0-2 true": "phalanx submit -g 1 --array 0-2 true",
}


@pytest.mark.parametrize("words", ABOUT_A_JOB)
def test_the_next_command_is_about_what_was_typed(daemon, phalanx, words):
    done = phalanx(*shlex.split(words))
    assert done.stderr.splitlines()[1] == f"  next: {ABOUT_A_JOB[words]}"
    assert (done.exit_code, daemon.requests) == (2, [])


def test_a_deadline_that_is_too_early_names_the_deadline(daemon, phalanx):
    why = "sleep: can never meet its deadline: it needs longer than that even alone on an empty cluster"
    error = {"code": "infeasible", "message": why, "hint": "ask for less, or look at what there is: phalanx nodes"}
    daemon.answer("POST", "/v1/jobs", {"error": error}, status=422)
    done = phalanx("submit", "--time", "2h", "--deadline", "5m", "sleep", "1")
    assert done.stderr.splitlines()[1] == "  next: write a later --deadline, or a shorter --time if it needs less"


def test_what_a_pending_job_asks_for_is_taken_back(telling, phalanx):
    """The API knew null for all of them, and the command line only of a topology."""
    telling.answer("PATCH", "/v1/jobs/2", {"id": 2, "name": "sft", "state": "pending"})
    done = phalanx("edit", "2", "--deadline", "none", "--kill-after", "none", "--time", "none", "--topology", "none")
    (request,) = telling.sent("PATCH", "/v1/jobs/2")
    assert request.body == dict.fromkeys(("deadline", "kill_after", "walltime", "topology"))
    assert "changed: " in done.stdout


@pytest.mark.parametrize(
    ("words", "said", "hint"),
    [
        ("--policy nosuch", "there is no policy 'nosuch'", "docs/policies.md"),
        ("--remove-nodes nosuch", "--remove-nodes: there is no node 'nosuch'", "phalanx nodes"),
        ("--cancel tr", "--cancel: 'tr' (job 5) has failed already", "phalanx ps -a"),
        ("--cancel old", "--cancel: 'old' (job 4) has ended already", "phalanx ps -a"),
        ("--cancel 5", "--cancel: '5' has failed already", "phalanx ps -a"),
    ],
)
def test_what_if_names_what_was_typed_and_the_next_step(telling, phalanx, canned, tmp_path, words, said, hint):
    state = tmp_path / "state.json"
    made = phalanx("what-if", "--from", "examples/tenants.yaml", "--at", "1h", "--policy", "fair", "-o", state)
    assert made.exit_code == 0, made.output
    telling.answer("GET", "/v1/state", {**json.loads(state.read_text()), "ended": {"5": "failed"}})
    for word, number in (("tr", 5), ("5", 5), ("old", 4)):
        telling.answer("GET", f"/v1/jobs/{word}", canned.detail(canned.row(id=number)))
    done = phalanx("what-if", *words.split())
    assert said in done.stderr.splitlines()[0]
    assert done.stderr.splitlines()[1] == f"  next: {hint}"
    assert json.loads(phalanx("what-if", *words.split(), "--json").stderr)["error"]["hint"] == hint
