"""A batch whose jobs have most of `run` in common, as the single submissions that it stands for.

An array of ten thousand jobs has one command and one environment. Sent with each of them it would not fit into one
request, and only what is one request is taken in whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, overload

import msgspec

from phalanx.frontends.host.messages import Batch, Submission
from phalanx.frontends.host.ports import Refused

#: What all jobs of a batch may be together, written out: that is what is stored.
SPREAD_BYTES_MAX: Final = 256 << 20

_HINT: Final = "the fields are described by GET /openapi.json"


def list_jobs(batch: Batch) -> Sequence[Submission]:
    """The jobs, each with what it shares; those are made when they are looked at, since most refusals need no look."""
    if isinstance(batch.run, msgspec.UnsetType):
        return batch.jobs
    shared = _read(bytes(batch.run), "field 'run'")
    size = len(batch.jobs) * len(batch.run) + sum(len(job.run) for job in batch.jobs)
    if size > SPREAD_BYTES_MAX:
        why = f"the jobs of the batch have {size >> 20} MiB with what they share, the most is {SPREAD_BYTES_MAX >> 20}"
        raise Refused("too_large", why, "send them in several requests, or with a smaller environment")
    return _Spread(batch.jobs, shared)


class _Spread(Sequence[Submission]):
    """Jobs that say in `run` what is not common to all of them."""

    def __init__(self, jobs: Sequence[Submission], shared: dict[str, Any]) -> None:
        self._jobs, self._shared = jobs, shared
        self._last: tuple[bytes, bytes] = b"", b""

    def __len__(self) -> int:
        return len(self._jobs)

    @overload
    def __getitem__(self, at: int) -> Submission: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Submission]: ...
    def __getitem__(self, at: int | slice) -> Submission | Sequence[Submission]:
        if isinstance(at, slice):
            return [self._whole(job) for job in self._jobs[at]]
        return self._whole(self._jobs[at])

    def __iter__(self) -> Iterator[Submission]:
        return map(self._whole, self._jobs)

    def _whole(self, job: Submission) -> Submission:
        own = bytes(job.run)
        if own != self._last[0]:
            self._last = own, msgspec.json.encode({**self._shared, **_read(own, "field 'jobs[...].run'")})
        # As bytes and not as `Raw`, which is copied whenever somebody reads it: all elements of an array share these.
        return msgspec.structs.replace(job, run=self._last[1])


def _read(text: bytes, where: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError:
        raise Refused("usage", f"the body, {where}: expected object", _HINT, field="run") from None
