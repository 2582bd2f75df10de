"""Reasons and expected starts of everybody in a picture: one pass, and a few looks ahead. In another thread.

The looks are those of the daemon (`control.forecasting`). How long pods run nobody says, but for those that have an
`activeDeadlineSeconds`; so ranges are wide, and say so.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from phalanx.control.amounts import amount, least_devices
from phalanx.control.clone import clone_state
from phalanx.control.explain import Told, explain_all
from phalanx.control.forecasting.calibration import Calibration
from phalanx.control.forecasting.lengths import Lengths, Said, measure_left, measure_whole
from phalanx.control.forecasting.outlook import ForecastInput, Foreseen, look_often, tell
from phalanx.control.forecasting.predictions import Predictions
from phalanx.control.look_ahead import Outlook
from phalanx.control.queue_view import list_turns, thin_out
from phalanx.control.sentences import Scene, say_cause, say_more
from phalanx.control.state import State
from phalanx.engine.lifecycle import Phase
from phalanx.frontends.kube.answers.cluster_view import ClusterView, GangNames, iso
from phalanx.frontends.kube.answers.kube_replies import AheadOf, ExpectedStart, ToldReason
from phalanx.model.plan import Reservation
from phalanx.model.reason import Code

#: What all looks of one answer may take of a processor.
BUDGET_S: Final = 0.5
_NAMED_MOST: Final = 5
_STATED: Final = "activeDeadlineSeconds"


@dataclass(frozen=True)
class Looked:
    """A picture with what was found in it."""

    picture: ClusterView
    told: dict[int, Told]
    reservations: tuple[Reservation, ...]
    turns: list[list[int]]
    starts: dict[int, Foreseen]
    seen: Outlook
    lengths: Lengths

    @cached_property
    def scene(self) -> Scene:
        """For sentences."""
        here = self.picture
        taken = sum(amounts.get(here.device_kind, 0) for amounts in here.others.values())
        others = f"pods of others hold {amount(here.device_kind, taken, bare=True)}" if taken else ""
        return Scene(here.state, here.policy, self.told, self.reservations, GangNames(here), here.device_kind, others)

    @cached_property
    def _turn_of(self) -> dict[int, int]:
        return {number: at for at, turn in enumerate(self.turns) for number in turn}

    @cached_property
    def _gpus_before(self) -> list[tuple[int, float]]:
        """Before each turn: how many gangs, and how many devices they ask for."""
        found, gangs, gpus = [], 0, 0.0
        for turn in self.turns:
            found.append((gangs, gpus))
            # Who can never run is ahead of nobody.
            alive = [each for each in turn if not self._is_never(each)]
            gangs += len(alive)
            gpus += sum(least_devices(self.picture.state.gangs[each], self.picture.device_kind) for each in alive)
        return found

    def _is_never(self, number: int) -> bool:
        return number in self.told and self.told[number][0] is Code.INFEASIBLE

    def list_ahead(self, number: int) -> list[int] | None:
        """Everybody whose turn comes before; None: it has none."""
        at = self._turn_of.get(number)
        if at is None:
            return None
        return [each for turn in self.turns[:at] for each in turn if not self._is_never(each)]

    def ahead(self, number: int, *, named: bool = False) -> AheadOf | None:
        """How many have their turn before, and how much they ask for; `named`: and who the first are."""
        at = self._turn_of.get(number)
        if at is None or self._is_never(number):
            return None
        first = (self.list_ahead(number) or [])[:_NAMED_MOST] if named else []
        names = self.scene.names
        return AheadOf(*self._gpus_before[at], [str(names.call(each)) for each in first if names.call(each)])

    def reason(self, number: int) -> ToldReason | None:
        """The dominant reason, with numbers and names."""
        found = self.told.get(number)
        if found is None or found[0] is Code.NONE:
            return None
        code, words, needed, available = found
        return ToldReason(code.word, say_more(self.scene, number, words, code), needed, available)

    def eta(self, number: int) -> ExpectedStart | None:
        """When it starts, as far as that can be foreseen."""
        found = self.starts.get(number)
        if found is None:
            return None
        now_us = self.picture.now_us
        at, low, high = (iso(max(each, now_us)) for each in (found.at_us, found.low_us, found.high_us))
        cause, state = found.cause, self.picture.state
        hangs_on = ""
        if cause.gang >= 0 and (call := self.scene.names.call(cause.gang)) is not None:
            source = self.lengths.source.get(cause.gang, "")
            stated_us = state.gangs[cause.gang].walltime_us
            waits = state.phase_of(cause.gang) is Phase.PENDING
            hangs_on = say_cause(cause, call, source, stated_us, _STATED, waits=waits)
        return ExpectedStart(at, low, high, hangs_on)


def look(picture: ClusterView, keep: Collection[int] = (), budget_s: float = BUDGET_S) -> Looked:
    """Everything at once; `keep`: gangs whose start matters wherever they stand in the line."""
    told, reservations = explain_all(picture.state, picture.policy)
    turns = list_turns(picture.state, picture.policy)
    ground_state = clone_state(picture.state)
    kept = thin_out(ground_state, picture.policy, keep)
    lengths = measure(ground_state, kept)
    ground = ForecastInput(ground_state, lengths, kept=kept)
    looks = look_often(ground, picture.policy, set(keep) & set(kept) or None, time.thread_time, budget_s)
    starts = tell(lengths, looks, Calibration())
    return Looked(picture, told, reservations, turns, starts, looks.middle, lengths)


def measure(state: State, waiting: Collection[int]) -> Lengths:
    """How long everybody runs, by what was stated or by how old it is."""
    lengths, nobody = Lengths(), Predictions()
    for number in waiting:
        said = _said(state, number)
        lengths.source[number], lengths.whole[number] = measure_whole(nobody, said, state.default_walltime_us)
    ends = state.expected_ends()
    for number in state.list_seated():
        if state.phase_of(number) is Phase.RUNNING:
            age_us, left_us = state.now_us - state.start_of(number), ends[number] - state.now_us
            lengths.source[number], lengths.left[number] = measure_left(nobody, _said(state, number), age_us, left_us)
            if lengths.source[number] == "stated" and state.end_of(number) <= state.now_us:
                lengths.source[number] = "overdue"
    return lengths


def _said(state: State, number: int) -> Said:
    gang = state.gangs[number]
    return Said(gang.user, gang.name, gang.walltime_us)
