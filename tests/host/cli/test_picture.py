"""`phalanx gantt` where starts are hours away, and where two jobs touch."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from click import unstyle

from phalanx.cli.host import gantt
from phalanx.cli.host.text import data_text

NOW = datetime(2026, 11, 10, 9, 0, tzinfo=UTC)


def bar(job, kind, first_s, last_s):
    start, end = ((NOW + timedelta(seconds=at)).isoformat() for at in (first_s, last_s))
    return {"job": job, "name": f"j{job}", "user": "ada", "device": 0, "kind": kind, "start": start, "end": end}


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    monkeypatch.setattr(gantt, "can_show", lambda text: False)


def test_a_start_hours_away_does_not_squeeze_what_runs():
    bars = [bar(1, "running", -120, 3600), bar(2, "forecast", 4 * 3600, 8 * 3600)]
    lines = gantt.draw({"now": NOW.isoformat(), "devices": [{"index": 0}], "bars": bars}, 72)
    assert lines[0].count("#") > 20
    assert any(line.startswith("2  j2") for line in lines)  # in the list it still is


def test_two_jobs_that_touch_are_two_without_colours():
    bars = [bar(1001, "past", -600, -580), bar(1002, "past", -580, -560), bar(3, "running", -500, 60)]
    line = unstyle(gantt.draw({"now": NOW.isoformat(), "devices": [{"index": 0}], "bars": bars}, 72)[0])
    assert "=[" in line


def test_a_range_in_the_history_is_written_as_a_range():
    assert data_text({"by": "ada", "what": {"members": {"min": 2, "max": 8}}}) == "by ada, what members:2:8"


def test_a_job_that_began_twice_is_in_the_list_twice():
    bars = [bar(1, "past", -600, -500), bar(1, "running", -60, 60)]
    lines = gantt.draw({"now": NOW.isoformat(), "devices": [{"index": 0}], "bars": bars}, 72)
    assert [line.split()[:4] for line in lines if line.startswith("1  j1")] == [
        ["1", "j1", "ada", "past"],
        ["1", "j1", "ada", "running"],
    ]
