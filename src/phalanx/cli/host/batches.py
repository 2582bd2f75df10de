"""Jobs as requests: one if that can be, with what they have in common said once; else as few as the bounds allow.

One request is taken in whole or not at all. Of several the later ones may be refused: then what the earlier ones
brought in is cancelled again, and the error says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from phalanx.client.daemon import Daemon
from phalanx.client.daemon_errors import ClientError, RefusedError, UnreachableError

#: Below the daemon's bound for one request; more is sent in parts, each of them whole.
PART_BYTES: Final = 48 << 20
#: What the jobs of one request may be together when each has what they share.
SPREAD_BYTES: Final = 240 << 20
#: Smaller ones are sent as they are.
SHARED_BYTES: Final = 1 << 20

Job = dict[str, Any]


class Request(NamedTuple):
    """Jobs that are handed in together; `run`: what they have in common of it, or nothing."""

    jobs: Sequence[Job]
    run: dict[str, Any] | None = None


class HandedIn:
    """What a submit of several requests has brought in so far."""

    def __init__(self, daemon: Daemon, key: str, *, dry_run: bool) -> None:
        """Nothing yet. The key makes it safe to ask again after a lost connection."""
        self._daemon, self._key, self._dry_run = daemon, key, dry_run
        self._requests = 0
        self.jobs: list[Job] = []

    def hand_in(self, request: Request) -> list[Job]:
        """One request; if it fails, what came in before is taken back."""
        key = f"{self._key}-{self._requests}" if self._requests else self._key
        self._requests += 1
        try:
            found = self._daemon.submit(request.jobs, key, run=request.run, dry_run=self._dry_run)
        except (RefusedError, UnreachableError) as bad:
            if self.jobs and not self._dry_run:
                self._take_back(bad)
            raise
        self.jobs += found
        return found

    def _take_back(self, bad: ClientError) -> None:
        ids = id_ranges([int(job["id"]) for job in self.jobs])
        count = f"{len(self.jobs):,} job{'' if len(self.jobs) == 1 else 's'}: {', '.join(ids)}"
        try:
            told = self._daemon.post("/v1/cancel", {"jobs": ids})
        except ClientError as why:
            bad.message += (
                f"; what came in before is still there ({count}), since it cannot be cancelled: {why.message}"
            )
            bad.hint = f"phalanx cancel {' '.join(ids)}"
            return
        left = ", ".join(str(each["ref"]) for each in told.get("refused") or ())
        bad.message += f"; what came in before is cancelled again ({count}{'; had ended: ' + left if left else ''})"


def id_ranges(numbers: Sequence[int]) -> list[str]:
    """Ids as every verb takes them: 36-39, 41."""
    runs: list[list[int]] = []
    for each in sorted(numbers):
        if runs and each == runs[-1][1] + 1:
            runs[-1][1] = each
        else:
            runs.append([each, each])
    return [f"{first}" if first == last else f"{first}-{last}" for first, last in runs]


def make_requests(jobs: Sequence[Job]) -> Iterator[Request]:
    """The jobs in requests that are not too large; nearly always that is one."""
    if _size(jobs, SHARED_BYTES) <= SHARED_BYTES:
        yield Request(jobs)
        return
    shared = _find_shared(jobs)
    shared_size = len(json.dumps(shared))
    part: list[Job] = []
    size = spread = 0
    for job in jobs:
        own = {**job, "run": {key: value for key, value in job["run"].items() if key not in shared}}
        own_size = len(json.dumps(own))
        full = size + own_size > PART_BYTES or spread + own_size + shared_size > SPREAD_BYTES
        if part and full:
            yield Request(part, shared)
            part, size, spread = [], 0, 0
        part.append(own)
        size += own_size + (0 if part[1:] else shared_size)
        spread += own_size + shared_size
    yield Request(part, shared)


def _size(jobs: Sequence[Job], enough: int) -> int:
    """How long they are as JSON, or something above `enough`."""
    size = 0
    known: tuple[int, int] = 0, 0
    for job in jobs:
        # Jobs of one invocation share an environment, which is most of what they are.
        env = job["run"]["env"]
        if known[0] != id(env):
            known = id(env), len(json.dumps(env))
        size += known[1] + len(json.dumps({**job, "run": {**job["run"], "env": {}}}))
        if size > enough:
            break
    return size


def _find_shared(jobs: Sequence[Job]) -> dict[str, Any]:
    """What all of them say in `run`, word for word."""
    shared = dict(jobs[0]["run"])
    for job in jobs:
        run = job["run"]
        if run is not jobs[0]["run"]:
            shared = {key: value for key, value in shared.items() if _is_same(value, run.get(key, shared))}
    return shared


def _is_same(value: object, other: object) -> bool:
    return value is other or value == other
