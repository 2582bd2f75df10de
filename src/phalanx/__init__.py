"""Phalanx: gang scheduling for AI compute.

Jobs start whole or not at all, and once running they shrink, grow, heal and move without losing
work. The engine is a pure function from a snapshot of the cluster to a plan; every front end
calls the same one. This package file stays empty of imports so that `phalanx --help` is quick:
`phalanx.submit` and `phalanx.Job` are looked up when somebody asks for them.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """The Python face of the daemon, imported when it is first used."""
    # By its name: every package imports this file for the version, and none of them thereby imports the client.
    if name in ("submit", "Job"):
        return getattr(import_module("phalanx.client.api"), name)
    raise AttributeError(f"module 'phalanx' has no attribute {name!r}")
