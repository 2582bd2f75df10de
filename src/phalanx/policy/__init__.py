"""Named policies: each is an order and a few numbers over the one engine.

The table of rule 1 as code. What a field means is said in `engine.policy`; what users may change is in `OPTIONS`, and
the words of both are explained in docs/policies.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from phalanx.engine.order.orders import order_by_arrival, order_by_laxity, order_by_service, order_by_urgency
from phalanx.engine.policy import EVERYONE, Policy
from phalanx.engine.worth import WEIGHTS

MINUTE_US = 60_000_000

POLICIES: Mapping[str, Policy] = {
    # The baseline people know: every member for itself. The simulator hands it single members.
    "pod-fifo": Policy("pod-fifo", order_by_arrival, reservations=0, moldable=False),
    # As Slurm's sched/builtin: the first blocked gang stops those behind it, in its own pool of nodes.
    "fcfs": Policy("fcfs", order_by_arrival, reservations=0, stops=True),
    # Only the head of a pool is protected, and its estimate may move (rule 4, replan).
    "easy": Policy("easy", order_by_arrival, reservations=1),
    # Everybody blocked has a start, and nobody's moves later: predictable, at the price of tighter gaps to fill.
    "conservative": Policy("conservative", order_by_arrival, reservations=EVERYONE, keep=True),
    # Queues by standing, as Kueue, KAI and Volcano have it, with the reservation of EASY so that large gangs start at
    # all.
    "fair": Policy(
        "fair",
        order_by_arrival,
        standing=True,
        moldable=False,
        takes=frozenset({"shrink", "preempt", "reclaim"}),
    ),
    # Nobody is evicted for a date: surplus is given back, minimums stay.
    "deadline": Policy(
        "deadline", order_by_laxity, deadlines=True, moldable=False, grows=True, takes=frozenset({"shrink"})
    ),
    # Gang scheduling in the original sense (Ousterhout): gangs take turns on the same nodes, each whole (rule 14).
    "rotate": Policy("rotate", order_by_service, moldable=False, quantum_us=30 * MINUTE_US),
    # The default: everything at once. The shortest fill first, since a gap that closes soon is worth most to them.
    "goodput": Policy(
        "goodput",
        order_by_urgency,
        fill="shortest",
        standing=True,
        deadlines=True,
        moldable=False,
        grows=True,
        takes=frozenset({"shrink", "preempt", "reclaim", "move"}),
    ),
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
        # `stops` is what is left to a policy without reservations; with any, those behind may fill.
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


def _quantum(policy: Policy, value: object) -> Policy:
    """Gangs take turns after so long; true stands for the usual half hour, false for no turns."""
    if value is False:
        return replace(policy, quantum_us=None)
    return replace(policy, quantum_us=30 * MINUTE_US if value is True else _length(value, "rotate"))


def _length(value: object, option: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise BadOption(f"{option} must be a length of time above 0, such as 30m (got {value!r})")
    return value


def _reclaim(policy: Policy, value: object) -> Policy:
    if value not in ("guarantee", "entitlement"):
        raise BadOption(f"reclaim must be 'guarantee' or 'entitlement' (got {value!r})")
    return replace(policy, reclaims_share=value == "entitlement")


def _min_runtime(policy: Policy, value: object) -> Policy:
    return replace(policy, min_runtime_us=_length(value, "min_runtime"))


def _half_life(policy: Policy, value: object) -> Policy:
    return replace(policy, half_life_us=_length(value, "half_life"))


def _max_evictions(policy: Policy, value: object) -> Policy:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise BadOption(f"max_evictions must be a whole number from 0 (got {value!r})")
    return replace(policy, max_evictions=value)


def _mold_efficiency(policy: Policy, value: object) -> Policy:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
        raise BadOption(f"mold_efficiency must be a number from 0 to 1 (got {value!r})")
    return replace(policy, mold_efficiency=float(value))


def _weigh(policy: Policy, value: object) -> Policy:
    if value not in WEIGHTS:
        raise BadOption(f"weigh must be one of {', '.join(WEIGHTS)} (got {value!r})")
    return replace(policy, weigh=WEIGHTS[str(value)])


def _admit(policy: Policy, value: object) -> Policy:
    if value == "any" or value == "promised" or value == "refuse":
        return replace(policy, admit=value)
    raise BadOption(f"admit must be 'any', 'promised' or 'refuse' (got {value!r})")


def _users(policy: Policy, value: object) -> Policy:
    if value not in ("fair", "arrival"):
        raise BadOption(f"users must be 'fair' or 'arrival' (got {value!r})")
    return replace(policy, shares_users=value == "fair")


OPTIONS: Mapping[str, Callable[[Policy, object], Policy]] = {
    "reservations": _reservations,
    "fill": _fill,
    "keep": _keep,
    "rotate": _quantum,
    "quantum": _quantum,
    "reclaim": _reclaim,
    "min_runtime": _min_runtime,
    "max_evictions": _max_evictions,
    "half_life": _half_life,
    "users": _users,
    "mold_efficiency": _mold_efficiency,
    "weigh": _weigh,
    "admit": _admit,
}

#: Options whose value is a length of time, in microseconds.
LENGTHS: frozenset[str] = frozenset({"rotate", "quantum", "min_runtime", "half_life"})


def named(name: str, options: Mapping[str, object] | None = None) -> Policy:
    """A policy by name, with the user's options laid over it."""
    if name not in POLICIES:
        raise UnknownPolicy(name, tuple(POLICIES))
    return with_options(POLICIES[name], options or {})


def with_options(policy: Policy, options: Mapping[str, object]) -> Policy:
    """Any policy, named or a user's own, with options laid over it."""
    for key, value in options.items():
        if key not in OPTIONS:
            raise BadOption(f"policy '{policy.name}' has no option '{key}'; options: {', '.join(OPTIONS)}")
        policy = OPTIONS[key](policy, value)
    return policy
