"""What the API asks of the core: one method a verb, each told who speaks.

The core authorises: `Refused` with `forbidden` or `not_found` comes from there, from one place that every
verb asks (`core.access`). The API only knows who the caller is and how answers travel.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from phalanx.frontends.host.messages import (
    Accepted,
    ActedOn,
    Detail,
    Happening,
    NodeRow,
    QueueRow,
    Row,
    Submission,
    Why,
)
from phalanx.frontends.host.ports import Caller


@dataclass(frozen=True, slots=True)
class Listing:
    """Which jobs somebody wants to see."""

    everybody: bool = False  # else the caller's own
    states: frozenset[str] = frozenset()  # empty: any
    queue: str = ""
    user: str = ""
    name: str = ""
    finished: bool = False  # all that ended, not only those of the last ten minutes
    limit: int = 0  # 0: no bound


@dataclass(frozen=True, slots=True)
class LogChunk:
    """A piece of a log."""

    data: bytes
    next_offset: int
    ended: bool  # nothing will be added any more
    ranks: int


@dataclass(slots=True)
class Figures:
    """Numbers for /metrics: gauges by (name, labels), read from the core when somebody scrapes."""

    gauges: dict[tuple[str, tuple[tuple[str, str], ...]], float] = field(default_factory=dict)


class Service(Protocol):
    """The core as the API sees it. Refuses with `ports.Refused`."""

    async def status(self, caller: Caller) -> dict[str, Any]: ...  # noqa: D102

    async def submit(
        self, caller: Caller, jobs: Sequence[Submission], key: str | None, *, dry_run: bool
    ) -> list[Accepted]:
        """Take jobs in, all or none; on disk when it returns."""
        ...

    async def rows(self, caller: Caller, listing: Listing) -> list[Row]: ...  # noqa: D102

    async def detail(self, caller: Caller, ref: str) -> Detail: ...  # noqa: D102

    async def why(self, caller: Caller, ref: str) -> Why: ...  # noqa: D102

    async def logs(
        self, caller: Caller, ref: str, *, rank: int, attempt: int | None, offset: int, limit: int, tail: int | None
    ) -> LogChunk:
        """A piece of one rank's log; `tail`: start that many lines before its end."""
        ...

    async def wait(self, caller: Caller, ref: str, timeout_s: float) -> dict[str, Any]:
        """Until the job has ended, or the time is over."""
        ...

    async def act(self, caller: Caller, ref: str, verb: str, body: Mapping[str, Any]) -> Row | Accepted:
        """Verbs: cancel hold release retry resize preempt edit. One `key` in a retry is one submit."""
        ...

    async def act_on_all(self, caller: Caller, refs: Sequence[str], verb: str) -> ActedOn:
        """Cancel, hold or release all that these words mean, in one step."""
        ...

    async def queues(self, caller: Caller) -> list[QueueRow]: ...  # noqa: D102

    async def nodes(self, caller: Caller) -> list[NodeRow]: ...  # noqa: D102

    async def share(self, caller: Caller) -> dict[str, Any]:
        """How the caller stands: {user, sentence, queues: [{name, used, guarantee, limit, weight, share}]}."""
        ...

    async def report(self, caller: Caller, by: Sequence[str], since_s: float | None) -> dict[str, Any]:
        """Where the GPU time went: {by, rows: [{user?, queue?, job?, jobs, gpu_s, goodput, ledger_gpu_s: {...}}]}."""
        ...

    async def report_eta(self, caller: Caller) -> dict[str, Any]:
        """How good our estimates were: {count, within_range, error_s: {p50, p90}, bias_s, rows: [...]}."""
        ...

    async def gantt(self, caller: Caller, past_s: float) -> dict[str, Any]:
        """Past, present and forecast: {now, devices: [...], bars: [{job, name, user, device, start, end, kind}]}."""
        ...

    async def config(self, caller: Caller) -> dict[str, Any]:
        """Settings with where each came from: {values: [{key, value, origin}]}."""
        ...

    async def dump(self, caller: Caller) -> str:
        """The cluster as it stands, as the text of a dumped state."""
        ...

    def events(self, caller: Caller, since: int) -> AsyncIterator[Happening]:
        """Everything that happens to jobs the caller may see, from a sequence number on, for ever."""
        ...

    async def down(self, caller: Caller) -> None:
        """Stop the daemon; runs go on."""
        ...

    def figures(self) -> Figures:
        """For /metrics."""
        ...
