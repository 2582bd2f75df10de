"""Which member this process is, as its environment says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from phalanx.wire.vocabulary import GENERATION_MAX, RANK_MAX


@dataclass(frozen=True, slots=True)
class Seat:
    """A place in a gang, and where its scheduler listens; without a socket there is none."""

    rank: int = 0  # its place when it started
    world: int = 1
    generation: int = 1
    job: str = ""
    attempt: int = 1
    name: int = 0  # by which the scheduler knows the member, for life; not the rank, once others have left
    socket: str = ""
    key_file: str = ""
    nested: bool = False  # a launcher inside the member made this process; the world is the launcher's


def read_seat(environment: Mapping[str, str], pid: int) -> tuple[Seat, str]:
    """The seat of this process, and what is wrong with its environment ("" when nothing is)."""
    nested = "TORCHELASTIC_RUN_ID" in environment
    try:
        seat = Seat(
            rank=_read(environment, "RANK", 0, 0, RANK_MAX),
            world=_read(environment, "WORLD_SIZE", 1, 1, RANK_MAX + 1),
            generation=_read(environment, "PHALANX_GENERATION", 1, 1, GENERATION_MAX),
            job=environment.get("PHALANX_JOB", ""),
            attempt=_read(environment, "PHALANX_ATTEMPT", 1, 0, GENERATION_MAX),
            name=_read(environment, _find_rank_name(environment, nested=nested), 0, 0, RANK_MAX),
            socket=environment.get("PHALANX_SOCKET", ""),
            key_file=environment.get("PHALANX_KEY_FILE", ""),
            nested=nested,
        )
    except ValueError as error:
        return Seat(), f"{error}; this process goes on without its scheduler"
    if _is_spoken_for(environment, pid, nested=nested):
        return Seat(seat.rank, seat.world, seat.generation, nested=nested), ""
    return seat, ""


def _find_rank_name(environment: Mapping[str, str], *, nested: bool) -> str:
    if "PHALANX_RANK" in environment:
        return "PHALANX_RANK"
    # Under torchrun RANK counts its processes, and GROUP_RANK the members that started one torchrun each.
    return "GROUP_RANK" if nested else "RANK"


def _is_spoken_for(environment: Mapping[str, str], pid: int, *, nested: bool) -> bool:
    """Whether another process of this member speaks: one of a member does, or they would take turns being heard."""
    parent = environment.get("PHALANX_JOINED", "")
    return (nested and environment.get("LOCAL_RANK", "0") != "0") or parent not in ("", str(pid))


def _read(environment: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    text = environment.get(name, "").strip()
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
        raise ValueError(f"{name}={text[:40]!r} is no whole number from {least} to {most}")
    return int(text)
