"""Daemons for everybody; everything that they started is ended, and their folders are gone, after the tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))  # import-mode=importlib leaves it out

from people import SharedDaemon, find_missing


@pytest.fixture(scope="session")
def _able():
    why = find_missing()
    if why:
        pytest.skip(why)


@pytest.fixture(scope="session")
def shared(_able):
    """One daemon for all tests that leave it as it was."""
    daemon = SharedDaemon(gpus=8, config="priority_ceiling = 10\n")
    try:
        yield daemon.start()
    finally:
        daemon.close()


@pytest.fixture
def make_shared(_able):
    """Makes daemons of one's own; nobody is started yet."""
    made = []

    def make(**options):
        made.append(SharedDaemon(**options))
        return made[-1]

    yield make
    for daemon in made:
        daemon.close()
