"""The table of routes, as data: what is served, to whom, and in which shapes.

The server dispatches by it, the OpenAPI document is made from it and the tests enumerate it, so a route
that is served is described and authorised, or it is not served. What is not in the table is refused.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import unquote

from phalanx.frontends.host.api import handlers, shapes
from phalanx.frontends.host.api.asking import Ask
from phalanx.frontends.host.api.decoding import Decoder
from phalanx.frontends.host.api.prometheus_meters import CONTENT_TYPE
from phalanx.frontends.host.api.replies import EVENT_STREAM, JSON, TEXT
from phalanx.frontends.host.messages import Accepted, ActedOn, Batch, Detail, Happening, Row, Submission, Why
from phalanx.frontends.host.ports import Refused

Scope = Literal["read", "submit", "admin"]
REF_CHARACTERS_MAX: Final = 300

_JOB_PATH = re.compile(rb"/v1/jobs/([^/]+)(/[a-z]+)?")


@dataclass(frozen=True, slots=True)
class Route:
    """One thing that can be asked."""

    method: str
    path: str  # {ref} stands for a job
    scope: Scope
    handler: Callable[[Ask], Awaitable[Any]]
    answers: tuple[type, ...] = ()  # none: not JSON of ours
    query: type = shapes.NoQuery
    bodies: tuple[type, ...] = ()
    content_type: str = JSON
    large: bool = False  # may carry a batch


ROUTES: Final[tuple[Route, ...]] = (
    Route(
        "POST",
        "/v1/jobs",
        "submit",
        handlers.submit,
        (Accepted, shapes.AcceptedBatch),
        shapes.SubmitQuery,
        (Submission, Batch),
        large=True,
    ),
    Route("GET", "/v1/jobs", "read", handlers.jobs, (shapes.Jobs,), shapes.JobsQuery),
    Route("GET", "/v1/jobs/{ref}", "read", handlers.detail, (Detail,), shapes.DetailQuery),
    Route("PATCH", "/v1/jobs/{ref}", "submit", handlers.edit, (Row,), bodies=(shapes.Edit,)),
    Route("GET", "/v1/jobs/{ref}/why", "read", handlers.why, (Why,)),
    Route("GET", "/v1/jobs/{ref}/logs", "read", handlers.logs, query=shapes.LogsQuery, content_type=TEXT),
    Route("GET", "/v1/jobs/{ref}/wait", "read", handlers.wait, (shapes.Waited,), shapes.WaitQuery),
    Route("POST", "/v1/jobs/{ref}/cancel", "submit", handlers.cancel, (Row,), bodies=(shapes.Nothing,)),
    Route("POST", "/v1/jobs/{ref}/hold", "submit", handlers.hold, (Row,), bodies=(shapes.Nothing,)),
    Route("POST", "/v1/jobs/{ref}/release", "submit", handlers.release, (Row,), bodies=(shapes.Nothing,)),
    Route("POST", "/v1/jobs/{ref}/retry", "submit", handlers.retry, (Accepted,), bodies=(shapes.Nothing,)),
    Route("POST", "/v1/jobs/{ref}/resize", "submit", handlers.resize, (Row,), bodies=(shapes.Resize,)),
    Route("POST", "/v1/jobs/{ref}/preempt", "submit", handlers.preempt, (Row,), bodies=(shapes.Preempt,)),
    Route("POST", "/v1/cancel", "submit", handlers.cancel_all, (ActedOn,), bodies=(shapes.Refs,)),
    Route("POST", "/v1/hold", "submit", handlers.hold_all, (ActedOn,), bodies=(shapes.Refs,)),
    Route("POST", "/v1/release", "submit", handlers.release_all, (ActedOn,), bodies=(shapes.Refs,)),
    Route("GET", "/v1/status", "read", handlers.status, (shapes.Status,)),
    Route("GET", "/v1/queues", "read", handlers.queues, (shapes.Queues,)),
    Route("GET", "/v1/nodes", "read", handlers.nodes, (shapes.Nodes,)),
    Route("GET", "/v1/share", "read", handlers.share, (shapes.Share,)),
    Route("GET", "/v1/report", "read", handlers.report, (shapes.Report,), shapes.ReportQuery),
    Route("GET", "/v1/report/eta", "read", handlers.report_eta, (shapes.EtaReport,)),
    Route("GET", "/v1/gantt", "read", handlers.gantt, (shapes.Gantt,), shapes.GanttQuery),
    Route("GET", "/v1/config", "read", handlers.config, (shapes.Config,)),
    Route("GET", "/v1/state", "read", handlers.state),
    Route("GET", "/v1/events", "read", handlers.events, (Happening,), shapes.EventsQuery, content_type=EVENT_STREAM),
    Route("POST", "/v1/down", "admin", handlers.down, (shapes.Stopping,), bodies=(shapes.Nothing,)),
    Route("GET", "/metrics", "read", handlers.metrics, content_type=CONTENT_TYPE),
    Route("GET", "/openapi.json", "read", handlers.openapi),
)


@dataclass(frozen=True, slots=True)
class Served:
    """A route with what is made once for it."""

    route: Route
    decoder: Decoder | None
    no_query: Any  # what an empty query means


class NotAllowed(Exception):  # noqa: N818 - an answer, as `Refused` is
    """The path is known, the verb is not; says which are."""

    def __init__(self, allowed: Sequence[str]) -> None:
        super().__init__(", ".join(allowed))
        self.allowed = allowed


class Router:
    """Finds the route of a request: one look-up, or two for a path that names a job."""

    def __init__(self, routes: Sequence[Route] = ROUTES) -> None:
        self._by_path: dict[bytes, dict[str, Served]] = {}
        for route in routes:
            served = Served(route, Decoder(route.bodies) if route.bodies else None, route.query())
            verbs = self._by_path.setdefault(route.path.encode("ascii"), {})
            assert route.method not in verbs, f"{route.method} {route.path} is there twice"
            verbs[route.method] = served

    def find(self, method: str, path: bytes) -> tuple[Served, str]:
        """The route and the job that the path names; the path is as it came, percent encoding and all."""
        verbs, ref = self._by_path.get(path), ""
        # A path with braces in it is nobody's: the keys with {ref} are reached by the pattern only.
        if verbs is None or b"{" in path:
            match = _JOB_PATH.fullmatch(path)
            verbs = self._by_path.get(b"/v1/jobs/{ref}" + (match[2] or b"")) if match else None
            if match is None or verbs is None:
                raise Refused("not_found", "there is no such path", "GET /openapi.json lists what there is")
            ref = _read_ref(match[1])
        served = verbs.get(method)
        if served is None:
            raise NotAllowed(sorted(verbs))
        return served, ref


def _read_ref(raw: bytes) -> str:
    try:
        ref = unquote(raw.decode("ascii"), errors="strict")
    except UnicodeDecodeError:
        raise Refused("usage", "the job's name is not UTF-8 in percent encoding", "use its number") from None
    if len(ref) > REF_CHARACTERS_MAX:
        raise Refused("usage", f"no job has a name of more than {REF_CHARACTERS_MAX} characters", "use its number")
    return ref
