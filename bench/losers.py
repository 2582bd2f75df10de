"""Who fared worst in a run of an elastic set, and which sizes it had meanwhile: where a division went wrong.

Reads the scenario and the results as anybody could, and knows nothing of the engine: progress is worked out again from
the history, the curve and the pauses, which are all in the two files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from phalanx.perfmodel.speedup import Table, speedup_at

#: Of a long history the first and the last steps are shown.
STEPS_FIRST, STEPS_LAST = 6, 2


@dataclass(frozen=True, slots=True)
class Course:
    """One gang that ended: what it was, and the sizes it had from when on."""

    name: str
    submit_s: float
    end_s: float
    date_s: float | None
    duration_s: float  # at its largest
    startup_s: float
    pause_s: float
    sizes: tuple[int, ...]
    curve: Table
    steps: tuple[tuple[float, int], ...]  # (instant, members)

    @property
    def late_s(self) -> float:
        """By how much it missed its date; below 0 if it did not, or has none."""
        return -1.0 if self.date_s is None else self.end_s - self.date_s

    @property
    def stretch(self) -> float:
        """Submit to end over what it takes alone at its largest."""
        return (self.end_s - self.submit_s) / (self.startup_s + self.duration_s)

    def needs(self) -> list[int | None]:
        """For every step the smallest size that would have met the date from then on; None if none would."""
        if self.date_s is None:
            return [None] * len(self.steps)
        left = self.duration_s * speedup_at(self.curve, self.sizes[-1])
        found: list[int | None] = []
        for at, (instant, _) in enumerate(self.steps):
            if at:
                before_s, had = self.steps[at - 1]
                stood_s = self.startup_s if at == 1 else self.pause_s
                left -= max(0.0, instant - before_s - stood_s) * speedup_at(self.curve, had)
            stands_s = self.startup_s if at == 0 else self.pause_s
            room_s = self.date_s - instant - stands_s
            found.append(next((n for n in self.sizes if left / speedup_at(self.curve, n) <= room_s), None))
        return found


def read_courses(scenario: Mapping[str, Any], gangs: Sequence[Mapping[str, Any]]) -> list[Course]:
    """Gangs that ended, from a scenario whose lengths are seconds and the `gangs` of its result."""
    by_name = {gang["name"]: gang for gang in scenario["gangs"]}
    return [read_course(by_name[gang["name"]], gang) for gang in gangs if gang["end_s"] is not None]


def read_course(said: Mapping[str, Any], gang: Mapping[str, Any]) -> Course:
    """One gang of both files."""
    members = said["members"]
    sizes = tuple(members["sizes"]) if isinstance(members, Mapping) else (members,)
    table = said["speedup"]["table"] if "speedup" in said else {str(sizes[-1]): 1.0}
    steps: list[tuple[float, int]] = []
    for each in gang["history"]:
        if each["members"] and (not steps or each["members"] != steps[-1][1]):
            steps.append((each["at_s"], each["members"]))
    return Course(
        gang["name"],
        said["submit"],
        gang["end_s"],
        said["submit"] + said["deadline"] if "deadline" in said else None,
        said["duration"],
        said.get("startup", 0),
        said.get("resize_pause", 0),
        sizes,
        Table(tuple(sorted((int(n), float(speed)) for n, speed in table.items()))),
        tuple(steps),
    )


def find_worst(courses: Sequence[Course], count: int) -> list[Course]:
    """Those that missed their date by most; where nobody has one, those that took longest beside themselves alone."""
    if any(course.date_s is not None for course in courses):
        late = [course for course in courses if course.late_s > 0]
        return sorted(late, key=lambda course: (-course.late_s, course.name))[:count]
    return sorted(courses, key=lambda course: (-course.stretch, course.name))[:count]


def tell(course: Course) -> str:
    """One line: how it fared, and its sizes with what its date needed then."""
    if course.date_s is None:
        fared = f"took {course.stretch:.1f} times as long as alone at {course.sizes[-1]}"
    else:
        fared = f"missed its date by {course.late_s:,.0f} s of {course.date_s - course.submit_s:,.0f}"
    steps = []
    for (instant, members), need in zip(course.steps, course.needs(), strict=True):
        needed = "" if course.date_s is None else f" (needs {need or 'more than any'})"
        steps.append(f"{instant - course.submit_s:,.0f} s {members}{needed}")
    left_out = len(steps) - STEPS_FIRST - STEPS_LAST
    if left_out > 1:
        steps[STEPS_FIRST:-STEPS_LAST] = [f"{left_out} more"]
    return f"{course.name} {fared}: {', '.join(steps)}"
