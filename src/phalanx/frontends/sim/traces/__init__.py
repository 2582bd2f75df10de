"""Logs of other people's clusters, jobs made up by a model, and the files both are kept in.

`reading.read_any` is the way in: it looks at what a file holds, not at what it is called, and
gives a `Scenario`. `making.make_workload` makes one up from a seed. `writing.write_any` is the way
out. Each published format has a module; what they share (tables, beliefs about run times, roles
that are one object) stands in `table`, `believed` and `log_jobs`.
"""
