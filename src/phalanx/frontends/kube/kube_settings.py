"""What an administrator decides of the controller; a file of YAML or JSON, and the command line over it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import yaml

from phalanx.control.policies import find_policy
from phalanx.engine.policy import Policy
from phalanx.frontends.kube.topology_wishes import LevelNames


class KubeSettingsError(Exception):
    """A settings file that cannot be used; the text says what, and what to do."""


class TopologyLevel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One level of the network."""

    name: str
    label: str  # of nodes
    layer: str = ""  # as Koordinator calls it


class KubeSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of it."""

    scheduler_name: str = "phalanx"
    namespace: str = ""  # of our own objects; empty: that of the account or the context
    policy: str = "easy"
    topology: tuple[TopologyLevel, ...] = ()  # outermost first
    #: How long a gang may be half bound before it is undone.
    bind_deadline_s: float = 60.0
    #: Whether groups of Volcano that have no pods yet are ours: operators wait for their phase before they make any.
    #: Not where Volcano's own scheduler runs beside us.
    claims_empty_groups: bool = False
    leader_election: bool = True
    listen: str = ""  # ADDR:PORT for health, readiness and metrics

    @property
    def levels(self) -> LevelNames:
        """The levels and what else they are called."""
        return LevelNames(
            tuple(each.name for each in self.topology),
            {each.label: each.name for each in self.topology},
            {each.layer: each.name for each in self.topology if each.layer},
        )

    def find_policy(self) -> Policy:
        """By name. Nobody who runs is touched: no pod is evicted to make room, and none is moved."""
        return replace(find_policy(self.policy), takes=frozenset(), grows=False, quantum_us=None)


def read_settings(path: Path | None) -> KubeSettings:
    """From a file, if one is named."""
    if path is None:
        return KubeSettings()
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
        settings = msgspec.convert(tree or {}, KubeSettings)
    except OSError as bad:
        raise KubeSettingsError(f"cannot read {path}: {bad.strerror}") from bad
    except (yaml.YAMLError, UnicodeDecodeError, msgspec.ValidationError) as bad:
        raise KubeSettingsError(f"{path}: {' '.join(str(bad).split())}") from bad
    if settings.bind_deadline_s <= 0:
        raise KubeSettingsError(f"{path}: bind_deadline_s must be above 0")
    return settings
