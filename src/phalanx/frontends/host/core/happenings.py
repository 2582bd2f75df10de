"""The stream of what happens, as one caller may see it: from the store first, then as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec

from phalanx.frontends.host.core.knowledge import Knowledge
from phalanx.frontends.host.core.pen import Pen
from phalanx.frontends.host.messages import Happening
from phalanx.frontends.host.ports import Caller

#: A stream of events that nobody reads is cut when so many wait.
EVENTS_BEHIND_MOST: Final = 10_000
#: What everybody may know of what happened to anybody's job: the rest may be words of its members.
PUBLIC: Final = frozenset(
    {
        "attempt",
        "because",
        "by",
        "cause",
        "devices",
        "exit_code",
        "for",
        "generation",
        "members",
        "name",
        "rank",
        "signal",
        "took_s",
    }
)


def seen_by(data: dict[str, Any], *, reads: bool) -> dict[str, Any]:
    """What happened, as somebody sees it who may or may not read what a job's members write."""
    return data if reads else {key: value for key, value in data.items() if key in PUBLIC}


async def follow(known: Knowledge, pen: Pen, caller: Caller, since: int) -> AsyncIterator[Happening]:
    """Everything that happens, from a sequence number on."""
    waiting: asyncio.Queue[Happening] = asyncio.Queue()
    listener = waiting.put_nowait
    # Before the store is read: what happens meanwhile is then seen twice, and told once.
    pen.listeners.append(listener)
    try:
        last = since
        for record in known.store.events(since=since, limit=100_000) if since >= 0 else ():
            last = max(last, record.seq)
            data = msgspec.json.decode(record.data) if record.data else {}
            told = Happening(record.seq, known.iso(record.wall), record.job or 0, record.event, data)
            yield _show_to(known, caller, told)
        while waiting.qsize() < EVENTS_BEHIND_MOST:
            happening = await waiting.get()
            if happening.seq == 0 or happening.seq > last:
                yield _show_to(known, caller, happening)
    finally:
        pen.listeners.remove(listener)


def _show_to(known: Knowledge, caller: Caller, happening: Happening) -> Happening:
    """Of others' jobs one sees that something happened, not what their logs say."""
    job = known.register.by_id.get(happening.job)
    if caller.admin or (job is not None and caller.may_act_on(job.uid)):
        return happening
    kept = seen_by(happening.data, reads=False)
    return Happening(happening.seq, happening.at, happening.job, happening.event, kept)
