"""Days of a daemon in virtual time, as short stories: who submits what when, what people do, and what they are told."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

from phalanx.control.forward import Arrival
from phalanx.control.policies import find_policy
from phalanx.control.restore import restore_state
from phalanx.control.spec.spot import spot_of
from phalanx.control.what_if import Changes, play
from phalanx.frontends.host.core.core import Core
from phalanx.frontends.host.service import Listing
from phalanx.frontends.host.settings import Settings
from phalanx.frontends.sim.scenario import TrueRun
from phalanx.policy import named
from phalanx.testing.builders import SECOND_US, make_gang
from phalanx.testing.hosts.host_world import HostWorld, Setup, caller_of, make_submission, small_node
from phalanx.testing.hosts.scripts import WorkScript

ADA = caller_of("ada")


class Reluctant(WorkScript):
    """It goes when it is killed, and not before."""

    def feel(self, run, member, signal):
        if signal == "KILL":
            super().feel(run, member, "TERM")


class Day(HostWorld):
    """A machine with a few devices; times are seconds."""

    def __init__(self, gpus: int = 4, policy: str = "goodput", **settings: Any) -> None:
        super().__init__(
            Setup(small_node(gpus), policy=named(policy), settings=Settings(**settings)), lambda what: 1000
        )
        self.scripts: dict[str, WorkScript] = {}
        self.machine.scripts = lambda order: self.scripts[order.members[0].env["PHALANX_NAME"]]
        self.ids: dict[str, int] = {}

    def __enter__(self):
        super().__enter__()
        self.boot()
        self.run_until(SECOND_US // 10)  # before it has looked at its disk nobody is answered
        return self

    def submit(
        self, at_s: float, name: str, line: str, runs_s: float, user="ada", script=WorkScript, run=None, options=None,
        **gang: Any,
    ) -> None:  # fmt: skip
        made = make_gang(name, line, user=user, **gang)
        self.scripts[name] = script(self.machine, made, TrueRun(round(runs_s * SECOND_US)))
        submission = make_submission(made, {}, run, **(options or {}))

        def note(told: Any) -> None:
            self.ids[name] = told[0].id

        self.say(at_s + 0.2, lambda core: core.submit(caller_of(user), [submission], None, dry_run=False), note)

    def say(
        self, at_s: float, what: Callable[[Core], Any], hear: Callable[[Any], None] = lambda told: None
    ) -> None:  # fmt: skip
        self.at(round(at_s * SECOND_US), lambda: self.ask(what, hear))

    def act(self, at_s: float, name: str, verb: str, user="ada", **body: Any) -> list[Any]:
        told: list[Any] = []
        self.say(at_s, lambda core: core.act(caller_of(user), str(self.ids[name]), verb, body), told.append)
        return told

    def row(self, name: str):
        return self.tell(lambda core: core.detail(ADA, str(self.ids[name]))).job

    def tell(self, what: Callable[[Core], Any]) -> Any:
        """Ask now, and wait for the answer."""
        told: list[Any] = []
        self.ask(what, told.append)
        self.until((self.now_us + SECOND_US) / SECOND_US)
        return told[0]

    def until(self, at_s: float) -> None:
        self.run_until(round(at_s * SECOND_US))
        assert self.errors == []

    def change_settings(self, **settings: Any) -> None:
        """For the next daemon."""
        self.setup = replace(self.setup, settings=replace(self.setup.settings, **settings))


def ask_why(day, name):
    return day.tell(lambda core: core.why(ADA, str(day.ids[name])))


def since_midnight(day, at):
    """Seconds of the day's clock, which begins with the first submit."""
    first = day.tell(lambda core: core.rows(ADA, Listing(everybody=True)))[0]
    return (datetime.fromisoformat(at) - datetime.fromisoformat(first.submitted)).total_seconds()


def ask_what_if(day, *new, cancel=()):
    """Starts by name, in seconds of the day."""
    text = day.tell(lambda core: core.dump(ADA))
    restored = restore_state(spot_of(json.loads(text), "state"))
    arrivals = tuple(Arrival(replace(gang, submit_us=restored.state.now_us)) for gang in new)
    seen = play(restored, find_policy(*restored.policy), Changes(cancel=cancel, add_gangs=arrivals))
    return {name: fate.start_us and round(fate.start_us / 1e6) for name, fate in seen.fates.items()}, seen
