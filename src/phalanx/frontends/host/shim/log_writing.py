"""What members print: one file a rank, bounded, whatever the member and the disk do.

A log is two files at most: `rank-0.log` and what was written before it, `rank-0.log.1`. When the first
is full it takes the place of the second, whose content is then gone. A file that goes on where another
left off says so in its first line, `[phalanx: N bytes before this]`: N counts from the start of the
log, so that a reader can name a place in it by one number however often the files have changed.

Where the disk is full the member is not made to wait: what it prints is dropped and counted, and
`[phalanx: N bytes dropped]` stands in the log as soon as there is room again. Where a member prints
faster than the rate, it is read at the rate, and waits as it would for a slow terminal.
"""

from __future__ import annotations

import os

from phalanx.frontends.host.shim.event_loop import READ

TYPE_CHECKING = False
if TYPE_CHECKING:
    from phalanx.frontends.host.shim.event_loop import EventLoop

FOLDER = "logs"
TAIL_BYTES = 2048
_CHUNK_BYTES = 65536
#: Read at the end of a member, so that its last words are in the tail: as much as a pipe holds, and more.
_DRAIN_BYTES = 4 << 20
_SEGMENT_BYTES_MIN = 4096


def log_name(rank: int) -> str:
    """The file of one rank."""
    return f"rank-{rank}.log"


def begin_line(base: int) -> bytes:
    """The first line of a file that goes on where another ended."""
    return b"[phalanx: %d bytes before this]\n" % base


def drop_line(count: int) -> bytes:
    """The line that stands for what is not there."""
    return b"[phalanx: %d bytes dropped]\n" % count


def open_folder(dir_fd: int) -> int:
    """The folder of the logs, made here and never a link to somewhere else."""
    os.mkdir(FOLDER, 0o700, dir_fd=dir_fd)
    return os.open(FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)


class RankLog:
    """The log of one rank."""

    def __init__(self, folder_fd: int, rank: int, cap_bytes: int) -> None:
        """Make the file; raises OSError if something of that name is there already."""
        self._folder_fd, self._name = folder_fd, log_name(rank)
        # Two files share the cap. 0: no cap.
        self._segment_bytes = max(_SEGMENT_BYTES_MIN, cap_bytes // 2) if cap_bytes > 0 else 0
        self._base = 0  # where in the log the file begins
        self._size = 0  # of the file, without the line that it begins with
        self._begun = True  # the file says where it begins; the first begins at the beginning
        self._dropped = 0
        self._ended_line = True
        self.tail = b""
        self._fd = self._create()

    def _create(self) -> int:
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(self._name, flags, 0o600, dir_fd=self._folder_fd)

    def write(self, data: bytes) -> None:
        """Take in what a member printed; never raises and never waits for room."""
        self.tail = (self.tail + data[-TAIL_BYTES:])[-TAIL_BYTES:]
        while data:
            room = self._find_room(data)
            self._put(data[:room])
            data = data[room:]

    def close(self) -> None:
        """Say what is missing at the end, and close."""
        self._mark()
        os.close(self._fd)

    def _find_room(self, data: bytes) -> int:
        """How much of this goes into the present file, whole lines if possible; makes a new one if none does."""
        if not self._segment_bytes or self._size + len(data) <= self._segment_bytes:
            return len(data)
        left = self._segment_bytes - self._size
        if left > 0:
            lines = data.rfind(b"\n", 0, left) + 1
            # One line longer than a file, or already begun in this one, is cut where the file ends.
            if lines or self._size == 0 or not self._ended_line:
                return lines or left
        self._rotate()
        return self._find_room(data)

    def _rotate(self) -> None:
        """Put the file aside and begin the next. If that fails the file is emptied: the cap holds in any case."""
        base = self._base + self._size
        try:
            os.rename(self._name, self._name + ".1", src_dir_fd=self._folder_fd, dst_dir_fd=self._folder_fd)
            fd = self._create()
        except OSError:
            # Somebody plants names faster than we can take them away, or inodes have run out.
            os.ftruncate(self._fd, 0)
        else:
            os.close(self._fd)
            self._fd = fd
        self._base, self._size, self._begun = base, 0, False

    def _put(self, data: bytes) -> None:
        self._begun = self._begun or self._write_whole(begin_line(self._base))
        if not self._begun or not self._mark():
            self._dropped += len(data)
            return
        written = 0
        try:
            while written < len(data):
                written += os.write(self._fd, data[written:])
        except OSError:
            self._dropped += len(data) - written
        self._size += written
        if written:
            self._ended_line = data[written - 1 : written] == b"\n"

    def _mark(self) -> bool:
        """Whether the log has no hole that is not marked."""
        if not self._dropped:
            return True
        line = (b"" if self._ended_line else b"\n") + drop_line(self._dropped)
        if not self._write_whole(line):
            return False
        self._size += len(line)
        self._dropped, self._ended_line = 0, True
        return True

    def _write_whole(self, line: bytes) -> bool:
        """Append all of it or nothing."""
        try:
            before = os.fstat(self._fd).st_size
            if os.write(self._fd, line) == len(line):
                return True
            os.ftruncate(self._fd, before)
        except OSError:
            return False
        return False


class Rate:
    """How much may be read now; one for all members of a run."""

    def __init__(self, loop: EventLoop, bytes_s: int) -> None:
        """0: as much as comes."""
        self._loop, self._bytes_s = loop, bytes_s
        self._left: float = bytes_s
        self._at_s = loop.now_s()

    def take(self, wanted: int) -> int:
        """So many may be read; 0: none, come back in a moment."""
        if not self._bytes_s:
            return wanted
        now_s = self._loop.now_s()
        self._left = min(self._bytes_s, self._left + (now_s - self._at_s) * self._bytes_s)
        self._at_s = now_s
        return min(wanted, int(self._left)) if self._left >= min(4096, self._bytes_s) else 0

    def spend(self, count: int) -> None:
        """So many were."""
        self._left -= count


class Pump:
    """From the pipe of one member into the log of its rank."""

    def __init__(self, loop: EventLoop, fd: int, log: RankLog, rate: Rate) -> None:
        """Starts at once, and ends when nobody holds the other end any more."""
        self._loop, self._fd, self._log, self._rate = loop, fd, log, rate
        self.closed = False
        os.set_blocking(fd, False)
        loop.watch(fd, READ, self._on_ready)

    def _on_ready(self, _events: int) -> None:
        allowed = self._rate.take(_CHUNK_BYTES)
        if not allowed:
            self._loop.unwatch(self._fd)
            self._loop.after(0.05, self._resume)
            return
        self._rate.spend(self._read(allowed))

    def _resume(self) -> None:
        if not self.closed:
            self._loop.watch(self._fd, READ, self._on_ready)

    def drain(self) -> None:
        """Read what is there, without waiting: somebody is about to ask for the last words."""
        left = _DRAIN_BYTES
        while left > 0 and not self.closed and (count := self._read(_CHUNK_BYTES)):
            left -= count

    def _read(self, limit: int) -> int:
        try:
            data = os.read(self._fd, limit)
        except BlockingIOError:
            return 0
        except OSError:
            data = b""
        if data:
            self._log.write(data)
        else:
            self.close()
        return len(data)

    def close(self) -> None:
        """No more of this."""
        if not self.closed:
            self.closed = True
            self._loop.unwatch(self._fd)
            os.close(self._fd)


class RunLogs:
    """The logs of all ranks; whoever has a rank after another goes on in its log."""

    def __init__(self, loop: EventLoop, dir_fd: int, cap_bytes: int, rate_bytes_s: int) -> None:
        """Makes the folder."""
        self._loop, self._cap_bytes = loop, cap_bytes
        self._rate = Rate(loop, rate_bytes_s)
        self._folder_fd = open_folder(dir_fd)
        self._by_rank: dict[int, RankLog] = {}

    def open(self, rank: int) -> RankLog:
        """The log of a rank, made if there is none; raises OSError if it cannot be."""
        log = self._by_rank.get(rank)
        if log is None:
            log = self._by_rank[rank] = RankLog(self._folder_fd, rank, self._cap_bytes)
        return log

    def pump(self, fd: int, log: RankLog) -> Pump:
        """What comes out of this pipe goes into the log, as fast as all of them together may print."""
        return Pump(self._loop, fd, log, self._rate)

    def close(self) -> None:
        """Nobody prints any more."""
        for log in self._by_rank.values():
            log.close()
