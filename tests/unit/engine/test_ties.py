"""Gangs that start together, and gangs that come after others, where the random worlds found us wrong."""

from phalanx.engine.cycle import schedule
from phalanx.engine.invariants import check_plan
from phalanx.engine.lifecycle import Phase
from phalanx.frontends.sim.events import TimedEvent
from phalanx.frontends.sim.run import simulate
from phalanx.frontends.sim.scenario import Scenario, TrueRun
from phalanx.model.queue import DEFAULT_QUEUE, Queue, UserLimit
from phalanx.model.window import Window
from phalanx.policy import named
from phalanx.testing.builders import SECOND_US, make_gang, make_nodes, make_state, occupy

EASY = named("easy")


def run(nodes, *gangs, events=(), policy="easy", durations=10, **rest):
    """States by name after everything has happened."""
    true_runs = tuple(TrueRun(durations * SECOND_US) for _ in gangs)
    scenario = Scenario(make_nodes(*nodes), (), gangs, true_runs, events=tuple(events), **rest)
    return {gang.name: gang.state for gang in simulate(scenario, policy).gangs}


def cancel(name, at):
    return TimedEvent(at * SECOND_US, "cancel", gang=name)


# ---------------------------------------------------------------------- together


def test_a_group_is_held_to_a_limit_as_one():
    """Each gang alone would stay below the limit; both would pass it."""
    pair = [make_gang(name, "3 gpu=1", queue="a", together=("pair", 2)) for name in "AB"]
    state = make_state("1 gpu=16", queues=[Queue("a", limit={"gpu": 6000})])
    holder = state.submit(make_gang("H", "2 gpu=1", queue="a"))
    state.apply(schedule(state.snapshot(), EASY))
    for gang in pair:
        state.submit(gang)
    snapshot = state.snapshot()
    for policy in (EASY, named("conservative")):
        plan = schedule(snapshot, policy)
        assert plan.decisions == ()
        assert check_plan(snapshot, plan, policy) == []
    state.complete(holder)
    assert len(schedule(state.snapshot(), EASY).decisions) == 2


def test_each_gang_of_a_group_counts_for_its_own_user():
    """Two people start together: the limit of one says nothing about what the other asks for."""
    users = (UserLimit("ada", {"gpu": 4000}), UserLimit("bob", {"gpu": 4000}))
    pair = [make_gang(u, "3 gpu=1", user=u, together=("pair", 2)) for u in ("ada", "bob")]
    assert run(["1 gpu=8"], *pair, users=users) == {"ada": "completed", "bob": "completed"}


def test_a_group_with_a_gang_over_its_users_limit_is_infeasible():
    users = (UserLimit("ada", {"gpu": 2000}),)
    pair = [
        make_gang("A", "4 gpu=1", user="ada", together=("pair", 2)),
        make_gang("B", "1 gpu=1", together=("pair", 2)),
    ]
    assert run(["1 gpu=8"], *pair, users=users) == {"A": "infeasible", "B": "infeasible"}


def test_a_group_whose_first_gang_was_cancelled_never_starts():
    """The second comes after the first is gone: it can never be complete, so it is cancelled too."""
    pair = [make_gang("A", "1 gpu=1", together=("pair", 2)), make_gang("B", "1 gpu=1", together=("pair", 2), submit=10)]
    assert run(["1 gpu=4"], *pair, events=[cancel("A", 5)]) == {"A": "cancelled", "B": "cancelled"}


def test_a_word_may_be_used_again_once_its_group_has_started():
    state = make_state("1 gpu=4")
    for name in "ABCD":
        state.submit(make_gang(name, "1 gpu=1", together=("pair", 2)))
        state.apply(schedule(state.snapshot(), EASY))
    assert [record.phase for record in state.records] == [Phase.RUNNING] * 4


def test_gangs_of_a_group_are_expected_to_end_each_in_its_own_time():
    """The group covers the start only: a companion's long walltime must not put off who waits for the short one."""
    pair = [make_gang("A", "2 gpu=1", together=("pair", 2), walltime=10),
            make_gang("B", "2 gpu=1", together=("pair", 2), walltime=1000)]  # fmt: skip
    state = make_state("1 gpu=4", gangs=pair)
    state.apply(schedule(state.snapshot(), EASY))
    state.submit(make_gang("C", "2 gpu=1", walltime=10))
    told = schedule(state.snapshot(), EASY, explain=True)
    assert [reservation.start_us for reservation in told.reservations] == [10 * SECOND_US]


def test_nodes_kept_for_one_person_are_not_given_to_companions():
    """Ada may use her window, and Bob may not, whoever of the two asks last."""
    window = Window("hers", ("n0",), 0, 1000 * SECOND_US, users=("ada",))
    for first, last in (("ada", "bob"), ("bob", "ada")):
        pair = [make_gang(user, "2 gpu=1", user=user, together=("pair", 2), walltime=10) for user in (first, last)]
        state = make_state("1 gpu=2", "1 gpu=4", windows=(window,), gangs=pair)
        snapshot = state.snapshot()
        plan = schedule(snapshot, EASY)
        assert len(plan.decisions) == 2
        assert check_plan(snapshot, plan, EASY) == []


# ---------------------------------------------------------------------- after


def test_who_arrives_after_its_dependency_has_failed_is_cancelled():
    late = make_gang("B", "1 gpu=1", after=("A",), submit=10)
    assert run(["1 gpu=4"], make_gang("A", "1 gpu=1"), late, events=[cancel("A", 5)])["B"] == "cancelled"
    assert run(["1 gpu=4"], make_gang("A", "9 gpu=1"), late)["B"] == "cancelled"


def test_who_arrives_after_its_dependency_has_succeeded_runs():
    late = make_gang("B", "1 gpu=1", after=("A",), submit=50)
    assert run(["1 gpu=4"], make_gang("A", "1 gpu=1"), late)["B"] == "completed"


def test_any_end_of_an_infeasible_gang_lets_others_start_at_once():
    """Being told "never" is an end: the pass that says so must be followed by one for those who waited for it."""
    gangs = (make_gang("A", "9 gpu=1"), make_gang("B", "1 gpu=1", after_any=("A",)))
    assert run(["1 gpu=4"], *gangs) == {"A": "infeasible", "B": "completed"}


def test_a_held_gang_that_can_never_run_is_told_so():
    """Infeasible is an error at submit and comes before Held: nobody should have to release it to find out."""
    gangs = (make_gang("A", "9 gpu=1", hold=True), make_gang("B", "1 gpu=1", after=("A",)))
    assert run(["1 gpu=4"], *gangs) == {"A": "infeasible", "B": "cancelled"}


# ---------------------------------------------------------------------- limits


def test_a_newcomer_over_a_limit_is_told_so_while_the_cluster_is_full():
    """The screen that says "nobody fits" must not swallow the verdict that somebody never will."""
    state = make_state("1 gpu=4", queues=[Queue(DEFAULT_QUEUE), Queue("a", limit={"gpu": 1000})])
    occupy(state, 0, [1000, 1000, 1000, 1000])
    state.submit(make_gang("A", "1 gpu=1"))
    state.apply(schedule(state.snapshot(), EASY))
    never = state.submit(make_gang("B", "2 gpu=1", queue="a"))
    assert schedule(state.snapshot(), EASY).infeasible == (never,)
