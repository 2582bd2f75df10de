"""What keeps a waiting gang from starting, in sentences with the numbers and names of one cluster.

`explain` has the sentence of every reason; here are those that say more where the cluster is at hand: who holds what
is asked for, whom a start would delay, how much of a limit is used. Every front end tells them in these words, and
brings what gangs are called among its people and the clock that they read (`Names`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Protocol

from phalanx.control.amounts import amount, least_devices
from phalanx.control.explain import SENTENCES, Told, word_of_end
from phalanx.control.forecasting.lengths import UNSAID
from phalanx.control.look_ahead import StartCause
from phalanx.control.queue_view import ask_least
from phalanx.control.state import State
from phalanx.engine.policy import Policy
from phalanx.model.gang import Gang
from phalanx.model.plan import Reservation
from phalanx.model.reason import Code, Reason
from phalanx.model.resources import MILLI, units_per_whole
from phalanx.model.snapshot import QueueColumns, UserColumns
from phalanx.words import listing, number, span

#: A sentence of more names is read by nobody; the rest is counted.
_HOLDERS_MOST: Final = 6
_CLOSED_MOST: Final = 3


class Names(Protocol):
    """What gangs are called where they are told of, and the clock of those who are told."""

    @property
    def word(self) -> str:
        """What one of them is: a job, a gang."""

    def call(self, number: int) -> str | None:
        """`12 (train)`; None: nobody is told of it."""

    def describe(self, number: int, *more: str) -> str | None:
        """`12 (train, ada, 4 GPUs)`: with its owner, and what else is worth saying."""

    def due(self, at_us: int) -> str:
        """`in 40s`, `at 14:05`."""


@dataclass(frozen=True)
class Scene:
    """A cluster at an instant, with the reasons of one pass over everybody who waits."""

    state: State
    policy: Policy
    told: dict[int, Told]
    reservations: tuple[Reservation, ...]
    names: Names
    device_kind: str
    strangers: str = ""  # who has devices beside those that are scheduled here, in the front end's words

    @cached_property
    def holders(self) -> list[str]:
        """Who has the devices, the largest first."""
        # Once for all sentences: in a list of everybody who waits it would be the same words again and again.
        held = []
        for each in self.state.list_seated():
            # Gangs that people do not know by name are told as part of what is not free.
            many = count_held(self.state, each, self.device_kind)
            if many and self.names.call(each) is not None:
                held.append((many, each))
        # By number among equals, which is the order of arrival.
        held.sort(key=lambda each: (-each[0], each[1]))
        return [f"{self.names.describe(each)} holds {number(many)}" for many, each in held]


def say_blocker(found: Reason, gang: Gang) -> str:
    """The sentence of a blocker that the engine found, with its numbers."""
    # A limit is that of the queue which is at it, and not always that of the gang's own.
    queue = found.subject if found.code is Code.QUEUE_LIMIT and found.subject else gang.queue
    return SENTENCES.get(found.code, found.code.word).format(
        needed=found.needed,
        available=found.available,
        needed_s=found.needed / 1e6,
        available_s=found.available / 1e6,
        how=word_of_end(gang),
        after=", ".join(gang.after.names),
        word=gang.together.word if gang.together else "",
        queue=queue,
        user=gang.user,
    )


# ---- with numbers and names


def say_room(here: Scene, gang: Gang, closed: Sequence[str] = ()) -> str:
    """What is asked, what is free, and who has the rest; `closed`: devices that are nobody's to give."""
    state, device = here.state, here.device_kind
    fleet = state.fleet
    asked = ask_least(fleet, gang)
    free, whole = state.show_nodes().free.sum(axis=0), fleet.capacity.sum(axis=0)
    # Of the whole cluster: what is free on nodes that it may not use is named by another reason.
    kinds = [kind for kind in fleet.kinds if asked[fleet.kind_index[kind]] > free[fleet.kind_index[kind]]]
    if not kinds and device in fleet.kinds and asked[fleet.kind_index[device]]:
        kinds = [device]  # enough in pieces
    parts = []
    for kind in kinds:
        column = fleet.kind_index[kind]
        left, all_ = (amount(kind, each[column], bare=True) for each in (free, whole))
        parts.append(f"needs {amount(kind, asked[column])} at once, {left} of {all_} free")
    if not parts:
        return ""
    # Whoever holds processors or memory is seldom whom somebody waits for; of devices people want to know.
    if device not in kinds:
        return "; ".join(parts)
    named = (listing(here.holders, _HOLDERS_MOST), here.strangers, listing(closed, _CLOSED_MOST))
    holders = "; ".join(part for part in named if part)
    return "; ".join(parts) + (f": {holders}" if holders else "")


def count_held(state: State, gang: int, kind: str) -> float:
    """Devices of a kind that a gang sits on."""
    seats = state.seats_of(gang)
    milli = sum(int(each.devices.sum()) for each in seats)
    if not milli:
        # Of amounts that nobody numbers no seat says which; how much each member takes says how many.
        roles = state.gangs[gang].roles
        milli = sum(int(each.counts.sum()) * roles[each.role].shape.amount(kind) for each in seats)
    return milli / MILLI


def say_use(state: State, gang: Gang, code: Code) -> str:
    """How much of a limit is used."""
    fleet, queues, users = state.fleet, state.show_queues(), state.show_users()
    columns: QueueColumns | UserColumns = queues if code is Code.QUEUE_LIMIT else users
    chain = [columns.names.index(gang.queue if code is Code.QUEUE_LIMIT else gang.user)]
    # A limit of any queue above it keeps it waiting just as well.
    while code is Code.QUEUE_LIMIT and queues.parent[chain[-1]] >= 0:
        chain.append(int(queues.parent[chain[-1]]))
    told = []
    for row in chain:
        for kind, column in fleet.kind_index.items():
            limit, used = int(columns.limit[row, column]), int(columns.usage[row, column])
            if limit >= 0:
                told.append(f"{columns.names[row]} uses {amount(kind, used, bare=True)} of {amount(kind, limit)}")
    return f" ({listing(told)})" if told else ""


def say_rival(here: Scene, gang: int, code: Code) -> str:
    """Whom a gang would delay, or stands behind."""
    # The first to start is the one whose room is looked at next.
    for each in sorted(here.reservations, key=lambda each: each.start_us):
        other = each.gangs[0]
        # A reservation of its own keeps nobody waiting.
        if other != gang and other in range(len(here.state.gangs)):
            many = least_devices(here.state.gangs[other], here.device_kind) * units_per_whole(here.device_kind)
            who = here.names.describe(other, amount(here.device_kind, many))
            if who is not None:
                verb = "would delay" if code is Code.RESERVED else "waits behind"
                return f"would fit, but {verb} {who}, which is to start {here.names.due(each.start_us)}"
    return ""


def say_rest(here: Scene, gang: int) -> str:
    """Why it rests, and until when."""
    # Two rests have one gate: the world refused a start, or attempts failed; which it was the instant tells.
    until_us, refusal = here.state.rest_of(gang), here.state.refusal_of(gang)
    if until_us is None:
        return ""
    if refusal is not None and refusal.rests_until_us == until_us:
        return f"was to start and could not: {refusal.words}; it is tried again {here.names.due(until_us)}"
    failures = here.state.failures_of(gang)
    return f"failed {failures} times without saving anything; it rests, and is tried again {here.names.due(until_us)}"


def say_more(here: Scene, gang: int, told: str, code: Code, closed: Iterable[str] = ()) -> str:
    """The sentence of a blocker with the numbers and names of this cluster; `told`: without them."""
    # A sentence that finds nothing to add leaves the plain one, which is true all the same.
    spec = here.state.gangs[gang]
    if code in (Code.CAPACITY, Code.FRAGMENTATION):
        return say_room(here, spec, tuple(closed)) or told
    if code in (Code.QUEUE_LIMIT, Code.USER_LIMIT):
        return f"{told}{say_use(here.state, spec, code)}"
    if code in (Code.RESERVED, Code.BEHIND):
        return say_rival(here, gang, code) or told
    if code is Code.BACKOFF:
        return say_rest(here, gang) or told
    return told


def say_cause(cause: StartCause, call: str, source: str, stated_us: int | None, option: str, *, waits: bool) -> str:
    """What a start hangs on. `source`: how somebody came to think how long it runs; `option`: where one states it."""
    verb = {"end": "ends", "shrink": "gives some back", "leave": "has made way"}[cause.what]
    ground = f" (no {option} was given)" if source in UNSAID else ""
    if source == "overdue" and stated_us is not None:
        ground = f" (it has outlived its {option} of {span(stated_us / 1e6)})"
    # Of one that waits itself: else nobody would be ahead, and the start hang on the end of somebody who waits.
    first = ", which starts before it," if waits else ""
    return f"when {call}{first} {verb}{ground}"
