"""What crosses the scheduler's door: shapes of its answers, and of its errors. Instants are ISO 8601 text."""

from __future__ import annotations

from typing import Any, Final

import msgspec

GANGS_SCHEMA: Final = "phalanx.kube.gangs/1"
WHY_SCHEMA: Final = "phalanx.kube.why/1"
FIT_SCHEMA: Final = "phalanx.kube.fit/1"
GANTT_SCHEMA: Final = "phalanx.kube.gantt/1"

#: Error code → HTTP status; codes and exit codes are those of docs/exit-codes.md.
HTTP_STATUS: Final = {
    "usage": 400,
    "not_found": 404,
    "ambiguous": 409,
    "too_large": 413,
    "too_many": 429,
    "internal": 500,
    "unavailable": 503,
}


class AnswerError(Exception):
    """A question that is not answered: what, why and what to do next."""

    def __init__(self, code: str, message: str, hint: str = "", **details: object) -> None:
        """`code` is one of `HTTP_STATUS`."""
        super().__init__(message)
        self.code, self.message, self.hint, self.details = code, message, hint, details

    @property
    def status(self) -> int:
        """As HTTP says it."""
        return HTTP_STATUS[self.code]

    def tell(self) -> dict[str, Any]:
        """As it is sent."""
        told = {"code": self.code, "message": self.message, "hint": self.hint, "details": self.details}
        return {"error": told}


class ToldReason(msgspec.Struct, frozen=True, omit_defaults=True):
    """What keeps a gang waiting: a word of the closed set, a sentence, numbers; of a refusal the field as well."""

    code: str
    message: str
    needed: int = 0
    available: int = 0
    field: str = ""


class ExpectedStart(msgspec.Struct, frozen=True, omit_defaults=True):
    """Never a bare time."""

    at: str
    low: str
    high: str
    hangs_on: str = ""


class AheadOf(msgspec.Struct, frozen=True):
    """Who has its turn before a gang."""

    gangs: int
    gpus: float
    first: list[str] = []


class GangRow(msgspec.Struct, frozen=True):
    """One gang in a listing."""

    namespace: str
    name: str
    dialect: str
    state: str  # pending binding bound running degraded infeasible refused ended
    bound: int  # members that have their places, or are done
    wanted: int  # members that there are, or are waited for
    members_min: int
    gpus: float
    priority: int
    created: str
    age_s: float
    reason: ToldReason | None = None
    ahead: AheadOf | None = None
    eta: ExpectedStart | None = None
    nodes: dict[str, int] = {}


class MemberTold(msgspec.Struct, frozen=True):
    """One pod of a gang."""

    name: str
    state: str
    node: str = ""


class NodeFunnel(msgspec.Struct, frozen=True):
    """Where one member could be: of all nodes, how many are out for which reason, the plainest first."""

    nodes: int
    closed: int  # cordoned, or failed
    unselected: int  # lack a label that it asks for
    tainted: int
    too_small: int  # even when empty
    full: int
    roomy: int  # have room for one member just now
    message: str


class GangWhy(msgspec.Struct, frozen=True):
    """Why a gang is where it is."""

    gang: GangRow
    needs: str
    blockers: list[ToldReason]
    notices: list[str]
    passed_by: list[str]
    funnels: list[NodeFunnel]
    members: list[MemberTold]
    schema: str = WHY_SCHEMA


class FitRow(msgspec.Struct, frozen=True):
    """What would become of one gang of a file."""

    namespace: str
    name: str
    dialect: str
    verdict: str  # now, later, never, refused, incomplete, unseen
    members: int
    gpus: float
    needs: str
    reason: ToldReason | None = None
    blockers: list[ToldReason] = []
    ahead: AheadOf | None = None
    eta: ExpectedStart | None = None
    nodes: dict[str, int] = {}
    funnels: list[NodeFunnel] = []
    notices: list[str] = []


class FitAnswer(msgspec.Struct, frozen=True):
    """What would become of a whole file."""

    now: str
    gangs: list[FitRow]
    notices: list[str]
    schema: str = FIT_SCHEMA


class GangList(msgspec.Struct, frozen=True):
    """Everybody, at one instant."""

    now: str
    gangs: list[GangRow]
    schema: str = GANGS_SCHEMA
