"""What the programs on a made-up machine do.

`WorkScript` fares as a gang of the simulator does: it has work, loses what it did not save, and speaks the
job protocol at once. `RoughScript` is drawn: it may fail, ignore signals, leave something behind, answer
late, refuse or say nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from phalanx.frontends.host.ports import Order
from phalanx.frontends.sim.progress import GangProgress
from phalanx.frontends.sim.scenario import TrueRun
from phalanx.model.gang import Gang
from phalanx.model.resources import DEVICE_KIND, MILLI
from phalanx.perfmodel.speedup import scaled_us
from phalanx.testing.hosts.made_up_machine import KILL, SIGNALS, Machine, MadeUpProcess, MadeUpRun

SPEAKS = ("shrink", "grow", "yield", "checkpoint")
PARTS = ("startup", "productive", "snapshot", "restore", "resize", "lost", "idle_allocated", "free")


def shares_of(gang: Gang) -> dict[str, int]:
    """Thousandths of a device by role; of a member with whole devices, all of each."""
    return {role.name: min(MILLI, role.shape.amount(DEVICE_KIND)) for role in gang.roles}


def hello_of(member: MadeUpProcess) -> dict[str, Any]:
    """How a member that understands everything greets."""
    return {"type": "hello", "rank": member.key, "pid": member.pid, "speaks": list(SPEAKS), "version": 1}


class WorkScript:
    """A job with work to do, at a pace that depends on its size."""

    def __init__(self, machine: Machine, gang: Gang, truth: TrueRun) -> None:
        """Nothing is done yet."""
        self._machine, self.gang, self._truth = machine, gang, truth
        self._books: dict[str, int] = dict.fromkeys(PARTS, 0)
        self._work = GangProgress(gang, self._books)
        self._shares = shares_of(gang)
        self._run: MadeUpRun | None = None
        self._change = ""
        self._token = 0
        self._said_us = -1
        self._greeted: set[tuple[str, int]] = set()
        self.resized = False  # given another size at the instant of its start

    def refusal(self, order: Order) -> str | None:
        """It can always be started."""
        return None

    def share(self, role: str) -> int:
        """As its shape says."""
        return self._shares[role]

    # ------------------------------------------------------------------ what it says

    def speak(self) -> bool:
        """Whoever has not greeted does, and an elastic one says how far it is; whether anything was said."""
        run, now_us = self._run, self._machine.loop.now_us
        if run is None or self._said_us == now_us:
            return False
        self._said_us = now_us
        spoke = False
        for key, member in run.members.items():
            if member.alive and (run.name, key) not in self._greeted:
                self._greeted.add((run.name, key))
                self._machine.say(run, member, hello_of(member))
                spoke = True
        return self._tell_progress(run, now_us) or spoke

    def _tell_progress(self, run: MadeUpRun, now_us: int) -> bool:
        seen = self._work.foresee(now_us) if self.gang.elastic else None
        member = next((m for m in run.members.values() if m.alive), None)
        if seen is None or member is None:
            return False
        status = {"type": "status", "step": 0, "total": seen.end_us - now_us, "rate": 1e6}
        self._machine.say(run, member, {**status, "saved_step": 0, "saved_age_s": (now_us - seen.saved_us) / 1e6})
        return True

    # ------------------------------------------------------------------ what it does

    def begin(self, run: MadeUpRun, members: Sequence[MadeUpProcess]) -> None:
        """An attempt, or members that join one."""
        self._said_us = -1
        if run is not self._run:
            self._run = run
            now_us, pace_us = self._machine.loop.now_us, self._pace_us(len(members))
            self._work.begin(now_us, 1, pace_us)
            if self.resized:
                # It begins at its new size and nothing holds it up; the simulator counts a pause, so we do.
                self.resized = False
                self._work.resize(now_us, 1, pace_us)
            self._expect_end(run)

    def hear(self, run: MadeUpRun, member: MadeUpProcess, message: Mapping[str, Any]) -> None:
        """It does what it is asked, at once."""
        kind, change = message["type"], message.get("id")
        answer = {"type": "answer", "id": change, "verdict": "done"}
        if kind in ("shrink", "prepare"):
            if change != self._change:
                self._change = str(change)
                self._work.resize(self._machine.loop.now_us, 1, self._pace_us(int(message["members"])))
                self._expect_end(run)
            self._machine.say(run, member, answer)
            if member.key in message.get("leaving", ()):
                pause_us = self.gang.resize_pause_us
                self._machine.after(pause_us, lambda: self._machine.end(run, member, 0))
        elif kind == "yield":
            self._stop(run, saves=str(message.get("why", "")).startswith(("turn", "the plan")))
            self._machine.say(run, member, answer)
            self._machine.end(run, member, 0)

    def feel(self, run: MadeUpRun, member: MadeUpProcess, signal: str) -> None:
        """It dies of what it is sent."""
        if signal == "TERM":
            self._stop(run, saves=False)
            self._machine.end(run, member, signal=SIGNALS[signal])

    def _stop(self, run: MadeUpRun, *, saves: bool) -> None:
        if self._run is run:
            self._run = None
            self._token += 1
            self._work.stop(self._machine.loop.now_us, saves=saves)

    def _expect_end(self, run: MadeUpRun) -> None:
        self._token += 1
        token = self._token
        self._machine.after(self._work.done_us - self._machine.loop.now_us, lambda: self._finish(run, token))

    def _finish(self, run: MadeUpRun, token: int) -> None:
        if token == self._token:
            self._run = None
            for member in list(run.members.values()):
                self._machine.end(run, member, 0)

    def _pace_us(self, members: int) -> int:
        if not self.gang.elastic:
            return self._truth.duration_us
        rigid = sum(role.sizes.most for role in self.gang.roles if not role.sizes.elastic)
        most = sum(role.sizes.most for role in self.gang.roles if role.sizes.elastic)
        return scaled_us(self._truth.duration_us, self._truth.speedup, most, members - rigid)


@dataclass(frozen=True, slots=True)
class Temper:
    """How rough the programs of a world are: one in so many; 0: never."""

    fails: int = 0
    crashes: int = 0  # the first attempt only
    ignores_term: int = 0
    slow_term: int = 0
    strays: int = 0
    unkillable: int = 0
    unprepared: int = 0
    speaks: bool = False
    refuses: int = 0
    silent: int = 0
    uneven: bool = False  # members end one after the other


@dataclass(slots=True)
class RoughScript:
    """A job whose behaviour is drawn, the same for the same seed whatever else happens."""

    machine: Machine
    seed: str
    duration_us: int
    temper: Temper
    shares: Mapping[str, int]
    elastic: bool = False
    ends_us: dict[str, int] = field(default_factory=dict)  # by run

    def _rng(self, run: str, what: object) -> Random:
        return Random(f"{self.seed}/{run}/{what}")

    def refusal(self, order: Order) -> str | None:
        """Now and then it cannot be prepared."""
        rng = self._rng(f"{order.job}.{order.attempt}", f"prepare{order.generation}")
        return "no more processes" if _one_in(rng, self.temper.unprepared) else None

    def share(self, role: str) -> int:
        """As its shape says."""
        return self.shares.get(role, MILLI)

    def begin(self, run: MadeUpRun, members: Sequence[MadeUpProcess]) -> None:
        """Everybody works until the end of the attempt, unless it fails before."""
        now_us = self.machine.loop.now_us
        if run.name not in self.ends_us:
            length_us = round(self.duration_us * self._rng(run.name, "length").choice((0.2, 0.5, 1, 1, 1.5)))
            self.ends_us[run.name] = now_us + length_us
        left_us = max(1, self.ends_us[run.name] - now_us)
        for member in members:
            self._plan_end(run, member, left_us)
            if self.temper.speaks and self.elastic:
                self._greet(run, member)

    def _plan_end(self, run: MadeUpRun, member: MadeUpProcess, left_us: int) -> None:
        rng = self._rng(run.name, f"end{member.key}")
        code = 0
        fails = _one_in(rng, self.temper.fails) or (member.attempt == 1 and _one_in(rng, self.temper.crashes))
        if fails:
            left_us, code = rng.randint(0, left_us), rng.choice((1, 2, 137))
        elif self.temper.uneven:
            left_us += rng.choice((0, 0, 1_000, 700_000, 3_000_000))
        if _one_in(rng, self.temper.unkillable):
            member.unkillable_until_us = self.machine.loop.now_us + left_us + rng.choice((1, 10, 60)) * 1_000_000
        stays_us = rng.choice((10_000, 2_000_000, 90_000_000)) if _one_in(rng, self.temper.strays) else 0
        self.machine.after(left_us, lambda: self._end(run, member, code, stays_us))

    def _end(self, run: MadeUpRun, member: MadeUpProcess, code: int, stays_us: int) -> None:
        if not member.alive:
            return
        if stays_us:
            stray = self.machine.leave_behind(run, member)
            self.machine.after(stays_us, lambda: self.machine.end(run, stray, 0))
        self.machine.end(run, member, code)

    def _greet(self, run: MadeUpRun, member: MadeUpProcess) -> None:
        rng = self._rng(run.name, f"hello{member.key}")
        if _one_in(rng, self.temper.silent):
            return
        hello = hello_of(member)
        self.machine.after(rng.choice((0, 1_000, 400_000, 2_000_000)), lambda: self.machine.say(run, member, hello))

    def hear(self, run: MadeUpRun, member: MadeUpProcess, message: Mapping[str, Any]) -> None:
        """It answers after a while, or not."""
        kind, asked = message["type"], message.get("id")
        rng = self._rng(run.name, f"{asked}/{member.key}/{kind}")
        if not self.temper.speaks or _one_in(rng, self.temper.silent):
            return
        delay_us = rng.choice((0, 1_000, 300_000, 5_000_000))
        verdict = "refuse" if _one_in(rng, self.temper.refuses) and kind != "yield" else "done"
        answer = {"type": "answer", "id": asked, "verdict": verdict, "why": "not now"}
        self.machine.after(delay_us, lambda: self.machine.say(run, member, answer))
        leaves = kind == "yield" or (kind == "shrink" and member.key in message.get("leaving", ()))
        if leaves and verdict == "done":
            code = rng.choice((0, 0, 1))
            self.machine.after(delay_us + rng.choice((0, 200_000)), lambda: self.machine.end(run, member, code))

    def feel(self, run: MadeUpRun, member: MadeUpProcess, signal: str) -> None:
        """Some die at once, some take their time, some do not care."""
        rng = self._rng(run.name, f"{signal}/{member.key}")
        if signal == KILL or signal != "TERM" or _one_in(rng, self.temper.ignores_term):
            return
        delay_us = rng.choice((500_000, 4_000_000)) if _one_in(rng, self.temper.slow_term) else 0
        how: dict[str, int] = {"code": 0} if rng.random() < 0.3 else {"signal": SIGNALS["TERM"]}
        self.machine.after(delay_us, lambda: self.machine.end(run, member, **how))


def _one_in(rng: Random, many: int) -> bool:
    return many > 0 and rng.randint(1, many) == 1
