"""What is wrong with an object, or to be told about it, as data: whose, which field, and what to do next.

One value for conditions, events and the command line. Whether the gang may start in spite of it is the class:
`Invalid`, `Unsupported` and `NotYet` keep it from starting, a `Notice` does not.
"""

from __future__ import annotations

from dataclasses import dataclass

from phalanx.control.spec.errors import show

#: A message stands in conditions and on terminals; what an object says of itself may be megabytes.
_QUOTED_CHARS_MAX = 100


@dataclass(frozen=True, slots=True)
class Remark:
    """Something about one field of one object."""

    field: str  # dotted, as in a manifest: spec.affinity.nodeAffinity
    says: str
    do: str  # the next step
    subject: str = ""  # kind and name: PodGroup train; filled in by whoever knows it

    def of(self, subject: str) -> Remark:
        """The same, with whose it is."""
        return type(self)(self.field, self.says, self.do, subject)

    @property
    def sentence(self) -> str:
        """One line."""
        whose = f"{self.subject}: " if self.subject else ""
        return f"{whose}{self.field} {self.says}; {self.do}"


@dataclass(frozen=True, slots=True)
class Invalid(Remark):
    """No cluster could make sense of it; somebody has to correct it."""


@dataclass(frozen=True, slots=True)
class Unsupported(Remark):
    """A legal wish that is not honoured here; so it is refused rather than ignored."""


@dataclass(frozen=True, slots=True)
class NotYet(Remark):
    """It waits for somebody else to do something: take a gate away, bind a claim, make a pod."""


@dataclass(frozen=True, slots=True)
class Notice(Remark):
    """Told and not obstructing: what was chosen of two, what was corrected."""


def quote(text: object) -> str:
    """Foreign text as a message quotes it: short and printable."""
    return make_printable(show(text)[:_QUOTED_CHARS_MAX])


def make_printable(text: str) -> str:
    """Foreign text that stands on a terminal some day: it must not steer it."""
    return "".join(char if char.isprintable() else "?" for char in text)


def call(key: object) -> str:
    """The name of a gang as a message has it; whatever an annotation says may be one."""
    return make_printable(str(key)[:_QUOTED_CHARS_MAX])


def blocks(remarks: tuple[Remark, ...]) -> tuple[Remark, ...]:
    """Those that keep it from starting, the gravest first: what is invalid, then unsupported, then only waited for."""
    order = (Invalid, Unsupported, NotYet)
    return tuple(each for kind in order for each in remarks if isinstance(each, kind))
