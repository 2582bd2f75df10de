"""One gang of a dumped state: what it is, where it stands, where it sits.

Every refusal names the place in the file and what would be right there, since a dump may be edited by hand. What
one gang alone can get wrong is found here; what takes others to see is for `control.restore`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np

from phalanx.control import gates_file
from phalanx.control.records import NOTHING, Past, PlanRefusal
from phalanx.control.seating import add_running, past_of
from phalanx.control.spec.errors import list_words, show, suggest
from phalanx.control.spec.gangs import Known, parse_gang
from phalanx.control.spec.quantity import number as exact_number
from phalanx.control.spec.sizes import MEMBERS_MAX
from phalanx.control.spec.spot import Fields, Spot
from phalanx.control.state import State
from phalanx.engine.lifecycle import Phase
from phalanx.engine.room.view import find_need
from phalanx.model.gang import Gang
from phalanx.model.plan import Bind, DateVerdict, Guest, Seats
from phalanx.model.resources import DEVICE_KIND, MILLI
from phalanx.model.snapshot import Degraded

#: As in `restore`.
MOST: Final = 1 << 61
#: How often something may have happened to one gang.
TIMES_MOST: Final = 1 << 30

GANG_KEYS: Final = (
    *("spec", "phase", "eligible_us", "curve", "attempts", "held", "waits_for", "doomed_by", "infeasible", "fresh"),
    *("past", "run", "seats", "hurt", "refused", "date"),
    *gates_file.GANG_KEYS,
)
DATE_KEYS: Final = ("promised", "earliest_us", "beside")
PAST_KEYS: Final = ("evictions", "failures", "attained_us", "forced", "left_us", "lenders", "rests_until_us")
REFUSED_KEYS: Final = ("at_us", "words", "times", "rests_until_us")
RUN_KEYS: Final = ("start_us", "length_us", "saved_us", "cool_until_us", "attained_us", "guest")
GUESTS: Final = ("surplus", "whole")
_DEVICES: Final = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")


@dataclass(slots=True)
class GangEntry:
    """What the file says of one gang, checked but for its seats, which need the others'."""

    spot: Spot
    fields: Fields
    gang: Gang
    phase: Phase
    eligible_us: int
    curve: tuple[tuple[int, float], ...] | None
    attempts: int
    held: bool
    waits_for: frozenset[str]
    doomed_by: str | None
    infeasible: bool
    fresh: bool  # no cycle has looked at it yet
    date: DateVerdict | None = None  # without its number, which is not known yet
    past: Past | None = None
    rests_until_us: int | None = None
    lenders: Spot | None = None  # who is about to leave its seats, and when they are gone


def parse_entry(state: State, item: Spot, known: Known) -> GangEntry:
    """A gang and where it stands."""
    fields = item.fields(GANG_KEYS)
    gang = parse_gang(fields.need("spec", '"spec": {"name": "A", "members": 4, "each": {"gpu": 1}}').titled(), known)
    # From here on a refusal names the gang: "gangs[17]" alone would have to be counted.
    spot = Spot(item.raw, item.file, f"{item.path} {show(gang.name)}", "", item.path)
    fields = Fields(spot, fields.inner)
    # Ended ones too: a group or seats being vacated may still name them.
    phase = Phase(fields.need("phase", '"phase": "pending"').one_of([each.value for each in Phase], "phase"))
    # Both or neither: seats without a start have no end, a start without seats is nowhere.
    for key in ("run", "seats"):
        if (fields.get(key) is not None) != phase.seated:
            spot.refuse(f"is {phase.value} and {'lacks' if phase.seated else 'has'} {key}")
    # Arrivals that are yet to come belong to whoever plays the state forward.
    if gang.submit_us > state.now_us:
        spot.refuse(f"is submitted at {gang.submit_us} µs, after now_us; a state knows nothing of the future")
    doomed = fields.get("doomed_by")
    entry = GangEntry(
        spot=spot,
        fields=fields,
        gang=gang,
        phase=phase,
        eligible_us=fields.need("eligible_us", '"eligible_us": 0').integer(0, MOST),
        curve=_parse_curve(fields.get("curve")),
        attempts=_count(fields, "attempts", TIMES_MOST),
        held=_flag(fields, "held"),
        waits_for=_parse_waits(state, fields, gang),
        doomed_by=doomed.text() if doomed else None,
        infeasible=_flag(fields, "infeasible"),
        fresh=_flag(fields, "fresh"),
        date=_parse_date(fields.get("date"), gang),
    )
    _parse_past(state, entry)
    return entry


def _parse_date(spot: Spot | None, gang: Gang) -> DateVerdict | None:
    if spot is None:
        return None
    if gang.deadline_us is None:
        spot.refuse("is said of a gang that has no deadline")
    fields = spot.fields(DATE_KEYS)
    earliest = fields.get("earliest_us")
    # Empty where nobody knows how long the gang runs: then there is no date to name.
    earliest_us = None if earliest is None else earliest.integer(0, MOST)
    return DateVerdict(-1, _flag(fields, "promised"), earliest_us, _count(fields, "beside", TIMES_MOST))


def _parse_curve(spot: Spot | None) -> tuple[tuple[int, float], ...] | None:
    if spot is None:
        return None
    points: list[tuple[int, float]] = []
    for item in spot.items():
        pair = item.items()
        # A list of pairs and not a mapping: JSON keys are texts, and points must keep their order.
        if len(pair) != 2:
            item.refuse("must be a pair [members, speed]")
        members, speed = pair[0].integer(1, MEMBERS_MAX), pair[1].parsed(exact_number)
        # Compared as an exact fraction, before it becomes a float.
        if not 0 < speed <= Fraction(10**9):
            pair[1].refuse(f"must be a speed above 0 (got {show(pair[1].value)})")
        # Ascending, since the curve is interpolated between neighbours.
        if points and points[-1][0] >= members:
            item.refuse("must have more members than the point before it")
        # A float from here on, as the in-job library reports it: curves are compared with nothing but themselves.
        points.append((members, float(speed)))
    if not points:
        spot.refuse("must not be empty; leave it out for a gang that reports no speed")
    return tuple(points)


def _parse_waits(state: State, fields: Fields, gang: Gang) -> frozenset[str]:
    spot = fields.get("waits_for")
    if spot is None:
        return NOTHING
    # Only what its spec names: nobody else's end would ever be told to it.
    found = [item.one_of(gang.after.names, "dependency") for item in spot.items()]
    for name in found:
        if name in state.dependencies.ended:
            spot.refuse(f"names {show(name)}, which has ended; nobody would ever tell it")
    return frozenset(found)


def _parse_past(state: State, entry: GangEntry) -> None:
    spot = entry.fields.get("past")
    if spot is None:
        return
    fields = spot.fields(PAST_KEYS)
    left, rests = fields.get("left_us"), fields.get("rests_until_us")
    entry.past = Past(
        evictions=_count(fields, "evictions", TIMES_MOST),
        failures=_count(fields, "failures", TIMES_MOST),
        attained_us=_count(fields, "attained_us"),
        left_us=left.integer(1, MOST) if left else None,
        forced=_flag(fields, "forced"),
        # Whether it rests and until when is one fact in the file, and two in the state: a flag and a timer.
        resting=rests is not None,
    )
    # Kept as it stands: it names other gangs, which may come later in the file.
    entry.lenders = fields.get("lenders")
    if entry.lenders is not None and entry.phase is not Phase.STARTING:
        entry.lenders.refuse(f"is said of a gang that is {entry.phase.value}; only a starting one waits for lenders")
    if rests is not None:
        if entry.phase is not Phase.PENDING:
            rests.refuse(f"is said of a gang that is {entry.phase.value}; only a pending one rests")
        # In the future, or the timer would have fired before the file was written.
        entry.rests_until_us = rests.integer(state.now_us + 1, MOST)


def restore_refusal(state: State, number: int, entry: GangEntry) -> None:
    """What was last refused about a gang; one that runs is not asked again before its rest is over."""
    spot = entry.fields.get("refused")
    if spot is None:
        return
    fields = spot.fields(REFUSED_KEYS)
    at_us = fields.need("at_us", '"at_us": 0').integer(0, state.now_us)
    words = fields.need("words", '"words": "no such node"').text()
    # May lie in the past: a refusal is remembered after its rest, so that the next one can be longer.
    until_us = _count(fields, "rests_until_us", MOST)
    state.refusals[number] = PlanRefusal(number, at_us, words, (), _count(fields, "times", TIMES_MOST), until_us)
    # A waiting one rests behind its gate, and has its timer from there.
    if until_us > state.now_us and entry.phase is not Phase.PENDING:
        state.set_timer(until_us, "retry", number, 0)


# ---- seats


def seat_running(state: State, number: int, entry: GangEntry) -> None:
    """Give a gang its row and its seats back."""
    gang, phase, spot = entry.gang, entry.phase, entry.spot
    run = entry.fields.need("run", '"run": {…}').fields(RUN_KEYS)
    length_us = run.need("length_us", '"length_us": 3600000000').integer(0, MOST)
    late = phase is Phase.STARTING
    start = run.need("start_us", '"start_us": 0')
    # Starting means that the seats are still somebody else's: such a start lies ahead, any other behind.
    start_us = start.integer(state.now_us + 1, MOST) if late else start.integer(0, state.now_us)
    guest = run.get("guest")
    kind = Guest[guest.one_of(GUESTS, "kind of guest").upper()] if guest else Guest.NO
    where = entry.fields.need("seats", '"seats": […]')
    seats = parse_seats(state, gang, where)
    # Read before anything is seated: every refusal of the file should name its place, not what came of it.
    degraded = _parse_degraded(entry)
    _check_whole(gang, phase, seats, where)
    _check_up(state, seats, where)
    # By the one way in which gangs are seated, with the sums that go with it; what
    # it sets otherwise is set right below.
    record = state.records[number]
    bind = Bind(number, seats, length_us, kind)
    # Seated first, checked next: what is below zero after it says which node, and the whole state is thrown away then.
    add_running(state, number, bind, start_us)
    _check_room(state, seats, where)
    state.hints.note_gang(gang, elastic=gang.elastic)
    columns, row = state.running.columns, record.row
    columns["saved_us"][row] = run.need("saved_us", '"saved_us": 0').integer(0, MOST)
    columns["cool_until_us"][row] = _count(run, "cool_until_us")
    columns["attained_us"][row] = _count(run, "attained_us")
    if degraded is not None:
        state.degraded[number] = degraded
    # Its row speaks of its hold: `length_us` is how long it keeps its seats, as `losses` wrote it.
    if phase is Phase.DEGRADED:
        columns["members"][row] = 0
        # As `losses` leaves it: nobody may take what it holds.
        columns["preemptible"][row] = columns["elastic"][row] = False
        until_us = start_us + length_us
        if until_us <= state.now_us:
            spot.refuse("is degraded, and the time for which it holds its seats is over")
        state.set_timer(until_us, "hold", number, past_of(record).token)
    if late:
        past = past_of(record)
        # What `tick` hands out when the seats are vacated.
        past.claim = bind
        past.lenders = _parse_lenders(state, entry.lenders)
        state.set_timer(start_us, "start", number, past.token)


def _parse_lenders(state: State, spot: Spot | None) -> dict[int, int]:
    found = {}
    for name, inner in spot.pairs() if spot else ():
        if name not in state.number_by_name:
            inner.refuse(f"names no gang of this file; {suggest(name, state.number_by_name)}")
        # Who is gone by now lends nothing, and the claim would have begun.
        found[state.number_by_name[name]] = inner.integer(state.now_us + 1, MOST)
    return found


def parse_seats(
    state: State, gang: Gang, spot: Spot, *, named: bool = True, partial: bool = False
) -> tuple[Seats, ...]:
    """Seats of every role, or if `partial` of some, in their order. `named`: with the devices that they take."""
    items, names = spot.items(), [role.name for role in gang.roles]
    found = [_parse_role_seats(state, gang, names, item, named=named) for item in items]
    roles = [seats.role for seats in found]
    # Seats are addressed by role index everywhere, so that their order is not a matter of taste.
    if roles != sorted(set(roles)) or (len(roles) < len(names) and not partial):
        spot.refuse(f"must have an entry for each of the roles {list_words(names)}, in this order (got {len(items)})")
    return tuple(found)


def _parse_role_seats(state: State, gang: Gang, names: list[str], item: Spot, *, named: bool) -> Seats:
    fields = item.fields(("role", "at"))
    index = names.index(fields.need("role", f'"role": "{names[0]}"').one_of(names, "role"))
    fleet, role = state.fleet, gang.roles[index]
    need = find_need(fleet, role.shape)
    if need.missing is not None:
        item.refuse(f"asks for {need.missing}, which no node has")
    nodes: list[int] = []
    counts: list[int] = []
    places = fields.need("at", '"at": [{"node": "a0", "members": 4}]').items()
    devices = np.zeros((len(places), fleet.device_capacity.shape[1]), dtype=np.int16)
    for row, place in enumerate(places):
        inner = place.fields(("node", "members", "devices"))
        node = fleet.index_by_name[inner.need("node", '"node": "a0"').one_of(fleet.names, "node")]
        # One row per node and role: seats are added and subtracted by node.
        if node in nodes:
            place.refuse(f"names {show(fleet.names[node])} twice in one role")
        nodes.append(node)
        # At least one: a node with nobody on it is no seat, and masks are read off the nodes.
        counts.append(inner.need("members", '"members": 4').integer(1, MEMBERS_MAX))
        _parse_devices(state, node, inner.get("devices"), devices[row])
        # Sums only; that shares sit on one device each is seen by the invariants.
        taken, asked = int(devices[row].sum()), counts[-1] * role.shape.amount(DEVICE_KIND)
        # A promise may name no devices at all, but not some of them.
        if taken != asked and (named or taken):
            place.refuse(f"takes {taken} thousandths of devices, and its members ask for {asked}")
    return Seats(index, np.array(nodes, dtype=np.int64), np.array(counts, dtype=np.int64), devices)


def _parse_devices(state: State, node: int, spot: Spot | None, row: np.ndarray) -> None:
    """Thousandths by device or by a run of them, as {"0-7": 1000}."""
    present = int((state.fleet.device_capacity[node] > 0).sum())
    for key, inner in spot.pairs() if spot else ():
        match = _DEVICES.fullmatch(key)
        # (1, 0) is an empty run, which the next line refuses like one that is out of range.
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < present:
            inner.refuse(f"names no devices of {show(state.fleet.names[node])}, which has {present}; write 0 or 0-7")
        # Runs may overlap, as "0-3" and "2": the later one would win in silence.
        if row[first : last + 1].any():
            inner.refuse("names a device twice")
        row[first : last + 1] = inner.integer(1, MILLI)


def _parse_degraded(entry: GangEntry) -> Degraded | None:
    spot = entry.fields.get("hurt")
    if spot is None:
        if entry.phase is Phase.DEGRADED:
            entry.spot.refuse('is hurt and does not say what it lost; write "hurt": {"lost": [1], "whole": false}')
        return None
    fields = spot.fields(("lost", "whole"))
    lost = tuple(item.integer(0, MEMBERS_MAX) for item in fields.need("lost", '"lost": [1]').items())
    if len(lost) != len(entry.gang.roles):
        spot.refuse(f"lost must have a number for each of the {len(entry.gang.roles)} roles (got {len(lost)})")
    whole = fields.need("whole", '"whole": false').boolean()
    # `whole` is the one that runs on with fewer members; any other is degraded and runs nothing.
    if whole != (entry.phase is Phase.RUNNING):
        spot.refuse(f"whole is {show(whole)}, and the gang is {entry.phase.value}")
    return Degraded(lost, whole)


def _check_whole(gang: Gang, phase: Phase, seats: tuple[Seats, ...], where: Spot) -> None:
    for role, each in zip(gang.roles, seats, strict=True):
        if phase is Phase.DEGRADED:
            if each.members > role.sizes.most:
                where.refuse(f"has {each.members} members of role {show(role.name)}, more than its most")
        # Whole or absent. One that was hurt has what is left, which need not be any of its sizes.
        elif each.members not in role.sizes.allowed:
            sizes = f"{role.sizes.least} to {role.sizes.most}" if role.sizes.elastic else str(role.sizes.least)
            where.refuse(f"has {each.members} members of role {show(role.name)}, and it may have {sizes}")


def _check_up(state: State, seats: tuple[Seats, ...], where: Spot) -> None:
    for each in seats:
        for node in each.nodes.tolist():
            # Cordoned is fine: whoever was there before may stay. Down is not: it would have been lost with the node.
            if not state.nodes.up[node]:
                where.refuse(f"has members on {show(state.fleet.names[node])}, which is not up")


def _check_room(state: State, seats: tuple[Seats, ...], where: Spot) -> None:
    for each in seats:
        for node in each.nodes.tolist():
            # Amounts and devices: two gangs may fit by the sums and still name one device.
            if bool((state.nodes.free[node] < 0).any() or (state.nodes.device_free[node] < 0).any()):
                where.refuse(f"takes more than {show(state.fleet.names[node])} has left; a device is given once")


def _flag(fields: Fields, key: str) -> bool:
    spot = fields.get(key)
    return spot.boolean() if spot else False


def _count(fields: Fields, key: str, most: int = MOST) -> int:
    spot = fields.get(key)
    return spot.integer(0, most) if spot else 0
