"""What gangs ask for, in units of the engine, as people write it. Pure."""

from __future__ import annotations

from phalanx.model.gang import Gang, Role
from phalanx.model.resources import DEVICE_KIND, MILLI, units_per_whole
from phalanx.words import gpus, number, size_text


def amount(kind: str, units: float, *, bare: bool = False) -> str:
    """Engine units of a kind as people write them; `bare`: without the kind."""
    value = units / units_per_whole(kind)
    if kind == DEVICE_KIND and not bare:
        return gpus(value)
    text = size_text(value) if units_per_whole(kind) == 1 else number(value)
    return text if bare else f"{text} {kind}"


def needs_text(gang: Gang) -> str:
    """What a gang asks for: "4 GPUs as 4 x 1", "8 GPUs (min 2) as 8 x 1, in one node"."""
    most = sum(_devices(role, role.sizes.most) for role in gang.roles)
    least = sum(_devices(role, role.sizes.least) for role in gang.roles)
    shapes = " and ".join(_shape(role) for role in gang.roles)
    if most:
        fewest = f" (min {number(least)})" if least < most else ""
        text = f"{gpus(most)}{fewest} as {shapes}"
    else:
        text = shapes
    level = gang.topology.require or next((role.topology.require for role in gang.roles if role.topology.require), None)
    return f"{text}, in one {level}" if level else text


def _devices(role: Role, members: int) -> float:
    return members * role.shape.amount(DEVICE_KIND) / MILLI


def _shape(role: Role) -> str:
    each = role.shape.amount(DEVICE_KIND) / MILLI
    low, high = role.sizes.least, role.sizes.most
    if each:
        return f"{high} x {number(each)}"
    return f"{high if low == high else f'{low}:{high}'} member{'' if high == 1 else 's'} without a GPU"
