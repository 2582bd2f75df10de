"""Random days with random faults, each decided by its seed.

A seed first draws which kinds of trouble the day has at all, since trouble of every kind at once hides most of
it. Then it draws a machine, jobs, what people do, and faults. After the faults everything is put right, time
passes, and all must have ended. `run_trial(seed)` raises `BrokenRule`; its trace is the same for the same seed.

    python -m phalanx.testing.hosts.trials 17            the trace of a seed
    python -m phalanx.testing.hosts.trials --digest 17   what it comes to
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from phalanx.engine import cycle
from phalanx.engine.invariants import check_plan, check_snapshot, demand
from phalanx.engine.policy import Policy
from phalanx.frontends.host.core.core import Core
from phalanx.frontends.host.messages import ArrayPart
from phalanx.frontends.host.ports import Caller, Order
from phalanx.frontends.host.settings import Settings
from phalanx.model.gang import After, Gang, Role, Shape, Sizes
from phalanx.model.plan import Plan
from phalanx.model.queue import DEFAULT_QUEUE, Queue
from phalanx.model.resources import DEVICE_KIND, MILLI
from phalanx.model.snapshot import Snapshot
from phalanx.policy import named
from phalanx.testing.builders import SECOND_US
from phalanx.testing.hosts.host_world import HostWorld, Setup, caller_of, make_submission, small_node
from phalanx.testing.hosts.machine_rules import Acknowledged, BrokenRule, Checks
from phalanx.testing.hosts.made_up_machine import Script, name_of
from phalanx.testing.hosts.people import LOOKS, IntendedSubmit, People
from phalanx.testing.hosts.scripts import RoughScript, Temper, shares_of
from phalanx.testing.hosts.troubles import DELAYS_US, SLOW_DISK_US, Faults

#: Kinds of trouble. A seed has each of them or not.
TROUBLES: Final = (
    "fails", "restarts", "ignores_term", "strays", "unkillable", "unprepared", "elastic", "refuses", "silent", "uneven",
    "labels", "crashes", "reboots", "shims", "members", "strangers", "cancels", "holds", "resizes", "drills", "edits",
    "arrays", "singletons", "after", "full", "walls", "duplicates", "slow", "preemptible", "begin", "downs", "retries",
    "broken", "acks", "gone", "roles", "looks",
)  # fmt: skip
FAULTS_END_US: Final = 400 * SECOND_US
END_US: Final = 4 * 3600 * SECOND_US
STEP_US: Final = 300 * SECOND_US
#: What the engine is shown, and what it says, is looked at once in so many passes.
LOOK_EVERY: Final = 7
POLICIES: Final[Sequence[tuple[str, Mapping[str, object]]]] = (
    ("goodput", {}), ("goodput", {}), ("fair", {}), ("easy", {}), ("rotate", {"quantum": 40 * SECOND_US}),
)  # fmt: skip


@dataclass(slots=True)
class Outcome:
    """What a trial was like."""

    seed: int
    troubles: frozenset[str]
    digest: str
    crashes: dict[str, int] = field(default_factory=dict)  # by label, "" for those at any instant
    execs: int = 0
    jobs: int = 0


def draw_troubles(rng: Random, seed: int) -> frozenset[str]:
    """What kinds of trouble a seed has; what needs several of them at once is rare otherwise."""
    drawn = {kind for kind in TROUBLES if rng.random() < 0.4}
    return frozenset(drawn | {"elastic", "resizes", "labels"} if seed % 3 == 0 else drawn)


class Trial:
    """One seed."""

    def __init__(self, seed: int) -> None:
        """Draw everything that can be drawn before it begins."""
        self.seed = seed
        # One generator for what is drawn before things happen, one for what is drawn because they do.
        self.rng, self.dice = Random(f"trial {seed}"), Random(f"dice {seed}")
        rng = self.rng
        self.troubles = draw_troubles(rng, seed)
        self.gpus = rng.choice((2, 4, 4, 8))
        name, options = rng.choice(POLICIES)
        queues = (Queue(DEFAULT_QUEUE), Queue("a", guarantee={DEVICE_KIND: self.gpus // 2 * MILLI}), Queue("b"))
        settings = Settings(notice_s=8.0, resize_s=10.0)
        setup = Setup(small_node(self.gpus), policy=named(name, options), queues=queues, settings=settings)
        self.world = HostWorld(setup, self._delay_us)
        self.checks = Checks(self.world)
        self.faults = Faults(self.world, self.checks, rng, self.dice, self.troubles)
        self.people = People(self.world, self.checks, self.dice, self.troubles)
        self.people.on_told = self.faults.crash_on_word
        self._scripts: dict[str, RoughScript] = {}
        self._programs: dict[str, tuple[Role, ...]] = {}
        self._passes = 0
        self.world.machine.scripts = self._script

    def _has(self, trouble: str) -> bool:
        return trouble in self.troubles

    def _one_in(self, many: int) -> bool:
        return self.rng.randint(1, many) == 1

    def _delay_us(self, what: str) -> int:
        slow = what == "commit" and self._has("slow")
        return self.dice.choice(SLOW_DISK_US if slow else DELAYS_US[what])

    # ------------------------------------------------------------------ jobs

    def _draw_wishes(self) -> None:
        for index in range(self.rng.randint(4, 14)):
            at_us = self.rng.choice((0, 5, 20, self.rng.randint(0, 300))) * SECOND_US + 1000 * index
            count = self.rng.randint(2, 5) if self._has("arrays") and self._one_in(4) else 1
            self.world.at(at_us, lambda index=index, count=count: self._submit(index, count))  # type: ignore[misc]

    def _submit(self, index: int, count: int) -> None:
        rng = self.rng
        caller = caller_of(rng.choice(("ada", "bob")))
        wish = IntendedSubmit(caller, f"key-{index}", [], [])
        single = self._has("singletons") and self._one_in(4)
        array = (caller.uid, f"word{index}", rng.randint(1, 2)) if count > 1 else None
        gang = self._draw_gang(f"solo{rng.randint(0, 1)}" if single else f"j{index}")
        for part in range(count):
            named_ = gang if count == 1 else replace(gang, name=f"{gang.name}-{part}")
            self._add_to(wish, named_, caller, array, part, single=single)
            self._make_script(named_)
        copies_us: list[int] = []
        if self._has("duplicates"):
            copies_us = [rng.choice((0, 100, 3_000_000, 200_000_000)) for _ in range(rng.randint(0, 2))]
        self.people.submit(wish, copies_us)

    def _add_to(
        self,
        wish: IntendedSubmit,
        gang: Gang,
        caller: Caller,
        array: tuple[int, str, int] | None,
        part: int,
        *,
        single: bool,
    ) -> None:
        begin_s = self.rng.randint(1, 60) if self._has("begin") and self._one_in(4) else 0
        ids = {number: int(number) for number in gang.after.names}
        submission = make_submission(
            gang,
            ids,
            {"restarts": self.rng.randint(1, 2) if self._has("restarts") else 0, "grace_s": 3.0},
            array=None if array is None else ArrayPart(part, array[1], array[2]),
            singleton=single,
            begin=f"+{begin_s}s" if begin_s else None,
            hold=self._has("holds") and self._one_in(6),
        )
        promise = Acknowledged(caller.uid, gang.name, array, (caller.uid, gang.name) if single else None)
        promise.after, promise.after_any = tuple(ids.values()), gang.after.any_end
        promise.begin_us = self.world.now_us + begin_s * SECOND_US if begin_s else 0
        promise.elastic_least = gang.roles[0].sizes.least if gang.elastic and self._has("elastic") else None
        promise.held = submission.hold
        wish.submissions.append(submission)
        wish.promises.append(promise)

    def _draw_gang(self, name: str) -> Gang:
        rng = self.rng
        known = [number for wish in self.people.wishes for number in wish.ids]
        after = After()
        if self._has("after") and known and self._one_in(3):
            after = After((str(rng.choice(known)),), any_end=self._one_in(2))
        seconds = rng.choice((2, 10, 30, 60, 120))
        walltime = rng.choice((seconds, 2 * seconds, None, 300))
        return Gang(
            name=name,
            roles=self._programs.setdefault(name, self._draw_roles()),  # the same program is the same
            queue=rng.choice((DEFAULT_QUEUE, "a", "b")),
            priority=rng.choice((0, 0, 1, 2)),
            walltime_us=None if walltime is None else walltime * SECOND_US,
            kill_after_us=rng.choice((5, 40)) * SECOND_US if self._one_in(8) else None,
            preemptible=self._has("preemptible") and self._one_in(2),
            after=after,
        )

    def _draw_roles(self) -> tuple[Role, ...]:
        rng = self.rng
        if self._has("roles") and self._one_in(3):
            whole = Shape(((DEVICE_KIND, MILLI),))
            return Role("head", Sizes((1,)), whole), Role("rest", Sizes((rng.randint(1, self.gpus - 1),)), whole)
        least = rng.randint(1, self.gpus)
        most = rng.randint(least, self.gpus) if self._has("elastic") and self._one_in(2) else least
        share = rng.choice((300, 500)) if least == most and self._one_in(5) else MILLI
        return (Role("member", Sizes(tuple(range(least, most + 1))), Shape(((DEVICE_KIND, share),))),)

    def _make_script(self, gang: Gang) -> None:
        if gang.name not in self._scripts:
            length_us = self.rng.choice((1, 5, 20, 60, 100)) * SECOND_US
            name, machine, shares = f"{self.seed}/{gang.name}", self.world.machine, shares_of(gang)
            script = RoughScript(machine, name, length_us, self._temper(), shares, elastic=gang.elastic)
            self._scripts[gang.name] = script

    def _script(self, order: Order) -> Script:
        return self._scripts[name_of(order)]

    def _temper(self) -> Temper:
        def odds(trouble: str, one_in: int) -> int:
            return one_in if self._has(trouble) else 0

        return Temper(
            fails=odds("fails", 8),
            crashes=odds("restarts", 4),
            ignores_term=odds("ignores_term", 3),
            slow_term=odds("ignores_term", 3),
            strays=odds("strays", 5),
            unkillable=odds("unkillable", 10),
            unprepared=odds("unprepared", 6),
            speaks=self._has("elastic"),
            refuses=odds("refuses", 4),
            silent=odds("silent", 5),
            uneven=self._has("uneven"),
        )

    def _draw_words(self) -> None:
        sizes: list[Any] = [*range(1, self.gpus + 1), "auto"]
        bodies: dict[str, list[tuple[str, dict[str, Any]]]] = {
            "cancels": [("cancel", {})],
            "holds": [("hold", {}), ("release", {})],
            "resizes": [("resize", {"members": members}) for members in sizes],
            "drills": [("preempt", {"drill": True})],
            "edits": [("edit", {"priority": 0}), ("edit", {"priority": 3}), ("edit", {"walltime": "30s"})],
            "retries": [("retry", {})],
        }
        for kind, choices in bodies.items():
            for _ in range(self.rng.randint(1, 5) if self._has(kind) else 0):
                verb, body = self.rng.choice(choices)
                at_us = self.rng.randint(1, FAULTS_END_US)
                self.world.at(at_us, lambda verb=verb, body=body: self.people.act(verb, body))  # type: ignore[misc]

        for _ in range(self.rng.randint(3, 12) if self._has("looks") else 0):
            what, at_us = self.rng.choice(LOOKS), self.rng.randint(1, FAULTS_END_US)
            self.world.at(at_us, lambda what=what: self.people.look(what))  # type: ignore[misc]

    # ------------------------------------------------------------------ the run

    def run(self) -> Outcome:
        """Play it; raises BrokenRule."""
        with self.world as world:
            world.on_boot.append(self._watch)
            world.boot()
            self._draw_wishes()
            self._draw_words()
            self.faults.draw(self.rng, FAULTS_END_US)
            self._go_on(FAULTS_END_US)
            self.faults.heal()
            self.people.fickle = False
            self.people.release_all()
            while world.now_us < END_US and not self._is_over():
                self._go_on(world.now_us + STEP_US)
            self._go_on(world.now_us + STEP_US)
            self.checks.close()
            self._judge()
            digest = hashlib.sha256("\n".join(self.checks.trace).encode()).hexdigest()
            execs, jobs = len(world.machine.execs), len(self.checks.promises)
            return Outcome(self.seed, self.troubles, digest, self.faults.crashes, execs, jobs)

    def _go_on(self, until_us: int) -> None:
        """A minute at a time, so that what is wrong is seen soon after."""
        while self.world.now_us < until_us:
            self.world.run_until(min(until_us, self.world.now_us + 60 * SECOND_US))
            self._judge()

    def _judge(self) -> None:
        if self.checks.broken is not None:
            raise self.checks.broken
        if self.world.errors:
            raise BrokenRule("error", repr(self.world.errors[0]), self.world.now_us) from self.world.errors[0]

    def _watch(self, core: Core) -> None:
        core.known.planner.loop.engine = self._schedule

    def _schedule(self, snapshot: Snapshot, policy: Policy, **options: Any) -> Plan:
        """The engine, with what it is shown and what it says looked at now and then: I2, I13, I14, I15, I19."""
        self._passes += 1
        plan = cycle.schedule(snapshot, policy, **options)
        if self._passes % LOOK_EVERY == 1:
            found = [*check_snapshot(snapshot), *check_plan(snapshot, plan, policy)]
            # An elastic gang whose members have not said that they can be resized is shown as rigid, on purpose.
            demand([each for each in found if "is said to be preemptible or elastic" not in each.story])
        return plan

    def _is_over(self) -> bool:
        core = self.world.core
        if core is None:
            return False
        if core.known.occupancy.closed and not self.world.processes():
            # What did not die has died at last; somebody looks, and starts the daemon anew.
            self.checks.note("restart after a quarantine")
            self.world.crash()
            self.world.boot()
            return False
        return not self.world.store.jobs() and not self.world.machine.runs


def run_trial(seed: int) -> Outcome:
    """One seed; raises BrokenRule."""
    return Trial(seed).run()


def main(words: Sequence[str]) -> int:
    """Print the traces of seeds, or with --digest only what they come to."""
    brief = "--digest" in words
    for seed in [int(word) for word in words if word.isdecimal()]:
        trial = Trial(seed)
        try:
            digest = trial.run().digest
        except BrokenRule as broken:
            digest = str(broken)
        told = [digest] if brief else [*trial.checks.trace, f"{sorted(trial.troubles)}", digest]
        sys.stdout.write("\n".join(told) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
