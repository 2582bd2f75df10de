"""Nodes join and leave: every table of a state is laid out over another fleet.

Rare, and so done from the records: everything is seated anew, and no table has to know how to grow.
"""

from __future__ import annotations

from phalanx.control.columns import HeldTable
from phalanx.control.records import allocation_columns, widen_promise, widen_seats
from phalanx.control.refusing import widen_images
from phalanx.control.seating import seat
from phalanx.control.tables import Tables
from phalanx.engine.lifecycle import Phase
from phalanx.model.fleet import Fleet


def lay_out_anew(state: Tables, fleet: Fleet) -> None:
    """Lay every table out over another set of nodes and kinds."""
    state.thaw()
    # Every table over nodes or kinds changes its shape; those over gangs keep their rows, so that records stay right.
    state.fleet = fleet
    state.nodes.lay_out(fleet)
    state.tenants = state.tenants.over(fleet)
    state.allocations = HeldTable(allocation_columns(state.fleet))
    seated = [record for record in state.records if record.phase.seated]
    for record in [*seated, *(ghost for _, ghost in state.vacating)]:
        # First as wide as the tables are now, or they could not be subtracted from them.
        record.seats = tuple(widen_seats(seats, state.nodes.device_free.shape[1]) for seats in record.seats)
        for seats in record.seats:
            seat(state, record, record.row, seats)
    state.columns_moved()
    width = state.nodes.device_free.shape[1]
    widen_images(state, width)
    state.promises = {first: widen_promise(promise, width) for first, promise in state.promises.items()}
    state.judged.clear()  # feasibility is judged again when nodes change
    # So are dates that were not promised. Those that were stay promised: nodes that go do not release anybody.
    state.dates = {number: verdict for number, verdict in state.dates.items() if verdict.promised}
    # Whoever waits may fit now: to the engine they are arrivals.
    state.fresh.update(n for n, record in enumerate(state.records) if record.phase is Phase.PENDING)
    state.nodes_changed()
