"""What goes wrong on a made-up machine: the daemon dies at a label or at any instant, shims and members are killed,
the power fails, the disk fills up or fails, strangers come, and somebody sets the clock."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from phalanx.frontends.host.crashpoints import LABELS
from phalanx.frontends.host.ports import Use
from phalanx.testing.builders import SECOND_US
from phalanx.testing.hosts.host_world import HostWorld
from phalanx.testing.hosts.machine_rules import Checks

#: How long things take, in µs: one of these each time.
DELAYS_US: Final = {
    "commit": (0, 1_000, 20_000),
    "order": (0, 200, 5_000),
    "event": (0, 200, 5_000),
    "spawn": (1_000, 100_000, 900_000),
    "ready": (1_000, 30_000),
    "find": (10_000, 500_000),
}
SLOW_DISK_US: Final = (1_000, 50_000, 400_000)


class Faults:
    """Everything that goes wrong in one trial, until it is healed."""

    def __init__(self, world: HostWorld, checks: Checks, rng: Random, dice: Random, troubles: frozenset[str]) -> None:
        """Draw the labels at which the daemon dies, and how often each is passed until then."""
        self.world, self.checks, self.dice, self.troubles = world, checks, dice, troubles
        self.crashes: dict[str, int] = {}  # by label; "" for those at any instant
        self.healed = False
        self._aims: dict[str, int] = {}
        if "labels" in troubles:
            chosen = rng.sample(LABELS, rng.randint(1, 5))
            self._aims = {label: rng.choice((1, 1, 2, 3, 5)) for label in chosen}
        world.kept = lambda waiting: self.dice.randint(0, waiting)
        world.on_label = self._on_label
        world.on_exit = self._on_exit

    def draw(self, rng: Random, until_us: int) -> None:
        """When what happens."""
        faults: dict[str, tuple[Callable[[], None], int]] = {
            "crashes": (self.crash, 4),
            "reboots": (self._reboot, 2),
            "downs": (self._down, 2),
            "shims": (self._kill_shim, 3),
            "members": (self._kill_member, 5),
            "strangers": (self._stranger, 3),
            "full": (self._fill_disk, 3),
            "broken": (self._break_disk, 2),
            "walls": (self._set_wall, 3),
            "gone": (self._lose_device, 2),
        }
        for kind, (fault, most) in faults.items():
            for _ in range(rng.randint(1, most) if kind in self.troubles else 0):
                self.world.at(rng.randint(1, until_us), fault)

    def heal(self) -> None:
        """No more faults."""
        self.checks.note("heal")
        self.healed = True
        for device in range(len(self.world.devices.list())):
            self._no_stranger(device)
            self._find_device(device)
        self.world.store.set_full(full=False)
        self.world.boot()

    # ------------------------------------------------------------------ the daemon

    def _on_label(self, label: str) -> bool:
        left = self._aims.get(label)
        if left is None or self.healed:
            return False
        if left > 1:
            self._aims[label] = left - 1
            return False
        del self._aims[label]
        self._note_crash(label)
        return True

    def _note_crash(self, label: str) -> None:
        self.checks.note(f"crash {label}")
        self.crashes[label] = self.crashes.get(label, 0) + 1
        self._boot_later()

    def _boot_later(self) -> None:
        delay_us = self.dice.choice((10_000, 1_000_000, 20_000_000))
        self.world.at(self.world.now_us + delay_us, self.world.boot)

    def _on_exit(self) -> None:
        self.checks.note("exit")
        self._boot_later()

    def crash(self) -> None:
        """The daemon is killed now."""
        if self.world.life is not None and self.world.life.alive and not self.healed:
            self._note_crash("")
            self.world.crash()

    def crash_on_word(self) -> None:
        """Somebody was just told something: the worst moment to forget it."""
        if "acks" in self.troubles and self.dice.random() < 0.1:
            self.crash()

    def _reboot(self) -> None:
        self.checks.note("reboot")
        self.world.reboot()
        self._boot_later()

    def _down(self) -> None:
        """Somebody stops the daemon in good order, and starts it again."""
        core = self.world.core
        if core is not None:
            self.checks.note("down")
            core.stop()

    # ------------------------------------------------------------------ processes

    def _kill_shim(self) -> None:
        runs = sorted(name for name, run in self.world.machine.runs.items() if run.shim)
        if runs:
            run = self.dice.choice(runs)
            self.checks.note(f"kill shim {run}")
            self.world.kill_shim(run)

    def _kill_member(self) -> None:
        living = [process for process in self.world.processes() if not process.stray]
        if living:
            process = self.dice.choice(living)
            self.world.machine.end(self.world.machine.runs[process.run], process, signal=9)

    # ------------------------------------------------------------------ the rest of the machine

    def _stranger(self) -> None:
        device = self.dice.randrange(len(self.world.devices.list()))
        self.checks.note(f"stranger on {device}")
        self.world.devices.strangers[device] = Use(99_000 + device, "eve", 2 << 30, "python")
        self.checks.strangers_us.setdefault(device, self.world.now_us)
        self.world.at(self.world.now_us + self.dice.randint(5, 100) * SECOND_US, lambda: self._no_stranger(device))

    def _no_stranger(self, device: int) -> None:
        self.world.devices.strangers.pop(device, None)
        self.checks.strangers_us.pop(device, None)

    def _lose_device(self) -> None:
        """A device falls off the bus, and comes back."""
        device = self.dice.randrange(len(self.world.devices.list()))
        self.checks.note(f"device {device} is gone")
        self.world.devices.gone.add(device)
        self.checks.gone_us.setdefault(device, self.world.now_us)
        self.world.at(self.world.now_us + self.dice.randint(5, 100) * SECOND_US, lambda: self._find_device(device))

    def _find_device(self, device: int) -> None:
        self.world.devices.gone.discard(device)
        self.checks.gone_us.pop(device, None)

    def _fill_disk(self) -> None:
        brimful = self.dice.random() < 0.5
        self.checks.note(f"the disk is {'brim' if brimful else ''}full")
        self.world.store.set_full(full=True, brimful=brimful)
        emptied_us = self.world.now_us + self.dice.choice((50_000, 1_000_000, 7_000_000))
        self.world.at(emptied_us, lambda: self.world.store.set_full(full=False))

    def _break_disk(self) -> None:
        self.checks.note("the disk fails")
        self.world.store.break_down()

    def _set_wall(self) -> None:
        self.world.clock.wall_at_0_s += self.dice.choice((-86_400.0, 86_400.0, 3600.0))
