"""The part of a start that blocks: a place on disk, a cgroup, and a shim in them."""

from __future__ import annotations

import functools
import hashlib
import os
import resource
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from phalanx.frontends.host import containment
from phalanx.frontends.host.clock import read_boot_id
from phalanx.frontends.host.containment import WEAK, CgroupRoot, find_ground, open_group
from phalanx.frontends.host.launching.directory import MadeRun, RunFacts, Runs
from phalanx.frontends.host.launching.recalling import Traces
from phalanx.frontends.host.launching.shortages import explain_shortage, is_shortage
from phalanx.frontends.host.launching.spawning import Spawned, check_user, spawn
from phalanx.frontends.host.ports import CannotStart, MemberOrder, Order
from phalanx.frontends.host.shim.members import part_name

#: Descriptors that members may have, as this process found it: the daemon takes all it can get for itself, and programs
#: that walk through as many as they may have must not pay for that.
_NOFILE: Final = resource.getrlimit(resource.RLIMIT_NOFILE)[0]


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
            why = explain_shortage(error) if is_shortage(error) else str(error)
            raise CannotStart(f"the run directory {self._runs.path / order.run} cannot be made: {why}") from None
        path = str(self._runs.path / order.run)
        try:
            spawned = spawn(made, path, self._manner.python, order if self._manner.drop_privileges else None)
        except BaseException:
            made.close()
            self._runs.remove(order.run)
            self.remove_group(order.run)
            raise
        return made, self._note_shim(made, facts, spawned), spawned

    def _note_shim(self, made: MadeRun, facts: RunFacts, spawned: Spawned) -> RunFacts:
        """Write down which process the shim is. It is our child and nobody has waited for it, so the number is its own.

        A later daemon, which did not fork it, kills this process or none: what is said at the control socket or in the
        journal is the job's word.
        """
        pid = spawned.process.pid
        facts = replace(facts, shim_pid=pid, shim_start=containment.read_start(pid) or 0)
        try:
            self._runs.write_facts(facts)
        except OSError as error:
            spawned.process.kill()
            spawned.process.wait()
            spawned.line.close()
            made.close()
            self._runs.remove(facts.run)
            self.remove_group(facts.run)
            raise CannotStart(f"the shim of run {facts.run} cannot be written down: {error}") from None
        return facts

    def _make_facts(self, order: Order) -> RunFacts:
        uid = order.uid if self._manner.drop_privileges else os.geteuid()
        group = self.ground.make(order.run, uid, order.pids_max) if self.ground is not None else None
        kind, path = (group.kind, group.path) if group is not None else (WEAK, None)
        return RunFacts(order.run, uid, read_boot_id(), self._mark_of(order.run), kind, path)

    def _mark_of(self, run: str) -> str:
        return f"PHALANX_MARK={self._name}:{run}:"

    @property
    def traces(self) -> Traces:
        """Where what was made here can be found again."""
        return Traces(self._runs, self.ground, self._mark_of("").removesuffix(":"))

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
            made.append(
                {"rank": member.rank, "argv": list(member.argv), "env": env, "cwd": member.cwd, "nofile": _NOFILE}
            )
        return made

    def admit(self, facts: RunFacts, generation: int, pids: Mapping[int, tuple[int, int]]) -> list[int]:
        """Put members that wait at the gate into their cgroups, if they are who the shim says; who could not be."""
        group = open_group(facts.containment, facts.cgroup)
        if group is None or self.ground is None:
            return []
        left_out = []
        shim_lives = containment.is_identified(facts.shim_pid, facts.shim_start, facts.uid)
        for rank, (pid, start) in pids.items():
            process = containment.read_process(pid)
            ours = process is not None and (process.start, process.parent) == (start, facts.shim_pid)
            if not shim_lives or not ours or not self.ground.admit(group, part_name(generation, rank), pid, facts.uid):
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
