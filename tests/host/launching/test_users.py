"""System mode: shims and members are the job's user, and nothing that user does moves the daemon."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import phalanx
from phalanx.frontends.host import containment
from phalanx.frontends.host.launching import read_log
from phalanx.frontends.host.ports import CannotStart

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="needs root to become somebody else")
NOBODY = pwd.getpwnam("nobody")


def others_can_run(path):
    real = Path(path).resolve()
    return all(part.stat().st_mode & stat.S_IXOTH for part in (real, *real.parents))


@pytest.fixture(scope="module")
def python():
    """An interpreter that everybody can run; the one of the tests may live where only root can look."""
    source = Path(phalanx.__file__).parents[1]
    if not all(part.stat().st_mode & stat.S_IXOTH for part in (source, *source.parents)):
        pytest.skip("other users cannot read this checkout")
    for path in filter(None, (sys.executable, shutil.which("python3", path="/usr/local/bin:/usr/bin"))):
        version = subprocess.run(
            [path, "-c", "import sys; print(sys.version_info >= (3, 11))"], capture_output=True, check=False
        )
        if others_can_run(path) and version.stdout == b"True\n":
            return path
    pytest.skip("no Python 3.11 that other users can run")


@pytest.fixture
def place():
    """A directory that others can pass through, as /var/lib/phalanx is."""
    path = Path(tempfile.mkdtemp(prefix="phalanx-test-"))
    path.chmod(0o711)
    (path / "runs").mkdir(mode=0o711)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(params=["cgroup2", "cgroup1", "weak"])
def many(world_of, place, python, request):
    """A world in system mode: its launcher, and an order as nobody."""
    world = world_of(request.param, place)
    launcher, order = world.launcher, world.order
    world.launcher = lambda **options: launcher(drop_privileges=True, python=python, **options)
    user = {"uid": NOBODY.pw_uid, "gid": NOBODY.pw_gid, "user": "nobody"}
    world.order = lambda *lines, **options: order(*lines, **{**user, **options})
    return world


WHO = "id -u; id -g; id -G; grep -E 'NoNewPrivs|CapEff|CapPrm|Uid|Gid' /proc/self/status; umask; pwd; ls /proc/self/fd | wc -l"


def test_a_member_is_the_user_and_nobody_else(many, place):
    async def scenario():
        launcher = many.launcher()
        await many.start(launcher, WHO, cwd=place, umask=0o077, env={"LD_PRELOAD": ""})
        await many.hear("exit")
        assert many.story() is not None
        uid, gid, groups, *rest = read_log(many.path / "1.1", 0)[0].decode().splitlines()
        assert (int(uid), int(gid)) == (NOBODY.pw_uid, NOBODY.pw_gid)
        assert {int(group) for group in groups.split()} == set(os.getgrouplist("nobody", NOBODY.pw_gid))
        status = dict(line.split(":\t") for line in rest if ":\t" in line)
        assert status["Uid"].split() == [uid] * 4
        assert status["Gid"].split() == [gid] * 4
        assert status["NoNewPrivs"] == "1"
        assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0
        assert rest[-3:] == ["0077", str(place), "4"]  # three, and the one of the looking itself

    many.play(scenario)


def test_the_run_directory_is_the_users_and_the_lock_is_not(many, until):
    async def scenario():
        launcher = many.launcher()
        await many.start(launcher, "cat $PHALANX_KEY_FILE; exec sleep 1000")
        path = many.path / "1.1"
        owners = {entry.name: entry.stat().st_uid for entry in [path, *path.iterdir()]}
        assert owners.pop("lock") == 0
        assert set(owners.values()) == {NOBODY.pw_uid}
        shim = containment.read_file(f"/proc/{many.story().pid}/status").decode()
        assert f"Uid:\t{NOBODY.pw_uid}\t{NOBODY.pw_uid}" in shim
        assert "NoNewPrivs:\t1" in shim
        await until(lambda: read_log(path, 0)[0].decode() == (path / "key").read_text(), "the key to be read")
        await launcher.stop("1.1", None, "TERM", 5.0)
        await many.hear("empty")

    many.play(scenario)


def test_root_and_strangers_are_refused(many):
    async def scenario():
        launcher = many.launcher()
        for user in ({"uid": 0, "gid": 0, "user": "root"}, {"uid": NOBODY.pw_uid, "gid": 0, "user": "nobody"}):
            with pytest.raises(CannotStart, match="do not run as root"):
                await launcher.prepare(many.order("true", **user))
        with pytest.raises(CannotStart, match="no user 'no-such-user' any more"):
            await launcher.prepare(many.order("true", user="no-such-user"))
        with pytest.raises(CannotStart, match="was number 4711 at submit"):
            await launcher.prepare(many.order("true", uid=4711))
        assert launcher._runs.list_names() == []

    many.play(scenario)


def test_an_interpreter_that_the_user_cannot_run_is_named(many, tmp_path):
    async def scenario():
        launcher = many.launcher()
        hidden = tmp_path / "python"
        hidden.symlink_to(sys.executable)
        launcher._maker._manner = type(launcher._maker._manner)(True, str(hidden), (), 30.0, 0)
        with pytest.raises(CannotStart, match=r"user 'nobody' cannot run .*Permission denied"):
            await launcher.prepare(many.order("true"))

    many.play(scenario)


def test_escapees_are_killed_by_a_shim_without_privileges(many, place, until):
    pids = place / "pids"
    pids.mkdir(mode=0o777)
    pids.chmod(0o777)
    escape = f"setsid env -i sh -c 'echo $$ > {pids}/$$; exec sleep 1000' </dev/null >/dev/null 2>&1 & "

    async def scenario():
        launcher = many.launcher()
        await many.start(launcher, escape * 3 + "sleep 1000")
        await until(lambda: len(list(pids.iterdir())) == 3, "the escapees")
        await launcher.stop("1.1", None, "TERM", 0.1)
        await many.hear("empty")
        assert all(containment._is_gone(int(path.name)) for path in pids.iterdir())

    many.play(scenario)


def test_a_job_cannot_leave_its_cgroup(many, until):
    if many.kind == "weak":
        pytest.skip("there is none")

    async def scenario():
        launcher = many.launcher()
        base = launcher._maker.ground.base if launcher.containment != "weak" else ""
        await many.start(
            launcher,
            f"echo $$ > {base}/../cgroup.procs; echo $$ > {base}/cgroup.procs; echo $$ > {base}/1.1/cgroup.procs; mkdir {base}/1.1/own; sleep 1000",
        )
        await until(lambda: read_log(many.path / "1.1", 0)[0].count(b"ermission denied") >= 4, "four refusals")
        [(pid, _)] = many.story().members.values()
        assert pid in containment.open_group(many.kind, f"{base}/1.1/1.0").list_pids()

    many.play(scenario)


def test_a_lock_that_the_job_has_replaced_does_not_pass_for_a_shim(many, until):
    async def scenario():
        first = many.launcher()
        hold = "rm -f lock; exec 9> lock; flock 9; echo held; exec sleep 1000"
        await many.start(first, hold, cwd=many.path / "1.1")
        many.shims.add(pid := many.story().pid)
        await until(lambda: b"held" in read_log(many.path / "1.1", 0)[0], "the job to hold a lock of its own")
        os.kill(pid, 9)
        await many.hear("lost")
        assert many.told("exit") == []

    many.play(scenario)


def test_a_planted_control_socket_is_not_talked_to(many, place):
    """A job that puts a link to somebody else's socket in the place of its shim's."""

    async def scenario():
        first = many.launcher()
        elsewhere = place / "elsewhere.sock"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(elsewhere))
        elsewhere.chmod(0o777)
        listener.listen()
        listener.settimeout(0.0)
        await many.start(first, "sleep 1000")
        many.shims.add(pid := many.story().pid)
        control = many.path / "1.1" / "control.sock"
        control.unlink()
        control.symlink_to(elsewhere)
        await first.detach()
        os.kill(pid, 19)  # it lives and does not answer
        second = many.launcher()
        task = asyncio.create_task(second.find())
        await asyncio.sleep(0.3)
        with pytest.raises(BlockingIOError):
            listener.accept()
        os.kill(pid, 9)
        [found] = await task
        assert found.lost
        listener.close()

    many.play(scenario)


def test_a_shim_that_lies_about_being_empty_is_seen_through(many, until):
    """The shim runs as the user, who can therefore play shim; a cgroup cannot be talked out of anything."""
    if many.kind == "weak":
        pytest.skip("without a cgroup the shim is believed")

    async def scenario():
        launcher = many.launcher()
        ready = await many.start(launcher, "sleep 1000")
        launcher.shims.links["1.1"]._on_message({"event": "empty"})
        await many.hear("empty")
        assert containment._is_gone(ready.pids[0][0])

    many.play(scenario)


def test_logs_of_a_hostile_job_are_not_a_way_to_read_files(many, tmp_path):
    async def scenario():
        launcher = many.launcher()
        await many.start(launcher, "sleep 1000")
        logs = many.path / "1.1" / "logs"
        secret = tmp_path / "shadow"
        secret.write_text("root:secret")
        (logs / "rank-0.log").unlink()
        with contextlib.suppress(OSError):
            os.link(secret, logs / "rank-0.log")  # a hard link has the owner of the file
        assert read_log(many.path / "1.1", 0) == (b"", 0, False)

    many.play(scenario)
