"""What can go wrong with the store, split by what the caller should do about it."""

from __future__ import annotations

import sqlite3
from enum import Enum, auto
from pathlib import Path
from typing import Final


class StoreBroken(Exception):  # noqa: N818 - what is the case, not a kind of mistake
    """The store cannot be used.

    Kinds: corrupt, newer (schema), readonly, foreign (owned by somebody else), full (when opened), io and closed,
    which stay; and busy (another process holds the database), which passes.
    """

    def __init__(self, kind: str, message: str, hint: str) -> None:
        """`hint` is what to do next."""
        super().__init__(f"{message} {hint}")
        self.kind = kind
        self.message = message
        self.hint = hint


class StoreFull(Exception):  # noqa: N818 - what is the case, not a kind of mistake
    """The disk is full; nothing of the write was applied."""

    def __init__(self, message: str, hint: str) -> None:
        """`hint` is what to do next."""
        super().__init__(f"{message} {hint}")
        self.message = message
        self.hint = hint


class Fault(Enum):
    """Whose problem an error is."""

    OWN = auto()  # of the one change that raised it
    FULL = auto()  # no room; nothing was applied
    UNSURE = auto()  # no room, or an I/O error: SQLite says the same of a user's disk limit and of a dying disk
    BUSY = auto()  # another process holds the lock; nothing was applied
    CORRUPT = auto()
    READONLY = auto()
    IO = auto()


#: By primary result code. What is not here is the change's own fault: constraints, types, sizes.
_FAULTS: Final = {
    sqlite3.SQLITE_FULL: Fault.FULL,
    sqlite3.SQLITE_BUSY: Fault.BUSY,
    sqlite3.SQLITE_LOCKED: Fault.BUSY,
    sqlite3.SQLITE_CORRUPT: Fault.CORRUPT,
    sqlite3.SQLITE_NOTADB: Fault.CORRUPT,
    sqlite3.SQLITE_READONLY: Fault.READONLY,
    sqlite3.SQLITE_PERM: Fault.READONLY,
    sqlite3.SQLITE_AUTH: Fault.READONLY,
    sqlite3.SQLITE_CANTOPEN: Fault.IO,
    sqlite3.SQLITE_IOERR: Fault.IO,
    sqlite3.SQLITE_PROTOCOL: Fault.IO,
    sqlite3.SQLITE_NOMEM: Fault.IO,
    sqlite3.SQLITE_INTERNAL: Fault.IO,
    sqlite3.SQLITE_INTERRUPT: Fault.IO,
}
_UNSURE: Final = {sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_TRUNCATE}


def find_fault(error: BaseException) -> Fault:
    """Whose problem this error is."""
    code = getattr(error, "sqlite_errorcode", None)
    if not isinstance(error, sqlite3.Error) or code is None:
        return Fault.OWN
    if code in _UNSURE:
        return Fault.UNSURE
    return _FAULTS.get(code & 0xFF, Fault.OWN)


def explain(fault: Fault, path: Path, error: BaseException) -> StoreBroken:
    """The error as the user is told it."""
    detail = f"{error} ({getattr(error, 'sqlite_errorname', type(error).__name__)})"
    match fault:
        case Fault.BUSY:
            return StoreBroken(
                "busy",
                f"Another process holds the database {path} locked: {detail}.",
                f"Close it, then try again; `fuser {path}` names it.",
            )
        case Fault.CORRUPT:
            return StoreBroken(
                "corrupt",
                f"The database {path} is damaged: {detail}.",
                "Restart the daemon: it checks the file and goes back to the newest good backup.",
            )
        case Fault.READONLY:
            return StoreBroken(
                "readonly",
                f"The database {path} cannot be written: {detail}.",
                f"Look at `ls -ld {path.parent} {path}` and `findmnt -T {path.parent}`, then restart the daemon.",
            )
        case Fault.FULL | Fault.UNSURE:
            return StoreBroken(
                "full",
                f"The disk under {path.parent} is full: {detail}.",
                f"Free some space (`df -h {path.parent}`; `quota -s`), then try again.",
            )
        case Fault.IO | Fault.OWN:
            return StoreBroken(
                "io",
                f"Reading or writing {path} failed: {detail}. Nothing is accepted any more; running jobs go on.",
                "Look at `dmesg` for disk errors, then restart the daemon.",
            )


def refuse_full(directory: Path) -> StoreFull:
    """What a submit hears while the disk is full."""
    return StoreFull(
        f"The disk under {directory} is full: nothing was accepted.",
        f"Free some space (`df -h {directory}`; `quota -s`), then submit again; running jobs go on.",
    )


def refuse_closed(path: Path) -> StoreBroken:
    """What comes too late hears."""
    return StoreBroken("closed", f"The store {path} is closed.", "Start the daemon: `phalanx up`.")
