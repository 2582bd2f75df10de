"""What would happen if: the same cluster run forward twice, as it is and with a change.

Both runs start from one restored state and go on by what is believed (`control.look_ahead`): nobody fails, nobody new
comes, and everybody runs for its walltime. The answer is the difference, gang by gang, as values; `tree_of` is the
JSON of schema `phalanx.what-if/1`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from phalanx.control.explain import explain_pending
from phalanx.control.forward import Arrival, Happens
from phalanx.control.gates import Gates
from phalanx.control.look_ahead import Change, Fate, Outlook, Until, look_ahead
from phalanx.control.restore import Restored
from phalanx.control.spec.writing import seconds
from phalanx.control.state import State
from phalanx.engine.lifecycle import Phase
from phalanx.engine.policy import Policy
from phalanx.model.fleet import Node
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


def play(restored: Restored, policy: Policy, changes: Changes = NONE, until_us: int | None = None) -> Outlook:
    """Play a restored state forward from now, with changes, until nothing happens any more or an instant."""
    # Used up by the look: whoever wants two sides restores the file twice.
    state, now_us = restored.state, restored.state.now_us
    # The state knows that a node drains; until when is known to whoever drives it, and comes with the file.
    drains = [Happens(now_us, "drain", node=name, by_us=by_us) for name, by_us in restored.drains.items()]
    events = [*drains, *changes.events(now_us)]
    # Both sides go through here, the unchanged one with no changes: a difference can only come from the change.
    until, gates = Until(at_us=until_us), restored.gates
    outlook = look_ahead(state, policy, restored.runs, until, arrivals=changes.add_gangs, events=events, gates=gates)
    # With everybody done the last event is the end of it, and no later instant says anything new.
    if until_us is not None and (len(state.running) or len(state.pending)):
        # Else the reasons would be those of the last event before, which may lie hours back.
        state.look_from(until_us)
    _say_why(outlook, state, policy, gates)
    return outlook


def _say_why(outlook: Outlook, state: State, policy: Policy, gates: Gates) -> None:
    """Why those do not run who do not. Costs a pass of its own, so that not every look has it."""
    for number, told in explain_pending(state, policy).items():
        fate = outlook.fates[state.gangs[number].name]
        # Written by hand after the play: a gang that waits has no event that could have brought a reason along.
        # A gate of a front end is a hold to the engine, and "release it" helps only where somebody holds it.
        code, words = (gates.blame(fate.name) if told[0] is Code.HELD else None) or told[:2]
        fate.reason = (code.word, words)
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
    # In order of arrival, those of one side only included: a gang that was added is in none of the fates before.
    return Answer(before, after, tuple(dict.fromkeys([*before.fates, *after.fates])))


def sum_up(outlook: Outlook) -> Tree:
    """Totals of one outlook. Waits count from now: what was waited before is the same on both sides."""
    fates = outlook.fates.values()
    # By what they were and not by what became of them, so that both sides count the same gangs.
    waiting = [fate for fate in fates if fate.was in ("pending", "starting", "hurt", "new")]
    waits = [fate.start_us - outlook.now_us for fate in waiting if fate.start_us is not None]
    ends = [fate.end_us for fate in fates if fate.end_us is not None and fate.state == "completed"]
    return {
        "gangs": len(outlook.fates),
        "completed": sum(fate.state == "completed" for fate in fates),
        # Three numbers that add up to those who wait, but for the cancelled: nobody is in two of them.
        "start_now": sum(fate.start_us == outlook.now_us for fate in waiting),
        "start_later": sum(fate.start_us is not None and fate.start_us > outlook.now_us for fate in waiting),
        "do_not_start": sum(fate.start_us is None and fate.state != "cancelled" for fate in waiting),
        # None and not 0 where nobody waits: a mean of nothing would read as an improvement.
        "wait_s_mean": seconds(round(sum(waits) / len(waits))) if waits else None,
        # Over those who complete: under a bound in time the two sides may differ in who does, which `completed` tells.
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
        # For people: what was assumed where nobody said anything, such as run times.
        "notes": list(notes),
    }


def _names(outlook: Outlook, event: str) -> list[str]:
    return [name for name, change in outlook.happens_now() if change.event == event]


def _gang_tree(answer: Answer, name: str) -> Tree:
    before, after = answer.before.fates.get(name), answer.after.fates.get(name)
    # Names come from the two sides, so that one of them has it.
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
        "events": [_event_tree(change) for change in fate.events],
        "reason": None if fate.reason is None else dict(zip(("code", "message"), fate.reason, strict=True)),
    }


def _event_tree(change: Change) -> Tree:
    tree: Tree = {"at_s": seconds(change.at_us), "event": change.event, "members": change.members}
    # Only of sizes that a plan changed: an end has no cause to tell.
    return {**tree, "cause": change.cause, "because": change.because} if change.cause else tree


def _difference(before_us: int | None, after_us: int | None) -> int | float | None:
    """How much later; negative: earlier; None unless it happens on both sides."""
    return None if before_us is None or after_us is None else seconds(after_us - before_us)


def list_believed(restored: Restored) -> list[str]:
    """Gangs whose run time nobody stated, and of which whoever wrote the file believes something better."""
    records, runs = restored.state.records, restored.runs
    known = sorted(number for number in {*runs.whole, *runs.left} if records[number].gang.walltime_us is None)
    return [records[number].gang.name for number in known]


def list_late(restored: Restored) -> list[str]:
    """Gangs that run longer than they said: when they end nobody knows (rule 7)."""
    state = restored.state
    running = (number for number in state.list_seated() if state.phase_of(number) is Phase.RUNNING)
    return [state.gangs[number].name for number in sorted(running) if state.end_of(number) <= state.now_us]


def list_unproven(gangs: Iterable[Arrival], restored: Restored) -> list[str]:
    """Gangs whose run time nobody stated and that report no progress, so that the default stands in for it."""
    found = []
    believed = {*restored.runs.whole, *restored.runs.left}
    for number, record in enumerate(restored.state.records):
        # An elastic gang that runs reports its progress, by which its rest is known
        # better than by any walltime (rule 6).
        reports = record.gang.elastic and record.phase is Phase.RUNNING
        reports = reports or (record.history is not None and record.history.left_us is not None)
        # To be told and not refused: a what-if with a day for everybody is still an
        # answer, if people know what it rests on.
        if record.gang.walltime_us is None and not record.phase.ended and not reports and number not in believed:
            found.append(record.gang.name)
    return [*found, *(arrival.gang.name for arrival in gangs if arrival.gang.walltime_us is None)]
