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
from phalanx.frontends.host.shim import system
from phalanx.frontends.host.shim.control import Control
from phalanx.frontends.host.shim.event_loop import EventLoop
from phalanx.frontends.host.shim.held_sources import hold_protocol
from phalanx.frontends.host.shim.journal import Journal
from phalanx.frontends.host.shim.log_writing import RunLogs
from phalanx.frontends.host.shim.members import Gate, MemberProcess, RunMembers, WaitingMembers, fork_members
from phalanx.frontends.host.shim.notes import Notes, complain
from phalanx.frontends.host.shim.relay import Relay, SchedulerEnds
from phalanx.frontends.host.shim.stopping import Reach, Stops

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from phalanx.frontends.host.shim.event_loop import Timer

_LINGER_S = 60.0
_LOOK_S = 0.01


class Supervision:
    """One run, from the gate to the end."""

    def __init__(self, dir_fd: int, launch: Mapping[str, Any], control: socket.socket) -> None:
        """Nothing happens yet."""
        self._launch = launch
        self._notes = Notes()
        self.loop = EventLoop(self._on_child, lambda error: self._notes.write(f"{type(error).__name__}: {error}"))
        allowed = frozenset((0, int(launch.get("daemon_uid", os.getuid()))))
        self.control = Control(self.loop, dir_fd, self._on_message, self._on_daemon_lost, allowed)
        self.control.take(control)
        self._members = RunMembers()
        self._waiting: WaitingMembers | None = None
        ends = SchedulerEnds(dir_fd, int(launch["job"]), int(launch["attempt"]), self._members.has)
        self._relay = Relay(
            self.loop, dir_fd, ends.make, self._on_spoken, self._members.make_welcome, self._notes.write
        )
        group = containment.open_group(str(launch.get("containment", "")), launch.get("cgroup"))
        self._contained = group.kind if group is not None else containment.WEAK
        self._reach = Reach(group, str(launch.get("mark", "")))
        self._stops = Stops(self.loop, self._reach, float(launch.get("kill_stuck_s", 30.0)), self._on_stuck)
        self._journal = Journal(dir_fd)
        logs = launch["logs"]
        self._logs = RunLogs(self.loop, dir_fd, int(logs["cap_bytes"]), int(logs.get("rate_bytes_s", 0)))
        self._empty = self._bye = False
        self._linger: Timer | None = None
        self._look_again: Timer | None = None
        self._look_s = _LOOK_S

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
        logs = [self._logs.open(rank) for rank in ranks]
        pipes = [os.pipe2(os.O_CLOEXEC) for _ in ranks]
        gate, umask = Gate(), int(self._launch.get("umask", 0o022))
        pids = fork_members(orders, [write_fd for _, write_fd in pipes], gate, umask)
        for _, write_fd in pipes:
            os.close(write_fd)
        for read_fd, _ in pipes[len(pids) :]:
            os.close(read_fd)
        members = []
        for rank, log, pid, (read_fd, _) in zip(ranks, logs, pids, pipes, strict=False):
            # Our child until we wait for it, so there is somebody of that number.
            member = MemberProcess(rank, generation, pid, containment.read_start(pid) or 0, log)
            member.pump = self._logs.pump(read_fd, log)
            members.append(member)
        self._waiting = WaitingMembers(generation, gate, members)
        if len(members) < len(ranks):
            self._drop_waiting()
            raise OSError(f"only {len(members)} of {len(ranks)} processes could be started")
        ready = [[member.rank, member.pid, member.start] for member in members]
        self._journal.write({"what": "ready", "generation": generation, "members": ready})
        told = [{"rank": rank, "pid": pid, "start": start} for rank, pid, start in ready]
        self.control.send("ready", generation=generation, members=told, contained=self._contained)

    def _drop_waiting(self) -> None:
        """Whoever waits at the gate goes home."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.send_home()
            self._write_down({"what": "dropped", "generation": waiting.generation})

    def _go(self, generation: int) -> None:
        self._on_child()  # the word may have come before the news that somebody died
        waiting = self._waiting
        if waiting is not None and waiting.generation == generation:
            if any(member.exited for member in waiting.members):  # a gang goes whole or not at all
                self.control.send("failed", why="a member died at the gate", generation=generation)
                self._abort()
                return
            self._journal.write({"what": "go", "generation": generation})
            self._waiting = None
            if not self._members:
                self.control.let_in()
            for member in waiting.members:
                self._relay.renew(member.rank)
            self._members.let_in(generation, waiting.members)
            self._relay.members = len(self._members)
            waiting.gate.let_through(len(waiting.members))
        if generation <= self._members.generation:
            self.control.send("gone", generation=generation)

    def _add(self, generation: int, orders: Sequence[Mapping[str, Any]]) -> None:
        living = {member.rank for member in self._members if not member.exited}
        taken = sorted(living & {int(order["rank"]) for order in orders})
        if taken or self._waiting is not None or self._empty or generation <= self._members.generation:
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
            self._notes.write(f"order {message.get('do')!r} failed: {type(error).__name__}: {error}")

    def _obey(self, message: dict[str, Any]) -> None:
        verb = message.get("do")
        if verb == "go":
            self._go(int(message["generation"]))
        elif verb == "abort":
            self._abort()
        elif verb == "add":
            self._add(int(message["generation"]), message["members"])
        elif verb == "signal":
            for member in self._members.find_living(message.get("ranks")):
                member.signal_group(read_signal(message["signal"]))
        elif verb == "stop":
            self._stop(message.get("ranks"), read_signal(message.get("signal", "TERM")), float(message["grace_s"]))
        elif verb == "tell":
            ranks = [member.rank for member in self._members.find_living(message.get("ranks"))]
            self._relay.tell(ranks, message["message"])
        elif verb == "hello":
            self._drop_waiting()  # whoever asks does not know of them
            self._send_state()
        elif verb == "bye":
            self._bye = True
            self._look()
        else:
            self._notes.write(f"an order that this shim does not know: {verb!r}")

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
        self._stops.press(self._members.find_latest(ranks), number, grace_s, whole=ranks is None)
        self._look()

    def _on_stuck(self, pids: Sequence[int]) -> None:
        self.control.send("stuck", pids=pids)

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
            for m in self._members.find_latest()
        ]
        self.control.send(
            "state",
            generation=self._members.generation,
            went=bool(self._members),
            members=members,
            spoke=self._relay.list_spoken(),
            contained=self._contained,
            empty=self._empty,
            stuck=[] if self._empty else self._stops.stuck,
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
            by_pid.update((member.pid, member) for member in self._waiting.members)
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
            self._notes.write(f"the journal cannot be written: {error}")

    def _look(self) -> None:
        """Whether the stops, and the run, are over."""
        stopping = self._stops.look()
        if self._members.have_ended() and not self._empty and self._waiting is None:
            if self._reach.is_run_empty():
                self._end()
            elif not stopping:
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
        self._logs.close()
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

    def _on_spoken(self, rank: int, message: dict[str, Any]) -> None:
        self.control.send("job", droppable=True, rank=rank, message=message)


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
        hold_protocol()
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
