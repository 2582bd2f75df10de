"""Whether SQLite's log still holds everything that was acknowledged from it.

After a crash SQLite reads its log up to the first frame that is damaged and takes that for the end; what was
acknowledged behind it is gone without a word. But the index of the log, which lies beside it, says how long the log
was: the last daemon wrote that only after the log itself was on the disk. After a power loss it may be older, or not
readable; what it does say is true. It is read as a plain file, while nobody has the database open.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: The header of the index, written twice, and what the checkpointer notes behind the copies.
_HEADER_BYTES: Final = 48
_SUMMED_BYTES: Final = 40
_VERSION: Final = 3_007_000


@dataclass(frozen=True, slots=True)
class LogWitness:
    """What an index says of its log."""

    salt: bytes  # of the log that it is about: a log that was begun anew has another
    frames: int  # pages in the log up to the last commit
    copied: int  # as many of them are in the database file already


def read_witness(database: Path) -> LogWitness | None:
    """What the index says now; None if there is none, or it cannot be trusted."""
    try:
        with database.with_name(database.name + "-shm").open("rb") as file:
            found = file.read(2 * _HEADER_BYTES + 4)
    except OSError:
        return None
    if len(found) < 2 * _HEADER_BYTES + 4:
        return None
    header = found[:_HEADER_BYTES]
    version, _, _, ready, _, _, frames, _ = struct.unpack_from("=IIIBBHII", header)
    if version != _VERSION or not ready or header != found[_HEADER_BYTES : 2 * _HEADER_BYTES]:
        return None
    if _sum_up(header[:_SUMMED_BYTES]) != struct.unpack_from("=II", header, _SUMMED_BYTES):
        return None
    (copied,) = struct.unpack_from("=I", found, 2 * _HEADER_BYTES)
    return LogWitness(header[32:40], frames, min(copied, frames))


def _sum_up(data: bytes) -> tuple[int, int]:
    """SQLite's checksum, in the byte order of this machine."""
    words = struct.unpack(f"={len(data) // 4}I", data)
    one = two = 0
    for first, second in zip(words[::2], words[1::2], strict=True):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one, two


@dataclass(frozen=True, slots=True)
class LogLoss:
    """What is missing of a log."""

    pages: int  # that were acknowledged and are nowhere
    outdated: bool  # what is left of it is older than the database file, and would undo half of that


def find_loss(before: LogWitness | None, after: LogWitness | None) -> LogLoss | None:
    """Compare what the last daemon noted with what SQLite found when it looked anew."""
    if before is None:
        return None
    left = after.frames if after is not None and after.salt == before.salt else 0
    pages = before.frames - max(left, before.copied)
    outdated = 0 < left < before.copied
    return LogLoss(max(0, pages), outdated) if pages > 0 or outdated else None
