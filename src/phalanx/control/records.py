"""What the state remembers: the columns of its tables, and a record per gang and group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from phalanx.engine.lifecycle import Phase
from phalanx.model.gang import Gang
from phalanx.model.plan import Seats

PENDING: Final[dict[str, tuple[Any, tuple[int, ...]]]] = {
    "gang": (np.int64, ()),
    "form": (np.int64, ()),
    "size": (np.int64, ()),
    "elastic": (np.bool_, ()),
    "queue": (np.int32, ()),
    "user": (np.int32, ()),
    "priority": (np.int32, ()),
    "eligible_us": (np.int64, ()),
    "length_us": (np.int64, ()),
    "proven": (np.bool_, ()),
    "deadline_us": (np.int64, ()),
    "gate": (np.int8, ()),
    "group": (np.int32, ()),
}
RUNNING: Final[dict[str, tuple[Any, tuple[int, ...]]]] = {
    "gang": (np.int64, ()),
    "queue": (np.int32, ()),
    "user": (np.int32, ()),
    "priority": (np.int32, ()),
    "start_us": (np.int64, ()),
    "length_us": (np.int64, ()),
    "members": (np.int32, ()),
    "preemptible": (np.bool_, ()),
    "guest": (np.bool_, ()),
    "evictions": (np.int32, ()),
    "cool_until_us": (np.int64, ()),
}


@dataclass(slots=True)
class Group:
    """Gangs that start together."""

    word: str
    wanted: int
    gangs: list[int]
    form: int = -1  # known once complete


@dataclass(slots=True)
class Record:
    """What is remembered of one gang."""

    gang: Gang
    phase: Phase
    form: int
    queue: int
    user: int
    eligible_us: int
    row: int  # in the pending or running table
    waits_for: set[str]
    held: bool
    group: int = -1
    seats: tuple[Seats, ...] = ()
    attempts: int = 0
