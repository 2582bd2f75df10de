"""Members: forked to a gate, one pipe that all of a generation wait at, and let through by one write.

Everything that can be done before the gate is: a session of its own, stdin, stdout and stderr, signals
as a fresh process expects them. A member holds nothing of the shim's but the reading end of the gate, so
if the shim dies before the write, the gate closes and the member ends without having run a line.
"""

from __future__ import annotations

import fcntl
import os
import resource
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from typing import Any, NoReturn

    from phalanx.frontends.host.shim.log_writing import Pump, RankLog

#: What the shim handles or Python ignores, and a fresh process does neither.
_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ)
_FDS_MAX = min(os.sysconf("SC_OPEN_MAX"), 1 << 20)
_GATE_FD = 3

NO_DIRECTORY = 125
NOT_PERMITTED = 126
NOT_FOUND = 127


class MemberProcess:
    """One process of the gang, as the shim knows it."""

    __slots__ = ("code", "exited", "generation", "log", "pid", "pump", "rank", "signal", "start")

    def __init__(self, rank: int, generation: int, pid: int, start: int, log: RankLog) -> None:
        self.rank, self.generation, self.pid, self.start, self.log = rank, generation, pid, start, log
        self.pump: Pump | None = None
        self.exited = False
        self.code: int | None = None
        self.signal: int | None = None

    @property
    def part(self) -> str:
        """The name of its part of the run's cgroup."""
        return part_name(self.generation, self.rank)

    def end(self, status: int) -> None:
        """It was waited for, and this is how it ended."""
        self.exited = True
        if os.WIFSIGNALED(status):
            self.signal = os.WTERMSIG(status)
        else:
            self.code = os.WEXITSTATUS(status)

    def signal_group(self, number: int) -> None:
        """Signal its process group. Its number is ours until we have waited for it, so it cannot be another's."""
        if not self.exited:
            try:
                os.killpg(self.pid, number)
            except OSError:
                # Not yet the leader of a group: it was forked this instant and stands before the gate.
                os.kill(self.pid, number)


def part_name(generation: int, rank: int) -> str:
    """What the daemon calls a member's part of the run's cgroup."""
    return f"{generation}.{rank}"


class Gate:
    """Where the members of one generation wait."""

    def __init__(self) -> None:
        self.read_fd, self.write_fd = os.pipe2(os.O_CLOEXEC)
        self._open = True

    def let_through(self, members: int) -> None:
        """One write, a byte for each: a pipe takes as many as a gang may have in one piece."""
        os.write(self.write_fd, b"g" * members)
        self.close()

    def close(self) -> None:
        """Those who still wait give up."""
        if self._open:
            self._open = False
            os.close(self.read_fd)
            os.close(self.write_fd)


class WaitingMembers:
    """Those at the gate: of one generation, forked, and through it all together or not at all."""

    __slots__ = ("gate", "generation", "members")

    def __init__(self, generation: int, gate: Gate, members: Sequence[MemberProcess]) -> None:
        self.generation, self.gate, self.members = generation, gate, members

    def send_home(self) -> None:
        """The gate closes; nobody is left when this returns, and nobody has run a line."""
        self.gate.close()
        for member in self.members:
            if not member.exited:
                member.signal_group(signal.SIGKILL)
                os.waitpid(member.pid, 0)
            if member.pump is not None:
                member.pump.close()


class RunMembers:
    """Those that went through the gate, whether they live or not."""

    def __init__(self) -> None:
        """Nobody went."""
        self.generation = 0  # the last that was let through; 0: none
        self._went: list[MemberProcess] = []  # in order; the last of a rank is the one there is

    def __len__(self) -> int:
        return len(self._went)

    def __iter__(self) -> Iterator[MemberProcess]:
        return iter(self._went)

    def let_in(self, generation: int, members: Sequence[MemberProcess]) -> None:
        """They are members from now on."""
        self.generation = generation
        self._went += members

    def find_latest(self, ranks: Collection[int] | None = None) -> list[MemberProcess]:
        """Who has each of these ranks, or had it last; None: all ranks."""
        latest = {member.rank: member for member in self._went}
        return [member for member in latest.values() if ranks is None or member.rank in ranks]

    def find_living(self, ranks: Collection[int] | None = None) -> list[MemberProcess]:
        """Who of these ranks lives; None: all."""
        return [member for member in self.find_latest(ranks) if not member.exited]

    def has(self, rank: int, generation: int) -> bool:
        """Whether this rank lives and came with this generation, as whoever connects says of itself."""
        return any(member.generation == generation for member in self.find_living((rank,)))

    def have_ended(self) -> bool:
        """Whether somebody went, and all of them have ended."""
        return bool(self._went) and all(member.exited for member in self._went)

    def make_welcome(self) -> dict[str, Any]:
        """What a member hears first: whom it is with."""
        ranks = sorted(member.rank for member in self.find_living())
        return {"type": "welcome", "generation": self.generation, "members": max(1, len(ranks)), "ranks": ranks}


def fork_members(orders: Sequence[Mapping[str, Any]], log_fds: Sequence[int], gate: Gate, umask: int) -> list[int]:
    """Fork members up to the gate; their pids, which are fewer than the orders if the machine has no room for more.

    Nothing else is done in between: what the shim writes to after a fork is copied, page by page. No signal
    is delivered meanwhile, or a SIGTERM sent at once would be swallowed by the shim's handler in the child.
    """
    pids: list[int] = []
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        for order, log_fd in zip(orders, log_fds, strict=True):
            pid = os.fork()
            if pid == 0:
                _be_member(order, gate, log_fd, umask)
            pids.append(pid)
    except OSError:
        return pids
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return pids


def _be_member(order: Mapping[str, Any], gate: Gate, log_fd: int, umask: int) -> NoReturn:
    try:
        os.setsid()
        _take_stdio(gate, log_fd)
        signal.set_wakeup_fd(-1)
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if os.read(_GATE_FD, 1) != b"g":
            os._exit(0)  # the run was given up; nobody asks for this code
        os.close(_GATE_FD)
        os.umask(umask)
        limit = order.get("nofile")
        if limit is not None:  # the daemon raised its own
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        _start(order["argv"], order["env"], order["cwd"])
    except BaseException as error:
        _complain(f"phalanx: cannot start this member: {type(error).__name__}: {error}")
    os._exit(NOT_PERMITTED)


def _take_stdio(gate: Gate, log_fd: int) -> None:
    null_fd = os.open("/dev/null", os.O_RDONLY)
    # Through high numbers first: any of these may stand where another is to go.
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (null_fd, log_fd, gate.read_fd)]
    os.dup2(high[0], 0)
    os.dup2(high[1], 1)
    os.dup2(high[1], 2)
    os.dup2(high[2], _GATE_FD, inheritable=False)
    os.closerange(_GATE_FD + 1, _FDS_MAX)


def _start(argv: Sequence[str], env: Mapping[str, str], cwd: str) -> NoReturn:
    try:
        os.chdir(cwd)
    except OSError as error:
        _complain(f"phalanx: cannot start in the working directory '{cwd}': {error.strerror}")
        os._exit(NO_DIRECTORY)
    try:
        os.execvpe(argv[0], list(argv), dict(env))  # noqa: S606 - the job's own command, without a shell
    except (FileNotFoundError, NotADirectoryError) as error:
        _complain(f"phalanx: cannot start '{argv[0]}': {error.strerror}")
        os._exit(NOT_FOUND)
    except OSError as error:
        _complain(f"phalanx: cannot start '{argv[0]}': {error.strerror}")
        os._exit(NOT_PERMITTED)


def _complain(line: str) -> None:
    os.write(2, line.encode(errors="backslashreplace") + b"\n")
