"""Gangs that start together: whether those that name each other agree. Only a look at all of them can tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from phalanx.control.spec.graph import find_cycle
from phalanx.frontends.kube.gang_view import GangKey, GangView
from phalanx.frontends.kube.remarks import Invalid, NotYet, Remark, Unsupported, quote

_FIELD: Final = "groups"
#: How far a circle is looked for: whoever strings thousands of gangs together must not cost the others time.
_WALKED_MAX: Final = 200


def check_groups(views: Sequence[GangView]) -> dict[GangKey, tuple[Remark, ...]]:
    """What is to be said of gangs for the sake of those that they name, by key; nothing where all is well."""
    tied = {view.key: view for view in views if view.said.together}
    if not tied:
        return {}
    by_key = {view.key: view for view in views}
    found = {key: check_group(view, by_key) for key, view in tied.items()}
    return {key: remarks for key, remarks in found.items() if remarks}


def together_word(view: GangView) -> str:
    """The word of the engine by which gangs of one group know each other: equal for all that name the same set."""
    return "+".join(key.unique for key in view.said.together)


def check_group(view: GangView, by_key: Mapping[GangKey, GangView]) -> tuple[Remark, ...]:
    """The same of one of them; nobody else is looked at than those that it reaches."""
    remarks: list[Remark] = []
    others = [(key, by_key.get(key)) for key in view.said.together]
    stranger = next((each for _, each in others if each and each.said.together != view.said.together), None)
    if stranger is not None:
        return (_tell_disagreement(view, stranger, by_key),)
    for key, other in others:
        if other is None:
            remarks.append(NotYet(_FIELD, f"names the gang {quote(str(key))}, which is not there", "create it"))
        elif other.said.queue != view.said.queue:
            says = f"names {quote(str(key))}, whose queue is {quote(other.said.queue)} and not {quote(view.said.queue)}"
            remarks.append(Invalid(_FIELD, says, "gangs that start together must share one queue"))
    if view.said.topology.require or view.said.topology.segments:
        # Placed one beside the other, each would find a domain of its own, and the wish is about all of them.
        do = "put all members into one gang, or leave the group without a required layer"
        remarks.append(Unsupported(view.said.topology.field, "is required of a group of several gangs", do))
    return tuple(remarks)


def _tell_disagreement(view: GangView, other: GangView, by_key: Mapping[GangKey, GangView]) -> Invalid:
    do = "write the same list on every gang of the group"
    circle = find_cycle(_walk_groups(view, by_key))
    if circle:
        return Invalid(_FIELD, f"goes round in a circle: {' → '.join(circle[:8])}", do)
    return Invalid(_FIELD, f"names {quote(str(other.key))}, which names other gangs itself", do)


def _walk_groups(view: GangView, by_key: Mapping[GangKey, GangView]) -> dict[str, list[str]]:
    """Who names whom, as far as it is reached from here."""
    found: dict[str, list[str]] = {}
    open_ = [view]
    while open_ and len(found) < _WALKED_MAX:
        each = open_.pop()
        if str(each.key) not in found:
            others = [key for key in each.said.together if key != each.key]
            found[str(each.key)] = [str(key) for key in others]
            open_ += [by_key[key] for key in others if key in by_key]
    return found
