"""What a state directory tells while no daemon runs: logs and reports, read and never written.

For its owner alone: who may see what is the daemon's to say, and it is not there. Nothing is repaired or brought up to
date here; what runs without a daemon is told as it was when the daemon was last there.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from phalanx.frontends.host.core.refs import ArrayElements, IdRange, read_ref
from phalanx.frontends.host.core.reports import tell_books, tell_estimates
from phalanx.frontends.host.launching.log_reading import read_log
from phalanx.frontends.host.ports import Refused
from phalanx.frontends.host.store import queries
from phalanx.frontends.host.store.stored_rows import JobRecord
from phalanx.words import stamp

_RANKS_MOST: Final = 4096
_RECORDS_MOST: Final = 20_000
_PIECE: Final = 1 << 20


class AtRest:
    """A state directory without a daemon."""

    def __init__(self, state: Path) -> None:
        """Opens the database such that nothing can be changed in it; raises sqlite3.Error if it cannot be read."""
        self.state = state
        path = state / "phalanx.db"
        # After an orderly stop there is no log beside it, and nobody writes: then not even a lock is taken.
        how = "mode=ro" if path.with_name("phalanx.db-wal").exists() else "mode=ro&immutable=1"
        self._connection = sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, isolation_level=None)
        self._jobs = queries.read_jobs(self._connection, ended=True)

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    # ------------------------------------------------------------------ jobs

    def find(self, ref: str) -> list[JobRecord]:
        """Jobs that a word means, as a daemon would understand it; refuses if there are none."""
        read = None if any(job.name == ref for job in self._jobs) or ref.isdecimal() else read_ref(ref)
        if ref.isdecimal():
            found = [job for job in self._jobs if job.id == int(ref)]
        elif isinstance(read, IdRange):
            found = [job for job in self._jobs if any(job.id in ids for ids in read.ids)]
        elif isinstance(read, ArrayElements):
            found = [job for job in self._newest(read.word) if not read.indices or _index_of(job) in read.indices]
        else:
            found = self._newest(ref)
        if not found:
            raise Refused("not_found", f"there is no job {ref!r}", f"phalanx up; the state directory is {self.state}")
        return found

    def _newest(self, name: str) -> list[JobRecord]:
        """The newest job of a name, or all of its array."""
        named = [job for job in self._jobs if job.name == name]
        if not named or _array_of(named[-1]) is None:
            return named[-1:]
        return [job for job in named if _array_of(job) == _array_of(named[-1])]

    def list_ranks(self, job: JobRecord, attempt: int) -> list[int]:
        """Ranks that have a log."""
        found = []
        for rank in range(_RANKS_MOST):
            if not read_log(self._run(job, attempt), rank, 0, 0)[2]:
                break
            found.append(rank)
        return found

    def read_log(self, job: JobRecord, attempt: int, rank: int, tail: int | None) -> bytes:
        """What a rank printed so far."""
        data, offset, _ = read_log(self._run(job, attempt), rank, 0, _PIECE, tail)
        parts = [data]
        while data:
            data, offset, _ = read_log(self._run(job, attempt), rank, offset, _PIECE)
            parts.append(data)
        return b"".join(parts)

    def _run(self, job: JobRecord, attempt: int) -> Path:
        return self.state / "runs" / f"{job.id}.{attempt}"

    # ------------------------------------------------------------------ reports

    def report(self, by: Sequence[str], since_s: float | None, wall_s: float) -> dict[str, Any]:
        """Where the device time of jobs went whose books are closed; `wall_s`: what time it is."""
        after = 0.0 if since_s is None else wall_s - since_s
        jobs = [job for job in self._jobs if job.ledger and (job.end_wall is None or job.end_wall >= after)]
        books = [(job, msgspec.json.decode(job.ledger or b"{}")) for job in jobs[-_RECORDS_MOST:]]
        return tell_books(by, books, since_s, 0.0)

    def report_eta(self) -> dict[str, Any]:
        """How good estimates were."""
        newest = self._jobs[-1] if self._jobs else None
        # The cluster's clock runs in step with the wall's; where it stood is known of every submit.
        began = 0.0 if newest is None else newest.submit_wall - newest.submit_us / 1e6
        made = queries.read_estimates(self._connection, 0)
        return tell_estimates(made, lambda at_us: stamp(began + at_us / 1e6))


def read_at_rest(state: Path) -> AtRest | None:
    """The state directory, if there is one that can be read."""
    if not (state / "phalanx.db").is_file():
        return None
    try:
        return AtRest(state)
    except (sqlite3.Error, OSError):
        return None


def _array_of(job: JobRecord) -> str | None:
    part = (msgspec.json.decode(job.options) if job.options else {}).get("array")
    return None if part is None else str(part.get("key") or part["of"])


def _index_of(job: JobRecord) -> int:
    part = (msgspec.json.decode(job.options) if job.options else {}).get("array") or {}
    return int(part.get("index", -1))
