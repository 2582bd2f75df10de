"""What a pod asks for, by the formula of KEP-753, held to a small play of what runs when."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kube_objects import manifest, node, pod, read

from phalanx.frontends.kube.remarks import Invalid
from phalanx.frontends.kube.requests import HostPort, PodDemand, find_demand, find_offer


def container(cpu=None, *, sidecar=False, name="c", limits=None, ports=None, **requests):
    asked = {**({"cpu": cpu} if cpu is not None else {}), **requests}
    found = {"name": name, "resources": {"requests": asked, "limits": limits or {}}, "ports": ports or []}
    return {**found, **({"restartPolicy": "Always"} if sidecar else {})}


def amounts(**spec):
    demand = find_demand(pod(**spec))
    assert isinstance(demand, PodDemand), demand
    return dict(demand.amounts)


@pytest.mark.parametrize(
    ("init", "main", "cpu"),
    [
        ([], ["1", "500m"], 1500),
        (["4"], ["1", "1"], 4000),  # one after the other, before the others
        (["1", "3"], ["2"], 3000),
        ([("1",)], ["2"], 3000),  # a sidecar runs beside them
        ([("1",), "4"], ["2"], 5000),  # and beside init containers that come later
        (["4", ("1",)], ["2"], 4000),  # not beside those before
        ([("1",), ("2",), "1"], ["1"], 4000),
        ([("1",), "9", ("2",)], ["1"], 10_000),
    ],
)
def test_containers_add_up(init, main, cpu):
    inits = [container(each[0], sidecar=True) if isinstance(each, tuple) else container(each) for each in init]
    assert amounts(initContainers=inits, containers=[container(each) for each in main]) == {"cpu": cpu, "pods": 1}


def test_overhead_is_on_top_and_each_pod_takes_one_of_the_pods():
    found = amounts(containers=[container("1", memory="1Gi")], overhead={"cpu": "250m", "memory": "120Mi"})
    assert found == {"cpu": 1250, "memory": (1 << 30) + (120 << 20), "pods": 1}


def test_what_is_stated_for_the_pod_stands_instead_of_the_sum():
    spec = {"containers": [container("4", memory="1Gi", **{"nvidia.com/gpu": "2"})], "overhead": {"cpu": "1"}}
    found = amounts(**spec, resources={"requests": {"cpu": "2", "nvidia.com/gpu": "7"}})
    # Of the pod as a whole only cpu, memory and hugepages can be stated.
    assert found == {"cpu": 3000, "memory": 1 << 30, "nvidia.com/gpu": 2, "pods": 1}


def test_a_limit_of_the_pod_counts_only_for_what_no_container_requests():
    found = amounts(containers=[container("1")], resources={"limits": {"cpu": "4", "memory": "2Gi"}})
    assert found == {"cpu": 1000, "memory": 2 << 30, "pods": 1}


def test_a_limit_stands_for_a_missing_request():
    found = amounts(containers=[container("1", limits={"cpu": "4", "nvidia.com/gpu": "8"})])
    assert found == {"cpu": 1000, "nvidia.com/gpu": 8, "pods": 1}


def test_a_pod_that_asks_for_nothing_takes_one_of_the_pods():
    assert amounts(containers=[{"name": "c"}]) == {"pods": 1}


def test_of_a_pod_that_was_resized_the_most_counts():
    status = {
        "containerStatuses": [
            {"name": "c", "allocatedResources": {"cpu": "3"}, "resources": {"requests": {"cpu": "5"}}},
        ]
    }
    assert amounts(containers=[container("1")], status=status, node="n0")["cpu"] == 5000
    assert amounts(containers=[container("9")], status=status, node="n0")["cpu"] == 9000


def test_what_its_node_will_never_give_is_not_counted():
    refused = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
    held = {"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "2"}}], "conditions": refused}
    assert amounts(containers=[container("9")], status=held, node="n0")["cpu"] == 2000


def test_of_a_pod_that_was_resized_as_a_whole_the_most_counts():
    status = {"resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "5"}}
    spec = {"containers": [container("1")], "resources": {"requests": {"cpu": "4"}}, "node": "n0"}
    assert amounts(**spec, status=status)["cpu"] == 5000
    refused = {**status, "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]}
    assert amounts(**{**spec, "resources": {"requests": {"cpu": "9"}}}, status=refused)["cpu"] == 5000


def test_host_ports_of_containers_and_sidecars():
    ports = [{"hostPort": 80}, {"hostPort": 81, "protocol": "UDP", "hostIP": "10.0.0.1"}, {"containerPort": 5}]
    spec = {
        "containers": [container(ports=ports)],
        "initContainers": [container(ports=[{"hostPort": 90}]), container(sidecar=True, ports=[{"hostPort": 91}])],
    }
    demand = find_demand(pod(**spec))
    assert demand.ports == (HostPort("TCP", 80), HostPort("TCP", 91), HostPort("UDP", 81, "10.0.0.1"))


def test_who_meets_whom_at_a_port():
    anywhere, here, there = HostPort("TCP", 80), HostPort("TCP", 80, "10.0.0.1"), HostPort("TCP", 80, "10.0.0.2")
    assert anywhere.meets(here)
    assert here.meets(anywhere)
    assert here.meets(here)
    assert not here.meets(there)
    assert not anywhere.meets(HostPort("UDP", 80))
    assert not anywhere.meets(HostPort("TCP", 81))


def test_what_cannot_be_read_is_told_with_its_place():
    bad = find_demand(pod(containers=[container("1"), container("many")], overhead={"memory": "-1"}))
    assert [remark.field for remark in bad] == [
        "spec.containers[1].resources.requests['cpu']",
        "spec.overhead['memory']",
    ]
    (port,) = find_demand(pod(containers=[container(ports=[{"hostPort": 70_000}])]))
    assert port.field == "spec.containers[0].ports[0].hostPort"
    assert isinstance(port, Invalid)


def test_the_engine_gets_its_own_kinds():
    demand = find_demand(
        pod(containers=[container("500m", memory="1Gi", **{"nvidia.com/gpu": "2", "amd.com/gpu": "1"})])
    )
    kinds = {"nvidia.com/gpu": "gpu", "amd.com/gpu": "gpu"}
    assert demand.need(kinds) == (("cpu", 500), ("gpu", 3000), ("memory", 1 << 30), ("pods", 1000))


def test_what_a_node_offers():
    allocatable = {"cpu": "7910m", "memory": "65Gi", "pods": "110", "nvidia.com/gpu": "8"}
    assert find_offer(node(status={"allocatable": allocatable})) == {
        "cpu": 7910, "memory": 65 << 30, "pods": 110, "nvidia.com/gpu": 8,
    }  # fmt: skip
    (bad,) = find_offer(node(status={"allocatable": {"cpu": "x"}}))
    assert bad.field == "status.allocatable['cpu']"


# --- held to a play of what runs when ------------------------------------------------------------


def play(inits, mains):
    """The most that ever runs at once: init containers one by one, sidecars from their turn on, then the main ones."""
    peak = sidecars = 0
    for cpu, sidecar in inits:
        peak = max(peak, sidecars + cpu)
        sidecars += cpu if sidecar else 0
    return max(peak, sidecars + sum(mains))


@given(
    st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=6),
    st.lists(st.integers(0, 9), min_size=1, max_size=4),
)
def test_the_formula_is_the_peak_of_what_runs(inits, mains):
    spec = {
        "initContainers": [container(str(cpu), sidecar=sidecar) for cpu, sidecar in inits],
        "containers": [container(str(cpu)) for cpu in mains],
    }
    found = find_demand(read(manifest(**spec)))
    assert dict(found.amounts).get("cpu", 0) == 1000 * play(inits, mains)
