"""The `gangs:` part: what users ask for.

Each gang is read on its own first; what ties gangs to each other (names, `after`, `together`)
is checked over all of them in `parse_gangs`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from phalanx.control.spec.cluster import TOTAL_MAX
from phalanx.control.spec.errors import show
from phalanx.control.spec.quantity import member_amount
from phalanx.control.spec.rule_keys import RULE_KEYS, check_rules, parse_bears, parse_rather, parse_rules
from phalanx.control.spec.sizes import parse_sizes
from phalanx.control.spec.spot import Fields, Spot
from phalanx.control.spec.ties import check_after, complete_groups, parse_together
from phalanx.model.gang import After, Gang, Role, Shape, SnapshotHabit
from phalanx.model.queue import DEFAULT_QUEUE, ROOT
from phalanx.model.rules import Rather, Rule
from phalanx.model.topology import NODE_LEVEL, Segment, Topology

GANG_KEYS: Final = (
    *("name", "submit", "queue", "user", "priority", "members", "each", "roles", "together", "topology", "select"),
    *("tolerate", "walltime", "kill_after", "duration", "speedup", "deadline", "preemptible", "snapshot"),
    *("resize_pause", "startup", "after", "hold", "max_restarts"),
    *RULE_KEYS,
)
ROLE_KEYS: Final = ("name", "members", "each", "topology", "select", "tolerate", *RULE_KEYS)
TOPOLOGY_KEYS: Final = ("require", "prefer", "segment")
SEGMENT_KEYS: Final = ("size", "level")
SNAPSHOT_KEYS: Final = ("every", "stall", "restore")

#: The only role of a gang that is described by members and each.
SOLE_ROLE: Final = "member"

_PRIORITY_MAX: Final = 1_000_000_000
_RESTARTS_MAX: Final = 1_000_000
_SEGMENT_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Known:
    """The names a gang may refer to."""

    queues: Collection[str]  # empty: the file describes none, and any gang is in the default one
    levels: tuple[str, ...]  # without the node
    labels: Collection[str] = ()  # of nodes, where they are known: rules about others may go by them

    @property
    def domains(self) -> tuple[str, ...]:
        """All that rules about others may go by."""
        return (*self.levels, NODE_LEVEL, *(label for label in self.labels if label not in self.levels))


def parse_gangs(spot: Spot, known: Known) -> tuple[tuple[Gang, ...], list[Spot]]:
    """All gangs in the order written, and the spot of each for what else is to be read there."""
    entries = [entry.titled() for entry in spot.items()]
    gangs: list[Gang] = []
    # A set beside the list: a log has a hundred thousand gangs, and each name is looked for.
    seen: set[str] = set()
    for entry in entries:
        gang = parse_gang(entry, known)
        if gang.name in seen:
            entry.refuse(f"there is already a gang {show(gang.name)}; names are unique")
        seen.add(gang.name)
        gangs.append(gang)
    # Groups before dependencies: whether a group waits for itself is asked of whole groups.
    whole = complete_groups(gangs, entries)
    check_after(whole, entries)
    return tuple(whole), entries


def parse_gang(entry: Spot, known: Known) -> Gang:
    """One gang as submitted. Of the keys that only the simulator knows, the presence is allowed here."""
    # Every key of the schema is known here, those that only the simulator reads included: one file must serve every
    # front end, and an unknown key is a slip.
    fields = entry.fields(GANG_KEYS)
    name = fields.need("name", "name: A").text()
    return Gang(
        name=name,
        roles=_parse_roles(fields, known),
        submit_us=_time(fields, "submit"),
        queue=_parse_queue(fields, known.queues),
        user=_word(fields, "user"),
        priority=_integer(fields, "priority", (-_PRIORITY_MAX, _PRIORITY_MAX), 0),
        # The gang's wish is about all roles together, each role's about its own members (rule 15, topology).
        topology=_parse_topology(fields.get("topology"), known.levels),
        together=parse_together(fields.get("together")),
        walltime_us=_length(fields, "walltime"),
        kill_after_us=_length(fields, "kill_after"),
        deadline_us=_length(fields, "deadline"),
        preemptible=_flag(fields, "preemptible"),
        snapshot=_parse_snapshot(fields.get("snapshot")),
        resize_pause_us=_time(fields, "resize_pause"),
        startup_us=_time(fields, "startup"),
        after=_parse_after(fields.get("after")),
        hold=_flag(fields, "hold"),
        max_restarts=_integer(fields, "max_restarts", (0, _RESTARTS_MAX), 10),
    )


# ---- roles and shapes


def _parse_roles(fields: Fields, known: Known) -> tuple[Role, ...]:
    # Two ways to write it, and no mixture: which of two sizes counts would be a matter of taste.
    listed, flat = fields.get("roles"), fields.present(("members", "each"))
    if listed is None:
        if not flat:
            fields.spot.refuse("needs members and each, or roles")
        return (_parse_role(fields, fields, SOLE_ROLE, known),)
    if flat:
        fields.spot.refuse(f"has both roles and {' and '.join(flat)}; sizes and shapes stand in the roles")
    roles: list[Role] = []
    for item in listed.items():
        inner = item.fields(ROLE_KEYS)
        name = inner.need("name", "name: worker").text()
        # Seats in dumps and ranks in jobs are told apart by the name of their role.
        if any(role.name == name for role in roles):
            item.refuse(f"there is already a role {show(name)} in this gang")
        roles.append(_parse_role(inner, fields, name, known))
    if not roles:
        listed.refuse("must not be empty; a gang has at least one role")
    return tuple(roles)


def _parse_role(inner: Fields, gang: Fields, name: str, known: Known) -> Role:
    """A role from its own keys; of the gang `select`, `tolerate` and rules hold where it says nothing of its own."""
    sizes = parse_sizes(inner.need("members", "members: 4, or {min: 2, max: 8}"))
    each = inner.need("each", "each: {gpu: 1}")
    # Sorted and without zeros: shapes that mean the same must be equal, since gangs share what was worked out by shape.
    need = tuple(sorted((kind, units) for kind, units in each.amounts(member_amount).items() if units))
    if not need:
        each.refuse("must ask for something; a member that needs nothing needs no scheduler")
    for kind, units in need:
        # Members times amount is what the engine multiplies in 64 bits, unchecked.
        if units * sizes.most > TOTAL_MAX:
            each.refuse(f"asks for more {kind} over all members than can be counted")
    # Instead of the gang's, not on top: a role that says where it goes says all of it.
    select = _parse_select(inner.get("select") or gang.get("select"))
    bears = parse_bears(inner.get("bears") or gang.get("bears"))
    rules = parse_rules(lambda key: inner.get(key) or gang.get(key), known.domains)
    rather = parse_rather(inner.get("rather") or gang.get("rather"), _parse_select, known.domains)
    tolerate = _parse_tolerate(inner.get("tolerate") or gang.get("tolerate"))
    shape = _share_shape(need, select, tolerate, bears, rules, rather)
    own = inner.get("topology") if inner is not gang else None  # a flat gang's wish is kept on the gang
    topology, outer = _parse_topology(own, known.levels), _parse_topology(gang.get("topology"), known.levels)
    # Here, where both are at hand: what the gang says of all roles binds each of them.
    check_rules(inner.spot, shape, confined=any(wish.require or wish.segment for wish in (topology, outer)))
    return Role(name, sizes, shape, topology)


@lru_cache(maxsize=4096)
def _share_shape(
    need: tuple[tuple[str, int], ...],
    select: tuple[tuple[str, tuple[str, ...]], ...],
    tolerate: tuple[str, ...],
    bears: tuple[str, ...],
    rules: tuple[Rule, ...],
    rather: tuple[Rather, ...],
) -> Shape:
    # One object for what is equal: the engine looks shapes up at every step, and two objects are compared part by part.
    return Shape(need, select, tolerate, bears, rules, rather)


def _parse_select(spot: Spot | None) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if spot is None:
        return ()
    found = []
    for label, wanted in spot.pairs():
        # As texts: a label `01` is not the number 1, and YAML would make it one.
        values = tuple(dict.fromkeys(item.text() for item in wanted.items_or_one()))
        if not values:
            wanted.refuse("must not be empty; write a value, or a list of which any will do")
        found.append((label, values))
    return tuple(sorted(found))


def _parse_tolerate(spot: Spot | None) -> tuple[str, ...]:
    return tuple(sorted({item.text() for item in spot.items_or_one()})) if spot else ()


def _parse_topology(spot: Spot | None, levels: tuple[str, ...]) -> Topology:
    if spot is None:
        return Topology()
    fields = spot.fields(TOPOLOGY_KEYS)
    segment = fields.get("segment")
    return Topology(
        require=_level(fields, "require", levels),
        prefer=_level(fields, "prefer", levels),
        segment=_parse_segment(segment, levels) if segment else None,
    )


def _parse_segment(spot: Spot, levels: tuple[str, ...]) -> Segment:
    fields = spot.fields(SEGMENT_KEYS)
    size = fields.need("size", "{size: 8, level: node}").integer(1, _SEGMENT_MAX)
    # No default level: a segment is hard (rule 15), and a wrong guess would make gangs infeasible.
    fields.need("level", "{size: 8, level: node}")
    return Segment(size, _level(fields, "level", levels) or NODE_LEVEL)


def _level(fields: Fields, key: str, levels: tuple[str, ...]) -> str | None:
    spot = fields.get(key)
    return spot.one_of((*levels, NODE_LEVEL), "topology level") if spot else None


# ---- the rest of a gang


def _parse_queue(fields: Fields, queues: Collection[str]) -> str:
    spot = fields.get("queue")
    if spot is None:
        return DEFAULT_QUEUE
    # Gangs directly at the root would stand beside every queue with a weight of their own.
    if spot.text() == ROOT:
        spot.refuse("must be a queue below root; root only holds the others together")
    # `default` may be named though the file describes none: it is always there (rule 1).
    return spot.one_of((*queues, DEFAULT_QUEUE), "queue")


def _parse_after(spot: Spot | None) -> After:
    if spot is None:
        return After()
    # A bare list means success, the mapping `any` however it ends (rule 15, after).
    any_end = isinstance(spot.value, dict)
    listed = spot.fields(("any",)).need("any", "{any: [B]}") if any_end else spot
    return After(tuple(dict.fromkeys(item.text() for item in listed.items_or_one())), any_end)


def _parse_snapshot(spot: Spot | None) -> SnapshotHabit | None:
    if spot is None:
        return None
    fields = spot.fields(SNAPSHOT_KEYS)
    every = fields.need("every", "{every: 60s, stall: 0.2s, restore: 5s}")
    return SnapshotHabit(every.length_us(), _time(fields, "stall"), _time(fields, "restore"))


def _time(fields: Fields, key: str) -> int:
    spot = fields.get(key)
    return spot.time_us() if spot else 0


def _length(fields: Fields, key: str) -> int | None:
    spot = fields.get(key)
    return spot.length_us() if spot else None


def _word(fields: Fields, key: str) -> str:
    spot = fields.get(key)
    return spot.text() if spot else ""


def _flag(fields: Fields, key: str) -> bool:
    spot = fields.get(key)
    return spot.boolean() if spot else False


def _integer(fields: Fields, key: str, bounds: tuple[int, int], default: int) -> int:
    spot = fields.get(key)
    return spot.integer(*bounds) if spot else default
