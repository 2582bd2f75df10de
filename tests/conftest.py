"""What every test may rely on: Hypothesis profiles and the folders of shared data.

PHALANX_HYPOTHESIS  fast (default) or deep
PHALANX_TRACES      folder of published traces
PHALANX_SCENARIOS   folder of conformance scenarios
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

from phalanx.testing.controlplane.binaries import explain_missing, find_missing

ROOT = Path(__file__).resolve().parents[1]

# Derandomized: a change is judged by the same examples everywhere. The deep profile is for the
# night; what it finds is written down as an explicit example.
settings.register_profile("fast", max_examples=50, derandomize=True, deadline=None)
settings.register_profile("deep", max_examples=1000, derandomize=True, deadline=None)
settings.load_profile(os.environ.get("PHALANX_HYPOTHESIS", "fast"))


def find_shared_folder(variable: str, name: str) -> Path:
    """The folder that the variable names, else the one beside the repository; skips where there is none."""
    named = os.environ.get(variable)
    folder = Path(named) if named else ROOT.parent / "shared" / name
    if not folder.is_dir():
        pytest.skip(f"no {name} here: set {variable} to the folder that holds them")
    return folder.resolve()


@pytest.fixture(scope="session")
def repo_root() -> Path:
    """The root of the working tree."""
    return ROOT


@pytest.fixture(scope="session")
def traces_dir() -> Path:
    """Published traces, one folder each."""
    return find_shared_folder("PHALANX_TRACES", "traces")


@pytest.fixture(scope="session")
def scenarios_dir() -> Path:
    """Conformance scenarios and what they expect."""
    return find_shared_folder("PHALANX_SCENARIOS", "scenarios")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for all the live tests that were left out, instead of none or one each."""
    skipped = terminalreporter.stats.get("skipped", [])
    # A whole module that skips itself is a report of another kind, without keywords.
    if any("live" in getattr(report, "keywords", ()) for report in skipped) and (missing := find_missing()):
        terminalreporter.write_line(f"live tests skipped: {explain_missing(missing)}")
