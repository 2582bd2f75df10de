"""Named policies: each is an order and a few numbers over the one engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from phalanx.engine.order import order_by_arrival
from phalanx.engine.policy import EVERYONE, Policy

POLICIES: Mapping[str, Policy] = {
    # The baseline people know: every member for itself. The simulator hands it single members.
    "pod-fifo": Policy("pod-fifo", order_by_arrival, reservations=0, molds=False),
    "fcfs": Policy("fcfs", order_by_arrival, reservations=0, stops=True),
    "easy": Policy("easy", order_by_arrival, reservations=1),
    "conservative": Policy("conservative", order_by_arrival, reservations=EVERYONE, keep=True),
}


class UnknownPolicy(Exception):  # noqa: N818 - an answer to the user
    """No policy has this name."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        """Carry what was asked for and what there is."""
        super().__init__(f"unknown policy '{name}'; known: {', '.join(known)}")
        self.name, self.known = name, known


class BadOption(Exception):  # noqa: N818 - an answer to the user
    """An option that no policy has, or a value it cannot take."""


def _reservations(policy: Policy, value: object) -> Policy:
    if value in ("all", "inf"):
        return replace(policy, reservations=EVERYONE, stops=False)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise BadOption(f"reservations must be a whole number from 0, or 'all' (got {value!r})")
    return replace(policy, reservations=value, stops=value == 0)


def _fill(policy: Policy, value: object) -> Policy:
    if value == "arrival" or value == "shortest":
        return replace(policy, fill=value)
    raise BadOption(f"fill must be 'arrival' or 'shortest' (got {value!r})")


def _keep(policy: Policy, value: object) -> Policy:
    if not isinstance(value, bool):
        raise BadOption(f"keep must be true or false (got {value!r})")
    return replace(policy, keep=value)


OPTIONS: Mapping[str, Callable[[Policy, object], Policy]] = {
    "reservations": _reservations,
    "fill": _fill,
    "keep": _keep,
}


def named(name: str, options: Mapping[str, object] | None = None) -> Policy:
    """A policy by name, with the user's options laid over it."""
    if name not in POLICIES:
        raise UnknownPolicy(name, tuple(POLICIES))
    policy = POLICIES[name]
    for key, value in (options or {}).items():
        if key not in OPTIONS:
            raise BadOption(f"policy '{name}' has no option '{key}'; options: {', '.join(OPTIONS)}")
        policy = OPTIONS[key](policy, value)
    return policy
