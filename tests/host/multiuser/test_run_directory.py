"""A run directory belongs to the job's user: whatever they put there, root neither writes nor reads through it."""

from __future__ import annotations

import os
import stat
import sys

import pytest
from people import ADA, BOB
from realdaemon import HELD, MARK, until

from phalanx.frontends.host.messages import ENDED

SECRET = "only root reads this"
#: What ada's job does to its own run directory while it runs. Each must end by itself, and harm nobody else.
HARM = {
    "log is a link to root's file": "os.rename('logs/rank-0.log', 'aside'); os.symlink(secret, 'logs/rank-0.log')",
    "log is a link to bob's file": "os.rename('logs/rank-0.log', 'aside'); os.symlink(diary, 'logs/rank-0.log')",
    "old log is a link to root's file": "os.symlink(secret, 'logs/rank-0.log.1')",
    "folder of logs is a link": "os.rename('logs', 'aside'); os.symlink(os.path.dirname(secret), 'logs')",
    "log is a pipe": "os.rename('logs/rank-0.log', 'aside'); os.mkfifo('logs/rank-0.log')",
    "log is a device": "os.rename('logs/rank-0.log', 'aside'); os.symlink('/dev/zero', 'logs/rank-0.log')",
    "log has 8 TiB": "os.rename('logs/rank-0.log', 'aside'); os.truncate(os.open('logs/rank-0.log', os.O_CREAT | os.O_RDWR), 8 << 40)",
    "log lies about its beginning": "open('logs/rank-0.log', 'r+').write('[phalanx: 999999999999999 bytes before this]\\n')",
    "everything is gone": "shutil.rmtree('.', ignore_errors=True)",
    "directories without end": "[(os.mkdir('d'), os.chdir('d')) for _ in range(2000)]",
    "no key": "os.unlink('key'); os.mkdir('key')",
    "key of another length": "open('key', 'w').write('00' * 1000)",
    "no lock": "os.rename('lock', 'aside'); os.mkdir('lock')",
    "journal is a link": "os.rename('journal', 'aside'); os.symlink(secret, 'journal')",
    "journal is a pipe": "os.rename('journal', 'aside'); os.mkfifo('journal')",
    "journal is noise": "open('journal', 'r+b').write(os.urandom(65536))",
    "journal is 64 MiB of nothing": "open('journal', 'r+b').write(b'[[' * (32 << 20))",
    "control.sock is a pipe": "os.rename('control.sock', 'aside'); os.mkfifo('control.sock')",
    "control.sock is the daemon's": "os.rename('control.sock', 'aside'); os.symlink(public, 'control.sock')",
    "launch.json is a link": "os.rename('launch.json', 'aside'); os.symlink(secret, 'launch.json')",
    "open to everybody": "os.chmod('.', 0o777); [os.chmod(name, 0o777) for name in os.listdir() if name != 'lock']",
}
DO = """
import os, shutil, sys
secret, diary, public, told, work = sys.argv[1:]
os.chdir(os.path.dirname(os.environ["PHALANX_KEY_FILE"]))
print("first words", flush=True)
try:
    exec(work)
finally:
    open(told, "w").close()
print("last words", flush=True)
"""


@pytest.fixture(scope="module")
def ground(_able):
    """A daemon with a device for each harm and one for bob, and what nobody may see or change."""
    from people import SharedDaemon

    daemon = SharedDaemon(gpus=len(HARM) + 1)
    try:
        daemon.start()
        yield daemon, *make_targets(daemon)
    finally:
        daemon.close()


def make_targets(daemon):
    secret = daemon.folder / "vault" / "secret"
    secret.parent.mkdir(mode=0o700)
    secret.write_text(f"{SECRET}\n" * 100, encoding="ascii")
    (secret.parent / "rank-0.log").write_text(SECRET, encoding="ascii")
    diary = daemon.homes[BOB] / "diary"
    diary.write_text(SECRET, encoding="ascii")
    os.chown(diary, BOB, BOB)
    diary.chmod(0o600)
    return secret, diary


def take_stock(*folders):
    """What is in these folders: names, modes, owners and contents."""
    return {
        path: (oct(path.lstat().st_mode), path.lstat().st_uid, path.read_bytes() if path.is_file() else b"")
        for folder in folders
        for path in [folder, *folder.rglob("*")]
        if path.name not in ("starts", "starts.open")
    }


def submit_harm(daemon, secret, diary, number, kind, then="time.sleep(0.05)"):
    ada = daemon.by(ADA)
    told = ada.homes[ADA] / f"told-{number}"
    public = daemon.socket
    code = f"{DO}\nimport time\n{then}"
    command = [sys.executable, "-c", code, str(secret), str(diary), public, str(told), HARM[kind]]
    env = {"PATH": os.environ["PATH"], MARK: daemon.mark}
    return ada.submit(command, 1, name=kind, run={"env": env}), told


QUERIES = ["", "?tail=5", "?offset=3&limit=1048576", "?offset=9223372036854775000", "?rank=4000"]


def read_logs(daemon, jobs, uid=ADA):
    """Everything that can be read of these logs through the daemon, which is root."""
    person = daemon.by(uid)
    return [person.call("GET", f"/v1/jobs/{job}/logs{query}") for job in jobs for query in QUERIES]


def test_harm_to_a_run_directory_stays_in_it(ground):
    """All at once, beside a job of bob's: while they run, when they have ended, and after a restart of the daemon."""
    daemon, secret, diary = ground
    bob, ada = daemon.by(BOB), daemon.by(ADA)
    before = take_stock(secret.parent, daemon.homes[BOB])
    his = bob.submit(HELD, 1)
    bob.wait_started(his, 1)
    stay = f"\nwhile not os.path.exists({str(ada.homes[ADA] / 'open')!r}): time.sleep(0.02)"
    made = [submit_harm(daemon, secret, diary, n, kind, stay) for n, kind in enumerate(HARM)]
    jobs = [job for job, _ in made]
    for (_, told), kind in zip(made, HARM, strict=True):
        until(told.exists, kind)
    replies = read_logs(daemon, jobs)
    (ada.homes[ADA] / "open").touch()
    for job, kind in zip(jobs, HARM, strict=True):
        assert ada.wait(job)["state"] in ENDED, kind
    replies += read_logs(daemon, jobs) + read_logs(daemon, jobs, 0)
    daemon.restart()
    replies += read_logs(daemon, jobs)
    assert {reply.status for reply in replies} <= {200, 404}, replies
    assert not [reply for reply in replies if SECRET in str(reply.body)]
    assert any("last words" in str(reply.body) for reply in replies)
    assert bob.row(his)["state"] == "running"
    assert take_stock(secret.parent, daemon.homes[BOB]) == before
    daemon.act(his, "cancel")
    bob.wait(his)
    until(lambda: daemon.gpus_free() == daemon.gpus, lambda: f"free devices: {daemon.devices()}\n{daemon.log()}")


def test_a_log_that_is_another_users_file_is_no_log(ground):
    """Where the kernel lets people make hard links to files of others, only the owner tells the two apart."""
    daemon, secret, _ = ground
    ada = daemon.by(ADA)
    job = ada.submit("true", 1)
    ada.wait(job)
    log = daemon.state / "runs" / f"{job}.1" / "logs" / "rank-0.log"
    log.unlink()
    os.link(secret, log)
    for reply in read_logs(daemon, [job]):
        assert SECRET not in str(reply.body)


# ---------------------------------------------------------------------- races

#: As ada, beside the daemon: the folder of logs, or the log, becomes a link as soon as it is there, and back again.
RACE = """
import os, sys
runs, target, first, last = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
names = [f"{runs}/{job}.1/{what}" for job in range(first, last) for what in ("logs", "logs/rank-0.log", "logs/rank-0.log.1")]
print("ready", flush=True)
for turn in range(10_000):
    for name in names:
        try:
            os.rename(name, f"{name}.aside")
            os.symlink(target if name.endswith("logs") else f"{target}/rank-0.log", name)
            os.unlink(name)
            os.rename(f"{name}.aside", name)
        except OSError:
            pass
"""


@pytest.mark.long
def test_links_swapped_while_jobs_start_and_logs_rotate(ground):
    """The shim writes as ada and root writes nothing there, so the worst is a job of hers that does not start."""
    daemon, secret, _ = ground
    ada = daemon.by(ADA)
    target = secret.parent
    before = take_stock(target)
    target.chmod(0o711)
    first = ada.submit("true", 1) + 1
    jobs = []
    try:
        with ada.beside(RACE, str(daemon.state / "runs"), str(target), str(first), str(first + 12)) as race:
            assert race.stdout.readline() == b"ready\n"
            noise = "i=0; while [ $i -lt 40 ]; do head -c 2000 /dev/zero | tr '\\0' x; echo; i=$((i+1)); done"
            jobs += [ada.submit(noise, 1, run={"log_cap_bytes": 8192}) for _ in range(12)]
            assert jobs[0] == first, "the race is against somebody else's jobs"
            until(lambda: all(ada.row(job)["attempt"] for job in jobs), "their starts")
    finally:
        target.chmod(0o700)
        for job in jobs:
            ada.act(job, "cancel")
    for job in jobs:
        assert ada.wait(job)["state"] in ENDED
    assert take_stock(target) == before
    assert stat.S_IMODE((daemon.state / "runs").stat().st_mode) == 0o711
    assert daemon.by(BOB).call("GET", "/v1/jobs").status == 200
