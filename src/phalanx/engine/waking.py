"""When a plan could change without an event: windows, and deadlines that pass out of reach."""

from __future__ import annotations

from phalanx.engine.order.orders import laxity_us
from phalanx.engine.policy import Policy
from phalanx.model.gang import Gang
from phalanx.model.snapshot import Snapshot


def lead_of(gang: Gang) -> int:
    """How long before a window opens a gang has to begin to leave it."""
    return gang.resize_pause_us if gang.elastic else 0


def _list_leads(snapshot: Snapshot) -> set[int]:
    """How long before a window opens elastic gangs that run, or may start now, have to begin to leave it."""
    # Those who wait as well: one may start in this very plan, and is then running when its time to leave comes. Number
    # -1 has no gang: seats that wait for their last user to go.
    present = [table.gang[table.alive & table.elastic] for table in (snapshot.running, snapshot.pending)]
    return {lead_of(snapshot.gangs[number]) for numbers in present for number in numbers.tolist() if number >= 0}


def find_next_wake(snapshot: Snapshot, policy: Policy) -> int | None:
    """Windows open and close, and deadlines pass out of reach, without anybody telling us.

    A promised start is no reason to wake: whatever frees its places is an event. Waking then would find
    an overrun in the way, void the promise, and place the gang anew behind gangs that it was ahead of.
    """
    if not (snapshot.windows or (policy.deadlines and snapshot.hints.has_deadlines)):
        return None
    instants = [at for window in snapshot.windows for at in (window.start_us, window.end_us)]
    if snapshot.windows and snapshot.hints.has_elastic:
        instants += [window.start_us - lead_us for window in snapshot.windows for lead_us in _list_leads(snapshot)]
    # Strictly: an instant that is now has just been looked at, and waking for it would never end.
    ahead = [at for at in instants if at > snapshot.now_us]
    if policy.deadlines and snapshot.hints.has_deadlines:
        rows = snapshot.pending.alive.nonzero()[0]
        laxity = laxity_us(snapshot, rows)
        # Only those: the order changes when somebody can no longer make it, and a date that is lost is lost for good.
        reachable = laxity[(laxity >= 0) & (snapshot.pending.deadline_us[rows] >= 0)]
        # One microsecond past: with nothing to spare it can still be met, if it starts at that instant.
        ahead += [snapshot.now_us + int(reachable.min()) + 1] if len(reachable) else []
    return min(ahead, default=None)
