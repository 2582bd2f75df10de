"""Promises of earlier cycles that still hold: the memory of conservative backfill (rule 4, keep and replan).

Under EASY a reservation is worked out anew in every pass and may move. Under `keep` it binds: the plan returns it, the
snapshot brings it back, and here it becomes a claim in the calendar before anybody's turn. So each turn is placed
against the promises of everybody else, whether they come before or after it, and never later than its own.

Decides which promises hold and which are void; a void one is simply forgotten, and its gang is placed anew in its turn.
Promises on nodes that failed, were cordoned or drained never get here: whoever folds that event drops them. When a
promise is taken up or bettered is for `engine.calendar.long`.
"""

from __future__ import annotations

from phalanx.engine.calendar.timeline import Timeline
from phalanx.engine.order.turns import Offer, Turns, find_over_limit
from phalanx.engine.session import Session, empty_ceiling
from phalanx.model.form import Form
from phalanx.model.plan import Reservation


class KeptPromises:
    """What turns that are still to come were promised, each claimed on the timeline."""

    def __init__(self, session: Session, turns: Turns, timeline: Timeline) -> None:
        """None, unless the policy keeps them."""
        self.session, self.turns, self.timeline = session, turns, timeline
        self.now = session.snapshot.now_us
        self._late: set[int] = set()  # turns whose time has come, and a guest still sits at their places
        self._by_turn = self._recall() if session.policy.keep else {}

    def __len__(self) -> int:
        """How many are still claimed."""
        return len(self._by_turn)

    def list_reservations(self) -> list[Reservation]:
        """Those of turns that have not come yet."""
        return [promise for _, promise in self._by_turn.values()]

    def list_starts(self) -> list[tuple[int, int]]:
        """(turn, start) of the same."""
        return [(turn, promise.start_us) for turn, (_, promise) in self._by_turn.items()]

    def take_up(self, turn: int) -> Reservation | None:
        """Its turn has come: the claim is lifted, and what was promised is for the caller to honour."""
        found = self._by_turn.pop(turn, None)
        if found is None:
            return None
        self._claim(turn, *found, 1)
        return found[1]

    @property
    def some_late(self) -> bool:
        """Whether anybody's time has come while a guest still sits there."""
        return bool(self._late)

    def is_late(self, turn: int) -> bool:
        """Whether its time has come and only guests are in the way."""
        return turn in self._late

    # ------------------------------------------------------------------ which still hold

    def _recall(self) -> dict[int, tuple[Form, Reservation]]:
        """Promises that still hold, by turn, claimed in the order of turns."""
        pending, promises = self.session.snapshot.pending, self.session.snapshot.promises
        # In the order of turns, so that of two promises that have come to clash the one further ahead stands.
        found: dict[int, tuple[Form, Reservation]] = {}
        newcomer = self._newcomers_priority()
        for turn in range(len(self.turns)):
            rows = self.turns.rows_of(turn)
            promise = promises.get(int(pending.gang[rows[0]]))
            # Of one whose time went by, the places did not come free: that would have been an event, and its start.
            if promise is None or promise.start_us < self.now:
                continue
            if newcomer is not None and int(pending.priority[rows[0]]) < newcomer:
                continue  # somebody more important has come: this one is placed anew, after them
            form = self.turns.key_of(turn).form
            if self._stands(turn, form, promise):
                found[turn] = (form, promise)
        return found

    def _newcomers_priority(self) -> int | None:
        """The highest priority of those who have just come and could take part; the rest disturb nobody."""
        pending, fresh = self.session.snapshot.pending, self.session.snapshot.fresh
        # Rule 4: a promise is void when a gang of strictly higher priority arrives. Only newcomers are looked at:
        # whoever a cycle has seen before was placed then, and the promises that stand were made around it.
        highest: int | None = None
        for turn in range(len(self.turns)) if fresh else ():
            row = self.turns.rows_of(turn)[-1]
            if int(pending.gang[row]) not in fresh or not self._takes_part(turn):
                continue
            priority = int(pending.priority[row])
            highest = priority if highest is None else max(highest, priority)
        return highest

    def _takes_part(self, turn: int) -> bool:
        """Whether the ends of others could let it start: neither over a limit nor without nodes in service."""
        # Rule 2 (who reserves): one that could not reserve anyway must not void the promises of those who can.
        key, size = self.turns.key_of(turn), int(self.turns.size[turn])
        if size > empty_ceiling(self.session.fleet, key.form, self.session.in_service):
            return False
        return find_over_limit(self.session, self.turns, turn, Offer(key.form, size, 0)) is None

    def _stands(self, turn: int, form: Form, promise: Reservation) -> bool:
        """Claim a promise; if something grew into it (an overrun, a window), take it out again."""
        if self._under_window(turn, promise):
            return False
        sound = self._claim(turn, form, promise, -1)
        # A claim is made even where there is no room (`NodeLine.change`), so that it can be undone by its opposite.
        if not sound:
            self._claim(turn, form, promise, 1)
        if not sound and promise.start_us == self.now and turn not in self._late:
            self._late.add(turn)  # a guest is counted as gone in the next moment; anybody else is in the way
            sound = self._stands(turn, form, promise)
        return sound

    def _claim(self, turn: int, form: Form, promise: Reservation, sign: int) -> bool:
        # A microsecond later, if late: on the timeline guests hold their seats for this instant and no longer.
        start_us = promise.start_us + (turn in self._late)
        return self.timeline.claim(form, promise.seats, start_us, promise.end_us, sign)

    def _under_window(self, turn: int, promise: Reservation) -> bool:
        """Whether a window was laid over the promise that its gang is not invited to."""
        # Asked for by itself: a window is no claim on the timeline but a cut, so that claiming would not notice.
        exempt = self.turns.key_of(turn).exempt
        for index, window in enumerate(self.session.snapshot.windows):
            if index in exempt or window.start_us >= promise.end_us or window.end_us <= promise.start_us:
                continue
            mask = self.session.window_masks[index]
            if any(bool(mask[seats.nodes].any()) for per_gang in promise.seats for seats in per_gang):
                return True
        return False
