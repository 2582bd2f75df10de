"""Koordinator: PodGroup of scheduling.sigs.k8s.io/v1alpha1 with annotations, or gangs made by annotations of pods.

Where a value cannot be read Koordinator takes a default and says nothing; here the default is the same, and told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from phalanx.frontends.kube.gang_view import Dialect, GangKey, MatchPolicy, Statement
from phalanx.frontends.kube.label_words import (
    MEMBERS_MAX,
    check_group_name,
    check_least,
    check_timeout,
    parse_count,
    parse_timeout_s,
    tell_missing_group,
)
from phalanx.frontends.kube.objects.decode import decode_text
from phalanx.frontends.kube.objects.groups import PluginsPodGroup
from phalanx.frontends.kube.objects.metadata import Metadata, Narrow
from phalanx.frontends.kube.objects.pod import Pod
from phalanx.frontends.kube.remarks import Invalid, Notice, Remark, quote
from phalanx.frontends.kube.topology_wishes import NamedBy, NamedLevel, TopologyWish

KIND: Final = "PodGroup (scheduling.sigs.k8s.io)"
LABEL: Final = "pod-group.scheduling.sigs.k8s.io"
#: Of the lightweight plugin that came before: the name, and the minimum on the pods.
_LIGHT_LABEL: Final = "pod-group.scheduling.sigs.k8s.io/name"
_LIGHT_LEAST: Final = "pod-group.scheduling.sigs.k8s.io/min-available"
_PREFIX: Final = "gang.scheduling.koordinator.sh/"
_NAME: Final = f"{_PREFIX}name"
_LEAST: Final = f"{_PREFIX}min-available"
_TOTAL: Final = f"{_PREFIX}total-number"
_WAITING_TIME: Final = f"{_PREFIX}waiting-time"
_MODE: Final = f"{_PREFIX}mode"
_MATCH: Final = f"{_PREFIX}match-policy"
_MATCH_ALIAS: Final = "pod-group.scheduling.sigs.k8s.io/match-policy"
_GROUPS: Final = f"{_PREFIX}groups"
_TOPOLOGY: Final = f"{_PREFIX}network-topology-spec"
_QUEUE_LABEL: Final = "quota.scheduling.koordinator.sh/name"

#: What annotations say of the whole gang; pods of one gang should agree in them.
_OF_THE_GANG: Final = (_LEAST, _TOTAL, _WAITING_TIME, _MODE, _MATCH, _MATCH_ALIAS, _GROUPS, _TOPOLOGY)
_WAS_WHOLE: Final = frozenset({"Scheduled", "Running", "Finished"})
_STRATEGIES: Final = ("MustGather", "PreferGather")
#: More gangs in one group than anybody has. Each is compared with all others whenever one of them changes.
_GROUP_MAX: Final = 100


class _GatherRule(Narrow, frozen=True):
    layer: str = ""
    strategy: str = ""
    pod_count_multiple: int | None = None


class _GatherSpec(Narrow, frozen=True):
    gather_strategy: tuple[_GatherRule, ...] | None = None


def find_group_name(pod: Pod) -> tuple[str, str] | None:
    """The gang that a pod names, and in which field."""
    for label in (LABEL, _LIGHT_LABEL):
        if name := pod.metadata.label(label):
            return name, f"metadata.labels[{label}]"
    name = pod.metadata.annotation(_NAME)
    return (name, f"metadata.annotations[{_NAME}]") if name else None


def find_statement(
    key: GangKey, group: PluginsPodGroup | None, pods: Sequence[Pod], priority_by_class: Mapping[str, int]
) -> Statement:
    """What the PodGroup says, or else the first of the pods."""
    del priority_by_class  # its gangs have the priority of their pods
    remarks: list[Remark] = []
    queue = next((name for pod in pods if (name := pod.metadata.label(_QUEUE_LABEL))), "")
    if group is not None:
        source, stated = group.metadata, group.spec.schedule_timeout_seconds
        base = Statement(
            members_min=check_least(group.spec.min_member, "spec.minMember", remarks),
            timeout_s=check_timeout(stated, "spec.scheduleTimeoutSeconds", remarks),
            satisfied=group.status.phase in _WAS_WHOLE,
            uid=source.uid,
            generation=source.generation,
        )
    elif not pods or any(pod.metadata.label(LABEL) for pod in pods):
        return Statement(queue=queue, remarks=(tell_missing_group(KIND, key.name),))
    else:
        # The first that came, as Koordinator does; by name where two came in one second, so that it is always the same.
        source = min(pods, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.name)).metadata
        _tell_disagreement(source, pods, remarks)
        path = f"metadata.annotations[{_WAITING_TIME}]"
        # Without an object there is no uid: it is gone with its last pod, and another one is just a later gang.
        base = Statement(
            members_min=_find_least(source, remarks),
            timeout_s=parse_timeout_s(source.annotation(_WAITING_TIME), path, remarks),
        )
    return _add_annotations(key, replace(base, queue=queue), source, remarks)


def _add_annotations(key: GangKey, base: Statement, source: Metadata, remarks: list[Remark]) -> Statement:
    """What annotations say alike on an object and on pods."""
    return replace(
        base,
        members_total=_find_total(source, base.members_min, remarks),
        together=_find_groups(key, source, remarks),
        strict=_find_choice(source, _MODE, ("Strict", "NonStrict"), remarks) == "Strict",
        match=_find_match(source, remarks),
        topology=_find_topology(source, remarks),
        created=source.creation_timestamp or "",
        # Last, when everything has been looked at.
        remarks=tuple(remarks),
    )


def _find_least(first: Metadata, remarks: list[Remark]) -> int:
    written, field = first.annotation(_LEAST), f"metadata.annotations[{_LEAST}]"
    if not written and first.label(_LIGHT_LEAST):
        written, field = first.label(_LIGHT_LEAST), f"metadata.labels[{_LIGHT_LEAST}]"
    least = parse_count(written)
    if least is None:
        remarks.append(Invalid(field, f"is no number ({quote(written)})", "write how many members must start together"))
        return 1
    return check_least(least, field, remarks)


def _find_total(source: Metadata, least: int, remarks: list[Remark]) -> int:
    written, field = source.annotation(_TOTAL), f"metadata.annotations[{_TOTAL}]"
    if not written:
        return least
    total = parse_count(written)
    if total is None or total > MEMBERS_MAX:
        remarks.append(Notice(field, f"is {quote(written)}; {least} is taken, the minimum", "write a number of pods"))
        return least
    if 0 != total < least:
        remarks.append(Notice(field, f"is {total}, below the minimum; {least} is taken", "write at least the minimum"))
    return max(total, least)


def _find_match(source: Metadata, remarks: list[Remark]) -> MatchPolicy:
    key = _MATCH if source.annotation(_MATCH) else _MATCH_ALIAS
    choices = (MatchPolicy.ONCE_SATISFIED, MatchPolicy.WAITING_AND_RUNNING, MatchPolicy.ONLY_WAITING)
    return MatchPolicy(_find_choice(source, key, tuple(each.value for each in choices), remarks))


def _find_choice(source: Metadata, key: str, choices: tuple[str, ...], remarks: list[Remark]) -> str:
    written = source.annotation(key)
    if written in choices:
        return written
    if written:
        says = f"is {quote(written)}; {choices[0]} is taken"
        remarks.append(Notice(f"metadata.annotations[{key}]", says, f"write {' or '.join(choices)}"))
    return choices[0]


def _find_groups(key: GangKey, source: Metadata, remarks: list[Remark]) -> tuple[GangKey, ...]:
    written, field = source.annotation(_GROUPS), f"metadata.annotations[{_GROUPS}]"
    if not written:
        return ()
    named = decode_text(written, list[str])
    if named is None or len(named) > _GROUP_MAX:
        remarks.append(Invalid(field, "is no JSON list of gangs", f'write ["{key.namespace}/{key.name[:40]}", ...]'))
        return ()
    found = {key}
    for each in named:
        namespace, slash, name = each.partition("/")
        # Whoever could name gangs of another namespace could hold them up.
        if slash and namespace != key.namespace:
            says = f"names {quote(each)}, of another namespace"
            remarks.append(Invalid(field, says, "name gangs of the same namespace only"))
        elif not slash or check_group_name(name, field) is not None:
            remarks.append(Invalid(field, f"names {quote(each)}", 'name gangs as "namespace/name"'))
        else:
            found.add(GangKey(Dialect.KOORDINATOR, namespace, name))
    return tuple(sorted(found, key=str)) if len(found) > 1 else ()


def _find_topology(source: Metadata, remarks: list[Remark]) -> TopologyWish:
    written, field = source.annotation(_TOPOLOGY), f"metadata.annotations[{_TOPOLOGY}]"
    if not written:
        return TopologyWish()
    spec: _GatherSpec | None = decode_text(written, _GatherSpec)
    rules = (spec.gather_strategy or ()) if spec is not None else ()
    if not rules or any(not rule.layer or rule.strategy not in _STRATEGIES for rule in rules):
        do = 'write {"gatherStrategy": [{"layer": "rackLayer", "strategy": "MustGather"}]}'
        remarks.append(Invalid(field, "is no list of layers with MustGather or PreferGather", do))
        return TopologyWish()
    if any(rule.pod_count_multiple is not None and not 1 <= rule.pod_count_multiple <= MEMBERS_MAX for rule in rules):
        remarks.append(Invalid(field, "has a podCountMultiple that is no number of pods", "write 1 or more"))
        return TopologyWish()
    levels = [(rule, NamedLevel(NamedBy.LAYER.value, rule.layer)) for rule in rules]
    return TopologyWish(
        require=tuple(level for rule, level in levels if rule.strategy == "MustGather"),
        prefer=tuple(level for rule, level in levels if rule.strategy == "PreferGather"),
        # Domains that hold multiples of n members, in rank order: groups of n, each inside one of them.
        segments=tuple((n, level) for rule, level in levels if (n := rule.pod_count_multiple) and n > 1),
        field=field,
    )


def _tell_disagreement(first: Metadata, pods: Sequence[Pod], remarks: list[Remark]) -> None:
    for key in _OF_THE_GANG:
        said = first.annotation(key)
        other = next((pod.metadata for pod in pods if pod.metadata.annotation(key) != said), None)
        if other is not None:
            says = f"is {quote(said)} on {quote(first.name)}, which came first, and {quote(other.annotation(key))} on "
            says += f"{quote(other.name)}; the first counts"
            remarks.append(Notice(f"metadata.annotations[{key}]", says, "write the same on all pods of the gang"))
