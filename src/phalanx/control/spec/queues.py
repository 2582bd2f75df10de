"""The `queues:` and `users:` parts: who is entitled to what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from phalanx.control.spec.errors import show, suggest
from phalanx.control.spec.graph import find_cycle
from phalanx.control.spec.spot import Fields, Spot
from phalanx.model.queue import DEFAULT_QUEUE, ROOT, Queue, UserLimit

QUEUE_KEYS: Final = ("name", "parent", "weight", "guarantee", "limit")
USER_KEYS: Final = ("name", "limit")
_WEIGHT_MAX: Final = 1_000_000


def parse_queues(spot: Spot | None) -> tuple[Queue, ...]:
    """All queues in the order written, their tree checked. The root is not among them."""
    if spot is None:
        return ()
    entries = [entry.titled() for entry in spot.items()]
    # The order as written is kept: where shares are rounded, the lower index gets the unit more.
    queues = [_parse_queue(entry) for entry in entries]
    # Names before parents: with two of one name a parent would mean either.
    _check_names(entries, [queue.name for queue in queues], "queue")
    _check_parents(entries, queues)
    return tuple(queues)


def with_default(queues: tuple[Queue, ...], wanted: bool) -> tuple[Queue, ...]:  # noqa: FBT001 - a plain fact
    """The queues, and the one for gangs that name none, if it is wanted and not described."""
    # A file may describe `default` like any other, with a guarantee or a limit of its own.
    if wanted and all(queue.name != DEFAULT_QUEUE for queue in queues):
        return (*queues, Queue(DEFAULT_QUEUE))
    return queues


def parse_users(spot: Spot | None) -> tuple[UserLimit, ...]:
    """How much each person may hold at a time."""
    if spot is None:
        return ()
    entries = [entry.titled() for entry in spot.items()]
    users = []
    for entry in entries:
        fields = entry.fields(USER_KEYS)
        name = fields.need("name", "name: ada").text()
        # A limit is needed: people come into being by submitting, and an entry without one would say nothing.
        users.append(UserLimit(name, fields.need("limit", "limit: {gpu: 8}").amounts()))
    _check_names(entries, [user.name for user in users], "user")
    return tuple(users)


def _parse_queue(entry: Spot) -> Queue:
    fields = entry.fields(QUEUE_KEYS)
    name = fields.need("name", "name: research").text()
    # A limit on the whole cluster would be its capacity, and a guarantee at the top is against nobody.
    if name == ROOT:
        entry.refuse(f"{ROOT} is the top of the tree and always there; name the queues below it")
    parent, weight = fields.get("parent"), fields.get("weight")
    guarantee, limit = _amounts(fields, "guarantee"), _amounts(fields, "limit")
    for kind, floor in guarantee.items():
        # A kind without a limit has none, so that its guarantee is compared with itself.
        if floor > limit.get(kind, floor):
            entry.refuse(f"the guarantee of {kind} is above the limit; nothing could ever honour it")
    return Queue(
        name=name,
        parent=parent.text() if parent else ROOT,
        weight=weight.integer(1, _WEIGHT_MAX) if weight else 1,
        guarantee=guarantee,
        limit=limit,
    )


def _amounts(fields: Fields, key: str) -> Mapping[str, int]:
    spot = fields.get(key)
    return spot.amounts() if spot else {}


def _check_names(entries: list[Spot], names: list[str], what: str) -> None:
    seen: set[str] = set()
    for entry, name in zip(entries, names, strict=True):
        if name in seen:
            entry.refuse(f"there is already a {what} {show(name)}; names are unique")
        seen.add(name)


def _check_parents(entries: list[Spot], queues: list[Queue]) -> None:
    known = [ROOT, *(queue.name for queue in queues)]
    for entry, queue in zip(entries, queues, strict=True):
        if queue.parent not in known:
            entry.refuse(f"parent names no queue of this file: {show(queue.parent)}; {suggest(queue.parent, known)}")
    # A circle has no way up to the root: usage charged to it would be added for ever.
    cycle = find_cycle({queue.name: (queue.parent,) for queue in queues})
    if cycle:
        # At the line of a queue in the circle: the file has a thousand, and the words name only the names.
        entry = next(entry for entry, queue in zip(entries, queues, strict=True) if queue.name == cycle[0])
        entry.refuse(f"parent goes round in a circle: {' → '.join(cycle)}")
