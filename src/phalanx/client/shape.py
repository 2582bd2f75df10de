"""How many members, and what each of them holds, from what people say: GPUs, members, cores, memory.

`-g` counts GPUs of the whole job, so that `-g 4` means the same with and without `-n`. Amounts are counted
in thousandths of a device: `-g 0.5` is one member with half of one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from phalanx.client.daemon_errors import UsageError
from phalanx.client.launchers import CalledLauncher, find_called_launcher

_WHOLE: Final = 1000
_RANGE_PARTS: Final = 2
_AMOUNT = re.compile(r"\d{1,9}(?:\.\d*)?|\.\d+")
_COUNT = re.compile(r"\d{1,9}")


def choose_shape(
    gpus: str | None,
    members: str | None,
    *,
    cpus: str | None = None,
    memory: str | None = None,
    command: Sequence[str] = (),
    cwd: str = ".",
    notes: list[str],
) -> dict[str, Any]:
    """`members` and `each` of a gang; what was decided beyond what was said goes to the notes."""
    if members is not None:
        _parse_members(members)  # before it is taken for a number of GPUs: nobody typed -g
    if gpus is None and not (cpus or memory):
        # A job that says nothing wants a GPU a member: this is what the machine is for.
        gpus = members or "1"
    called = find_called_launcher(command, cwd)
    if called is not None and members is None and gpus is not None:
        members = _choose_starts(called, gpus, notes)
    shape = _members_alone(members) if gpus is None else _divide(gpus, members)
    each = shape["each"]
    if cpus:
        each["cpu"] = _positive(cpus, "--cpus")
    if memory:
        each["memory"] = memory
    return shape


def _choose_starts(called: CalledLauncher, gpus: str, notes: list[str]) -> str | None:
    """Members for something that starts its own ranks: one with all GPUs, as far as that can be meant."""
    once = gpus.rpartition(":")[2] if gpus.count(":") == 1 else gpus.split(":")[1] if ":" in gpus else gpus
    if ":" in gpus:
        who = f"{called.within}, which calls {called.launcher}," if called.within else called.launcher
        notes.append(
            f"{who} is started once per GPU, since -g {gpus} is elastic; for one start with all of them: -n 1 -g {once}"
        )
        return None
    if not called.sure:
        if _is_several(gpus):
            notes.append(
                f"{called.within} seems to call {called.launcher}, which starts its own ranks, and is started once "
                f"per GPU; for one start with all of them: -n 1 -g {gpus}"
            )
        return None
    if _is_several(gpus):
        notes.append(f"{called} starts its own ranks: one member with {gpus} GPUs (-n 1; per GPU: -n {gpus})")
    return "1"


def _is_several(gpus: str) -> bool:
    """Whether once and once per GPU are two things: they are one of a share, and of a single GPU."""
    return bool(_AMOUNT.fullmatch(gpus)) and float(gpus) > 1


def shape_text(gang: Mapping[str, Any], *, times: str = "×") -> str:
    """What a gang is in a few words: "4 ranks × 1 GPU", "2 to 8 ranks × 1 GPU", "1 rank × 4 GPUs"."""
    roles = gang.get("roles")
    if isinstance(roles, (list, tuple)):
        parts = [shape_text(role, times=times) for role in roles if isinstance(role, Mapping)]
        return " + ".join(part for part in parts if part)
    sizes, each = gang.get("members", 1), gang.get("each")
    low, high = (sizes.get("min", 1), sizes.get("max", "")) if isinstance(sizes, Mapping) else (sizes, sizes)
    count = f"{low}" if low == high else f"{low} to {high}"
    gpu = each.get("gpu", 0) if isinstance(each, Mapping) else 0
    what = f"{gpu} GPU{'' if gpu == 1 or (isinstance(gpu, float) and gpu < 1) else 's'}" if gpu else "no GPU"
    return f"{count} rank{'' if count == '1' else 's'} {times} {what}"


def _divide(gpus: str, members: str | None) -> dict[str, Any]:
    low, high, step = _parse_range(gpus, "-g")
    if members is None:
        if low == high:
            count, each = (1, low) if low < _WHOLE else (low // _WHOLE, _WHOLE)
            if low % _WHOLE and low > _WHOLE:
                raise UsageError(
                    f"-g {gpus}: shares of a GPU sit on one GPU, so above 1 only whole ones count",
                    f"write -g {low // _WHOLE} or -g {low // _WHOLE + 1}",
                )
            return {"members": count, "each": {"gpu": _amount(each)}}
        _check_whole(low, high, gpus)
        return {"members": _sizes(low // _WHOLE, high // _WHOLE, step // _WHOLE), "each": {"gpu": 1}}
    least, most, _ = _parse_members(members)
    each = _share(low, least, gpus, members)
    if low != high and least == most:
        raise UsageError(
            f"-g {gpus} is elastic and -n {members} is not: members come and go, they do not grow",
            f"leave out -n for one GPU each, or write -n {low // _WHOLE}:{high // _WHOLE} -g {gpus}",
        )
    if _share(high, most, gpus, members) != each:
        raise UsageError(
            f"-n {members} -g {gpus}: the smallest and the largest size give a member different numbers of GPUs",
            f"write -n {members} -g {_amount(each * least)}:{_amount(each * most)}",
        )
    return {"members": _sizes(least, most, 1), "each": {"gpu": _amount(each)}}


def parse_members(text: str) -> int | dict[str, int]:
    """A number of members, or a range."""
    least, most, step = _parse_members(text)
    return _sizes(least, most, step)


def _members_alone(members: str | None) -> dict[str, Any]:
    return {"members": parse_members(members or "1"), "each": {}}


def _share(total: int, count: int, gpus: str, members: str) -> int:
    each, rest = divmod(total, count)
    if rest == 0 and (each <= _WHOLE or each % _WHOLE == 0):
        return each
    whole = max(1, total // _WHOLE)
    fitting = [n for n in range(1, whole + 1) if whole % n == 0 and n != count]
    ways = " or ".join(f"-n {n}" for n in fitting[-3:])
    up = -(-whole // count) * count
    raise UsageError(
        f"{gpus} GPUs cannot be divided among {members} members", f"write -g {up}{f', or {ways}' if ways else ''}"
    )


def _parse_range(text: str, option: str) -> tuple[int, int, int]:
    """(least, most, step) in thousandths."""
    parts = text.split(":")
    if len(parts) > _RANGE_PARTS + 1 or not all(_AMOUNT.fullmatch(part) for part in parts):
        raise UsageError(f"{option} {text!r} is no number of GPUs", f"write {option} 4, {option} 2:8 or {option} 0.5")
    found = [_thousandths(part, option) for part in parts]
    low, high = found[0], found[1] if len(found) > 1 else found[0]
    if low == 0:
        raise UsageError(
            f"{option} {text} asks for no GPU",
            f"write {option} 1, or leave {option} out and write --cpus 4 for a job without GPUs",
        )
    if low > high:
        raise UsageError(
            f"{option} {text} has its least above its most", f"write {option} {':'.join([parts[1], parts[0]])}"
        )
    return low, high, found[2] if len(found) > _RANGE_PARTS else _WHOLE


def _parse_members(text: str) -> tuple[int, int, int]:
    parts = text.split(":")
    if len(parts) > _RANGE_PARTS or not all(_COUNT.fullmatch(part) for part in parts):
        raise UsageError(f"-n {text!r} is no number of members", "write -n 1 or -n 2:8")
    low, high = int(parts[0]), int(parts[-1])
    if low == 0:
        raise UsageError(f"-n {text} asks for no member", "write -n 1")
    if low > high:
        raise UsageError(f"-n {text} has its least above its most", f"write -n {high}:{low}")
    return low, high, 1


def _check_whole(low: int, high: int, gpus: str) -> None:
    if low % _WHOLE or high % _WHOLE:
        raise UsageError(f"-g {gpus}: an elastic range counts whole GPUs", "write -g 1:4")


def _thousandths(text: str, option: str) -> int:
    whole, _, part = text.partition(".")
    if len(part.rstrip("0")) > 3:
        near = max(0.001, float(text))
        raise UsageError(f"{option} {text} is finer than a thousandth of a GPU", f"write {option} {near:.3f}")
    return int(whole or "0") * _WHOLE + int(f"{part:0<3}"[:3])


def _sizes(low: int, high: int, step: int) -> int | dict[str, int]:
    if low == high:
        return low
    if step < 1:
        raise UsageError("a step between sizes must be at least 1", "write -g 2:8:2")
    return {"min": low, "max": high} if step == 1 else {"min": low, "max": high, "step": step}


def _amount(thousandths: int) -> int | float:
    return thousandths // _WHOLE if thousandths % _WHOLE == 0 else thousandths / _WHOLE


def _positive(text: str, option: str) -> int | float:
    if not _AMOUNT.fullmatch(text) or float(text) == 0:
        raise UsageError(f"{option} {text!r} is no number above zero", f"write {option} 4")
    return int(text) if text.isdigit() else float(text)
