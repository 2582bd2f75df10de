"""The shim: one small process for each attempt of a gang, between the daemon and the members.

It outlives the daemon, keeps exit codes and owns the logs. It decides nothing about the gang: it forks
members to a gate, lets them through when told, signals whom it is told, and writes down what ended how.
Standard library and `phalanx.wire` only, the latter when the first member speaks; a start is paid for
by every job, so what is imported here is measured.
"""
