"""Reasons as sentences. The engine gives codes and numbers; every front end gives these words.

Here and not in the engine, so that plans are numbers to compare and digest, and here and not in the front ends, so that
`ps`, `why` and a report say the same of one gang. What each reason means is in docs/reasons.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from phalanx.control.state import State
from phalanx.engine.cycle import schedule
from phalanx.engine.policy import Policy
from phalanx.engine.room.limits import Limits
from phalanx.engine.room.view import find_need
from phalanx.model.fleet import Fleet
from phalanx.model.form import Form, RoleForm
from phalanx.model.gang import Gang
from phalanx.model.plan import DateVerdict, Plan, Reservation
from phalanx.model.reason import Code
from phalanx.model.resources import units_per_whole
from phalanx.model.rules import Apart, AtMost, Beside, Evenly
from phalanx.model.snapshot import Snapshot
from phalanx.words import say_one, size_text

Told = tuple[Code, str, int, int]  # code, sentence, needed, available

# Each says what is short and by how much; what could be done about it, where the user can do something. Infeasible has
# no entry: its sentence depends on what is missing.
SENTENCES: Final[Mapping[Code, str]] = {
    Code.NONE: "starts in this cycle",
    Code.HELD: "on hold; release it to give it its turn",
    Code.DEPENDENCY_WAITING: "waits for the {how} of {after}",
    Code.DEPENDENCY_FAILED: "a gang it depends on did not succeed",
    Code.GANG_INCOMPLETE: "waits until all gangs of '{word}' have come and may start",
    Code.QUEUE_LIMIT: "queue '{queue}' or one above it is at its limit: room for {available} of {needed} members",
    Code.USER_LIMIT: "user '{user}' is at the limit: room for {available} of {needed} members",
    Code.CAPACITY: "needs room for {needed} members, free resources hold {available}",
    Code.FRAGMENTATION: "enough is free in total, but only {available} of {needed} members fit on nodes",
    Code.TOPOLOGY: "{needed} members fit, but at most {available} in one domain of the required level",
    Code.NODE_CONSTRAINT: "nodes now in service hold {available} of {needed} members even when empty",
    Code.BEHIND: "would fit, but waits behind a gang that came before it",
    Code.RESERVED: "would fit, but would delay a gang that has a reservation",
    Code.MAINTENANCE: "would still run when a maintenance window or another's reservation begins",
    Code.DEADLINE_UNREACHABLE: "can never meet its deadline: alone on an empty cluster it needs {needed_s:g} s,"
    " and its date leaves {available_s:g} s",
    Code.BACKOFF: "failed again and again without saving anything; it may start again after a rest",
    Code.NEIGHBOURS: "there is room, but what is asked about others leaves places for {available} of {needed} members:"
    " {rules}",
    Code.SEARCH_BUDGET: "the search for a placement gave up undecided; it is tried again when something changes",
}


_VERBS: Final = {Apart: "apart from", Beside: "beside", Evenly: "spread with"}


def word_of_end(gang: Gang) -> str:
    """What it waits for of those that it depends on."""
    return "end" if gang.after.any_end else "success"


def explain_all(state: State, policy: Policy) -> tuple[dict[int, Told], tuple[Reservation, ...]]:
    """One explaining pass: the dominant reason of every pending gang by its number, and who has a reservation.

    The sentences name no instants: a front end whose people read another clock says those itself.
    """
    if not len(state.pending):
        return {}, ()
    snapshot = state.borrow()
    # A cycle of its own, whose decisions nobody carries out: reasons are of this instant, not of the last pass.
    plan = schedule(snapshot, policy, explain=True)
    teller = Teller(snapshot, plan)
    rows = np.flatnonzero(snapshot.pending.alive).tolist()
    numbers = snapshot.pending.gang[rows].tolist()
    return {number: teller.tell(row) for number, row in zip(numbers, rows, strict=True)}, plan.reservations


def explain_pending(state: State, policy: Policy) -> dict[int, Told]:
    """The same reasons with what is expected when, in seconds of the cluster's clock."""
    reasons, reservations = explain_all(state, policy)
    # Only who has a reservation has an expected start; under EASY that is the head of each pool.
    for number, start_us in {gang: each.start_us for each in reservations for gang in each.gangs}.items():
        if number in reasons:
            code, words, needed, available = reasons[number]
            # Added to the reason and not instead: why it waits and until when are two questions.
            reasons[number] = code, f"{words}; expected to start at {start_us / 1e6:g} s", needed, available
    reasons = {number: _say_date(state, number, told) for number, told in reasons.items()}
    # The refusal last, as it speaks of what the world did, and goes before what the plan says.
    return {number: _say_refused(state, number, _say_waits(each)) for number, each in reasons.items()}


def _say_date(state: State, number: int, told: Told) -> Told:
    """What could have been promised to a gang whose date was not."""
    verdict = state.date_of(number)
    if verdict is None or verdict.promised or verdict.earliest_us is None:
        return told
    code, words, needed, available = told
    # Refused for its date it has that as its reason already (`Teller._sentence`), and runs in no way at all.
    if code is not Code.DEADLINE_UNREACHABLE:
        words = f"{words}; {say_unpromised(verdict)}, and it runs as best effort"
    return code, f"{words}; the earliest that could be is {verdict.earliest_us / 1e6:g} s", needed, available


def say_unpromised(verdict: DateVerdict) -> str:
    """Of a date that could not be promised, without any instant."""
    if verdict.earliest_us is None:
        return "its date cannot be promised, since nobody has said how long it runs"
    # By number and not by name: whose dates were promised is other people's affair, and by now some may be done.
    others = f"{verdict.beside} others" if verdict.beside > 1 else "another" if verdict.beside else "those who run"
    return f"its date cannot be promised beside {others}"


def _say_waits(told: Told) -> Told:
    """Whoever would start if the queue were looked at now was kept waiting when it was last looked at.

    Nothing has happened since but time, and time alone moves what is believed of gangs that outlive their walltime.
    """
    if told[0] is not Code.NONE:
        return told
    words = "was kept waiting by a reservation that has moved since; it is looked at again when anything happens"
    return Code.RESERVED, words, told[2], told[3]


def _say_refused(state: State, number: int, told: Told) -> Told:
    """A gang that rests because the world would not have its start did not fail: the world's words say why."""
    refusal = state.refusal_of(number)
    # Both rests have one gate; only the refusal that is still fresh tells which it is.
    if told[0] is not Code.BACKOFF or refusal is None or refusal.rests_until_us <= state.now_us:
        return told
    # In place of the words about failures, which would blame the gang for what the world did.
    words = f"was to start and could not: {refusal.words}; it is tried again at {refusal.rests_until_us / 1e6:g} s"
    return told[0], words, told[2], told[3]


class Teller:
    """Words for one plan's verdicts."""

    def __init__(self, snapshot: Snapshot, plan: Plan) -> None:
        """`plan` must carry verdicts."""
        assert plan.verdicts is not None
        self.snapshot, self.verdicts = snapshot, plan.verdicts
        self.dates = {**snapshot.dates, **{verdict.gang: verdict for verdict in plan.dates}}
        # As the snapshot has the usage, without what this plan starts: only
        # `check_empty` is asked, which looks at no usage.
        self._limits = Limits(snapshot)

    def tell(self, row: int) -> Told:
        """Code, sentence and numbers of one pending row."""
        code = Code(int(self.verdicts.codes[row]))
        needed, available = int(self.verdicts.needed[row]), int(self.verdicts.available[row])
        number = int(self.snapshot.pending.gang[row])
        words = self._sentence(code, row, self.snapshot.gangs[number], needed, available)
        return code, words, needed, available

    def _sentence(self, code: Code, row: int, gang: Gang, needed: int, available: int) -> str:
        if code is Code.INFEASIBLE:
            return self._infeasible(row, needed, available)
        verdict = self.dates.get(int(self.snapshot.pending.gang[row]))
        # Out of reach even alone, or only beside those to whom theirs were promised.
        if code is Code.DEADLINE_UNREACHABLE and verdict is not None and not verdict.promised:
            return say_unpromised(verdict)
        # One code for both, since to whoever waits they are one thing: room that is kept for somebody. Which of the two
        # it was is not in the verdict, so the sentence names both.
        if code is Code.RESERVED and any(each.promised for each in self.dates.values()):
            return "would fit, but would delay a gang that has a reservation or was promised its date"
        sentence = SENTENCES[code].format(
            needed=needed,
            available=available,
            needed_s=needed / 1e6,
            available_s=available / 1e6,
            # Whoever waits for a success is cancelled by a failure: "end" would tell them to be patient.
            how=word_of_end(gang),
            after=", ".join(gang.after.names),
            word=gang.together.word if gang.together else "",
            queue=gang.queue,
            user=gang.user,
            rules=self._tell_rules(gang) if code is Code.NEIGHBOURS else "",
        )
        return say_one(sentence) if needed == 1 else sentence

    def _tell_rules(self, gang: Gang) -> str:
        """What it asks about others, who those are, and who asks it to stay away."""
        # All of its rules and not the one in the way: which one that is changes with every node, and who reads it knows
        # what it asked for. How many are there says which of them it can be.
        presence, told = self.snapshot.presence, []
        for role in gang.roles:
            for rule in role.shape.rules:
                # Of its own members, and of nobody else: there is nobody to count.
                if isinstance(rule, AtMost):
                    told.append(f"at most {rule.members} on one {rule.by}")
                    continue
                there = 0 if presence is None else int(presence.bearing(rule.word).sum())
                told.append(f"{_VERBS[type(rule)]} '{rule.word}' by {rule.by} ({there} run)")
            # What it did not ask for itself, and could not find in its own description.
            for word in role.shape.bears:
                held = {} if presence is None else presence.away.get(word, {})
                told += [
                    f"{int(counts.sum())} that keep '{word}' away by {by}"
                    for by, counts in held.items()
                    if counts.any()
                ]
        return "; ".join(dict.fromkeys(told))

    def _infeasible(self, row: int, needed: int, available: int) -> str:
        """Why not even an empty cluster would do, with the number that is missing."""
        # Its own form and not its group's: a message should be about what the user wrote.
        form = self.snapshot.forms[int(self.snapshot.pending.form[row])]
        # From what an administrator could change by a word, to what only other machines would mend.
        over = self._over_empty_limit(row, form)
        if over is not None:
            return over
        for role in form.roles:
            # A member that fits no node is clearer than a sum that does not fit the cluster, and both may be true.
            too_large = _too_large(self.snapshot.fleet, role)
            if too_large is not None:
                return too_large
        where = _where(self.snapshot.fleet, form)
        told = f"can never run here: {where} holds {available} of {needed} members even when empty"
        return say_one(told) if needed == 1 else told

    def _over_empty_limit(self, row: int, form: Form) -> str | None:
        pending, fleet = self.snapshot.pending, self.snapshot.fleet
        # At its least, which is what a limit must leave room for (rule 11: infeasible if its minimum exceeds it).
        asked = sum(
            (find_need(fleet, role.shape).vector * (role.size or int(pending.size[row])) for role in form.roles),
            start=np.zeros(len(fleet.kinds), dtype=np.int64),
        )
        over = self._limits.check_empty(int(pending.queue[row]), int(pending.user[row]), asked)
        if over is None:
            return None
        # Rule 11: the message names the limit, since somebody can raise it.
        whose = "queue" if over.code is Code.QUEUE_LIMIT else "user"
        kind = fleet.kinds[over.kind]
        return (
            f"can never run: needs {_whole(kind, over.needed)} {kind}, "
            f"the limit of {whose} '{over.name}' is {_whole(kind, over.available)}"
        )


def _too_large(fleet: Fleet, role: RoleForm) -> str | None:
    """If one member alone is more than any node that it may use has: of what, and how much is missing."""
    need = find_need(fleet, role.shape)
    # From the plainest cause to the subtlest: no such resource, no node with the labels, none large enough.
    if need.missing is not None:
        return f"can never run here: no node has any {need.missing}"
    if not need.allowed.any():
        return "can never run here: no node has the labels it selects, or all have taints it does not tolerate"
    # The largest node that it may use, not the largest of all: a label may shut it out from the big ones.
    for kind, column in fleet.kind_index.items():
        most, asked = int(fleet.capacity[need.allowed, column].max()), int(need.vector[column])
        if asked > most:
            return (
                f"can never run here: one member needs {_whole(kind, asked)} {kind}, the largest node it may use has "
                f"{_whole(kind, most)} ({_whole(kind, asked - most)} short)"
            )
    return None


def _where(fleet: Fleet, form: Form) -> str:
    require = max(max(gang.require, *(role.require for role in gang.roles)) for gang in form.gangs)
    # The tightest level that anybody requires: there it is that too few fit.
    # "the largest rack holds 4 of 6": the number was worked out for the best domain of that level.
    return "the cluster" if require < 0 else f"the largest {fleet.levels[require]}"


def _whole(kind: str, units: int) -> str:
    # In the units that people write: 500 thousandths are 0.5, and 1099511627776 bytes are 1Ti.
    return size_text(units) if units_per_whole(kind) == 1 else f"{units / units_per_whole(kind):g}"
