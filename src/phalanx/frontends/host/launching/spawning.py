"""Starting a shim, as the user whose job it is.

`subprocess` changes groups, group and user between fork and exec, in that order; the shim itself makes
sure that there is no way back before it starts anybody. Nothing of the daemon's environment goes along.
"""

from __future__ import annotations

import os
import pwd
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phalanx.frontends.host import containment, shim
from phalanx.frontends.host.launching.directory import MadeRun
from phalanx.frontends.host.launching.shortages import is_shortage
from phalanx.frontends.host.ports import CannotStart, NotStartable, Order, UserUnknown

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: By its file: `-m` would do the same and load what finds modules first.
SHIM = str(Path(shim.__file__).with_name("__main__.py"))


OWN_OOM_SCORE = "/proc/self/oom_score_adj"


@dataclass(slots=True)
class Spawned:
    """A shim that was started, and our end of the line to it."""

    process: subprocess.Popen[bytes]
    line: socket.socket


def check_user(order: Order) -> None:
    """Refuse to start anything as root, or as somebody who is not who they were when they submitted."""
    if order.uid == 0 or order.gid == 0:
        raise NotStartable("jobs do not run as root here; submit it as an ordinary user")
    try:
        uid = pwd.getpwnam(order.user).pw_uid
    except KeyError:
        raise UserUnknown(f"there is no user '{order.user}' any more; submit the job again as somebody else") from None
    if uid != order.uid:
        raise NotStartable(f"user '{order.user}' was number {order.uid} at submit and is {uid} now; submit it again")


def spawn(made: MadeRun, path: str, python: str, order: Order | None) -> Spawned:
    """Start a shim in its run directory; `order` is given when its user must be taken on."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    identity: dict[str, Any] = {}
    if order is not None:
        groups = sorted({*os.getgrouplist(order.user, order.gid), order.gid})
        identity = {"user": order.uid, "group": order.gid, "extra_groups": groups}
    try:
        process = subprocess.Popen(
            [python, "-I", "-S", SHIM, ".", str(theirs.fileno()), str(made.lock_fd)],
            cwd=path,
            env={"PATH": _PATH, "LANG": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=made.log_fd,
            stderr=made.log_fd,
            pass_fds=(theirs.fileno(), made.lock_fd),
            start_new_session=True,
            umask=0o077,
            **identity,
        )
    except OSError as error:
        ours.close()
        if is_shortage(error):
            raise  # of processes, memory or descriptors: the installation is not to blame
        whom = f"user '{order.user}'" if order is not None else "the daemon"
        raise CannotStart(
            f"{whom} cannot run {python}: {error.strerror}; install phalanx where every user of the machine can read it"
        ) from None
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    _reset_oom_score(process.pid)
    return Spawned(process, ours)


def _reset_oom_score(pid: int) -> None:
    """A daemon may be spared when memory runs out (the unit says so); a job that inherits that would be spared as well.

    A score above zero is kept: it is what the user's own session had. Written at once, and by us: what root has set is
    also the least that the job can set itself.
    """
    if int(containment.read_file(OWN_OOM_SCORE) or b"0") < 0:
        containment.write_file(f"/proc/{pid}/oom_score_adj", "0")
