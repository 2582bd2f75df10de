"""The life of a run: members at the gate, through it, and gone.

    lock → journal → members forked to the gate → `ready` → `go` → … → everybody gone → `empty` → `bye`

Before `go`, the end of the daemon is the end of the run, and nobody has run a line. After it the run
goes on whoever is there to listen, and waits for a daemon to come back and ask.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import signal
import socket

from phalanx.frontends.host import containment
from phalanx.frontends.host.shim import log_writing, system
from phalanx.frontends.host.shim.control import Control
from phalanx.frontends.host.shim.event_loop import EventLoop
from phalanx.frontends.host.shim.journal import Journal
from phalanx.frontends.host.shim.members import Gate, MemberProcess, fork_members
from phalanx.frontends.host.shim.relay import Relay
from phalanx.frontends.host.shim.stopping import Reach, Stop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from phalanx.frontends.host.shim.event_loop import Timer
    from phalanx.wire import SchedulerEnd

_LINGER_S = 60.0
_LOOK_S = 0.01
_NOTES_BYTES_MAX = 65536


class Supervision:
    """One run, from the gate to the end."""

    def __init__(self, dir_fd: int, launch: Mapping[str, Any], control: socket.socket) -> None:
        """Nothing happens yet."""
        self._dir_fd, self._launch = dir_fd, launch
        self._notes_left = _NOTES_BYTES_MAX
        self.loop = EventLoop(self._on_child, lambda error: self.note(f"{type(error).__name__}: {error}"))
        allowed = frozenset((0, int(launch.get("daemon_uid", os.getuid()))))
        self.control = Control(self.loop, dir_fd, self._on_message, self._on_daemon_lost, allowed)
        self.control.take(control)
        self._relay = Relay(self.loop, dir_fd, self._make_end, self._on_spoken, self._make_welcome, self.note)
        group = containment.open_group(str(launch.get("containment", "")), launch.get("cgroup"))
        self._contained = group.kind if group is not None else containment.WEAK
        self._reach = Reach(group, str(launch.get("mark", "")))
        self._journal = Journal(dir_fd)
        self._rate = log_writing.Rate(self.loop, int(launch["logs"].get("rate_bytes_s", 0)))
        self._logs_fd = log_writing.open_folder(dir_fd)
        self._logs: dict[int, log_writing.RankLog] = {}
        self._members: list[MemberProcess] = []  # those that went, in order; the last of a rank is the one there is
        self._waiting: tuple[int, Gate, list[MemberProcess]] | None = None
        self._generation = 0
        self._stops: list[Stop] = []
        self._stuck: list[int] = []
        self._empty = self._bye = False
        self._linger: Timer | None = None
        self._look_again: Timer | None = None
        self._look_s = _LOOK_S
        self._key: bytes | None = None

    def note(self, line: str) -> None:
        """A line for shim.log, which is this process's stderr; not more than anybody wants to read."""
        if self._notes_left > 0:
            data = line.encode(errors="backslashreplace") + b"\n"
            self._notes_left -= len(data)
            complain(data)

    # ------------------------------------------------------------------ starting

    def begin(self) -> None:
        """Members to the gate; raises if that cannot be done, and then nobody is left there."""
        pid = os.getpid()
        head = {"v": 1, "what": "head", "run": self._launch["run"], "pid": pid}
        self._journal.write({**head, "start": containment.read_start(pid), "boot_id": self._launch["boot_id"]})
        # Everything that needs room on the disk is made now: later it may be full, and nobody to be told.
        self._relay.listen()
        self.control.listen()
        self._fork(int(self._launch["generation"]), self._launch["members"])

    def _fork(self, generation: int, orders: Sequence[Mapping[str, Any]]) -> None:
        self._journal.make_room(len(orders))
        ranks = [int(order["rank"]) for order in orders]
        for rank in ranks:
            if rank not in self._logs:
                self._logs[rank] = log_writing.RankLog(self._logs_fd, rank, int(self._launch["logs"]["cap_bytes"]))
        pipes = [os.pipe2(os.O_CLOEXEC) for _ in ranks]
        gate, umask = Gate(), int(self._launch.get("umask", 0o022))
        pids = fork_members(orders, [write_fd for _, write_fd in pipes], gate, umask)
        for _, write_fd in pipes:
            os.close(write_fd)
        for read_fd, _ in pipes[len(pids) :]:
            os.close(read_fd)
        members = [
            self._meet(rank, generation, pid, read_fd)
            for rank, pid, (read_fd, _) in zip(ranks, pids, pipes, strict=False)
        ]
        self._waiting = (generation, gate, members)
        if len(members) < len(ranks):
            self._drop_waiting()
            raise OSError(f"only {len(members)} of {len(ranks)} processes could be started")
        ready = [[member.rank, member.pid, member.start] for member in members]
        self._journal.write({"what": "ready", "generation": generation, "members": ready})
        told = [{"rank": rank, "pid": pid, "start": start} for rank, pid, start in ready]
        self.control.send("ready", generation=generation, members=told, contained=self._contained)

    def _meet(self, rank: int, generation: int, pid: int, read_fd: int) -> MemberProcess:
        # Our child until we wait for it, so there is somebody of that number.
        member = MemberProcess(rank, generation, pid, containment.read_start(pid) or 0, self._logs[rank])
        member.pump = log_writing.Pump(self.loop, read_fd, member.log, self._rate)
        return member

    def _drop_waiting(self) -> None:
        """Whoever waits at the gate goes home."""
        if self._waiting is None:
            return
        generation, gate, members = self._waiting
        self._waiting = None
        gate.close()
        for member in members:
            if not member.exited:
                member.signal_group(signal.SIGKILL)
                os.waitpid(member.pid, 0)
            if member.pump is not None:
                member.pump.close()
        self._write_down({"what": "dropped", "generation": generation})

    def _go(self, generation: int) -> None:
        self._on_child()  # the word may have come before the news that somebody died
        if self._waiting is not None and self._waiting[0] == generation:
            _, gate, members = self._waiting
            if any(member.exited for member in members):
                self._refuse_to_go(generation)
                return
            self._journal.write({"what": "go", "generation": generation})
            self._waiting = None
            self._generation = generation
            if not self._members:
                self.control.let_in()
            for member in members:
                self._relay.renew(member.rank)
            self._members += members
            self._relay.members = len(self._members)
            gate.let_through(len(members))
        if generation <= self._generation:
            self.control.send("gone", generation=generation)

    def _refuse_to_go(self, generation: int) -> None:
        """Somebody died waiting: a gang goes whole or not at all."""
        self.control.send("failed", why="a member died at the gate", generation=generation)
        self._abort()

    def _add(self, generation: int, orders: Sequence[Mapping[str, Any]]) -> None:
        living = {member.rank for member in self._members if not member.exited}
        taken = sorted(living & {int(order["rank"]) for order in orders})
        if taken or self._waiting is not None or self._empty or generation <= self._generation:
            why = f"ranks {taken} are still there" if taken else f"generation {generation} cannot join now"
            self.control.send("failed", why=why, generation=generation)
            return
        try:
            self._fork(generation, orders)
        except Exception as error:
            self.control.send("failed", why=f"{type(error).__name__}: {error}", generation=generation)

    # ------------------------------------------------------------------ what the daemon says

    def _on_message(self, message: dict[str, Any]) -> None:
        try:
            self._obey(message)
        except Exception as error:  # one order that makes no sense must not cost those behind it
            self.note(f"order {message.get('do')!r} failed: {type(error).__name__}: {error}")

    def _obey(self, message: dict[str, Any]) -> None:
        verb = message.get("do")
        if verb == "go":
            self._go(int(message["generation"]))
        elif verb == "abort":
            self._abort()
        elif verb == "add":
            self._add(int(message["generation"]), message["members"])
        elif verb == "signal":
            for member in self._choose(message.get("ranks")):
                member.signal_group(read_signal(message["signal"]))
        elif verb == "stop":
            self._stop(message.get("ranks"), read_signal(message.get("signal", "TERM")), float(message["grace_s"]))
        elif verb == "tell":
            ranks = [member.rank for member in self._choose(message.get("ranks"))]
            self._relay.tell(ranks, message["message"])
        elif verb == "hello":
            self._drop_waiting()  # whoever asks does not know of them
            self._send_state()
        elif verb == "bye":
            self._bye = True
            self._look()
        else:
            self.note(f"an order that this shim does not know: {verb!r}")

    def _choose(self, ranks: Sequence[int] | None) -> list[MemberProcess]:
        """The members of these ranks that live; None: all."""
        return [m for m in self._find_latest().values() if not m.exited and (ranks is None or m.rank in ranks)]

    def _find_latest(self) -> dict[int, MemberProcess]:
        return {member.rank: member for member in self._members}

    def _abort(self) -> None:
        self._drop_waiting()
        if not self._members:
            self._write_down({"what": "done", "never_started": True})
            self.loop.stopped = True

    def _stop(self, ranks: Sequence[int] | None, number: int, grace_s: float) -> None:
        if ranks is None:
            self._drop_waiting()
            if not self._members:
                self._abort()
                return
        members = [m for m in self._find_latest().values() if ranks is None or m.rank in ranks]
        stop = next((s for s in self._stops if not s.over and _covers(s, members, whole=ranks is None)), None)
        if stop is None:
            stop = Stop(
                self.loop,
                self._reach,
                members,
                whole=ranks is None,
                stuck_s=float(self._launch.get("kill_stuck_s", 30.0)),
                on_stuck=self._on_stuck,
            )
            self._stops.append(stop)
        stop.press(number, grace_s)
        self._look()

    def _on_stuck(self, pids: Sequence[int]) -> None:
        self._stuck = list(pids)
        self.control.send("stuck", pids=self._stuck)

    def _send_state(self) -> None:
        members = [
            {
                "rank": m.rank,
                "generation": m.generation,
                "pid": m.pid,
                "start": m.start,
                "code": m.code,
                "signal": m.signal,
                "exited": m.exited,
            }
            for m in self._find_latest().values()
        ]
        self.control.send(
            "state",
            generation=self._generation,
            went=bool(self._members),
            members=members,
            spoke=self._relay.list_spoken(),
            contained=self._contained,
            empty=self._empty,
            stuck=[] if self._empty else self._stuck,
        )

    def _on_daemon_lost(self) -> None:
        self._abort()
        if self._empty:
            self._start_lingering()

    # ------------------------------------------------------------------ ends

    def _on_child(self) -> None:
        """Wait for everybody who ended; those who are no members were left behind by some."""
        by_pid = {member.pid: member for member in self._members if not member.exited}
        if self._waiting is not None:
            by_pid.update((member.pid, member) for member in self._waiting[2])
        ended: list[MemberProcess] = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            member = by_pid.get(pid)
            if member is not None and not member.exited:
                member.end(status)
                ended.append(member)
        self._tell_ends([member for member in ended if member in self._members])
        self._look()

    def _tell_ends(self, ended: Sequence[MemberProcess]) -> None:
        if not ended:
            return
        ends = [{"rank": m.rank, "generation": m.generation, "code": m.code, "signal": m.signal} for m in ended]
        self._write_down(*({"what": "exit", **end} for end in ends))
        for member, end in zip(ended, ends, strict=True):
            if member.pump is not None:
                member.pump.drain()
            self._relay.forget(member.rank)
            self.control.send("exit", droppable=False, **end, tail=member.log.tail.decode(errors="replace"))

    def _write_down(self, *lines: Mapping[str, Any]) -> None:
        """Into the journal; if the disk is broken, a daemon that listens hears of it all the same."""
        try:
            self._journal.write(*lines)
        except OSError as error:
            self.note(f"the journal cannot be written: {error}")

    def _look(self) -> None:
        """Whether the stops, and the run, are over."""
        self._stops = [stop for stop in self._stops if not stop.look()]
        all_ended = bool(self._members) and all(member.exited for member in self._members)
        if all_ended and not self._empty and self._waiting is None:
            if self._reach.is_run_empty():
                self._end()
            elif not self._stops:
                self._look_later()
        if self._empty and self._bye:
            self.loop.stopped = True

    def _look_later(self) -> None:
        """Somebody was left behind. That is a child of ours, so its end wakes us; an emptied cgroup does not."""
        if self._look_again is not None:
            self._look_again.cancel()
        self._look_again = self.loop.after(self._look_s, self._look)
        self._look_s = min(1.0, self._look_s * 2)

    def _end(self) -> None:
        self._empty = True
        for member in self._members:
            if member.pump is not None:
                member.pump.drain()
                member.pump.close()
        for log in self._logs.values():
            log.close()
        self._relay.close()
        self._write_down({"what": "done"})
        self.control.send("empty")
        if not self.control.connected:
            self._start_lingering()

    def close(self) -> None:
        """Leave no names behind, and nothing unsaid."""
        self._relay.close()
        self.control.close()

    def _start_lingering(self) -> None:
        if self._linger is None:
            self._linger = self.loop.after(_LINGER_S, self._on_lingered)

    def _on_lingered(self) -> None:
        self._linger = None
        if not self.control.connected:
            self.loop.stopped = True

    # ------------------------------------------------------------------ what the job says

    def _make_end(self) -> SchedulerEnd:
        from phalanx.wire import SchedulerEnd
        from phalanx.wire.keys import parse_key

        if self._key is None:
            fd = os.open("key", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._dir_fd)
            try:
                self._key = parse_key(os.read(fd, 1024))
            finally:
                os.close(fd)
        return SchedulerEnd(self._key, int(self._launch["job"]), int(self._launch["attempt"]), self._has)

    def _has(self, rank: int, generation: int) -> bool:
        member = self._find_latest().get(rank)
        return member is not None and not member.exited and member.generation == generation

    def _make_welcome(self) -> dict[str, Any]:
        ranks = sorted(member.rank for member in self._choose(None))
        return {"type": "welcome", "generation": self._generation, "members": max(1, len(ranks)), "ranks": ranks}

    def _on_spoken(self, rank: int, message: dict[str, Any]) -> None:
        self.control.send("job", droppable=True, rank=rank, message=message)


def _covers(stop: Stop, members: Sequence[MemberProcess], *, whole: bool) -> bool:
    """Whether a new order means the same as a running one."""
    return stop.whole if whole else not stop.whole and {id(m) for m in stop.members} == {id(m) for m in members}


def complain(line: bytes) -> None:
    """Into shim.log, which is stderr; if not even that can be written, so be it."""
    try:
        os.write(2, line)
    except OSError:
        return


def read_signal(name: str) -> int:
    """The number of a signal by its short name."""
    return signal.Signals[f"SIG{name.removeprefix('SIG')}"].value


def run_shim(directory: str, control_fd: int, lock_fd: int | None) -> int:
    """All of it; the exit status of the process."""
    os.umask(0o077)
    dir_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    control = socket.socket(fileno=control_fd)
    os.set_inheritable(control_fd, False)  # noqa: FBT003 - it takes no names
    if lock_fd is None:
        lock_fd = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=dir_fd)
    os.set_inheritable(lock_fd, False)  # noqa: FBT003 - the same
    try:
        # The daemon has locked it already and handed it down: from the first instant it is held by somebody.
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        launch = _read_launch(dir_fd)
        if launch.get("drop") is not None:
            system.give_up_privileges(*launch["drop"])
        system.become_subreaper()
        os.chdir("/")
        gc.freeze()  # members are forks: what is not touched is not copied
        life = Supervision(dir_fd, launch, control)
        life.begin()
    except Exception as error:
        _fail(control, f"{type(error).__name__}: {error}")
        return 1
    life.loop.run()
    life.close()
    return 0


def _fail(control: socket.socket, why: str) -> None:
    line = json.dumps({"v": 1, "event": "failed", "why": why}) + "\n"
    complain(line.encode())
    try:
        control.settimeout(5.0)
        control.sendall(line.encode())
    except OSError:
        return  # nobody is there to be told


def _read_launch(dir_fd: int) -> dict[str, Any]:
    fd = os.open("launch.json", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
    with os.fdopen(fd, "rb") as file:
        launch: dict[str, Any] = json.loads(file.read())
    return launch
