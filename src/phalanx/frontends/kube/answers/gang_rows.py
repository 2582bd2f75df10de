"""Gangs as rows of a listing: how far each is, why, who is ahead, when it starts."""

from __future__ import annotations

from collections import Counter

from phalanx.control.explain import Told
from phalanx.frontends.kube.answers.cluster_view import iso
from phalanx.frontends.kube.answers.kube_replies import GangRow, ToldReason
from phalanx.frontends.kube.answers.looking import Looked
from phalanx.frontends.kube.gang_view import GangKey, GangView, MemberPhase
from phalanx.frontends.kube.kube_clock import read_stamp_us
from phalanx.frontends.kube.remarks import Invalid, Unsupported
from phalanx.frontends.kube.statuses import GangStanding, Tiding, tell_gang
from phalanx.frontends.kube.translating import is_alive
from phalanx.model.reason import Code
from phalanx.model.resources import MILLI

#: Members that are there no more.
GONE = (MemberPhase.GONE, MemberPhase.FAILED)


def list_rows(found: Looked, namespace: str | None = None, *, ended: bool = False) -> list[GangRow]:
    """All gangs, those that hold something first, then those that wait as their turns come; or of one namespace."""
    views = [
        view
        for key, view in found.picture.views.items()
        if namespace in (None, key.namespace) and (ended or is_alive(view) or not view.members)
    ]
    rows = [(_place(found, view.key), make_row(found, view)) for view in views]
    rows.sort(key=lambda each: (_RANK[each[1].state], each[0], each[1].created, each[1].namespace, each[1].name))
    return [row for _, row in rows]


#: What runs, then what waits, then what nobody waits for.
_RANK = {"running": 0, "bound": 0, "binding": 0, "degraded": 0, "pending": 1, "infeasible": 2, "refused": 2, "ended": 3}


def _place(found: Looked, key: GangKey) -> int:
    number = found.picture.waiting.get(key)
    ahead = None if number is None else found.ahead(number)
    return 0 if ahead is None else ahead.gangs


def make_row(found: Looked, view: GangView) -> GangRow:
    """One gang."""
    picture, key = found.picture, view.key
    number = picture.waiting.get(key)
    tiding = tell(found, view, number)
    state = find_state(found, view, tiding)
    waits = number is not None and state in ("pending", "degraded", "bound", "running")
    created = min((member.created for member in view.members), default=view.said.created) or view.said.created
    since_us = read_stamp_us(created) if created else None
    there = len(view.members) - view.count(*GONE)
    return GangRow(
        namespace=key.namespace,
        name=key.name,
        dialect=key.dialect.value,
        state=state,
        bound=view.holding,
        wanted=max(view.said.members_min, view.said.members_total, there),
        members_min=view.said.members_min,
        gpus=_count_devices(view, picture.device_kind),
        priority=view.priority,
        created=created,
        age_s=0.0 if since_us is None else max(0.0, (picture.now_us - since_us) / 1e6),
        reason=_say_reason(view, tiding),
        ahead=found.ahead(number) if waits and number is not None else None,
        eta=found.eta(number) if waits and number is not None else None,
        nodes=dict(Counter(member.node for member in view.members if member.phase is MemberPhase.SEATED)),
    )


def tell(found: Looked, view: GangView, number: int | None) -> Tiding:
    """What conditions and events say of it, with the names of this cluster."""
    told: Told = (Code.NONE, "", 0, 0)
    if number is not None and number in found.told:
        code, words, needed, available = found.told[number]
        reason = found.reason(number)
        told = code, words if reason is None else reason.message, needed, available
    return tell_gang(view, *told)


def find_state(found: Looked, view: GangView, tiding: Tiding) -> str:
    """How far it is, in one word."""
    if view.key in found.picture.flying:
        return "binding"
    if view.members and not is_alive(view):
        return "ended"
    if view.regressed:
        return "degraded"
    if tiding.standing is GangStanding.BOUND and view.holding:
        seated = [member for member in view.members if member.phase is MemberPhase.SEATED]
        return "running" if seated and all(member.running for member in seated) else "bound"
    if any(isinstance(each, Invalid | Unsupported) for each in view.blockers):
        return "refused"
    return "infeasible" if tiding.word == Code.INFEASIBLE.word else "pending"


def _say_reason(view: GangView, tiding: Tiding) -> ToldReason | None:
    if not tiding.word:
        return None
    field = view.blockers[0].field if view.blockers else ""
    return ToldReason(tiding.word, tiding.message, tiding.needed, tiding.available, field)


def _count_devices(view: GangView, kind: str) -> float:
    """Of all members that are there and whose amounts can be read."""
    shapes = [member.shape for member in view.members if member.phase not in GONE and member.shape is not None]
    return sum(dict(shape.demand.need({})).get(kind, 0) for shape in shapes) / MILLI


def now_iso(found: Looked) -> str:
    """When all of this was true."""
    return iso(found.picture.now_us)
