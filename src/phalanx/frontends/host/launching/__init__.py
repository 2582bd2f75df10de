"""The daemon's side of the shims: starting them, talking to them, finding them again, and clearing up after them."""

from phalanx.frontends.host.launching.launcher import HostLauncher
from phalanx.frontends.host.launching.log_reading import read_log

__all__ = ["HostLauncher", "read_log"]
