"""Whom a job runs as: whoever submitted it, with nothing of root left and no way back."""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
from pathlib import Path

import pytest
from people import ADA, BOB, CAI, NAMES, NOBODY_KNOWN
from realdaemon import HELD, until

from phalanx.frontends.host.messages import ENDED

DAN, EVE, FAY, GUS = range(12101, 12105)

TELL = """
import ctypes, json, os, subprocess
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
fds = {int(fd): os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")}
back = []
for work in (lambda: os.setuid(0), lambda: os.seteuid(0), lambda: os.setresuid(0, 0, 0), lambda: os.setgid(0),
             lambda: os.setgroups([0]), lambda: os.chown(".", 0, 0), lambda: os.open("/etc/shadow", os.O_RDONLY)):
    try:
        work()
        back.append("it worked")
    except OSError:
        pass
mask = os.umask(0)
os.umask(mask)
print(json.dumps({
    "uids": os.getresuid(), "gids": os.getresgid(), "groups": sorted(os.getgroups()), "umask": mask, "cwd": os.getcwd(),
    "fds": fds, "no_new_privs": status["NoNewPrivs"].strip(), "session": os.getsid(0) == os.getpid(),
    "caps": {key: int(status[key], 16) for key in ("CapInh", "CapPrm", "CapEff", "CapAmb")}, "back": back,
    "risen": subprocess.run([os.environ["RISER"], "-u"], capture_output=True, text=True).stdout.strip(),
}))
"""


def read_log(person, job, rank=0):
    return person.call("GET", f"/v1/jobs/{job}/logs?rank={rank}").body


def run_job(person, command, **options):
    """What a job of one member printed, once it has ended."""
    job = person.submit(command, 1, **options)
    person.wait(job)
    return read_log(person, job)


@pytest.fixture(scope="module")
def riser(shared):
    """`id`, and whoever runs it becomes root, where that is possible."""
    path = shared.folder / "riser"
    shutil.copyfile("/usr/bin/id", path)
    path.chmod(0o755 | stat.S_ISUID)
    return path


@pytest.mark.parametrize("uid", [ADA, BOB])
def test_a_job_is_its_user_and_nobody_else(shared, riser, uid):
    person = shared.by(uid)
    env = {"PATH": os.environ["PATH"], "RISER": str(riser)}
    told = json.loads(run_job(person, [sys.executable, "-c", TELL], run={"env": env, "umask": 0o027}))
    assert told["uids"] == told["gids"] == [uid] * 3
    assert told["groups"] == sorted(map(int, person.run("id", "-G").stdout.split()))
    assert (told["umask"], told["cwd"]) == (0o027, str(person.homes[uid]))
    assert sorted(map(int, told["fds"])) == [0, 1, 2], told["fds"]
    assert told["fds"]["0"] == "/dev/null"
    assert told["fds"]["1"] == told["fds"]["2"]
    assert told["fds"]["1"].startswith("pipe:")
    assert told["no_new_privs"] == "1"
    assert told["session"]
    assert not any(told["caps"].values()), told["caps"]
    assert told["back"] == [], "there is a way back to root"
    assert told["risen"] == str(uid), "a set-uid program gave it root"


def test_groups_differ_between_users(shared):
    """Else the test above would compare nothing with nothing."""
    hers, his = (shared.by(uid).run("id", "-G").stdout.split() for uid in (ADA, BOB))
    assert (sorted(hers), sorted(his)) == (["12001", "13001", "13002"], ["12002", "13002"])


def test_the_shim_is_its_user_too(shared):
    ada = shared.by(ADA)
    job = ada.submit(HELD, 1)
    ada.wait_started(job, 1)
    shim = shared.shim_of(job)
    lines = Path(f"/proc/{shim}/status").read_text(encoding="ascii").splitlines()
    status = dict(line.split(":", 1) for line in lines)
    assert status["Uid"].split() == status["Gid"].split() == [str(ADA)] * 4
    assert status["Groups"].split() == ["12001", "13001", "13002"]
    assert (int(status["CapEff"], 16), status["NoNewPrivs"].strip()) == (0, "1")
    held = {str(fd.readlink()) for fd in Path(f"/proc/{shim}/fd").iterdir()}
    kept = {link for link in held if link.startswith(str(shared.state))}
    run = f"{shared.state}/runs/{job}.1"
    assert all(link == run or link.startswith(f"{run}/") for link in kept), "it holds files of the daemon"
    ada.act(job, "cancel")
    ada.wait(job)


def test_another_daemon_changes_nobody(make_shared):
    daemon = make_shared().start()
    ada = daemon.by(ADA)
    job = ada.submit('trap "id -u; exit 0" TERM; ' + HELD, 1)
    ada.wait_started(job, 1)
    assert daemon.by(CAI).call("POST", "/v1/down", {}).status == 200  # an administrator may
    assert daemon.bury() == 0
    daemon.start()
    assert daemon.by(BOB).act(job, "cancel").status == 403
    assert ada.act(job, "cancel").status == 200
    assert ada.wait(job)["state"] == "cancelled"
    assert read_log(ada, job).splitlines()[-1] == str(ADA)
    daemon.check_quiet()


# ---------------------------------------------------------------------- people who may not, or are not who they were


def test_root_has_no_jobs_here(shared):
    """Whoever can submit as root needs no scheduler to do harm, and a slip would run as root for everybody."""
    reply = shared.post(shared.submission("true", 1))
    assert reply.status == 403, reply
    assert "root" in reply["error"]["message"]
    assert reply["error"]["hint"]


def test_administrators_have_jobs_as_themselves(shared):
    assert run_job(shared.by(CAI), ["/usr/bin/id", "-u"]) == f"{CAI}\n"


def test_a_number_without_a_name_has_no_access(shared):
    stranger = shared.by(NOBODY_KNOWN)
    reply = stranger.post(stranger.submission("true", 1))
    assert reply.status == 403, reply
    assert str(NOBODY_KNOWN) in reply["error"]["message"]


def test_who_submitted_must_still_be_the_same_at_the_start(make_shared):
    """An account that is gone, a number that is somebody else's now, a name that is: none of them starts anything."""
    daemon = make_shared()
    people = {uid: name for uid, name in NAMES.items() if uid}
    daemon.set_people({**people, DAN: "dan", EVE: "eve", FAY: "fay"})
    daemon.start()
    jobs = {uid: daemon.by(uid).submit("id", 1, hold=True) for uid in (DAN, EVE, FAY)}
    daemon.set_people({**people, EVE: "gus", GUS: "fay"})
    for job, said in zip(jobs.values(), ("dan", "gus", "fay"), strict=True):
        assert daemon.act(job, "release").status == 200
        until(
            lambda job=job, said=said: said in ((daemon.row(job)["reason"] or {}).get("message") or ""),
            lambda job=job: f"a word on it: {daemon.row(job)}",
        )
        assert daemon.row(job)["started"] is None
        daemon.act(job, "cancel")
        assert daemon.wait(job)["state"] in ENDED
    assert not list(daemon.folder.rglob("starts"))
