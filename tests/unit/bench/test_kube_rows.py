"""The rows on a real control plane, as far as they can be wrong without one: what they read, and what they say."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest

from bench import kube_gangs
from bench.kube_arrivals import list_decisions
from bench.kube_crowd import SMALL, list_tenants
from bench.kube_gangs import GangRun, tabulate, tell_ratios
from bench.kube_plane import Program, count_writes

METRICS = """# TYPE apiserver_request_total counter
apiserver_request_total{code="201",resource="pods",scope="resource",subresource="binding",verb="POST",version="v1"} 5
apiserver_request_total{code="409",resource="pods",scope="resource",subresource="binding",verb="POST",version="v1"} 2
apiserver_request_total{code="200",resource="configmaps",scope="resource",subresource="",verb="PUT",version="v1"} 1e+03
apiserver_request_total{code="200",resource="pods",scope="cluster",subresource="",verb="LIST",version="v1"} 7
apiserver_request_total{code="200",resource="leases",scope="resource",subresource="",verb="PUT",version="v1"} 9
apiserver_request_total_other{resource="pods",subresource="",verb="POST"} 3
"""


def test_what_was_written_is_counted_by_resource_and_what_the_server_writes_for_itself_is_not():
    plane = SimpleNamespace(api=SimpleNamespace(get=lambda path: METRICS))
    assert count_writes(plane) == Counter({"pods/binding": 7, "configmaps": 1000})


def test_a_pod_was_decided_about_when_its_binding_was_begun(tmp_path):
    log = tmp_path / "log"
    log.write_text(
        '{"at":"2026-11-19T21:00:01.500000Z","event":"bound","gang":"default/comes-1","members":1,"took_ms":250}\n'
        '{"at":"2026-11-19T21:00:02.000000Z","event":"ready","nodes":1}\n'
        '{"at":"2026-11-19T21:00:03.000000Z","event":"bound","gang":"def'
    )
    found = list_decisions(Program(pid=0, log=log, began_s=0, began_wall_s=0))
    assert found == {"comes-1": pytest.approx(1795122001.25)}


def test_the_table_has_medians_and_their_spread():
    runs = [
        GangRun(100, first_s, last_s, 0.1, 0.2, 0.05, 80, Counter({"pods/binding": 100, "configmaps": 12}))
        for first_s, last_s in ((0.5, 1.0), (0.6, 2.0), (0.7, 4.0))
    ]
    head, row = tabulate(8, {"phalanx": runs})
    assert row.split()[:2] == ["phalanx", "0.60"]
    assert "50 (25-100)" in row
    assert "1.00  2.00  0.50  3.50" in row, "milliseconds a pod: scheduler, API server, etcd, all of them"
    assert row.endswith("1.12 (pods/binding 1.00, configmaps 0.12)")
    assert head.startswith("gangs of 8")


def test_ratios_are_better_the_higher_whatever_they_are_of():
    def ran(seconds, cpu_s):
        return [GangRun(100, 0.5, 0.5 + seconds, cpu_s, 0.0, 0.0, 80, Counter())]

    said = tell_ratios({"phalanx": ran(2.0, 0.4), "stock": ran(8.0, 1.6), "binder": ran(1.0, 0.2)})
    assert said == "  times stock, part of the binder: rate 3.4x 60%, pace 4.0x 50%, processor time 4.0x 50%"


def test_a_row_without_its_control_plane_says_what_it_needs(monkeypatch, tmp_path):
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    assert kube_gangs.run(quick=True).why == "needs etcd, kube-apiserver, kube-scheduler: make controlplane"


def test_newcomers_fit_and_those_who_wait_do_not():
    asked = [int(pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]) for pod in list_tenants(SMALL)]
    left = [8 - each for each in asked]
    assert set(left) == {0, 4}
    assert sum(left) == SMALL.room
