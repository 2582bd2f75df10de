"""One function a route: from a decoded request to a call of the core, and back to an answer.

Nothing is decided here about who may do what to which job; the core does that for every verb alike.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, get_args

import msgspec
from starlette.responses import Response

from phalanx.frontends.host.api.asking import Ask
from phalanx.frontends.host.api.event_stream import EventStream
from phalanx.frontends.host.api.prometheus_meters import CONTENT_TYPE
from phalanx.frontends.host.api.replies import JSON, TEXT
from phalanx.frontends.host.api.shapes import AcceptedBatch, Jobs, Nodes, Queues, Stopping
from phalanx.frontends.host.api.shared_runs import list_jobs
from phalanx.frontends.host.messages import Accepted, ActedOn, Batch, Detail, Row, State, Why
from phalanx.frontends.host.ports import Refused
from phalanx.frontends.host.service import Listing

STATES: Final[tuple[str, ...]] = get_args(State)
REPORT_KEYS: Final = ("user", "queue", "job")
KEY_CHARACTERS_MAX: Final = 200

Json = dict[str, Any]


async def status(ask: Ask) -> Json:
    """The daemon about itself."""
    return await ask.service.status(ask.caller)


async def submit(ask: Ask) -> Accepted | AcceptedBatch:
    """Take in one job, or several at once: all or none."""
    key = _read_key(ask.headers.get(b"idempotency-key"))
    dry_run = ask.query.dry_run
    if isinstance(ask.body, Batch):
        if not ask.body.jobs:
            raise Refused("usage", "the batch holds no job", 'put at least one into "jobs"')
        return AcceptedBatch(await ask.service.submit(ask.caller, list_jobs(ask.body), key, dry_run=dry_run))
    (accepted,) = await ask.service.submit(ask.caller, [ask.body], key, dry_run=dry_run)
    return accepted


async def jobs(ask: Ask) -> Jobs:
    """List jobs."""
    query = ask.query
    states = frozenset(filter(None, query.state.split(",")))
    if not states <= set(STATES):
        raise Refused(
            "usage", "the query parameter 'state' holds a word that is no state", f"states: {', '.join(STATES)}"
        )
    listing = Listing(query.all, states, query.queue, query.user, query.name, query.finished, query.limit)
    return Jobs(jobs=await ask.service.rows(ask.caller, listing))


async def detail(ask: Ask) -> Detail:
    """Everything about one job; its environment only for who asks for that."""
    found = await ask.service.detail(ask.caller, ask.ref)
    return found if ask.query.env else msgspec.structs.replace(found, env=None)


async def why(ask: Ask) -> Why:
    """Why a job is where it is."""
    return await ask.service.why(ask.caller, ask.ref)


async def logs(ask: Ask) -> Response:
    """A piece of a log, as bytes that nobody interprets."""
    q = ask.query
    chunk = await ask.service.logs(
        ask.caller, ask.ref, rank=q.rank, attempt=q.attempt, offset=q.offset, limit=q.limit, tail=q.tail
    )
    headers = {
        "x-phalanx-offset": str(chunk.next_offset),
        "x-phalanx-ended": str(int(chunk.ended)),
        "x-phalanx-ranks": str(chunk.ranks),
    }
    return Response(chunk.data, 200, headers, TEXT)


async def wait(ask: Ask) -> Json:
    """Answer when the job has ended, the time is over, the caller is gone, or the daemon stops."""
    answer = asyncio.ensure_future(ask.service.wait(ask.caller, ask.ref, ask.query.timeout_s))
    gone = asyncio.ensure_future(ask.until_gone())
    stopping = asyncio.ensure_future(ask.house.stopping.wait())
    try:
        await asyncio.wait({answer, gone, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        raise Refused(
            "unavailable", "the daemon is stopping", "ask again: the job goes on, and so does its next daemon"
        )
    finally:
        for task in (answer, gone, stopping):
            task.cancel()
        await asyncio.gather(answer, gone, stopping, return_exceptions=True)


async def cancel(ask: Ask) -> Row | Accepted:
    """End a job."""
    return await ask.service.act(ask.caller, ask.ref, "cancel", {})


async def hold(ask: Ask) -> Row | Accepted:
    """Keep a pending job from starting."""
    return await ask.service.act(ask.caller, ask.ref, "hold", {})


async def release(ask: Ask) -> Row | Accepted:
    """Let a held job have its turn again."""
    return await ask.service.act(ask.caller, ask.ref, "release", {})


async def cancel_all(ask: Ask) -> ActedOn:
    """End several jobs in one step."""
    return await ask.service.act_on_all(ask.caller, ask.body.jobs, "cancel")


async def hold_all(ask: Ask) -> ActedOn:
    """Keep several pending jobs from starting, in one step."""
    return await ask.service.act_on_all(ask.caller, ask.body.jobs, "hold")


async def release_all(ask: Ask) -> ActedOn:
    """Let several held jobs have their turn again, in one step."""
    return await ask.service.act_on_all(ask.caller, ask.body.jobs, "release")


async def retry(ask: Ask) -> Row | Accepted:
    """Submit an ended job anew; an element of an array takes the place of the one it repeats. 409 before its end."""
    key = _read_key(ask.headers.get(b"idempotency-key"))
    return await ask.service.act(ask.caller, ask.ref, "retry", {} if key is None else {"key": key})


async def resize(ask: Ask) -> Row | Accepted:
    """Ask for another size of an elastic job."""
    return await ask.service.act(ask.caller, ask.ref, "resize", msgspec.to_builtins(ask.body))


async def preempt(ask: Ask) -> Row | Accepted:
    """Take a running job's places, or practise it."""
    return await ask.service.act(ask.caller, ask.ref, "preempt", msgspec.to_builtins(ask.body))


async def edit(ask: Ask) -> Row | Accepted:
    """Change a pending job."""
    changes = msgspec.to_builtins(ask.body)
    if not changes:
        raise Refused("usage", "nothing to change", "name a field: priority, walltime, name, queue, topology, deadline")
    return await ask.service.act(ask.caller, ask.ref, "edit", changes)


async def queues(ask: Ask) -> Queues:
    """All queues."""
    return Queues(queues=await ask.service.queues(ask.caller))


async def nodes(ask: Ask) -> Nodes:
    """The machine and its GPUs."""
    return Nodes(nodes=await ask.service.nodes(ask.caller))


async def share(ask: Ask) -> Json:
    """How the caller stands."""
    return await ask.service.share(ask.caller)


async def report(ask: Ask) -> Json:
    """Where the GPU time went."""
    keys = list(filter(None, ask.query.by.split(",")))
    if not keys or not set(keys) <= set(REPORT_KEYS) or len(set(keys)) < len(keys):
        raise Refused(
            "usage", "the query parameter 'by' is not made of user, queue and job", "for example by=user,queue"
        )
    return await ask.service.report(ask.caller, keys, ask.query.since_s)


async def report_eta(ask: Ask) -> Json:
    """How good the estimates were."""
    return await ask.service.report_eta(ask.caller)


async def gantt(ask: Ask) -> Json:
    """Past, present and forecast."""
    return await ask.service.gantt(ask.caller, ask.query.past_s)


async def config(ask: Ask) -> Json:
    """The settings and where they came from."""
    return await ask.service.config(ask.caller)


async def state(ask: Ask) -> Response:
    """The cluster as it stands, schema phalanx.state/1: what `phalanx what-if` asks."""
    return Response(await ask.service.dump(ask.caller), 200, None, JSON)


async def events(ask: Ask) -> Response:
    """What happens, as it happens."""
    return EventStream(ask)


async def down(ask: Ask) -> Stopping:
    """Stop the daemon; what runs goes on."""
    await ask.service.down(ask.caller)
    return Stopping()


async def metrics(ask: Ask) -> Response:
    """Numbers for Prometheus."""
    return Response(ask.house.meters.write(ask.service.figures()), 200, None, CONTENT_TYPE)


async def openapi(ask: Ask) -> Response:
    """This API, described."""
    return Response(ask.house.document, 200, None, JSON)


def _read_key(raw: bytes | None) -> str | None:
    if raw is None:
        return None
    if not 0 < len(raw) <= KEY_CHARACTERS_MAX or not raw.isascii() or not raw.decode("ascii").isprintable():
        what = f"the Idempotency-Key is not 1 to {KEY_CHARACTERS_MAX} printable ASCII characters"
        raise Refused("usage", what, "any random word will do; the same word means the same submit")
    return raw.decode("ascii")
