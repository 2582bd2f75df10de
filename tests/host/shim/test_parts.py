"""Parts of the shim by themselves: its loop, its rate, its memory of what was said, and what it loads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

import phalanx
from phalanx.frontends.host import containment
from phalanx.frontends.host.shim.event_loop import READ, EventLoop
from phalanx.frontends.host.shim.log_writing import Rate
from phalanx.frontends.host.shim.relay import Told
from phalanx.frontends.host.shim.supervision import read_signal


@pytest.fixture
def loop():
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    errors = []
    made = EventLoop(lambda: errors.append("child"), errors.append)
    made.errors = errors
    yield made
    made.close()
    for number, handler in before.items():
        if number not in (signal.SIGKILL, signal.SIGSTOP) and handler is not None:
            signal.signal(number, handler)


def test_timers_come_in_order_and_can_be_cancelled(loop):
    seen = []
    loop.after(0.02, lambda: seen.append("b"))
    loop.after(0.01, lambda: seen.append("a"))
    loop.after(0.005, lambda: seen.append("never")).cancel()
    loop.after(0.03, lambda: setattr(loop, "stopped", True))
    loop.run()
    assert seen == ["a", "b"]


def test_what_a_callback_raises_does_not_end_the_loop(loop):
    read_fd, write_fd = os.pipe()
    os.write(write_fd, b"x")

    def fail(_events):
        os.read(read_fd, 1)
        raise ValueError("bad luck")

    loop.watch(read_fd, READ, fail)
    loop.after(0.05, lambda: setattr(loop, "stopped", True))
    loop.run()
    assert [str(error) for error in loop.errors] == ["bad luck"]
    loop.unwatch(read_fd)
    loop.unwatch(read_fd)
    os.close(read_fd)
    os.close(write_fd)


def test_the_end_of_a_child_wakes_the_loop_and_other_signals_do_not_end_it(loop):
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.kill(os.getpid(), signal.SIGTERM)
    loop.after(0.2, lambda: setattr(loop, "stopped", True))
    loop.run()
    assert "child" in loop.errors
    os.waitpid(pid, 0)


class Clock:
    now = 0.0

    def now_s(self):
        return self.now


def test_the_rate_is_what_it_says():
    clock = Clock()
    rate = Rate(clock, 100_000)
    total = 0
    for step in range(1001):
        clock.now = step / 100
        while allowed := rate.take(65536):
            rate.spend(allowed)
            total += allowed
    assert 1_090_000 <= total <= 1_100_000  # ten seconds, and one in advance
    assert Rate(clock, 0).take(65536) == 65536


def test_a_deadline_goes_on_running_while_nobody_listens():
    told = Told({"type": "shrink", "deadline_s": 10}, 100.0)
    assert told.at(104.0) == {"type": "shrink", "deadline_s": 6.0}
    assert told.at(110.0) is None
    assert Told({"type": "status", "id": "s"}, 0.0).at(1e9) == {"type": "status", "id": "s"}


def test_signals_by_name():
    assert (read_signal("TERM"), read_signal("SIGUSR1")) == (signal.SIGTERM, signal.SIGUSR1)
    with pytest.raises(KeyError):
        read_signal("NONE")


def test_a_shim_loads_little():
    """Every job pays for what is imported here; `phalanx.wire` waits for a member that speaks."""
    # Without the package file of phalanx: what that loads would hide what the shim loads.
    code = f"""if True:
        import sys
        package = sys.modules["phalanx"] = type(sys)("phalanx")
        package.__path__ = {phalanx.__path__!r}
        import phalanx.frontends.host.shim.supervision
        print(*sys.modules)"""
    command = [sys.executable, "-I", "-S", "-c", code]
    loaded = set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    heavy = {"asyncio", "dataclasses", "inspect", "logging", "pathlib", "subprocess", "tempfile", "threading", "typing"}
    assert loaded & heavy == set()
    ours = {name for name in loaded if name.startswith("phalanx")}
    allowed = ("phalanx.frontends.host.shim", "phalanx.frontends.host.containment")
    rest = {name for name in ours if not name.startswith(allowed)}
    assert rest == {"phalanx", "phalanx.frontends", "phalanx.frontends.host"}


# ---------------------------------------------------------------------- containment


def test_a_process_is_read_as_the_kernel_writes_it():
    process = containment.read_process(os.getpid())
    assert process.parent == os.getppid()
    assert process.group == os.getpgid(0)
    assert process.session == os.getsid(0)
    assert not process.is_gone
    assert containment.read_process(1 << 22) is None


def test_descendants_are_found_whoever_is_between():
    shell = subprocess.Popen(["sh", "-c", "sh -c 'sleep 1000 & wait' & echo; wait"], stdout=subprocess.PIPE)
    try:
        shell.stdout.readline()
        while len(found := containment.find_descendants(shell.pid)) < 2:
            continue
        assert [containment.read_process(pid).parent for pid in found] == [shell.pid, found[0]]
        assert containment._look_for_children()(shell.pid) == containment._list_children(shell.pid) == [found[0]]
        assert containment.kill_descendants(shell.pid) == set(found)
    finally:
        shell.kill()
        shell.communicate()


def test_marks_are_found_in_the_environment_only():
    mark = f"PHALANX_MARK=test{os.getpid()}:1.1:"
    env = {"PATH": os.environ["PATH"]}
    marked = subprocess.Popen(["sleep", "1000"], env={**env, "PHALANX_MARK": f"test{os.getpid()}:1.1:1.0"})
    others = [
        subprocess.Popen(["sleep", "1000"], env={**env, "PHALANX_MARK": f"test{os.getpid()}:1.10:1.0"}),
        subprocess.Popen(["sh", "-c", f"exec sleep 1000 # {mark}"], env=env),
    ]
    try:
        while containment.find_marked(mark, os.getuid()) != {marked.pid}:
            continue
        assert containment.find_marked(mark, os.getuid() + 1) == set()
        assert containment.kill_marked(mark, os.getuid()) == {marked.pid}
        assert marked.wait(30) == -signal.SIGKILL
        assert all(other.poll() is None for other in others)
    finally:
        for process in (marked, *others):
            process.kill()
            process.wait()


def test_no_ground_where_nothing_may_be_written(monkeypatch):
    assert containment.find_ground("phalanx.test", []) is None
    assert containment.find_ground("phalanx.test", ["weak"]) is None
    monkeypatch.setattr(containment, "read_file", lambda path, limit=0: b"")
    assert containment.find_ground("phalanx.test") is None


def test_a_group_that_is_not_there_is_empty(tmp_path):
    for kind in ("cgroup2", "cgroup1"):
        group = containment.open_group(kind, str(tmp_path / "none"))
        assert group.is_empty()
        group.kill()
        assert group.remove()
        assert group.part("1.0").path == str(tmp_path / "none" / "1.0")
    assert containment.open_group("weak", "/x") is None
    assert containment.open_group("cgroup2", None) is None
