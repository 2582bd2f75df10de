"""The pure function from snapshot to plan. The way in is `engine.cycle.schedule`.

No IO, no clock, no randomness, no logging: `now` is a field of the snapshot, ties break by
sequence number and node index, and the same input gives the same plan on any machine.
"""
