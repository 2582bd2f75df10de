"""What keeps something waiting and until when, as lines: the same for jobs of a machine and for gangs of a cluster."""

from __future__ import annotations

from typing import Any, Final

import click

from phalanx.cli.host.text import clean, start_text

LABEL: Final = 12

Told = dict[str, Any]


def blocker_lines(told: Told) -> list[str]:
    """What blocks it, the dominant reason first."""
    reason = told.get("reason")
    if reason is None:
        return []
    label = "BLOCKED BY" if told["state"] == "pending" else "BECAUSE"
    lines = [labelled(label, click.style(clean(reason["code"]), bold=True)), f"    {clean(reason['message'])}"]
    # Gates have one code, and each is lifted by something else.
    others = [
        each
        for each in told.get("blockers") or ()
        if each["code"] != reason["code"] or (each["code"] == "Held" and each["message"] != reason["message"])
    ]
    size = max((len(each["code"]) for each in others), default=0)
    for at, each in enumerate(others):
        lines.append(labelled("" if at else "ALSO", f"{clean(each['code']):<{size}}  {clean(each['message'])}"))
    return lines


def passing_lines(told: Told) -> list[str]:
    """Who will pass it."""
    lines = [each["message"] for each in told.get("passed_by") or ()]
    lines += [each["message"] for each in (told.get("fills_after"),) if each]
    return [labelled("" if at else "PASSING", clean(line)) for at, line in enumerate(lines)]


def start_lines(told: Told) -> list[str]:
    """When it starts, never as a bare time."""
    if told["state"] != "pending":
        return []
    eta = told.get("eta")
    starts = start_text(eta)
    if not starts and (told.get("reason") or {}).get("code") == "Held":
        return []  # whoever holds it can say
    if not starts:
        return [labelled("STARTS", "nobody can say: nothing that is known ahead would start it")]
    hangs_on = clean((eta or {}).get("hangs_on") or "")
    return [labelled("STARTS", f"{starts}{f'   {hangs_on}' if hangs_on else ''}")]


def labelled(label: str, text: str) -> str:
    """A line with what it is about, as wide as all of them."""
    return f"  {label:<{LABEL}}{text}".rstrip()
