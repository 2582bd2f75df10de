"""Names and labels that dashboards rely on."""

from __future__ import annotations

import re

import pytest

from phalanx.frontends.host.api import PrometheusMeters
from phalanx.frontends.host.service import Figures

#: Name → kind and labels. A name that changes breaks somebody's dashboard: change this table on purpose.
FAMILIES = {
    "phalanx_gangs": ("gauge", {"queue", "state"}),
    "phalanx_pending_gangs": ("gauge", {"queue", "reason"}),
    "phalanx_head_of_queue_wait_seconds": ("gauge", {"queue"}),
    "phalanx_gpus": ("gauge", {"queue", "state"}),
    "phalanx_goodput_ratio": ("gauge", {"queue"}),
    "phalanx_submits_total": ("counter", set()),
    "phalanx_admissions_total": ("counter", set()),
    "phalanx_evictions_total": ("counter", {"reason"}),
    "phalanx_resizes_total": ("counter", {"direction"}),
    "phalanx_cycle_exit_total": ("counter", {"reason"}),
    "phalanx_lost_gpu_seconds_total": ("counter", {"cause"}),
    "phalanx_resize_seconds": ("histogram", {"le"}),
    "phalanx_queue_wait_seconds": ("histogram", {"le"}),
    "phalanx_scheduling_cycle_seconds": ("histogram", {"le"}),
    "phalanx_eta_error_seconds": ("histogram", {"le"}),
}


@pytest.fixture
def meters():
    meters = PrometheusMeters()
    meters.count_submits(3)
    meters.count_admission(12.0)
    meters.count_eviction("Preempted")
    meters.count_resize("shrink", 0.3)
    meters.count_cycle(0.004, "done")
    meters.count_lost("Preempted", 90.0)
    meters.count_eta_error(-7.0)
    return meters


def read(text):
    """Families with kinds, and samples with labels."""
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    samples = {}
    for name, labels, value in re.findall(r"^(\w+)(?:\{(.*)\})? (\S+)$", text, re.MULTILINE):
        samples[name, tuple(re.findall(r'(\w+)="([^"]*)"', labels))] = float(value)
    return kinds, samples


def test_names_kinds_and_labels(play, meters):
    async def scenario(api):
        answer = await api.ask("GET", "/metrics")
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        kinds, samples = read(answer.body.decode())
        assert kinds == {name: kind for name, (kind, _) in FAMILIES.items()}
        labels = {name: set() for name in FAMILIES}
        for name, pairs in samples:
            family = re.sub(r"_(bucket|sum|count)$", "", name)
            labels[family] |= {label for label, _ in pairs}
        assert labels == {name: wanted for name, (_, wanted) in FAMILIES.items()}

    play(scenario, meters=meters)


def test_values(play, meters):
    async def scenario(api):
        _, samples = read((await api.ask("GET", "/metrics")).body.decode())
        expected = {
            ("phalanx_submits_total", ()): 3,
            ("phalanx_admissions_total", ()): 1,
            ("phalanx_queue_wait_seconds_sum", ()): 12,
            ("phalanx_evictions_total", (("reason", "Preempted"),)): 1,
            ("phalanx_resizes_total", (("direction", "shrink"),)): 1,
            ("phalanx_resizes_total", (("direction", "grow"),)): 0,
            ("phalanx_resize_seconds_sum", ()): 0.3,
            ("phalanx_scheduling_cycle_seconds_count", ()): 1,
            ("phalanx_cycle_exit_total", (("reason", "done"),)): 1,
            ("phalanx_lost_gpu_seconds_total", (("cause", "Preempted"),)): 90,
            ("phalanx_eta_error_seconds_sum", ()): 7,
            ("phalanx_gangs", (("queue", "default"), ("state", "running"))): 2,
            ("phalanx_gpus", (("queue", ""), ("state", "free"))): 4,
            ("phalanx_goodput_ratio", (("queue", "default"),)): 0.9,
        }
        assert {key: samples[key] for key in expected} == expected

    play(scenario, meters=meters)


def test_a_hostile_label_stays_a_label(meters):
    text = meters.write(Figures({("phalanx_goodput_ratio", (("queue", 'a"} 1\nphalanx_fake 1\\'),)): 1.0})).decode()
    assert "\nphalanx_fake" not in text


def test_a_figure_that_is_not_in_the_table_is_a_mistake_of_ours(meters):
    with pytest.raises(AssertionError, match="gangz"):
        meters.write(Figures({("gangz", ()): 1.0}))
    with pytest.raises(AssertionError, match="colour"):
        meters.write(Figures({("phalanx_goodput_ratio", (("queue", "q"), ("colour", "red"))): 1.0}))


def test_two_servers_count_apart(meters):
    assert b"phalanx_submits_total 0.0" in PrometheusMeters().write(Figures())
    assert b"phalanx_submits_total 3.0" in meters.write(Figures())
