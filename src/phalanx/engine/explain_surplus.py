"""What one running elastic gang gets of the surplus, and what it would get next, on demand.

By the division itself, on a copy that nobody carries out: a share or a place in the order that was worked out in
another way would be told of one cluster and decided of another.
"""

from __future__ import annotations

from dataclasses import dataclass

from phalanx.engine.actions.allocate import Walk
from phalanx.engine.cycle import choose_calendar
from phalanx.engine.dividing.date_shares import find_share
from phalanx.engine.dividing.division import Division
from phalanx.engine.dividing.holders import ANY_SIZE, Holder
from phalanx.engine.feasibility import find_impossible
from phalanx.engine.order.turns import order_turns
from phalanx.engine.policy import Policy
from phalanx.engine.reclaimable import Reclaimable
from phalanx.engine.session import Session
from phalanx.engine.transaction import Transaction
from phalanx.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class NextStep:
    """The size that would be worth most to a gang, and who is before it."""

    members: int
    saves_us: int  # how much sooner it would be done
    before: tuple[int, ...]  # gangs whose next step is worth more, the first first


@dataclass(frozen=True, slots=True)
class Surplus:
    """How one gang stands where surplus is divided. Members are those of its elastic roles."""

    members: int
    date_us: int | None  # None: it has none, or the policy looks at none
    needs: int  # members that its date needs: its share; 0: none, or out of reach at every size
    granted: bool  # there is as much above the shares of those before it
    coming: int  # of what it lacks: given to it now, or on its way
    rests_until_us: int | None  # it was resized not long ago, and gets nothing but its share until then
    next: NextStep | None  # None: no size above its own would be worth a pause


def explain_surplus(snapshot: Snapshot, policy: Policy, gang: int) -> Surplus | None:
    """Share and next step of a gang that runs; None if it takes no part, as one of a fixed size."""
    session = Session(snapshot, policy)
    session.reclaimable = Reclaimable(snapshot)
    # Starts come before surplus, and reservations bound it: both as the cycle would have them now.
    turns = order_turns(session)
    impossible, _ = find_impossible(session, turns)
    turns = turns.keep(~impossible)
    walk = Walk(session, turns, choose_calendar(session, turns))
    walk.run()
    transaction = Transaction(session, session.reclaimable, walk.calendar)
    # As in the cycle, between starts and growth: seats that are still being vacated are room for nobody yet.
    transaction.set_aside()
    division = Division(transaction, walk.calendar)
    holders = division.list_holders()
    division.hand_out_shares(holders, division.growing.count_coming())
    # One that only starts in this plan is still waiting to whoever asks: it has a reason and not a share.
    mine = next((holder for holder in holders if holder.number == gang and holder.occupant is not None), None)
    return None if mine is None else _tell(snapshot, division, holders, mine)


def _tell(snapshot: Snapshot, division: Division, holders: list[Holder], mine: Holder) -> Surplus:
    assert mine.occupant is not None
    # As the heap of the division would have them: the first of this order takes what comes free.
    # Those who rest take no steps, but what theirs would be worth is still what somebody asks.
    awake = [holder for holder in holders if not holder.resting or holder is mine]
    steps = sorted(division.list_next_steps(awake, ANY_SIZE * max(holder.weight for holder in awake)))
    at = next((at for at, step in enumerate(steps) if step[2] is mine), None)
    had = mine.prospect.members
    found = None
    if at is not None:
        # Sizes are of one role, and what people count is the members of all elastic ones.
        _, _, _, role, size = steps[at]
        then = mine.members + size - mine.seats[role].members
        saves = mine.prospect.expected_us(mine.members) - mine.prospect.expected_us(then)
        found = NextStep(then, round(saves), tuple(step[1] for step in steps[:at]))
    # Of the row and not of the holder, which says that it rests and not until when.
    cool_us = int(snapshot.running.cool_until_us[mine.occupant.row])
    return Surplus(
        members=had,
        date_us=mine.date_us,
        needs=find_share(mine, snapshot.now_us),
        granted=mine.share > 0,
        # What this very pass gives it counts as well: somebody may ask before the plan is made.
        coming=max(mine.coming, mine.members - had),
        rests_until_us=cool_us if cool_us > snapshot.now_us else None,
        next=found,
    )
