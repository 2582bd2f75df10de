"""The executable contract of the simulator, where its folder is at hand.

The runner beside those scenarios starts `phalanx sim` as anybody would and says which of them hold.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

GROUPS = ("gang", "roles", "together", "topology", "fragmentation", "backfill", "infeasible", "deps", "cordon")
#: Scenario → why it is not judged yet. An entry goes as soon as its reason does.
NOT_YET = {"backfill-elastic-guest-gives-back": "needs policy goodput, which lets an elastic gang in as a guest"}


@pytest.fixture(scope="module")
def phalanx() -> Path:
    """The command as installed beside the Python that runs the tests."""
    found = Path(sys.executable).with_name("phalanx")
    assert found.is_file(), f"{found.name} is not installed beside {sys.executable}"
    return found


@pytest.fixture(scope="module")
def group_by_name(scenarios_dir) -> dict[str, str]:
    """The group of every scenario of the contract."""
    expected = yaml.safe_load((scenarios_dir / "expect.yaml").read_text(encoding="utf-8"))
    return {name: entry["group"] for name, entry in expected.items()}


def run_contract(folder: Path, phalanx: Path, names: list[str]) -> str:
    """What the runner prints about these scenarios."""
    command = [sys.executable, str(folder / "run.py"), str(phalanx), "--only", ",".join(names), "--timeout", "120"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("group", GROUPS)
def test_the_scenarios_of_a_group_hold(scenarios_dir, phalanx, group_by_name, group):
    names = [name for name, its in group_by_name.items() if its == group and name not in NOT_YET]
    if not names:
        pytest.skip(f"the contract here has no scenario of group {group}")
    said = run_contract(scenarios_dir, phalanx, names)
    assert re.search(rf"^{len(names)} of {len(names)} scenarios hold$", said, re.MULTILINE), said


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.skip(why)) for name, why in NOT_YET.items()])
def test_a_scenario_that_waits_for_a_policy_holds(scenarios_dir, phalanx, name):
    assert "1 of 1 scenarios hold" in run_contract(scenarios_dir, phalanx, [name])


def test_the_list_of_exceptions_names_scenarios_that_exist(group_by_name):
    assert set(NOT_YET) <= set(group_by_name)
