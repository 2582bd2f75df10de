"""Asking why gangs wait changes nothing, and finds out."""

import pytest

from phalanx.frontends.sim.jsonout import encode_results
from phalanx.frontends.sim.report.waiting_reasons import Listener, make_listener
from phalanx.frontends.sim.run import simulate
from phalanx.policy import named


@pytest.mark.parametrize("policy", ["fcfs", "easy", "conservative", "fair", "goodput", "rotate"])
def test_a_listener_changes_nothing(mixed, policy):
    listener = Listener(named(policy), every=1)
    assert encode_results([simulate(mixed, policy, check=listener)]) == encode_results([simulate(mixed, policy)])
    assert listener.counts


def test_who_waited_is_told_what_mostly_kept_it(mixed):
    listener = Listener(named("easy"), every=1)
    result = simulate(mixed, "easy", check=listener)
    listener.write_into(result)
    waited = [gang for gang in result.gangs if gang.wait_us]
    assert waited
    for gang in waited:
        assert gang.wait_reason is not None, gang.name
        assert "expected to start" not in gang.wait_reason[1]
    assert result.gangs[5].wait_reason is None, "what never started keeps the reason of the end"
    assert result.gangs[0].wait_reason is None, "who started at once waited for nothing"


def test_long_runs_are_asked_now_and_then():
    assert make_listener(named("easy"), 10).every == 1
    assert make_listener(named("easy"), 80_000).every == 400
