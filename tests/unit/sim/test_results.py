"""Metrics, JSON, pictures and tables from results that are written down here."""

import json

import pytest

from phalanx.cli.screen import plain_lines
from phalanx.frontends.sim.jsonout import encode_results
from phalanx.frontends.sim.metrics import LEDGER_PARTS, compute_metrics, find_horizon, seconds
from phalanx.frontends.sim.printing import Sheet, comparison_sheet, gang_sheet, reason_lines
from phalanx.frontends.sim.result import Entry, GangResult, SimResult
from phalanx.frontends.sim.text_gantt import ASCII, WIDTH, draw_gantt, span

SECOND = 1_000_000


def gang(name, submit=0, start=None, end=None, state="completed", user="", eligible=None, **more) -> GangResult:
    """Times in seconds; a history of one bind and one end unless another is given."""
    more.setdefault("duration_us", 0 if end is None or start is None else (end - start) * SECOND)
    history = []
    if start is not None:
        history.append(Entry(start * SECOND, "bind", 4, {"n0": 4}))
    if end is not None:
        history.append(Entry(end * SECOND, "complete", 0, {}))
    more.setdefault("history", history)
    return GangResult(
        name, user, state, submit * SECOND, None if eligible is None else eligible * SECOND,
        None if start is None else start * SECOND, None if end is None else end * SECOND,
        4 if start is not None else 0, {"n0": 4} if start is not None else {}, more.pop("reason", None), **more,
    )  # fmt: skip


A = gang("A", 0, 0, 60, user="ada")
B = gang("B", 0, 60, 120, user="bob")
NEVER = gang("C", 5, state="infeasible", reason=("Infeasible", "needs 9 GPUs in a rack; the largest has 8", 9, 8))


# ---- metrics


def test_waits_count_from_eligibility_and_only_for_those_who_started():
    found = compute_metrics([A, B, gang("D", 0, 100, 110, eligible=90), NEVER], {}, {})
    assert (found["wait_s_mean"], found["wait_s_max"]) == (pytest.approx(70 / 3), 60)


def test_the_95th_percentile_is_by_nearest_rank():
    gangs = [gang(str(n), 0, n, n + 1) for n in range(1, 101)]
    assert compute_metrics(gangs, {}, {})["wait_s_p95"] == 95
    assert compute_metrics(gangs[:20], {}, {})["wait_s_p95"] == 19
    assert compute_metrics(gangs[:1], {}, {})["wait_s_p95"] == 1


def test_bounded_slowdown_counts_from_submit_and_ten_seconds_at_least():
    assert compute_metrics([A, B], {}, {})["bounded_slowdown_mean"] == 1.5
    assert compute_metrics([gang("s", 0, 30, 31)], {}, {})["bounded_slowdown_mean"] == pytest.approx(3.1)
    assert compute_metrics([gang("s", 0, 0, 1)], {}, {})["bounded_slowdown_mean"] == 1.0
    assert compute_metrics([gang("d", 0, 60, 120, eligible=60)], {}, {})["bounded_slowdown_mean"] == 2.0


def test_shares_of_capacity():
    ledger = {"capacity": 100, "productive": 40, "lost": 10, "startup": 5, "idle_allocated": 20, "free": 25}
    found = compute_metrics([A], ledger, {})
    assert (found["utilization"], found["goodput"]) == (0.55, 0.4)
    assert compute_metrics([A], {}, {})["utilization"] == 0


def test_the_ledger_is_in_seconds_of_whole_devices():
    found = compute_metrics([A], {"capacity": 2 * 1000 * 60 * SECOND, "lost": 500 * SECOND}, {})
    assert found["ledger_gpu_s"] == {**dict.fromkeys(LEDGER_PARTS, 0), "capacity": 120, "lost": 0.5}
    assert found["lost_gpu_s"] == 0.5


def test_fairness_is_over_users_and_not_over_gangs():
    assert compute_metrics([A, gang("A2", 0, 0, 60, user="bob")], {}, {})["fairness_jain"] == 1.0
    assert compute_metrics([A, B], {}, {})["fairness_jain"] == pytest.approx(9 / 10)
    more = [gang(name, 0, 0, 60, user="ada") for name in ("A2", "A3")]
    assert compute_metrics([A, *more, B], {}, {})["fairness_jain"] == pytest.approx(9 / 10)
    assert compute_metrics([NEVER], {}, {})["fairness_jain"] == 1.0


def test_deadlines_count_from_submit():
    met, missed = (gang("d", 10, 20, 60, deadline_us=limit * SECOND) for limit in (50, 49))
    assert compute_metrics([met, missed, A], {}, {})["deadlines_met"] == 1


def test_counts_and_the_deadlocked_are_passed_on():
    found = compute_metrics([gang("S", state="deadlocked"), A], {}, {"preemptions": 3, "evictions_in_vain": 1})
    assert (found["deadlocked"], found["preemptions"], found["resizes"], found["evictions_in_vain"]) == (["S"], 3, 0, 1)


@pytest.mark.parametrize(
    ("gangs", "until", "horizon"),
    [
        ([A, B], None, (0, 120)),
        ([A, B], 500, (0, 120)),
        ([A, B], 100, (0, 100)),
        ([A, gang("R", 0, 10, state="running")], 500, (0, 500)),
        ([A, gang("S", 0, state="deadlocked")], 500, (0, 500)),
        ([A, NEVER], 500, (0, 60)),
        ([NEVER], 500, (5, 5)),
        ([NEVER], 2, (5, 5)),
        ([], None, (0, 0)),
    ],
)
def test_horizon(gangs, until, horizon):
    found = find_horizon(gangs, None if until is None else until * SECOND)
    assert found == (horizon[0] * SECOND, horizon[1] * SECOND)


def test_nothing_at_all_has_metrics_too():
    found = compute_metrics([], {}, {})
    assert found["makespan_s"] == found["wait_s_mean"] == found["bounded_slowdown_mean"] == 0


def test_seconds_are_whole_where_they_can_be():
    assert json.dumps([seconds(60 * SECOND), seconds(0), seconds(1_500_000)]) == "[60, 0, 1.5]"


# ---- JSON


def test_the_json_of_a_run():
    degraded = gang("H", 0, 1, state="running")
    degraded.history.append(Entry(2_500_000, "lose", 0, {}, {"n0": 3}))
    metrics = compute_metrics([A, NEVER, degraded], {}, {})
    text = encode_results([SimResult("easy", 7, [A, NEVER, degraded], metrics)])
    assert text.endswith(b"\n")
    (found,) = json.loads(text)
    assert (found["schema"], found["policy"], found["seed"]) == ("phalanx.sim/1", "easy", 7)
    assert found["metrics"] == metrics
    first, never, last = found["gangs"]
    assert first == {
        "name": "A", "user": "ada", "state": "completed", "submit_s": 0, "start_s": 0, "end_s": 60, "wait_s": 0,
        "members": 4, "placement": {"n0": 4}, "reason": None,
        "history": [{"at_s": 0, "event": "bind", "members": 4, "placement": {"n0": 4}},
                    {"at_s": 60, "event": "complete", "members": 0, "placement": {}}],
    }  # fmt: skip
    assert (never["start_s"], never["end_s"], never["wait_s"], never["members"]) == (None, None, None, 0)
    assert never["reason"] == {
        "code": "Infeasible", "message": "needs 9 GPUs in a rack; the largest has 8", "needed": 9, "available": 8,
    }  # fmt: skip
    assert last["history"][-1] == {"at_s": 2.5, "event": "lose", "members": 0, "placement": {}, "held": {"n0": 3}}


def test_the_json_has_every_metric_that_is_promised():
    promised = [
        "makespan_s",
        "utilization",
        "goodput",
        "wait_s_mean",
        "wait_s_p95",
        "wait_s_max",
        "bounded_slowdown_mean",
        "completion_s_mean",
        "preemptions",
        "resizes",
        "lost_gpu_s",
        "deadlines_met",
        "fairness_jain",
        "deadlocked",
        "ledger_gpu_s",
    ]
    assert list(compute_metrics([A], {}, {})) == promised


# ---- pictures


def test_a_picture():
    lines = draw_gantt([A, B, NEVER], (0, 120 * SECOND), ASCII)
    half = WIDTH // 2
    assert lines[0] == "A " + "#" * half
    assert lines[1] == "B " + "." * half + "#" * half
    assert lines[2] == "C"
    assert lines[-2].split() == ["0s", "1m", "2m"]
    assert lines[-1].strip() == "# running   . waiting"
    assert max(map(len, lines)) == WIDTH + 2


def test_a_picture_shows_sizes_and_held_seats():
    elastic = gang("E", 0, 0, 100, history=[
        Entry(0, "bind", 8, {}), Entry(25 * SECOND, "shrink", 2, {}), Entry(50 * SECOND, "grow", 4, {}),
        Entry(75 * SECOND, "lose", 0, {}, {"n0": 1}), Entry(100 * SECOND, "fail", 0, {})])  # fmt: skip
    row = draw_gantt([elastic], (0, 100 * SECOND), ASCII)[0].removeprefix("E ")
    quarter = WIDTH // 4
    assert row == "#" * quarter + "-" * quarter + "=" * quarter + "x" * quarter


def test_a_deadlocked_gang_is_not_drawn_as_running():
    stuck = gang("S", 0, state="deadlocked", history=[Entry(0, "bind", 2, {"n0": 2})])
    assert draw_gantt([stuck], (0, 100 * SECOND), ASCII)[0] == "S " + "x" * WIDTH


def test_what_ran_is_never_invisible():
    blink = gang("F", 0, 0, 1)
    assert draw_gantt([blink], (0, 10**6 * SECOND), ASCII)[0] == "F #"
    late = gang("F", 999_999, 999_999, 1_000_000)
    assert draw_gantt([late], (0, 10**6 * SECOND), ASCII)[0] == "F " + " " * (WIDTH - 1) + "#"


def test_no_picture_of_nothing_or_of_too_much():
    assert draw_gantt([], (0, 1), ASCII) == []
    assert draw_gantt([A], (0, 0), ASCII) == []
    assert draw_gantt([A] * 41, (0, 1), ASCII) == []


@pytest.mark.parametrize(
    ("us", "text"),
    [(0, "0s"), (250_000, "0.25s"), (12 * SECOND, "12s"), (90 * SECOND, "1m30s"), (3600 * SECOND, "1h"),
     (86_400 * SECOND + 1, "1d0.000001s")],
)  # fmt: skip
def test_spans(us: int, text: str):
    assert span(us) == text


# ---- tables


def test_a_plain_table_is_aligned_and_has_no_trailing_blanks():
    sheet = Sheet("title", ("gang", "wait"), (("A", "1s"), ("longer", "10s")))
    assert plain_lines(sheet) == ["title", "gang    wait", "A         1s", "longer   10s"]


def test_the_table_of_gangs():
    result = SimResult("easy", 0, [A, NEVER], {})
    lines = plain_lines(gang_sheet(result))
    assert lines[0] == "policy easy"
    assert lines[2].split() == ["A", "completed", "n0:4", "4", "0s", "0s", "1m", "0s"]
    assert lines[3].split() == ["C", "infeasible", "-", "-", "5s", "-", "-", "-"]
    assert gang_sheet(SimResult("easy", 0, [A] * 41, {})) is None


def test_reasons_are_told_and_many_are_counted():
    assert reason_lines(SimResult("easy", 0, [A, NEVER], {})) == [
        "C infeasible: needs 9 GPUs in a rack; the largest has 8 (Infeasible)"
    ]
    assert reason_lines(SimResult("easy", 0, [NEVER] * 30, {})) == ["30 gangs infeasible: Infeasible"]


def test_the_comparison_has_policies_side_by_side():
    ledger = {"capacity": 1000, "productive": 600, "free": 400}
    results = [SimResult(name, 0, [A, B], compute_metrics([A, B], ledger, {})) for name in ("fcfs", "easy")]
    rows = {row[0]: row[1:] for row in comparison_sheet(results).rows}
    assert rows["gangs completed"] == ("2 of 2", "2 of 2")
    assert rows["wait, mean"] == ("30s", "30s")
    assert rows["goodput"] == ("60.0%", "60.0%")
    assert rows["  idle, free"] == ("40.0%", "40.0%")
    assert "preemptions" not in rows, "what nobody did is not listed"
