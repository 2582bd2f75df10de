"""What gangs ask for, in units of the engine, as people write it. Pure."""

from __future__ import annotations

from phalanx.model.gang import Gang, Role
from phalanx.model.resources import DEVICE_KIND, MILLI, units_per_whole
from phalanx.words import gpus, number, size_text


def amount(kind: str, units: float, *, bare: bool = False) -> str:
    """Engine units of a kind as people write them; `bare`: without the kind."""
    value = units / units_per_whole(kind)
    # Kubernetes names devices by vendor; to whoever asks for eight of them they are GPUs all the same.
    if (kind == DEVICE_KIND or kind.endswith("/gpu")) and not bare:
        return gpus(value)
    text = size_text(value) if units_per_whole(kind) == 1 else number(value)
    return text if bare else f"{text} {kind}"


def needs_text(gang: Gang, kind: str = DEVICE_KIND) -> str:
    """What a gang asks for: "4 GPUs as 4 x 1", "8 GPUs (min 2) as 8 x 1, in one node"; `kind`: of the devices."""
    # Summed in units and divided once, so that three thirds of a device are one.
    most = sum(role.sizes.most * role.shape.amount(kind) for role in gang.roles)
    least = sum(role.sizes.least * role.shape.amount(kind) for role in gang.roles)
    shapes = " and ".join(_shape(role, kind) for role in gang.roles)
    if most:
        fewest = f" (min {number(least / MILLI)})" if least < most else ""
        text = f"{amount(kind, most)}{fewest} as {shapes}"
    else:
        text = shapes
    level = gang.topology.require or next((role.topology.require for role in gang.roles if role.topology.require), None)
    return f"{text}, in one {level}" if level else text


def least_devices(gang: Gang, kind: str = DEVICE_KIND) -> float:
    """Devices of a gang at its least."""
    return sum(role.sizes.least * role.shape.amount(kind) for role in gang.roles) / MILLI


def _shape(role: Role, kind: str) -> str:
    each = role.shape.amount(kind) / MILLI
    low, high = role.sizes.least, role.sizes.most
    if each:
        return f"{high} x {number(each)}"
    return f"{high if low == high else f'{low}:{high}'} member{'' if high == 1 else 's'} without a GPU"
