"""The command line as programs and pipes use it: JSON under both names, errors as JSON, a reader that goes away."""

import json
import subprocess
import sys
from importlib import import_module

import click
import pytest

from phalanx.cli import _VERBS, main

PHALANX = "from phalanx.cli import main; main(prog_name='phalanx')"
#: These print for people alone, or what they print is somebody else's text, or their -o names a file.
WITHOUT = {"completion", "install", "demo", "trace convert", "trace make", "what-if"}


def commands():
    """Every command that does something, by what one types for it."""
    for verb, module in sorted(_VERBS.items()):
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
