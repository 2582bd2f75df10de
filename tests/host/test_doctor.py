"""Each check on a machine that is fine and on one that is not."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import tarfile
from types import SimpleNamespace

import pytest

from phalanx import __version__
from phalanx.control.spec.errors import BadInput
from phalanx.frontends.host import doctor
from phalanx.frontends.host.devices import NoDevices, open_devices
from phalanx.frontends.host.doctor import CHECKS, Diagnosis, Surroundings, run_checks, write_bundle
from phalanx.frontends.host.doctor.bundle import Redactor
from phalanx.frontends.host.doctor.surroundings import Process, run_program
from phalanx.frontends.host.settings import Settings

NOW_S = 1_800_000_000.0


def room(free_bytes=100 << 30, inodes=1_000_000, size=100 << 30):
    return SimpleNamespace(f_bavail=free_bytes // 4096, f_frsize=4096, f_favail=inodes, f_files=inodes and 1 << 30, f_blocks=size // 4096)  # fmt: skip


@pytest.fixture
def around(tmp_path):
    """A healthy machine, of which a test can change anything."""
    root = tmp_path / "root"
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mounts").write_text("disk / ext4 rw 0 0\n")
    state = tmp_path / "state"

    def build(**changes):
        defaults = {
            "devices": open_devices(4),
            "env": {"HOME": str(tmp_path), "PATH": ""},
            "root": root,
            "run": lambda command, limit_s: None,
            "processes": lambda: iter(()),
            "started_s": lambda pid: None,
            "wall_s": lambda: NOW_S,
            "contains": lambda: "cgroup2",
            "space": lambda path: room(),
        }
        return Surroundings(state, **(defaults | changes))

    build.root, build.state = root, state
    return build


def look(name, surroundings) -> list[Diagnosis]:
    return run_checks(surroundings, [name])


def levels(name, surroundings) -> list[str]:
    return [finding.level for finding in look(name, surroundings)]


def test_a_healthy_machine_has_nothing_to_fix(around):
    around.state.mkdir(mode=0o700)
    found = run_checks(around(), [name for name in CHECKS if name != "python"])
    assert {finding.level for finding in found} == {"ok"}
    assert {finding.name for finding in found} == set(CHECKS) - {"python"}


def test_this_very_machine_can_be_looked_at(tmp_path):
    found = run_checks(
        Surroundings(tmp_path / "state", devices=NoDevices("none")), [n for n in CHECKS if n != "python"]
    )
    assert [finding for finding in found if "the check itself failed" in finding.message] == []
    assert all(finding.fix for finding in found if finding.level != "ok")
    assert not (tmp_path / "state").exists()


def test_a_check_that_breaks_is_a_finding_and_the_others_go_on(around):
    def broken():
        raise RuntimeError("boom")

    found = run_checks(around(wall_s=broken), ["clock", "gpus"])
    assert [(finding.name, finding.level) for finding in found] == [("clock", "fail"), ("gpus", "ok")]
    assert "RuntimeError: boom" in found[0].message


# ---- GPUs


def test_no_driver_is_a_warning_that_names_the_way_without(around):
    (finding,) = look("driver", around(devices=NoDevices("there is no NVIDIA driver here")))
    assert (finding.level, finding.fix) == ("warn", "to try without GPUs: phalanx up --fake-gpus 8")
    assert look("gpus", around(devices=NoDevices("none"))) == []


def test_a_driver_in_the_kernel_that_does_not_answer_is_a_failure(around):
    path = around.root / "proc/driver/nvidia/version"
    path.parent.mkdir(parents=True)
    path.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.12  Mon\n")
    (finding,) = look("driver", around(devices=NoDevices("the library is of another version")))
    assert finding.level == "fail"
    assert "570.12" in finding.message


def test_strangers_are_named_by_owner_and_lost_gpus_are_failures(around, tmp_path, monkeypatch):
    path = tmp_path / "uses.json"
    use = {"pid": 4711, "user": "bob", "memory_bytes": 1 << 30, "name": "python"}
    path.write_text(json.dumps({"0": [use], "1": [use | {"pid": 4712}], "gone": [3]}))
    monkeypatch.setenv("PHALANX_FAKE_USES", str(path))
    environ = around.root / "proc/4712/environ"
    environ.parent.mkdir(parents=True)
    environ.write_bytes(b"A=b\0PHALANX_JOB=3\0")  # one of ours
    found = look("gpus", around())
    assert [(finding.level, finding.message) for finding in found] == [
        ("ok", "4 × Fake GPU in 1 island"),
        ("warn", "GPU 0: python (pid 4711) of bob"),
        ("fail", "GPU 3 (GPU-fake-3) is off the bus"),
    ]
    assert "ps -fp 4711" in found[1].fix


# ---- containment and session


def test_weak_containment_is_a_warning_with_a_way_out(around):
    assert levels("containment", around(contains=lambda: "cgroup1")) == ["ok"]
    (finding,) = look("containment", around(contains=lambda: "weak", uid=1000))
    assert finding.level == "warn"
    assert "no control groups" in finding.message
    (around.root / "proc/self/mounts").write_text("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n")
    (finding,) = look("containment", around(contains=lambda: "weak", uid=1000))
    assert "your service: phalanx install;" in finding.fix
    (finding,) = look("containment", around(contains=lambda: "weak", uid=0))
    assert finding.fix.endswith("phalanx install --system")


@pytest.mark.parametrize(
    ("linger", "kills", "level"),
    [("yes\n", "b true\n", "ok"), ("no\n", "b true\n", "fail"), ("no\n", "b false\n", "ok"), (None, None, "warn")],
)
def test_what_a_log_out_does(around, linger, kills, level):
    (around.root / "run/systemd/system").mkdir(parents=True)
    answers = {"loginctl": linger, "busctl": kills}
    (finding,) = look("session", around(uid=1000, run=lambda command, limit_s: answers[command[0]]))
    assert finding.level == level
    assert level == "ok" or "enable-linger" in finding.fix


def test_the_systems_daemon_does_not_care_for_log_outs(around):
    (around.root / "run/systemd/system").mkdir(parents=True)
    assert levels("session", around(uid=0, system=True)) == ["ok"]


def test_low_limits_are_pointed_out(around, monkeypatch):
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, 512))
    found = look("limits", around())
    assert [finding.level for finding in found] == ["warn", "warn"]
    assert ["ulimit -Hn" in found[0].fix, "ulimit -Hu" in found[1].fix] == [True, True]


def test_a_containers_small_shared_memory_is_pointed_out(around):
    (finding,) = look("shared memory", around(space=lambda path: room(size=64 << 20)))
    assert finding.level == "warn"
    assert "64 MiB" in finding.message


# ---- the state directory


def test_a_directory_that_is_not_there_will_be_made(around):
    assert levels("state", around()) == ["ok"]
    (finding,) = look("state", around(can_write=lambda path: False))
    assert finding.level == "fail"
    assert "cannot be made" in finding.message


def test_a_directory_open_to_others_is_pointed_out(around):
    around.state.mkdir()
    around.state.chmod(0o755)
    (finding,) = look("state", around())
    assert (finding.level, finding.fix) == ("warn", f"chmod 700 {around.state}")
    around.state.chmod(0o711)
    assert levels("state", around(system=True)) == ["ok"]


def test_somebody_elses_directory_is_a_failure(around):
    around.state.mkdir(mode=0o700)
    (finding,) = look("state", around(uid=os.geteuid() + 1))
    assert finding.level == "fail"
    assert "belongs to" in finding.message


@pytest.mark.parametrize(("kind", "level"), [("nfs4", "fail"), ("tmpfs", "warn"), ("xfs", "ok")])
def test_the_filesystem_matters(around, kind, level):
    around.state.mkdir(mode=0o700)
    parent = str(around.state.parent.resolve()).replace(" ", "\\040")
    (around.root / "proc/self/mounts").write_text(f"disk / ext4 rw 0 0\nserver:/x {parent} {kind} rw 0 0\n")
    assert levels("state", around()) == [level]


@pytest.mark.parametrize(
    ("free", "expected"),
    [(room(free_bytes=50 << 20), ["fail"]), (room(free_bytes=500 << 20), ["warn"]), (room(inodes=5), ["warn"]), (room(inodes=0), ["ok"])],
)  # fmt: skip
def test_room_matters(around, free, expected):
    assert levels("state", around(space=lambda path: free)) == expected


# ---- the daemon


@contextlib.contextmanager
def listening(path):
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as server:
        server.bind(str(path))
        server.listen(4)
        yield


@pytest.fixture
def short(tmp_path_factory):
    """A state directory whose socket's path fits into an address."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="ph") as folder:
        from pathlib import Path

        yield Path(folder)


def tell(state, **more):
    (state / "daemon.json").write_text(json.dumps({"pid": 77, "version": __version__, **more}))


def make(short, **changes):
    return Surroundings(short, wall_s=lambda: NOW_S, processes=lambda: iter(()), **changes)


def test_a_database_that_was_put_together_anew_is_told(short):
    tell(short, restored="The database was damaged. Jobs submitted since then are back: 7, 8.")
    with listening(short / "phalanx.sock"):
        found = look("daemon", make(short))
    assert [each.level for each in found] == ["ok", "warn"]
    assert "7, 8" in found[1].message


def test_a_daemon_that_answers_is_fine(short):
    tell(short)
    with listening(short / "phalanx.sock"):
        (finding,) = look("daemon", make(short))
    assert (finding.level, "(pid 77)" in finding.message) == ("ok", True)


def test_a_daemon_of_another_version_is_pointed_out(short):
    tell(short, version="0.0.1")
    with listening(short / "phalanx.sock"):
        (finding,) = look("daemon", make(short))
    assert (finding.level, "phalanx down && phalanx up" in finding.fix) == ("warn", True)


def test_a_socket_left_behind_harms_nobody(short):
    with listening(short / "phalanx.sock"):
        pass
    (finding,) = look("daemon", make(short))
    assert (finding.level, "left behind" in finding.message) == ("ok", True)


def test_a_lock_without_an_answer_is_a_failure_and_looking_takes_no_lock(short):
    tell(short)
    with (short / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (finding,) = look("daemon", make(short))
        assert (finding.level, "kill 77" in finding.fix) == ("fail", True)
    assert levels("daemon", make(short)) == ["ok"]


def test_a_port_that_somebody_has_is_a_failure_unless_the_daemon_runs(short):
    with contextlib.closing(socket.socket()) as other:
        other.bind(("127.0.0.1", 0))
        other.listen(1)
        port = other.getsockname()[1]
        surroundings = make(short, settings=Settings(tcp=("127.0.0.1", port)))
        (finding,) = look("ports", surroundings)
        assert (finding.level, f"sport = :{port}" in finding.fix) == ("fail", True)
        with listening(short / "phalanx.sock"):
            assert levels("ports", surroundings) == ["ok"]


# ---- the clock


def test_a_clock_in_the_past_is_a_failure(around):
    assert levels("clock", around(wall_s=lambda: 1000.0)) == ["fail"]


def test_a_clock_that_nobody_keeps_is_a_warning(around):
    assert levels("clock", around(run=lambda command, limit_s: "no\n")) == ["warn"]
    assert levels("clock", around(run=lambda command, limit_s: "yes\n")) == ["ok"]


@pytest.mark.parametrize("started", [NOW_S - 500, "2027-01-15T07:51:40+00:00"])
def test_a_clock_that_was_set_since_the_daemon_started_is_pointed_out(around, started):
    around.state.mkdir(mode=0o700)
    (around.state / "daemon.json").write_text(json.dumps({"pid": 77, "started": started}))
    assert levels("clock", around(started_s=lambda pid: NOW_S - 500)) == ["ok"]
    (finding,) = look("clock", around(started_s=lambda pid: NOW_S - 500 + 86_400))
    assert "forward by 86,400 s" in finding.message
    (finding,) = look("clock", around(started_s=lambda pid: NOW_S - 500 - 86_400))
    assert "back by 86,400 s" in finding.message


# ---- programs


@pytest.fixture
def python(around, tmp_path):
    """A python on the PATH that says what a test wants."""

    def build(told, **changes):
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        program = folder / "python"
        program.write_text(f"#!/bin/sh\necho noise\necho '{told}'\n" if told is not None else "#!/bin/sh\nexit 3\n")
        program.chmod(0o755)
        (finding,) = look("python", around(env={"PATH": str(folder)}, run=run_program, **changes))
        return finding

    return build


class Real:
    """GPUs that are not fake, to a check that asks no more."""

    fake, problem, driver = False, "", "1"

    def list(self):
        return open_devices(1).list()


@pytest.mark.parametrize(
    ("told", "level", "words"),
    [
        ({"python": "3.12.1"}, "ok", "3.12.1, without torch"),
        ({"python": "3.12.1", "torch": "2.13", "cuda": "13.0", "nccl": True}, "ok", "torch 2.13, CUDA 13.0, NCCL yes"),
        ({"python": "3.12.1", "torch": "2.13", "cuda": None, "nccl": False}, "warn", "without CUDA"),
        ({"python": "3.12.1", "torch": "2.13", "cuda": "13.0", "nccl": False}, "warn", "no NCCL"),
        ({"python": "3.12.1", "broken": "ImportError: libcudart"}, "warn", "cannot be imported: ImportError"),
    ],
)
def test_the_users_torch_is_judged_by_what_it_says(python, told, level, words):
    finding = python(json.dumps(told), devices=Real())
    assert (finding.level, words in finding.message) == (level, True), finding


def test_a_build_without_cuda_is_fine_where_there_are_no_gpus(python):
    told = {"python": "3.12.1", "torch": "2.13", "cuda": None, "nccl": False}
    assert python(json.dumps(told), devices=NoDevices("none")).level == "ok"


def test_a_python_that_fails_or_is_not_there_is_a_warning(python, around):
    assert "or fails" in python(None).message
    assert python("no json").level == "warn"
    (finding,) = look("python", around(env={"PATH": ""}))
    assert "no python on the PATH" in finding.message


def test_the_question_that_is_put_to_python_is_python(around, tmp_path):
    import sys

    (finding,) = look("python", around(env={"PATH": os.path.dirname(sys.executable)}, run=run_program))  # noqa: PTH120
    assert f"{sys.version_info[0]}.{sys.version_info[1]}." in finding.message


def test_a_program_that_hangs_is_given_up():
    assert run_program(["sleep", "60"], 0.1) is None
    assert run_program(["false"], 10.0) is None
    assert run_program(["no such program"], 10.0) is None
    assert run_program(["echo", "x"], 10.0) == "x\n"


def test_other_schedulers_are_named(around):
    running = [Process(5, "slurmd", "root"), Process(6, "python", "bob"), Process(9, "pueued", "ada")]
    found = look("schedulers", around(processes=lambda: iter(running)))
    assert [finding.level for finding in found] == ["warn", "warn"]
    assert "pueue runs here too (pueued, pid 9)" in found[0].message
    assert "Slurm" in found[1].message


# ---- the archive


def read_bundle(path):
    with tarfile.open(path) as archive:
        return {member.name: archive.extractfile(member).read().decode() for member in archive.getmembers()}


def test_the_archive_holds_what_helps_and_hides_what_is_private(around, tmp_path):
    around.state.mkdir(mode=0o700)
    (around.state / "daemon.log").write_text(
        f"started in {tmp_path}/project for bob, token=hunter2\n"
        "env WANDB_API_KEY=abcdef0123 --password s3cr3t Authorization: Bearer abc.def-ghi1234\n"
        "clone https://ada:pass123@git.example/x\n"
        "job key 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n"
        "bob cancelled job 7\n"
    )
    surroundings = around(processes=lambda: iter([Process(1, "init", "root"), Process(9, "x", "bob")]))
    findings = [Diagnosis("gpus", "warn", "GPU 0: python (pid 3) of bob", "ps")]
    target = tmp_path / "out.tar.gz"
    assert write_bundle(target, findings, surroundings) == target
    parts = read_bundle(target)
    assert sorted(parts) == [
        f"phalanx-doctor/{n}" for n in ("daemon.log", "findings.json", "settings.json", "versions.json")
    ]
    everything = "\n".join(parts.values())
    for secret in ("hunter2", "abcdef0123", "s3cr3t", "abc.def-ghi1234", "pass123", "bob", str(tmp_path)):
        assert secret not in everything, secret
    log = parts["phalanx-doctor/daemon.log"]
    assert "started in ~/project for [user" in log
    assert "cancelled job 7" in log
    assert json.loads(parts["phalanx-doctor/versions.json"])["phalanx"] == __version__
    assert json.loads(parts["phalanx-doctor/findings.json"])[0]["level"] == "warn"
    assert target.stat().st_mode & 0o777 == 0o600


def test_an_archive_is_never_overwritten_and_needs_no_log(around, tmp_path):
    target = tmp_path / "out.tar.gz"
    write_bundle(target, [], around())
    assert "not read" in read_bundle(target)["phalanx-doctor/daemon.log"]
    with pytest.raises(BadInput, match="is there already"):
        write_bundle(target, [], around())
    with pytest.raises(BadInput, match="cannot be written"):
        write_bundle(tmp_path / "no" / "x.tar.gz", [], around())


def test_only_the_end_of_a_long_log_is_taken(around, tmp_path):
    around.state.mkdir(mode=0o700)
    (around.state / "daemon.log").write_text("first line\n" + "x\n" * 300_000 + "last line\n")
    log = read_bundle(write_bundle(tmp_path / "o.tgz", [], around()))["phalanx-doctor/daemon.log"]
    assert len(log) <= 256 << 10
    assert "first line" not in log
    assert log.endswith("last line\n")


@pytest.mark.parametrize(
    "harmless",
    ["job 12 started on GPU-fake-3", "/usr/lib/python3.11/site-packages/phalanx/frontends/host/core/starting.py", "2026-11-16T03:00:00+00:00"],
)  # fmt: skip
def test_what_helps_is_not_taken_out(harmless):
    assert Redactor({"bob": "[user1]"})(harmless) == harmless


def test_a_name_inside_a_word_is_no_name():
    assert Redactor({"ann": "[user1]"})("cannot; ann, /scratch/ann/x") == "cannot; [user1], /scratch/[user1]/x"


def test_all_checks_are_named_once():
    assert len(set(doctor.CHECKS.values())) == len(doctor.CHECKS)
