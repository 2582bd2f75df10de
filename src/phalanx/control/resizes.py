"""Why a running gang changes its size, and how it stands where surplus is divided, as sentences.

The numbers are the engine's (`Grounds`, `Surplus`); here are only words, the same for the history of a run, a what-if
and the events of a daemon. Who is meant is said by the caller, since a cluster knows names and a daemon ids of jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from phalanx.control.instructions import SeatChange
from phalanx.engine.explain_surplus import Surplus
from phalanx.model.plan import Cause, Grounds
from phalanx.words import count_members

_SECOND_US = 1_000_000
_NO_GROUNDS = Grounds()
# Enough to see who: of a long line the first decide, and a sentence with twenty names is read by nobody.
_NAMED_MOST = 4


def say_resize(change: SeatChange, name_of: Callable[[int], str]) -> str:
    """What it gives or gets, and why."""
    count, grounds = abs(change.gained), change.grounds or _NO_GROUNDS
    whom = None if change.beneficiary is None else name_of(change.beneficiary)
    # A wish and a drain have no other side: what is gained or given says nothing that the person does not know.
    if change.cause is Cause.PIN:
        return f"goes to {sum(each.members for each in change.seats)} because somebody wants that"
    if change.cause is Cause.DRAIN:
        return f"gives {count} back: its node is emptied" if count else "leaves a node that is emptied"
    if change.gained > 0:
        return _say_taken(change.cause, count, grounds)
    return _say_given(change.cause, count, whom, grounds)


def _say_taken(cause: Cause, count: int, grounds: Grounds) -> str:
    if cause is Cause.SHARE:
        # The size that is needed and not the date: the date is the user's own, and what follows from it is news.
        return f"gets {count} more because its date needs {grounds.needs}"
    # What it saves is told where a gang runs on more than it was promised: it may have to give it back.
    saves = f" (saves {say_span(grounds.saves_us)})" if grounds.saves_us > 0 else ""
    return f"gets {count} more that {'is' if count == 1 else 'are'} idle{saves}"


def _say_given(cause: Cause, count: int, whom: str | None, grounds: Grounds) -> str:
    # Members were lost, or nobody knows any more for whom: no name is better than a wrong one.
    if whom is None:
        return f"gives {count} back"
    if cause is Cause.SHARE:
        return f"gives {count} back: {whom}'s date needs {grounds.needs}"
    if cause is Cause.BALANCE:
        # One is named and the rest are counted: a division may hand the surplus of one to five.
        more = f" and {grounds.takers - 1} more" if grounds.takers > 1 else ""
        worth = "it is" if count == 1 else "they are"
        there, here = say_span(grounds.saves_us), say_span(grounds.costs_us)
        return f"gives {count} to {whom}{more}, to which {worth} worth more (saves {there} there, costs {here} here)"
    if cause is Cause.GUEST:
        return f"gives {count} back to {whom}, which had reserved where {'it was' if count == 1 else 'they were'}"
    if grounds.needs:
        return f"gives {count} back: somebody wants {whom} at {grounds.needs}"
    # A loan, called back for somebody that waits: balance, shares and owners of reservations had their words above.
    return f"gives {count} back so that {whom} can start"


def say_span(us: int) -> str:
    """A length of time, rounded to what matters in a sentence: 40 s, 12 min, 1 h 5 min, 2 d 3 h."""
    seconds = round(max(0, us) / _SECOND_US)
    # Rounded before it is compared, so that 59.7 s is a minute and never "60 s".
    if seconds < 60:
        return f"{seconds} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(round(seconds / 3600), 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


# ---- how a gang stands where surplus is divided


def say_surplus(
    surplus: Surplus, most: int, name_of: Callable[[int], str], moment_of: Callable[[int], str]
) -> list[str]:
    """What its date needs, what its next step would be worth, who is before it; `most`: its largest size."""
    # The share first: it is the one thing that others have to give for, and the one that ends with a promise kept.
    told = [_say_share(surplus, moment_of)]
    # Before the next step, which it does not take until then: said after it, the step would read as if it were near.
    if surplus.rests_until_us is not None:
        told.append(f"it was resized a moment ago and rests until {moment_of(surplus.rests_until_us)}")
    if surplus.next is not None:
        step = surplus.next
        told.append(f"its next step, to {count_members(step.members)}, would save {say_span(step.saves_us)}")
        told.append(f"{_say_who(step.before, name_of)} before it")
    # At its largest there is nothing to say: nobody asks why it does not get more.
    elif surplus.members < most:
        told.append("no larger size would save more than its pause costs")
    return told


def _say_share(surplus: Surplus, moment_of: Callable[[int], str]) -> str:
    if surplus.date_us is None:
        return "it has no date, and so no share of its own"
    date = f"its date {moment_of(surplus.date_us)}"
    # Said before what it has: no size would change it, and people should not wait for one.
    if not surplus.needs:
        return f"{date} is out of reach at every size"
    had, lacks = (
        f"{date} needs {count_members(surplus.needs)}; it has {surplus.members}",
        surplus.needs - surplus.members,
    )
    if lacks <= 0:
        return had
    # Before the rest: what is on its way was somebody's surplus, so that rights and room have been found.
    if surplus.coming:
        count = "" if surplus.coming >= lacks else f" of the {lacks} it lacks"
        return f"{had}: {surplus.coming}{count} {'is' if surplus.coming == 1 else 'are'} coming"
    # Two ways to have nothing: there is not enough for all dates, or there is and it may not have it. Only the first is
    # helped by another's end.
    if not surplus.granted:
        return f"{had}: nothing above others' shares is left"
    return f"{had}: it has no right to what the others hold, or a limit keeps it from more"


def _say_who(numbers: Sequence[int], name_of: Callable[[int], str]) -> str:
    if not numbers:
        return "nobody is"
    named, more = ", ".join(name_of(number) for number in numbers[:_NAMED_MOST]), len(numbers) - _NAMED_MOST
    return f"{named}{f' and {more} more' if more > 0 else ''} {'is' if len(numbers) == 1 else 'are'}"
