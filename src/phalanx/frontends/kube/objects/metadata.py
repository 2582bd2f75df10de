"""What all objects have in common: names, labels, owners, selectors, conditions.

Only the fields that somebody here reads; msgspec skips all others without building them, which is what makes decoding
10,000 pods a matter of a tenth of a second.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

#: Of kinds that the API checks itself; a larger number is none of theirs, and the engine counts no further.
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]


# Without the cyclic collector: decoded objects are trees, and a list of pods is half a million of them at once.
class Narrow(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """An object, or a part of one, of which only some fields are read."""


class OwnerReference(Narrow, frozen=True):
    """Who made it."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Metadata(Narrow, frozen=True):
    """Who it is."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None

    def label(self, key: str) -> str:
        """One label, empty if absent."""
        return self.labels.get(key, "") if self.labels else ""

    def annotation(self, key: str) -> str:
        """One annotation, empty if absent."""
        return self.annotations.get(key, "") if self.annotations else ""


class MatchExpression(Narrow, frozen=True):
    """One line of a selector, over labels of pods or of nodes."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class LabelSelector(Narrow, frozen=True):
    """Which pods, or namespaces; with nothing in it: all of them."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[MatchExpression, ...] | None = None


class Condition(Narrow, frozen=True):
    """One thing that is said about an object, in its status."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int | None = None
    # Volcano's own.
    transition_id: str | None = msgspec.field(default=None, name="transitionID")


class LocalReference(Narrow, frozen=True):
    """Something of the same namespace, by name."""

    name: str = ""
