"""Which nodes a pod may use, and which rather: node selector, node affinity and what its volumes add.

A rule is an *any of* of *all ofs*; several rules must all hold: the selector is one, the affinity another, each volume
one more. So nothing has to be multiplied out, whatever combination of terms a manifest makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from phalanx.frontends.kube.objects.metadata import MatchExpression
from phalanx.frontends.kube.objects.pod import NodeTerm, NodeTerms, PodSpec
from phalanx.frontends.kube.remarks import Invalid, Remark, quote
from phalanx.frontends.kube.selectors import IN, NOT_IN, OF_NODES, Expression, find_expressions

#: Stands for the node's own name among its labels, which no label may be called: it has a space in it.
NODE_NAME: Final = "metadata name"

AllOf = tuple[Expression, ...]
AnyOf = tuple[AllOf, ...]  # empty: no node will do

_WEIGHT_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class NodeRules:
    """What must hold of a node, and what would be nice."""

    must: tuple[AnyOf, ...] = ()
    rather: tuple[tuple[int, AllOf], ...] = ()  # weight, and what it is for

    def admits(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether a node with this name and these labels will do."""
        known = {**labels, NODE_NAME: name} if self._by_name else labels
        return all(any(all(each.holds(known) for each in term) for term in rule) for rule in self.must)

    def score(self, name: str, labels: Mapping[str, str]) -> int:
        """The sum of the weights of what holds of it."""
        known = {**labels, NODE_NAME: name}
        return sum(weight for weight, term in self.rather if all(each.holds(known) for each in term))

    def also(self, rules: tuple[AnyOf, ...]) -> NodeRules:
        """These and others."""
        return NodeRules(self.must + rules, self.rather) if rules else self

    @property
    def _by_name(self) -> bool:
        return any(each.key == NODE_NAME for rule in self.must for term in rule for each in term)


def find_node_rules(spec: PodSpec, remarks: list[Remark]) -> NodeRules:
    """What a pod itself says of nodes."""
    must: list[AnyOf] = []
    if spec.node_selector:
        must.append((tuple(Expression(key, IN, (value,)) for key, value in sorted(spec.node_selector.items())),))
    affinity = spec.affinity.node_affinity if spec.affinity else None
    if affinity is None:
        return NodeRules(tuple(must))
    path = "spec.affinity.nodeAffinity"
    if affinity.required is not None:
        must.append(find_any_of(affinity.required, f"{path}.requiredDuringSchedulingIgnoredDuringExecution", remarks))
    rather = []
    for index, item in enumerate(affinity.preferred or ()):
        where = f"{path}.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
        check_weight(item.weight, where, remarks)
        # One that says nothing is worth nothing on any node.
        if item.preference.match_expressions or item.preference.match_fields:
            rather.append((item.weight, _find_all_of(item.preference, f"{where}.preference", remarks)))
    return NodeRules(tuple(must), tuple(rather))


def find_any_of(terms: NodeTerms, path: str, remarks: list[Remark]) -> AnyOf:
    """Terms any of which will do; one that says nothing matches no node, by the rules of the API."""
    found = []
    for index, term in enumerate(terms.node_selector_terms or ()):
        if term.match_expressions or term.match_fields:
            found.append(_find_all_of(term, f"{path}.nodeSelectorTerms[{index}]", remarks))
    return tuple(found)


def check_weight(weight: int, path: str, remarks: list[Remark]) -> None:
    """Weights outside 1 to 100 would let one wish drown all others."""
    if not 1 <= weight <= _WEIGHT_MAX:
        remarks.append(Invalid(f"{path}.weight", f"is {quote(weight)}", f"write 1 to {_WEIGHT_MAX}"))


def _find_all_of(term: NodeTerm, path: str, remarks: list[Remark]) -> AllOf:
    found = find_expressions(term.match_expressions or (), OF_NODES, f"{path}.matchExpressions", remarks)
    found += _find_fields(term.match_fields or (), f"{path}.matchFields", remarks)
    return tuple(sorted(found))


def _find_fields(written: tuple[MatchExpression, ...], path: str, remarks: list[Remark]) -> list[Expression]:
    found = []
    for index, line in enumerate(written):
        values = line.values or ()
        # All that the API knows: this field, these operators, one value.
        if line.key != "metadata.name" or line.operator not in (IN, NOT_IN) or len(values) != 1:
            remarks.append(Invalid(f"{path}[{index}]", "is no choice by name", "write metadata.name In [NODE]"))
        else:
            found.append(Expression(NODE_NAME, line.operator, values))
    return found
