"""Why a gang is where it is: everything that blocks it, who is ahead, when it starts, who will pass by which rule."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from difflib import get_close_matches
from typing import Final

import msgspec

from phalanx.control.amounts import needs_text
from phalanx.control.passing import Overtaking
from phalanx.control.sentences import say_blocker, say_more
from phalanx.engine.explain import explain
from phalanx.frontends.kube.answers.cluster_view import ClusterView
from phalanx.frontends.kube.answers.funnels import list_funnels
from phalanx.frontends.kube.answers.gang_rows import GONE, make_row
from phalanx.frontends.kube.answers.kube_replies import AnswerError, GangRow, GangWhy, MemberTold, ToldReason
from phalanx.frontends.kube.answers.looking import Looked
from phalanx.frontends.kube.gang_view import Dialect, GangKey, GangView
from phalanx.frontends.kube.remarks import Remark, blocks
from phalanx.frontends.kube.statuses import tell_word
from phalanx.frontends.kube.translating import choose_membership
from phalanx.model.gang import Gang, Role, Shape, Sizes

#: As kubectl lets people write it; which of the two it is nobody has to say here.
_KIND: Final = re.compile(r"^(?:po|pods?|pg|podgroups?)(?:\.[a-z0-9.-]+)?/")
_NEAR_MOST: Final = 3
_MEMBERS_MOST: Final = 1_000


def find_gang(picture: ClusterView, namespace: str, name: str) -> GangKey:
    """The gang that somebody means by its name, by that of one of its pods, or as `dialect:namespace/name`."""
    name = _KIND.sub("", name)
    word, _, rest = name.partition(":")
    dialects = {each.value: each for each in Dialect}
    if rest and word in dialects:
        space, _, bare = rest.rpartition("/")
        key = GangKey(dialects[word], space or namespace, bare)
        named = [key] if key in picture.views else []
        name = bare
    else:
        space, _, name = name.rpartition("/")
        namespace = space or namespace
        named = [key for key in picture.views if (key.namespace, key.name) == (namespace, name)]
    if len(named) > 1:
        ways = [key.unique for key in sorted(named, key=lambda key: key.unique)]
        raise AnswerError("ambiguous", f"{namespace}/{name} is more than one gang", f"name one: {', '.join(ways)}")
    if named:
        return named[0]
    pod = picture.mirror.find_pod((namespace, name))
    if pod is not None and (key := choose_membership(pod).key) in picture.views:
        return key
    if pod is not None:
        says = f"pod {namespace}/{name} is scheduled by {pod.spec.scheduler_name or 'another scheduler'}, not by us"
        raise AnswerError("not_found", says, f"spec.schedulerName: {picture.mirror.scheduler} makes it ours")
    says = f"there is no gang or pod {namespace}/{name} here"
    raise AnswerError("not_found", says, _say_near(picture, namespace, name))


def _say_near(picture: ClusterView, namespace: str, name: str) -> str:
    elsewhere = sorted({str(key) for key in picture.views if key.name == name})
    if elsewhere:
        return f"there is {', '.join(elsewhere[:_NEAR_MOST])}: -n names its namespace"
    here = sorted({key.name for key in picture.views if key.namespace == namespace})[:_MEMBERS_MOST]
    near = get_close_matches(name, here, n=_NEAR_MOST)
    return f"did you mean {' or '.join(near)}?" if near else "kubectl phalanx ps -A lists all gangs"


def make_why(found: Looked, key: GangKey) -> GangWhy:
    """All about one gang."""
    picture, view = found.picture, found.picture.views[key]
    row = make_row(found, view)
    number = picture.waiting.get(key)
    blockers = [ToldReason(tell_word(each, view), each.sentence, field=each.field) for each in _list_remarks(view)]
    passed: list[str] = []
    if number is not None:
        if row.ahead is not None:
            row = _with_names(found, row, number)
        blockers += look_around(found, number, {each.code for each in (*blockers, row.reason) if each is not None})
        passed = _say_passing(found, number) if row.state != "infeasible" else []
    gang = picture.state.gangs[number] if number is not None else _as_gang(view)
    waits = number is not None and row.state in ("pending", "degraded", "infeasible")
    return GangWhy(
        gang=row,
        needs="" if gang is None else needs_text(gang, picture.device_kind),
        blockers=[each for each in blockers if row.reason is None or each.message != row.reason.message],
        notices=[each.sentence for each in view.remarks if each not in blocks(view.remarks)],
        passed_by=passed,
        funnels=list_funnels(picture.state, gang) if waits and gang is not None else [],
        members=[MemberTold(member.name, member.phase.value, member.node) for member in view.members[:_MEMBERS_MOST]],
    )


def _with_names(found: Looked, row: GangRow, number: int) -> GangRow:
    return msgspec.structs.replace(row, ahead=found.ahead(number, named=True))


def _list_remarks(view: GangView) -> list[Remark]:
    """Everything about its objects that keeps it, and members that are refused although it can do without them."""
    # Members are alike: what is wrong with a thousand of them is one sentence, about the first.
    found: dict[tuple[type, str, str], Remark] = {}
    for remark in (*view.blockers, *(each for member in view.members for each in blocks(member.remarks))):
        found.setdefault((type(remark), remark.field, remark.says), remark)
    return [*found.values()]


def look_around(found: Looked, number: int, told: Collection[str]) -> list[ToldReason]:
    """What else would keep it once the reasons that were told are gone."""
    state, gang = found.picture.state, found.picture.state.gangs[number]
    others = [each for each in explain(state.borrow(), found.picture.policy, number) if each.code.word not in told]
    words = [say_more(found.scene, number, say_blocker(each, gang), each.code) for each in others]
    return [
        ToldReason(each.code.word, says, each.needed, each.available) for each, says in zip(others, words, strict=True)
    ]


def _say_passing(found: Looked, number: int) -> list[str]:
    starts = {other: each.at_us for other, each in found.starts.items()}
    mine_us = starts.pop(number, None)
    before = {other: at_us for other, at_us in starts.items() if mine_us is None or at_us < mine_us}
    passing, first = Overtaking(found.scene).find(number, before, found.list_ahead(number) or (), {})
    return [each.message for each in (*passing, *([first] if first is not None else []))]


def _as_gang(view: GangView) -> Gang | None:
    """All members that are there, whether or not they wait: for what it asks for, and not for where."""
    there = [member.shape for member in view.members if member.phase not in GONE and member.shape is not None]
    counts = Counter(Shape(shape.demand.need({})) for shape in there)
    roles = [Role(f"member-{at}", Sizes((many,)), shape) for at, (shape, many) in enumerate(counts.items())]
    return Gang(name=view.key.unique, roles=tuple(roles), user=view.key.namespace) if roles else None
