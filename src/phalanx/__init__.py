"""Phalanx: gang scheduling for AI compute.

Jobs start whole or not at all, and once running they shrink, grow, heal and move without losing
work. The engine is a pure function from a snapshot of the cluster to a plan; every front end
calls the same one. This package file stays empty of imports so that `phalanx --help` and every shim
are quick: `phalanx.submit`, `phalanx.Job` and `phalanx.simulate` are looked up when somebody asks for them.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"
__all__ = ("Job", "simulate", "submit")


def __getattr__(name: str) -> Any:
    """The Python face of daemon and simulator, imported when it is first used."""
    # By its name: every package imports this file for the version, and none of them thereby imports the client.
    if name in __all__:
        from importlib import import_module  # noqa: PLC0415 - 5 ms of every command and every shim

        module = "phalanx.frontends.sim.library" if name == "simulate" else "phalanx.client.api"
        return getattr(import_module(module), name)
    raise AttributeError(f"module 'phalanx' has no attribute {name!r}")


def __dir__() -> list[str]:
    """For completion in notebooks, which would not find what is only looked up."""
    return sorted([*globals(), *__all__])
