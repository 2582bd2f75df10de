"""Random days with random faults for the Kubernetes controller, each decided by its seed.

A seed first draws which kinds of trouble the day has at all, since trouble of every kind at once hides most of it.
Then it draws a cluster, gangs, and faults. After the faults everything is put right, and within a bounded time every
gang that fits must be whole, and nothing may be left over; then everything runs to its end, and so everybody must have
had a turn. `run_kube_trial(seed)` raises `BrokenRule`; its trace is the same for the same seed.

    python -m phalanx.testing.kube.kube_trials 17              the trace of a seed
    python -m phalanx.testing.kube.kube_trials --digest 17     what it comes to
    python -m phalanx.testing.kube.kube_trials 0:2000          many, and which of them break a rule
"""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from phalanx.frontends.kube.kube_settings import KubeSettings
from phalanx.testing.hosts.machine_rules import BrokenRule
from phalanx.testing.kube.cluster_people import ClusterPeople, WantedGang, holds_seat
from phalanx.testing.kube.cluster_rules import ClusterRules
from phalanx.testing.kube.cluster_troubles import TROUBLES, ClusterTroubles, lay_out
from phalanx.testing.kube.kube_world import HOME, KubeWorld
from phalanx.testing.kube.kubelets import Kubelets
from phalanx.testing.kube.virtual_network import BusyForEver

_S: Final = 1_000_000
FAULTS_END_US: Final = 45 * _S
#: Watches that have stalled are noticed after 130 s, and a gang that was refused nine times rests 256 s.
QUIET_WITHIN_US: Final = 420 * _S
ENDS_WITHIN_US: Final = 420 * _S
_STEP_US: Final = 2 * _S
#: Several times as many as any trial needs.
TURNS_MOST: Final = 50_000
DIALECTS: Final = ("native", "native", "plugins", "volcano", "koordinator", "plain")


@dataclass(slots=True)
class KubeOutcome:
    """What a trial was like."""

    seed: int
    troubles: frozenset[str]
    digest: str
    quiet_after_s: float
    counts: Counter[str] = field(default_factory=Counter)  # of what happened


def draw_kube_troubles(rng: Random) -> frozenset[str]:
    """What kinds of trouble a seed has: few or many."""
    odds = rng.choice((0.08, 0.2, 0.4))
    return frozenset(kind for kind in TROUBLES if rng.random() < odds)


class KubeTrial:
    """One seed."""

    def __init__(self, seed: int) -> None:
        """Draw everything that can be drawn before it begins."""
        self.seed = seed
        rng = self.rng = Random(f"kube trial {seed}")
        self.troubles = draw_kube_troubles(rng) | ({"aims"} if seed % 4 else set())  # the middle of a gang is the point
        election = rng.random() < 0.6 or bool({"sleeps", "cuts"} & self.troubles)
        settings = KubeSettings(
            bind_deadline_s=rng.choice((4.0, 10.0)),
            leader_election=election,
            namespace=HOME,
            claims_empty_groups=rng.random() < 0.5,
        )
        self.world = KubeWorld(settings, seed)
        self.world.loop.turns_most = TURNS_MOST
        self.people = ClusterPeople(self.world, self.world.dice)
        self.rules = ClusterRules(self.world, self.people)
        self.kubelets = Kubelets(self.world, self.world.dice)
        self.faults = ClusterTroubles(self.world, self.rules, self.people, self.kubelets, self.troubles)
        self.devices = lay_out(self.world, rng)
        self.places = ["a", "bb"] if election else ["a"]

    @property
    def trace(self) -> list[str]:
        """What happened, a line each."""
        return self.rules.trace

    # ------------------------------------------------------------------ gangs

    def _draw_gangs(self) -> None:
        rng = self.rng
        for index in range(rng.randint(3, 8)):
            at_us = rng.choice((0, 1, 5, rng.randint(0, 40))) * _S
            for gang in self._draw_together(index) if rng.random() < 0.15 else [self._draw_gang(f"g{index}")]:
                self.world.later(at_us, self.people.submit, gang, rng.choice((0, 0, 200_000, 4 * _S)))

    def _draw_gang(self, name: str) -> WantedGang:
        rng = self.rng
        dialect = rng.choice(DIALECTS)
        gpus = rng.choice((1, 1, 1, 2))
        size = 1 if dialect == "plain" else rng.randint(1, max(1, min(8, self.devices // gpus)))
        least = size if rng.random() < 0.8 else rng.randint(1, size)
        run_s = rng.choice((0.0, 0.0, 3.0, 10.0))
        return WantedGang(name, dialect, size, least, gpus, run_s, numbered=rng.random() < 0.5)

    def _draw_together(self, index: int) -> list[WantedGang]:
        names = (f"t{index}a", f"t{index}b")
        most = max(1, min(4, self.devices // 2))
        sizes = [self.rng.randint(1, most) for _ in names]
        return [
            WantedGang(name, "koordinator", size, size, together=names) for name, size in zip(names, sizes, strict=True)
        ]

    # ------------------------------------------------------------------ the run

    def run(self) -> KubeOutcome:
        """Play it; raises BrokenRule."""
        with self.world:
            self.faults.replicas.boot_all(self.places, self.rng)
            self._draw_gangs()
            self.faults.draw(self.rng, FAULTS_END_US)
            while self.world.now_us < FAULTS_END_US:
                self._go_on()
            self.faults.heal()
            healed_us = self.world.now_us
            self._wait_for_quiet(healed_us + QUIET_WITHIN_US)
            quiet_after_s = (self.world.now_us - healed_us) / 1e6
            self.kubelets.end_everything()
            self._wait_for_ends(self.world.now_us + ENDS_WITHIN_US)
        digest = hashlib.sha256("\n".join(self.trace).encode()).hexdigest()
        counts = Counter(self.rules.counts) + self.rules.happened
        counts["turned away"] = self.kubelets.turned_away
        return KubeOutcome(self.seed, self.troubles, digest, quiet_after_s, counts)

    def _go_on(self) -> None:
        try:
            self.world.run_until(self.world.now_us + _STEP_US)
        except BusyForEver as busy:
            raise BrokenRule("I23", str(busy), self.world.now_us) from busy
        self.rules.judge_parts()
        if self.rules.broken is not None:
            raise self.rules.broken
        if self.world.errors:
            raise BrokenRule("error", repr(self.world.errors[0]), self.world.now_us) from self.world.errors[0]

    def _wait_for_quiet(self, until_us: int) -> None:
        """Twice in a row: what is so for a moment only is not quiet."""
        calm = 0
        while calm < 2:
            self._go_on()
            unrest = self.rules.find_unrest()
            calm = calm + 1 if unrest is None else 0
            if unrest is not None and self.world.now_us > until_us:
                raise BrokenRule(*unrest, self.world.now_us)

    def _wait_for_ends(self, until_us: int) -> None:
        while True:
            self._go_on()
            late = [gang.name for gang in self.people.gangs.values() if gang.is_wanted and not self._has_run(gang)]
            if not late:
                return
            if self.world.now_us > until_us:
                raise BrokenRule("L1", f"{late} have never run", self.world.now_us)

    def _has_run(self, gang: WantedGang) -> bool:
        if gang.done:
            # Evicted in the moment in which it ended: nobody makes it anew, and the rest may never be whole again.
            return True
        pods = self.people.list_pods(gang.name)
        return len(pods) >= gang.size and all(holds_seat(pod) for pod in pods)


def run_kube_trial(seed: int) -> KubeOutcome:
    """One seed; raises BrokenRule."""
    return KubeTrial(seed).run()


def tell_seed(seed: int) -> str | None:
    """What is wrong with a seed, with its trace and how to see it again; None if nothing is."""
    trial = KubeTrial(seed)
    try:
        trial.run()
    except BrokenRule as broken:
        again = f"again: python -m phalanx.testing.kube.kube_trials {seed}"
        return "\n".join([*trial.trace, f"seed {seed}, {sorted(trial.troubles)}: {broken}", again])
    return None


def _run_many(seeds: range) -> int:
    bad, counts = 0, Counter[str]()
    for seed in seeds:
        try:
            counts += run_kube_trial(seed).counts
        except BrokenRule as broken:
            bad += 1
            sys.stdout.write(f"seed {seed}: {broken}\n")
    sys.stdout.write(f"{len(seeds)} seeds, {bad} break a rule; {dict(sorted(counts.items()))}\n")
    return int(bad > 0)


def main(words: Sequence[str]) -> int:
    """Print the traces of seeds, with --digest only what they come to; or run a range of them."""
    brief = "--digest" in words
    for word in words:
        first, colon, end = word.partition(":")
        if colon:
            return _run_many(range(int(first), int(end)))
        if not word.isdecimal():
            continue
        trial = KubeTrial(int(word))
        try:
            digest = trial.run().digest
        except BrokenRule as broken:
            digest = str(broken)
        told = [digest] if brief else [*trial.trace, f"{sorted(trial.troubles)}", digest]
        sys.stdout.write("\n".join(told) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
