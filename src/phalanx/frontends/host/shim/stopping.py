"""Stopping members: a signal, a grace, and then an end to everything that they started.

A stop knows its members, or means the whole run. It is over when nothing of them is left, escapees
included. What the kernel does not let go of (a process that sleeps in a driver) is reported once, and
the stop goes on trying: whoever waits for the devices must not be told that they are free.
"""

from __future__ import annotations

import os
import signal

from phalanx.frontends.host import containment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from phalanx.frontends.host.containment import Cgroup
    from phalanx.frontends.host.shim.event_loop import EventLoop, Timer
    from phalanx.frontends.host.shim.members import MemberProcess

_LOOK_S_FIRST = 0.01
_LOOK_S_MAX = 1.0


class Reach:
    """Which processes belong to a member, or to the run."""

    def __init__(self, group: Cgroup | None, mark: str) -> None:
        """`mark` is how the environment of a member begins a line that names the run."""
        self._group, self._mark = group, mark

    def is_run_empty(self) -> bool:
        """Whether nobody of the run is left. Call when every child that ended has been waited for."""
        try:
            # A subreaper without children has no descendants either: whoever loses a parent becomes ours.
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return self._group is None or self._group.is_empty()
        return False

    def kill_run(self) -> None:
        """Kill everybody of the run, once."""
        if self._group is not None:
            self._group.kill()
        containment.kill_descendants(os.getpid())

    def list_run(self) -> list[int]:
        """Who of the run is left."""
        inside = self._group.list_pids() if self._group is not None else set()
        return sorted(pid for pid in inside.union(containment.find_descendants(os.getpid())) if _lives(pid))

    def list_member(self, member: MemberProcess) -> set[int]:
        """Who of one member is left: itself, and whatever it started, wherever that went."""
        if self._group is not None and (inside := self._group.part(member.part).list_pids()):
            return {pid for pid in inside if _lives(pid)}
        below = containment.find_descendants(os.getpid())
        own = set(containment.find_descendants(member.pid)) if not member.exited else set()
        return {pid for pid in below if _lives(pid) and (pid in own or self._is_of(pid, member))}

    def _is_of(self, pid: int, member: MemberProcess) -> bool:
        """Whether a descendant of the shim came from this member: by its session, else by its environment."""
        process = containment.read_process(pid)
        if process is None or process.session == member.pid:
            return process is not None
        mark = f"{self._mark}{member.part}".encode()
        return mark in containment.read_file(f"/proc/{pid}/environ").split(b"\0")

    def kill_members(self, members: Iterable[MemberProcess]) -> None:
        """Kill everybody of these members, once."""
        for member in members:
            if self._group is not None:
                self._group.part(member.part).kill()
            self.signal_left(member, signal.SIGKILL)

    def signal_left(self, member: MemberProcess, number: int) -> None:
        """Signal each process of a member by itself."""
        family = {os.getpid(), *containment.find_descendants(os.getpid())}
        for pid in self.list_member(member):
            containment.send_signal(pid, number, lambda process: process.parent in family)


def _lives(pid: int) -> bool:
    process = containment.read_process(pid)
    return process is not None and not process.is_gone


class Stop:
    """One order to stop, until nothing is left of whom it means."""

    def __init__(
        self,
        loop: EventLoop,
        reach: Reach,
        members: Sequence[MemberProcess],
        *,
        whole: bool,
        stuck_s: float,
        on_stuck: Callable[[Sequence[int]], None],
    ) -> None:
        """`whole`: the run with everything in it, not only these members."""
        self._loop, self._reach, self.members, self.whole = loop, reach, members, whole
        self._stuck_s, self._on_stuck = stuck_s, on_stuck
        self._kill_at_s: float | None = None
        self._sent: set[int] = set()
        self._timer: Timer | None = None
        self._look_s = _LOOK_S_FIRST
        self._killed_at_s: float | None = None
        self._told_stuck = False
        self.over = False

    def press(self, number: int, grace_s: float) -> None:
        """Signal once, and kill after the grace; a second order can bring the kill forward, never put it off."""
        if number not in self._sent:
            self._sent.add(number)
            for member in self.members:
                self._signal(member, number)
        kill_at_s = self._loop.now_s() + max(0.0, grace_s)
        if self._kill_at_s is None or kill_at_s < self._kill_at_s:
            self._kill_at_s = kill_at_s
            if self._killed_at_s is None:
                self._set_timer(kill_at_s - self._loop.now_s(), self._kill)

    def _signal(self, member: MemberProcess, number: int) -> None:
        if member.exited:
            self._reach.signal_left(member, number)
            return
        member.signal_group(number)
        # One that was stopped would sleep through its grace.
        if number != signal.SIGKILL:
            member.signal_group(signal.SIGCONT)

    def look(self) -> bool:
        """Whether it is over; called whenever a child has ended."""
        if not self.over and self._is_gone():
            self.over = True
            self.cancel()
        return self.over

    def cancel(self) -> None:
        """Another order has taken over."""
        if self._timer is not None:
            self._timer.cancel()

    def _is_gone(self) -> bool:
        if self.whole:
            return self._reach.is_run_empty()
        return all(member.exited and not self._reach.list_member(member) for member in self.members)

    def _kill(self) -> None:
        if self.look():
            return
        if self.whole:
            self._reach.kill_run()
        else:
            self._reach.kill_members(self.members)
        now_s = self._loop.now_s()
        if self._killed_at_s is None:
            self._killed_at_s = now_s
        if not self._told_stuck and now_s - self._killed_at_s >= self._stuck_s:
            self._told_stuck = True
            self._on_stuck(self._list_left())
        # A kill takes effect at once or not for long; looking ever more rarely costs nothing either way.
        self._set_timer(self._look_s, self._kill)
        self._look_s = min(_LOOK_S_MAX, self._look_s * 2)

    def _list_left(self) -> list[int]:
        if self.whole:
            return self._reach.list_run()
        return sorted({pid for member in self.members for pid in self._reach.list_member(member)})

    def _set_timer(self, delay_s: float, act: Callable[[], None]) -> None:
        self.cancel()
        self._timer = self._loop.after(delay_s, act)


class Stops:
    """All orders to stop that are under way; one that means the same as another presses that one."""

    def __init__(
        self, loop: EventLoop, reach: Reach, stuck_s: float, on_stuck: Callable[[Sequence[int]], None]
    ) -> None:
        """`on_stuck`: these processes have survived SIGKILL for `stuck_s`."""
        self._loop, self._reach, self._stuck_s, self._on_stuck = loop, reach, stuck_s, on_stuck
        self._stops: list[Stop] = []
        self.stuck: list[int] = []  # who was found not to die, the last time that this was told

    def press(self, members: Sequence[MemberProcess], number: int, grace_s: float, *, whole: bool) -> None:
        """Signal these members, or the whole run, and kill after the grace."""
        stop = next((s for s in self._stops if not s.over and _covers(s, members, whole=whole)), None)
        if stop is None:
            stop = Stop(self._loop, self._reach, members, whole=whole, stuck_s=self._stuck_s, on_stuck=self._tell_stuck)
            self._stops.append(stop)
        stop.press(number, grace_s)

    def look(self) -> bool:
        """Whether one is still under way."""
        self._stops = [stop for stop in self._stops if not stop.look()]
        return bool(self._stops)

    def _tell_stuck(self, pids: Sequence[int]) -> None:
        self.stuck = list(pids)
        self._on_stuck(self.stuck)


def _covers(stop: Stop, members: Sequence[MemberProcess], *, whole: bool) -> bool:
    """Whether a new order means the same as a running one."""
    return stop.whole if whole else not stop.whole and {id(m) for m in stop.members} == {id(m) for m in members}
