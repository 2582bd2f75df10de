"""What the smaller verbs send and show."""

import json
import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest


def test_bodies_of_verbs(telling, phalanx):
    for words, method, path, body in (
        ("hold 2", "POST", "/v1/hold", {"jobs": ["2"]}),
        ("cancel 2 a b[0-3] 36-39", "POST", "/v1/cancel", {"jobs": ["2", "a", "b[0-3]", "36-39"]}),
        ("resize 2 4", "POST", "/v1/jobs/2/resize", {"members": 4}),
        ("resize 2 --to auto", "POST", "/v1/jobs/2/resize", {"members": "auto"}),
        ("resize 2 --min 2", "POST", "/v1/jobs/2/resize", {"members": "auto", "min": 2}),
        ("preempt --drill 2", "POST", "/v1/jobs/2/preempt", {"drill": True}),
        (
            "edit 2 --priority 5 --time 30m --name b --queue q --topology prefer:node --deadline 1h",
            "PATCH",
            "/v1/jobs/2",
            {
                "priority": 5,
                "walltime": "1800s",
                "name": "b",
                "queue": "q",
                "topology": {"prefer": "node"},
                "deadline": "3600s",
            },
        ),
        ("edit 2 --topology none", "PATCH", "/v1/jobs/2", {"topology": None}),
    ):
        done = phalanx(*words.split())
        assert done.exit_code == 0, (words, done.output)
        assert telling.sent(method, path)[-1].body == body, words


def test_queries(telling, phalanx):
    phalanx("report", "--by", "job", "--since", "7d")
    assert telling.sent("GET", "/v1/report")[-1].query == "by=job&since_s=604800.0"
    phalanx("gantt", "--past", "2h")
    assert telling.sent("GET", "/v1/gantt")[-1].query == "past_s=7200.0"


def test_every_verb_has_help_with_an_example(phalanx):
    from phalanx.cli import main

    for verb in main.verbs:
        done = phalanx(verb, "--help")
        assert done.exit_code == 0, verb
        if verb not in ("demo", "trace", "sim", "config"):
            assert f"phalanx {verb}" in done.stdout.split("Options:")[0].partition("\n")[2], verb
    assert "config show --origin" in phalanx("config", "show", "--help").stdout


def test_the_words_of_the_main_help_are_those_of_the_verbs(phalanx):
    shown = phalanx("--help").stdout
    from phalanx.cli import _SECTIONS

    for section, verbs in _SECTIONS.items():
        assert f"\n{section}:\n" in shown
        for verb, (_, words) in verbs.items():
            assert f"  {verb}" in shown
            assert words in shown


# ---- completion


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(phalanx, shell):
    done = phalanx("completion", shell)
    assert done.exit_code == 0
    assert "_PHALANX_COMPLETE" in done.stdout
    assert done.stdout.startswith("# ")


def complete(*words):
    """What bash would offer for the last word."""
    return [line.partition(",")[2] for line in offered(*words)]


def complete_kinds(*words):
    return [line.partition(",")[0] for line in offered(*words)]


def offered(*words):
    env = {**os.environ, "_PHALANX_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(["phalanx", *words]),
           "COMP_CWORD": str(len(words))}  # fmt: skip
    code = "from phalanx.cli import main; main(prog_name='phalanx')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env, timeout=60
    )
    return [line for line in done.stdout.splitlines() if line]


def test_verbs_ids_and_names_are_completed(telling):
    assert complete("s") == ["share", "show", "sim", "status", "submit"]
    assert complete("why", "1") == ["1", "10", "11", "12", "13"]
    assert complete("logs", "sw") == ["sweep"], "once, however many elements there are"
    assert complete("logs", "sweep") == ["sweep", "sweep[0]", "sweep[1]", "sweep[2]", "sweep[3]"]
    assert complete("cancel", "sweep[") == ["sweep[0]", "sweep[1]", "sweep[2]", "sweep[3]"]
    assert "--columns" in complete("ps", "--c")


def test_values_of_options_are_completed(telling):
    assert complete("submit", "-q", "r") == ["root", "research"]
    assert complete("ps", "--state", "running,c") == ["running,completed", "running,cancelled"]
    assert complete("ps", "--columns", "id,pr") == ["id,priority"]
    assert complete("nodes", "--columns", "ut") == ["util"]
    assert "goodput" in complete("up", "--policy", "")
    assert complete("submit", "--after", "sw") == ["sweep"]
    assert complete("what-if", "--cancel", "sw") == ["sweep"]
    assert complete("report", "--by", "user,") == ["user,queue", "user,job"]
    assert complete("sim", "--policy", "fcfs,e") == ["fcfs,easy"]


def test_files_are_completed_where_a_command_stands():
    """The shell completes them itself when it is told that it is a file's turn."""
    for words in (["submit", "./ru"], ["submit", "-g", "4", "tr"], ["run", "--", "x"]):
        assert complete_kinds(*words) == ["file"], words


def test_without_a_daemon_completion_is_silent(home):
    assert complete("why", "1") == []


# ---- events


def test_events_go_on_after_the_daemon_came_back(telling, phalanx, monkeypatch):
    monkeypatch.setattr("phalanx.cli.host.events.AGAIN_S", 0.01)
    monkeypatch.setattr("phalanx.cli.host.events.AGAIN_S_MAX", 0.05)
    told = [{"seq": seq, "at": "2026-11-16T08:40:00+00:00", "job": 1 + seq % 2, "event": "bind", "data": {"members": seq}}
            for seq in (1, 2, 3)]  # fmt: skip

    def stream(request):
        since = int(request.query.partition("=")[2])
        new = [event for event in told if event["seq"] > since][:2]
        if not new:
            telling.lose = 1000  # from now on nobody answers
        text = "".join(f"id: {event['seq']}\nevent: job\ndata: {json.dumps(event)}\n\n" for event in new)
        return SimpleNamespace(body=text.encode(), status=200, headers={"Content-Type": "text/event-stream"})

    telling.answer("GET", "/v1/events", stream)
    done = phalanx("events", "-o", "jsonl", "--since", "0")
    assert [json.loads(line)["seq"] for line in done.stdout.splitlines()] == [1, 2, 3]
    assert done.exit_code == 5
    telling.lose = 0
    telling.answer("GET", "/v1/jobs/2", {"job": {"id": 2}})
    shown = phalanx("events", "--job", "2", "--since", "0").stdout
    assert shown == "08:40:00  2  bind  members 1\n08:40:00  2  bind  members 3\n"


def test_events_of_a_job_that_was_never_there_are_not_waited_for(telling, phalanx):
    telling.answer("GET", "/v1/jobs/999", {"error": {"code": "not_found", "message": "no job", "hint": ""}}, status=404)
    assert phalanx("events", "--job", "999").exit_code == 3


def test_a_shared_device_has_a_row_for_each_who_has_a_part(canned):
    from phalanx.cli.host.nodes import COLUMNS, device_rows

    uses = [{"job": job, "rank": 0, "user": user, "share": 0.5, "pid": 7} for job, user in ((1, "ada"), (2, "bob"))]
    (node,) = canned.NODES
    rows = device_rows([{**node, "devices": [{**node["devices"][0], "uses": uses}]}])
    shown = {column.name: [column.show(row) for row in rows] for column in COLUMNS}
    assert (shown["gpu"], shown["job"], shown["user"]) == (["0", "0"], ["1 (0.5)", "2 (0.5)"], ["ada", "bob"])


def test_events_begin_with_now_and_miss_nothing_while_the_daemon_is_gone(telling, phalanx, monkeypatch):
    monkeypatch.setattr("phalanx.cli.host.events.AGAIN_S", 0.01)
    monkeypatch.setattr("phalanx.cli.host.events.AGAIN_S_MAX", 0.05)
    times = {1: "2026-11-16T08:40:00+00:00", 2: "2026-11-16T09:00:00+00:00", 3: "2026-11-16T09:00:02+00:00"}
    asked = []

    def stream(request):
        asked.append(int(request.query.partition("=")[2]))
        # Before the first connection breaks nothing new has happened; then two more.
        new = [seq for seq in times if seq > asked[-1]] if asked[-1] >= 0 else []
        if asked[-1] == 3:
            telling.lose = 1000
        told = [{"seq": seq, "at": times[seq], "job": 1, "event": "bind", "data": {}} for seq in new]
        text = "".join(f"id: {event['seq']}\nevent: job\ndata: {json.dumps(event)}\n\n" for event in told)
        return SimpleNamespace(body=text.encode(), status=200, headers={"Content-Type": "text/event-stream"})

    telling.answer("GET", "/v1/events", stream)
    done = phalanx("events", "-o", "jsonl")
    assert [json.loads(line)["seq"] for line in done.stdout.splitlines()] == [2, 3]
    assert asked[:2] == [-1, 0]


# ---- watching


def test_watch_off_a_terminal_prints_what_changes(telling, phalanx, monkeypatch, canned):
    seen = []

    def nap(_):
        seen.append(1)
        if len(seen) == 2:
            telling.answer("GET", "/v1/jobs", {"schema": "phalanx.jobs/1", "jobs": [canned.PENDING]})
        if len(seen) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", nap)
    done = phalanx("ps", "-w", "--columns", "id", "--no-headers", "--limit", "5")
    assert done.exit_code == 0
    assert done.stdout == "    1\n    4\n10-13\n    2\n    3\n2\n"


def test_top_on_a_terminal_is_drawn_with_rich(canned):
    from rich.console import Console

    from phalanx.cli.host.nodes import device_rows
    from phalanx.cli.host.top import make_table

    rows = [{**row, "of": canned.row(name="[red]x")} for row in device_rows(canned.NODES)]
    console = Console(width=140, record=True, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123
    with console.file:
        console.print(make_table(rows))
    text = console.export_text()
    assert "[red]x" in text
    assert "mallory (pid 99, 100)" in text


def test_doctor_runs_its_checks(phalanx, home, monkeypatch):
    from phalanx.frontends.host import doctor

    findings = [
        doctor.Diagnosis("driver", "ok", "550.1"),
        doctor.Diagnosis("disk", "warn", "5 GB\x1b left", "make room"),
    ]
    monkeypatch.setattr(doctor, "run_checks", lambda around: findings)
    done = phalanx("doctor")
    assert done.stdout == (
        "ok    settings  can be read; phalanx config show --origin tells them\n"
        "ok    driver    550.1\nwarn  disk      5 GB\\x1b left\n                fix: make room\n3 checks: 0 failed, 1 to look at\n"
    )
    assert done.exit_code == 0
    findings.append(doctor.Diagnosis("gpus", "fail", "gone", "reboot"))
    assert phalanx("doctor").exit_code == 1
    assert json.loads(phalanx("doctor", "-o", "json").stdout)[3] == {
        "name": "gpus", "level": "fail", "message": "gone", "fix": "reboot",
    }  # fmt: skip


def test_install_shows_what_it_would_do(phalanx, home):
    done = phalanx("install", "--print")
    assert done.exit_code == 0
    assert "phalanx.frontends.host" in done.stdout
    assert "systemctl --user" in done.stdout
    assert "--system" in phalanx("install", "--system", "--print").stdout


@pytest.mark.parametrize("words", ["issue --scope submit --uid 7", "revoke 1a2b"])
def test_tokens_of_a_daemon_of_somebody_else_are_theirs(home, phalanx, monkeypatch, words):
    # Of the machine's daemon: "error: [Errno 13] Permission denied: '/var/lib/phalanx/tokens.json.lock'".
    def deny(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("fcntl.flock", deny)
    done = phalanx("token", *words.split())
    verb = words if words.startswith("revoke") else "issue --uid 7 --scope submit"
    assert done.stderr == (
        f"phalanx: error: the tokens in {home} are not yours\n"
        f"  next: ask who runs that daemon: sudo PHALANX_HOME={home} phalanx token {verb}\n"
    )
    assert done.exit_code == 1


def test_a_token_lives_for_a_while(home, phalanx):
    done = phalanx("token", "issue", "--life", "0")
    assert (done.exit_code, done.stderr.splitlines()[0]) == (2, "phalanx: error: --life '0' is no time at all")
