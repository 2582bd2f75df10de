"""Gangs on their way to their nodes: what is written down before the first bind, and what becomes of them. Pure.

A flight is everything that lands together or not at all: one gang, or several that start together. Rolled forward
until all of it is bound; back when that cannot be any more: a member is gone or refused, the rest no longer fits, or
the deadline is over. A deadline is judged on answers only: an API server that says nothing has refused nobody, and the
first round after it is back decides.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import msgspec

from phalanx.frontends.kube.gang_view import Dialect, GangKey

#: A round that was answered and did not finish is repeated after this, and then after twice as long, up to the last.
NAP_FIRST_S: Final = 0.05
NAP_LAST_S: Final = 0.5
#: A longer plan is packed: a ConfigMap holds a megabyte, and of 20,000 members there are two and a half to say.
PLAIN_BYTES_MOST: Final = 100_000
_PACKED: Final = "zlib:"
_UNPACKED_BYTES_MOST: Final = 32 << 20
#: What flights write on pods: which rank they have, and what makes every binding that is still on its way too old.
RANK: Final = "phalanx.dev/rank"
EPOCH: Final = "phalanx.dev/epoch"


@dataclass(frozen=True, slots=True)
class Berth:
    """One member and where it is to be bound."""

    namespace: str
    name: str
    uid: str
    node: str
    gang: str  # the engine's name of the gang that it is part of
    role: str = ""
    rank: int = -1  # in its gang; -1 if it has none

    @property
    def path(self) -> str:
        """Of the pod."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"


@dataclass(frozen=True, slots=True)
class Flight:
    """What lands together."""

    keys: tuple[GangKey, ...]
    berths: tuple[Berth, ...]
    deadline_s: float  # by the wall clock, in seconds: whoever goes on with it may be another process
    versions: Mapping[str, str]  # resourceVersion by uid, as last seen

    @property
    def title(self) -> str:
        """For people."""
        return ", ".join(map(str, self.keys))


class BerthFate(Enum):
    """What is known of one berth."""

    FREE = "free"  # not bound, and could be
    UNKNOWN = "unknown"  # asked for, and nobody answered
    BOUND = "bound"
    LOST = "lost"  # the pod is gone, is another one, is being deleted, or sits elsewhere
    REFUSED = "refused"

    __hash__ = object.__hash__  # members are singletons


_HOPELESS: Final = (BerthFate.LOST, BerthFate.REFUSED)


@dataclass(frozen=True, slots=True)
class Word:
    """The fate of one berth, with what was said."""

    fate: BerthFate
    says: str = ""
    version: str = ""
    retry_after_s: float = 0.0
    has_ended: bool = False  # it sat there, and is done


class Course(Enum):
    """How a flight goes on."""

    LAND = "land"
    ON = "on"
    BACK = "back"

    __hash__ = object.__hash__  # members are singletons


@dataclass(frozen=True, slots=True)
class Judgement:
    """How it goes on, and why it has to turn back."""

    course: Course
    says: str = ""


def judge(flight: Flight, words: Mapping[str, Word], now_s: float, short: str = "") -> Judgement:
    """After a round: every berth has a word. `short`: what the rest no longer has room for, if so."""
    bad = [(each, words[each.uid]) for each in flight.berths if words[each.uid].fate in _HOPELESS]
    if bad:
        berth, word = bad[0]
        more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
        return Judgement(Course.BACK, f"pod {berth.name}{more}: {word.says}")
    open_ = [each for each in flight.berths if words[each.uid].fate is not BerthFate.BOUND]
    if not open_:
        return Judgement(Course.LAND)
    if short:
        return Judgement(Course.BACK, f"{len(open_)} of {len(flight.berths)} members no longer fit: {short}")
    unanswered = any(words[each.uid].fate is BerthFate.UNKNOWN for each in open_)
    if now_s >= flight.deadline_s and not unanswered:
        says = words[open_[0].uid].says
        return Judgement(Course.BACK, f"{len(open_)} of {len(flight.berths)} members not bound in time: {says}")
    return Judgement(Course.ON)


def find_short(open_: Iterable[Berth], room: Mapping[str, Mapping[str, int]], need: Any) -> str:
    """A node that has less left than the members that are still to be bound there need, in words; empty if none.

    `room`: what is left of each node of the flight, of those that exist and take pods; `need`: amounts by uid.
    """
    left = {node: dict(amounts) for node, amounts in room.items()}
    for berth in open_:
        if berth.node not in left:
            return f"node {berth.node} is gone or takes no more pods"
        there = left[berth.node]
        for kind, units in need.get(berth.uid, {}).items():
            there[kind] = there.get(kind, 0) - units
            if there[kind] < 0:
                return f"node {berth.node} has too little {kind} left"
    return ""


# ---- what is written down


class _KeyText(msgspec.Struct, frozen=True):
    dialect: str
    namespace: str
    name: str


class Intent(msgspec.Struct, frozen=True):
    """A flight as it is written down before its first bind."""

    epoch: int
    deadline_s: float
    gangs: tuple[_KeyText, ...]
    # A column for each field of a berth: members are alike, and column by column a plan packs a third better.
    members: tuple[
        tuple[str, ...],
        tuple[str, ...],
        tuple[str, ...],
        tuple[str, ...],
        tuple[str, ...],
        tuple[str, ...],
        tuple[int, ...],
    ]


def write_intent(flight: Flight, epoch: int) -> str:
    """As text: JSON, which people can read, or the same packed where it would not fit into one object."""
    gangs = tuple(_KeyText(key.dialect.value, key.namespace, key.name) for key in flight.keys)
    rows = [(b.namespace, b.name, b.uid, b.node, b.gang, b.role, b.rank) for b in flight.berths]
    columns: Any = tuple(zip(*rows, strict=True))
    text = msgspec.json.encode(Intent(epoch, round(flight.deadline_s, 3), gangs, columns))
    if len(text) <= PLAIN_BYTES_MOST:
        return text.decode()
    return _PACKED + b64encode(zlib.compress(text)).decode()


def read_intent(text: str) -> Flight | None:
    """What somebody before us meant to do; None if there is nothing, or nothing that can be read."""
    if not text:
        return None
    try:
        plain = _unpack(text.removeprefix(_PACKED)) if text.startswith(_PACKED) else text
        said = msgspec.json.decode(plain, type=Intent)
        keys = tuple(GangKey(Dialect(each.dialect), each.namespace, each.name) for each in said.gangs)
        berths = tuple(Berth(*each) for each in zip(*said.members, strict=True))
    except (msgspec.DecodeError, ValueError, zlib.error):
        return None
    return Flight(keys, berths, said.deadline_s, {})


def _unpack(text: str) -> bytes:
    # Bounded: whoever may write our objects could else have us unpack a text of any length.
    return zlib.decompressobj().decompress(b64decode(text, validate=True), _UNPACKED_BYTES_MOST)
