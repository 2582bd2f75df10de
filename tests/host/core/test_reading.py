"""Progress from logs: what is found, and patterns that never end."""

from __future__ import annotations

import asyncio

import pytest

from phalanx.frontends.host.core import progress_reading
from phalanx.frontends.host.core.progress_reading import Matcher, TooSlow
from phalanx.frontends.host.matching import find_progress


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (r"step (?P<step>\d+)", "step 1\nloss 3\nstep 2\n", {"step": 2.0}),
        (r"(?P<step>\d+)/(?P<total>\d+)", "5/20\n", {"step": 5.0, "total": 20.0}),
        (r"step (?P<step>\d+)", "nothing\n", None),
        (r"step (?P<step>\S+)", "step nan\nstep inf\nstep -1\nstep 1e300\n", None),
        (r"step (?P<step>\S+)", "step 4\nstep inf\n", {"step": 4.0}),
        (r"(?P<step>\d+)( of (?P<total>\d+))?", "7\n", {"step": 7.0}),
        (r"x(?P<step>\d+)", "x" * 3000 + "1\n", None),
    ],
)
def test_the_last_line_that_tells_a_step_counts(pattern, text, found):
    assert find_progress(pattern, text) == found


def test_the_process_that_matches_answers_again_after_a_pattern_that_never_ends(monkeypatch):
    async def ask():
        matcher = Matcher()
        try:
            assert await matcher.find(r"step (?P<step>\d+)", "step 3\n") == {"step": 3.0}
            monkeypatch.setattr(progress_reading, "MATCH_WITHIN_S", 0.5)
            with pytest.raises(TooSlow):
                await matcher.find(r"(?P<step>(a|a)+)+$", "a" * 60 + "b\n")
            monkeypatch.setattr(progress_reading, "MATCH_WITHIN_S", 30.0)
            assert await matcher.find(r"step (?P<step>\d+)", "step 4\n") == {"step": 4.0}
        finally:
            matcher.close()
            await asyncio.sleep(0.1)  # the loop reaps what was killed

    asyncio.run(ask())
