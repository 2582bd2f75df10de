"""What goes wrong in a cluster, all of it: here the API server and the network, elsewhere replicas and objects.

Everything is drawn from a seed, and everything ends: `heal` puts right what does not come right by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from phalanx.testing.controlplane.fake_nodes import make_nodes
from phalanx.testing.kube.cluster_people import ClusterPeople
from phalanx.testing.kube.cluster_rules import ClusterRules
from phalanx.testing.kube.fake_api import ApiAnswer, ApiCall, tell_no
from phalanx.testing.kube.fake_server import CallFate
from phalanx.testing.kube.kube_world import NODES, KubeWorld
from phalanx.testing.kube.kubelets import Kubelets
from phalanx.testing.kube.object_troubles import ObjectTroubles
from phalanx.testing.kube.pods_api import NoError
from phalanx.testing.kube.replica_troubles import ReplicaTroubles

#: Kinds of trouble. A seed has each of them or not.
TROUBLES: Final = (
    "down", "lost", "vanished", "unclear", "refused", "busy", "slow", "late", "stalls", "breaks", "expires", "compacts",
    "pages", "kills", "turns", "aims", "sleeps", "cuts", "stops", "clocks", "pods", "groups", "withdraws", "cordons",
    "shrinks", "taints", "gone", "foreign", "fails", "events", "leases", "shelf", "forced",
)  # fmt: skip
SPEEDS_US: Final = (150, 150, 300, 1_000, 5_000)
SLOW_US: Final = (300, 5_000, 60_000, 900_000, 2_500_000)
#: Longer than anybody waits for an answer: what was asked for is done when nobody expects it any more.
LATE_US: Final = (4_600_000, 6_000_000, 11_000_000)
#: At which of a replica's calls, and how far that has come, something happens; and what it may be.
AIMS: Final = (
    ("/binding", "sent"), ("/binding", "sent"), ("/binding", "done"), ("/binding", "done"), ("/binding", "read"),
    ("-intent-", "done"), ("-intent-", "read"), ("/eviction", "done"), ("pods/", "done"),
)  # fmt: skip
DEEDS: Final = ("kill", "kill and rob", "kill and rob", "rob", "delete", "renew", "renew", "down", "sleep")
#: Calls of which more go wrong than of others.
_GRAVE: Final = ("/binding", "/eviction", "-intent-")
_MISHAPS: Final = ("lost", "vanished", "unclear", "refused", "busy", "late")
_S: Final = 1_000_000
_NO_ANSWER: Final = tell_no(NoError(504, "Timeout", "request did not complete within the allowed duration"))
_BROKEN_ANSWER: Final = tell_no(NoError(500, "InternalError", "etcdserver: request timed out"))
_BUSY_ANSWER: Final = tell_no(NoError(429, "TooManyRequests", "too many requests", 1))
_AWAY_ANSWER: Final = tell_no(NoError(503, "ServiceUnavailable", "apiserver is shutting down"))
_DENIED_ANSWER: Final = tell_no(NoError(403, "Forbidden", "events are forbidden here"))


@dataclass(slots=True)
class _Aim:
    what: str
    step: str
    left: int
    does: str


class ClusterTroubles:
    """Everything that goes wrong in one trial, until it is healed."""

    def __init__(
        self, world: KubeWorld, rules: ClusterRules, people: ClusterPeople, kubelets: Kubelets, kinds: frozenset[str]
    ) -> None:
        """What goes wrong with calls goes wrong from now on."""
        self.world, self.rules, self.kinds = world, rules, kinds
        self.objects = ObjectTroubles(world, rules, people, kubelets)
        self.replicas = ReplicaTroubles(world, rules, kinds)
        self.dice = world.dice
        self.healed = False
        self._aims: list[_Aim] = []
        self._told = world.server.on_step
        world.server.fate = self._fate
        world.server.lag_us = self._lag_us
        world.server.on_step = self._on_step

    # ------------------------------------------------------------------ before it begins

    def draw(self, rng: Random, until_us: int) -> None:
        """When what happens."""
        faults: dict[str, tuple[Callable[[], None], int]] = {
            "down": (self._down, 3),
            "stalls": (self._stall, 3),
            "breaks": (self._break, 4),
            "expires": (self._expire, 3),
            "compacts": (self._compact, 3),
            "kills": (self.replicas.kill, 3),
            "sleeps": (self.replicas.sleep, 2),
            "cuts": (self.replicas.cut_off, 2),
            "stops": (self.replicas.stop, 2),
            "pods": (self.objects.delete_pod, 5),
            "forced": (self.objects.force_pod, 3),
            "groups": (self.objects.delete_group, 2),
            "withdraws": (self.objects.withdraw, 2),
            "cordons": (self.objects.cordon, 3),
            "shrinks": (self.objects.shrink, 2),
            "taints": (self.objects.taint, 2),
            "gone": (self.objects.drop_node, 2),
            "foreign": (self.objects.seat_foreigner, 5),
            "fails": (self.objects.fail_pod, 4),
            "leases": (self._drop_lease, 1),
            "shelf": (self._drop_place, 2),
        }
        for kind, (fault, most) in faults.items():
            for _ in range(rng.randint(1, most) if kind in self.kinds else 0):
                self.world.later(rng.randint(1, until_us), self._do, fault)
        if "aims" in self.kinds:
            for what, step in rng.sample(AIMS, rng.randint(2, 4)):
                self._aims.append(_Aim(what, step, rng.randint(1, 7), rng.choice(DEEDS)))
        if "pages" in self.kinds:
            self.world.api.page_most = rng.choice((1, 2, 5))

    def _do(self, fault: Callable[[], None]) -> None:
        if not self.healed:
            fault()

    # ------------------------------------------------------------------ afterwards

    def heal(self) -> None:
        """No more faults."""
        self.rules.note_trouble("heal")
        self.healed = True
        self.world.api.page_most = None
        self._aims.clear()
        self.world.server.start()
        self.replicas.heal()
        self.objects.heal()

    # ------------------------------------------------------------------ calls

    def _lag_us(self, user: str) -> int:
        del user
        return self.dice.choice(SLOW_US if "slow" in self.kinds and not self.healed else SPEEDS_US)

    def _fate(self, call: ApiCall) -> CallFate:
        there, back = self._lag_us(call.user), self._lag_us(call.user)
        odds = 0.15 if any(word in call.path for word in _GRAVE) else 0.02
        mishaps = [each for each in _MISHAPS if each in self.kinds]
        if self.healed or self.dice.random() > odds:
            return CallFate(there, back)
        if "events" in self.kinds and call.path.endswith("/events"):
            return CallFate(there, back, instead=_DENIED_ANSWER)
        if not mishaps:
            return CallFate(there, back)
        drawn = self.dice.choice(mishaps)
        self.rules.note_trouble(drawn, f"{call.user} {call.method} {call.path}")
        self.rules.trouble_for(20 * _S)
        side = self.dice.choice(("there", "back"))
        return {
            "lost": CallFate(there, back, breaks=side),
            "vanished": CallFate(there, back, vanishes=side),
            "unclear": CallFate(there, back, afterwards=self.dice.choice((_NO_ANSWER, _BROKEN_ANSWER))),
            "late": CallFate(self.dice.choice(LATE_US), back),
            "busy": CallFate(there, back, instead=_BUSY_ANSWER),
            "refused": CallFate(there, back, instead=self.dice.choice((_AWAY_ANSWER, _BROKEN_ANSWER))),
        }[drawn]

    def _on_step(self, step: str, call: ApiCall, answer: ApiAnswer | None) -> None:
        self._told(step, call, answer)
        for aim in self._aims:
            if aim.step == step and call.method != "GET" and aim.what in call.path:
                aim.left -= 1
                if aim.left == 0:
                    self._strike(aim.does, call.user, call.path)

    def _strike(self, does: str, user: str, path: str) -> None:
        """In the middle of something: a replica, the room it counts on, a pod of the gang, or the API server."""
        self.rules.note_trouble("aims", f"{does} {user}")
        if "rob" in does:
            for _ in range(4):
                self.objects.seat_foreigner()
        if does == "renew" and "/pods/" in path:
            self.objects.renew(self.world.ask("GET", path.removesuffix("/binding").removesuffix("/eviction")))
        if does == "delete":
            self.objects.delete_pod()
        if does == "down":
            self._down()
        for replica in self.world.replicas.values():
            if replica.user == user and replica.life.alive and does.startswith("kill"):
                self.replicas.end(replica)
            elif replica.user == user and does == "sleep":
                self.replicas.put_to_sleep(replica)

    # ------------------------------------------------------------------ the API server

    def _down(self) -> None:
        for_us = self.dice.choice((100_000, 2 * _S, 12 * _S, 25 * _S))
        self.rules.note_trouble("down", f"for {for_us / _S:g} s")
        self.rules.trouble_for(for_us)
        self.world.server.stop()
        self.world.later(for_us, self.world.server.start)

    def _compact(self) -> None:
        self.rules.note_trouble("compacts")
        self.world.api.compact()

    def _stall(self) -> None:
        """A watch that says nothing any more, and does not end."""
        if self.world.server.watches:
            watch = self.dice.choice(self.world.server.watches)
            self.rules.note_trouble("stalls", f"{watch.user} {watch.kind.id}")
            watch.stalled = True

    def _break(self) -> None:
        if self.world.server.watches:
            watch = self.dice.choice(self.world.server.watches)
            self.rules.note_trouble("breaks", f"{watch.user} {watch.kind.id}")
            self.world.server.break_watch(watch)

    def _expire(self) -> None:
        if self.world.server.watches:
            watch = self.dice.choice(self.world.server.watches)
            self.rules.note_trouble("expires", f"{watch.user} {watch.kind.id}")
            self.world.server.expire_watch(watch)

    def _drop_lease(self) -> None:
        """Somebody tidies up."""
        self.rules.note_trouble("leases")
        self.world.ask("DELETE", "/apis/coordination.k8s.io/v1/namespaces/sched/leases/phalanx")

    def _drop_place(self) -> None:
        """The same, of a plan that lies there for nothing."""
        for tree in self.world.list("configmaps"):
            if not (tree.get("data") or {}).get("flight"):
                self.rules.note_trouble("shelf", tree["metadata"]["name"])
                self.world.ask("DELETE", f"/api/v1/namespaces/sched/configmaps/{tree['metadata']['name']}")
                return


def lay_out(world: KubeWorld, rng: Random) -> int:
    """A few nodes; the answer is how many devices the whole has."""
    count, devices = rng.randint(1, 4), rng.choice((2, 4, 8))
    world.create(NODES, make_nodes(f"{count}x{devices}"))
    return count * devices
