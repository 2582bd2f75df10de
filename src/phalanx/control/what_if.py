"""What would happen if: the same cluster run forward twice, as it is and with a change.

Both runs start from one restored state and go on by what is believed (`control.belief`): nobody fails, nobody new
comes, and everybody runs for its walltime. The answer is the difference, gang by gang, as values; `tree_of` is the
JSON of schema `phalanx.what-if/1`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from phalanx.control.belief import Belief
from phalanx.control.explain import explain_pending
from phalanx.control.forward import Arrival, Forward, Happens
from phalanx.control.restore import Restored
from phalanx.control.spec.writing import seconds
from phalanx.control.state import State
from phalanx.engine.lifecycle import Phase
from phalanx.engine.policy import Policy
from phalanx.model.fleet import Node
from phalanx.model.plan import Bind, Plan
from phalanx.model.reason import Code

SCHEMA: Final = "phalanx.what-if/1"

Tree = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Changes:
    """What is done differently, all of it now."""

    add_nodes: tuple[Node, ...] = ()
    remove_nodes: tuple[str, ...] = ()
    cancel: tuple[str, ...] = ()
    add_gangs: tuple[Arrival, ...] = ()

    def events(self, now_us: int) -> list[Happens]:
        """In the words of the virtual clock: who comes first, so that whoever loses a node may find another."""
        return [
            *(Happens(now_us, "add", node=node.name, added=node) for node in self.add_nodes),
            *(Happens(now_us, "remove", node=name) for name in self.remove_nodes),
            *(Happens(now_us, "cancel", gang=name) for name in self.cancel),
        ]


NONE: Final = Changes()


@dataclass(frozen=True, slots=True)
class Change:
    """Something that happened to a gang, with its members afterwards."""

    at_us: int
    event: str  # bind grow shrink move lose repair restart evict yield complete fail cancel
    members: int


@dataclass(slots=True)
class Fate:
    """What becomes of one gang."""

    name: str
    was: str  # where it stood at first; "new" if it came with the change
    state: str = ""  # where it stands at last
    start_us: int | None = None  # of a gang that runs at first, the start of that attempt
    end_us: int | None = None
    members: int = 0  # the last that ran
    events: list[Change] = field(default_factory=list)
    reason: tuple[str, str] | None = None  # code and sentence, if it does not run

    def count(self, *events: str) -> int:
        """How often one of these happened to it."""
        return sum(change.event in events for change in self.events)


@dataclass(frozen=True, slots=True)
class Outlook:
    """Everybody's fate under one policy, from now on."""

    policy: str
    now_us: int
    fates: dict[str, Fate]

    def happens_now(self) -> list[tuple[str, Change]]:
        """What is decided at once."""
        return [
            (fate.name, change) for fate in self.fates.values() for change in fate.events if change.at_us == self.now_us
        ]


class Chronicle:
    """Writes down what becomes of everybody."""

    def __init__(self, state: State) -> None:
        """Everybody as they stand now."""
        self.state = state
        self.fates: dict[int, Fate] = {}
        for number, record in enumerate(state.records):
            if record.phase.ended:
                continue
            fate = self.fates[number] = Fate(record.gang.name, record.phase.value)
            if record.phase is Phase.RUNNING:
                fate.start_us = int(state.running.columns["start_us"][record.row])
                fate.members = int(state.running.columns["members"][record.row])

    def on_submit(self, number: int, at_us: int) -> None:
        """A gang arrived."""
        self.fates[number] = Fate(self.state.gangs[number].name, "new")

    def on_bind(self, bind: Bind, at_us: int) -> None:
        """A gang started."""
        fate = self.fates[bind.gang]
        fate.start_us = at_us if fate.start_us is None else fate.start_us
        self._note(fate, at_us, "bind", bind.members)

    def on_change(self, number: int, at_us: int, event: str) -> None:
        """A gang that holds seats changed."""
        fate, record = self.fates[number], self.state.records[number]
        if event in ("repair", "restart") and fate.start_us is None:
            fate.start_us = at_us  # it was degraded at first
        self._note(fate, at_us, event, int(self.state.running.columns["members"][record.row]))

    def on_end(self, number: int, at_us: int, how: str) -> None:
        """A gang ended, or gave all its seats back."""
        fate = self.fates[number]
        if how in ("complete", "fail", "cancel"):
            fate.end_us = at_us
        self._note(fate, at_us, how, 0)

    def on_capacity(self, at_us: int) -> None:
        """Nodes come and go; that is the question, not the answer."""

    def on_plan(self, plan: Plan, at_us: int) -> None:
        """A cycle decided; what came of it is told by the others."""

    def _note(self, fate: Fate, at_us: int, event: str, members: int) -> None:
        fate.events.append(Change(at_us, event, members))
        fate.members = members or fate.members


class Ahead(Forward):
    """A run over the virtual clock that begins with a cluster at work, and believes what it is told."""

    def __init__(self, state: State, policy: Policy) -> None:
        """Everybody who runs is expected to end as they say."""
        belief = Belief(state)
        self.chronicle = Chronicle(state)
        super().__init__(state, policy, belief, self.chronicle)
        for end in belief.ends_now():
            self.expect(end)


def look_ahead(restored: Restored, policy: Policy, changes: Changes = NONE, until_us: int | None = None) -> Outlook:
    """Play a restored state forward from now, with changes, until nothing happens any more or an instant."""
    state, now_us = restored.state, restored.state.now_us
    ahead = Ahead(state, policy)
    drains = [Happens(now_us, "drain", node=name, by_us=by_us) for name, by_us in restored.drains.items()]
    # A word that nobody understands makes an instant of now: one pass, whatever else happens.
    events = [Happens(now_us, "look"), *drains, *changes.events(now_us)]
    ahead.run(changes.add_gangs, events, until_us)
    if until_us is not None and (len(state.running) or len(state.pending)):
        state.look_from(until_us)
    _conclude(state, policy, ahead.chronicle)
    return Outlook(policy.name, now_us, {fate.name: fate for fate in ahead.chronicle.fates.values()})


def _conclude(state: State, policy: Policy, chronicle: Chronicle) -> None:
    """Where everybody stands at last, and why those do not run who do not."""
    reasons = explain_pending(state, policy)
    for number, fate in chronicle.fates.items():
        fate.state = state.records[number].phase.value
        told = reasons.get(number)
        if told is None:
            continue
        fate.reason = (told[0].word, told[1])
        if told[0] in (Code.INFEASIBLE, Code.DEADLINE_UNREACHABLE):
            fate.state = "infeasible"


# ---- the difference


@dataclass(frozen=True, slots=True)
class Answer:
    """Both outlooks, and everybody who is in either, in order of arrival."""

    before: Outlook
    after: Outlook
    names: tuple[str, ...]


def compare(before: Outlook, after: Outlook) -> Answer:
    """Put two outlooks side by side."""
    return Answer(before, after, tuple(dict.fromkeys([*before.fates, *after.fates])))


def sum_up(outlook: Outlook) -> Tree:
    """Totals of one outlook. Waits count from now: what was waited before is the same on both sides."""
    fates = outlook.fates.values()
    waiting = [fate for fate in fates if fate.was in ("pending", "starting", "hurt", "new")]
    waits = [fate.start_us - outlook.now_us for fate in waiting if fate.start_us is not None]
    ends = [fate.end_us for fate in fates if fate.end_us is not None and fate.state == "completed"]
    return {
        "gangs": len(outlook.fates),
        "completed": sum(fate.state == "completed" for fate in fates),
        "start_now": sum(fate.start_us == outlook.now_us for fate in waiting),
        "start_later": sum(fate.start_us is not None and fate.start_us > outlook.now_us for fate in waiting),
        "do_not_start": sum(fate.start_us is None and fate.state != "cancelled" for fate in waiting),
        "wait_s_mean": seconds(round(sum(waits) / len(waits))) if waits else None,
        "end_s_mean": seconds(round(sum(ends) / len(ends)) - outlook.now_us) if ends else None,
        "end_s_last": seconds(max(ends) - outlook.now_us) if ends else None,
        "evictions": sum(fate.count("evict") for fate in fates),
        "yields": sum(fate.count("yield") for fate in fates),
        "resizes": sum(fate.count("grow", "shrink") for fate in fates),
        "moves": sum(fate.count("move") for fate in fates),
    }


def tree_of(answer: Answer, changes: Tree, until_us: int | None, notes: Sequence[str] = ()) -> Tree:
    """The JSON, schema `phalanx.what-if/1`. Times are seconds of the cluster's clock, as in the dump."""
    before, after = answer.before, answer.after
    return {
        "schema": SCHEMA,
        "now_s": seconds(before.now_us),
        "until_s": None if until_us is None else seconds(until_us),
        "changes": changes,
        "policy": {"before": before.policy, "after": after.policy},
        "starts_now": {side: _names(outlook, "bind") for side, outlook in (("before", before), ("after", after))},
        "evicted_now": {side: _names(outlook, "evict") for side, outlook in (("before", before), ("after", after))},
        "shrunk_now": {side: _names(outlook, "shrink") for side, outlook in (("before", before), ("after", after))},
        "gangs": [_gang_tree(answer, name) for name in answer.names],
        "totals": {"before": sum_up(before), "after": sum_up(after)},
        "notes": list(notes),
    }


def _names(outlook: Outlook, event: str) -> list[str]:
    return [name for name, change in outlook.happens_now() if change.event == event]


def _gang_tree(answer: Answer, name: str) -> Tree:
    before, after = answer.before.fates.get(name), answer.after.fates.get(name)
    known = after or before
    assert known is not None
    return {
        "name": name,
        "state": known.was if before is None else before.was,
        "before": None if before is None else _fate_tree(before),
        "after": None if after is None else _fate_tree(after),
        "start_change_s": _difference(*(fate.start_us if fate else None for fate in (before, after))),
        "end_change_s": _difference(*(fate.end_us if fate else None for fate in (before, after))),
    }


def _fate_tree(fate: Fate) -> Tree:
    return {
        "state": fate.state,
        "start_s": None if fate.start_us is None else seconds(fate.start_us),
        "end_s": None if fate.end_us is None else seconds(fate.end_us),
        "members": fate.members,
        "events": [
            {"at_s": seconds(change.at_us), "event": change.event, "members": change.members} for change in fate.events
        ],
        "reason": None if fate.reason is None else dict(zip(("code", "message"), fate.reason, strict=True)),
    }


def _difference(before_us: int | None, after_us: int | None) -> int | float | None:
    """How much later; negative: earlier; None unless it happens on both sides."""
    return None if before_us is None or after_us is None else seconds(after_us - before_us)


def list_unproven(gangs: Iterable[Arrival], restored: Restored) -> list[str]:
    """Gangs whose run time nobody stated and that report no progress, so that the default stands in for it."""
    found = []
    for record in restored.state.records:
        reports = record.gang.elastic and record.phase is Phase.RUNNING
        reports = reports or (record.history is not None and record.history.left_us is not None)
        if record.gang.walltime_us is None and not record.phase.ended and not reports:
            found.append(record.gang.name)
    return [*found, *(arrival.gang.name for arrival in gangs if arrival.gang.walltime_us is None)]
