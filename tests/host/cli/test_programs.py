"""The command line as programs and pipes use it: JSON under both names, errors as JSON, a reader that goes away."""

import asyncio
import contextlib
import json
import subprocess
import sys
from importlib import import_module

import click
import pytest
from click.testing import CliRunner

from phalanx.cli import main

PHALANX = "from phalanx.cli import main; main(prog_name='phalanx')"
#: These print for people alone, or what they print is somebody else's text, or their -o names a file.
WITHOUT = {"completion", "install", "demo", "trace convert", "trace make", "what-if"}


def commands():
    """Every command that does something, by what one types for it."""
    for verb, module in sorted(main.verbs.items()):
        found = getattr(import_module(f"phalanx.cli.{module}"), verb.replace("-", "_"))
        if isinstance(found, click.Group):
            if found.invoke_without_command:
                yield verb, found
            for name, inner in found.commands.items():
                yield f"{verb} {name}", inner
        else:
            yield verb, found


@pytest.mark.parametrize(("words", "command"), [each for each in commands() if each[0] not in WITHOUT], ids=str)
def test_json_has_both_names_everywhere(words, command):
    options = {name for option in command.params for name in option.opts}
    assert {"-o", "--json"} <= options, words


def test_both_names_say_the_same(telling, phalanx):
    for words in ("ps", "show 1", "why 214", "nodes", "queues", "status", "share", "report", "cancel 2", "submit true"):
        first, *rest = words.split()
        assert phalanx(first, "--json", *rest).stdout == phalanx(first, "-o", "json", *rest).stdout, words
        json.loads(phalanx(first, "--json", *rest).stdout)
    assert json.loads(phalanx("report", "eta", "--json").stdout)["count"] == 42


def test_what_if_takes_both_too(phalanx, tmp_path):
    state = tmp_path / "state.json"
    made = phalanx("what-if", "--from", "examples/tenants.yaml", "--at", "1h", "--policy", "fair", "-o", state)
    assert made.exit_code == 0, made.output
    assert json.loads(phalanx("what-if", state, "-o", "json").stdout) == json.loads(
        phalanx("what-if", state, "--json").stdout
    )


def test_errors_are_json_where_json_was_asked_for(telling, phalanx):
    error = {"code": "conflict", "message": "job 2 is completed, not running", "hint": "phalanx show 2", "details": {}}
    telling.answer("POST", "/v1/jobs/2/preempt", {"error": error}, status=409)
    for words in (["-o", "json"], ["--json"]):
        done = phalanx("preempt", "--drill", "2", *words)
        assert (done.stdout, done.exit_code) == ("", 2)
        assert json.loads(done.stderr) == {"error": error}
    done = phalanx("show", "77", "--json")
    assert (json.loads(done.stderr)["error"]["code"], done.exit_code) == ("not_found", 3)
    done = phalanx("submit", "--json", "-g", "0", "true")
    assert json.loads(done.stderr)["error"]["hint"].startswith("write -g 1")
    done = phalanx("ps", "--json", "--colums", "id")
    assert (json.loads(done.stderr)["error"]["code"], done.exit_code) == ("usage", 2)
    done = phalanx("sim", "no-such.yaml", "--json")
    assert "no-such.yaml" in json.loads(done.stderr)["error"]["message"]


def test_a_drill_says_what_may_be_lost(telling, phalanx, canned):
    risky = {**canned.PENDING, "warnings": ["what it does not save is lost"]}
    telling.answer("POST", "/v1/jobs/2/preempt", risky)
    done = phalanx("preempt", "--drill", "2")
    assert "drill begun" in done.stdout
    assert done.stderr == "phalanx: warning: 2: what it does not save is lost\n"


def test_errors_are_words_where_it_was_not(telling, phalanx):
    assert phalanx("show", "77").stderr.startswith("phalanx: error: ")
    assert "Error: " in phalanx("ps", "--colums", "id").stderr
    done = phalanx("submit", "-g", "nix", "--", "cat", "--json")
    assert done.stderr.startswith("phalanx: error: "), "what stands behind -- is the job's"


def test_without_a_daemon_the_error_is_json_too(home, phalanx):
    done = phalanx("ps", "--json")
    assert (json.loads(done.stderr)["error"]["code"], done.exit_code) == ("unreachable", 5)


def test_a_reader_that_goes_away_is_no_error(telling, canned):
    jobs = [canned.row(id=number, name=f"job-with-a-long-name-{number}") for number in range(5000)]
    telling.answer("GET", "/v1/jobs", {"schema": "phalanx.jobs/1", "jobs": jobs})
    line = f'{sys.executable} -c "{PHALANX}" ps | head -1; echo ${{PIPESTATUS[0]}}'
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] in ("0", "141")
    assert done.stderr == ""


def test_as_a_module_of_python_it_is_the_same(telling):
    done = subprocess.run(
        [sys.executable, "-m", "phalanx", "--version"], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.startswith("phalanx, version ")
    assert main.name == "main"


def test_down_says_who_waits(telling, phalanx, monkeypatch):
    monkeypatch.setattr("phalanx.client.daemon_starting.wait_until_gone", lambda place: True)
    telling.answer("POST", "/v1/down", {"stopping": True})
    done = phalanx("down")
    assert done.stdout == "down; running jobs go on\n"
    assert done.stderr == "phalanx: note: 1 job waits, and nothing starts until the daemon is up again: phalanx up\n"
    assert json.loads(phalanx("down", "--json").stdout) == {"was_up": True, "pending": 1}


def test_what_was_refused_alone_prints_no_null(telling, phalanx):
    error = {"code": "conflict", "message": "job 9 has ended: completed", "hint": "phalanx retry 9", "details": {}}
    telling.answer("POST", "/v1/cancel", {"jobs": [], "refused": [{"ref": "9", "error": error}]})
    done = phalanx("cancel", "9", "--json")
    assert (done.stdout, json.loads(done.stderr), done.exit_code) == ("", {"error": error}, 2)


# ---- notes


SLURM = (
    "#!/bin/bash\n#SBATCH --ntasks=2\n#SBATCH --mail-user=a@b\n#SBATCH --qos=high\n#SBATCH --partition=gpu\nsrun x\n"
)


def test_notes_are_in_the_object_where_json_was_asked_for(telling, phalanx, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slurm.sh").write_text(SLURM)
    accepted = {"id": 7, "name": "a", "state": "running", "eta": None, "reason": None, "warnings": ["of the daemon"]}
    telling.answer("POST", "/v1/jobs", accepted)
    done = phalanx("submit", "slurm.sh")
    told = [line.removeprefix("phalanx: note: ") for line in done.stderr.splitlines()]
    assert len(told) >= 5
    assert "--partition=gpu is no queue here" in done.stderr
    done = phalanx("submit", "--json", "--dry-run", "slurm.sh")
    assert (json.loads(done.stdout)["warnings"], done.stderr) == (told, "")
    telling.answer("POST", "/v1/jobs", {"jobs": [accepted, {**accepted, "warnings": []}]})
    done = phalanx("submit", "--json", "--array", "0-1", "slurm.sh")
    assert ([job["warnings"] for job in json.loads(done.stdout)], done.stderr) == ([told, []], "")
    done = phalanx("submit", "-o", "jsonl", "--array", "0-1", "slurm.sh")
    assert (json.loads(done.stdout.splitlines()[0])["warnings"], done.stderr) == (told, "")


def test_a_machine_without_gpus_is_told_of_fake_ones(telling, phalanx, canned):
    status = {**canned.STATUS, "gpus": {"total": 0.0}, "fake": False}
    telling.answer("GET", "/v1/status", status)
    said = "there are no GPUs here; to try it with made-up ones: phalanx down && phalanx up --fake-gpus 8"
    for verb in ("status", "up"):
        assert phalanx(verb).stderr == f"phalanx: note: {said}\n"
        done = phalanx(verb, "--json")
        assert (json.loads(done.stdout), done.stderr) == ({**status, "warnings": [said]}, "")
    telling.answer("GET", "/v1/status", canned.STATUS)
    assert "warnings" not in json.loads(phalanx("status", "--json").stdout)


def test_notes_beside_lists_and_streams_are_json_too(home, phalanx):
    from phalanx.frontends.host.clock import HostClock
    from phalanx.frontends.host.store import open_store

    asyncio.run(open_store(home, clock=HostClock()).close())
    said = f"the daemon is down; this is what {home} says (phalanx up starts it)"
    assert phalanx("report").stderr.startswith(f"phalanx: note: {said}\n")
    done = phalanx("report", "--json")
    assert (json.loads(done.stdout), json.loads(done.stderr)) == ([], {"warning": said})
    done = phalanx("report", "eta", "--json")
    assert (json.loads(done.stdout)["warnings"], done.stderr) == ([said], "")
    first, second = phalanx("logs", "1", "-o", "jsonl").stderr.splitlines()
    assert (json.loads(first), json.loads(second)["error"]["code"]) == ({"warning": said}, "not_found")


# ---- where --json stands, and what it says of words that cannot be read


def test_json_may_stand_before_the_verb(telling, phalanx):
    for words in ("ps", "report eta", "config show", "nodes", "show 1"):
        for said in (["--json"], ["-o", "json"], ["-ojson"], ["--output=json"]):
            assert phalanx(*said, *words.split()).stdout == phalanx(*words.split(), "--json").stdout, words
    done = phalanx("--json", "submit", "--dry-run", "--", "env", "--json")
    assert json.loads(done.stdout)["id"] == 7
    assert telling.sent("POST", "/v1/jobs")[-1].body["run"]["command"] == ["env", "--json"]
    assert json.loads(phalanx("--json", "show", "77").stderr)["error"]["code"] == "not_found"
    assert phalanx("--version", "ps").stdout.startswith("phalanx, version ")


UNREADABLE = {
    "ps --json --colums id": "phalanx ps --help",
    "--json ps --limit x": "phalanx ps --help",
    "report eta --json --bye": "phalanx report eta --help",
    "--json psx": "phalanx --help",
    "psx --json": "phalanx --help",
    "show --json": "phalanx show --help",
}


@pytest.mark.parametrize("words", UNREADABLE)
def test_words_that_cannot_be_read_have_a_next_step_too(home, words):
    done = CliRunner().invoke(main, words.split(), prog_name="phalanx")
    error = json.loads(done.stderr)["error"]
    assert (error["code"], error["hint"], done.exit_code) == ("usage", UNREADABLE[words], 2)
    assert error["message"]


def test_streams_take_json_for_jsonl(telling, phalanx, canned):
    telling.answer("GET", "/v1/jobs/1", canned.detail(canned.row(state="completed")))
    telling.answer("GET", "/v1/jobs/1/logs", b"a\nb\n", **{"X-Phalanx-Ranks": "1", "X-Phalanx-Offset": "4"})
    for verb in ("logs", "events", "run"):
        assert "json is jsonl here: a line for each" in phalanx(verb, "--help").stdout.replace("\n", " ").replace(
            "  ", ""
        )
    assert phalanx("logs", "1", "-o", "xml").exit_code == 2


# ---- what the system refuses


def test_only_what_cannot_be_written_is_told_so(home, monkeypatch, phalanx):
    """An interpreter that its user may not run was "cannot write the output"."""
    from phalanx.client import daemon_starting

    def refuse(command, log):
        raise PermissionError(13, "Permission denied", command[0])

    monkeypatch.setattr(daemon_starting, "spawn_daemon", refuse)
    done = phalanx("up")
    why = f"the daemon cannot be started: {sys.executable}: Permission denied"
    assert done.stderr == f"phalanx: error: {why}\n  next: install phalanx where you may run it: docs/install.md\n"
    assert done.exit_code == 5

    def fail(*args, **more):
        raise PermissionError(13, "Permission denied", "/somewhere")

    monkeypatch.setattr("phalanx.cli.host.ps.read_rows", fail)
    monkeypatch.setattr("phalanx.cli.host.ps.talking", lambda: contextlib.nullcontext(None))
    done = phalanx("ps")
    assert done.stderr == "phalanx: error: /somewhere: Permission denied\n  next: phalanx doctor\n"
    assert done.exit_code == 1


def test_a_full_disk_under_the_output_is_told_so(telling):
    line = f'{sys.executable} -c "{PHALANX}" ps > /dev/full'
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "cannot write the output: No space left on device; make room or write elsewhere" in done.stderr
