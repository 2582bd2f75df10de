"""Objects in, gangs out: which gang a pod is in, and what that gang is now.

The one door of the pure half. Whoever watches keeps pods by the key that `choose_membership` gives, keeps each as a
member (`make_member`), and has the gang translated anew whenever something of it changes (`translate_gang`); what holds
between gangs is `check_groups`. `translate_all` does all of it at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from phalanx.frontends.kube.assembling import assemble
from phalanx.frontends.kube.constraints import Surrounding
from phalanx.frontends.kube.dialects import koordinator, native, scheduler_plugins, singles, volcano
from phalanx.frontends.kube.gang_groups import check_groups
from phalanx.frontends.kube.gang_view import Dialect, GangKey, GangView, MemberPhase, PodMember, Statement
from phalanx.frontends.kube.label_words import check_group_name
from phalanx.frontends.kube.objects.decode import Unreadable
from phalanx.frontends.kube.objects.groups import GroupObject
from phalanx.frontends.kube.objects.pod import Pod
from phalanx.frontends.kube.pod_members import make_member
from phalanx.frontends.kube.remarks import Invalid, Notice, Remark, quote


@dataclass(frozen=True, slots=True)
class Translator:
    """One dialect."""

    dialect: Dialect
    kind: str  # of its group object, as messages name it
    find_group_name: Callable[[Pod], tuple[str, str] | None]
    find_statement: Callable[[GangKey, Any, Sequence[Pod], Mapping[str, int]], Statement]


#: In the order in which a pod is asked: what the API itself defines, then groups with an object, then what annotations
#: alone can make. The last finds every pod.
TRANSLATORS: Final = (
    Translator(Dialect.NATIVE, native.KIND, native.find_group_name, native.find_statement),
    Translator(
        Dialect.SCHEDULER_PLUGINS,
        scheduler_plugins.KIND,
        scheduler_plugins.find_group_name,
        scheduler_plugins.find_statement,
    ),
    Translator(Dialect.VOLCANO, volcano.KIND, volcano.find_group_name, volcano.find_statement),
    Translator(Dialect.KOORDINATOR, koordinator.KIND, koordinator.find_group_name, koordinator.find_statement),
    Translator(Dialect.PLAIN, singles.KIND, singles.find_group_name, singles.find_statement),
)
_BY_DIALECT: Final = {each.dialect: each for each in TRANSLATORS}


@dataclass(frozen=True, slots=True)
class PodMembership:
    """The one gang of a pod."""

    key: GangKey
    remarks: tuple[Remark, ...] = ()


@dataclass(frozen=True, slots=True)
class KubeObjects:
    """Everything at once."""

    pods: tuple[Pod, ...] = ()
    groups: Mapping[GangKey, GroupObject | Unreadable] = field(default_factory=dict)
    priority_by_class: Mapping[str, int] = field(default_factory=dict)
    surrounding: Surrounding = field(default_factory=Surrounding)


def choose_membership(pod: Pod) -> PodMembership:
    """The one gang that a pod is in, whatever it names; if it names several, it is told which one counts."""
    named = [(each, found) for each in TRANSLATORS[:-1] if (found := each.find_group_name(pod))]
    if not named:
        return PodMembership(GangKey(Dialect.PLAIN, pod.metadata.namespace, pod.metadata.name))
    chosen, (name, where) = named[0]
    remarks: list[Remark] = []
    wrong = check_group_name(name, where)
    if wrong is not None:
        remarks.append(wrong)
    for other, (other_name, other_where) in named[1:]:
        # Usual and harmless where a framework writes the same for two schedulers; told all the same.
        says = f"names {quote(other_name)} for {other.dialect.value} too; {chosen.dialect.value} counts ({where})"
        remarks.append(Notice(other_where, says, "leave one of them out"))
    subject = f"Pod {pod.metadata.name}"
    key = GangKey(chosen.dialect, pod.metadata.namespace, name)
    return PodMembership(key, tuple(remark.of(subject) for remark in remarks))


def translate_gang(
    key: GangKey,
    group: GroupObject | Unreadable | None,
    pods: Sequence[Pod],
    members: Sequence[PodMember],
    priority_by_class: Mapping[str, int],
    *,
    was_whole: bool = False,
) -> GangView:
    """What a gang is now. `members` are the pods as `make_member` gives them, in the same order.

    `was_whole`: somebody remembers that it was; objects only tell so where their dialect has a word for it.
    """
    translator = _BY_DIALECT[key.dialect]
    if isinstance(group, Unreadable):
        said = Statement(uid=group.metadata.uid, remarks=(_tell_malformed(group),))
    else:
        said = translator.find_statement(key, group, pods, priority_by_class)
    subject = f"{translator.kind} {key.name}" if group is not None else ""
    said = replace(said, remarks=tuple(remark.of(subject) for remark in said.remarks))
    chosen = [remark for pod in pods for remark in choose_membership(pod).remarks]
    remarks = (*said.remarks, *_once_each(chosen))
    said = replace(said, remarks=remarks, satisfied=said.satisfied or was_whole)
    return assemble(key, said, pods, members)


def translate_all(objects: KubeObjects) -> tuple[GangView, ...]:
    """Every gang of these objects, groups without pods included, in the order of their keys."""
    pods_by_key: dict[GangKey, list[Pod]] = {key: [] for key in objects.groups}
    for pod in objects.pods:
        pods_by_key.setdefault(choose_membership(pod).key, []).append(pod)
    views = []
    for key in sorted(pods_by_key, key=lambda each: each.unique):
        pods = pods_by_key[key]
        members = [make_member(pod, objects.surrounding) for pod in pods]
        views.append(translate_gang(key, objects.groups.get(key), pods, members, objects.priority_by_class))
    tied = check_groups(views)
    return tuple(replace(view, remarks=(*view.remarks, *tied.get(view.key, ()))) for view in views)


def is_alive(view: GangView) -> bool:
    """Whether there is still anything to do or to hold for it."""
    active = (MemberPhase.WAITING, MemberPhase.HELD, MemberPhase.SEATED, MemberPhase.LEAVING)
    return view.count(*active) > 0


def group_key(dialect: Dialect, group: GroupObject | Unreadable) -> GangKey:
    """The gang that a group object describes."""
    return GangKey(dialect, group.metadata.namespace, group.metadata.name)


def _tell_malformed(group: Unreadable) -> Invalid:
    return Invalid("the object", f"cannot be read: {group.says}", "correct that field")


def _once_each(remarks: Iterable[Remark]) -> tuple[Remark, ...]:
    """Members of a gang are alike, and a thousand of them need one sentence: the first one's."""
    seen: dict[tuple[type, str, str], Remark] = {}
    for remark in remarks:
        seen.setdefault((type(remark), remark.field, remark.says), remark)
    return tuple(seen.values())
