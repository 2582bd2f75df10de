"""Holding on to everything that a run starts, so that a stop leaves nothing behind.

Three strengths, the best that the machine allows: `cgroup2` (one write of `cgroup.kill` ends a whole
tree at once), `cgroup1` (freeze, kill every process, thaw), and `weak` (the shim is a child subreaper,
so whatever its members leave behind becomes its own child; it is swept until two passes find nothing).
The daemon makes the groups and puts members in while they wait at the gate, before a line of the
job's code has run. It keeps the lists of processes to itself: a job that could write them could leave.

A process is signalled through a pidfd that was opened before the last look at who it is: if the number
was given to somebody else in between, the pidfd is that of a dead process and the signal goes nowhere.
Imported by every shim, hence no pathlib, typing or dataclasses: together they cost as much CPU as the rest.
"""
# ruff: noqa: PTH103, PTH106, PTH110, PTH112, PTH116, PTH208

from __future__ import annotations

import contextlib
import os
import select
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

CGROUP2 = "cgroup2"
CGROUP1 = "cgroup1"
WEAK = "weak"

#: The folder that a systemd unit puts the daemon itself in, beside the groups of its runs.
OWN_LEAF = "daemon"
#: How often a freezer, or a sweep, is asked again before the pass goes on with what it has.
_FREEZE_LOOKS = 20
_STOP_ROUNDS = 20
_MAKE_TRIES = 10


class ProcEntry:
    """One line of /proc: who somebody is, and whose child."""

    __slots__ = ("group", "parent", "pid", "session", "start", "state")

    def __init__(self, pid: int, fields: Sequence[bytes]) -> None:
        """`fields` are those of /proc/PID/stat after the name."""
        self.pid = pid
        self.state = fields[0].decode()
        self.parent, self.group, self.session = int(fields[1]), int(fields[2]), int(fields[3])
        self.start = int(fields[19])

    @property
    def is_gone(self) -> bool:
        """A zombie does nothing any more; only its parent has not looked yet."""
        return self.state in "ZX"


def read_process(pid: int) -> ProcEntry | None:
    """Who has this number now, or None."""
    stat = read_file(f"/proc/{pid}/stat")
    # The name may hold anything, brackets and blanks too; what follows the last bracket cannot.
    fields = stat.rpartition(b")")[2].split()
    return ProcEntry(pid, fields) if len(fields) > 19 else None


def read_start(pid: int) -> int | None:
    """When the process started, in ticks since boot: with the boot id, what no other process shares."""
    found = read_process(pid)
    return found.start if found is not None else None


def read_file(path: str, limit: int = 1 << 20) -> bytes:
    """The content of a small file of the kernel's, empty if it is not there."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        parts = []
        while limit > 0 and (part := os.read(fd, min(limit, 65536))):
            parts.append(part)
            limit -= len(part)
        return b"".join(parts)
    except OSError:
        return b""
    finally:
        os.close(fd)


def write_file(path: str, text: str) -> bool:
    """Tell a file of the kernel's something; False if it does not want to hear it."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.write(fd, text.encode())
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def list_pids() -> list[int]:
    """Every process that this one can see."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def send_signal(pid: int, number: int, is_ours: Callable[[ProcEntry], bool]) -> bool:
    """Signal a process if, once held by a pidfd, it is still ours. True if it was sent."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        process = read_process(pid)
        if process is None or process.is_gone or not is_ours(process):
            return False
        signal.pidfd_send_signal(fd, number)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def kill_identified(pid: int, start: int, uid: int) -> bool:
    """Kill the process of this user that had this number at that start time, and nobody who has it now.

    Who it is comes from a file that the user may have written, so it must be the user's own process.
    """
    return send_signal(pid, signal.SIGKILL, lambda process: process.start == start and _is_of(pid, uid))


def is_identified(pid: int, start: int, uid: int) -> bool:
    """Whether this user's process that had this number at that start time still lives."""
    process = read_process(pid)
    return process is not None and not process.is_gone and process.start == start and _is_of(pid, uid)


# ---------------------------------------------------------------------- descendants


def find_descendants(root: int) -> list[int]:
    """The processes below this one, as far as one look shows them; parents before their children."""
    list_children = _list_children if os.path.exists("/proc/thread-self/children") else _look_for_children()
    found: dict[int, None] = {}
    new = [root]
    while new:
        new = [child for pid in new for child in list_children(pid) if child not in found]
        found.update(dict.fromkeys(new))
    return list(found)


def _list_children(pid: int) -> list[int]:
    children: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return children
    for thread in threads:
        children += map(int, read_file(f"/proc/{pid}/task/{thread}/children").split())
    return children


def _look_for_children() -> Callable[[int], list[int]]:
    """The same from everybody's parent, where the kernel was built without a list of children."""
    children: dict[int, list[int]] = {}
    for process in filter(None, map(read_process, list_pids())):
        children.setdefault(process.parent, []).append(process.pid)
    return lambda pid: children.get(pid, [])


def kill_descendants(root: int, whose: tuple[int, int] | None = None) -> set[int]:
    """Kill everything below a process, and say what was there to be killed.

    First they are all stopped, in rounds: what is stopped forks no more, so that even those who fork
    faster than one can kill come to an end. `whose`: when the root started and whose it is, for a caller who is not
    the root itself; then nobody is touched below a process that only has its number, and nobody of another user.
    """
    stopped: set[int] = set()
    for _ in range(_STOP_ROUNDS):
        found = _find_below(root, whose)
        new = [pid for pid in found if pid not in stopped]
        if not new:
            break
        family = {root, *found}
        for pid in new:
            if send_signal(pid, signal.SIGSTOP, lambda process: _is_below(process, family, whose)) or _is_gone(pid):  # noqa: B023
                stopped.add(pid)
    found = _find_below(root, whose)
    family = {root, *found}
    # Children before their parents: an orphan has another parent, and would not be known as one of these.
    return {pid for pid in reversed(found) if send_signal(pid, signal.SIGKILL, lambda p: _is_below(p, family, whose))}


def _find_below(root: int, whose: tuple[int, int] | None) -> list[int]:
    return find_descendants(root) if whose is None or is_identified(root, *whose) else []


def _is_below(process: ProcEntry, family: set[int], whose: tuple[int, int] | None) -> bool:
    return process.parent in family and (whose is None or _is_of(process.pid, whose[1]))


def _is_of(pid: int, uid: int) -> bool:
    """Whether a process is altogether this user's: real, effective, saved and filesystem uid."""
    for line in read_file(f"/proc/{pid}/status").splitlines():
        if line.startswith(b"Uid:"):
            return all(int(word) == uid for word in line.split()[1:])
    return False


def _is_gone(pid: int) -> bool:
    process = read_process(pid)
    return process is None or process.is_gone


# ---------------------------------------------------------------------- by mark


def find_marked(mark: str, uid: int) -> set[int]:
    """Processes of this user that were started with this mark in their environment, or inherited it."""
    return {pid for pid in list_pids() if pid != os.getpid() and _is_marked(pid, mark, uid)}


def list_marks(prefix: str, uid: int) -> set[str]:
    """What follows this in the marks of this user's processes, up to the next colon."""
    found = set()
    for pid in list_pids():
        if pid == os.getpid() or not _is_marked(pid, prefix, uid):
            continue
        for entry in read_file(f"/proc/{pid}/environ").split(b"\0"):
            if entry.startswith(prefix.encode()):
                found.add(entry[len(prefix) :].decode(errors="replace").partition(":")[0])
    return found


def kill_marked(mark: str, uid: int) -> set[int]:
    """Kill them, and say which there were."""
    found = find_marked(mark, uid)
    return {pid for pid in found if send_signal(pid, signal.SIGKILL, lambda p: _is_marked(p.pid, mark, uid))}


def _is_marked(pid: int, mark: str, uid: int) -> bool:
    try:
        if os.stat(f"/proc/{pid}").st_uid != uid:
            return False
    except OSError:
        return False
    return any(entry.startswith(mark.encode()) for entry in read_file(f"/proc/{pid}/environ").split(b"\0"))


# ---------------------------------------------------------------------- groups


class Cgroup:
    """A cgroup with all below it. One that does not exist is empty."""

    kind = WEAK

    def __init__(self, path: str) -> None:
        """`path` is absolute, in the hierarchy by which it is killed."""
        self.path = path

    def part(self, name: str) -> Cgroup:
        """The group of one member inside the group of its run."""
        return type(self)(f"{self.path}/{name}")

    def list_parts(self) -> list[tuple[str, Cgroup]]:
        """The groups of its members by name."""
        _, names, _ = next(os.walk(self.path), ("", (), ()))
        return [(name, self.part(name)) for name in names]

    def list_pids(self) -> set[int]:
        """Everybody inside."""
        pids: set[int] = set()
        for folder, _, _ in os.walk(self.path):
            pids.update(map(int, read_file(f"{folder}/cgroup.procs").split()))
        return pids

    def is_empty(self) -> bool:
        """Whether nobody is left."""
        return all(map(_is_gone, self.list_pids()))

    def kill(self) -> None:
        """Kill everybody inside; to be repeated until it is empty."""
        raise NotImplementedError

    def remove(self) -> bool:
        """Remove an empty group; False if the kernel says that it is not."""
        for folder, _, _ in os.walk(self.path, topdown=False):
            try:
                os.rmdir(folder)
            except FileNotFoundError:
                continue
            except OSError:
                return False
        return True


class Group2(Cgroup):
    """Version 2: the kernel kills the tree, those just being forked included."""

    kind = CGROUP2

    def is_empty(self) -> bool:
        """Whether nobody is left, as the kernel counts it; what is there and cannot be read is not empty."""
        told = read_file(f"{self.path}/cgroup.events")
        return b"populated 0" in told or (not told and not os.path.exists(self.path))

    def kill(self) -> None:
        """Kill everybody inside."""
        write_file(f"{self.path}/cgroup.kill", "1")


class Group1(Cgroup):
    """Version 1, by the freezer: nobody forks while everybody is killed."""

    kind = CGROUP1

    def kill(self) -> None:
        """Freeze, kill, thaw. What cannot be frozen (it sleeps in a driver) is killed all the same."""
        state = f"{self.path}/freezer.state"
        if not os.path.exists(state):
            return
        # Parts of it are lent to the job's user, who may have frozen one: what is frozen does not die.
        folders = {self.path, *(folder for folder, _, _ in os.walk(self.path))}
        write_file(state, "FROZEN")
        for _ in range(_FREEZE_LOOKS):
            if read_file(state).strip() != b"FREEZING":
                break
            select.select([], [], [], 0.002)
        for pid in self.list_pids():
            send_signal(pid, signal.SIGKILL, lambda process: _is_inside(process.pid, self.path))
        for folder in folders:
            write_file(f"{folder}/freezer.state", "THAWED")


def _is_inside(pid: int, folder: str) -> bool:
    """Whether the freezer of a process lies in that folder or below."""
    for line in read_file(f"/proc/{pid}/cgroup").decode(errors="replace").splitlines():
        _, controllers, path = line.split(":", 2)
        if "freezer" in controllers.split(","):
            # The kernel names it from the root of the hierarchy, wherever that is mounted.
            while path.strip("/") and not folder.endswith(path):
                path = path.rpartition("/")[0]
            return bool(path.strip("/"))
    return False


def open_group(kind: str, path: str | None) -> Cgroup | None:
    """The group that was made for a run, or None where there is none."""
    if not path:
        return None
    return {CGROUP2: Group2, CGROUP1: Group1}[kind](path) if kind in (CGROUP2, CGROUP1) else None


# ---------------------------------------------------------------------- making groups


class CgroupRoot:
    """Where the daemon makes groups: a folder of its own in each hierarchy that it can write.

    The folders are there while a run is in them and go with the last one, so that a daemon that is killed
    while it is idle leaves nothing in the kernel.
    """

    def __init__(self, kind: str, base: str, pids_base: str | None) -> None:
        """`base` is the folder in the hierarchy that kills, `pids_base` that in another one that counts."""
        self.kind, self.base, self.pids_base = kind, base, pids_base

    def make(self, run: str, uid: int, pids_max: int) -> Cgroup | None:
        """A group for a run, with a bound on its processes where the machine has one; None if it cannot be made."""
        group = open_group(self.kind, f"{self.base}/{run}")
        assert group is not None
        if not _make_folder(self.base) or not _make_folder(group.path):
            return None
        if pids_max > 0:
            self._bound(run, pids_max)
        _lend(group, uid)
        return group

    def _bound(self, run: str, pids_max: int) -> None:
        if self.pids_base is None:
            write_file(f"{self.base}/cgroup.subtree_control", "+pids")
        else:
            _make_folder(f"{self.pids_base}/{run}")
        write_file(f"{self.pids_base or self.base}/{run}/pids.max", str(pids_max))

    def admit(self, group: Cgroup, name: str, pid: int, uid: int) -> bool:
        """Put a member that waits at the gate into a part of its own; False if that did not work."""
        part = group.part(name)
        if not _make_folder(part.path):
            return False
        _lend(part, uid)
        if not write_file(f"{part.path}/cgroup.procs", str(pid)):
            return False
        counted = f"{self.pids_base}/{group.path.rpartition('/')[2]}"
        if self.pids_base is not None and os.path.isdir(counted):
            return write_file(f"{counted}/cgroup.procs", str(pid))
        return True

    def remove(self, run: str) -> bool:
        """Remove what was made for a run, if nobody is in it."""
        group = open_group(self.kind, f"{self.base}/{run}")
        assert group is not None
        done = group.remove()
        if self.pids_base is not None:
            done = Cgroup(f"{self.pids_base}/{run}").remove() and done
        self.close()
        return done

    def list_runs(self) -> list[str]:
        """The runs for which there is a group."""
        try:
            return [entry.name for entry in os.scandir(self.base) if entry.is_dir()]
        except OSError:
            return []

    def close(self) -> None:
        """Remove the folders themselves if no run is left in them."""
        for base in filter(None, (self.base, self.pids_base)):
            try:
                os.rmdir(base)
            except OSError:
                continue


def _lend(group: Cgroup, uid: int) -> None:
    """Let the shim, which runs as the job's user, end what is inside; never move anybody in or out."""
    if uid == os.geteuid():
        return
    try:
        os.chown(f"{group.path}/{'cgroup.kill' if group.kind == CGROUP2 else 'freezer.state'}", uid, -1)
    except OSError:
        return  # then only the daemon can, and does when the shim has failed


def find_ground(name: str, kinds: Iterable[str] = (CGROUP2, CGROUP1)) -> CgroupRoot | None:
    """The best place for groups that this process may make, or None: then containment is weak."""
    folders = _find_own_folders()
    for kind in kinds:
        folder = folders.get({CGROUP2: "", CGROUP1: "freezer"}.get(kind, WEAK))
        base = f"{folder}/{name}" if folder is not None else None
        if base is not None and _can_use(kind, base):
            ground = CgroupRoot(kind, base, _find_pids_base(kind, base, folders, name))
            ground.close()
            return ground
    return None


def _make_folder(path: str) -> bool:
    """Make a folder with those above it, even while another thread takes those away that are empty."""
    for _ in range(_MAKE_TRIES):
        try:
            os.makedirs(path, exist_ok=True)
        except FileNotFoundError:
            continue
        except OSError:
            return False
        with contextlib.suppress(OSError):  # whatever our umask: a shim that runs as somebody else looks inside
            os.chmod(path, 0o755)  # noqa: PTH101, S103 - what is in it, /proc tells everybody anyway
        return True
    return False


def _can_use(kind: str, base: str) -> bool:
    if not _make_folder(base):
        return False
    needed = "cgroup.kill" if kind == CGROUP2 else "freezer.state"
    # Whoever moves a process must be able to write in the folder above both places.
    above = base.rpartition("/")[0]
    return os.path.exists(f"{base}/{needed}") and os.access(f"{above}/cgroup.procs", os.W_OK)


def _find_pids_base(kind: str, base: str, folders: dict[str, str], name: str) -> str | None:
    """Where processes can be counted: in version 2 itself if it may be switched on, else in version 1."""
    if kind == CGROUP2 and b"pids" in read_file(f"{base}/cgroup.controllers").split():
        return None
    folder = folders.get("pids")
    return f"{folder}/{name}" if folder is not None and _make_folder(f"{folder}/{name}") else None


def _find_own_folders() -> dict[str, str]:
    """The folder of this process in each hierarchy by controller; version 2 stands under the empty word."""
    own: dict[str, str] = {}
    for line in read_file("/proc/self/cgroup").decode(errors="replace").splitlines():
        _, controllers, path = line.split(":", 2)
        own.update((word, path) for word in controllers.split(","))
    # A systemd unit with `DelegateSubgroup=daemon` keeps the folder above us free for our groups.
    own = {word: path.removesuffix(f"/{OWN_LEAF}") for word, path in own.items() if ".." not in path}
    folders: dict[str, str] = {}
    for line in read_file("/proc/self/mounts").decode(errors="replace").splitlines():
        _, where, kind, options = line.split(" ")[:4]
        words = [""] if kind == "cgroup2" else options.split(",") if kind == "cgroup" else []
        folders.update((word, (where + own[word]).rstrip("/")) for word in words if word in own)
    return folders
