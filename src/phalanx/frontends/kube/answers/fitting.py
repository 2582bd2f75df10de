"""`fit`: what would become of the gangs of a file if they were created now. Tried on a copy; nothing is written."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from phalanx.control.amounts import least_devices, needs_text
from phalanx.frontends.kube.answers.cluster_view import ClusterView, iso
from phalanx.frontends.kube.answers.funnels import list_funnels
from phalanx.frontends.kube.answers.gang_whys import look_around
from phalanx.frontends.kube.answers.kube_replies import FitAnswer, FitRow, ToldReason
from phalanx.frontends.kube.answers.looking import Looked, look
from phalanx.frontends.kube.answers.manifest_reading import ReadManifests, read_manifests
from phalanx.frontends.kube.expressing import Venture, express_ventures
from phalanx.frontends.kube.gang_view import GangKey, GangView
from phalanx.frontends.kube.kube_planner import Stage
from phalanx.frontends.kube.statuses import tell_gang, tell_word
from phalanx.frontends.kube.translating import KubeObjects, choose_membership, translate_all
from phalanx.model.gang import Gang
from phalanx.model.reason import Code

#: Gangs of which it is told what else would keep them. Each takes several passes over everybody who waits: of 250 pods
#: by themselves that was 6.5 of 7 s.
_LOOKED_AROUND_MOST: Final = 16


def fit(picture: ClusterView, body: bytes, namespace: str) -> FitAnswer:
    """The answer: a row for each gang, in the order of the file's gangs."""
    read = read_manifests(body, namespace, picture.mirror.scheduler, picture.priority_by_class)
    order = {choose_membership(pod).key: at for at, pod in enumerate(reversed(read.pods))}
    # As the file has them: with thousands of pods, j-10 before j-2 would be read as an accident.
    views = sorted(map(partial(_refuse, read), _translate(picture, read)), key=lambda view: -order.get(view.key, -1))
    # The picture was taken for this question alone, and its state is nobody's but ours.
    state, parties = picture.state, dict(picture.parties)
    numbers: dict[GangKey, list[int]] = {}
    unsaid: dict[GangKey, GangView] = {}
    for view in views:
        ventures, remarks = express_ventures(view, picture.terrain)
        unsaid[view.key] = replace(view, remarks=(*view.remarks, *remarks))
        for venture in ventures:
            number = state.submit(_named_anew(venture, state.list_names()))
            numbers.setdefault(view.key, []).append(number)
            parties[number] = (view.key, Stage.WAITING)
    tried = replace(picture, parties=parties)
    wanted = [number for some in numbers.values() for number in some]
    found = look(tried, wanted)
    nearer = set([number for number in wanted if found.reason(number) is not None][:_LOOKED_AROUND_MOST])
    rows = [_make_row(found, picture, unsaid[view.key], numbers.get(view.key, []), nearer) for view in views]
    return FitAnswer(iso(picture.now_us), rows, read.notices)


def _translate(picture: ClusterView, read: ReadManifests) -> tuple[GangView, ...]:
    """Groups that the file does not bring and the cluster has are those of the cluster."""
    first = translate_all(KubeObjects(tuple(read.pods), read.groups, picture.priority_by_class, picture.surrounding))
    groups = dict(read.groups)
    for view in first:
        known = picture.mirror.find_group(view.key)
        if view.key not in groups and known is not None:
            groups[view.key] = known  # type: ignore[assignment]  # one that cannot be read is told as such
    if groups.keys() == read.groups.keys():
        return first
    return translate_all(KubeObjects(tuple(read.pods), groups, picture.priority_by_class, picture.surrounding))


def _refuse(read: ReadManifests, view: GangView) -> GangView:
    """With what the server would not take: the gang is not the one of the file without it."""
    refusals = dict.fromkeys(read.refusals[each.uid] for each in view.members if each.uid in read.refusals)
    return replace(view, remarks=(*view.remarks, *refusals))


def _named_anew(venture: Venture, taken: set[str]) -> Gang:
    """Of a gang that is there already this is another one."""
    gang = venture.gang
    while gang.name in taken:
        gang = replace(gang, name=f"new {gang.name}")
    return gang


def _make_row(
    found: Looked, before: ClusterView, view: GangView, numbers: Sequence[int], nearer: Container[int]
) -> FitRow:
    picture, key = found.picture, view.key
    notices = [f"there is a gang {key} already; this is judged as another one beside it"] if key in before.views else []
    notices += [each.sentence for each in view.remarks if each not in view.blockers]
    waiting = [number for number in numbers if found.told.get(number, (Code.NONE,))[0] is not Code.NONE]
    number = (waiting or list(numbers) or [-1])[0]
    gangs = [picture.state.gangs[each] for each in numbers]
    blockers = [ToldReason(tell_word(each, view), each.sentence, field=each.field) for each in view.blockers]
    reason = found.reason(number)
    if number < 0:
        tiding = tell_gang(view)
        reason = ToldReason(tiding.word or Code.NONE.word, tiding.message, tiding.needed, tiding.available)
        reason = blockers.pop(0) if blockers else reason
    elif reason is not None and number in nearer:
        blockers += look_around(found, number, {reason.code})
    verdict = _judge(found, view, numbers, waiting)
    return FitRow(
        namespace=key.namespace,
        name=key.name,
        dialect=key.dialect.value,
        verdict=verdict,
        members=len(view.members),
        gpus=sum(least_devices(gang, picture.device_kind) for gang in gangs),
        needs=needs_text(gangs[0], picture.device_kind) if gangs else "",
        reason=reason,
        blockers=blockers,
        ahead=found.ahead(number, named=True) if waiting else None,
        eta=found.eta(number) if waiting else None,
        nodes=_place(found, numbers),
        funnels=list_funnels(before.state, picture.state.gangs[number]) if waiting else [],
        notices=notices,
    )


def _judge(found: Looked, view: GangView, numbers: Sequence[int], waiting: Sequence[int]) -> str:
    if not numbers:
        return "refused" if view.blockers else "incomplete"
    if any(found.told[number][0] is Code.INFEASIBLE for number in waiting):
        return "never"
    if not waiting:
        return "now"
    return "later" if found.eta(waiting[0]) is not None else "unseen"


def _place(found: Looked, numbers: Sequence[int]) -> dict[str, int]:
    """Where its members would sit, of those that would start."""
    wanted, names, places = set(numbers), found.picture.state.fleet.names, dict[str, int]()
    seen: set[int] = set()
    for stay in found.seen.stays:
        if stay.gang in wanted and stay.gang not in seen:
            seen.add(stay.gang)  # its first seats
            for each in stay.seats:
                for node, count in zip(each.nodes.tolist(), each.counts.tolist(), strict=True):
                    places[names[node]] = places.get(names[node], 0) + count
    return places
