"""What `phalanx what-if` was asked, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phalanx.control.what_if import Answer


@dataclass(frozen=True, slots=True)
class AskedChange:
    """The change, as it was typed."""

    add: str | None
    remove: str | None
    cancel: tuple[str, ...]
    gangs: Path | None
    policy: str | None
    submits: tuple[Mapping[str, Any], ...] = ()  # gangs as `submit` would make them
    labels: Mapping[str, str] = field(default_factory=dict)  # what people call gangs that are named by a number
    notes: tuple[str, ...] = ()  # about the submits
    typed: Mapping[str, str] = field(default_factory=dict)  # gang of `cancel` → the word that was typed for it

    @property
    def nothing(self) -> bool:
        """Whether there is no change at all."""
        return not (self.add or self.remove or self.cancel or self.gangs or self.policy or self.submits)

    def tell(self) -> dict[str, object]:
        """The same for the answer."""
        told = {"add_nodes": self.add, "remove_nodes": self.remove, "cancel": list(self.cancel), "policy": self.policy}
        gangs = self.gangs.name if self.gangs else None
        submits = [str(gang["name"]) for gang in self.submits]
        return {key: value for key, value in {**told, "add_gang": gangs, "submit": submits}.items() if value}

    def label(self, name: str) -> str:
        """What people call a gang."""
        return self.labels.get(name, name)


@dataclass(frozen=True, slots=True)
class WhatIfReport:
    """The answer, for people and for programs."""

    answer: Answer
    tree: dict[str, Any]
    title: str
    notes: Sequence[str]
    labels: Mapping[str, str] = field(default_factory=dict)
