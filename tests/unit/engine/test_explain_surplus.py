"""How a running gang stands where surplus is divided: what its date needs, and who gets the next step."""

from phalanx.control.resizes import say_surplus
from phalanx.engine.explain_surplus import NextStep, Surplus, explain_surplus
from phalanx.model.plan import Cause, Resize
from phalanx.model.queue import Queue
from phalanx.policy import named
from phalanx.testing.builders import SECOND_US, make_gang, make_state, seat
from phalanx.testing.checking import schedule_checked

GOODPUT = named("goodput")


def elastic(name, sizes="2-12", left=1800, **rest):
    """`left`: seconds that its work takes with the members that it has."""
    rest = {key: round(value * SECOND_US) if key.endswith("_us") else value for key, value in rest.items()}
    return make_gang(name, f"{sizes} gpu=1", walltime=left, **rest)


def make(gpus, *running, **rest):
    """Gangs on one node with their sizes; curves are linear."""
    state = make_state(f"1 gpu={gpus}", **rest)
    for gang, members in running:
        seat(state, state.submit(gang), {0: members})
    return state


def stands(state, number=0, policy=GOODPUT):
    return explain_surplus(state.snapshot(), policy, number)


def words(state, number=0):
    found = stands(state, number)
    most = state.gangs[number].members_max
    return say_surplus(found, most, lambda other: state.gangs[other].name, lambda us: f"{us // SECOND_US} s")


def test_a_date_says_how_many_members_it_needs():
    dated = elastic("dated", deadline_us=2400)  # eight times half an hour is six times 2400 s
    state = make(12, (dated, 8), (elastic("rest", "1-4"), 4))
    assert words(state)[0] == "its date 2400 s needs 6 members; it has 8"


def test_what_a_date_lacks_is_coming_from_those_above_their_share():
    state = make(16, (elastic("dated", deadline_us=1440), 8), (elastic("rest", "2-12"), 8))
    assert words(state)[0] == "its date 1440 s needs 10 members; it has 8: 2 are coming"
    plan = schedule_checked(state.snapshot(), GOODPUT)
    changed = {each.gang: each for each in plan.decisions if isinstance(each, Resize)}
    assert changed[1].cause is Cause.SHARE
    assert changed[1].grounds.needs == 10


def test_what_others_need_a_pause_to_leave_is_coming_until_it_is_there():
    """Before the plan, and after it, while the seats are being vacated."""
    rest = elastic("rest", "2-12", resize_pause_us=10)
    state = make(16, (elastic("dated", deadline_us=1440), 8), (rest, 8))
    told = "its date 1440 s needs 10 members; it has 8: 2 are coming"
    assert words(state)[0] == told
    state.apply(schedule_checked(state.snapshot(), GOODPUT))
    assert words(state)[0] == told


def test_a_date_that_nothing_is_left_for_is_told_so():
    first = elastic("first", "2-8", left=1000, deadline_us=1000)
    state = make(16, (elastic("dated", "2-12", deadline_us=1440), 8), (first, 8))
    assert words(state)[0] == "its date 1440 s needs 10 members; it has 8: nothing above others' shares is left"


def test_a_date_out_of_reach_has_no_share():
    state = make(16, (elastic("late", deadline_us=1100), 8))
    assert words(state)[0] == "its date 1100 s is out of reach at every size"
    assert stands(state).needs == 0


def test_no_right_to_what_others_hold():
    """Surplus of a higher priority is not on loan to a lower one."""
    state = make(16, (elastic("dated", deadline_us=1440), 8), (elastic("boss", "2-12", priority=5), 8))
    told = "its date 1440 s needs 10 members; it has 8: it has no right to what the others hold, or a limit keeps it from more"
    assert words(state)[0] == told
    limited = make(
        16, (elastic("dated", deadline_us=1440, queue="a"), 8), queues=(Queue("a", limit={"gpu": 8000}), Queue("b"))
    )
    assert words(limited)[0] == told


def test_without_a_date_there_is_no_share_and_still_a_next_step():
    state = make(8, (elastic("wide"), 4), (elastic("other", left=300), 4))
    assert words(state) == [
        "it has no date, and so no share of its own",
        "its next step, to 5 members, would save 6 min",
        "other is before it",
    ]
    assert words(state, 1)[2] == "nobody is before it"


def test_of_many_before_it_the_first_are_named():
    others = [(elastic(f"s{at}", "1-4", left=60 + at), 1) for at in range(6)]
    state = make(10, (elastic("wide"), 4), *others)
    assert words(state)[2] == "s0, s1, s2, s3 and 2 more are before it"


def test_the_largest_has_no_next_step_and_a_long_pause_is_never_worth_it():
    assert words(make(12, (elastic("wide"), 12))) == ["it has no date, and so no share of its own"]
    slow = elastic("slow", left=60, resize_pause_us=100_000)
    assert words(make(4, (slow, 4)))[1] == "no larger size would save more than its pause costs"


def test_whoever_was_resized_rests_and_its_next_step_is_told_all_the_same():
    state = make(16, (elastic("wide", resize_pause_us=10), 4), (elastic("other"), 4))
    state.apply(schedule_checked(state.snapshot(), GOODPUT))
    assert words(state)[1] == "it was resized a moment ago and rests until 60 s"
    assert stands(state, 1).rests_until_us == 60 * SECOND_US


def test_pinned_rigid_and_fixed_sizes_take_no_part():
    state = make(16, (elastic("wide"), 4), (make_gang("rigid", "4 gpu=1", walltime=60), 4))
    assert stands(state, 1) is None
    assert stands(state, 0, named("fair")) is None
    assert stands(state, 0, named("easy")) is None
    state.pin(0, 4)
    assert stands(state, 0) is None


def test_asking_changes_nothing():
    state = make(16, (elastic("dated", deadline_us=1440), 8), (elastic("rest", "2-12"), 8))
    before = schedule_checked(state.snapshot(), GOODPUT).key()
    assert stands(state) == stands(state)
    assert schedule_checked(state.snapshot(), GOODPUT).key() == before
    assert isinstance(stands(state), Surplus)
    assert isinstance(stands(make(8, (elastic("a"), 4))).next, NextStep)
