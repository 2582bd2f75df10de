"""Gangs of pods in the engine's words: what is to start, of which shape, on which nodes.

What the engine has no word for yet is refused here with the field's name, so that it is never ignored. The day it has
one, a line goes from `_tell_unsaid` to `express_shape`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from phalanx.control.spec.rule_keys import list_shares, list_spreads
from phalanx.frontends.kube.companies import Companies, Name, name_company, name_ports
from phalanx.frontends.kube.constraints import PodShape
from phalanx.frontends.kube.gang_groups import together_word
from phalanx.frontends.kube.gang_view import GangView, PodMember
from phalanx.frontends.kube.neighbours import EvenSpread, NeighbourRule, NotWhere, OnlyWhere, selects_namespaces
from phalanx.frontends.kube.node_rules import AllOf, AnyOf, NodeRules
from phalanx.frontends.kube.objects.node import NodeObject, Taint
from phalanx.frontends.kube.quantities import engine_amount
from phalanx.frontends.kube.remarks import Remark, Unsupported
from phalanx.frontends.kube.requests import find_offer
from phalanx.frontends.kube.selectors import IN
from phalanx.frontends.kube.taints import FORBIDDING, find_taints, taint_word, tolerated_words
from phalanx.frontends.kube.topology_wishes import LevelNames, name_levels
from phalanx.model.fleet import Node
from phalanx.model.gang import Gang, Role, Shape, Sizes, Together
from phalanx.model.queue import DEFAULT_QUEUE
from phalanx.model.rules import Apart, Beside, Evenly, Mark, Rather, Rule, Select
from phalanx.model.topology import NODE_LEVEL, Topology

#: The label by which pods say one per host.
HOST_LABEL: Final = "kubernetes.io/hostname"

_Part = tuple[str, Shape, tuple[PodMember, ...]]  # members of one shape, by the name of their role

#: Kinds that a node is not bought for; whatever else it has comes first, and ties between places are broken by it.
_COMMON_KINDS: Final = ("cpu", "memory", "ephemeral-storage", "pods")


@dataclass(frozen=True, slots=True)
class Terrain:
    """What shapes refer to: nodes that are there, their taints, and what levels are called."""

    nodes: Mapping[str, NodeObject] = field(default_factory=dict)
    taints: frozenset[Taint] = frozenset()  # of all of them
    levels: LevelNames = field(default_factory=LevelNames)
    companies: Companies = field(default_factory=Companies)
    # Whether the label of hosts is there once for each node: then it says the same as the node itself.
    hosts_are_nodes: bool = False


@dataclass(frozen=True, slots=True)
class Venture:
    """Members that are to start at one instant: one gang to the engine."""

    gang: Gang
    members: tuple[tuple[PodMember, ...], ...]  # by role, in rank order


# ---- nodes


def express_node(node: NodeObject, levels: LevelNames) -> Node:
    """A node as the engine knows it; one whose amounts cannot be read offers nothing."""
    offer = find_offer(node)
    units = {} if isinstance(offer, tuple) else offer
    # Devices first: the engine counts time, and breaks ties, by the first kind that comes in pieces.
    ordered = sorted(units, key=lambda kind: (kind in _COMMON_KINDS, kind))
    labels = {label_word(key, levels): value for key, value in (node.metadata.labels or {}).items()}
    for key, level in levels.level_by_label.items():
        if key in (node.metadata.labels or {}):
            labels[level] = node.metadata.label(key)
    taints = sorted({taint_word(each) for each in find_taints(node) if each.effect in FORBIDDING})
    amounts = {kind: engine_amount(units[kind], kind) for kind in ordered}
    return Node(node.metadata.name, amounts, labels, tuple(taints))


def find_device_kind(kinds: Iterable[str]) -> str:
    """What a cluster is bought for: GPUs if it has any, else the first kind that not every machine has."""
    own = sorted(kind for kind in kinds if kind not in _COMMON_KINDS)
    return next((kind for kind in own if kind.endswith("gpu")), own[0] if own else "cpu")


def label_word(key: str, levels: LevelNames) -> str:
    """A label of Kubernetes by a name that means nothing else to the engine."""
    return f"label:{key}" if key == NODE_LEVEL or key in levels.levels else key


# ---- shapes


def express_shape(shape: PodShape, terrain: Terrain, name: Name) -> tuple[Shape, tuple[Remark, ...]]:
    """One member, and what of it cannot be said. `name`: of the pod, by which rules of others may speak of it."""
    bears, away = name_ports(shape.demand.ports)
    rules: list[Rule] = [Apart(NODE_LEVEL, word) for word in away]
    rules += [express_rule(rule, terrain) for rule in shape.constraints.neighbours.must]
    said = Shape(
        need=shape.demand.need({}),
        select=_select(shape.constraints.nodes, terrain),
        tolerate=tolerated_words(shape.constraints.tolerations, terrain.taints),
        bears=tuple(sorted({*bears, *terrain.companies.list_words(name)})),
        rules=tuple(dict.fromkeys(rules)),
        rather=_list_wishes(shape, terrain),
    )
    return said, (*_tell_unsaid(shape), *_tell_undecided(said))


def _list_wishes(shape: PodShape, terrain: Terrain) -> tuple[Rather, ...]:
    nodes, neighbours = shape.constraints.nodes, shape.constraints.neighbours
    found = [Rather(weight, _select(NodeRules(((term,),)), terrain)) for weight, term in nodes.rather]
    found += [Rather(wish.weight, express_rule(wish.rule, terrain)) for wish in neighbours.rather]
    return tuple(sorted(dict.fromkeys(found), key=lambda rather: -rather.weight))


def express_marks(shape: PodShape | None, terrain: Terrain, name: Name) -> tuple[Mark, ...]:
    """What a pod that has its place is to rules about others, its own and theirs; without a shape it asks nothing."""
    words = terrain.companies.list_words(name)
    if shape is None:
        return words
    bears, away = name_ports(shape.demand.ports)
    # Of what it asks only that it keeps others away: where it may go is settled, and binds nobody else.
    rules = (rule for rule in shape.constraints.neighbours.must if isinstance(rule, NotWhere))
    kept = [(word, NODE_LEVEL) for word in away]
    kept += [(name_company(rule.company), _domains_by(rule.key, terrain)) for rule in rules]
    return (*words, *bears, *dict.fromkeys(kept))


def express_rule(rule: NeighbourRule, terrain: Terrain) -> Rule:
    """One rule about other pods."""
    by, word = _domains_by(rule.key, terrain), name_company(rule.company)
    match rule:
        case NotWhere():
            return Apart(by, word)
        case OnlyWhere():
            return Beside(by, word)
        case EvenSpread():
            heeds = rule.heeds_node_rules, rule.heeds_taints
            return Evenly(by, word, rule.max_skew, rule.min_domains, *heeds)


def _domains_by(key: str, terrain: Terrain) -> str:
    return NODE_LEVEL if key == HOST_LABEL and terrain.hosts_are_nodes else label_word(key, terrain.levels)


def are_hosts_nodes(nodes: Iterable[NodeObject]) -> bool:
    """Whether every node has the label of hosts, and none has that of another."""
    hosts = [each.metadata.label(HOST_LABEL) for each in nodes]
    return all(hosts) and len(set(hosts)) == len(hosts)


def _select(rules: NodeRules, terrain: Terrain) -> Select:
    """Labels where labels say it, which is nearly always; else the nodes by name."""
    wanted: dict[str, set[str]] = {}
    others: list[AnyOf] = []
    for rule in rules.must:
        if len(rule) == 1 and _is_plain(rule[0], terrain):
            for each in rule[0]:
                key = label_word(each.key, terrain.levels)
                wanted[key] = wanted[key] & set(each.values) if key in wanted else set(each.values)
        else:
            others.append(rule)
    if others:
        # NotIn, Exists, numbers and alternatives: asked of every node here, where labels are at hand.
        left = NodeRules(tuple(others))
        wanted[NODE_LEVEL] = {
            name for name, node in terrain.nodes.items() if left.admits(name, node.metadata.labels or {})
        }
    return tuple(sorted((key, tuple(sorted(values))) for key, values in wanted.items()))


def _is_plain(term: AllOf, terrain: Terrain) -> bool:
    del terrain
    return all(each.operator == IN for each in term) and all(" " not in each.key for each in term)


def names_nodes(shape: PodShape) -> bool:
    """Whether it has to be expressed anew when a node changes its labels."""
    rules = shape.constraints.nodes
    wanted = (*rules.must, *((term,) for _, term in rules.rather))
    return any(len(rule) != 1 or not _is_plain(rule[0], Terrain()) for rule in wanted)


def _tell_unsaid(shape: PodShape) -> Iterable[Remark]:
    do = "leave it out, or leave the pod to another scheduler"
    for rule in shape.constraints.neighbours.must:
        if selects_namespaces(rule.company):
            yield Unsupported(_field_of(rule, "required"), "selects namespaces by their labels", do)
    for wish in shape.constraints.neighbours.rather:
        if selects_namespaces(wish.rule.company):
            yield Unsupported(_field_of(wish.rule, "preferred"), "selects namespaces by their labels", do)


def _tell_undecided(shape: Shape) -> Iterable[Remark]:
    """Rules that can be said and not be decided together."""
    shares = list_shares(shape)
    if len(shares) > 1:
        says = f"wants one in each domain by {' and by '.join(shares)} at once"
        do = "keep to one of them, beside kubernetes.io/hostname"
        yield Unsupported("spec.affinity.podAntiAffinity", says, do)


def _tell_confined(shape: Shape, topology: Topology) -> Iterable[Remark]:
    """One domain for all of them, and a share of each domain, is a search that nobody makes."""
    if (topology.require or topology.segment) and (list_shares(shape) or list_spreads(shape)):
        says = "shares members out, and their gang has to be in one domain or in groups"
        yield Unsupported("spec.topologySpreadConstraints or podAntiAffinity", says, "keep to one of the two")


def _field_of(rule: NeighbourRule, strength: str) -> str:
    if isinstance(rule, EvenSpread):
        return "spec.topologySpreadConstraints"
    whose = "podAntiAffinity" if isinstance(rule, NotWhere) else "podAffinity"
    return f"spec.affinity.{whose}.{strength}DuringSchedulingIgnoredDuringExecution"


# ---- gangs


def express_ventures(
    view: GangView, terrain: Terrain, *, mates_wait: bool = True
) -> tuple[tuple[Venture, ...], tuple[Remark, ...]]:
    """What of a gang is to start now, or why none of it may.

    `mates_wait`: whether those with which it starts together have not started either; else it starts by itself.

    First as many as make it whole, at one instant. Members beyond that are no part of the question whether it starts:
    once it is whole each of them is a venture of its own.
    """
    topology, unknown = name_levels(view.said.topology, terrain.levels)
    parts, remarks = _list_parts(view, topology, terrain)
    remarks += unknown
    if remarks:
        return (), tuple(dict.fromkeys(remarks))
    if not view.startable:
        return (), ()
    whole = view.outstanding > 0
    parts = [[(name, _beside(shape, view, topology, terrain), some) for name, shape, some in part] for part in parts]
    together = None
    if whole and mates_wait and len(view.said.together) > 1 and not view.satisfied:
        together = Together(together_word(view), len(view.said.together))
    ventures = []
    for part in parts:
        roles = tuple(Role(name, Sizes((len(members),)), shape) for name, shape, members in part)
        gang = Gang(
            name=name_venture(view, [member for _, _, members in part for member in members], whole=whole),
            roles=roles,
            queue=DEFAULT_QUEUE,
            user=view.key.namespace,
            priority=view.priority,
            topology=topology,
            together=together,
            walltime_us=None if view.kill_after_s is None else view.kill_after_s * 1_000_000,
        )
        ventures.append(Venture(gang, tuple(members for _, _, members in part)))
    return tuple(ventures), ()


def _list_parts(view: GangView, topology: Topology, terrain: Terrain) -> tuple[list[list[_Part]], list[Remark]]:
    """What starts at one instant: those who make it whole, or each by itself; and what cannot be said of them."""
    whole, together, alone, remarks = view.outstanding > 0, list[_Part](), list[list[_Part]](), list[Remark]()
    for role in view.roles:
        some = role.members[: role.members_min] if whole else role.members
        by_shape: dict[Shape, list[PodMember]] = {}
        for member in some:
            shape, unsaid = express_shape(role.shape, terrain, (view.key.namespace, member.name))
            by_shape.setdefault(shape, []).append(member)
            unsaid = (*unsaid, *_tell_confined(shape, topology))
            remarks += [remark.of(f"{view.key.dialect.value} gang {view.key.name}") for remark in unsaid]
        # Members of one role may differ in labels, and some rule may select by those.
        for at, (shape, members) in enumerate(by_shape.items()):
            name = f"{role.name}.{at}" if at else role.name
            together.append((name, shape, tuple(members)))
            alone += [[(name, shape, (member,))] for member in members]
    return [together] if whole else alone, remarks


def _beside(shape: Shape, view: GangView, topology: Topology, terrain: Terrain) -> Shape:
    """Inside the domain in which the gang sits already, if it must be in one: a replacement belongs to the others."""
    there = next((terrain.nodes[name] for name in view.anchors if name in terrain.nodes), None)
    if topology.require is None or there is None:
        return shape
    label_by_level = {level: label for label, level in terrain.levels.level_by_label.items()}
    select = dict(shape.select)
    # A domain is its whole path: rack 1 of block 2 is not rack 1 of block 3.
    for level in (*terrain.levels.levels, NODE_LEVEL):
        name = there.metadata.name if level == NODE_LEVEL else there.metadata.label(label_by_level[level])
        if name:
            select[level] = tuple(each for each in select.get(level, (name,)) if each == name)
        if level == topology.require:
            break
    return replace(shape, select=tuple(sorted(select.items())))


def name_venture(view: GangView, members: Sequence[PodMember], *, whole: bool) -> str:
    """The engine's name: the gang's, or with the pod's uid where it starts by itself."""
    return view.key.unique if whole else f"{view.key.unique}/{members[0].uid}"


def find_cluster_taints(nodes: Iterable[NodeObject]) -> frozenset[Taint]:
    """Those that tolerations are to be compared with."""
    return frozenset(taint for node in nodes for taint in find_taints(node) if taint.effect in FORBIDDING)
