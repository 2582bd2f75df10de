"""Logs: bounded, marked where something is missing, and read by one number however they were rotated."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

import pytest

from phalanx.frontends.host.launching import read_log
from phalanx.frontends.host.ports import CannotStart
from phalanx.frontends.host.shim.log_writing import RankLog, open_folder


@pytest.fixture
def made(tmp_path):
    """A run directory with a log that a test writes, and what it wrote."""
    dir_fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    folder_fd = open_folder(dir_fd)
    logs = []

    def make(cap):
        log = RankLog(folder_fd, 0, cap)
        logs.append(log)
        return log

    yield make
    for log in logs:
        log.close()
    os.close(folder_fd)
    os.close(dir_fd)


def write_lines(log, first, last):
    for number in range(first, last):
        log.write(b"%098d\n" % number)  # 99 bytes


def read_all(path, offset=0, limit=700):
    """In pieces, as somebody who follows it does."""
    pieces = []
    while True:
        data, after, exists = read_log(path, 0, offset, limit)
        assert exists
        if after == offset:
            return b"".join(pieces), offset
        pieces.append(data)
        offset = after


def test_one_file(made, tmp_path):
    log = made(0)
    assert read_log(tmp_path, 0) == (b"", 0, True)
    write_lines(log, 0, 50)
    data, end = read_all(tmp_path)
    assert (len(data), end) == (4950, 4950)
    assert data.splitlines()[49] == b"%098d" % 49
    assert read_log(tmp_path, 0, 4851, 10**9) == (b"%098d\n" % 49, 4950, True)
    assert read_log(tmp_path, 0, 9999) == (b"", 4950, True)
    assert read_log(tmp_path, 1, 7) == (b"", 7, False)
    assert read_log(tmp_path / "none", 0) == (b"", 0, False)
    assert read_log(tmp_path, 0, -5, 99)[0] == b"%098d\n" % 0


def test_places_stay_the_same_when_files_change(made, tmp_path):
    log = made(20_000)  # 101 lines of 99 bytes fit into 10,000
    write_lines(log, 0, 150)
    data, end = read_all(tmp_path)
    assert data == b"".join(b"%098d\n" % n for n in range(150))
    assert end == 150 * 99
    here = end
    write_lines(log, 150, 1000)
    data, end = read_all(tmp_path, here)
    lines = data.splitlines()
    first = int(lines[1])
    assert first % 101 == 0  # whole lines
    assert lines[0] == b"[phalanx: %d bytes dropped]" % (first * 99)
    assert [int(line) for line in lines[1:]] == list(range(first, 1000))
    assert end == 1000 * 99
    # A place that is there gives what was there.
    assert read_log(tmp_path, 0, 990 * 99, 99)[0] == b"%098d\n" % 990


def test_the_cap_holds(made, tmp_path):
    log = made(100_000)
    for _ in range(50):
        log.write(b"x" * 30_000)  # not one line end
    sizes = [path.stat().st_size for path in (tmp_path / "logs").iterdir()]
    assert len(sizes) == 2
    assert sum(sizes) <= 100_000 + 200
    assert min(sizes) > 0
    data, end = read_all(tmp_path)
    assert end == 1_500_000
    assert data.startswith(b"[phalanx: ")


def test_the_tail_in_lines(made, tmp_path):
    log = made(20_000)
    write_lines(log, 0, 250)
    for count in (1, 2, 30, 60, 103):  # over the seam of the files too
        data, end, _ = read_log(tmp_path, 0, limit=10**6, tail=count)
        assert [int(line) for line in data.splitlines()] == list(range(250 - count, 250))
        assert end == 250 * 99
    assert read_log(tmp_path, 0, tail=0)[0] == b""
    data, _, _ = read_log(tmp_path, 0, limit=10**6, tail=10_000)
    assert int(data.splitlines()[0]) == 101
    log.write(b"no end")
    assert read_log(tmp_path, 0, tail=1)[0] == b"no end"
    assert read_log(tmp_path, 0, tail=2)[0] == b"%098d\nno end" % 249


def test_a_job_that_prints_what_we_print_fools_only_itself(made, tmp_path):
    log = made(0)
    log.write(b"[phalanx: 500 bytes before this]\nhello\n")
    assert read_log(tmp_path, 0) == (b"[phalanx: 500 bytes dropped]\nhello\n", 506, True)
    (tmp_path / "logs" / "rank-1.log").write_bytes(b"[phalanx: 99999999999999999999 bytes before this]\nhello\n")
    assert read_log(tmp_path, 1)[1] == 56


def test_nothing_is_followed_and_only_plain_files_are_read(made, tmp_path):
    made(0)
    logs = tmp_path / "logs"
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (logs / "rank-1.log").symlink_to(secret)
    os.mkfifo(logs / "rank-2.log")
    (logs / "rank-3.log").mkdir()
    for rank in (1, 2, 3):
        assert read_log(tmp_path, rank) == (b"", 0, False)
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "real").mkdir(parents=True)
    (elsewhere / "real" / "rank-0.log").write_text("secret")
    (elsewhere / "logs").symlink_to(elsewhere / "real")
    assert read_log(elsewhere, 0) == (b"", 0, False)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to give files away")
def test_a_file_of_somebody_else_is_not_read(made, tmp_path):
    made(0)
    log = tmp_path / "logs" / "rank-1.log"
    log.write_text("not yours")
    os.chown(log, 12345, 12345)
    assert read_log(tmp_path, 1) == (b"", 0, False)


def test_planted_names_change_nothing_outside(made, tmp_path):
    log = made(20_000)
    target = tmp_path / "target"
    target.write_text("precious")
    logs = tmp_path / "logs"
    (logs / "rank-0.log.1").symlink_to(target)
    write_lines(log, 0, 150)  # puts the file aside, over the link
    assert target.read_text() == "precious"
    assert not (logs / "rank-0.log.1").is_symlink()
    (logs / "rank-0.log").unlink()
    (logs / "rank-0.log").symlink_to(target)  # what will be put aside is a link
    write_lines(log, 150, 400)
    assert target.read_text() == "precious"
    (logs / "rank-0.log.1").unlink()
    (logs / "rank-0.log.1").mkdir()  # cannot be put aside any more
    write_lines(log, 400, 5000)
    assert target.read_text() == "precious"
    assert sum(path.stat().st_size for path in logs.rglob("*") if path.is_file() and not path.is_symlink()) < 21_000


def test_a_name_that_is_there_before_the_log_is_refused(tmp_path):
    dir_fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        (tmp_path / "logs").symlink_to(tmp_path)
        with pytest.raises(FileExistsError):
            open_folder(dir_fd)
        (tmp_path / "rank-0.log").symlink_to(tmp_path / "made")
        with pytest.raises(FileExistsError):
            RankLog(dir_fd, 0, 0)
        assert not (tmp_path / "made").exists()
    finally:
        os.close(dir_fd)


# ---------------------------------------------------------------------- through a shim


def test_stdout_and_stderr_are_one_stream_in_order(world):
    async def scenario():
        launcher = world.launcher()
        await world.start(launcher, "for n in 1 2 3; do echo out$n; echo err$n >&2; done")
        await world.hear("exit")
        assert read_log(world.path / "1.1", 0)[0] == b"out1\nerr1\nout2\nerr2\nout3\nerr3\n"

    world.play(scenario)


def test_a_flood_is_bounded_and_the_last_words_are_there(world):
    flood = "import sys\nfor n in range(100000): sys.stdout.write('%099d\\n' % n)\nprint('the last words')"

    async def scenario():
        launcher = world.launcher()
        await world.start(launcher, [sys.executable, "-c", flood], "echo quiet", cap=200_000)
        await world.hear("empty")
        logs = world.path / "1.1" / "logs"
        assert sum(path.stat().st_size for path in logs.glob("rank-0*")) <= 200_000 + 200
        data, end = read_all(world.path / "1.1", limit=1 << 20)
        assert end == 100_000 * 100 + 15
        assert data.startswith(b"[phalanx: ")
        assert data.endswith(b"the last words\n")
        [end] = [event for event in world.told("exit") if event.rank == 0]
        assert end.tail.endswith("the last words\n")
        assert len(end.tail) == 2048
        assert read_log(world.path / "1.1", 1)[0] == b"quiet\n"

    world.play(scenario)


def test_who_prints_too_fast_is_slowed_down_not_cut(world, until):
    async def scenario():
        launcher = world.launcher(log_rate_bytes_s=400_000)
        await world.start(launcher, "head -c 1200000 /dev/zero; sleep 1000", cap=0)
        log = world.path / "1.1/logs/rank-0.log"
        await until(lambda: log.stat().st_size == 1_200_000, "all of it")

    world.play(scenario)


@pytest.fixture
def small_disk(tmp_path):
    """A disk of one megabyte."""
    if os.getuid() != 0:
        pytest.skip("needs root to mount a small disk")
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=755", "none", str(path)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("this machine lets nobody mount")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


FLOOD = """
import os, sys, time
for n in range(3000):
    sys.stdout.write('%0999d\\n' % n)
sys.stdout.flush()
open(sys.argv[1], 'w')
while not os.path.exists(sys.argv[2]):
    time.sleep(0.02)
print('room again', flush=True)
sys.exit(11)
"""


def test_a_full_disk_loses_no_exit_and_holds_nobody_up(small_disk, world_of, tmp_path, until):
    world = world_of("weak", small_disk)
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 200_000)

    async def scenario():
        launcher = world.launcher()
        files = [str(tmp_path / "printed"), str(tmp_path / "room")]
        await world.start(launcher, [sys.executable, "-c", FLOOD, *files], cap=64 << 20)
        await until((tmp_path / "printed").exists, "three megabytes to be printed on a disk of one")
        await until(lambda: os.statvfs(small_disk).f_bfree == 0, "the disk to be full")
        ballast.unlink()
        (tmp_path / "room").touch()
        [end] = await world.hear("exit")
        assert end.code == 11
        await world.hear("empty")
        data, _ = read_all(world.path / "1.1", limit=4 << 20)
        [dropped] = [line for line in data.splitlines() if line.startswith(b"[phalanx: ")]
        kept = len(data) - len(dropped) - 1 - len(b"room again\n")
        assert kept + int(dropped.split()[1]) in (3_000_000, 3_000_001)  # a line end stands before the mark
        assert data.endswith(b"room again\n")

    world.play(scenario)


def fill(path):
    """Until nothing goes in any more."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 512)
    assert os.statvfs(path).f_bfree == 0


def test_exits_are_written_down_on_a_full_disk(small_disk, world_of, tmp_path, until):
    world = world_of("weak", small_disk)

    async def scenario():
        first = world.launcher()
        go = tmp_path / "go"
        await world.start(first, *(f"while [ ! -e {go} ]; do sleep 0.02; done; exit {rank}" for rank in range(4)))
        world.shims.add(world.story().pid)
        await first.detach()
        fill(small_disk / "filler")
        go.touch()
        await until(lambda: world.story().done, "the end to be written down")
        assert {rank: code for rank, (_, code, _) in world.story().exits.items()} == {0: 0, 1: 1, 2: 2, 3: 3}
        (small_disk / "filler").unlink()

    world.play(scenario)


def test_no_room_for_a_run_is_an_error_and_nothing_is_left(small_disk, world_of, until):
    world = world_of("weak", small_disk)

    async def scenario():
        launcher = world.launcher()
        fill(small_disk / "filler")
        with pytest.raises(CannotStart, match="No space left on device"):
            await launcher.prepare(world.order("true"))
        assert launcher._runs.list_names() == []
        (small_disk / "filler").write_bytes(b"x" * ((1 << 20) - 40960))
        with pytest.raises(CannotStart, match="No space left on device"):
            await launcher.prepare(world.order("true", *["true"] * 100, env={"LARGE": "x" * 10}))
        assert launcher._runs.list_names() == []
        (small_disk / "filler").unlink()
        await launcher.prepare(world.order("true"))

    world.play(scenario)
