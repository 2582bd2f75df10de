"""What a shim writes down for good: JSON lines in a file whose room was taken at the start.

`head`, `ready`, `go`, `exit`, `dropped`, `done`. Every line is on disk before anybody hears of it. The
room is allocated before the first member runs, so that a disk that fills up later cannot swallow an exit;
the file ends in zero bytes until they are used. A line that was being written when the power went has no
end, or no sense, and counts as never written.
"""

from __future__ import annotations

import json
import os

from phalanx.frontends.host.shim.bounds import RANK_MAX, bounded, read_end, read_generation, read_member

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

NAME = "journal"
_HEAD_BYTES = 4096
#: ready and exit of one member, with room to spare: pids and start times have at most 20 digits.
_MEMBER_BYTES = 512
#: Of 4,096 members, each with its ready and its exit.
_READ_BYTES_MAX = _HEAD_BYTES + 4096 * _MEMBER_BYTES


class Journal:
    """The shim's end."""

    def __init__(self, dir_fd: int) -> None:
        """Make it; there must be none yet."""
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(NAME, flags, 0o600, dir_fd=dir_fd)
        self._at = 0
        self._room = 0
        self._take(_HEAD_BYTES)
        os.fsync(dir_fd)

    def make_room(self, members: int) -> None:
        """Take the room for so many more members; raises OSError if the disk has none."""
        self._take(members * _MEMBER_BYTES)

    def _take(self, size: int) -> None:
        os.posix_fallocate(self._fd, self._room, size)
        self._room += size

    def write(self, *lines: Mapping[str, Any]) -> None:
        """Append lines, on disk when it returns."""
        text = b"".join(json.dumps(line, separators=(",", ":")).encode("ascii") + b"\n" for line in lines)
        while text:
            written = os.pwrite(self._fd, text, self._at)
            self._at += written
            text = text[written:]
        os.fdatasync(self._fd)


class Story:
    """What a journal says, folded: who was there, who went, who ended how."""

    __slots__ = ("boot_id", "done", "exits", "generation", "members", "never_started", "pid", "start", "waiting")

    def __init__(self) -> None:
        self.boot_id, self.pid, self.start = "", 0, 0  # of the shim itself
        self.generation = 0  # the last that was let through the gate; 0: none
        self.members: dict[int, tuple[int, int]] = {}  # rank → pid, start time, of those that went
        self.exits: dict[int, tuple[int, int | None, int | None]] = {}  # rank → generation, code, signal
        self.waiting: dict[int, dict[int, tuple[int, int]]] = {}  # generation → rank → pid, start time
        self.done = self.never_started = False

    @property
    def went(self) -> bool:
        """Whether anybody was let through the gate."""
        return self.generation > 0

    def fold(self, line: Mapping[str, Any]) -> None:
        """Take in one line, or raise and leave everything as it was."""
        what = line["what"]
        if what == "head":
            _, (pid, start) = read_member(0, line["pid"], line["start"])
            self.boot_id, self.pid, self.start = str(line["boot_id"]), pid, start
        elif what == "ready":
            members = dict(read_member(rank, pid, start) for rank, pid, start in line["members"])
            self.waiting[read_generation(line["generation"])] = members
        elif what == "go":
            self.generation = read_generation(line["generation"])
            went = self.waiting.pop(self.generation, {})
            self.members.update(went)
            for rank in went:
                self.exits.pop(rank, None)
        elif what == "dropped":
            self.waiting.pop(read_generation(line["generation"]), None)
        elif what == "exit":
            code, number = read_end(line["code"], line["signal"])
            self.exits[bounded(line["rank"], 0, RANK_MAX)] = (read_generation(line["generation"]), code, number)
        elif what == "done":
            self.done, self.never_started = True, bool(line.get("never_started"))


def read_story(data: bytes) -> Story:
    """The story in the bytes of a journal, as far as it makes sense."""
    story = Story()
    for text in data.split(b"\0", 1)[0].split(b"\n")[:-1]:
        try:
            story.fold(json.loads(text))
        except (ValueError, TypeError, KeyError, ArithmeticError, RecursionError):
            break
    return story


def load_story(dir_fd: int, owner: int | None = None) -> Story | None:
    """The story in the journal of a run directory; None if there is none, or it is somebody else's file."""
    import stat

    try:
        fd = os.open(NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=dir_fd)
    except OSError:
        return None
    try:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode) or (owner is not None and about.st_uid != owner):
            return None
        parts, left = [], _READ_BYTES_MAX
        while left > 0 and (part := os.read(fd, min(left, 1 << 20))):
            parts.append(part)
            left -= len(part)
        return read_story(b"".join(parts))
    finally:
        os.close(fd)
