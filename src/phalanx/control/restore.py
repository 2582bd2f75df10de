"""A dumped state back into a `State`: the other direction of `control.dump`.

A file may come from anywhere, so everything that could not be true is refused with its place in the file: seats on
nodes that are down, more taken than there is, a gang below its least, a start in the future of a gang that runs.
Hints that only save time (who was refused since when) are not in a dump; the first cycle works them out anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from phalanx.control import gates_file
from phalanx.control.belief import AS_STATED, RunTimes
from phalanx.control.dump import SCHEMA
from phalanx.control.gates import Gates
from phalanx.control.records import Record
from phalanx.control.restore_gangs import GangEntry, parse_entry, parse_seats, restore_refusal, seat_running
from phalanx.control.seating import crumb_gang, keep_busy
from phalanx.control.spec.cluster import parse_nodes
from phalanx.control.spec.errors import BadInput, show, suggest
from phalanx.control.spec.gangs import Known
from phalanx.control.spec.queues import parse_queues
from phalanx.control.spec.reader import parse_text
from phalanx.control.spec.spot import Fields, Spot
from phalanx.control.state import State
from phalanx.control.waiting import queue_up
from phalanx.engine.invariants import check_snapshot
from phalanx.engine.lifecycle import ENDED, Phase
from phalanx.model.fleet import Fleet, Node, list_labels
from phalanx.model.form import form_at_sizes
from phalanx.model.gang import Shape
from phalanx.model.plan import Reservation, Seats
from phalanx.model.queue import UserLimit
from phalanx.model.window import Window
from phalanx.policy import LENGTHS

#: Beyond any clock or sum of times that a state can hold, and inside 64 bits with room for a sum.
MOST: Final = 1 << 61

TOP_KEYS: Final = (
    *("schema", "now_us", "policy", "default_walltime_us", "evictions_in_vain", "devices_split", "levels", "nodes"),
    *("queues", "decayed", "users", "windows", "ended", "gangs", "started", "groups", "pins", "vacating", "promises"),
    *gates_file.TOP_KEYS,
)
NODE_KEYS: Final = ("spec", "up", "open", "draining", "drain_by_us", "kills_us", "suspect_until_us")
WINDOW_KEYS: Final = ("name", "nodes", "start_us", "end_us", "users", "queues")
HOW_TO: Final = "make one with: phalanx what-if --from SCENARIO --at 1h -o STATE.json"


@dataclass(slots=True)
class Restored:
    """A state, and what its file says beside it."""

    state: State
    policy: tuple[str, Mapping[str, object]] | None = None  # what it ran under
    drains: dict[str, int] = field(default_factory=dict)  # when drained nodes must be empty, by name
    gates: Gates = field(default_factory=Gates)
    runs: RunTimes = AS_STATED


def read_state(path: Path) -> Spot:
    """The tree of a dumped state, checked to be one; `restore_state` makes as many states of it as are wanted."""
    try:
        # With a byte order mark or without: some editors put one in, and JSON does not take it.
        text = path.read_text(encoding="utf-8-sig")
    except OSError as bad:
        raise BadInput(f"cannot be read: {bad.strerror or bad}", file=str(path)) from None
    except ValueError:
        raise BadInput(f"is not UTF-8 text; is it a dumped state at all? {HOW_TO}", file=str(path)) from None
    # JSON unless the name says otherwise: that is what a dump is, whatever its file is called.
    suffix = path.suffix.lower() if path.suffix.lower() in (".yaml", ".yml", ".toml") else ".json"
    spot = Spot(parse_text(text, str(path), suffix), str(path))
    value = spot.value
    # The likeliest mistake by far, and the words about a missing schema would not tell it.
    if isinstance(value, dict) and "schema" not in value and "gangs" in value and "cluster" in value:
        spot.refuse("is a scenario, not a dumped state; use it with: phalanx what-if --from SCENARIO --at 1h")
    if not isinstance(value, dict) or "schema" not in value:
        spot.refuse(f"is no dumped state; {HOW_TO}")
    found = value["schema"].value
    if found != SCHEMA:
        spot.refuse(f"schema must be {show(SCHEMA)} (got {show(found)}); {HOW_TO}")
    return spot


def restore_state(spot: Spot) -> Restored:
    """A fresh state that knows what the file tells."""
    return _Restoring(spot).run()


class _Restoring:
    """One file on its way into a state, part by part."""

    def __init__(self, spot: Spot) -> None:
        self.spot, self.fields = spot, spot.fields(TOP_KEYS)
        # First of all: nearly every other time in the file is checked against it.
        self.now_us = self._need("now_us", "now_us: 3600000000").integer(0, MOST)
        self.entries: dict[str, GangEntry] = {}

    def run(self) -> Restored:
        """Nodes and tenants first, then the gangs, then who sits where, then what was promised."""
        # In this order, because each part may name only what the part before it has brought: gangs name queues, seats
        # name gangs and nodes, promises name seats.
        fields, found = self.fields, Restored(self._make_state(), self._policy())
        self._restore_nodes(found)
        self._restore_gangs()
        inner = {name: entry.fields for name, entry in self.entries.items()}
        found.gates = gates_file.read_gates(fields, inner, self._check_gated)
        found.runs = gates_file.read_beliefs(fields, inner, lambda name: self.entries[name].phase.seated)
        self._restore_groups()
        # Seats before what is being vacated, which may take only what they leave.
        self._seat()
        for number, record in enumerate(self.state.records):
            if record.phase is Phase.PENDING:
                # After everybody sits, and in the order of numbers: rows of those who wait stand
                # by arrival, which `in_order` claims.
                queue_up(self.state, number, record)
        self._restore_vacating()
        # After the seats: `pin` makes its gang fresh, which is put right below, and
        # voids its promise, which comes last.
        self._restore_pins()
        # By the first gang of a group, as the engine looks them up.
        self.state.promises = {
            promise.gangs[0]: promise for promise in map(self._promise, _items(fields.get("promises")))
        }
        # Queueing up counts as news; what no cycle has looked at is in the file.
        self.state.fresh = {self.state.number_by_name[name] for name, entry in self.entries.items() if entry.fresh}
        # Each part was checked where it stands in the file; what only shows in all of them together is left to the same
        # invariants that tests hold the engine to.
        broken = check_snapshot(self.state.snapshot())
        if broken:
            self.spot.refuse(f"cannot be true: {broken[0].story}")
        return found

    def _need(self, key: str, example: str) -> Spot:
        return self.fields.need(key, example)

    # ------------------------------------------------------------------ the cluster

    def _make_state(self) -> State:
        fields = self.fields
        levels = tuple(item.text() for item in _items(fields.get("levels")))
        nodes = self._parse_nodes()
        queues = parse_queues(fields.get("queues"))
        # What a gang may name is what this file has, not what the cluster had: a dump stands for itself.
        self.known = Known([queue.name for queue in queues], levels, list_labels(nodes))
        users = [_user(item) for item in _items(fields.get("users"))]
        if len({user.name for user in users}) != len(users):
            self._need("users", "users: []").refuse("name somebody twice")
        # Windows may name only nodes of this file.
        names = {node.name for node in nodes}
        windows = [_window(item.titled(), names, self.known.queues) for item in _items(fields.get("windows"))]
        walltime_us = self._need("default_walltime_us", "default_walltime_us: 86400000000").integer(1, MOST)
        state = self.state = State(Fleet(nodes, levels), queues, users, windows, walltime_us)
        state.now_us = self.now_us
        # Before anybody is seated: from here on it decides whether devices are looked at.
        state.nodes.shared = _flag(fields, "devices_split", default=False)
        state.evictions_in_vain = _count(fields, "evictions_in_vain", 0)
        for name, inner in _pairs(fields.get("ended")):
            ways = [phase.value for phase in Phase if phase in ENDED]
            state.dependencies.ended[name] = Phase(inner.one_of(ways, "way to end"))
        self._restore_decayed()
        return state

    def _parse_nodes(self) -> list[Node]:
        nodes: list[Node] = []
        where = self._need("nodes", 'nodes: [{"spec": {"name": "a0", "resources": {"gpu": 8}}}]')
        for item in where.items():
            spec = item.fields(NODE_KEYS).need("spec", '"spec": {"name": "a0", "resources": {"gpu": 8}}')
            # By the reader of scenario files: one schema for a node, with one set of refusals.
            made = parse_nodes(spec.titled())
            if len(made) != 1:
                spec.refuse("must describe one node; a dump has no host lists")
            if any(node.name == made[0].name for node in nodes):
                spec.titled().refuse(f"there is already a node {show(made[0].name)}; names are unique")
            nodes += made
        if not nodes:
            where.refuse("must not be empty; a cluster has at least one node")
        return nodes

    def _restore_nodes(self, found: Restored) -> None:
        state = self.state
        for index, item in enumerate(self._need("nodes", "nodes: […]").items()):
            fields = item.fields(NODE_KEYS)
            state.nodes.up[index] = _flag(fields, "up", default=True)
            state.nodes.open[index] = _flag(fields, "open", default=True)
            state.nodes.draining[index] = _flag(fields, "draining", default=False)
            # A drain is a cordon and more (rule 15); the other way round no event could have made it so.
            if state.nodes.draining[index] and state.nodes.open[index]:
                item.refuse("drains and is open; a draining node has open: false")
            by = fields.get("drain_by_us")
            if by is not None:
                found.drains[state.fleet.names[index]] = by.integer(self.now_us + 1, MOST)
            kills = [kill.integer(0, self.now_us) for kill in _items(fields.get("kills_us"))]
            if kills:
                state.nodes.suspicion.kills[index] = kills
            until = fields.get("suspect_until_us")
            if until is not None:
                state.nodes.suspicion.until_us[index] = until.integer(self.now_us + 1, MOST)
                state.nodes.suspicion.trusted[index] = False
                # Timers are not in the file: each is set anew from the fact that it stands for.
                state.set_timer(state.nodes.suspicion.until_us[index], "trust", index, 0)
        # Once, after all: who is in service is worked out anew, and there are no promises yet that it could void.
        state.nodes_changed()

    def _restore_decayed(self) -> None:
        tenants, fleet = self.state.tenants, self.state.fleet
        # `decay` notes up to when the past has faded; with no half-life it would note nothing, and the first step of
        # time would let the restored past fade from zero on.
        tenants.half_life_us = 1  # for a moment: the past was brought up to now before it was written
        tenants.decay(self.now_us)
        tenants.half_life_us = None
        names = list(tenants.queue_columns.names)
        for name, amounts in _pairs(self.fields.get("decayed")):
            if name not in names:
                amounts.refuse(f"names no queue of this file; {suggest(name, names)}")
            for kind, units in amounts.pairs():
                if kind not in fleet.kind_index:
                    units.refuse(f"names a kind that no node has; {suggest(kind, fleet.kinds)}")
                # By name: kinds may stand in another order on the fleet that this is read into.
                row, column = names.index(name), fleet.kind_index[kind]
                tenants.queue_columns.decayed[row, column] = units.integer(0, MOST)

    def _policy(self) -> tuple[str, Mapping[str, object]] | None:
        spot = self.fields.get("policy")
        if spot is None:
            return None
        options: dict[str, object] = {}
        name = ""
        for key, inner in spot.pairs():
            if key == "name":
                name = inner.text()
            else:
                # `rotate` takes a length of time, or a plain yes or no.
                timed = key in LENGTHS and not isinstance(inner.value, bool)
                options[key] = inner.length_us() if timed else inner.value
        if not name:
            spot.refuse('has no name; write {"name": "easy"}')
        return name, options

    # ------------------------------------------------------------------ gangs

    def _restore_gangs(self) -> None:
        state = self.state
        for item in _items(self.fields.get("gangs")):
            entry = parse_entry(state, item, self.known)
            name = entry.gang.name
            if name in self.entries:
                item.refuse(f"there is already a gang {show(name)}; names are unique")
            self.entries[name] = entry
            # Numbers follow the order in the file, which is the order of arrival that ties break by.
            # Not by `submit`: that would queue it, number its group and tell dependents,
            # all of which the file says by itself.
            number = len(state.gangs)
            state.gangs.append(entry.gang)
            state.number_by_name[name] = number
            queue, user = state.tenants.index_of(entry.gang.queue, entry.gang.user)
            # For all, those that run included: an evicted gang queues again by its form.
            form = state.intern(state.forms.of_gang(state.fleet, entry.gang))
            record = Record(
                gang=entry.gang,
                phase=entry.phase,
                form=form,
                queue=queue,
                user=user,
                eligible_us=entry.eligible_us,
                row=-1,
                waits_for=entry.waits_for,
                held=entry.held,
                attempts=entry.attempts,
                doomed_by=entry.doomed_by,
                history=entry.past,
            )
            state.records.append(record)
            if entry.curve is not None:
                state.curves[number] = entry.curve
            # Judged before it was dumped: it was told once, and would be told again.
            if entry.infeasible:
                state.judged.add(number)
            if entry.date is not None:
                state.dates[number] = replace(entry.date, gang=number)
            if entry.rests_until_us is not None:
                # Token 0, which is what a fresh `Past` has.
                state.set_timer(entry.rests_until_us, "rest", number, 0)
            restore_refusal(state, number, entry)
            # Who waits for a name is `waits_for` the other way round, and not in the file: two accounts could disagree.
            for dependency in (name for name in entry.gang.after.names if name in entry.waits_for):
                state.dependencies.wait(number, dependency)

    def _check_gated(self, name: str, fields: Fields) -> None:
        entry = self.entries[name]
        # The engine knows a gate as a hold: without one it would start while its gates are shut.
        if not entry.held or entry.phase is not Phase.PENDING:
            entry.spot.refuse("has gates, and is not pending with held: true")

    def _restore_groups(self) -> None:
        state = self.state
        for item in _items(self.fields.get("groups")):
            fields = item.fields(("word", "wanted", "gangs"))
            word = fields.need("word", '"word": "p1"').text()
            numbers = [self._gang(each) for each in fields.need("gangs", '"gangs": ["A"]').items()]
            # More than are here is fine, they are yet to come; fewer could never have been.
            wanted = fields.need("wanted", '"wanted": 2').integer(max(1, len(numbers)), MOST)
            index = state.groups.open(word, wanted, numbers)
            for number in numbers:
                together = state.gangs[number].together
                # The spec says it too, and a file that contradicts itself is refused rather than believed in part.
                if together is None or together.word != word:
                    item.refuse(
                        f"names {show(state.gangs[number].name)}, whose spec does not say together {show(word)}"
                    )
                state.records[number].group = index
            # A group that is complete has a form, by which it is placed; one that is not has a gate.
            if len(numbers) == wanted:
                least = [(state.gangs[n], tuple(r.sizes.least for r in state.gangs[n].roles)) for n in numbers]
                state.groups.complete(index, state.intern(form_at_sizes(state.fleet, tuple(least))))
        for entry, record in zip(self.entries.values(), state.records, strict=True):
            waits = record.phase is Phase.PENDING and not record.attempts and record.gang.together is not None
            # It would have no gate and start alone.
            if waits and record.group < 0:
                entry.spot.refuse("waits to start together with others, but groups does not name it")

    def _gang(self, spot: Spot) -> int:
        return self.state.number_by_name[spot.one_of(self.entries, "gang")]

    # ------------------------------------------------------------------ who sits where

    def _seat(self) -> None:
        """In the order in which they started: whoever reads the rows one after the other sees what was dumped."""
        started = self.fields.get("started")
        seated = [name for name, entry in self.entries.items() if entry.phase.seated]
        order = [item.one_of(seated, "gang with seats") for item in _items(started)]
        # Nobody is seated at the end for lack of an entry: the order decides rows, and rows decide sums and lists.
        missing = next((name for name in seated if name not in order), None)
        if missing is not None:
            (started or self.spot).refuse(f"{'' if started else 'started '}lacks {show(missing)}, which has seats")
        if len(set(order)) != len(order):
            (started or self.spot).refuse("names a gang twice")
        for name in order:
            seat_running(self.state, self.state.number_by_name[name], self.entries[name])

    def _restore_vacating(self) -> None:
        state = self.state
        for item in _items(self.fields.get("vacating")):
            fields = item.fields(("gang", "since_us", "until_us", "seats", "rests", "lenders"))
            # The gang itself may have ended; it is in the file for this.
            record = state.records[self._gang(fields.need("gang", '"gang": "A"'))]
            leaver, rests = record.gang, _items(fields.get("rests"))
            if rests:
                shapes = [Shape(tuple(sorted(each.amounts().items()))) for each in rests]
                # The gang has no role of such a shape, so one is made up that has.
                record = replace(record, gang=crumb_gang(leaver, shapes))
            since_us = fields.need("since_us", '"since_us": 0').integer(0, self.now_us)
            until_us = fields.need("until_us", '"until_us": 0').integer(self.now_us + 1, MOST)
            where = fields.need("seats", '"seats": [{"role": "member", "at": []}]')
            kept = tuple(each for each in parse_seats(state, record.gang, where, partial=True) if len(each.nodes))
            before = len(state.vacating)
            lenders = tuple(self._gang(each) for each in _items(fields.get("lenders")))
            keep_busy(state, record, kept, until_us, leaver, lenders)
            # `keep_busy` takes only what is free and does not complain; here less than all of it is a fault of the
            # file.
            ghost = state.vacating[-1][1] if len(state.vacating) > before else None
            if ghost is None or _members(ghost.seats) != _members(kept):
                item.refuse("takes more than the nodes have left")
            columns = state.running.columns
            # As it was dumped and not as of now: a state must come back equal, or two dumps in a row would differ.
            columns["start_us"][ghost.row], columns["length_us"][ghost.row] = since_us, until_us - since_us

    def _restore_pins(self) -> None:
        for name, inner in _pairs(self.fields.get("pins")):
            # A wish for a gang that is not there could never be kept, and is most likely a misspelt name.
            if name not in self.entries:
                inner.refuse(f"names no gang of this file; {suggest(name, self.entries)}")
            if not self.state.pin(self.state.number_by_name[name], inner.integer(1, MOST)):
                inner.refuse(f"is no size that {show(name)} may have (got {show(inner.value)})")

    def _promise(self, item: Spot) -> Reservation:
        fields = item.fields(("gangs", "start_us", "end_us", "seats"))
        numbers = tuple(self._gang(each) for each in fields.need("gangs", '"gangs": ["A"]').items())
        where = fields.need("seats", '"seats": [[{"role": "member", "at": []}]]')
        places = where.items()
        if not numbers or len(places) != len(numbers):
            where.refuse(f"must have a list of seats for each of the {len(numbers)} gangs (got {len(places)})")
        for number in numbers:
            # A promise is of a start; whoever has started has had it.
            if self.state.records[number].phase is not Phase.PENDING:
                item.refuse(f"promises a start to {show(self.state.gangs[number].name)}, which does not wait")
        start_us = fields.need("start_us", '"start_us": 0').integer(0, MOST)
        end_us = fields.need("end_us", '"end_us": 0').integer(start_us, MOST)
        seats = [
            # Devices of a promise are named at its start, unless one was ever split.
            parse_seats(self.state, self.state.gangs[number], place, named=False)
            for number, place in zip(numbers, places, strict=True)
        ]
        return Reservation(numbers, start_us, end_us, tuple(seats))


def _user(spot: Spot) -> UserLimit:
    fields = spot.fields(("name", "limit"))
    limit = fields.get("limit")
    # Gangs that name nobody belong to a user without a name.
    raw = fields.inner.get("name")
    name = "" if raw is not None and raw.value == "" else fields.need("name", '"name": "ada"').text()
    return UserLimit(name, limit.amounts() if limit else {})


def _window(item: Spot, nodes: set[str], queues: object) -> Window:
    assert isinstance(queues, list)
    fields = item.fields(WINDOW_KEYS)
    start_us = fields.need("start_us", '"start_us": 0').integer(0, MOST)
    return Window(
        name=fields.need("name", '"name": "maintenance-0"').text(),
        nodes=tuple(each.one_of(nodes, "node") for each in fields.need("nodes", '"nodes": ["a0"]').items()),
        start_us=start_us,
        end_us=fields.need("end_us", '"end_us": 1').integer(start_us + 1, MOST),
        users=tuple(each.text() for each in _items(fields.get("users"))),
        queues=tuple(each.one_of(queues, "queue") for each in _items(fields.get("queues"))),
    )


def _members(seats: tuple[Seats, ...]) -> int:
    return sum(each.members for each in seats)


def _items(spot: Spot | None) -> list[Spot]:
    return spot.items() if spot else []


def _pairs(spot: Spot | None) -> list[tuple[str, Spot]]:
    return spot.pairs() if spot else []


def _flag(fields: Fields, key: str, *, default: bool) -> bool:
    spot = fields.get(key)
    return spot.boolean() if spot else default


def _count(fields: Fields, key: str, default: int) -> int:
    spot = fields.get(key)
    return spot.integer(0, MOST) if spot else default
