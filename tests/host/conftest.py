"""Real daemons for tests of crashes, chaos and faults."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))  # import-mode=importlib leaves it out

from realdaemon import RealDaemon


@pytest.fixture
def make_daemon(tmp_path_factory):
    """Makes state directories for daemons; everything that they started is ended after the test."""
    made = []

    def make(**options):
        made.append(RealDaemon(tmp_path_factory.mktemp("d"), **options))
        return made[-1]

    yield make
    for daemon in made:
        daemon.close()


@pytest.fixture
def daemon(make_daemon):
    """A state directory; nobody is started yet."""
    return make_daemon()
