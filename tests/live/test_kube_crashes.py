"""Whatever dies in the middle of a gang: it is whole in the end, or at zero."""

from __future__ import annotations

import signal
import time

import pytest
from kube_peers import note
from kube_proxy import BindProxy
from kube_schedulers import NATIVE, NODES, PODS, OurScheduler, bound, clear, running, wait_bound

from phalanx.testing.controlplane.fake_nodes import make_native_gang, make_nodes, make_pods
from phalanx.testing.controlplane.flags import API_SERVER
from phalanx.testing.controlplane.kubelet import FakeKubelet
from phalanx.testing.controlplane.rest import wait_until

pytestmark = [pytest.mark.live, pytest.mark.long]


@pytest.fixture
def plane(installed):
    kubelet = FakeKubelet(installed.api)
    clear(installed, kubelet)  # what others left
    yield installed
    clear(installed, kubelet)


def create_gang(plane, name, members):
    plane.api.create(NATIVE, make_native_gang(name, members))
    plane.api.create_all(PODS, make_pods(name, members, scheduler="phalanx", native_gang=name))


def stop_after(plane, tmp_path, count):
    """A gang of 8 of which so many are bound when the scheduler dies."""
    plane.api.create_all(NODES, make_nodes("1x8"))
    with BindProxy(plane, count) as proxy:
        scheduler = OurScheduler(plane, tmp_path, "--no-leader-election", kubeconfig=proxy.kubeconfig(tmp_path))
        proxy.action = scheduler.process.kill
        try:
            create_gang(plane, "a", 8)
            assert proxy.tripped.wait(20), scheduler.log
            scheduler.process.wait(10)
        finally:
            scheduler.close()
    assert len(bound(plane)) == count


def test_a_scheduler_killed_at_three_of_eight_goes_on_where_it_was(plane, tmp_path):
    stop_after(plane, tmp_path, 3)
    began = time.monotonic()
    with running(plane, tmp_path) as scheduler:
        wait_bound(plane, 8)
        print(f"room is left: whole {time.monotonic() - began:.2f} s after the restart")
        scheduler.wait_for("bound")
        assert scheduler.events("take-up")


def test_a_scheduler_killed_at_three_of_eight_undoes_what_no_longer_fits(plane, tmp_path):
    """T4 of the peers: stock, Volcano and scheduler-plugins stay at 3, Koordinator goes on to 7, KAI to 9 on 8 devices."""
    stop_after(plane, tmp_path, 3)
    plane.api.create_all(PODS, make_pods("thief", 1, scheduler="somebody", nodeName="node-0"))
    began = time.monotonic()
    with running(plane, tmp_path) as scheduler:
        wait_until(lambda: not bound(plane, "a"), lambda: (bound(plane), scheduler.log), 15)
        took_s = time.monotonic() - began
        FakeKubelet(plane.api).end_deleted()
        scheduler.wait_for("undone")
        assert "no longer fit" in scheduler.events("undone")[0]["says"]
        time.sleep(1)
        assert bound(plane, "a") == {}
        note("T4", f"0 of 8, {took_s:.2f}")


def test_an_api_server_killed_at_three_of_eight_and_the_gang_is_whole_when_it_is_back(plane, tmp_path):
    plane.api.create_all(NODES, make_nodes("2x4"))
    with (
        BindProxy(plane, 3, lambda: plane.kill(API_SERVER), goes_on=True) as proxy,
        running(plane, tmp_path, kubeconfig=proxy.kubeconfig(tmp_path)) as scheduler,
    ):
        create_gang(plane, "a", 8)
        assert proxy.tripped.wait(20)
        time.sleep(3)
        plane.start(API_SERVER)
        began = time.monotonic()
        wait_bound(plane, 8)
        note("T3", f"{time.monotonic() - began:.2f}")
        scheduler.wait_for("bound")


def test_a_leader_that_loses_its_lease_with_the_api_server_is_whole_when_both_are_back(plane, tmp_path):
    """As it is run: with an election. The lease ends with the outage, the process too, and is started again."""
    plane.api.create_all(NODES, make_nodes("2x4"))
    with BindProxy(plane, 3, lambda: plane.kill(API_SERVER), goes_on=True) as proxy:
        first = OurScheduler(plane, tmp_path, kubeconfig=proxy.kubeconfig(tmp_path), replica="one")
        second = None
        try:
            first.wait_for("ready", 40)  # whoever led in another test may not have given the lease up
            create_gang(plane, "a", 8)
            assert proxy.tripped.wait(20)
            assert first.process.wait(20) == 3
            plane.start(API_SERVER)
            assert len(bound(plane)) == 3
            second = OurScheduler(plane, tmp_path, replica="one")
            began = time.monotonic()
            wait_bound(plane, 8)
            print(f"T3 with an election: whole {time.monotonic() - began:.2f} s after both are back")
            assert time.monotonic() - began < 10, "the lease of the one that ended is not waited for"
        finally:
            first.close()
            if second is not None:
                second.close()


def test_bindings_whose_answers_are_lost_are_read_back(plane, tmp_path):
    plane.api.create_all(NODES, make_nodes("2x4"))
    with (
        BindProxy(plane, lost=5) as proxy,
        running(plane, tmp_path, kubeconfig=proxy.kubeconfig(tmp_path)) as scheduler,
    ):
        create_gang(plane, "a", 8)
        wait_bound(plane, 8)
        (line,) = scheduler.wait_for("bound")
        assert line["members"] == 8
        assert not scheduler.events("undone")


@pytest.mark.parametrize(
    ("lost_of", "count"),
    [(rb"(PUT|POST) [^ ]*/configmaps", 18), (rb"PATCH [^ ]*/status ", 1), (rb"GET ", 12)],
    ids=["plans", "statuses", "reads"],
)
def test_answers_to_anything_else_that_are_lost_do_no_harm(plane, tmp_path, lost_of, count):
    """Done by the server and never heard of: the first plans, the first conditions, lists and what is read back."""
    plane.api.create_all(NODES, make_nodes("2x4"))
    create_gang(plane, "a", 8)
    with BindProxy(plane, lost=count, lost_of=lost_of) as proxy:
        config = proxy.kubeconfig(tmp_path)
        # One that is not answered while it begins ends, and is started again.
        while not begin_and_bind(plane, tmp_path, config):
            pass
    assert proxy.lost == 0


def begin_and_bind(plane, tmp_path, config):
    scheduler = OurScheduler(plane, tmp_path, "--no-leader-election", kubeconfig=config)

    def told():
        return plane.api.get(f"{NATIVE}/a").get("status", {}).get("conditions")

    try:
        wait_until(lambda: scheduler.events("ready") or scheduler.process.poll() is not None, "it to begin")
        if scheduler.process.poll() is not None:
            assert scheduler.events("failed"), scheduler.log
            return False
        wait_bound(plane, 8)
        wait_until(lambda: (found := told()) and found[0]["status"] == "True", "its word")
        assert not scheduler.events("undone")
        return True
    finally:
        scheduler.close()


def test_a_pod_deleted_in_the_middle_and_nothing_of_its_gang_stays(plane, tmp_path):
    plane.api.create_all(NODES, make_nodes("2x4"))

    def delete_one():
        there = bound(plane)
        free = next(f"a-{at}" for at in range(8) if f"a-{at}" not in there)
        plane.api.delete(f"{PODS}/{free}", gracePeriodSeconds=0)

    with (
        BindProxy(plane, 3, delete_one, goes_on=True) as proxy,
        running(plane, tmp_path, kubeconfig=proxy.kubeconfig(tmp_path)) as scheduler,
    ):
        create_gang(plane, "a", 8)
        scheduler.wait_for("undone")
        wait_until(lambda: not bound(plane), lambda: bound(plane))
        FakeKubelet(plane.api).end_deleted()
        # Whoever made its pods makes them again, and it starts.
        left = {pod["metadata"]["name"] for pod in plane.api.get(PODS)["items"]}
        pods = make_pods("a", 8, scheduler="phalanx", native_gang="a")
        plane.api.create_all(PODS, [pod for pod in pods if pod["metadata"]["name"] not in left])
        wait_bound(plane, 8)


def test_a_node_taken_under_our_feet_in_the_middle_and_the_gang_is_not_left_in_part(plane, tmp_path):
    """Somebody binds to the devices that were meant for the rest, and the rest cannot be bound for a while."""
    plane.api.create_all(NODES, make_nodes("1x8"))

    def take():
        plane.api.create_all(PODS, make_pods("thief", 1, gpus=5, scheduler="somebody", nodeName="node-0"))

    with (
        BindProxy(plane, 3, take) as proxy,
        running(plane, tmp_path, kubeconfig=proxy.kubeconfig(tmp_path)) as scheduler,
    ):
        create_gang(plane, "a", 8)
        scheduler.wait_for("undone")
        wait_until(lambda: not bound(plane, "a"), lambda: (bound(plane), scheduler.log))


def test_a_node_deleted_in_the_middle_and_the_gang_starts_elsewhere(plane, tmp_path):
    plane.api.create_all(NODES, make_nodes("2x4"))

    def delete_one():
        (there,) = set(bound(plane).values())
        other = "node-1" if there == "node-0" else "node-0"
        plane.api.delete(f"{NODES}/{other}")
        time.sleep(0.5)  # for the watch to tell

    with (
        BindProxy(plane, 1, delete_one) as proxy,
        running(plane, tmp_path, kubeconfig=proxy.kubeconfig(tmp_path)) as scheduler,
    ):
        create_gang(plane, "a", 8)
        scheduler.wait_for("undone")
        assert "is gone or takes no more pods" in scheduler.events("undone")[0]["says"]
        wait_until(lambda: not bound(plane), lambda: bound(plane))


def test_a_watch_that_is_too_old_is_listed_again(plane, tmp_path):
    plane.api.create_all(NODES, make_nodes("2x4"))
    with running(plane, tmp_path) as scheduler:
        plane.kill(API_SERVER)
        plane.start(API_SERVER)
        # Changes that nobody watches see, and then nobody remembers.
        scheduler.process.send_signal(signal.SIGSTOP)
        plane.api.create_all(PODS, make_pods("gone", 3, scheduler="phalanx"))
        plane.api.delete(PODS, gracePeriodSeconds=0)
        plane.compact()
        plane.restart(API_SERVER)
        scheduler.process.send_signal(signal.SIGCONT)
        create_gang(plane, "a", 8)
        wait_bound(plane, 8)


def test_a_lost_member_is_replaced(plane, tmp_path):
    plane.api.create_all(NODES, make_nodes("2x4"))
    kubelet = FakeKubelet(plane.api)
    with running(plane, tmp_path):
        create_gang(plane, "a", 7)
        wait_bound(plane, 7)
        plane.api.delete(f"{PODS}/a-2")
        kubelet.end_deleted()
        plane.api.create(PODS, make_pods("a", 3, scheduler="phalanx", native_gang="a")[2])
        wait_bound(plane, 7)


def test_a_scheduler_killed_at_three_of_eight_and_a_member_that_is_gone_when_it_is_back(plane, tmp_path):
    stop_after(plane, tmp_path, 3)
    there = bound(plane)
    gone = next(f"a-{at}" for at in range(8) if f"a-{at}" not in there)
    plane.api.delete(f"{PODS}/{gone}", gracePeriodSeconds=0)
    kubelet = FakeKubelet(plane.api)
    with running(plane, tmp_path) as scheduler:
        scheduler.wait_for("undone")
        wait_until(lambda: not bound(plane, "a"), lambda: (bound(plane), scheduler.log))
        kubelet.end_deleted()
        left = {pod["metadata"]["name"] for pod in plane.api.get(PODS)["items"]}
        pods = make_pods("a", 8, scheduler="phalanx", native_gang="a")
        plane.api.create_all(PODS, [pod for pod in pods if pod["metadata"]["name"] not in left])
        wait_bound(plane, 8)
