"""Phalanx: gang scheduling for AI compute.

Jobs start whole or not at all, and once running they shrink, grow, heal and move without losing
work. The engine is a pure function from a snapshot of the cluster to a plan; every front end
calls the same one. This package file stays empty of imports so that `phalanx --help` is quick.
"""

__version__ = "0.1.0"
