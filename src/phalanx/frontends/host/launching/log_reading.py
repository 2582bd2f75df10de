"""Reading what members printed, however often its files have changed.

A place in a log is a number of bytes from its beginning. What was dropped to keep the cap is not there
any more: whoever asks for it gets one line that says so and goes on with what is left. The job's user
owns the files, so they are opened without following a link and must be plain files of that user.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from phalanx.frontends.host.shim.log_writing import FOLDER, drop_line, log_name

_BEGIN = re.compile(rb"\[phalanx: (\d{1,15}) bytes before this\]\n")
_BEGIN_BYTES_MAX = 64
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TAIL_BLOCK_BYTES = 65536
#: However long the lines are that somebody wants the last of.
_TAIL_BYTES_MAX = 8 << 20


@dataclass(frozen=True, slots=True)
class _Piece:
    """One of the files of a log."""

    fd: int
    begin: int  # the place in the log of its first byte
    skip: int  # how long the line is that says so
    size: int  # without that line

    @property
    def end(self) -> int:
        """The place after its last byte."""
        return self.begin + self.size

    def read(self, at: int, limit: int) -> bytes:
        """Bytes from a place in the log on."""
        parts = []
        while limit > 0 and (part := os.pread(self.fd, min(limit, 1 << 20), self.skip + at - self.begin)):
            parts.append(part)
            at += len(part)
            limit -= len(part)
        return b"".join(parts)


def read_log(
    run_dir: int | Path,
    rank: int,
    offset: int = 0,
    limit: int = 65536,
    tail: int | None = None,
    *,
    tail_bytes: int | None = None,
) -> tuple[bytes, int, bool]:
    """A piece of a rank's log, the place where the next begins, and whether there is such a log at all.

    `tail` starts that many lines before the end instead of at `offset`, `tail_bytes` that many bytes.
    """
    pieces = _open(run_dir, rank)
    try:
        if not pieces:
            return b"", offset, False
        if tail is not None:
            offset = _find_line(pieces, tail)
        elif tail_bytes is not None:
            offset = max(pieces[0].begin, pieces[-1].end - tail_bytes)
        return (*_read(pieces, max(0, offset), max(0, limit)), True)
    finally:
        for piece in pieces:
            os.close(piece.fd)


def _read(pieces: list[_Piece], offset: int, limit: int) -> tuple[bytes, int]:
    begin, end = pieces[0].begin, pieces[-1].end
    head = b""
    if offset < begin:
        head, offset = drop_line(begin), begin
    at, parts = min(offset, end), [head]
    for piece in pieces:
        if piece.begin <= at < piece.end and limit > 0:
            part = piece.read(at, min(limit, piece.end - at))
            parts.append(part)
            at += len(part)
            limit -= len(part)
    return b"".join(parts), at


def _find_line(pieces: list[_Piece], lines: int) -> int:
    """The place where the last so many lines begin."""
    begin, end = pieces[0].begin, pieces[-1].end
    at = end
    if lines <= 0:
        return end
    # The end of the last line ends it; it does not begin another.
    wanted = lines + 1 if _read(pieces, max(begin, end - 1), 1)[0] == b"\n" else lines
    while at > begin and end - at < _TAIL_BYTES_MAX:
        start = max(begin, at - _TAIL_BLOCK_BYTES)
        block, _ = _read(pieces, start, at - start)
        found = block.count(b"\n")
        if found >= wanted:
            for _ in range(wanted):
                block = block[: block.rfind(b"\n")]
            return start + len(block) + 1
        wanted -= found
        at = start
    return at


def _open(run_dir: int | Path, rank: int) -> list[_Piece]:
    """The files of a log, the older first, such that each goes on where the one before it ends."""
    try:
        dir_fd = run_dir if isinstance(run_dir, int) else os.open(run_dir, _FLAGS | os.O_DIRECTORY)
    except OSError:
        return []
    try:
        owner = os.fstat(dir_fd).st_uid
        folder_fd = os.open(FOLDER, _FLAGS | os.O_DIRECTORY, dir_fd=dir_fd)
    except OSError:
        return []
    finally:
        if dir_fd != run_dir:
            os.close(dir_fd)
    try:
        # The newer first: if it is put aside in between, it is found twice, and that can be seen.
        new = _open_piece(folder_fd, log_name(rank), owner)
        old = _open_piece(folder_fd, log_name(rank) + ".1", owner)
    finally:
        os.close(folder_fd)
    if new is None or old is None:
        return [piece for piece in (old, new) if piece is not None]
    if old.end != new.begin:
        os.close(old.fd)
        return [new]
    return [old, new]


def _open_piece(folder_fd: int, name: str, owner: int) -> _Piece | None:
    try:
        fd = os.open(name, _FLAGS, dir_fd=folder_fd)
    except OSError:
        return None
    about = os.fstat(fd)
    if not stat.S_ISREG(about.st_mode) or about.st_uid != owner:
        os.close(fd)
        return None
    said = _BEGIN.match(os.pread(fd, _BEGIN_BYTES_MAX, 0))
    skip = said.end() if said else 0
    return _Piece(fd, int(said[1]) if said else 0, skip, about.st_size - skip)
