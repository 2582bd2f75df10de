"""The harness can fail: each mistake planted here is caught by the invariants, the chronicle, the oracle or the textbook.

`plants` has the mistakes, each at a public door of the engine or the state, `worlds` where they are made. For each
there is a world that passes without it (the first tests say so) and a check that must report it by name.
"""

from unittest.mock import patch

import pytest
from planted import plants
from planted.plants import Patch, deciding, following, seeing
from planted.worlds import COMING, FATES, PAUSE, WORLDS

from phalanx.control import loop, losses
from phalanx.engine import short_cuts
from phalanx.engine.actions import single_form
from phalanx.engine.cycle import schedule
from phalanx.engine.invariants import InvariantError, Promise
from phalanx.frontends.sim.run import simulate
from phalanx.frontends.sim.scenario import Scenario, TrueRun
from phalanx.model.plan import Bind, Repair
from phalanx.policy import named
from phalanx.testing.builders import SECOND_US, make_gang, make_nodes, make_state, occupy
from phalanx.testing.checking import BrokenPromise, CheckedRun
from phalanx.testing.exhaustive import find_any, read_board
from phalanx.testing.textbook import Rectangle, run_conservative, run_easy, run_fcfs

#: A mistake → what is planted, in which world, and what must be said of it: exactly these promises, or this in a
#: sentence of the chronicle, or who fares otherwise than by the rules (`FATES`).
PLANTS = {
    # who starts, and where
    "a member is dropped": (deciding(plants.drop_members), "whole", {Promise.WHOLE, Promise.DEVICE}),
    "a role is dropped": (deciding(plants.drop_roles), "roles", {Promise.WHOLE}),
    "a gang is started twice": (deciding(plants.repeat(Bind)), "whole", {Promise.ONCE}),
    "a device is given twice": (deciding(plants.use_first_devices), "whole", {Promise.DEVICE}),
    "all sit on one node": (deciding(plants.crowd), "whole", {Promise.CAPACITY, Promise.DEVICE}),
    "a node gives more than it has": (seeing(plants.overbook), "roles", {Promise.CAPACITY}),
    "a share is smeared over two devices": (deciding(plants.smear_shares), "shares", {Promise.DEVICE}),
    "ranks are dealt at random": (deciding(plants.reverse_ranks), "whole", {Promise.RANKS}),
    "groups of ranks are torn": (seeing(plants.forget_segments), "torn", {Promise.SEGMENT}),
    "a required level is ignored": (seeing(plants.forget_levels), "racked", {Promise.REQUIRE}),
    "labels are ignored": (seeing(plants.forget_selection), "picky", {Promise.ADMISSION}),
    "a cordon is ignored": (seeing(plants.forget_cordons), "closed", {Promise.SERVICE}),
    "a spare is used for a start": (seeing(plants.use_spares), "spare", {Promise.SERVICE}),
    "a window is ignored": (seeing(plants.forget_windows), "window", {Promise.WINDOW}),
    "a hold is ignored": (seeing(plants.forget_gates), "held", {Promise.GATED}),
    "a companion is forgotten": (seeing(plants.forget_companions), "pairs", {Promise.TOGETHER}),
    "a group is split": (deciding(plants.split_groups), "pairs", {Promise.TOGETHER}),
    "who starts can never run": (deciding(plants.refuse_for_ever), "whole", {Promise.INFEASIBLE}),
    "fillers ignore the reservation": (plants.ask_one_by_one, "wide", {Promise.RESERVATION}),
    "whoever waits is told nothing": (deciding(plants.forget_reasons), "wide", {Promise.REASON}),
    "a date is judged again": (deciding(plants.judge_again), "dates", {Promise.DATE}),
    "a verdict on a date is dropped": (deciding(plants.forget_verdicts), "dates", {Promise.DATE}),
    "limits are ignored": (seeing(plants.forget_limits), "limits", {Promise.LIMIT}),
    "starts of one plan are not charged": (plants.ask_one_by_one, "limits", {Promise.LIMIT}),
    "a parent queue is not charged": (plants.CHARGE_NO_PARENTS, "limits", {Promise.SUMS}),
    "the seats of one role are never given back": (plants.KEEP_THE_LAST_ROLE, "roles", {Promise.SUMS}),
    "the engine writes into its snapshot": (plants.write_into_it, "whole", "wrote into its snapshot"),
    "the engine remembers": (plants.be_moody(), "whole", "two plans"),
    # about others
    "more sit on a node than was asked for": (seeing(plants.forget_rules), "few on a node", {Promise.NEIGHBOURS}),
    "somebody comes to where it may not be": (seeing(plants.forget_rules), "apart", {Promise.NEIGHBOURS}),
    "nobody knows who is where": (seeing(plants.forget_who_is_where), "apart", {Promise.NEIGHBOURS}),
    "somebody sits where nobody is": (seeing(plants.forget_who_is_where), "beside", {Promise.NEIGHBOURS}),
    "a spread is uneven": (seeing(plants.forget_rules), "even", {Promise.NEIGHBOURS}),
    # who takes from whom
    "somebody is evicted and nobody starts": (deciding(plants.evict_in_vain), "preempt", {Promise.EVICTION}),
    "priorities are forgotten": (seeing(plants.forget_priorities), "preempt", "high fare otherwise"),
    "an equal is evicted": (seeing(plants.raise_whoever_waits), "equals", {Promise.RIGHTS}),
    "somebody is evicted who may not be": (seeing(plants.soften_everybody), "hard", {Promise.EVICTION}),
    "one victim too many": (deciding(plants.evict_one_more), "three", "had room without that"),
    "the victim's guarantee is forgotten": (
        seeing(plants.forget_guarantees_of_victims), "both", {Promise.GUARANTEE}),
    "the taker's own guarantee is forgotten": (seeing(plants.promise_takers_everything), "beyond", {Promise.GUARANTEE}),
    # below one guarantee each may take from the other for ever
    "two make way for each other": (plants.take_from_anybody, "shared", "make way for each other"),
    "nobody runs for long enough": (following(plants.forget_patience), "young", {Promise.EVICTION}),
    "somebody is evicted again and again": (following(plants.forget_patience), "often", {Promise.EVICTION}),
    # the head would start in 10 s, and the work of 100 s is thrown away instead
    "waiting is never worth it": (seeing(plants.believe_in_snapshots), "short", "low fare otherwise"),
    # surplus
    "a gang gives more than its surplus": (deciding(plants.take_one_more), "lend", {Promise.WHOLE, Promise.RESERVATION}),
    "surplus is taken by somebody who may not": (seeing(plants.raise_whoever_waits), "poor", {Promise.RIGHTS}),
    "a pinned gang lends": (seeing(plants.forget_pins), "pinned", {Promise.SIZE}),
    "seats are given while somebody is still leaving": (plants.FORGET_PAUSES, "lend", "is still leaving"),
    "seats that were left are kept for ever": (plants.NEVER_VACATE, "shrinks", {Promise.VACATED}),
    "somebody grows before it has cooled down": (seeing(plants.forget_cool_downs), "grow", {Promise.SIZE}),
    "somebody grows through a ceiling": (seeing(plants.forget_limits), "ceiling", {Promise.LIMIT}),
    # turns
    "a turn is cut short": (following(plants.halve_turns), "turns", {Promise.RIGHTS}),
    "somebody yields who cannot save its work": (seeing(plants.believe_in_snapshots), "stubborn", {Promise.RIGHTS}),
    "nobody is called when a turn is over": (deciding(plants.sleep_on), "turns", "one fare otherwise"),
    # guests
    "a guest stays": (seeing(plants.forget_guests), "guest", "guest and head fare otherwise"),
    "somebody is a guest whom nobody can send away": (
        seeing(plants.soften_everybody), "unstoppable", {Promise.GUEST}),
    # losses
    "a gang is mended twice": (deciding(plants.repeat(Repair)), "hurt", {Promise.ONCE}),
    "a repair gives more than was lost": (
        deciding(plants.repair_one_more), "hurt beside room", {Promise.DEGRADED, Promise.WHOLE}),
    "a repair uses a cordoned node": (seeing(plants.forget_cordons_in_repairs), "cordoned", {Promise.SERVICE}),
    "seats are held for ever": (Patch(losses, "HOLD_FOR_US", lambda us: 100 * us), "waits", "two and small fare otherwise"),
    "somebody takes what a degraded gang holds": (plants.LEAVE_THEM_SOFT, "hurt", {Promise.DEGRADED}),
    "the ledger forgets what is held": (plants.BOOK_NO_HOLDING, "waits", "the ledger does not sum"),
    # moves
    "somebody is moved who cannot save its work": (seeing(plants.believe_in_snapshots), "unsaved", {Promise.MOVE}),
    "a move loses work": (plants.MOVE_FROM_NOTHING, "drained", "one fare otherwise"),
}  # fmt: skip


def find_fault(name, engine=schedule, policy=None):
    """What a world brings to light: promises by name, the chronicle's sentence, or who fares otherwise; None if nothing."""
    usual, options, world = WORLDS[name]
    try:
        result = CheckedRun(engine).play(world, policy or usual, options)
    except InvariantError as broken:
        return {violation.code for violation in broken.violations}
    except BrokenPromise as broken:
        return str(broken)
    told = {gang.name: [(entry.event, entry.at_us / SECOND_US) for entry in gang.history] for gang in result.gangs}
    otherwise = [gang for gang, fate in FATES.get(name, {}).items() if told[gang][: len(fate)] != fate]
    return f"{' and '.join(otherwise)} fare otherwise: {told}" if otherwise else None


def put_in(monkeypatch, mistake):
    """Have the mistake made from now on; the answer is the engine to ask."""
    if not isinstance(mistake, Patch):
        return mistake
    monkeypatch.setattr(mistake.owner, mistake.name, mistake.around(getattr(mistake.owner, mistake.name)))
    return schedule


@pytest.mark.parametrize("name", WORLDS)
def test_without_a_plant_there_is_nothing_to_find(name):
    assert find_fault(name) is None


@pytest.mark.parametrize("policy", ["fcfs", "conservative"])
@pytest.mark.parametrize("name", COMING)
def test_nor_is_there_under_other_policies(name, policy):
    assert find_fault(name, policy=policy) is None


@pytest.mark.parametrize("story", PLANTS)
def test_a_planted_mistake_is_caught(monkeypatch, story):
    mistake, name, caught = PLANTS[story]
    found = find_fault(name, put_in(monkeypatch, mistake))
    assert found is not None
    if isinstance(caught, str):
        assert caught in found
    else:
        assert found == caught


def test_every_promise_can_be_broken_by_somebody():
    broken = [caught for _, _, caught in PLANTS.values() if isinstance(caught, set)]
    assert set.union(*broken) == set(Promise)


# ---------------------------------------------------------------------- where the time goes


def measure(monkeypatch, name, mistake=None):
    """The parts of the ledger and the metrics of a run, with a mistake in it or without."""
    policy, options, world = WORLDS[name]
    with monkeypatch.context() as inside:
        watch = CheckedRun(schedule if mistake is None else put_in(inside, mistake))
        result = watch.play(world, policy, options)
    return watch.parts, result.metrics


def test_a_change_of_size_costs_nothing(monkeypatch):
    """The gang works on at once in truth, and the ledger has only the seats in it that nobody may have yet."""
    parts, _ = measure(monkeypatch, "lend")
    cheap, _ = measure(monkeypatch, "lend", plants.RESIZE_FOR_NOTHING)
    assert (parts["resize"], cheap["resize"]) == (4 * PAUSE * 1000, 2 * PAUSE * 1000)


def test_whoever_yields_begins_again_from_nothing(monkeypatch):
    parts, metrics = measure(monkeypatch, "turns")
    assert (parts["lost"], metrics["makespan_s"]) == (0, 800)
    parts, metrics = measure(monkeypatch, "turns", plants.NEVER_SAVE)
    assert parts["lost"] > 0
    assert metrics["makespan_s"] > 800


def test_what_was_rolled_back_stays_productive(monkeypatch):
    """Forty seconds on two devices are counted twice."""
    parts, _ = measure(monkeypatch, "hurt")
    assert (parts["productive"], parts["lost"]) == (500 * 2 * 10**9, 40 * 2 * 10**9)
    wrong, _ = measure(monkeypatch, "hurt", plants.KEEP_WHAT_WAS_ROLLED_BACK)
    assert wrong["productive"] > parts["productive"]


# ---------------------------------------------------------------------- caught by the oracle and the textbook


def find_misplacement(engine):
    """Gangs that the engine and the exhaustive search disagree about."""
    pair = [make_gang("A", "2 gpu=1", together=("pair", 2)), make_gang("B", "1 gpu=0.5 cpu=4", together=("pair", 2))]
    for fill in ([0, 0], [500, 0], [1000, 0], [500, 500]):
        state = make_state("1 gpu=1 cpu=2", "1 gpu=2 cpu=4")
        occupy(state, 1, fill)
        board = read_board(state)
        for gang in pair:
            state.submit(gang)
        started = bool(engine(state.snapshot(), named("easy")).decisions)
        if started != (find_any(board, pair) is not None):
            return fill
    return None


def test_the_exact_search_gives_up():
    """What greedy cannot seat is called impossible."""
    assert find_misplacement(schedule) is None
    assert find_misplacement(plants.never_reconsider) is not None


JOBS = [
    Rectangle(0, 6, 10, 10),
    Rectangle(1, 8, 10, 10),
    Rectangle(2, 2, 30, 30),
    Rectangle(3, 1, 5, 5),
    Rectangle(4, 1, 20, 20),
]
#: The first ends early. What it leaves is enough for the third then and there; but the fourth was promised a start
#: before it, which it keeps.
EARLY = [Rectangle(0, 2, 5, 10), Rectangle(0, 5, 5, 5), Rectangle(1, 8, 2, 5), Rectangle(2, 2, 2, 5)]
#: A promise names its places, which no paper does: on one node there is nothing to name.
TEXTBOOKS = {
    "easy": (run_easy, JOBS, "8 slot=1"),
    "fcfs": (run_fcfs, JOBS, "8 slot=1"),
    "conservative": (run_conservative, EARLY, "1 slot=8"),
}


def find_departure(policy, engine=schedule):
    """Jobs that start at another time than the papers say."""
    textbook, jobs, nodes = TEXTBOOKS[policy]
    gangs = [make_gang(f"j{i}", f"{j.size} slot=1", submit=j.submit, walltime=j.estimate) for i, j in enumerate(jobs)]
    true_runs = tuple(TrueRun(job.duration * SECOND_US) for job in jobs)
    with patch.object(loop, "schedule", engine):
        result = simulate(Scenario(make_nodes(nodes), (), tuple(gangs), true_runs), policy)
    starts = [gang.start_us // SECOND_US for gang in result.gangs]
    expected = textbook(jobs, 8)
    return None if starts == expected else (starts, expected)


@pytest.mark.parametrize("policy", TEXTBOOKS)
def test_nobody_departs_from_the_textbook_without_a_plant(policy):
    assert find_departure(policy) is None


def test_there_is_no_reservation_at_all():
    assert find_departure("easy", plants.ask_one_by_one) is not None


def test_somebody_overtakes_under_fcfs():
    assert find_departure("fcfs", plants.ask_one_by_one) is not None


def test_promises_are_forgotten():
    assert find_departure("conservative", seeing(plants.forget_promises)) is not None


def test_the_quick_walk_forgets_what_the_head_needs(monkeypatch):
    """These jobs are all of one form, so the quick walk decides; from outside it is not to be told from the general one."""
    monkeypatch.setattr(single_form, "find_start", lambda *_: (single_form.NEVER, 0))
    assert find_departure("easy") is not None
    monkeypatch.setattr(short_cuts, "is_single_form", lambda *_: False)
    assert find_departure("easy") is None
