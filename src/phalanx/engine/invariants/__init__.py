"""What must be true of every snapshot and of every plan, recomputed from nothing.

Read by the tests of every front end after every event, never by the engine itself. Speed was given
up for independence: nothing here calls a kernel, a view or a cache of the engine, because a check
that shares code with what it checks shares its mistakes. Amounts are summed from who sits where,
labels and domains are read off the nodes, windows and limits off the snapshot.

`check_snapshot` holds the columns against each other. `check_plan` holds a plan against the promises
of DESIGN §5 for the gangs it starts and for the starts it promises. Both return what they found, as
sentences that name the gang and the node; `demand` turns findings into an `InvariantError`.
"""

from phalanx.engine.invariants.findings import InvariantError, Promise, Violation, demand
from phalanx.engine.invariants.plans import check_plan
from phalanx.engine.invariants.snapshots import check_snapshot, check_usage

__all__ = ["InvariantError", "Promise", "Violation", "check_plan", "check_snapshot", "check_usage", "demand"]
