"""What the fake API server claims of a real one: each test runs against the fake always, and against a real control
plane where there is one (`make controlplane`, marker `live`). Where the two differ the fake is wrong."""

from __future__ import annotations

from itertools import count

import pytest

from phalanx.testing.controlplane.binaries import explain_missing, find_missing
from phalanx.testing.controlplane.fake_nodes import make_native_gang, make_nodes, make_pods
from phalanx.testing.controlplane.plane import ControlPlane
from phalanx.testing.controlplane.rest import KubeRefusedError
from phalanx.testing.kube.fake_rest import FakeRest

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
STRATEGIC = "application/strategic-merge-patch+json"
NUMBERS = count(1)


@pytest.fixture(scope="session")
def real(tmp_path_factory):
    if missing := find_missing():
        pytest.skip(explain_missing(missing))
    with ControlPlane(folder=tmp_path_factory.mktemp("contract") / "plane") as plane:
        yield plane.api


@pytest.fixture(params=["fake", pytest.param("real", marks=[pytest.mark.live, pytest.mark.long])])
def api(request):
    return FakeRest() if request.param == "fake" else request.getfixturevalue("real")


@pytest.fixture
def name():
    """Unlike any other test's."""
    return f"c{next(NUMBERS)}"


def refusal(call, *args, **more):
    with pytest.raises(KubeRefusedError) as caught:
        call(*args, **more)
    return caught.value.code, caught.value.reason


def make_pod(api, name, **spec):
    (pod,) = make_pods(name, 1, gpus=0, scheduler="nobody", **spec)
    return api.create(PODS, pod)


def bind(api, pod, node="node-x", **metadata):
    name = pod["metadata"]["name"]
    tree = {"metadata": {"name": name, **metadata}, "target": {"kind": "Node", "name": node}}
    return api.create(f"{PODS}/{name}/binding", tree)


def path_of(pod):
    return f"{PODS}/{pod['metadata']['name']}"


def version(tree):
    return tree["metadata"]["resourceVersion"]


# ---- objects


def test_one_revision_counts_for_all_kinds(api, name):
    first = api.create(MAPS, {"metadata": {"name": name}})
    second = api.create(LEASES, {"metadata": {"name": name}, "spec": {}})
    third = api.patch(f"{MAPS}/{name}", {"data": {"a": "b"}})
    assert int(version(first)) < int(version(second)) < int(version(third))
    assert int(version(api.get(MAPS))) >= int(version(third))


def test_a_new_object_has_a_uid_an_instant_and_a_version(api, name):
    made = api.create(MAPS, {"metadata": {"name": name}, "data": {"a": "b"}})
    assert {"uid", "creationTimestamp", "resourceVersion"} <= made["metadata"].keys()
    assert made["metadata"]["namespace"] == "default"
    assert api.get(f"{MAPS}/{name}")["data"] == {"a": "b"}
    assert refusal(api.create, MAPS, {"metadata": {"name": name}}) == (409, "AlreadyExists")


def test_a_name_may_be_made_up_by_the_server(api, name):
    made = api.create(MAPS, {"metadata": {"generateName": f"{name}-"}})
    assert made["metadata"]["name"].startswith(f"{name}-")
    assert len(made["metadata"]["name"]) == len(name) + 6


def test_a_new_object_brings_no_version(api, name):
    code, _ = refusal(api.create, MAPS, {"metadata": {"name": name, "resourceVersion": "7"}})
    assert code == 500


def test_what_is_not_there_is_not_found(api, name):
    assert refusal(api.get, f"{MAPS}/{name}") == (404, "NotFound")
    assert refusal(api.patch, f"{MAPS}/{name}", {"data": {}}) == (404, "NotFound")
    assert refusal(api.delete, f"{MAPS}/{name}") == (404, "NotFound")
    assert refusal(api.replace, f"{MAPS}/{name}", {"metadata": {"name": name, "resourceVersion": "7"}})[0] == 404
    assert refusal(api.create, f"/api/v1/namespaces/{name}/configmaps", {"metadata": {"name": name}}) == (
        404,
        "NotFound",
    )
    assert refusal(api.get, "/apis/example.com/v1/things")[0] == 404


def test_a_write_over_an_older_version_is_a_conflict(api, name):
    old = api.create(MAPS, {"metadata": {"name": name}})
    new = api.replace(f"{MAPS}/{name}", {**old, "data": {"a": "1"}})
    assert refusal(api.replace, f"{MAPS}/{name}", {**old, "data": {"a": "2"}}) == (409, "Conflict")
    stale = {"metadata": {"resourceVersion": version(old)}, "data": {"a": "2"}}
    assert refusal(api.patch, f"{MAPS}/{name}", stale) == (409, "Conflict")
    assert api.replace(f"{MAPS}/{name}", {**new, "data": {"a": "3"}})["data"] == {"a": "3"}


def test_a_write_that_changes_nothing_makes_no_version(api, name):
    old = api.create(MAPS, {"metadata": {"name": name}, "data": {"a": "1"}})
    assert version(api.replace(f"{MAPS}/{name}", old)) == version(old)
    assert version(api.patch(f"{MAPS}/{name}", {"data": {"a": "1"}})) == version(old)


def test_a_config_map_can_be_replaced_blindly_and_a_lease_cannot(api, name):
    api.create(MAPS, {"metadata": {"name": name}})
    assert api.replace(f"{MAPS}/{name}", {"metadata": {"name": name}, "data": {"a": "1"}})["data"] == {"a": "1"}
    api.create(LEASES, {"metadata": {"name": name}, "spec": {"holderIdentity": "a"}})
    blind = {"metadata": {"name": name}, "spec": {"holderIdentity": "b"}}
    assert refusal(api.replace, f"{LEASES}/{name}", blind) == (422, "Invalid")


def test_another_uid_is_a_conflict_to_a_put_and_invalid_to_a_patch(api, name):
    old = api.create(MAPS, {"metadata": {"name": name}})
    other = "00000000-0000-0000-0000-000000000000"
    put = {**old, "metadata": {**old["metadata"], "uid": other}}
    assert refusal(api.replace, f"{MAPS}/{name}", put) == (409, "Conflict")
    assert refusal(api.patch, f"{MAPS}/{name}", {"metadata": {"uid": other}})[0] in (409, 422)


def test_null_in_a_merge_patch_takes_away(api, name):
    api.create(MAPS, {"metadata": {"name": name, "annotations": {"x": "1", "y": "2"}}})
    patched = api.patch(f"{MAPS}/{name}", {"metadata": {"annotations": {"x": None, "z": "3"}}})
    assert patched["metadata"]["annotations"] == {"y": "2", "z": "3"}


def test_conditions_are_merged_by_type_in_a_strategic_patch(api, name):
    pod = make_pod(api, name)
    for kind, word in (("PodScheduled", "a"), ("example.com/more", "b"), ("PodScheduled", "c")):
        body = {"status": {"conditions": [{"type": kind, "status": "False", "reason": word}]}}
        pod = api.patch(f"{path_of(pod)}/status", body, STRATEGIC)
    reasons = {each["type"]: each.get("reason") for each in pod["status"]["conditions"]}
    assert reasons["PodScheduled"] == "c"
    assert reasons["example.com/more"] == "b"


def test_a_status_is_written_apart(api, name):
    api.create(GROUPS, make_native_gang(name, 2))
    body = {
        "status": {
            "conditions": [
                {
                    "type": "T",
                    "status": "True",
                    "reason": "R",
                    "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
            ]
        }
    }
    assert "conditions" not in api.patch(f"{GROUPS}/{name}", body, STRATEGIC).get("status", {})
    assert api.patch(f"{GROUPS}/{name}/status", body, STRATEGIC)["status"]["conditions"][0]["type"] == "T"


# ---- lists and watches


def test_a_list_comes_in_pages_of_one_moment(api, name):
    for at in range(5):
        api.create(MAPS, {"metadata": {"name": f"{name}-{at}", "labels": {"test": name}}})
    page = api.get(MAPS, limit=2, labelSelector=f"test={name}")
    seen, first = [each["metadata"]["name"] for each in page["items"]], version(page)
    api.delete(f"{MAPS}/{name}-4")
    while more := page["metadata"].get("continue"):
        page = api.get(MAPS, limit=2, labelSelector=f"test={name}", **{"continue": more})
        seen += [each["metadata"]["name"] for each in page["items"]]
        assert version(page) == first
    assert seen == [f"{name}-{at}" for at in range(5)]


def test_lists_are_narrowed_down(api, name):
    pod = make_pod(api, name, labels={"test": name})
    make_pod(api, f"{name}b")
    for query in ({"labelSelector": f"test={name}"}, {"fieldSelector": f"metadata.name={pod['metadata']['name']}"}):
        assert [each["metadata"]["name"] for each in api.get(PODS, **query)["items"]] == [pod["metadata"]["name"]]


def test_a_watch_tells_everything_since_a_version_in_order(api, name):
    since = version(api.get(MAPS))
    api.create(MAPS, {"metadata": {"name": name}})
    changed = api.patch(f"{MAPS}/{name}", {"data": {"a": "1"}})
    api.delete(f"{MAPS}/{name}")
    told = []
    for event in api.watch(MAPS, since, 2):
        if event["object"]["metadata"]["name"] == name:
            told.append(event)
        if len(told) == 3:
            break
    assert [event["type"] for event in told] == ["ADDED", "MODIFIED", "DELETED"]
    assert version(told[1]["object"]) == version(changed)
    assert int(version(told[2]["object"])) > int(version(changed)), "of its end, not of its last change"


# ---- pods


def test_a_new_pod_is_pending_whatever_it_says(api, name):
    (tree,) = make_pods(name, 1, gpus=0, scheduler="nobody")
    pod = api.create(PODS, {**tree, "status": {"phase": "Running"}})
    assert pod["status"]["phase"] == "Pending"
    assert pod["spec"]["terminationGracePeriodSeconds"] == 30


def test_a_binding_sets_node_condition_and_annotations_once(api, name):
    pod = make_pod(api, name)
    said = bind(
        api, pod, uid=pod["metadata"]["uid"], resourceVersion=version(pod), annotations={"example.com/rank": "3"}
    )
    assert (said["kind"], said["status"]) == ("Status", "Success")
    bound = api.get(path_of(pod))
    assert bound["spec"]["nodeName"] == "node-x", "nobody asks whether there is such a node"
    assert bound["metadata"]["annotations"]["example.com/rank"] == "3"
    assert ("PodScheduled", "True") in [(each["type"], each["status"]) for each in bound["status"]["conditions"]]
    assert refusal(bind, api, bound) == (409, "Conflict")
    assert refusal(bind, api, bound, "node-y", uid=pod["metadata"]["uid"]) == (409, "Conflict")


def test_a_binding_of_another_pod_or_an_older_version_is_a_conflict(api, name):
    pod = make_pod(api, name)
    api.patch(path_of(pod), {"metadata": {"annotations": {"x": "1"}}})
    other = "00000000-0000-0000-0000-000000000000"
    assert refusal(bind, api, pod, uid=other) == (409, "Conflict")
    assert refusal(bind, api, pod, resourceVersion=version(pod)) == (409, "Conflict")
    assert bind(api, pod, uid=pod["metadata"]["uid"])["status"] == "Success"


def test_what_cannot_be_bound_is_refused(api, name):
    gated = make_pod(api, name, schedulingGates=[{"name": "example.com/wait"}])
    assert refusal(bind, api, gated) == (409, "Conflict")
    assert refusal(bind, api, {"metadata": {"name": f"{name}-none"}}) == (404, "NotFound")
    pod = make_pod(api, f"{name}f")
    assert (
        refusal(
            api.create,
            f"{path_of(pod)}/binding",
            {"metadata": {"name": "other"}, "target": {"kind": "Node", "name": "n"}},
        )[0]
        == 400
    )
    api.patch(path_of(pod), {"metadata": {"finalizers": ["example.com/hold"]}})
    api.delete(path_of(pod))
    assert refusal(bind, api, pod) == (409, "Conflict")
    api.patch(path_of(pod), {"metadata": {"finalizers": None}})
    assert refusal(api.get, path_of(pod)) == (404, "NotFound")


def test_the_node_of_a_pod_is_set_by_binding_alone(api, name):
    pod = make_pod(api, name)
    assert refusal(api.patch, path_of(pod), {"spec": {"nodeName": "node-y"}})[0] == 422


def test_a_bound_pod_goes_in_its_time_and_another_at_once(api, name):
    pod, waiting = make_pod(api, name), make_pod(api, f"{name}w")
    bind(api, pod)
    api.delete(path_of(waiting))
    assert refusal(api.get, path_of(waiting)) == (404, "NotFound")
    api.delete(path_of(pod))
    going = api.get(path_of(pod))
    assert going["metadata"]["deletionGracePeriodSeconds"] == 30
    api.delete(path_of(pod))
    assert version(api.get(path_of(pod))) == version(going), "the second time says nothing new"
    api.delete(path_of(pod), gracePeriodSeconds=0)
    assert refusal(api.get, path_of(pod)) == (404, "NotFound")


def test_a_pod_that_has_ended_goes_at_once(api, name):
    pod = make_pod(api, name)
    bind(api, pod)
    api.patch(f"{path_of(pod)}/status", {"status": {"phase": "Succeeded"}}, STRATEGIC)
    api.delete(path_of(pod))
    assert refusal(api.get, path_of(pod)) == (404, "NotFound")


def test_an_eviction_asks_for_the_uid_and_deletes_gracefully(api, name):
    pod = make_pod(api, name)
    bind(api, pod)

    def evict(uid):
        options = {"preconditions": {"uid": uid}}
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod["metadata"]["name"]},
            "deleteOptions": options,
        }
        return api.create(f"{path_of(pod)}/eviction", body)

    assert refusal(evict, "00000000-0000-0000-0000-000000000000") == (409, "Conflict")
    assert evict(pod["metadata"]["uid"])["status"] == "Success"
    assert "deletionTimestamp" in api.get(path_of(pod))["metadata"]
    api.delete(path_of(pod), gracePeriodSeconds=0)
    assert refusal(evict, pod["metadata"]["uid"]) == (404, "NotFound")


def test_a_delete_of_another_uid_is_a_conflict(api, name):
    pod = make_pod(api, name)
    options = {"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}}
    assert refusal(api.call, "DELETE", path_of(pod), options) == (409, "Conflict")


# ---- gangs, nodes


def test_a_native_gang_is_held_by_a_finalizer(api, name):
    made = api.create(GROUPS, make_native_gang(name, 2))
    assert made["metadata"]["finalizers"] == ["scheduling.k8s.io/podgroup-protection"]


def test_a_node_may_be_made_with_its_status(api, name):
    (node,) = make_nodes("1x4", prefix=name)
    made = api.create("/api/v1/nodes", node)
    assert made["status"]["allocatable"]["nvidia.com/gpu"] == "4"
    path = f"/api/v1/nodes/{made['metadata']['name']}"
    assert api.patch(path, {"spec": {"unschedulable": True}})["spec"]["unschedulable"] is True
    body = {"status": {"allocatable": {"nvidia.com/gpu": "3"}}}
    assert api.patch(f"{path}/status", body)["status"]["allocatable"]["nvidia.com/gpu"] == "3"
