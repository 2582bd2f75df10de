"""Which nodes keep a pod away, and which of them it tolerates.

The engine knows taints as words that a shape tolerates or not (`model.gang.Shape.tolerate`); a toleration is a pattern.
So the words are made from the taints that nodes really have, and each shape lists those of them that its pods tolerate.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from phalanx.frontends.kube.objects.node import NodeObject, Taint
from phalanx.frontends.kube.objects.pod import Toleration
from phalanx.frontends.kube.remarks import Invalid, Remark, quote
from phalanx.frontends.kube.selectors import exceeds

#: Effects that keep a pod from a node. `PreferNoSchedule` is a wish only.
FORBIDDING: Final = frozenset({"NoSchedule", "NoExecute"})
WISH: Final = "PreferNoSchedule"

_CORDONED: Final = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
_NOT_READY: Final = Taint("node.kubernetes.io/not-ready", "", "NoSchedule")
_UNREACHABLE: Final = Taint("node.kubernetes.io/unreachable", "", "NoSchedule")
_NO_NETWORK: Final = Taint("node.kubernetes.io/network-unavailable", "", "NoSchedule")

#: A number as this comparison wants it: without a plus, and without zeros before it.
_DECIMAL: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")

_OPERATORS: Final = frozenset({"", "Equal", "Exists", "Lt", "Gt"})


def find_taints(node: NodeObject) -> tuple[Taint, ...]:
    """Its taints, with those that a controller would put there for how it is, in case nobody has yet.

    Sorted and without repetition. A node that says nothing of being ready is taken at its word: fake ones do not.
    """
    found = set(node.spec.taints or ())
    if node.spec.unschedulable:
        found.add(_CORDONED)
    for condition in node.status.conditions or ():
        if condition.type == "Ready" and condition.status != "True":
            found.add(_NOT_READY if condition.status == "False" else _UNREACHABLE)
        if condition.type == "NetworkUnavailable" and condition.status == "True":
            found.add(_NO_NETWORK)
    return tuple(sorted(found, key=_order))


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Whether any of them lets its pod go there in spite of it."""
    return any(_matches(each, taint) for each in tolerations)


def find_repelling(tolerations: tuple[Toleration, ...], taints: Iterable[Taint]) -> Taint | None:
    """The first taint that keeps the pod away, if any does."""
    return next((each for each in taints if each.effect in FORBIDDING and not tolerates(tolerations, each)), None)


def count_unwelcome(tolerations: tuple[Toleration, ...], taints: Iterable[Taint]) -> int:
    """How many taints would rather not have it there: fewer is better."""
    return sum(each.effect == WISH and not tolerates(tolerations, each) for each in taints)


def taint_word(taint: Taint) -> str:
    """A forbidding taint as the engine's word for it, as kubectl writes it."""
    return f"{taint.key}={taint.value}:{taint.effect}"


def tolerated_words(tolerations: tuple[Toleration, ...], taints: Iterable[Taint]) -> tuple[str, ...]:
    """The words of those forbidding taints, of all that are in the cluster, that these tolerations accept."""
    return tuple(
        sorted({taint_word(each) for each in taints if each.effect in FORBIDDING and tolerates(tolerations, each)})
    )


def check_tolerations(tolerations: Iterable[Toleration], remarks: list[Remark]) -> None:
    """One that nobody understands tolerates nothing, and somebody should be told."""
    for index, each in enumerate(tolerations):
        path = f"spec.tolerations[{index}]"
        if each.operator not in _OPERATORS:
            remarks.append(Invalid(f"{path}.operator", f"is {quote(each.operator)}", "write Equal or Exists"))
        elif not each.key and each.operator != "Exists":
            remarks.append(Invalid(f"{path}.key", "is empty", "name a key, or use Exists for all taints"))


def _matches(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    if toleration.operator in ("Lt", "Gt"):
        if not (_DECIMAL.fullmatch(toleration.value) and _DECIMAL.fullmatch(taint.value)):
            return False
        # It says what the taint's value must be: below, or above, the toleration's.
        return exceeds(taint.value, toleration.value, above=toleration.operator == "Gt")
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def _order(taint: Taint) -> tuple[str, str, str]:
    return taint.key, taint.value, taint.effect
