"""Control planes for live tests: one that all share where nothing is broken on purpose, and ones to break."""

from __future__ import annotations

import pytest
from kube_peers import list_lines
from kube_schedulers import install_account

from phalanx.testing.controlplane.binaries import explain_missing, find_missing
from phalanx.testing.controlplane.flags import PlaneSettings
from phalanx.testing.controlplane.plane import ControlPlane


@pytest.fixture(autouse=True, scope="session")
def _programs():
    """The root conftest says the same once, at the end, for all of them."""
    if missing := find_missing():
        pytest.skip(explain_missing(missing))


@pytest.fixture(scope="session")
def shared(_programs, tmp_path_factory):
    """For tests that only use it, each in namespaces or on names of its own."""
    # The gate keeps the API from dropping `schedulingConstraints` of native groups.
    settings = PlaneSettings(gates={"TopologyAwareWorkloadScheduling": True})
    with ControlPlane(settings, folder=tmp_path_factory.mktemp("shared") / "plane") as plane:
        yield plane


@pytest.fixture
def needs():
    """Skip where an assets folder has no such program."""

    def check(*programs):
        if missing := find_missing(programs):
            pytest.skip(explain_missing(missing))

    return check


@pytest.fixture(scope="session")
def installed(shared):
    """The shared one with the scheduler's account, which has the rights that are installed and no others."""
    install_account(shared)
    return shared


def pytest_terminal_summary(terminalreporter):
    """The four tests that were run on the others too, side by side."""
    for line in list_lines():
        terminalreporter.write_line(line)
