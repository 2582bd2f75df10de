"""`phalanx.simulate`, rows of CSV, and what is said of seeds that decide nothing."""

import csv
import io
import json

import pytest
from click.testing import CliRunner

import phalanx
from phalanx.cli import main

NODES = [{"name": "n[0-1]", "resources": {"gpu": 8}}]


def jobs(count, **more):
    return [{"name": f"j{n}", "members": 8, "each": {"gpu": 1}, "duration": "1h", **more} for n in range(count)]


def sim(*words):
    return CliRunner().invoke(main, ["sim", *map(str, words)])


def test_a_run_from_python_is_what_the_command_prints(repo_root):
    file = repo_root / "examples" / "backfill.yaml"
    (printed,) = json.loads(sim(file, "--policy", "easy", "--json").stdout)
    assert phalanx.simulate(file, "easy") == printed
    assert phalanx.simulate(str(file), "fcfs") != printed
    assert "simulate" in dir(phalanx)


def test_a_scenario_may_be_a_mapping():
    told = phalanx.simulate({"cluster": {"nodes": NODES}, "gangs": jobs(3)}, "fcfs")
    assert [gang["end_s"] for gang in told["gangs"]] == [3600, 3600, 7200]
    assert told["policy"] == "fcfs"


def test_options_of_the_scenario_and_of_the_call_are_laid_over_each_other():
    scenario = {"cluster": {"nodes": NODES}, "gangs": jobs(2), "policy": {"name": "easy", "mold_efficiency": 0.25}}
    assert phalanx.simulate(scenario)["policy"] == "easy"
    assert phalanx.simulate(scenario, options={"fill": "shortest"})["policy"] == "easy"
    with pytest.raises(ValueError, match="no_such"):
        phalanx.simulate(scenario, options={"no_such": 1})


@pytest.mark.parametrize(
    ("what", "policy", "words"),
    [
        ({"cluster": {"nodes": NODES}, "gangs": jobs(1, membrs=1)}, None, "unknown key membrs; did you mean members"),
        ("no-such.yaml", None, "no-such.yaml: cannot be read"),
        ({"cluster": {"nodes": NODES}, "gangs": jobs(1)}, "esy", "esy"),
    ],
)
def test_mistakes_are_value_errors_with_their_place(what, policy, words):
    with pytest.raises(ValueError, match=words):
        phalanx.simulate(what, policy)


def test_rows_of_csv_are_the_gangs_of_every_run(repo_root):
    done = sim(repo_root / "examples" / "backfill.yaml", "--policy", "fcfs,easy", "-o", "csv")
    assert done.exit_code == 0, done.output
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    told = json.loads(sim(repo_root / "examples" / "backfill.yaml", "--policy", "fcfs,easy", "--json").stdout)
    gangs = [(each["policy"], gang["name"], gang["start_s"]) for each in told for gang in each["gangs"]]
    assert [(row["policy"], row["name"], float(row["start_s"])) for row in rows] == gangs


def test_seeds_that_decide_nothing_are_said_to(repo_root, tmp_path):
    said = "every seed gave the same"
    assert said in sim(repo_root / "examples" / "backfill.yaml", "--policy", "easy", "--seeds", "0-2").stdout
    drawn = tmp_path / "drawn.json"
    scenario = {"cluster": {"nodes": NODES}, "gangs": jobs(4, duration="2d"), "until": "30d"}
    drawn.write_text(json.dumps({**scenario, "failures": {"mtbf": "1d", "mttr": "1h"}}))
    done = sim(drawn, "--policy", "easy", "--seeds", "0-2")
    assert done.exit_code == 0, done.output
    assert said not in done.stdout
