"""Policies that users bring along in a Python file."""

import json
import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from phalanx.cli import main
from phalanx.control.policies import TAKES, CheckedOrder, find_policy
from phalanx.control.spec.errors import BadInput
from phalanx.engine.order.orders import order_by_arrival
from phalanx.engine.policy import Policy
from phalanx.engine.worth import WEIGHTS
from phalanx.policy import OPTIONS, POLICIES, BadOption, UnknownPolicy

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "policies" / "smallest_first.py"

SCENARIO = """
cluster: {nodes: [{name: n0, resources: {gpu: 10}}]}
gangs:
  - {name: A, members: 6, each: {gpu: 1}, duration: 100, walltime: 100}
  - {name: B, submit: 1, members: 8, each: {gpu: 1}, duration: 50, walltime: 50}
  - {name: C, submit: 2, members: 7, each: {gpu: 1}, duration: 50, walltime: 50}
"""

HEAD = """
from dataclasses import replace
import numpy as np
from phalanx.policy import POLICIES
EASY = POLICIES["easy"]
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    file = tmp_path / "scenario.yaml"
    file.write_text(SCENARIO)
    return file


def write(folder: Path, text: str, name: str = "mine.py") -> Path:
    file = folder / name
    file.write_text(HEAD + text)
    return file


def sim(*words: object):
    return CliRunner().invoke(main, ["sim", *map(str, words), "--json"])


def starts(done) -> list[dict[str, float]]:
    assert done.exit_code == 0, done.output
    return [{gang["name"]: gang["start_s"] for gang in result["gangs"]} for result in json.loads(done.stdout)]


def refusal(done) -> str:
    """The one line of a refused command."""
    assert done.exit_code == 2, (done.exit_code, done.output, done.exception)
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


# ---- it works


def test_the_example_changes_the_order(scenario):
    easy, smallest = starts(sim(scenario, "--policy", f"easy,{EXAMPLE}:SMALLEST"))
    assert easy == {"A": 0, "B": 100, "C": 150}
    assert smallest == {"A": 0, "B": 150, "C": 100}


def test_the_example_is_about_twenty_lines_and_called_what_it_calls_itself(scenario):
    assert len(EXAMPLE.read_text().splitlines()) <= 24
    done = sim(scenario, "--policy", f"{EXAMPLE}:SMALLEST")
    assert [result["policy"] for result in json.loads(done.stdout)] == ["smallest-first"]


def test_a_copy_that_kept_its_models_name_is_told_apart(tmp_path, scenario):
    file = write(tmp_path, "COPY = replace(POLICIES['pod-fifo'])\n")
    done = sim(scenario, "--policy", f"pod-fifo,{file}:COPY")
    assert [result["policy"] for result in json.loads(done.stdout)] == ["pod-fifo", "mine.py:COPY"]


def test_options_of_the_file_apply(tmp_path, scenario):
    write(tmp_path, "MINE = replace(EASY, name='mine')\n")
    scenario.write_text(SCENARIO + "policy: {name: 'mine.py:MINE', reservations: 0}\n")
    # Without reservations the first blocked gang stops those behind it, as under fcfs: the option did something.
    scenario.write_text(scenario.read_text().replace("members: 7", "members: 2"))
    assert starts(sim(scenario)) == [{"A": 0, "B": 100, "C": 100}]
    assert starts(sim(scenario, "--policy", "easy")) == [{"A": 0, "B": 100, "C": 2}]


def test_a_path_in_a_scenario_counts_from_the_scenario_and_then_from_here(tmp_path, scenario, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    scenario.write_text(SCENARIO + "policy: mine.py:MINE\n")
    write(here, "MINE = replace(EASY, name='from-here')\n")
    assert json.loads(sim(scenario).stdout)[0]["policy"] == "from-here"
    write(tmp_path, "MINE = replace(EASY, name='beside-the-scenario')\n")
    assert json.loads(sim(scenario).stdout)[0]["policy"] == "beside-the-scenario"
    assert json.loads(sim(scenario, "--policy", "mine.py:MINE").stdout)[0]["policy"] == "from-here"


def test_runs_in_processes_of_their_own_can_use_it(scenario):
    asked = (scenario, "--policy", f"easy,{EXAMPLE}:SMALLEST", "--seeds", "0-1", "--jobs")
    side_by_side, one_by_one = sim(*asked, 2), sim(*asked, 1)
    assert starts(side_by_side) == starts(one_by_one)
    assert [found["C"] for found in starts(side_by_side)] == [150, 150, 100, 100]


def test_a_file_leaves_nothing_behind(tmp_path, scenario):
    file = write(tmp_path, "MINE = replace(EASY, name='mine')\n")
    before = {path.name for path in tmp_path.iterdir()}
    starts(sim(scenario, "--policy", f"{file}:MINE"))
    assert {path.name for path in tmp_path.iterdir()} == before


def test_an_edited_file_is_read_again(tmp_path):
    file = write(tmp_path, "MINE = replace(EASY, name='first')\n")
    assert find_policy(f"{file}:MINE").name == "first"
    write(tmp_path, "MINE = replace(EASY, name='the-second')\n")
    assert find_policy(f"{file}:MINE").name == "the-second"


def test_an_order_may_return_a_list_or_sort_in_place(tmp_path, scenario):
    text = """
def as_list(snapshot, rows):
    return sorted(rows.tolist(), reverse=True)
def in_place(snapshot, rows):
    rows[::-1].sort()
    return rows
LIST = replace(EASY, name="list", order=as_list)
PLACE = replace(EASY, name="place", order=in_place)
"""
    file = write(tmp_path, text)
    asked = sim(scenario, "--policy", f"{file}:LIST,{file}:PLACE")
    assert starts(asked) == [{"A": 0, "B": 150, "C": 100}] * 2


def test_named_orders_are_left_as_they_are(tmp_path):
    file = write(tmp_path, "MINE = replace(EASY, name='mine', reservations=3)\n")
    assert find_policy(f"{file}:MINE").order is order_by_arrival


# ---- what more members are worth

# One node, nobody else: how the twenty are divided at the start is the key's doing alone.
TWO = """
cluster: {nodes: [{name: n0, resources: {gpu: 20}}]}
gangs:
  - {name: long, members: {min: 1, max: 20}, each: {gpu: 1}, duration: 4000, walltime: 4000, speedup: {amdahl: 0}}
  - {name: short, members: {min: 1, max: 20}, each: {gpu: 1}, duration: 1000, walltime: 1000, speedup: {amdahl: 0}}
"""


@pytest.fixture
def two(tmp_path: Path) -> Path:
    file = tmp_path / "two.yaml"
    file.write_text(TWO)
    return file


def first_sizes(done) -> list[tuple[int, int]]:
    """Members of `long` and `short` at their start, by policy."""
    assert done.exit_code == 0, done.output
    return [tuple(gang["history"][0]["members"] for gang in result["gangs"]) for result in json.loads(done.stdout)]


OWN_WORTH = """
def weigh_time(expected_us, least_us):
    return -expected_us
GOODPUT = POLICIES["goodput"]
NAMED = replace(GOODPUT, name="named", weigh="root")
TIMED = replace(GOODPUT, name="timed", weigh=weigh_time)
"""


def test_a_file_may_name_a_key_or_bring_its_own(tmp_path, two):
    file = write(tmp_path, OWN_WORTH)
    # By time saved alone the long gang gains more by every step, until it has most; both named keys pace it.
    assert first_sizes(sim(two, "--policy", f"goodput,{file}:NAMED,{file}:TIMED")) == [(3, 17), (4, 16), (13, 7)]


def test_the_option_names_a_key_for_a_named_policy_and_over_a_users_own(tmp_path, two):
    write(tmp_path, OWN_WORTH)
    two.write_text(TWO + "policy: [{name: goodput, weigh: root}, {name: 'mine.py:TIMED', weigh: paced}]\n")
    assert first_sizes(sim(two)) == [(4, 16), (3, 17)]


def test_named_keys_are_left_as_they_are(tmp_path):
    file = write(tmp_path, OWN_WORTH + "COPY = replace(GOODPUT, name='copy')\n")
    assert find_policy(f"{file}:COPY").weigh is WEIGHTS["paced"]
    assert find_policy(f"{file}:NAMED").weigh is WEIGHTS["root"]


WRONG_WORTHS = {
    "return float('nan')": "weigh of MINE returned nan; it must return a finite number",
    "return 1e308 * 10": "weigh of MINE returned inf",
    "return None": "weigh of MINE returned nothing",
    "return 'much'": "weigh of MINE returned a str",
    "return 1 // 0": "line 7: weigh of MINE failed: ZeroDivisionError",
}


@pytest.mark.parametrize("body", WRONG_WORTHS)
def test_a_worth_that_is_no_number_is_refused(tmp_path, two, body):
    text = (
        f"def weigh(expected_us, least_us):\n    {body}\nMINE = replace(POLICIES['goodput'], name='m', weigh=weigh)\n"
    )
    assert WRONG_WORTHS[body] in refusal(sim(two, "--policy", f"{write(tmp_path, text)}:MINE"))


# ---- it is refused


WRONG_ORDERS = {
    "return rows[:-1]": "dropped 1 of 1 rows",
    "return np.concatenate((rows, rows))": "returned 2 rows for 1, some of them twice",
    "return rows + 100": "returned rows that it was not given",
    "rows.sort()": "returned nothing",
    "return rows / 2": "array of float64",
    "return rows[None]": "with 2 dimensions",
    "return 1 // 0": "line 7: the order of MINE failed: ZeroDivisionError",
}


@pytest.mark.parametrize("body", WRONG_ORDERS)
@pytest.mark.parametrize("jobs", [1, 2])
def test_an_order_that_loses_gangs_is_refused(tmp_path, scenario, body, jobs):
    file = write(tmp_path, f"def order(snapshot, rows):\n    {body}\nMINE = replace(EASY, name='mine', order=order)\n")
    done = sim(scenario, "--policy", f"easy,{file}:MINE", "--seeds", "0-1", "--jobs", jobs)
    assert WRONG_ORDERS[body] in refusal(done)
    assert "MINE" in done.stderr


def test_every_way_of_losing_a_row_is_found():
    """Against all answers over three rows, by the definition: the same rows, each once."""
    from itertools import product

    for answer in product(range(-1, 3), repeat=3):
        order = CheckedOrder(lambda _, rows, answer=answer: np.array(answer), "mine.py", "MINE")
        try:
            order(None, np.arange(3))
            accepted = True
        except BadInput:
            accepted = False
        assert accepted == (sorted(answer) == [0, 1, 2]), answer


WRONG_FILES = {
    "mine.py:OTHER": "has no OTHER; did you mean OTHERS?",
    "mine.py:order": "order is an order, not a policy",
    "mine.py:NUMBER": "NUMBER is of type int, not a policy",
    "mine.py:": "write mine.py:NAME",
    "mine.py": "write mine.py:NAME",
    "./policies:MINE": "write path/to/file.py:NAME",
    "absent.py:MINE": "there is no policy file 'absent.py' (looked for absent.py)",
    "folder.py:MINE": "folder.py: is a folder",
    "syntax.py:MINE": "syntax.py: line 6: is not Python",
    "raises.py:MINE": "raises.py: line 7: failed when it was run: ValueError: no",
    "exits.py:MINE": "failed when it was run: SystemExit: 3",
    "binary.py:MINE": "is not UTF-8 text",
    "nothing.py:MINE": "has no MINE, nor any policy; make one with dataclasses.replace",
    "easyy": "did you mean easy?",
}


@pytest.mark.parametrize("name", WRONG_FILES)
def test_a_file_that_is_no_policy_is_refused(tmp_path, scenario, name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "def order(snapshot, rows): return rows\nNUMBER = 3\nOTHERS = EASY\n")
    write(tmp_path, "def f(:\n", "syntax.py")
    write(tmp_path, "def f():\n    raise ValueError('no')\nf()\n", "raises.py")
    write(tmp_path, "raise SystemExit(3)\n", "exits.py")
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "nothing.py").write_text("x = 1\n")
    (tmp_path / "folder.py").mkdir()
    # After a good one: nothing may be printed of it either.
    assert WRONG_FILES[name] in refusal(sim(scenario, "--policy", f"easy,{name}"))


WRONG_FIELDS = {
    "takes=frozenset({'preemt'})": "takes names 'preemt'; did you mean preempt?",
    "takes='shrink'": "takes must be a set of words",
    "name=''": "name must be a word",
    "name=3": "name must be a word (got 3)",
    "order='easy'": "order must be a function",
    "reservations=-1": "reservations must be a whole number from 0 (got -1)",
    "reservations=True": "reservations must be a whole number",
    "fill='longest'": "fill must be 'arrival' or 'shortest'",
    "quantum_us=0": "quantum_us must be a whole number of microseconds above 0",
    "half_life_us=1.5": "half_life_us must be a whole number",
    "min_runtime_us=None": "min_runtime_us must be a whole number",
    "max_evictions=-2": "max_evictions must be a whole number",
    "mold_efficiency=1.5": "mold_efficiency must be a number from 0 to 1 (got 1.5)",
    "mold_efficiency=True": "mold_efficiency must be a number from 0 to 1",
    "weigh='rooot'": "weigh must be a function of two lengths of time, or one of paced, root (got 'rooot')",
    "weigh=3": "weigh must be a function",
}


@pytest.mark.parametrize("field", WRONG_FIELDS)
def test_a_slip_in_a_field_is_refused(tmp_path, scenario, field):
    file = write(tmp_path, f"MINE = replace(EASY, {field})\n")
    assert WRONG_FIELDS[field] in refusal(sim(scenario, "--policy", f"{file}:MINE"))


def test_every_named_policy_would_pass_as_a_users_own(tmp_path):
    file = write(tmp_path, "".join(f"P{i} = POLICIES[{name!r}]\n" for i, name in enumerate(POLICIES)))
    for index, name in enumerate(POLICIES):
        assert find_policy(f"{file}:P{index}").takes == POLICIES[name].takes


def test_bad_options_are_refused_for_a_users_own_too(tmp_path):
    file = write(tmp_path, "MINE = replace(EASY, name='mine')\n")
    with pytest.raises(BadOption, match="policy 'mine' has no option 'colour'"):
        find_policy(f"{file}:MINE", {"colour": 1})
    with pytest.raises(UnknownPolicy):
        find_policy("mine")


# ---- the document


def test_the_document_shows_the_example_and_every_policy_and_option():
    page = (ROOT / "docs" / "policies.md").read_text()
    shown = re.search(r"```python\n(.*?)```", page, re.DOTALL)[1]
    assert EXAMPLE.read_text().endswith(shown)
    for word in [*POLICIES, *OPTIONS, *TAKES, *(field.name for field in fields(Policy))]:
        assert f"`{word}`" in page, f"{word} is not documented"
