"""What becomes of replicas: killed at any await, asleep through their lease, cut off, and stopped in good order."""

from __future__ import annotations

from random import Random
from typing import Final

from phalanx.testing.kube.cluster_rules import ClusterRules
from phalanx.testing.kube.kube_world import KubeWorld, Replica

_S: Final = 1_000_000


class ReplicaTroubles:
    """Starts them, and again whenever they have ended."""

    def __init__(self, world: KubeWorld, rules: ClusterRules, kinds: frozenset[str]) -> None:
        """Nobody is started yet."""
        self.world, self.rules, self.kinds = world, rules, kinds
        self.dice = world.dice
        self.healed = False
        self._ahead_s: dict[str, float] = {}
        self._cut: set[str] = set()  # places that nobody reaches
        world.server.is_cut = lambda user: user.rpartition("-")[0] in self._cut
        world.on_exit = self._on_exit

    def boot_all(self, places: list[str], rng: Random) -> None:
        """Start the replicas, each on a machine with its own clock."""
        for place in places:
            self._ahead_s[place] = rng.choice((-3.0, 0.0, 2.5)) if "clocks" in self.kinds else 0.0
            self._boot(place)

    def _boot(self, place: str) -> None:
        replica = self.world.boot(place, self._ahead_s[place])
        if "turns" in self.kinds and not self.healed and self.dice.random() < 0.5:
            replica.life.dies_at_turn = self.dice.randint(50, 3_000)

    def _on_exit(self, replica: Replica, word: str) -> None:
        self.rules.note(f"{replica.user} has ended: {word}")
        self.rules.trouble_for(0)
        self.world.later(self.dice.choice((10_000, _S, 5 * _S)), self._boot, replica.place)

    def heal(self) -> None:
        """Everybody is awake, and within reach."""
        self.healed = True
        self._cut.clear()
        for replica in self.world.replicas.values():
            replica.life.dies_at_turn = None
            if replica.life.asleep:
                self.world.loop.wake(replica.life)

    # ------------------------------------------------------------------ what may happen to one

    def _pick(self) -> Replica | None:
        """Rather one that leads."""
        living = [each for each in self.world.replicas.values() if each.life.alive]
        leading = [each for each in living if each.is_leading]
        return self.dice.choice(leading or living) if living else None

    def end(self, replica: Replica) -> None:
        """It is killed, and comes back."""
        self.world.kill(replica)
        self._on_exit(replica, "killed")

    def kill(self) -> None:
        """One is."""
        replica = self._pick()
        if replica is not None:
            self.rules.note_trouble("kills", replica.user)
            self.end(replica)

    def sleep(self) -> None:
        """One stands still, and does not know for how long."""
        replica = self._pick()
        if replica is not None:
            self.put_to_sleep(replica)

    def put_to_sleep(self, replica: Replica) -> None:
        """This one, if somebody else can take over."""
        if replica.life.asleep or not self.world.settings.leader_election:
            return
        for_us = self.dice.choice((2 * _S, 12 * _S, 20 * _S, 40 * _S))
        self.rules.note_trouble("sleeps", f"{replica.user} for {for_us / _S:g} s")
        self.rules.trouble_for(for_us)
        replica.life.asleep = True
        self.world.later(for_us, self._wake, replica)

    def _wake(self, replica: Replica) -> None:
        if replica.life.asleep:
            self.rules.note(f"{replica.user} wakes")
            self.world.loop.wake(replica.life)

    def cut_off(self) -> None:
        """Nobody hears it, and it hears nobody."""
        replica = self._pick()
        if replica is not None:
            for_us = self.dice.choice((3 * _S, 14 * _S, 30 * _S))
            self.rules.note_trouble("cuts", f"{replica.place} for {for_us / _S:g} s")
            self.rules.trouble_for(for_us + 5 * _S)
            self._cut.add(replica.place)
            self.world.later(for_us, self._cut.discard, replica.place)

    def stop(self) -> None:
        """One ends in good order."""
        replica = self._pick()
        if replica is not None and replica.stop is not None:
            self.rules.note_trouble("stops", replica.user)
            self.rules.trouble_for(6 * _S)
            self.world.loop.call_soon(replica.stop.set, context=self.world.context)
