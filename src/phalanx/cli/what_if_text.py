"""The answer of `phalanx what-if` for people: one table, what happens at once, why others wait, totals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from phalanx.cli.screen import print_lines, print_sheet
from phalanx.control.look_ahead import Fate
from phalanx.control.spec.quantity import SECOND_US
from phalanx.control.what_if import Answer
from phalanx.frontends.sim.printing import Sheet
from phalanx.frontends.sim.text_gantt import ROWS_MAX, span

if TYPE_CHECKING:
    from phalanx.cli.what_if_asked import AskedChange, WhatIfReport

_UNFINISHED: Final = ("completed", "pending", "running", "starting", "hurt", "infeasible")
_VERBS: Final = {
    "bind": "starts with",
    "grow": "grows to",
    "shrink": "shrinks to",
    "lose": "loses members, left",
    "evict": "is evicted",
    "yield": "yields its turn",
    "move": "moves",
    "repair": "is repaired",
    "restart": "starts anew elsewhere",
    "cancel": "is cancelled",
    "fail": "fails",
}
_REASONS_MAX: Final = 20
_LATER_MAX: Final = 12
_DIVIDED: Final = ("share", "balance")
_COUNTED: Final = ("bind", "grow", "shrink", "lose")


def make_title(found: Answer, asked: AskedChange) -> str:
    """When, under which policy, and what changes."""
    done = {
        f"add nodes {asked.add}": asked.add,
        f"remove nodes {asked.remove}": asked.remove,
        f"cancel {', '.join(map(asked.label, asked.cancel))}": asked.cancel,
        f"add the gangs of {asked.gangs.name}" if asked.gangs else "": asked.gangs,
        f"submit {', '.join(str(gang['name']) for gang in asked.submits)}": asked.submits,
        f"policy {found.after.policy} instead of {found.before.policy}": asked.policy,
    }
    what = "; ".join(words for words, wanted in done.items() if wanted) or "nothing changes"
    at = "now" if asked.labels else f"at {span(found.before.now_us)}"  # of a daemon's clock nobody knows the beginning
    return f"{at}, policy {found.before.policy}: {what}"


def show(report: WhatIfReport) -> None:
    """The table, and what it means in a few lines."""
    print_lines([report.title, ""])
    found = report.answer
    if not found.names:
        print_lines(["nobody is there: every gang that came before this instant has ended"])
        return
    changed = [name for name in found.names if _told(found.before.fates.get(name), found.after.fates.get(name))]
    names = list(found.names) if len(found.names) <= ROWS_MAX else changed
    print_sheet(_gang_sheet(found, names[:ROWS_MAX], report.labels))
    left = len(found.names) - len(names[:ROWS_MAX])
    if left:
        same = len(found.names) - len(changed)
        print_lines([f"{left:,} more gangs, {same:,} of all unchanged; --json has them"])
    lines = [*_now_lines(found), *_later_lines(found), *_why_lines(found, names[:ROWS_MAX])]
    print_lines(["", *lines, *([""] if lines else [])])
    print_sheet(_totals_sheet(report.tree["totals"]))
    print_lines([f"note: {note}" for note in report.notes])


def _gang_sheet(found: Answer, names: Sequence[str], labels: Mapping[str, str]) -> Sheet:
    from phalanx.frontends.sim.printing import Sheet

    now_us, rows = found.before.now_us, []
    for name in names:
        before, after = found.before.fates.get(name), found.after.fates.get(name)
        was = (before or after).was  # type: ignore[union-attr]  # it is in one of them
        cells = [_start(fate, now_us) for fate in (before, after)] + [_end(fate, now_us) for fate in (before, after)]
        rows.append((labels.get(name, name), was, *cells, _told(before, after)))
    headers = ("gang", "now", "start as is", "start then", "end as is", "end then", "what changes")
    return Sheet("", headers, tuple(rows), right_from=7)


def _start(fate: Fate | None, now_us: int) -> str:
    if fate is None:
        return "-"
    if fate.was == "running":
        return "runs"
    return "never" if fate.start_us is None and fate.state == "infeasible" else _when(fate.start_us, now_us)


def _end(fate: Fate | None, now_us: int) -> str:
    if fate is None:
        return "-"
    how = "" if fate.state in _UNFINISHED else f" {fate.state}"
    return _when(fate.end_us, now_us) + how


def _when(us: int | None, now_us: int) -> str:
    if us is None:
        return "-"
    return "now" if us == now_us else f"+{_brief(us - now_us)}"


def _told(before: Fate | None, after: Fate | None) -> str:
    """The difference in words; empty if there is none."""
    if before is None or after is None:
        return "new" if before is None else "gone"
    if before.state != after.state and after.state in ("cancelled", "infeasible", "failed"):
        return after.state
    more = [verb for event, verb in _MORE.items() if after.count(event) > before.count(event)]
    return ", ".join([*more, *_shifted(before, after)])


_MORE: Final = {
    "evict": "evicted",
    "yield": "yields",
    "move": "moved",
    "lose": "loses members",
    "grow": "grows",
    "shrink": "shrinks",
    "repair": "repaired",
    "restart": "starts anew",
}


def _shifted(before: Fate, after: Fate) -> list[str]:
    """Starts and ends that come at another time, or at all."""
    told = []
    for verb, was, will in (("start", before.start_us, after.start_us), ("end", before.end_us, after.end_us)):
        if was is not None and will is not None:
            if was != will:
                told.append(f"{verb}s {_shift(will - was)}")
        elif was is not None or will is not None:
            told.append(f"{verb}s" if will is not None else f"does not {verb}")
    return told


def _brief(us: int) -> str:
    """Rounded to what matters: hundredths below a minute, whole seconds above."""
    return span(round(us, -4 if us < 60 * SECOND_US else -6))


def _shift(us: int) -> str:
    return f"{_brief(abs(us))} {'later' if us > 0 else 'earlier'}"


def _now_lines(found: Answer) -> list[str]:
    """What is decided at once with the change and is not without."""
    usual = set(found.before.happens_now())
    lines = []
    for name, change in found.after.happens_now():
        if (name, change) not in usual:
            members = f" {change.members} member{'s' * (change.members != 1)}" if change.event in _COUNTED else ""
            because = f": {change.because}" if change.because else ""
            lines.append(f"now: {name} {_VERBS[change.event]}{members}{because}")
    return lines[:ROWS_MAX]


def _later_lines(found: Answer) -> list[str]:
    """Surplus that will change hands for a date, or because it is worth more elsewhere; growth into idle room goes on
    all the time, and is counted below."""
    usual = {} if _is_forecast(found) else {fate.name: set(fate.events) for fate in found.before.fates.values()}
    told = [
        (change.at_us, fate.name, change)
        for fate in found.after.fates.values()
        for change in fate.events
        if change.cause in _DIVIDED and change.at_us > found.after.now_us and change not in usual.get(fate.name, ())
    ]
    told.sort(key=lambda each: each[0])
    lines = [f"{_when(at_us, found.after.now_us)}: {name} {change.because}" for at_us, name, change in told]
    more = len(lines) - _LATER_MAX
    return lines[:_LATER_MAX] + ([f"{more:,} more such changes; --json has them"] if more > 0 else [])


def _is_forecast(found: Answer) -> bool:
    """Whether both sides are the same, so that what is to come is the answer."""
    return found.before.fates == found.after.fates


def _why_lines(found: Answer, names: Sequence[str]) -> list[str]:
    """Why gangs do not run with the change, one line each; many alike are counted."""
    told = [fate for fate in map(found.after.fates.get, names) if fate is not None and fate.reason is not None]
    if len(told) > _REASONS_MAX:
        counts = Counter((fate.state, fate.reason[0]) for fate in told if fate.reason is not None)
        return [f"{count:,} of these gangs {state}: {code}" for (state, code), count in counts.most_common()]
    return [
        f"{fate.name} {fate.state}: {fate.reason[1]} ({fate.reason[0]})" for fate in told if fate.reason is not None
    ]


_TOTALS: Final = (
    ("completed", "gangs completed"),
    ("start_now", "start now"),
    ("start_later", "start later"),
    ("do_not_start", "do not start"),
    ("wait_s_mean", "wait from now, mean"),
    ("end_s_mean", "end, mean"),
    ("end_s_last", "last end"),
    ("evictions", "evictions"),
    ("yields", "turns ended"),
    ("resizes", "resizes"),
    ("moves", "moves"),
)


def _totals_sheet(totals: Mapping[str, Mapping[str, Any]]) -> Sheet:
    from phalanx.frontends.sim.printing import Sheet

    sides = (totals["before"], totals["after"])
    rows = []
    for key, words in _TOTALS:
        values = [side[key] for side in sides]
        if any(values) or key in ("completed", "start_now"):
            rows.append((words, *(_total(key, value) for value in values)))
    return Sheet("", ("", "as is", "then"), tuple(rows))


def _total(key: str, value: float | None) -> str:
    if value is None:
        return "-"
    return _brief(round(value * SECOND_US)) if "_s_" in key else f"{value:,}"
