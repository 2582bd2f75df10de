"""What a pod asks about other pods: affinity, anti-affinity and topology spread, as pure values.

- `NotWhere`: in no domain where another selected pod is. It binds both ways: whoever is selected may not come to this
  pod either, so the rules of pods that run must be kept.
- `OnlyWhere`: in a domain where a selected pod is.
- `EvenSpread`: domains may differ by at most so many selected pods.

A domain is what nodes with the same value of a label make up; a node without the label is in none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from phalanx.frontends.kube.node_rules import check_weight
from phalanx.frontends.kube.objects.pod import Pod, PodTerm, SpreadConstraint
from phalanx.frontends.kube.remarks import Invalid, Remark, quote
from phalanx.frontends.kube.selectors import IN, NOT_IN, Expression, Selector, find_selector

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


Labels = Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class Companions:
    """Which pods a rule speaks of."""

    selector: Selector | None  # None: nobody
    namespaces: tuple[str, ...]  # sorted
    namespace_selector: Selector | None = None  # namespaces by their labels, beside those named

    def includes(
        self, namespace: str, namespace_labels: Mapping[str, str] | None, labels: Mapping[str, str] | None
    ) -> bool:
        """Whether a pod of that namespace with these labels is one of them."""
        if self.selector is None:
            return False
        by_labels = self.namespace_selector is not None and self.namespace_selector.matches(namespace_labels)
        return (by_labels or namespace in self.namespaces) and self.selector.matches(labels)


def selects_namespaces(company: Companions) -> bool:
    """Whether who is meant depends on labels of namespaces, which nobody here is told of."""
    return company.namespace_selector is not None and bool(company.namespace_selector.expressions)


@dataclass(frozen=True, slots=True)
class NotWhere:
    """In no domain with any of the company."""

    key: str
    company: Companions


@dataclass(frozen=True, slots=True)
class OnlyWhere:
    """In a domain with one of the company. `itself`: the first of them may go anywhere, else none ever could start."""

    key: str
    company: Companions
    itself: bool


@dataclass(frozen=True, slots=True)
class EvenSpread:
    """The company, evenly over domains."""

    key: str
    max_skew: int
    company: Companions
    itself: bool  # whether the pod counts as one of them
    min_domains: int = 1
    heeds_node_rules: bool = True  # nodes that the pod may not use do not count as domains
    heeds_taints: bool = False


NeighbourRule = NotWhere | OnlyWhere | EvenSpread


@dataclass(frozen=True, slots=True)
class Softly:
    """A rule that is a wish, and what it is worth."""

    weight: int
    rule: NotWhere | OnlyWhere | EvenSpread


@dataclass(frozen=True, slots=True)
class Neighbours:
    """All that a pod asks about others."""

    must: tuple[NeighbourRule, ...] = ()
    rather: tuple[Softly, ...] = ()

    def list_rules(self) -> list[NeighbourRule]:
        """All of them, conditions and wishes."""
        return [*self.must, *(wish.rule for wish in self.rather)]


def find_neighbours(pod: Pod, namespace_labels: Labels, remarks: list[Remark]) -> Neighbours:
    """Affinity, anti-affinity and spread of a pod; the labels are those of its namespace."""
    asking = _Asking(pod, namespace_labels or {}, remarks)
    must: list[NeighbourRule] = []
    rather: list[Softly] = []
    affinity = pod.spec.affinity
    near = affinity.pod_affinity if affinity else None
    away = affinity.pod_anti_affinity if affinity else None
    if near is not None:
        path = "spec.affinity.podAffinity"
        for index, term in enumerate(near.required or ()):
            must.append(_find_near(asking, term, f"{path}.{_REQUIRED}[{index}]"))
        for index, wish in enumerate(near.preferred or ()):
            where = f"{path}.{_PREFERRED}[{index}]"
            check_weight(wish.weight, where, remarks)
            rather.append(Softly(wish.weight, _find_near(asking, wish.pod_affinity_term, where)))
    if away is not None:
        path = "spec.affinity.podAntiAffinity"
        for index, term in enumerate(away.required or ()):
            must.append(NotWhere(*_find_company(asking, term, f"{path}.{_REQUIRED}[{index}]")))
        for index, wish in enumerate(away.preferred or ()):
            where = f"{path}.{_PREFERRED}[{index}]"
            check_weight(wish.weight, where, remarks)
            key, company = _find_company(asking, wish.pod_affinity_term, where)
            rather.append(Softly(wish.weight, NotWhere(key, company)))
    for index, constraint in enumerate(pod.spec.topology_spread_constraints or ()):
        spread = _find_spread(asking, constraint, f"spec.topologySpreadConstraints[{index}]")
        if constraint.when_unsatisfiable == "ScheduleAnyway":
            rather.append(Softly(1, spread))
        else:
            must.append(spread)
    return Neighbours(tuple(must), tuple(rather))


@dataclass(frozen=True, slots=True)
class _Asking:
    """Who asks, and where to say what is wrong with it."""

    pod: Pod
    namespace_labels: Mapping[str, str]
    remarks: list[Remark]

    def is_of(self, company: Companions) -> bool:
        """Whether it is itself one of those that it speaks of."""
        # Every namespace has its name as a label, whether or not anybody has seen the object yet.
        named = {"kubernetes.io/metadata.name": self.pod.metadata.namespace, **self.namespace_labels}
        return company.includes(self.pod.metadata.namespace, named, self.pod.metadata.labels)


def _find_near(asking: _Asking, term: PodTerm, path: str) -> OnlyWhere:
    key, company = _find_company(asking, term, path)
    return OnlyWhere(key, company, asking.is_of(company))


def _find_company(asking: _Asking, term: PodTerm, path: str) -> tuple[str, Companions]:
    pod, remarks = asking.pod, asking.remarks
    _check_key(term.topology_key, path, remarks)
    selector = find_selector(term.label_selector, f"{path}.labelSelector", remarks)
    selector = _with_own(pod, selector, term.match_label_keys, IN)
    selector = _with_own(pod, selector, term.mismatch_label_keys, NOT_IN)
    by_labels = find_selector(term.namespace_selector, f"{path}.namespaceSelector", remarks)
    # Neither named nor selected: its own namespace. An empty selector selects all of them.
    named = term.namespaces or (() if by_labels is not None else (pod.metadata.namespace,))
    return term.topology_key, Companions(selector, tuple(sorted(set(named))), by_labels)


def _find_spread(asking: _Asking, written: SpreadConstraint, path: str) -> EvenSpread:
    pod, remarks = asking.pod, asking.remarks
    _check_key(written.topology_key, path, remarks)
    if written.max_skew < 1:
        remarks.append(Invalid(f"{path}.maxSkew", f"is {quote(written.max_skew)}", "write 1 or more"))
    if written.when_unsatisfiable not in ("DoNotSchedule", "ScheduleAnyway"):
        says = f"is {quote(written.when_unsatisfiable)}"
        remarks.append(Invalid(f"{path}.whenUnsatisfiable", says, "write DoNotSchedule or ScheduleAnyway"))
    if written.min_domains is not None and written.min_domains < 1:
        remarks.append(Invalid(f"{path}.minDomains", f"is {quote(written.min_domains)}", "write 1 or more"))
    selector = find_selector(written.label_selector, f"{path}.labelSelector", remarks)
    selector = _with_own(pod, selector, written.match_label_keys, IN)
    company = Companions(selector, (pod.metadata.namespace,))
    return EvenSpread(
        key=written.topology_key,
        max_skew=written.max_skew,
        company=company,
        itself=asking.is_of(company),
        min_domains=1 if written.min_domains is None else written.min_domains,
        heeds_node_rules=_is_honoured(written.node_affinity_policy, f"{path}.nodeAffinityPolicy", remarks, unset=True),
        heeds_taints=_is_honoured(written.node_taints_policy, f"{path}.nodeTaintsPolicy", remarks, unset=False),
    )


def _is_honoured(policy: str | None, path: str, remarks: list[Remark], *, unset: bool) -> bool:
    if policy not in (None, "Honor", "Ignore"):
        remarks.append(Invalid(path, f"is {quote(policy)}", "write Honor or Ignore"))
    return unset if policy is None else policy == "Honor"


def _with_own(pod: Pod, selector: Selector | None, keys: tuple[str, ...] | None, operator: str) -> Selector | None:
    """The selector narrowed to pods with, or without, the pod's own values of some labels; absent ones say nothing.

    The API server writes this into the selector itself where it can; doing it again changes nothing.
    """
    if selector is None or not keys:
        return selector
    labels = pod.metadata.labels or {}
    own = {Expression(key, operator, (labels[key],)) for key in keys if key in labels}
    return Selector(tuple(sorted(own.union(selector.expressions))))


def _check_key(key: str, path: str, remarks: list[Remark]) -> None:
    if not key:
        remarks.append(Invalid(f"{path}.topologyKey", "is empty", "name the label whose values are the domains"))
