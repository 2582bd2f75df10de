"""The part of a start that blocks: a place on disk, a cgroup, and a shim in them."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from phalanx.frontends.host import containment
from phalanx.frontends.host.clock import read_boot_id
from phalanx.frontends.host.containment import WEAK, CgroupRoot, find_ground, open_group
from phalanx.frontends.host.launching.directory import MadeRun, RunFacts, Runs
from phalanx.frontends.host.launching.spawning import Spawned, check_user, spawn
from phalanx.frontends.host.ports import CannotStart, MemberOrder, Order
from phalanx.frontends.host.shim.members import part_name


@dataclass(frozen=True, slots=True)
class Manner:
    """How runs are made here."""

    drop_privileges: bool
    python: str
    contain: Sequence[str]
    kill_stuck_s: float
    log_rate_bytes_s: int


class Maker:
    """Makes runs, and takes away what was made for them."""

    def __init__(self, runs: Runs, manner: Manner) -> None:
        """Touches nothing yet."""
        self._runs, self._manner = runs, manner
        # Runs of two daemons may have the same name; their directories cannot.
        self._name = hashlib.sha256(os.fsencode(runs.path)).hexdigest()[:12]

    @functools.cached_property
    def ground(self) -> CgroupRoot | None:
        """Where cgroups can be made, if anywhere; found out when first asked."""
        return find_ground(f"phalanx.{self._name}", self._manner.contain)

    def make(self, order: Order) -> tuple[MadeRun, RunFacts, Spawned]:
        """The directory, the cgroup and the process; raises CannotStart, and then nothing is left."""
        if self._manner.drop_privileges:
            check_user(order)
        self._runs.clear_place(order.run)
        facts = self._make_facts(order)
        try:
            launch = self._make_launch(order, facts)
            made = self._runs.make(facts, order.gid, launch, chown=self._manner.drop_privileges)
        except OSError as error:
            self.remove_group(order.run)
            raise CannotStart(f"the run directory {self._runs.path / order.run} cannot be made: {error}") from None
        path = str(self._runs.path / order.run)
        try:
            spawned = spawn(made, path, self._manner.python, order if self._manner.drop_privileges else None)
        except BaseException:
            made.close()
            self._runs.remove(order.run)
            self.remove_group(order.run)
            raise
        return made, facts, spawned

    def _make_facts(self, order: Order) -> RunFacts:
        uid = order.uid if self._manner.drop_privileges else os.geteuid()
        group = self.ground.make(order.run, uid, order.pids_max) if self.ground is not None else None
        kind, path = (group.kind, group.path) if group is not None else (WEAK, None)
        return RunFacts(order.run, uid, read_boot_id(), f"PHALANX_MARK={self._name}:{order.run}:", kind, path)

    def _make_launch(self, order: Order, facts: RunFacts) -> dict[str, Any]:
        return {
            "version": 1,
            "run": order.run,
            "job": order.job,
            "attempt": order.attempt,
            "generation": order.generation,
            "boot_id": facts.boot_id,
            "members": self.make_members(facts, order.generation, order.members),
            "logs": {"cap_bytes": order.log_cap_bytes, "keep": 1, "rate_bytes_s": self._manner.log_rate_bytes_s},
            "kill_stuck_s": self._manner.kill_stuck_s,
            "cgroup": facts.cgroup,
            "containment": facts.containment,
            "pids_max": order.pids_max,
            "umask": order.umask,
            "mark": facts.mark,
            "daemon_uid": os.geteuid(),
            "drop": [order.uid, order.gid] if self._manner.drop_privileges else None,
        }

    def make_members(self, facts: RunFacts, generation: int, members: Iterable[MemberOrder]) -> list[dict[str, Any]]:
        """Members as a shim wants them: with where to speak, and the mark by which they are known again."""
        path = self._runs.path / facts.run
        word, _, value = facts.mark.partition("=")
        before = {"PHALANX_SOCKET": str(path / "job.sock"), "PHALANX_KEY_FILE": str(path / "key")}
        made = []
        for member in members:
            after = {"PHALANX_RUN": facts.run, word: value + part_name(generation, member.rank)}
            env = {**before, **member.env, **after}
            made.append({"rank": member.rank, "argv": list(member.argv), "env": env, "cwd": member.cwd})
        return made

    def admit(
        self, facts: RunFacts, shim_pid: int | None, generation: int, pids: Mapping[int, tuple[int, int]]
    ) -> list[int]:
        """Put members that wait at the gate into their cgroups, if they are who the shim says; who could not be."""
        group = open_group(facts.containment, facts.cgroup)
        if group is None or self.ground is None:
            return []
        left_out = []
        for rank, (pid, start) in pids.items():
            process = containment.read_process(pid)
            ours = process is not None and (process.start, process.parent) == (start, shim_pid)
            if not ours or not self.ground.admit(group, part_name(generation, rank), pid, facts.uid):
                left_out.append(rank)
        return left_out

    def remove_group(self, run: str, path: str | None = None) -> bool:
        """Take away the cgroup of a run, wherever an earlier daemon made it; False if somebody is still in it."""
        here = self.ground is None or self.ground.remove(run)
        return here and (path is None or containment.Cgroup(path).remove())

    def close(self) -> None:
        """Leave nothing behind where no run is left."""
        if "ground" in vars(self) and self.ground is not None:
            self.ground.close()

    def remove_groups_but(self, runs: Iterable[str]) -> None:
        """Take away the cgroups of runs that are over; one that is not empty stays."""
        if self.ground is not None:
            for run in set(self.ground.list_runs()).difference(runs):
                self.ground.remove(run)
