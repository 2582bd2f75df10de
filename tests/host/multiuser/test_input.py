"""Words that lie: names, environments, paths and commands that would like to mean more than they say."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from people import ADA, BOB
from realdaemon import MARK, until

from phalanx.frontends.host import containment
from phalanx.frontends.host.messages import ENDED

CLI = str(Path(sys.executable).with_name("phalanx"))
NAMES = {
    "escape": "red\x1b[31m\x1b]0;title\x07",
    "c1": "\x9b31mred",
    "up": "../../../../etc/cron.d/x",
    "newline": "one\ntwo",
    "return": "one\rtwo",
    "nul": "one\0two",
    "4k": "x" * 4096,
    "right to left": "\u202eexe.gpj",
    "zero width": "a\u200bda",
    "line separator": "a\u2028b",
    "format": "%s%n{0}$(id)`id`;id",
    "markup": "<script>alert(1)</script>",
    "an id": "12",
    "arabic id": "\u0661\u0662",
    "option": "--help",
    "blanks": "  ",
}


def is_plain(text):
    """Nothing in it that a terminal obeys, or that makes one line look like another."""
    return all(char == "\n" or unicodedata.category(char) not in ("Cc", "Cf", "Zl", "Zp", "Co", "Cs") for char in text)


@pytest.mark.parametrize("kind", NAMES)
def test_names(shared, kind):
    """Refused with a word that is safe to print, or taken as what it is: letters, and no place on disk."""
    ada = shared.by(ADA)
    before = sorted(shared.folder.iterdir())
    reply = ada.post(ada.submission("true", 1), name=NAMES[kind])
    assert reply.status in (200, 400), reply
    if reply.status == 400:
        assert is_plain(reply["error"]["message"]), reply
        return
    ada.wait(reply["id"])
    done = ada.run(CLI, "show", str(reply["id"]), PHALANX_HOME=str(shared.state))
    assert done.returncode == 0, done
    assert is_plain(done.stdout), done.stdout
    assert (shared.state / "runs" / f"{reply['id']}.1").is_dir()
    assert sorted(shared.folder.iterdir()) == before


@pytest.mark.parametrize("place", ["array", "role", "together", "queue", "select", "edit"])
def test_other_words_are_as_plain_as_names(shared, place):
    ada = shared.by(ADA)
    for kind in ("escape", "c1", "newline", "nul", "right to left", "line separator"):
        reply = send_word(ada, place, NAMES[kind])
        assert reply.status in (400, 422), (kind, reply)
        assert is_plain(reply["error"]["message"]), (kind, reply)


def send_word(ada, place, word):
    """A submission, or an edit, with this word in that place."""
    plain = ada.submission("true", 1)
    role = {"name": word, "members": 1, "each": {"gpu": 1}}
    changed = {
        "array": {**plain, "array": {"index": 1, "of": word}},
        "role": {**plain, "gang": {"roles": [role]}},
        "together": {**plain, "gang": {**plain["gang"], "together": {"word": word, "gangs": 1}}},
        "queue": {**plain, "gang": {**plain["gang"], "queue": word}},
        "select": {**plain, "gang": {**plain["gang"], "select": {"gpu-model": word}}},
    }
    if place == "edit":
        job = ada.submit("true", 1, hold=True)
        reply = ada.call("PATCH", f"/v1/jobs/{job}", {"name": word})
        ada.act(job, "cancel")
        return reply
    return ada.call("POST", "/v1/jobs", changed[place])


def test_what_a_job_prints_is_text_to_others_terminals(shared):
    ada = shared.by(ADA)
    job = ada.submit(r"printf '\033]0;owned\007\033[2J\r\302\2331m last words\n'; exit 3", 1)
    ada.wait(job)
    for words in (["ps", "--finished"], ["show", str(job)], ["why", str(job)]):
        done = ada.run(CLI, *words, PHALANX_HOME=str(shared.state))
        assert "last words" in done.stdout, done
        assert is_plain(done.stdout), done.stdout


NUMBERS = {
    "umask": [-1, 1 << 40],
    "log_cap_bytes": [-1, 1],
    "grace_s": [-1, 1e308],
    "restarts": [-1, 1 << 70],
    "kill_after_warning": [{"signal": "NOPE"}, {"before_s": 1e308}, {"before_s": -1}],
    "progress_regex": ["(" * 3000 + ")" * 3000, "(?P<step>a){999999999999}", "(", "x" * 100_000],
    "cwd": ["relative", "/a\0b"],
    "command": [[], [""], ["a\0b"], ["x" * 300_000]],
    "env": [{"A=B": "x"}, {"": "x"}, {"A": "x\0y"}, {"A": "x" * 200_000}],
}


@pytest.mark.parametrize("key", NUMBERS)
def test_bounds_of_how_a_job_is_started(shared, key):
    ada = shared.by(ADA)
    for value in NUMBERS[key]:
        reply = ada.post(ada.submission("true", 1, kill_after="1m", run={key: value}))
        assert reply.status in (400, 413), (str(value)[:60], reply)
        assert reply["error"]["hint"]


# ---------------------------------------------------------------------- environments

CANARY_C = r"""
#include <stdio.h>
#include <unistd.h>
__attribute__((constructor)) static void sing(void) {
    FILE *file = fopen("%s", "a");
    if (file) { fprintf(file, "%%d %%d\n", getuid(), getpid()); fclose(file); }
}
"""
CANARY_PY = """
import os
with open({!r}, "a") as file:
    file.write(f"{{os.getuid()}} {{os.getpid()}}\\n")
"""


def make_canary(shared, kind):
    """Variables that would have whoever obeys them write down who it is, and the file where it does."""
    home = shared.folder / f"canary-{kind}"
    home.mkdir(mode=0o755, exist_ok=True)
    notes = home / "notes"
    notes.touch()
    notes.chmod(0o666)
    if kind == "preload":
        if shutil.which("cc") is None:
            pytest.skip("no C compiler")
        library = home / "canary.so"
        code = CANARY_C % notes
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-o", library, "-"], input=code.encode(), check=True)
        return notes, {"LD_PRELOAD": str(library), "LD_LIBRARY_PATH": str(home)}
    for name in ("sitecustomize.py", "usercustomize.py", "startup.py", "phalanx.py"):
        (home / name).write_text(CANARY_PY.format(str(notes)), encoding="utf-8")
    if kind == "python":
        return notes, {"PYTHONPATH": str(home), "PYTHONSTARTUP": str(home / "startup.py"), "PYTHONINSPECT": ""}
    for name in ("python", "python3", "sh", "mount", "cat", "kill"):
        (home / name).write_text(f'#!/bin/bash\necho "$UID $$" >> {notes}\n', encoding="utf-8")
        (home / name).chmod(0o755)
    return notes, {"PATH": f"{home}:.:{os.environ['PATH']}", "BASH_ENV": str(home / "sh"), "ENV": str(home / "sh")}


@pytest.mark.parametrize("kind", ["preload", "python", "path"])
def test_an_environment_reaches_the_job_and_nobody_before_it(shared, kind):
    """The daemon is root and the shim keeps the job's exit codes: neither obeys a variable of the job."""
    ada = shared.by(ADA)
    notes, canary = make_canary(shared, kind)
    opened = ada.homes[ADA] / f"open-{kind}"
    first = {"preload": "/bin/true", "python": f"{sys.executable} -c pass", "path": "mount"}[kind]
    script = f"{first}; while [ ! -e {opened} ]; do /bin/sleep 0.02; done"
    env = {"PATH": os.environ["PATH"], MARK: shared.mark, **canary}
    job = ada.submit(["/bin/sh", "-c", script], 1, run={"env": env})
    until(lambda: notes.read_text(encoding="ascii"), "the canary")
    shim = shared.shim_of(job)
    names = [name for name in canary if name != "PATH"]
    for pid in (shim, shared.process.pid):
        environ = containment.read_file(f"/proc/{pid}/environ").decode()
        assert not [name for name in names if f"{name}=" in environ], environ
        assert str(notes.parent) not in environ + containment.read_file(f"/proc/{pid}/maps").decode()
    opened.touch()
    assert ada.wait(job)["state"] in ENDED
    who = {line.split()[0] for line in notes.read_text(encoding="ascii").splitlines()}
    pids = {int(line.split()[1]) for line in notes.read_text(encoding="ascii").splitlines()}
    assert who == {str(ADA)}
    assert not pids & {shim, shared.process.pid}


def test_what_the_daemon_says_to_a_member_cannot_be_said_for_it(shared):
    ada = shared.by(ADA)
    lies = {
        "PHALANX_KEY_FILE": "/lie",
        "PHALANX_SOCKET": "/lie",
        "PHALANX_JOB": "1",
        "RANK": "7",
        "PHALANX_MARK": "lie",
    }
    job = ada.submit(["/usr/bin/env"], 1, run={"env": {"PATH": "/usr/bin", MARK: shared.mark, **lies}})
    ada.wait(job)
    lines = ada.call("GET", f"/v1/jobs/{job}/logs").body.splitlines()
    told = dict(line.split("=", 1) for line in lines)
    assert [key for key in lies if told[key] == lies[key]] == []
    assert told["PHALANX_KEY_FILE"] == f"{shared.state}/runs/{job}.1/key"


# ---------------------------------------------------------------------- paths


@pytest.fixture
def diary(shared):
    """Something of bob's that nobody else may read or run."""
    path = shared.homes[BOB] / "diary"
    path.write_text("#!/bin/sh\necho dear diary\n", encoding="utf-8")
    path.chmod(0o700)
    os.chown(path, BOB, BOB)
    return path


def test_a_working_directory_of_another(shared, diary):
    ada = shared.by(ADA)
    job = ada.submit("cat diary", 1, run={"cwd": str(diary.parent)})
    assert ada.wait(job)["exit_code"] == 125
    failure = ada.get(f"/v1/jobs/{job}")["failure"]
    assert "Permission denied" in failure["lines"][-1]
    assert "working directory" in failure["lines"][-1]


def test_a_command_of_another(shared, diary):
    ada = shared.by(ADA)
    job = ada.submit([str(diary)], 1)
    assert ada.wait(job)["exit_code"] == 126
    assert "dear diary" not in ada.call("GET", f"/v1/jobs/{job}/logs").body


SWAP = """
import os, sys
link, good, bad = sys.argv[1:4]
for turn in range(10_000):
    os.symlink((good, bad)[turn % 2], f"{link}.new")
    os.replace(f"{link}.new", link)
"""


def test_a_working_directory_that_changes_under_the_start(shared, diary):
    """Looked at and entered by one and the same user, so there is nothing between the two to slip through."""
    ada = shared.by(ADA)
    link = ada.homes[ADA] / "swapped"
    with ada.beside(SWAP, str(link), str(ada.homes[ADA]), str(diary.parent)):
        until(lambda: os.path.lexists(link), "the swapping")
        jobs = [ada.submit("cat diary; pwd", 1, run={"cwd": str(link)}) for _ in range(12)]
        for job in jobs:
            ada.wait(job)
    logs = [ada.call("GET", f"/v1/jobs/{job}/logs").body for job in jobs]
    assert all(logs)
    assert not [log for log in logs if "dear diary" in log or str(shared.homes[BOB]) in log]
