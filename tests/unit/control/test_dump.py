"""A state out to a file and back: the same file again, the same plan, the same future."""

from __future__ import annotations

import copy
import json
from dataclasses import fields
from functools import cache
from pathlib import Path
from random import Random

import numpy as np
import pytest

from phalanx.cli.what_if import list_drains, run_to
from phalanx.control.bonds import Dependencies, Groups
from phalanx.control.dump import RUN_COLUMNS, dump_state, format_state
from phalanx.control.kept_hints import KeptHints
from phalanx.control.look_ahead import Outlook
from phalanx.control.policies import find_policy
from phalanx.control.records import RUNNING, Past, Record
from phalanx.control.restore import Restored, read_state, restore_state
from phalanx.control.spec.errors import BadInput
from phalanx.control.spec.gangs import Known, parse_gang
from phalanx.control.spec.spot import spot_of
from phalanx.control.spec.writing import gang_tree
from phalanx.control.state import State
from phalanx.control.what_if import play
from phalanx.engine.cycle import schedule
from phalanx.engine.lifecycle import Phase
from phalanx.frontends.sim.run import simulate
from phalanx.frontends.sim.scenario import read_scenario
from phalanx.model.fleet import Fleet
from phalanx.model.plan import Bind, Cause, Evict, Plan, Seats
from phalanx.testing.builders import make_gang, make_nodes
from phalanx.testing.worlds import Taste, draw_policy, draw_world

ROOT = Path(__file__).resolve().parents[3]
CASES = ROOT / "tests" / "scenarios" / "cases"
FAR_US = 30 * 86_400 * 10**6

#: (case, policy, instants in seconds): between them every kind of thing that a state can remember.
POINTS = [
    ("ledger-a-storm-still-sums", "goodput", (23, 300, 500, 640)),
    ("preempt-surplus-and-a-victim", "goodput", (50, 100, 105)),
    ("elastic-shrinks-to-a-listed-size", "goodput", (100, 101)),
    ("elastic-resumes-at-another-size", "fair", (100, 630, 700)),
    ("elastic-cool-down", "goodput", (100, 130)),
    ("resize-seats-are-free-after-the-pause", "goodput", (100, 101)),
    ("resize-takes-the-surplus-of-an-equal", "goodput", (3600,)),
    ("elastic-half-a-seat-is-claimed", "fair", (100, 110)),
    ("elastic-half-a-seat-of-processors-is-claimed", "fair", (101,)),
    ("together-begins-with-the-last-seat", "fair", (100,)),
    ("maintenance-growth-leaves-in-time", "goodput", (600, 1200)),
    ("maintenance-held-seats-are-let-go", "goodput", (1400, 2400)),
    ("backfill-guest-growth-at-any-priority", "goodput", (300,)),
    ("backfill-guest-under-conservative", "conservative", (120,)),
    ("backfill-guest-elastic-is-evicted-if-it-must", "goodput", (2000,)),
    ("backfill-conservative-keeps-its-word", "conservative", (5, 50)),
    ("backfill-overrun", "easy", (120,)),
    ("window-two-in-a-row", "conservative", (2, 100)),
    ("repair-a-node-that-keeps-killing-is-avoided", "goodput", (3000, 3010)),
    ("repair-a-spare-of-the-wrong-rack", "goodput", (250,)),
    ("repair-of-a-guest", "easy", (10, 100)),
    ("repair-dependents-wait-for-the-hurt", "goodput", (250,)),
    ("quota-limit-holds-through-a-restart", "fair", (88, 300)),
    ("quota-half-life-remembers", "fair", (600, 1200)),
    ("cordon-pair-loses-one", "easy", (40, 55)),
    ("cordon-removed-and-added-again", "easy", (10, 30, 60)),
    ("together-limit-below-the-sum", "easy", (1, 100)),
    ("together-waits-for-the-dependency-of-one", "easy", (21,)),
    ("deps-cancel-a-held-one", "easy", (0, 30)),
    ("deps-dependency-comes-later", "easy", (1,)),
    ("deadline-promised-keeps-others-out", "goodput", (5, 60)),
    ("deadline-promised-beside-another", "goodput", (5,)),
]


@cache
def make(case: str, policy: str, at_s: int) -> str:
    """The dump of a case at an instant; a text, so that nobody shares a state."""
    scenario = read_scenario(CASES / f"{case}.yaml")
    options = dict(scenario.policies).get(policy, {})
    state = run_to(scenario, find_policy(policy, options), at_s * 10**6)
    return format_state(dump_state(state, (policy, options), list_drains(scenario, state, at_s * 10**6)))


def restore(text: str) -> Restored:
    return restore_state(spot_of(json.loads(text), "state.json"))


def played(case: str, policy: str, at_s: int) -> Restored:
    """The same instant without a file in between."""
    scenario = read_scenario(CASES / f"{case}.yaml")
    options = dict(scenario.policies).get(policy, {})
    state = run_to(scenario, find_policy(policy, options), at_s * 10**6)
    return Restored(state, (policy, options), list_drains(scenario, state, at_s * 10**6))


def told(restored: Restored) -> tuple[object, ...]:
    """What the next cycle decides and says, in names instead of numbers."""
    state = restored.state
    policy = find_policy(*restored.policy)
    plan = schedule(state.snapshot(), policy, explain=True)

    def name(number: object) -> object:
        return state.gangs[number].name if isinstance(number, int) else number

    decisions = []
    for decision in plan.decisions:
        kind, gang, *rest = decision.key()
        if kind in ("evict", "resize"):
            rest[1] = name(rest[1])
        decisions.append((kind, name(gang), *rest))
    reserved = [([name(gang) for gang in each.gangs], each.key()[2:]) for each in plan.reservations]
    pending, verdicts = state.pending, plan.verdicts
    reasons = sorted(
        (name(int(pending.columns["gang"][row])), int(verdicts.codes[row]), int(verdicts.needed[row]))
        for row in pending.alive.nonzero()[0].tolist()
    )
    others = [sorted(map(name, numbers)) for numbers in (plan.infeasible, plan.settled_in)]
    return decisions, reserved, reasons, others, plan.wake_at_us


def starts_of(outlook: Outlook, state: State) -> list[tuple[str, int, str, str]]:
    """Who starts when and what lets them, by name: a file does not keep numbers."""
    names = [*(gang.name for gang in state.gangs), ""]  # nobody is number -1
    return [(names[gang], at_us, cause.what, names[cause.gang]) for gang, (at_us, cause) in outlook.starts.items()]


every_point = pytest.mark.parametrize(
    ("case", "policy", "at"), [(c, p, at) for c, p, instants in POINTS for at in instants]
)


@every_point
def test_dump_restore_dump_is_the_same_file(case, policy, at):
    text = make(case, policy, at)
    again = restore(text)
    assert format_state(dump_state(again.state, again.policy, again.drains)) == text


@every_point
def test_the_next_plan_is_the_same(case, policy, at):
    assert told(restore(make(case, policy, at))) == told(played(case, policy, at))


@every_point
def test_the_future_is_the_same(case, policy, at):
    chosen = find_policy(*restore(make(case, policy, at)).policy)
    from_file = play(restore(make(case, policy, at)), chosen, until_us=at * 10**6 + FAR_US)
    without = play(played(case, policy, at), chosen, until_us=at * 10**6 + FAR_US)
    assert from_file.fates == without.fates
    assert from_file.fates or not json.loads(make(case, policy, at))["gangs"]


@pytest.mark.parametrize("seed", range(60))
def test_any_world_comes_back_as_it_was(seed):
    """Random worlds under random policies, at three instants of their own each."""
    rng = Random(f"dump {seed}")
    everything = {each.name: True for each in fields(Taste) if isinstance(getattr(Taste(), each.name), bool)}
    scenario, (name, options) = draw_world(rng, Taste(**everything)), draw_policy(rng)
    chosen = find_policy(name, options)
    instants = sorted({entry.at_us for gang in simulate(scenario, chosen).gangs for entry in gang.history}) or [0]
    for now_us in instants[:: max(1, len(instants) // 3)]:
        state = run_to(scenario, chosen, now_us)
        without = Restored(state, (name, options), list_drains(scenario, state, now_us))
        text = format_state(dump_state(state, without.policy, without.drains))
        again = restore(text)
        assert format_state(dump_state(again.state, again.policy, again.drains)) == text
        assert told(again) == told(without)
        until_us = now_us + FAR_US // 10
        from_file, as_it_was = play(again, chosen, until_us=until_us), play(without, chosen, until_us=until_us)
        assert from_file.fates == as_it_was.fates
        assert starts_of(from_file, again.state) == starts_of(as_it_was, without.state)


def test_the_points_above_remember_everything_there_is():
    """A kind of memory that no point has would be tested by nothing."""
    trees = [json.loads(make(case, policy, at)) for case, policy, instants in POINTS for at in instants]
    gangs = [gang for tree in trees for gang in tree["gangs"]]
    nodes = [node for tree in trees for node in tree["nodes"]]
    assert {gang["phase"] for gang in gangs} >= {"pending", "starting", "running", "hurt"}
    assert {key for gang in gangs for key in gang} == {
        *("spec", "phase", "eligible_us", "attempts", "held", "waits_for", "infeasible"),
        *("curve", "past", "run", "seats", "hurt", "date"),
    }
    assert {key for gang in gangs for key in gang.get("past", ())} == {
        *("evictions", "failures", "attained_us", "left_us", "forced", "lenders", "rests_until_us"),
    }
    assert {gang["run"].get("guest") for gang in gangs if "run" in gang} == {None, "surplus", "whole"}
    assert {key for node in nodes for key in node} == {
        *("spec", "up", "open", "draining", "drain_by_us", "kills_us", "suspect_until_us"),
    }
    for part in ("levels", "queues", "decayed", "users", "windows", "ended", "started", "groups", "pins", "vacating"):
        assert any(tree[part] for tree in trees), part
    assert any(tree["promises"] for tree in trees)
    assert any(tree["devices_split"] for tree in trees)
    assert any(gang["phase"] == "running" and "curve" in gang for gang in gangs)


def test_what_was_refused_comes_back_with_its_rest():
    state = State(Fleet(make_nodes("2 gpu=1"), ()))
    for name in ("waits", "runs"):
        state.submit(make_gang(name, "1 gpu=1", walltime=50))
    for plan in (Plan((bind(0, 0),)), Plan((bind(1, 1),))):
        state.apply(plan, undoable=True)
    state.refuse(0, "no such image")
    state.confirm(1)
    state.apply(Plan((Evict(1, Cause.DRAIN),)), undoable=True)
    state.refuse(1, "it will not go")
    text = format_state(dump_state(state, ("fcfs", {}), {}))
    again = restore(text).state
    assert format_state(dump_state(again, ("fcfs", {}), {})) == text
    assert [again.refusal_of(number).words for number in (0, 1)] == ["no such image", "it will not go"]
    assert again.is_resting(0)
    assert again.is_resting(1)
    assert [what for _, what, _, _ in sorted(again.timers)] == ["rest", "retry"]


def bind(number, node):
    devices = np.full((1, 1), 1000, dtype=np.int16)
    return Bind(number, (Seats(0, np.array([node]), np.array([1]), devices),), 50 * 10**6)


def list_memory(part):
    return {name for name in vars(part) if not name.startswith("_")}


def test_whoever_adds_memory_is_told_to_dump_it():
    """What is dumped, or worked out again from what is dumped. A new name here needs a line in `control.dump`."""
    assert {each.name for each in fields(Past)} == {
        *("evictions", "failures", "attained_us", "left_us", "claim", "lenders", "forced", "resting"),
        "token",  # of timers, which are set anew
    }
    assert {each.name for each in fields(Record)} == {
        *("gang", "phase", "form", "queue", "user", "eligible_us", "row", "waits_for", "held", "group", "seats"),
        *("attempts", "doomed_by", "history"),
    }
    state = State(Fleet([], ()))
    owned = {"gang", "queue", "user", "priority", "eligible_us", "members", "preemptible", "elastic", "evictions"}
    assert set(RUNNING) == {*owned, *RUN_COLUMNS, "guest"}
    assert list_memory(state.nodes) == {
        *("free", "device_free", "shared", "up", "open", "draining", "suspicion"),
        "presence",  # counted anew as gangs are seated
        *("crowds", "crowd_marks"),  # of others nobody knows when they leave: a dump is without them
    }
    assert {each.name for each in fields(Groups)} == {"listed", "number_by_word", "forms"}
    assert {each.name for each in fields(Dependencies)} == {"waiting", "ended"}
    assert {each.name for each in fields(KeptHints)} == {
        *(
            "order",
            "gated",
            "has_elastic",
            "has_reclaimable",
            "has_deadlines",
            "ends",
        ),  # kept up by whoever is restored
        *("settled", "settled_upto"),  # never restored: the first cycle looks at everybody
    }
    assert list_memory(state) == {
        *("now_us", "fleet", "nodes", "windows"),
        *("default_walltime_us", "tenants", "pending", "running", "allocations", "gangs", "records", "number_by_name"),
        *("curves", "forms", "groups", "dependencies", "promises", "degraded"),
        *("pins", "dates", "judged", "fresh", "hints", "vacating", "timers", "evictions_in_vain"),
        # Of refusals the words and the rest; a dump is of what has come about, so what may yet be refused is done.
        *("refusals", "unconfirmed"),
    }


def test_gangs_no_cycle_has_looked_at_are_told_from_the_others():
    case = played("backfill-conservative-keeps-its-word", "conservative", 5)
    number = len(case.state.gangs) - 1
    case.state.fresh = {number}
    text = format_state(dump_state(case.state, case.policy))
    assert restore(text).state.fresh == {number}


def test_every_gang_of_every_case_is_written_as_it_was_read():
    for path in sorted(CASES.glob("*.yaml")):
        scenario = read_scenario(path)
        known = Known([queue.name for queue in scenario.queues], scenario.levels)
        for gang in scenario.gangs:
            assert parse_gang(spot_of(gang_tree(gang)).titled(), known) == gang, (path.stem, gang.name)


def test_ended_gangs_are_left_out_but_their_ends_are_known():
    tree = json.loads(make("cordon-removed-and-added-again", "easy", 60))
    assert {gang["phase"] for gang in tree["gangs"]}.isdisjoint({phase.value for phase in Phase if phase.ended})


# ---- refusals

STORM = ("ledger-a-storm-still-sums", "goodput", 500)
KEPT = ("backfill-conservative-keeps-its-word", "conservative", 5)


def change(path: str, value: object):
    """Set (or with KeyError, remove) what stands at a path such as gangs.0.run.start_us."""

    def apply(tree):
        *way, last = [int(step) if step.isdecimal() else step for step in path.split(".")]
        for step in way:
            tree = tree[step]
        if value is KeyError:
            del tree[last]
        else:
            tree[last] = value

    return apply


def repeat(path: str):
    def apply(tree):
        tree[path].append(copy.deepcopy(tree[path][0]))

    return apply


def first(tree, phase: str) -> int:
    return next(index for index, gang in enumerate(tree["gangs"]) if gang["phase"] == phase)


def of(phase: str, path: str, value: object):
    def apply(tree):
        change(f"gangs.{first(tree, phase)}.{path}", value)(tree)

    return apply


WRONG = [
    (change("now_us", "noon"), "now_us must be a whole number (got 'noon')"),
    (change("now_us", -1), "now_us must be at least 0"),
    (change("now_us", KeyError), "now_us is missing"),
    (change("colour", 1), "unknown key colour"),
    (change("nodes", []), "nodes must not be empty"),
    (lambda tree: [change("spec.resources.gpu", 1)(node) for node in tree["nodes"]], "which has 1; write 0 or 0-7"),
    (change("nodes.0.uup", True), "unknown key nodes[0].uup; did you mean up?"),
    (change("nodes.0.spec.name", "a[0-3]"), "nodes[0].spec must describe one node"),
    (repeat("nodes"), "there is already a node"),
    (repeat("gangs"), "there is already a gang"),
    (change("started", []), "started lacks"),
    (change("started.0", "nobody"), "started[0] names no gang with seats of this file: 'nobody'"),
    (change("policy", {}), "policy has no name"),
    (change("pins", {"nobody": 2}), "pins.nobody names no gang of this file"),
    (change("ended", {"x": "exploded"}), "ended.x names no way to end of this file: 'exploded'"),
    (change("gangs.0.phase", "asleep"), "phase names no phase of this file: 'asleep'"),
    (change("gangs.0.spec.membres", 3), "unknown key membres"),
    (of("running", "seats", KeyError), "is running and lacks seats"),
    (of("running", "phase", "pending"), "is pending and has run"),
    (of("running", "run.start_us", 10**15), "run.start_us must be at most"),
    (of("running", "run.guest", "king"), "run.guest names no kind of guest of this file: 'king'"),
    (of("running", "seats.0.at.0.node", "nowhere"), "seats[0].at[0].node names no node of this file: 'nowhere'"),
    (of("running", "seats.0.at.0.members", 0), "seats[0].at[0].members must be at least 1"),
    (of("running", "seats.0.at.0.devices", {"0-99": 1000}), "devices.0-99 names no devices of"),
    (of("running", "seats.0.at.0.devices", {}), "takes 0 thousandths of devices"),
    (of("running", "seats.0.at", []), "and it may have"),
    (of("running", "seats", []), "seats must have an entry for each of the roles"),
    (of("running", "spec.submit", 10**9), "after now_us"),
    (of("running", "curve", [[2, 1], [1, 1]]), "curve[1] must have more members than the point before it"),
    (change("vacating.0.until_us", 0), "vacating[0].until_us must be at least"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG, ids=[message for _, message in WRONG])
def test_what_cannot_be_true_is_refused_with_its_place(wrong, message):
    tree = json.loads(make(*STORM))
    wrong(tree)
    with pytest.raises(BadInput) as caught:
        restore_state(spot_of(tree, "state.json"))
    assert message in str(caught.value)
    assert str(caught.value).startswith("state.json: ")


def test_a_device_is_given_once():
    tree = json.loads(make(*STORM))
    index = first(tree, "running")
    twin = copy.deepcopy(tree["gangs"][index])
    twin["spec"]["name"] = "twin"
    tree["gangs"].append(twin)
    tree["started"].append("twin")
    with pytest.raises(BadInput, match=r"gangs\[\d+\] 'twin': seats takes more than .* a device is given once"):
        restore_state(spot_of(tree, "state.json"))


def test_nobody_sits_on_a_node_that_is_down():
    tree = json.loads(make(*STORM))
    node = tree["gangs"][first(tree, "running")]["seats"][0]["at"][0]["node"]
    at = next(index for index, each in enumerate(tree["nodes"]) if each["spec"]["name"] == node)
    tree["nodes"][at]["up"] = False
    with pytest.raises(BadInput, match=f"has members on '{node}', which is not up"):
        restore_state(spot_of(tree, "state.json"))


def test_promises_are_for_those_who_wait():
    tree = json.loads(make(*KEPT))
    tree["promises"][0]["gangs"] = tree["started"][:1]
    with pytest.raises(BadInput, match=r"promises\[0\] promises a start to .*, which does not wait"):
        restore_state(spot_of(tree, "state.json"))


FILES = {
    "absent.json": (None, "cannot be read: No such file"),
    "broken.json": ("{", "is not JSON"),
    "list.json": ("[]", "is no dumped state"),
    "old.json": ('{"schema": "phalanx.state/0"}', "schema must be 'phalanx.state/1' (got 'phalanx.state/0')"),
    "scenario.yaml": ("cluster: {}\ngangs: []\n", "is a scenario, not a dumped state"),
    "deep.json": ("[" * 100_000, "is nested too deeply"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_no_state_is_refused(tmp_path, name):
    text, message = FILES[name]
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(BadInput) as caught:
        read_state(tmp_path / name)
    assert message in str(caught.value)
