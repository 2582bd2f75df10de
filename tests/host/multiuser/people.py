"""A daemon for everybody on a machine, and people with real numbers who use and abuse it.

The people exist in `passwd` and `group` files that only the daemon's own mount namespace sees, so no test touches
the machine's. Whoever asks over the socket has the effective uid of a person at the moment of `connect`, which is what
the kernel attests; whoever runs something is a process that has become that person for good.
"""

from __future__ import annotations

import contextlib
import copy
import os
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from realdaemon import LIMIT_S, ROOT, RealDaemon, Reply

ADA, BOB, CAI, DEE = 12001, 12002, 12003, 12004  # cai is an administrator
NOBODY_KNOWN = 12999  # a number without an entry
NAMES = {0: "root", ADA: "ada", BOB: "bob", CAI: "cai", DEE: "dee"}
GROUPS = {"vision": (13001, ["ada"]), "speech": (13002, ["ada", "bob"]), "phalanx": (13003, ["cai"])}
_becoming = threading.Lock()


def find_missing() -> str:
    """Why these tests cannot run here; empty if they can."""
    if os.geteuid() != 0:
        return "jobs of other users can be started by root only"
    lacking = [tool for tool in ("unshare", "nsenter", "setpriv", "mount") if shutil.which(tool) is None]
    if lacking:
        return f"no {', '.join(lacking)} here"
    probe = subprocess.run(["unshare", "--mount", "--propagation", "private", "true"], capture_output=True, check=False)
    return "" if probe.returncode == 0 else f"no mount namespaces here: {probe.stderr.decode().strip()}"


def list_become(uid: int) -> list[str]:
    """Words before a command that make whoever runs it this person; root stays root."""
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--init-groups"] if uid else []


class SharedDaemon(RealDaemon):
    """A daemon in system mode. `by(uid)` is the same daemon as that person sees it."""

    uid = 0

    def __init__(self, *, before: str = "", owner: int = 0, **options) -> None:
        """`before`: lines of Python that the daemon's process runs first, to make a deadline shorter for example.

        `owner`: whose daemon it is; of anybody but root it is in user mode.
        """
        folder = Path(tempfile.mkdtemp(prefix="phalanx-people-"))
        folder.chmod(0o755)
        super().__init__(folder, **options)
        self.before, self.owner = before, owner
        os.chown(self.state, owner, owner)
        self.passwd, self.group = folder / "passwd", folder / "group"
        self.set_people({uid: name for uid, name in NAMES.items() if uid})
        entries = "".join(f"{name}:x:{gid}:{','.join(who)}\n" for name, (gid, who) in GROUPS.items())
        self.group.write_text(Path("/etc/group").read_text(encoding="utf-8") + entries, encoding="utf-8")
        self.homes = {uid: self._make_home(uid, name) for uid, name in NAMES.items() if uid}
        self.env["HOME"] = "/root"
        self.starts_file = self.homes[ADA] / "starts"

    def _make_home(self, uid: int, name: str) -> Path:
        home = self.folder / name
        home.mkdir(mode=0o700)
        os.chown(home, uid, uid)
        return home

    def set_people(self, names: dict[int, str]) -> None:
        """Who has which number from now on; the file stays the same one, or the daemon would go on seeing the old."""
        entries = "".join(f"{name}:x:{uid}:{uid}::{self.folder / name}:/bin/sh\n" for uid, name in names.items())
        self.passwd.write_text(Path("/etc/passwd").read_text(encoding="utf-8") + entries, encoding="utf-8")

    # ------------------------------------------------------------------ the daemon

    def spawn(self, **env: str) -> subprocess.Popen:
        self.lives += 1
        main = "import sys; from phalanx.frontends.host.__main__ import main; sys.exit(main())"
        words = ["--state", str(self.state), "--fake-gpus", str(self.gpus), "--foreground"]
        words += [] if self.owner else ["--system"]
        become = list_become(self.owner)
        start = shlex.join(["exec", *become, sys.executable, "-c", f"{self.before}\n{main}", *words])
        script = "\n".join(["set -e", *self._write_mounts(), start])
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
        with (self.folder / f"daemon-{self.lives}.log").open("wb") as log:
            return subprocess.Popen(
                command, cwd="/", env={**self.env, **env}, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def _write_mounts(self) -> list[str]:
        """Lines of shell: our people, and an interpreter that they can reach wherever it is installed."""
        lines = [f"mount --bind {self.passwd} /etc/passwd", f"mount --bind {self.group} /etc/group"]
        needed = [Path(sys.base_prefix), Path(sys.prefix), ROOT / "src", ROOT / "examples", self.folder]
        hidden: dict[Path, list[Path]] = {}
        for path in map(Path.resolve, needed):
            closed = [above for above in path.parents if not above.stat().st_mode & stat.S_IXOTH]
            if closed:
                hidden.setdefault(closed[-1], []).append(path)
        for above, paths in hidden.items():
            kept = [(path, self.folder / "kept" / str(number)) for number, path in enumerate(paths)]
            lines += [f"mkdir -p {place} && mount --bind {path} {place}" for path, place in kept]
            lines.append(f"mount -t tmpfs -o mode=0711 none {above}")
            lines += [f"mkdir -m 755 -p {path} && mount --bind {place} {path}" for path, place in kept]
        return lines

    def close(self) -> None:
        super().close()
        # By `rm`: a job may have nested directories deeper than Python recurses.
        subprocess.run(["rm", "-rf", str(self.folder)], check=True)

    # ------------------------------------------------------------------ people

    def by(self, uid: int) -> SharedDaemon:
        """The same daemon, asked by somebody else."""
        seen = copy.copy(self)
        seen.uid = uid
        seen.starts_file = self.homes.get(uid, self.folder) / "starts"
        return seen

    def call(self, method: str, path: str, body=None, headers=None, timeout=LIMIT_S) -> Reply:
        with acting_as(self.uid):
            return super().call(method, path, body, headers, timeout)

    def _enter(self) -> list[str]:
        assert self.process is not None
        return ["nsenter", f"--mount=/proc/{self.process.pid}/ns/mnt", "--wdns=/", *list_become(self.uid)]

    def run(self, *argv: str, text: str = "", **env: str) -> subprocess.CompletedProcess:
        """A process that is this person and nobody else any more, where the daemon lives."""
        given = {"PATH": os.environ["PATH"], "HOME": str(self.homes.get(self.uid, "/root")), "LANG": "C.UTF-8", **env}
        return subprocess.run(
            [*self._enter(), *argv],
            input=text,
            env=given,
            capture_output=True,
            encoding="utf-8",
            check=False,
            timeout=LIMIT_S,
        )

    @contextlib.contextmanager
    def beside(self, code: str, *argv: str):
        """Lines of Python that run as this person until the block ends; standard input and output are pipes."""
        command = [*self._enter(), sys.executable, "-I", "-S", "-c", code, *argv]
        process = subprocess.Popen(command, env={}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def submission(self, script, members=1, *, run=None, **gang) -> dict:
        home = str(self.homes.get(self.uid, "/"))
        return super().submission(script, members, run={"cwd": home, **(run or {})}, **gang)


@contextlib.contextmanager
def acting_as(uid: int):
    """Connect as this user: the kernel tells the peer the effective uid at that moment."""
    with _becoming:
        os.seteuid(uid)
        try:
            yield
        finally:
            os.seteuid(0)
