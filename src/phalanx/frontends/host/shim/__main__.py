"""`python -I -S .../shim/__main__.py RUNDIR [CONTROL_FD LOCK_FD]`, started by the daemon.

Without `site`: it costs a twentieth of a start, and nothing but the standard library and this package is
wanted. `python -I -m phalanx.frontends.host.shim RUNDIR` does the same.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    root = __file__.rsplit("/phalanx/frontends/", 1)[0]
    if root not in sys.path:
        sys.path.append(root)
    from phalanx.frontends.host.shim.supervision import run_shim

    directory = sys.argv[1] if len(sys.argv) > 1 else "."
    control_fd, lock_fd = (int(word) for word in sys.argv[2:4]) if len(sys.argv) > 3 else (3, None)
    status = run_shim(directory, control_fd, lock_fd)
    # Everything is written and sent; taking the interpreter apart would cost as much as a fifth of the start.
    os._exit(status)
