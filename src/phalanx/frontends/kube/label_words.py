"""Numbers, names and spans of time out of labels and annotations, where anything may stand."""

from __future__ import annotations

import re
from typing import Final

from phalanx.control.spec.errors import BadText
from phalanx.control.spec.quantity import SECOND_US, duration_us
from phalanx.frontends.kube.remarks import Invalid, Notice, NotYet, Remark, quote

#: The most members that a gang file may ask for as well; not taken from there, since that comes with a reader of YAML.
MEMBERS_MAX: Final = 1_000_000

_COUNT: Final = re.compile(r"[+-]?[0-9]{1,10}")
_GO_DURATION: Final = re.compile(r"(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:us|µs|ms|s|m|h))+")
_NAME: Final = re.compile(r"[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?")
_NAME_CHARS_MAX: Final = 253


def check_least(written: int, field: str, remarks: list[Remark]) -> int:
    """A minimum of members; what makes no sense is remarked on, and 1 stands for it."""
    if 1 <= written <= MEMBERS_MAX:
        return written
    remarks.append(Invalid(field, f"is {quote(written)}", f"write 1 to {MEMBERS_MAX:,}"))
    return 1


def parse_count(text: str) -> int | None:
    """A whole number, or None."""
    return int(text) if _COUNT.fullmatch(text) else None


def parse_timeout_s(text: str, field: str, remarks: list[Remark]) -> int | None:
    """A span of time as Go writes it, in whole seconds; what cannot be read is told and left out."""
    if not text:
        return None
    try:
        # Only what Go reads as well: there, other than in our files, 90 and 2d are no spans.
        span_us = duration_us(text) if _GO_DURATION.fullmatch(text) else 0
    except BadText:
        span_us = 0
    if span_us <= 0:
        remarks.append(Notice(field, f"is no span of time ({quote(text)}); it is left out", 'write one such as "10m"'))
        return None
    return -(-span_us // SECOND_US)


def check_timeout(written: int | None, field: str, remarks: list[Remark]) -> int | None:
    """A span of time in seconds; nothing is held while a gang waits, so a bad one only is told."""
    if written is None or 0 <= written < 1 << 31:
        return written
    remarks.append(Notice(field, f"is {quote(written)}; it is left out", "write seconds"))
    return None


def check_group_name(name: str, field: str) -> Invalid | None:
    """What is wrong with the name of a group, if anything."""
    if "/" in name:
        says = f"is {quote(name)}, with a namespace"
        return Invalid(field, says, "name a group of the pod's own namespace, by its bare name")
    if len(name) > _NAME_CHARS_MAX or not _NAME.fullmatch(name):
        return Invalid(field, f"is {quote(name)}, which no object can be called", "correct the name")
    return None


def tell_missing_group(kind: str, name: str) -> NotYet:
    """Pods that name a group which is not there wait for it: as singles they would start without their siblings."""
    return NotYet(
        f"{kind} {quote(name)}", "is named by these pods and does not exist", "create it, or correct the name"
    )
