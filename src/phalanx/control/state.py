"""Folds what happened into columns, and hands out snapshots of them.

The only writer of cluster state: front ends call methods and never write its tables or
records. Events and plans go in; a snapshot costs nothing until the next
write, which then copies the arrays once. Everything the engine remembers between cycles (promises,
who was told that it is infeasible, who is a guest) is kept here because the plan said so, never by
the engine.
"""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.control import leaving, losses, refusing
from phalanx.control.courses import Courses
from phalanx.control.fleet_change import lay_out_anew
from phalanx.control.folding import Folded, fold
from phalanx.control.records import NOTHING, PlanRefusal, Record
from phalanx.control.tables import DEFAULT_WALLTIME_US
from phalanx.control.waiting import join_group, leave_group, queue_up, set_gates, wait_for_dependencies
from phalanx.engine.lifecycle import Happening, Phase
from phalanx.model.fleet import Node
from phalanx.model.gang import Gang
from phalanx.model.plan import Plan

__all__ = ["DEFAULT_WALLTIME_US", "State"]


class State(Courses):
    """The cluster and everybody in it, now."""

    def advance_to(self, now_us: int) -> None:
        """It is this late now; time does not go back. What is due by then is for `tick`."""
        # Clocks of real machines do go back; a state that followed would see gangs that have not started yet.
        now_us = max(now_us, self.now_us)
        # Before the clock moves: usage was constant up to now.
        self.tenants.decay(now_us)
        self.now_us = now_us

    def look_from(self, now_us: int) -> None:
        """It is looked at from a later instant, up to which nothing happens and nothing fades."""
        self.now_us = max(now_us, self.now_us)

    def tick(self) -> losses.Due:
        """Everything that time alone has brought about by now."""
        return losses.tick(self)

    # ------------------------------------------------------------------ gangs come

    def submit(self, gang: Gang, curve: tuple[tuple[int, float], ...] | None = None) -> int:
        """Take a gang in; the answer is its number, for life."""
        self.thaw()
        # In order of arrival and never given again: ties break by it (rule 1), and records are found by it.
        number = len(self.gangs)
        self.gangs.append(gang)
        self.number_by_name[gang.name] = number
        # No cycle has looked at it: what is known of earlier refusals says nothing of this one.
        self.fresh.add(number)
        if curve is not None:
            self.curves[number] = curve
        queue, user = self.tenants.index_of(gang.queue, gang.user)
        record = Record(
            gang=gang,
            phase=Phase.PENDING,
            # Interned: equal forms share a number, by which the engine tells equal placement problems.
            form=self.intern(self.forms.of_gang(self.fleet, gang)),
            queue=queue,
            user=user,
            # Rule 1: where an order says submit it means this. Dependencies may move it later.
            eligible_us=max(self.now_us, gang.submit_us),
            row=-1,
            waits_for=NOTHING,
            held=gang.hold,
        )
        self.records.append(record)
        if gang.after.names:
            wait_for_dependencies(self, number, record)
        if gang.together is not None:
            join_group(self, number, record, gang.together.word, gang.together.gangs)
        # With a row even behind a gate: reasons are given for every gang that waits.
        queue_up(self, number, record)
        return number

    # ------------------------------------------------------------------ plans

    def apply(self, plan: Plan, *, undoable: bool = False) -> Folded:
        """Fold a plan; the answer tells what has really begun, and who was cancelled because of it.

        `undoable`: each decision may be refused until it is confirmed, or something else happens to its gang.
        """
        self.thaw()
        if undoable:
            # Before anything is folded, or there would be no picture of before.
            refusing.take_images(self, plan)
        folded = fold(self, plan) if plan.decisions else Folded()
        # After folding: what it says of guests and promises is about the seats that everybody has now.
        self.note_plan(plan)
        for number in plan.infeasible:
            # Told once, and judged again when nodes change (rule 15, drain); those who wait for it hear of it now.
            self.judged.add(number)
            folded.heard = folded.heard or self.gangs[number].name in self.dependencies.waiting
            folded.cancelled += leaving.tell_dependents(self, self.gangs[number].name, succeeded=False)
        return folded

    def refuse(self, number: int, words: str) -> PlanRefusal:
        """What was decided of a gang was not carried out: it and everything that hung on it is undone."""
        return refusing.refuse(self, number, words)

    def confirm(self, number: int) -> None:
        """What was decided of a gang has come about."""
        refusing.confirm(self, number)

    # ------------------------------------------------------------------ gangs go

    def complete(self, number: int) -> list[int]:
        """A gang has ended well; nobody is cancelled by that."""
        refusing.forget(self, number)
        # In each of these methods `forget` comes first: what has happened to a gang since cannot be undone by a
        # refusal.
        return leaving.end(self, number, Happening.COMPLETE)

    def fail(self, number: int) -> list[int]:
        """A gang has ended badly; the answer is whoever is cancelled with it."""
        refusing.forget(self, number)
        return leaving.end(self, number, Happening.FAIL)

    def cancel(self, number: int, *, alone: bool = False) -> list[int]:
        """Somebody does not want it any more; the answer is whoever else is cancelled with it.

        `alone`: those that were to start together with it wait on, for another one in its place.
        """
        refusing.forget(self, number)
        if alone:
            leave_group(self, number)
        return leaving.cancel(self, number)

    def requeue(self, number: int) -> None:
        """A gang gives everything back and waits again, with its age."""
        refusing.forget(self, number)
        leaving.requeue(self, number)

    def requeue_rested(self, number: int) -> None:
        """The same after a failure: if it has failed before, it may not start before it has rested."""
        refusing.forget(self, number)
        losses.requeue_after_loss(self, number)

    def note_failure(self, number: int, *, progressed: bool) -> bool:
        """An attempt was lost. True if the gang has used up its restarts."""
        return losses.note_failure(self, number, progressed=progressed)

    def note_ended(self, name: str, *, well: bool) -> None:
        """A gang that others may wait for ended before this state was made."""
        self.dependencies.ended.setdefault(name, Phase.COMPLETED if well else Phase.FAILED)

    def replace(self, number: int, gang: Gang, *, held: bool) -> int:
        """Another version of a waiting gang takes its place, with its age; nobody is told of an end."""
        old, rests_until_us = self.records[number], self.rest_of(number)
        # Before it leaves: its place in its group is for the new version, or nobody could start with the others.
        leave_group(self, number)
        # `leave` and not `cancel`: dependents and the rest of its group must not hear of an end.
        leaving.leave(self, number, Happening.CANCEL)
        # Under a new number, so that whatever still speaks of the old one speaks of a gang that has ended.
        fresh = self.submit(gang)
        record = self.records[fresh]
        # The age goes over, or whoever corrects a typo would queue again from the end.
        record.eligible_us, record.history, record.held = old.eligible_us, old.history, held
        if record.history is not None and record.history.resting:
            # The timer of its rest was the old version's. A rest is for what failed, and a change does not mend that.
            record.history.resting = rests_until_us is not None
            if rests_until_us is not None:
                self.set_timer(rests_until_us, "rest", fresh, record.history.token)
        self.pending.columns["eligible_us"][record.row] = old.eligible_us
        # A high number with an old age: rows no longer stand in order of arrival.
        self.hints.order.kept = False
        set_gates(self, record)
        pinned = self.pins.pop(number, None)
        if pinned is not None:
            self.pin(fresh, pinned)
        # What could never run was the old version.
        self.judged.discard(number)
        return fresh

    def backdate(self, number: int, since_us: int) -> None:
        """A waiting gang could have had its turn since then: it stands for an older one, or was here before."""
        self.thaw()
        record = self.records[number]
        record.eligible_us = min(record.eligible_us, since_us)
        self.pending.columns["eligible_us"][record.row] = record.eligible_us
        # As in `replace`: a high number with an old age.
        self.hints.order.kept = False

    def hold(self, number: int) -> None:
        """It may not have its turn for now."""
        self.thaw()
        record = self.records[number]
        record.held = True
        if record.phase is Phase.PENDING:
            set_gates(self, record)

    def release(self, number: int) -> None:
        """Let a held gang have its turn."""
        self.thaw()
        record = self.records[number]
        record.held = False
        if record.phase is Phase.PENDING:
            set_gates(self, record)

    def pin(self, number: int, members: int | None) -> bool:
        """A person wants an elastic gang at exactly this size, or with None at none. False if it cannot have it."""
        # One number can only be meant for one elastic role.
        sizes = [role.sizes for role in self.gangs[number].roles if role.sizes.elastic]
        if members is not None and (len(sizes) != 1 or members not in sizes[0].allowed):
            return False
        self.thaw()
        self.hints.unsettle()
        self.pins.pop(number, None)
        # A promise is void when its gang changes (rule 4).
        self.promises.pop(number, None)
        if members is not None:
            self.pins[number] = members
        # To the engine a changed gang is an arrival: refusals of before were about another size.
        self.fresh.add(number)
        return True

    # ------------------------------------------------------------------ nodes

    def lose_node(self, node: int) -> list[losses.Loss]:
        """Take a node from under everybody on it; that it is down must be said separately."""
        # Before the losses: they change the seats by which it is found.
        refusing.forget_node(self, node)
        return losses.lose_node(self, node)

    def set_up(self, node: int, *, up: bool) -> None:
        """A node failed, or was repaired. Whoever was on it must be told separately."""
        self.thaw()
        self.nodes.up[node] = up
        self.nodes_changed()

    def set_open(self, node: int, *, open_: bool, drain: bool = False) -> None:
        """A node is cordoned, or takes new gangs again; if it drains, whoever can leave should."""
        self.thaw()
        self.nodes.open[node], self.nodes.draining[node] = open_, drain
        self.nodes_changed()

    def add_node(self, node: Node) -> None:
        """A new machine, or a removed one that comes back."""
        self.add_nodes((node,))

    def add_nodes(self, nodes: Sequence[Node]) -> None:
        """New machines, or known ones described anew: all tables are laid out once for all of them."""
        lay_out_anew(self, self.fleet.with_nodes(nodes))
        for node in nodes:
            index = self.fleet.index_by_name[node.name]
            # Also of one that comes back: removed nodes stay in the fleet, so that numbers of nodes are for life.
            self.nodes.up[index] = self.nodes.open[index] = True
            self.nodes.draining[index] = False

    def remove_nodes(self, nodes: Sequence[int]) -> None:
        """Machines that will not come back; they must be empty."""
        lay_out_anew(self, self.fleet.without_nodes(nodes))
        self.nodes.up[list(nodes)] = False
