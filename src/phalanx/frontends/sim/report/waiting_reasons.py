"""Why gangs waited: asked now and then while a simulation runs, since an end knows only of those that still wait."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from phalanx.control.explain import explain_pending
from phalanx.control.state import State
from phalanx.engine.policy import Policy
from phalanx.frontends.sim.result import SimResult
from phalanx.model.reason import Code

#: So often in a run, about: whoever waits long is seen, and asking stays a small part of the run.
_ASKED_TIMES: Final = 400


@dataclass(slots=True)
class Listener:
    """Sees the state after every instant and asks for reasons after every so many of them.

    It changes nothing: a plan that is asked for and not applied leaves no trace.
    """

    policy: Policy
    every: int
    seen: int = 0
    counts: dict[str, Counter[Code]] = field(default_factory=dict)
    told: dict[tuple[str, Code], tuple[str, int, int]] = field(default_factory=dict)

    def __call__(self, state: State) -> None:
        """Ask, if it is time to."""
        self.seen += 1
        if self.seen % self.every or not state.count_waiting():
            return
        for number, (code, message, needed, available) in explain_pending(state, self.policy).items():
            if code is not Code.NONE:
                name = state.gangs[number].name
                self.counts.setdefault(name, Counter())[code] += 1
                # When it was expected to start is of no interest once it has.
                self.told[name, code] = (message.split("; expected to start", 1)[0], needed, available)

    def write_into(self, result: SimResult) -> None:
        """Give every gang that waited the reason it was given most often, in its last words."""
        for gang in result.gangs:
            counts = self.counts.get(gang.name)
            if counts and gang.start_us is not None:
                code = counts.most_common(1)[0][0]
                gang.wait_reason = (code.word, *self.told[gang.name, code])


def make_listener(policy: Policy, gangs: int) -> Listener:
    """One for a run of so many gangs: each has about two instants, its submit and its end."""
    return Listener(policy, max(1, 2 * gangs // _ASKED_TIMES))
