"""Rules about one gang at a time: whole, in its place, in its time, and told why it waits."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final

from phalanx.model.fleet import Node
from phalanx.model.gang import Gang, Shape
from phalanx.model.topology import NODE_LEVEL
from phalanx.testing.judge_book import BEGINS, NEVER, Book, Finding, Sitting

#: Rule 15's closed set.
CODES: Final = frozenset(
    {
        *("InvalidSpec", "Infeasible", "Held", "DependencyWaiting", "DependencyFailed", "GangIncomplete"),
        *("QueueLimit", "UserLimit", "Capacity", "Fragmentation", "Topology", "NodeConstraint", "Behind", "Reserved"),
        *("Maintenance", "DeadlineUnreachable", "Backoff", "SearchBudget", "Neighbours"),
    }
)
_DAY_US: Final = 24 * 3600 * 1_000_000


def find_unwhole(book: Book) -> Iterator[Finding]:
    """A gang has an allowed number of members, or none (rule 1, DESIGN 4.1)."""
    for gang, told in zip(book.gangs, book.told, strict=True):
        sizes = {sum(each) for each in product(*(role.sizes.allowed for role in gang.roles))}
        for entry in told.history:
            seated = sum(entry.placement.values())
            if entry.members != seated or (entry.members and entry.members not in sizes):
                story = f"{entry.event}: {entry.members} members, {seated} seats"
                yield Finding("unwhole", gang.name, entry.at_us, story)


def find_misplaced(book: Book) -> Iterator[Finding]:
    """Labels, taints and required domains hold wherever a gang sits (DESIGN 4.4)."""
    levels = (*book.scenario.levels, NODE_LEVEL)
    for stay in book.stays:
        gang = book.gangs[stay.gang]
        for name in stay.places:
            if not any(_admits(node, role.shape) for node in book.nodes[name] for role in gang.roles):
                yield Finding("misplaced", gang.name, stay.start_us, f"on {name}, which no role of it may use")
        require = gang.topology.require
        if stay.how == "runs" and require in levels:
            domains = {_domain(book, name, require) for name in stay.places} - {None}
            if len(domains) > 1:
                yield Finding("apart", gang.name, stay.start_us, f"over {len(domains)} domains of {require}")


def _admits(node: Node, shape: Shape) -> bool:
    chosen = all(node.labels.get(label) in values for label, values in shape.select)
    room = all(node.resources.get(kind, 0) >= units for kind, units in shape.need)
    return chosen and room and set(node.taints) <= set(shape.tolerate)


def _domain(book: Book, name: str, level: str) -> str | None:
    return name if level == NODE_LEVEL else book.nodes[name][-1].labels.get(level)


def find_untimely(book: Book) -> Iterator[Finding]:
    """Nobody starts before it is there, released and what it comes after has ended; nobody lives twice."""
    ends = {gang.name: (told.state, told.end_us) for gang, told in zip(book.gangs, book.told, strict=True)}
    released = {event.gang: event.at_us for event in reversed(book.scenario.events) if event.verb == "release"}
    cancelled = {event.gang: event.at_us for event in reversed(book.scenario.events) if event.verb == "cancel"}
    for gang, told in zip(book.gangs, book.told, strict=True):
        start_us = told.start_us
        if start_us is None:
            continue
        if start_us < gang.submit_us:
            yield Finding("untimely", gang.name, start_us, "starts before its submit")
        if gang.hold and start_us < released.get(gang.name, NEVER):
            yield Finding("untimely", gang.name, start_us, "starts while it is held")
        for name in gang.after.names:
            state, end_us = ends[name]
            ended = state == "infeasible" or (end_us is not None and end_us <= start_us)
            if not ended or (not gang.after.any_end and state != "completed"):
                yield Finding("untimely", gang.name, start_us, f"starts, and {name}, which it comes after, is {state}")
        last = cancelled.get(gang.name, NEVER)
        late = [entry for entry in told.history if entry.at_us > max(last, gang.submit_us) and entry.members]
        if late:
            yield Finding("untimely", gang.name, late[0].at_us, "has members after it was cancelled")


def find_wrong_lengths(book: Book) -> Iterator[Finding]:
    """A rigid gang that nothing happens to runs for its start-up and its duration (rule 6)."""
    for gang, told, truth in zip(book.gangs, book.told, book.scenario.true_runs, strict=True):
        events = [entry.event for entry in told.history]
        # Saving and restoring take time of their own, and `kill_after` ends a run before its length is over.
        plain = not gang.elastic and gang.snapshot is None and gang.kill_after_us is None
        if plain and events[-2:] == ["bind", "complete"]:
            ran_us = told.history[-1].at_us - told.history[-2].at_us
            if ran_us != truth.duration_us + gang.startup_us:
                yield Finding("length", gang.name, told.history[-1].at_us, f"ran for {ran_us / 1e6:g} s")


def find_undone_starts(book: Book) -> Iterator[Finding]:
    """A start that is undone in the same instant is no start (rules 1 and 10)."""
    # A start on seats that somebody was leaving was decided a pause ago; somebody new may rightly undo it.
    claims = {
        entry.at_us + gang.resize_pause_us
        for gang, told in zip(book.gangs, book.told, strict=True)
        for entry in told.history
        if entry.event == "shrink" and gang.resize_pause_us
    }
    for gang, told in zip(book.gangs, book.told, strict=True):
        for entry, later in zip(told.history, told.history[1:], strict=False):
            undone = entry.event == "bind" and later.event in ("evict", "yield") and entry.at_us == later.at_us
            if undone and entry.at_us not in claims:
                yield Finding("undone-start", gang.name, entry.at_us, f"bound and {later.event} at once")


def find_apart(book: Book) -> Iterator[Finding]:
    """Gangs of one word start at one instant, or none of them does (rule 15)."""
    words: dict[str, list[int]] = {}
    for index, gang in enumerate(book.gangs):
        if gang.together is not None:
            words.setdefault(gang.together.word, []).append(index)
    for word, group in words.items():
        together = book.gangs[group[0]].together
        starts = {book.told[index].start_us for index in group}
        if together is None or together.gangs != len(group) or len(starts) == 1:
            continue
        last = max(group, key=lambda index: book.told[index].start_us or 0)
        told = ", ".join(f"{book.told[i].name} at {_seconds(book.told[i].start_us)}" for i in group)
        yield Finding("together", book.told[last].name, book.told[last].start_us or 0, f"of one word {word}: {told}")


def _seconds(at_us: int | None) -> str:
    return "never" if at_us is None else f"{at_us / 1e6:g}"


def find_bad_reasons(book: Book) -> Iterator[Finding]:
    """Whoever waits at the end has a reason of the closed set, and numbers that bear it out (rule 15)."""
    for told in book.told:
        if told.state not in ("pending", "infeasible"):
            continue
        code, message, needed, available = told.reason or ("no reason at all", "", 0, 0)
        if code not in CODES:
            yield Finding("reason", told.name, NEVER, f"waits, and the code is {code}: {message}")
        elif code == "Capacity" and needed <= available:
            yield Finding("reason", told.name, NEVER, f"Capacity, though it needs {needed} of {available}: {message}")


def find_bad_deadlines(book: Book) -> Iterator[Finding]:
    """Hopeless on an empty cluster: refused at submit. Otherwise: not refused (rule 15)."""
    looks = book.result.policy in ("deadline", "goodput")
    for gang, told in zip(book.gangs, book.told, strict=True):
        if gang.deadline_us is None or gang.walltime_us is None:
            continue
        # Groups, dependants and held gangs are judged together or later; whoever never arrived is not judged at all.
        alone = gang.together is None and not gang.after.names and not gang.hold
        late = book.scenario.until_us is not None and gang.submit_us > book.scenario.until_us
        refused = told.state == "infeasible" and told.reason is not None
        code = told.reason[0] if told.reason is not None else ""
        cancelled = any(event.verb == "cancel" and event.gang == gang.name for event in book.scenario.events)
        if looks and alone and not late and not cancelled and gang.walltime_us > gang.deadline_us and not refused:
            yield Finding("hopeless", gang.name, gang.submit_us, f"is not refused, but {told.state}")
        # An elastic gang may be hopeless at the sizes that the cluster can hold.
        possible = not gang.elastic and gang.walltime_us + gang.startup_us <= gang.deadline_us
        if alone and possible and refused and code == "DeadlineUnreachable":
            yield Finding("refused", gang.name, gang.submit_us, "could be in time on an empty cluster")


def find_broken_nodes(book: Book) -> Iterator[Finding]:
    """Nobody sits on a failed node, and nobody comes to a closed one (DESIGN 5)."""
    pause = max((gang.resize_pause_us for gang in book.gangs), default=0)
    for stay in book.stays:
        for name in stay.places:
            for since, until in book.outages.get(name, ()) if stay.how == "runs" else ():
                if stay.start_us < until and stay.end_us > since:
                    yield Finding("on-failed", book.told[stay.gang].name, max(since, stay.start_us), f"on {name}")
    for at_us, entries in book.entries.items():
        for index, entry in entries:
            if entry.event not in BEGINS:
                continue
            before = _places_before(book, index, at_us)
            for name, members in entry.placement.items():
                # What begins now on seats that others were leaving was decided up to a pause ago.
                shut = any(s + pause < at_us < until for s, until in book.closures.get(name, ()))
                if shut and members > before.get(name, 0):
                    yield Finding("on-closed", book.told[index].name, at_us, f"{entry.event} on {name}")


def _places_before(book: Book, index: int, at_us: int) -> dict[str, int]:
    """Seats just before an instant, of every sort: whoever was hurt may go on where it sat."""
    found: dict[str, int] = {}
    for stay in book.stays_of[index]:
        if stay.start_us < at_us <= stay.end_us:
            for node, members in stay.places.items():
                found[node] = found.get(node, 0) + members
    return found


# ---------------------------------------------------------------------- windows


def find_in_windows(book: Book) -> Iterator[Finding]:
    """Nothing overlaps a maintenance window (DESIGN 6), seats included that somebody is still leaving (rule 10)."""
    spans = [(w, name) for w in book.scenario.windows if w.maintenance for name in w.nodes]
    for stay in book.stays:
        for window, name in spans:
            overlaps = stay.start_us < window.end_us and stay.end_us > window.start_us
            if not stay.places.get(name) or not overlaps or stay.how == "held":
                continue
            leaving = stay.how == "leaving"
            kind = "pause-in-window" if leaving else "in-window"
            sure = _should_have_left if leaving else _must_be_out
            if _comes_in(book, stay, window.start_us) or sure(book, stay, window.start_us):
                at_us = max(stay.start_us, window.start_us)
                yield Finding(kind, book.told[stay.gang].name, at_us, f"{stay.how} on {name} in its window")


def _comes_in(book: Book, stay: Sitting, open_us: int) -> bool:
    """Whether it started there inside the window."""
    return stay.start_us > open_us and stay.start_us in {
        entry.at_us for entry in book.told[stay.gang].history if entry.event == "bind"
    }


def _should_have_left(book: Book, stay: Sitting, open_us: int) -> bool:
    """Whether it sat there a pause before the window opened, and its end was known not to come before that."""
    gang, truth = book.gangs[stay.gang], book.scenario.true_runs[stay.gang]
    honest = gang.walltime_us is None or gang.walltime_us >= truth.duration_us
    (node,) = stay.places
    leave_us = open_us - gang.resize_pause_us
    sat = any(s.covers(leave_us) and s.start_us < leave_us and s.places.get(node) for s in book.stays_of[stay.gang])
    return honest and not gang.startup_us and sat


def _must_be_out(book: Book, stay: Sitting, open_us: int) -> bool:
    """Whether nobody's word can excuse it: it can be stopped, or what it said was true or nothing at all."""
    gang, told, truth = book.gangs[stay.gang], book.told[stay.gang], book.scenario.true_runs[stay.gang]
    pinned = any(event.verb == "resize" and event.gang == gang.name for event in book.scenario.events)
    if pinned:
        return False  # what a wish of people is worth against a window is not said
    if gang.preemptible:
        return True
    events = {entry.event for entry in told.history}
    if gang.snapshot is not None or gang.startup_us or gang.kill_after_us or events & {"lose", "repair", "restart"}:
        return False
    if gang.elastic and any(event.node is not None for event in book.scenario.events):
        return False
    if gang.walltime_us is not None:
        return gang.walltime_us >= truth.duration_us
    began = [entry.at_us for entry in told.history if entry.event in ("bind", "move") and entry.at_us <= stay.start_us]
    return bool(began) and open_us < began[-1] + _DAY_US


def sole_shape(gang: Gang) -> Shape | None:
    """The one shape of a gang of one role that asks nothing of the network; None of any other."""
    if len(gang.roles) > 1 or gang.topology.require or gang.topology.segment:
        return None
    role = gang.roles[0]
    return None if role.topology.require or role.topology.segment else role.shape
