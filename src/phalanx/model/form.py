"""The placement question of a gang, with everything taken out that does not touch it.

Names, owners, priorities and run times are not part of where a gang could go. What is left is
its form. Gangs of one form differ in size only, so what was learnt about one of them (how many
members fit in the best domain right now) answers for all: this is what lets a cycle look at
100,000 pending gangs without placing each.

A gang of one role has a form with an open size (`size` 0 in its `RoleForm`); a gang of several
roles, or several gangs that start together, have their sizes inside the form.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from phalanx.model.fleet import Fleet
from phalanx.model.gang import Gang, Role, Shape
from phalanx.model.topology import Segment, Topology


@dataclass(frozen=True, slots=True)
class RoleForm:
    """One role: its shape, its levels as indices (-1: none), and its size unless that is open."""

    shape: Shape
    require: int
    prefer: int
    segment_size: int  # 0: none
    segment_level: int
    # 0: open. Gangs that differ in nothing but their size then share one form.
    size: int


@dataclass(frozen=True, slots=True)
class GangForm:
    """The roles of one gang and what it requires of all of them together."""

    require: int
    prefer: int
    roles: tuple[RoleForm, ...]


@dataclass(frozen=True, slots=True)
class Form:
    """One or several gangs that must be placed at once."""

    gangs: tuple[GangForm, ...]
    roles: tuple[RoleForm, ...] = field(init=False, compare=False, repr=False)  # of all gangs, in order
    open_size: bool = field(init=False, compare=False, repr=False)  # the size stands beside the form
    _hash: int = field(init=False, compare=False, repr=False)  # forms are looked up on every decision

    def __post_init__(self) -> None:
        """Work out once what is asked for all the time."""
        object.__setattr__(self, "roles", tuple(role for gang in self.gangs for role in gang.roles))
        object.__setattr__(self, "open_size", self.gangs[0].roles[0].size == 0)
        object.__setattr__(self, "_hash", hash(self.gangs))

    def __hash__(self) -> int:
        """Of the gangs."""
        return self._hash


def form_of_gang(fleet: Fleet, gang: Gang) -> Form:
    """The form of a gang that starts alone; of several roles, at their least."""
    if len(gang.roles) == 1:
        # Size 0: the size stands beside the form, and two gangs that differ in nothing else share it.
        return Form((_gang_form(fleet, gang, (0,)),))
    return form_at_sizes(fleet, ((gang, tuple(role.sizes.least for role in gang.roles)),))


def form_at_sizes(fleet: Fleet, gangs: tuple[tuple[Gang, tuple[int, ...]], ...]) -> Form:
    """The form of gangs that are placed at once, each role at a given size."""
    return Form(tuple(_gang_form(fleet, gang, sizes) for gang, sizes in gangs))


def _gang_form(fleet: Fleet, gang: Gang, sizes: tuple[int, ...]) -> GangForm:
    require, prefer = fleet.level_index(gang.topology.require), fleet.level_index(gang.topology.prefer)
    roles = tuple(_role_form(fleet, gang, role, size) for role, size in zip(gang.roles, sizes, strict=True))
    if len(roles) == 1:
        # Both the gang's and the role's wish hold; domains nest, so the tighter one says it all.
        require, prefer = roles[0].require, roles[0].prefer
    return GangForm(require, prefer, roles)


def _role_form(fleet: Fleet, gang: Gang, role: Role, size: int) -> RoleForm:
    alone = len(gang.roles) == 1
    # With several roles the gang's own wish is about all of them together and stays on the `GangForm`.
    outer = gang.topology if alone else Topology()
    require = max(fleet.level_index(role.topology.require), fleet.level_index(outer.require))
    prefer = max(fleet.level_index(role.topology.prefer), fleet.level_index(outer.prefer))
    segment: Segment | None = role.topology.segment or gang.topology.segment
    return RoleForm(
        shape=role.shape,
        require=require,
        # Whatever is inside the required domain anyway cannot be preferred any wider.
        prefer=max(prefer, require) if prefer >= 0 else prefer,
        segment_size=segment.size if segment else 0,
        segment_level=fleet.level_index(segment.level) if segment else -1,
        size=size,
    )
