"""The shim runs as the job's user, who may stop it, kill it, or take its place: the harm stays with that job."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
from people import ADA, BOB
from realdaemon import HELD, MARK, pause, until

from phalanx.frontends.host import containment
from phalanx.frontends.host.clock import read_boot_id
from phalanx.frontends.host.messages import ENDED

FAKE = Path(__file__).with_name("fake_shim.py")
#: What people wait for in earnest is too long for a test.
SOON = """
import phalanx.frontends.host.launching.launcher as launcher
import phalanx.frontends.host.launching.patience as patience
patience.FOUND_WITHIN_S, patience.ANSWER_WITHIN_S, patience.LATE_S = 2.0, 1.5, 0.5
launcher.HostLauncher.__init__.__kwdefaults__["kill_stuck_s"] = 2.0
"""
EXIT = "{'v': 1, 'event': 'exit', 'rank': 0, 'generation': 1, 'code': 0, 'signal': None, 'tail': ''}"
#: What a fake says to a daemon that comes back.
LIES = {
    "a member without an end": "member.pop('code'); member['exited'] = True; say(state)",
    "a member that is a word": "state['members'] = ['x']; say(state)",
    "members that are a number": "state['members'] = 7; say(state)",
    "no members": "state['members'] = []; say(state)",
    "a thousand members": "state['members'] = [{**member, 'rank': n} for n in range(1000)]; say(state)",
    "a pid without end": "member['pid'] = 10**30; say(state)",
    "the pid of everybody": "member['pid'] = -1; say(state)",
    "a start in infinity": "say(json.dumps(state).replace(f'\"start\": {start}', '\"start\": 1e999').encode())",
    "a generation in infinity": "say(json.dumps(state).replace('\"generation\": 1,', '\"generation\": 1e999,').encode())",
    "a generation without end": "state['generation'] = 10**40; say(state)",
    "spoke nonsense": "state['spoke'] = [5]; say(state)",
    "spoke for another": "state['spoke'] = [{'rank': 10**30, 'message': {'type': 'hello'}}]; say(state)",
    "never went": "state['went'] = False; say(state)",
    "a code without end": "member.update(exited=True, code=10**30); say(state)",
    "a code that is text": "member.update(exited=True, code='\\ud800'); say(state)",
    "nothing": "time.sleep(1000)",
    "no JSON": "say(b'}{')",
    "a list": "say(b'[]')",
    "depth": "say(b'[' * 100000)",
    "a line of 256 MiB": "[line.sendall(b'x' * (1 << 20)) for _ in range(256)]",
    "a word, and no end": 'say(state); say(b\'{"event":"exit","rank":0,"generation":1,"code":3,"signal":null,"tail":"\\\\ud800"}\')',
    "an exit without end": f"say(state); say({{**{EXIT}, 'code': 10**30}}, {{'event': 'empty'}})",
    "exits of others": f"say(state); say(*({{**{EXIT}, 'run': f'{{n}}.1', 'job': n, 'rank': n % 7}} for n in range(1, 99)))",
    "exits for ever": f"say(state); [say({{**{EXIT}, 'rank': n}}) for n in range(1, 50_000)]",
    "words for ever": "say(state); [say({'event': 'job', 'rank': 0, 'message': {'type': 'status', 'step': n}}) for n in range(20_000)]",
    "it is over": "state['empty'] = True; member.update(exited=True, code=0); say(state)",
    "it is over now": f"say(state); say({EXIT}, {{'event': 'empty'}})",
    "it is stuck": f"say(state); say({{'event': 'stuck', 'pids': [1, {os.getpid()}]}}, {EXIT}, {{'event': 'empty'}})",
    "it is stuck still": "state['stuck'] = [1, 2, 3]; say(state)",
}


def job_env(daemon):
    return {"PATH": os.environ["PATH"], MARK: daemon.mark, "STARTS": str(daemon.by(ADA).starts_file)}


def submit_fake(daemon, number, play):
    listening = daemon.homes[ADA] / f"listening-{number}"
    fake = daemon.folder / FAKE.name  # where ada can read it
    if not fake.exists():
        shutil.copyfile(FAKE, fake)
    command = [sys.executable, str(fake), str(listening), play]
    return daemon.by(ADA).submit(command, 1, name=f"fake-{number}", run={"env": job_env(daemon)}), listening


def read_rss_mib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:  # noqa: PTH123
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) // 1024


@pytest.mark.long
def test_a_daemon_comes_back_whatever_answers_for_the_shims(make_shared):
    """All lies at once; bob's job goes on, ada's can be ended, and what has ended has left nothing on its device."""
    daemon = make_shared(gpus=len(LIES) + 1, before=SOON).start()
    bob, ada = daemon.by(BOB), daemon.by(ADA)
    his = bob.submit(HELD, 1)
    bob.wait_started(his, 1)
    made = [submit_fake(daemon, number, play) for number, play in enumerate(LIES.values())]
    for _, listening in made:
        until(listening.exists, f"{listening.name}")
    daemon.restart()
    assert bob.row(his)["state"] == "running"
    for (job, _), kind in zip(made, LIES, strict=True):
        reply = daemon.act(job, "cancel")
        assert reply.status in (200, 409), (kind, reply)
    for (job, _), kind in zip(made, LIES, strict=True):
        until(lambda job=job: ada.row(job)["state"] in ENDED, f"the end of '{kind}'")
        assert daemon.marked(job) == {}, f"'{kind}' still runs, and its device is somebody else's"
    assert bob.row(his)["state"] == "running"
    assert read_rss_mib(daemon.process.pid) < 200
    bob.let_end()
    assert daemon.wait(his)["state"] == "completed"
    daemon.check_quiet()


def test_a_stopped_shim_does_not_keep_its_job_alive(make_shared):
    """Neither against a person who wants its end, nor against its own limit."""
    daemon = make_shared(gpus=2, before=SOON).start()
    ada = daemon.by(ADA)
    jobs = [
        ada.submit("trap '' TERM; " + HELD, 1, run={"grace_s": 0.2}, **limit) for limit in ({}, {"kill_after": "2s"})
    ]
    for job in jobs:
        ada.wait_started(job, 1)
        assert ada.run("kill", "-STOP", str(daemon.shim_of(job))).returncode == 0
    assert daemon.act(jobs[0], "cancel").status == 200
    for job in jobs:
        until(lambda job=job: ada.row(job)["state"] in ENDED, lambda job=job: f"{ada.row(job)}\n{daemon.log()}")
    daemon.check_quiet()


FREEZE = """
for line in $(cut -d: -f3 /proc/self/cgroup | sort -u); do
    for top in /sys/fs/cgroup /sys/fs/cgroup/unified /sys/fs/cgroup/freezer; do
        for place in "$top$line" "$top${line%/*}"; do
            (echo FROZEN > "$place/freezer.state"; echo 1 > "$place/cgroup.freeze") 2>/dev/null
        done
    done
done
"""


@pytest.mark.parametrize("kind", ["cgroup2", "cgroup1"])
def test_a_job_that_freezes_itself_can_be_ended(make_shared, kind):
    """A frozen process does not die of SIGKILL until it is thawed, and its user may have the handle."""
    before = f"{SOON}\nlauncher.HostLauncher.__init__.__kwdefaults__['contain'] = ({kind!r},)"
    daemon = make_shared(gpus=1, before=before).start()
    if daemon.get("/v1/status")["containment"] != kind:
        pytest.skip(f"no {kind} here")
    ada = daemon.by(ADA)
    tried = ada.homes[ADA] / "tried"
    job = ada.submit(f"(touch {tried}\n{FREEZE}) & {HELD}", 1, run={"grace_s": 0.2})
    until(tried.exists, "its attempt")
    pause(0.2)
    assert daemon.act(job, "cancel").status == 200
    assert ada.wait(job)["state"] == "cancelled"
    daemon.check_quiet()


STOP_ALL = """
import os, signal
print("ready", flush=True)
while True:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{pid}").st_uid == os.getuid():
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    if b"shim/__main__.py" + bytes(1) in file.read():
                        os.kill(int(pid), signal.SIGSTOP)
        except OSError:
            pass
"""


@pytest.mark.long
def test_shims_stopped_before_they_are_ready_are_one_users_problem(make_shared):
    """However many of them there are, others' jobs need not wait until the daemon has lost its patience."""
    daemon = make_shared(gpus=13).start()
    ada, bob = daemon.by(ADA), daemon.by(BOB)
    with ada.beside(STOP_ALL) as stopper:
        assert stopper.stdout.readline() == b"ready\n"
        jobs = [ada.submit("true", 1) for _ in range(12)]
        # Some may get away; eight are as many as the daemon used to start at a time.
        until(lambda: len(daemon.shims()) >= 8 or all(ada.row(job)["state"] in ENDED for job in jobs), "enough shims")
        assert bob.wait(bob.submit("true", 1))["state"] == "completed"
    for job in jobs:
        assert daemon.act(job, "cancel").status == 200


# ---------------------------------------------------------------------- the journal

JOURNALS = {
    "generation in infinity": ['{"what":"go","generation":1e999}'],
    "pid without end": [
        '{"what":"ready","generation":2,"members":[[0,1000000000000000000000,5]]}',
        '{"what":"go","generation":2}',
    ],
    "code without end": [
        '{"what":"exit","rank":0,"generation":1,"code":1000000000000000000000,"signal":null}',
        '{"what":"done"}',
    ],
    "signal without end": [
        '{"what":"exit","rank":0,"generation":1,"code":null,"signal":1000000000000000000000}',
        '{"what":"done"}',
    ],
    "rank of text": ['{"what":"exit","rank":"\\ud800","generation":1,"code":0,"signal":null}'],
    "half a line": ['{"what":"exit","rank":0'],
    "words": ['"what"', "[]", "null", "7"],
    "long": ['{"what":"ready","generation":3,"members":[]}'] * 200_000,
}
FORGE = """
import json, os, signal, sys, time
lines, told = sys.argv[1], sys.argv[2]
os.chdir(os.path.dirname(os.environ["PHALANX_KEY_FILE"]))
honest = open("journal", "rb").read().split(b"\\0")[0]
with open("forged", "wb") as file:
    file.write(honest + eval(lines) + b"\\n")
os.rename("forged", "journal")
open(told, "w").close()
if sys.argv[3] == "now":
    os.kill(json.loads(honest.split(b"\\n")[0])["pid"], signal.SIGKILL)
time.sleep(1000)
"""


def submit_forger(daemon, number, lines, *, now):
    told = daemon.homes[ADA] / f"told-{number}"
    # As an expression, since 200,000 lines are too long for a command.
    text = repr("\n".join(lines).encode()) if len(lines) < 100 else f"{(lines[0] + chr(10)).encode()!r} * {len(lines)}"
    command = [sys.executable, "-c", FORGE, text, str(told), "now" if now else "later"]
    return daemon.by(ADA).submit(command, 1, run={"env": job_env(daemon)}), told


def name_another(pid):
    """Journals that say that somebody else's process is a member of this run, at the gate or through it, or its shim."""
    start = containment.read_start(pid)
    members, boot = f"[[0,{pid},{start}],[1,{pid},{start}]]", json.dumps(read_boot_id())
    ready, go = '{"what":"ready","generation":%d,"members":%s}', '{"what":"go","generation":2}'
    return {
        "a member": [ready % (2, members), go],
        "a member at the gate": [ready % (2, members)],
        "the shim": [
            f'{{"v":1,"what":"head","run":"1.1","pid":{pid},"start":{start},"boot_id":{boot}}}',
            ready % (2, members),
            go,
        ],
    }


@pytest.mark.parametrize("restart", [False, True])
def test_a_forged_journal_ends_its_own_job_only(make_shared, restart):
    """Root kills what a dead shim left: what ada writes down there is no list of whom she wants dead."""
    daemon = make_shared(gpus=len(JOURNALS) + 4, before=SOON).start()
    bob = daemon.by(BOB)
    his = bob.submit(HELD, 1)
    (victim,) = bob.wait_started(his, 1)
    journals = {**JOURNALS, **name_another(victim.pid)}
    made = [submit_forger(daemon, n, lines, now=not restart) for n, lines in enumerate(journals.values())]
    for _, told in made:
        until(told.exists, told.name)
    if restart:
        shims = daemon.shims() - {daemon.story(his).pid}
        assert len(shims) == len(made)
        daemon.kill()
        for shim in shims:
            os.kill(shim, signal.SIGKILL)
        daemon.start()
    for (job, _), kind in zip(made, journals, strict=True):
        until(lambda job=job: daemon.row(job)["state"] in ENDED, f"the end of '{kind}'")
        assert daemon.row(job)["exit_code"] in (None, *range(256)), kind
    assert bob.row(his)["state"] == "running"
    assert victim.pid in daemon.marked(his), "bob's process was killed by the daemon for ada"
    bob.let_end()
    assert daemon.wait(his)["state"] == "completed"
    daemon.check_quiet()


def test_a_killed_shim_takes_only_its_own_job_along(shared):
    ada, bob = shared.by(ADA), shared.by(BOB)
    mine, his = ada.submit(HELD, 1), bob.submit(HELD, 1)
    ada.wait_started(mine, 1)
    bob.wait_started(his, 1)
    assert bob.run("kill", "-KILL", str(shared.shim_of(mine))).returncode != 0, "bob killed ada's shim"
    assert ada.run("kill", "-KILL", str(shared.shim_of(mine))).returncode == 0
    assert ada.wait(mine)["state"] == "failed"
    assert "shim" in ada.get(f"/v1/jobs/{mine}")["failure"]["why"]
    assert bob.row(his)["state"] == "running"
    bob.act(his, "cancel")
    bob.wait(his)
