"""A gang's time on the cluster, worked out by hand, and against a model that counts every microsecond."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.control.instructions import Foresight
from phalanx.frontends.sim.ledger import BOOKED
from phalanx.frontends.sim.progress import GangProgress
from phalanx.model.gang import Gang, SnapshotHabit
from phalanx.perfmodel.speedup import Linear, scaled_us

#: Snapshots after 30 of work, 2 each, 7 to restore; start-up 5, resize pause 4. Work 100 at the largest size, 4 members.
HABIT = SnapshotHabit(every_us=30, stall_us=2, restore_us=7)
TEAM = Gang("team", (), snapshot=HABIT, startup_us=5, resize_pause_us=4)
PLAIN = Gang("plain", ())


def pace(members: int, duration: int = 100, most: int = 4) -> int:
    return scaled_us(duration, Linear(), most, members)


def new_life(gang: Gang = TEAM) -> GangProgress:
    return GangProgress(gang, dict.fromkeys(BOOKED, 0))


def begun(gang: Gang = TEAM, members: int = 4, at: int = 0) -> GangProgress:
    life = new_life(gang)
    life.begin(at, members, pace(members))
    return life


def booked(life: GangProgress) -> dict[str, int]:
    return {part: amount for part, amount in life.books.items() if amount}


# ---- without changes


def test_a_plain_gang_ends_at_the_stated_time():
    life = begun(PLAIN, at=10)
    assert life.done_us == 110
    life.finish(110)
    assert booked(life) == {"productive": 400}


def test_startup_and_snapshots_come_on_top():
    life = begun()  # works from 5, stands still at 35, 67 and 99, works the last 10 from 101
    assert life.done_us == 5 + 100 + 3 * 2
    life.finish(life.done_us)
    assert booked(life) == {"startup": 20, "productive": 400, "snapshot": 24}


@pytest.mark.parametrize(("duration", "snapshots"), [(29, 0), (30, 0), (31, 1), (60, 1), (61, 2), (90, 2), (91, 3)])
def test_a_snapshot_that_is_due_at_the_end_is_not_taken(duration: int, snapshots: int):
    life = new_life()
    life.begin(0, 1, duration)
    assert life.done_us == 5 + duration + 2 * snapshots
    life.finish(life.done_us)
    assert booked(life).get("snapshot", 0) == 2 * snapshots
    assert life.books["productive"] == duration


def test_a_million_snapshots_cost_no_loop():
    life = new_life()
    year = 365 * 24 * 3600 * 10**6
    life.begin(0, 8, year)
    count = -(-year // 30) - 1
    assert life.done_us == 5 + year + 2 * count
    life.finish(life.done_us)
    assert booked(life) == {"startup": 40, "productive": 8 * year, "snapshot": 16 * count}


def test_snapshots_without_a_stall_cost_nothing_and_save():
    life = begun(Gang("quick", (), snapshot=SnapshotHabit(30, 0, 0)))
    assert life.done_us == 100
    assert life.foresee(95) == Foresight(100, 90)
    assert life.stop(95, saves=False) is True
    assert booked(life) == {"productive": 360, "lost": 20}
    life.begin(200, 4, 100)
    assert life.done_us == 210


def test_a_snapshot_without_a_stall_is_complete_at_once():
    life = begun(Gang("quick", (), snapshot=SnapshotHabit(30, 0, 0)))
    assert life.stop(30, saves=False) is True
    assert booked(life) == {"productive": 120}
    life.begin(100, 4, 100)
    assert life.foresee(170) == Foresight(170, 160), "none is taken when the work is done"


def test_work_open_at_the_end_of_the_run_is_productive():
    life = begun()
    life.advance(50)
    assert booked(life) == {"startup": 20, "productive": 172, "snapshot": 8}


# ---- stops


@pytest.mark.parametrize(
    ("at", "parts", "rest"),  # rest: how long another attempt takes
    [
        (3, {"startup": 12}, 5 + 106),
        (5, {"startup": 20}, 5 + 106),
        (20, {"startup": 20, "lost": 60}, 5 + 106),
        (35, {"startup": 20, "lost": 120}, 5 + 106),  # a snapshot was due at this instant, and is not taken
        (36, {"startup": 20, "lost": 120, "snapshot": 4}, 5 + 106),  # in the middle of it: it saves nothing
        (37, {"startup": 20, "productive": 120, "snapshot": 8}, 7 + 5 + 70 + 2 * 2),
        (50, {"startup": 20, "productive": 120, "snapshot": 8, "lost": 52}, 7 + 5 + 70 + 2 * 2),
        (68, {"startup": 20, "productive": 120, "snapshot": 12, "lost": 120}, 7 + 5 + 70 + 2 * 2),
        (101, {"startup": 20, "productive": 360, "snapshot": 24}, 7 + 5 + 10),
        (110, {"startup": 20, "productive": 360, "snapshot": 24, "lost": 36}, 7 + 5 + 10),
    ],
)
def test_what_came_after_the_newest_snapshot_is_lost(at: int, parts: dict[str, int], rest: int):
    life = begun()
    progressed = life.stop(at, saves=False)
    assert booked(life) == parts
    assert progressed is (at >= 37)
    life.begin(1000, 4, 100)
    assert life.done_us == 1000 + rest
    assert life.need_us(100) == (None if at < 37 else rest)
    life.finish(life.done_us)
    assert life.books["productive"] == 400, "all work in the end, whatever was lost on the way"


def test_without_snapshots_everything_is_lost():
    life = begun(PLAIN)
    assert life.stop(99, saves=False) is False
    assert booked(life) == {"lost": 396}
    assert life.need_us(100) is None
    life.begin(200, 4, 100)
    assert life.done_us == 300


def test_a_gang_that_yields_loses_nothing_and_pays_at_its_next_start():
    life = begun()
    assert life.stop(50, saves=True) is True  # 30 + 13 of work
    assert booked(life) == {"startup": 20, "productive": 172, "snapshot": 8}
    assert life.need_us(100) == 2 + 7 + 5 + 57 + 2
    life.begin(100, 2, pace(2))
    # The owed stall, restore, start-up, 114 of work at half the speed with snapshots after 30, 60 and 90.
    assert life.done_us == 100 + 2 + 7 + 5 + 114 + 3 * 2
    life.finish(life.done_us)
    assert booked(life) == {"startup": 20 + 10, "productive": 172 + 228, "snapshot": 8 + 4 + 12, "restore": 14}


def test_the_owed_stall_is_paid_once():
    life = begun()
    life.stop(50, saves=True)
    life.begin(100, 4, 100)
    life.stop(101, saves=False)
    life.begin(200, 4, 100)
    assert life.done_us == 200 + 7 + 5 + 57 + 2
    assert booked(life)["snapshot"] == 8 + 4


def test_a_yield_without_new_work_is_no_progress():
    life = begun()
    life.stop(37, saves=False)
    life.begin(100, 4, 100)
    assert life.stop(105, saves=True) is False


def test_lost_work_is_counted_at_the_sizes_it_was_done_at():
    life = begun(Gang("g", (), resize_pause_us=4), 2)
    life.resize(10, 4, 100)
    life.stop(24, saves=False)
    assert booked(life) == {"lost": 2 * 10 + 4 * 10, "resize": 16}


# ---- changes of size


def test_a_resize_pauses_everybody_and_loses_no_work():
    life = begun(Gang("g", (), resize_pause_us=4), 2)  # 200 at this size
    assert life.done_us == 200
    life.resize(100, 4, 100)
    assert life.done_us == 100 + 4 + 50
    life.resize(124, 1, 400)  # 30 of 100 left
    assert life.done_us == 124 + 4 + 120
    life.finish(life.done_us)
    assert booked(life) == {"productive": 2 * 100 + 4 * 20 + 120, "resize": 16 + 4}


def test_the_time_to_a_snapshot_runs_on_across_a_resize():
    life = begun()
    life.resize(25, 2, pace(2))  # 20 of work done, 10 to the next snapshot
    assert life.done_us == 25 + 4 + 160 + 5 * 2  # after 10, 40, 70, 100, 130, and not after 160: that is the end
    life.advance(25 + 4 + 10 + 2)
    assert booked(life) == {"startup": 20, "productive": 80 + 20, "resize": 8, "snapshot": 4}
    assert life.saved == life.left


@pytest.mark.parametrize(
    ("at", "parts", "done"),
    [
        (2, {"startup": 4 * 2 + 2 * 3}, 2 + 4 + 3 + 200 + 6 * 2),  # the rest of the start-up follows the pause
        (35, {"startup": 20, "snapshot": 2 * 2}, 35 + 4 + 2 + 140 + 4 * 2),  # as does a stall, which then saves
        (36, {"startup": 20, "snapshot": 4 * 1 + 2 * 1}, 36 + 4 + 1 + 140 + 4 * 2),
        (37, {"startup": 20, "snapshot": 4 * 2}, 37 + 4 + 140 + 4 * 2),
    ],
)
def test_a_resize_while_standing_still(at: int, parts: dict[str, int], done: int):
    life = begun()
    life.resize(at, 2, pace(2))
    assert life.done_us == done
    life.finish(done)
    later = 6 * 2 if at == 2 else 4 * 2  # snapshots of the time after
    parts = {**parts, "snapshot": parts.get("snapshot", 0) + 2 * later, "productive": 400, "resize": 8}
    assert booked(life) == parts


def test_a_stall_that_was_interrupted_by_a_resize_still_saves():
    life = begun()
    life.resize(36, 2, pace(2))
    assert life.foresee(40) == Foresight(life.done_us, 5), "the stall goes on after the pause"
    assert life.foresee(41) == Foresight(life.done_us, 41)
    assert life.stop(50, saves=False) is True
    assert booked(life) == {"startup": 20, "productive": 120, "snapshot": 4 + 2, "resize": 8, "lost": 18}


def test_a_second_pause_replaces_the_rest_of_the_first():
    life = begun(Gang("g", (), resize_pause_us=4), 2)
    life.resize(100, 4, 100)
    life.resize(103, 2, 200)
    assert life.done_us == 103 + 4 + 100
    life.finish(life.done_us)
    assert booked(life) == {"productive": 400, "resize": 4 * 3 + 2 * 4}


def test_a_resize_without_a_pause_costs_nothing():
    life = begun(PLAIN, 1)
    life.resize(200, 4, 100)
    assert life.done_us == 250
    life.finish(250)
    assert booked(life) == {"productive": 400}


def test_many_changes_of_size_lose_no_work():
    """With linear speed-up 12,000 turns between 3 and 4 members do what they would have done together."""
    life = new_life(PLAIN)
    duration = 10**9
    life.begin(0, 4, duration)
    now = 0
    for turn in range(12_000):
        members = 3 if turn % 2 else 4
        life.resize(now, members, scaled_us(duration, Linear(), 4, members))
        now += 1000 * (12 // members)
    life.resize(now, 4, duration)
    assert life.done_us - now == duration - 12_000 * 3000


# ---- moves


def test_a_move_saves_restores_and_goes_on():
    life = begun()
    life.move(50, 4, 100)  # 43 done; due again after 30
    assert life.done_us == 50 + 2 + 7 + 57 + 2
    assert life.stop(59, saves=False) is True
    assert booked(life) == {"startup": 20, "productive": 172, "snapshot": 8 + 8, "restore": 28}


def test_a_move_during_startup_or_a_pause():
    life = begun()
    life.move(2, 4, 100)
    assert life.done_us == 2 + 2 + 7 + 3 + 106, "the start-up goes on afterwards"
    life = begun()
    life.resize(50, 2, pace(2))
    life.move(51, 2, pace(2))
    assert life.done_us == 51 + 2 + 7 + 114 + 3 * 2, "a pause does not"
    life = begun()
    life.move(36, 4, 100)
    assert life.done_us == 36 + 2 + 7 + 70 + 2 * 2, "nor does a stall: the move saves"


def test_nothing_is_lost_in_the_middle_of_a_move():
    life = begun()
    life.move(50, 4, 100)
    life.stop(51, saves=False)
    assert "lost" not in booked(life)
    life.begin(100, 4, 100)
    assert life.done_us == 100 + 7 + 5 + 57 + 2


# ---- degraded


def test_a_degraded_gang_holds_and_is_mended_from_its_snapshot():
    life = begun()
    life.stop(50, saves=False)
    life.hold(50, 3)
    life.repair(90, 4, 100, anew=False)
    assert booked(life) == {"startup": 20, "productive": 120, "snapshot": 8, "lost": 52, "idle_allocated": 120}
    assert life.done_us == 90 + 7 + 5 + 70 + 2 * 2


def test_progress_is_told_once():
    life = begun()
    assert life.stop(50, saves=False) is True
    life.hold(50, 3)
    assert life.stop(60, saves=False) is False, "the hold that is over saved nothing"


def test_a_degraded_gang_is_mended_from_scratch():
    life = begun()
    life.stop(20, saves=False)
    life.hold(20, 3)
    life.hold(30, 2)  # another node goes
    assert life.stop(40, saves=False) is False
    assert booked(life) == {"startup": 20, "lost": 60, "idle_allocated": 30 + 20}
    life.begin(90, 4, 100)
    assert life.done_us == 90 + 5 + 106


def test_a_gang_that_closed_its_ranks_and_is_repaired_at_once_pauses_once():
    life = begun()
    life.resize(20, 3, pace(3))
    life.repair(20, 4, 100, anew=False)
    assert life.done_us == 20 + 4 + 85 + 6
    life.finish(life.done_us)
    assert booked(life) == {"startup": 20, "productive": 400, "snapshot": 24, "resize": 16}


def test_a_repair_after_the_pause_is_a_resize():
    life = begun()
    life.resize(20, 2, pace(2))
    life.repair(30, 4, 100, anew=False)  # 15 + 3 done
    assert life.done_us == 30 + 4 + 82 + 6
    assert booked(life)["resize"] == 8


# ---- what it tells


def test_killed_per_attempt_and_not_per_repair():
    life = begun(Gang("k", (), kill_after_us=60))
    assert life.killed_us == 60
    life.stop(20, saves=False)
    life.repair(30, 4, 100, anew=False)
    assert life.killed_us == 60
    life.stop(40, saves=False)
    life.repair(50, 4, 100, anew=True)
    assert life.killed_us == 110


def test_what_a_gang_reports():
    life = begun(TEAM, at=100)
    assert life.foresee(105) is None, "nothing is done yet"
    assert life.foresee(106) == Foresight(211, 105)
    assert life.foresee(136) == Foresight(211, 105)
    assert life.foresee(137) == Foresight(211, 137)
    assert life.foresee(168) == Foresight(211, 137)
    assert life.foresee(169) == Foresight(211, 169)
    assert life.foresee(210) == Foresight(211, 201)
    life.stop(150, saves=False)
    life.begin(300, 2, pace(2))
    assert life.foresee(300) == Foresight(300 + 12 + 140 + 8, 300), "it knows what it has done before"
    assert life.foresee(320) == Foresight(300 + 12 + 140 + 8, 312)


def test_what_is_left_at_the_largest_size_counts_what_the_next_attempt_costs():
    life = begun(TEAM, 2)
    life.stop(5 + 62, saves=False)  # 30 at half the speed are saved
    assert life.need_us(100) == 7 + 5 + 85 + 2 * 2
    plain = begun(Gang("g", (), startup_us=5))
    plain.stop(55, saves=True)
    assert plain.need_us(100) == 5 + 50


# ---- against a model that counts microseconds one by one


class Ticks:
    """The same life, tick by tick, with work as an exact fraction."""

    def __init__(self, gang: Gang) -> None:
        self.gang, self.now = gang, 0
        self.books = dict.fromkeys(BOOKED, 0)
        self.waits: list[str] = []  # one word per tick to stand still
        self.runs, self.units, self.pace = False, 0, 0
        self.left = self.saved = Fraction(1)
        self.kept, self.owed = False, 0
        self.since: list[int] = []  # units of every tick of work since the newest snapshot
        self.to_snapshot = 0
        self.work_ticks = 0

    def _plan(self) -> None:
        self.work_ticks = int(self.left * self.pace + Fraction(1, 2))

    def begin(self, units: int, pace: int) -> None:
        habit = self.gang.snapshot
        self.runs, self.units, self.pace = True, units, pace
        self.waits = ["startup"] * self.gang.startup_us
        if self.kept and habit:
            self.waits = ["snapshot"] * self.owed + ["restore"] * habit.restore_us + self.waits
        self.owed, self.to_snapshot = 0, habit.every_us if habit else 0
        self._plan()

    def resize(self, units: int, pace: int) -> None:
        self.settle()
        self.waits = ["resize"] * self.gang.resize_pause_us + [part for part in self.waits if part != "resize"]
        self.units, self.pace = units, pace
        self._plan()

    def move(self, units: int, pace: int) -> None:
        self.save()
        habit = self.gang.snapshot
        startup = [part for part in self.waits if part == "startup"]
        self.waits = (["snapshot"] * habit.stall_us + ["restore"] * habit.restore_us if habit else []) + startup
        self.units, self.pace = units, pace
        self._plan()

    def save(self) -> None:
        self.saved, self.kept, self.since = self.left, True, []
        self.to_snapshot = self.gang.snapshot.every_us if self.gang.snapshot else 0

    def stop(self, *, saves: bool, holds: int) -> None:
        if self.runs and saves:
            self.save()
            self.owed = self.gang.snapshot.stall_us if self.gang.snapshot else 0
        elif self.runs:
            self.settle()
            self.books["productive"] -= sum(self.since)
            self.books["lost"] += sum(self.since)
        self.left, self.since, self.waits, self.runs, self.units = self.saved, [], [], False, holds

    def settle(self) -> None:
        """A snapshot that is due now begins now, if there is work after it; one without a stall is over at once."""
        due = not self.waits and self.gang.snapshot is not None and self.to_snapshot == 0
        if due and self.work_ticks > 0:
            self.waits = ["snapshot"] * self.gang.snapshot.stall_us
            self.to_snapshot = self.gang.snapshot.every_us
            if not self.waits:
                self.save()

    @property
    def done(self) -> bool:
        return self.runs and not self.waits and self.work_ticks == 0

    def tick(self) -> None:
        self.now += 1
        if not self.runs:
            self.books["idle_allocated"] += self.units
            return
        self.settle()
        if self.waits:
            part = self.waits.pop(0)
            self.books[part] += self.units
            if part == "snapshot" and "snapshot" not in self.waits:
                self.save()
            return
        self.books["productive"] += self.units
        self.since.append(self.units)
        self.left -= Fraction(1, self.pace)
        self.work_ticks -= 1
        self.to_snapshot -= 1


SPAN = st.integers(0, 9)
HABITS = st.none() | st.builds(SnapshotHabit, st.integers(1, 12), SPAN, SPAN)
GANGS = st.builds(
    lambda habit, startup, pause: Gang("g", (), snapshot=habit, startup_us=startup, resize_pause_us=pause),
    HABITS, SPAN, SPAN,
)  # fmt: skip
STEPS = st.lists(
    st.tuples(
        st.integers(0, 40),  # how long nothing happens
        st.sampled_from(["resize", "resize", "move", "evict", "yield", "hurt", "lose and repair"]),
        st.integers(1, 4),
    ),
    max_size=12,
)


@settings(max_examples=400)
@given(gang=GANGS, duration=st.sampled_from([12, 36, 60, 7, 25]), steps=STEPS)
def test_against_the_model(gang: Gang, duration: int, steps: list[tuple[int, str, int]]):
    life, model = new_life(gang), Ticks(gang)
    now, held = 0, 0  # held: units × time, as told from outside
    for gap, what, members in steps:
        units, at_pace = members, scaled_us(duration, Linear(), 4, members)
        if life.holding:
            life.repair(now, units, at_pace, anew=True)
            model.begin(units, at_pace)
        until = now + gap
        while now < until and not model.done:
            model.tick()
            held += life.units
            now += 1
        assert life.done_us >= now
        assert (life.done_us == now) == model.done
        if model.done:
            break
        apply(life, model, what, now, units, at_pace)
        for _ in range(members if life.holding else 0):  # it holds on to something, or waits, for a while
            held += life.units
            model.tick()
            now += 1
        if life.holding:
            life.advance(now)
        assert life.books == model.books
    if not life.holding:
        while not model.done:
            model.tick()
            held += life.units
            now += 1
        assert life.done_us == now
        life.finish(now)
    assert life.books == model.books
    assert sum(life.books.values()) == held
    assert min(life.books.values()) >= 0


def apply(life: GangProgress, model: Ticks, what: str, now: int, units: int, at_pace: int) -> None:
    """One change, told to both."""
    match what:
        case "resize":
            life.resize(now, units, at_pace)
            model.resize(units, at_pace)
        case "lose and repair":
            life.resize(now, 1, 999)
            life.repair(now, units, at_pace, anew=False)
            model.resize(units, at_pace)
            if not life.gang.resize_pause_us:
                model.resize(units, at_pace)
        case "move":
            life.move(now, units, at_pace)
            model.move(units, at_pace)
        case "evict" | "yield":
            life.stop(now, saves=what == "yield")
            model.stop(saves=what == "yield", holds=0)
        case "hurt":
            life.stop(now, saves=False)
            life.hold(now, units)
            model.stop(saves=False, holds=units)


@given(steps=st.lists(st.tuples(st.integers(0, 2000), st.integers(1, 4)), max_size=30))
def test_changes_of_size_neither_lose_nor_gain_work(steps: list[tuple[int, int]]):
    """With linear speed-up, members × time is the same whatever the sizes, but for the last microsecond."""
    life = new_life(Gang("g", (), snapshot=SnapshotHabit(700, 3, 5), resize_pause_us=11, startup_us=2))
    duration, now, members = 12_000, 0, 4
    life.begin(0, members, duration)
    for gap, wanted in steps:
        if now + gap >= life.done_us:
            break
        now, members = now + gap, wanted
        life.resize(now, members, scaled_us(duration, Linear(), 4, members))
    life.finish(life.done_us)
    assert abs(life.books["productive"] - 4 * duration) <= members / 2
