"""What is written back to each dialect, as patches that could be sent as they are; nothing where nothing is new."""

import json

import msgspec
import pytest
from kube_objects import GROUPS, KOORDINATOR, NATIVE, PLUGINS, VOLCANO, gang, members, pod, read, view_one

from phalanx.frontends.kube.constraints import Surrounding
from phalanx.frontends.kube.gang_view import Dialect
from phalanx.frontends.kube.objects.pod import Pod
from phalanx.frontends.kube.pod_members import make_member
from phalanx.frontends.kube.statuses import GangStanding, PatchKind, make_event, patch_group, patch_pod, tell_gang
from phalanx.model.reason import Code

DIALECTS = [NATIVE, PLUGINS, KOORDINATOR, VOLCANO]
NOWHERE = Surrounding()
THEN, NOW = "2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z"
SHORT = (Code.CAPACITY, "needs room for 4 members, free resources hold 3", 4, 3)


def waiting(api, least=4, **more):
    group = gang(api, least, **more)
    view = view_one(members(api, least), group)
    return group, view, tell_gang(view, *SHORT)


def bound(api, least=4, **more):
    group = gang(api, least, **more)
    view = view_one(members(api, least, node="n1", phase="Pending"), group)
    return group, view, tell_gang(view)


def merged(group, patch):
    """The object with its patch, as the server would make it of these small statuses."""
    whole = msgspec.to_builtins(group)
    status = whole.setdefault("status", {})
    kept = []
    if patch.patch_kind is PatchKind.STRATEGIC:
        types = {each["type"] for each in patch.body["status"]["conditions"]}
        kept = [each for each in status.get("conditions") or [] if each["type"] not in types]
    status.update(patch.body["status"])
    if kept:
        status["conditions"] = [*kept, *status["conditions"]]
    return read(json.loads(json.dumps(whole)), type(group))


@pytest.mark.parametrize("api", DIALECTS)
@pytest.mark.parametrize("make", [waiting, bound])
def test_what_was_written_is_not_written_again(api, make):
    group, view, tiding = make(api)
    patch = patch_group(group, view, tiding, THEN)
    assert (patch.api_version, patch.kind, patch.namespace, patch.name) == (api, "PodGroup", "team", "g")
    assert patch_group(merged(group, patch), view, tiding, NOW) is None


@pytest.mark.parametrize("api", DIALECTS)
def test_lists_that_go_whole_go_to_the_object_that_was_looked_at(api):
    patch = patch_group(*waiting(api), NOW)
    custom = GROUPS[api][1] is not Dialect.NATIVE
    assert patch.patch_kind is (PatchKind.MERGE if custom else PatchKind.STRATEGIC)
    assert patch.body.get("metadata") == ({"resourceVersion": "7"} if custom else None)


@pytest.mark.parametrize(
    ("api", "subresource"), [(NATIVE, "status"), (PLUGINS, "status"), (KOORDINATOR, ""), (VOLCANO, "")]
)
def test_the_status_goes_where_its_definition_has_it(api, subresource):
    assert patch_group(*waiting(api), NOW).subresource == subresource


# --- native ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("api", "condition"), [(NATIVE, "PodGroupInitiallyScheduled"), ("scheduling.k8s.io/v1alpha2", "PodGroupScheduled")]
)
def test_the_native_condition_is_named_as_its_version_names_it(api, condition):
    group = gang(NATIVE, 4)
    group = read({**msgspec.to_builtins(group), "apiVersion": api}, type(group))
    view = view_one(members(NATIVE, 4), gang(NATIVE, 4))
    assert patch_group(group, view, tell_gang(view, *SHORT), NOW).body["status"]["conditions"] == [
        {
            "type": condition,
            "status": "False",
            "reason": "Unschedulable",
            "message": "Capacity: needs room for 4 members, free resources hold 3",
            "lastTransitionTime": NOW,
            "observedGeneration": 0,
        }
    ]


def test_success_is_told_once_and_never_taken_back():
    group, view, tiding = bound(NATIVE)
    patch = patch_group(group, view, tiding, NOW)
    assert [(each["status"], each["reason"]) for each in patch.body["status"]["conditions"]] == [("True", "Scheduled")]
    _, worse, short = waiting(NATIVE)
    assert patch_group(merged(group, patch), worse, short, NOW) is None


def test_the_instant_of_a_condition_is_that_of_its_status():
    group, view, tiding = waiting(NATIVE)
    told = merged(group, patch_group(group, view, tiding, THEN))
    other = tell_gang(view, Code.QUEUE_LIMIT, "its queue is full")
    (condition,) = patch_group(told, view, other, NOW).body["status"]["conditions"]
    assert (condition["message"], condition["lastTransitionTime"]) == ("QueueLimit: its queue is full", THEN)


# --- scheduler-plugins and Koordinator --------------------------------------------------------------


@pytest.mark.parametrize(
    ("ways", "plugins", "koordinator"),
    [
        ([], "Pending", "Pending"),
        ([{}] * 3, "Pending", "Pending"),
        ([{}] * 4, "Scheduling", "Scheduling"),
        ([{"node": "n", "phase": "Pending"}] * 4, "Scheduling", "Scheduled"),
        ([{"node": "n"}] * 4, "Running", "Running"),
        ([{"node": "n"}] * 3 + [{"phase": "Succeeded"}], "Running", "Running"),
        ([{"phase": "Succeeded"}] * 4, "Finished", "Finished"),
        ([{"node": "n"}] * 3 + [{"phase": "Failed"}], "Failed", "Failed"),
        ([{"node": "n"}] * 2 + [{}], "Pending", "Pending"),
        ([{"node": "n"}] * 2 + [{}] * 2, "Scheduling", "Scheduling"),
    ],
)
def test_phases_by_the_rules_of_their_own_controllers(ways, plugins, koordinator):
    for api, phase in ((PLUGINS, plugins), (KOORDINATOR, koordinator)):
        pods = [each for i, way in enumerate(ways) for each in members(api, 1, start=i, **way)]
        group = gang(api, 4)
        view = view_one(pods, group)
        assert patch_group(group, view, tell_gang(view), NOW).body["status"]["phase"] == phase


def test_only_what_changed_is_written():
    group, view, tiding = waiting(
        KOORDINATOR, status={"phase": "Scheduling", "scheduled": 2, "scheduleStartTime": THEN}
    )
    assert patch_group(group, view, tiding, NOW).body["status"] == {"scheduled": 0}


def test_a_field_that_its_schema_does_not_have_is_not_written():
    group, view, tiding = bound(PLUGINS, status={"phase": "Scheduling", "scheduleStartTime": THEN})
    assert patch_group(group, view, tiding, NOW) is None


@pytest.mark.parametrize("phase", ["Finished", "Failed"])
@pytest.mark.parametrize("api", [PLUGINS, KOORDINATOR])
def test_what_is_over_stays_over(api, phase):
    assert patch_group(*waiting(api, status={"phase": phase}), NOW) is None


def test_when_scheduling_began():
    group, view, tiding = waiting(PLUGINS)
    assert patch_group(group, view, tiding, NOW).body["status"] == {"phase": "Scheduling", "scheduleStartTime": NOW}


# --- Volcano -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ways", "status", "phase"),
    [
        ([], {}, "Inqueue"),
        ([{}] * 4, {}, "Inqueue"),
        ([{"node": "n"}] * 4, {}, "Running"),
        ([{"node": "n"}] * 3, {"phase": "Running"}, "Unknown"),
        ([{"phase": "Succeeded"}] * 4, {"phase": "Running"}, "Completed"),
        ([{"phase": "Succeeded"}] * 2 + [{"node": "n"}] * 2, {"phase": "Inqueue"}, "Running"),
    ],
)
def test_phases_that_operators_wait_for(ways, status, phase):
    pods = [each for i, way in enumerate(ways) for each in members(VOLCANO, 1, start=i, **way)]
    group = gang(VOLCANO, 4, status=status)
    view = view_one(pods, group)
    assert patch_group(group, view, tell_gang(view), NOW).body["status"].get("phase", status.get("phase")) == phase


def test_what_is_wrong_stays_out_of_the_queue():
    group = gang(VOLCANO, -4)
    view = view_one(members(VOLCANO, 4), group)
    tiding = tell_gang(view)
    assert tiding.word == "InvalidSpec"
    assert patch_group(group, view, tiding, NOW).body["status"]["phase"] == "Pending"


def test_its_two_conditions_take_turns_and_others_stay():
    foreign = {"type": "Example", "status": "True", "transitionID": "x"}
    group, view, tiding = waiting(VOLCANO, status={"conditions": [foreign]})
    first = merged(group, patch_group(group, view, tiding, THEN))
    assert [(each.type, each.reason, each.transition_id) for each in first.status.conditions] == [
        ("Example", "", "x"), ("Unschedulable", "NotEnoughResources", "7"),
    ]  # fmt: skip
    _, whole, done = bound(VOLCANO)
    second = merged(first, patch_group(first, whole, done, NOW))
    assert [each.type for each in second.status.conditions] == ["Example", "Scheduled"]


def test_too_few_pods_has_a_word_of_its_own():
    group = gang(VOLCANO, 4)
    view = view_one(members(VOLCANO, 3), group)
    (condition,) = patch_group(group, view, tell_gang(view), NOW).body["status"]["conditions"]
    assert condition["reason"] == "NotEnoughTasks"


# --- pods --------------------------------------------------------------------------------------------


def told(patch, each):
    whole = msgspec.to_builtins(each)
    whole["status"]["conditions"] = patch.body["status"]["conditions"]
    return read(whole, Pod)


def test_a_pod_is_told_once_per_reason_and_not_per_number():
    _, view, tiding = waiting(PLUGINS)
    (each,) = members(PLUGINS, 1)
    patch = patch_pod(each, make_member(each, NOWHERE), view, tiding, THEN)
    assert patch.body["metadata"] == {"uid": "uid-g-0"}
    assert (
        patch_pod(
            told(patch, each),
            make_member(each, NOWHERE),
            view,
            tell_gang(view, Code.CAPACITY, "other numbers", 4, 2),
            NOW,
        )
        is None
    )


def test_what_an_autoscaler_was_told_is_taken_back():
    _, view, tiding = waiting(PLUGINS)
    (each,) = members(PLUGINS, 1)
    seen = told(patch_pod(each, make_member(each, NOWHERE), view, tiding, THEN), each)
    (condition,) = patch_pod(
        seen, make_member(seen, NOWHERE), view, tell_gang(view, Code.QUEUE_LIMIT, "full"), NOW
    ).body["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "QueueLimit")


def test_an_autoscaler_hears_of_those_whom_a_new_node_would_help():
    _, view, _ = waiting(PLUGINS)
    (each,) = members(PLUGINS, 1)
    patch = patch_pod(each, make_member(each, NOWHERE), view, tell_gang(view, Code.NEIGHBOURS, "words"), THEN)
    assert [condition["reason"] for condition in patch.body["status"]["conditions"]] == ["Unschedulable"]
    assert patch_pod(each, make_member(each, NOWHERE), view, tell_gang(view, Code.BEHIND, "words"), THEN) is None


def test_surplus_without_room_takes_nothing_from_a_gang_that_is_whole():
    group = gang(NATIVE, 2)
    pods = [*members(NATIVE, 2, node="n1"), *members(NATIVE, 1, start=2)]
    view = view_one(pods, group)
    tiding = tell_gang(view, *SHORT)
    assert (tiding.standing, tiding.word) == (GangStanding.BOUND, "Capacity")
    (condition,) = patch_group(group, view, tiding, NOW).body["status"]["conditions"]
    assert (condition["status"], condition["message"]) == ("True", "2 of at least 2 members have their places")
    assert patch_pod(pods[2], make_member(pods[2], NOWHERE), view, tiding, NOW) is not None


def test_a_gang_that_runs_lacks_nobody_even_if_only_waiting_members_count():
    policy = {"meta": {"annotations": {"gang.scheduling.koordinator.sh/match-policy": "only-waiting"}}}
    tiding = bound(KOORDINATOR, **policy)[2]
    assert (tiding.standing, tiding.word) == (GangStanding.BOUND, "")


def test_a_member_that_the_gang_can_do_without_is_told_its_own_cause():
    pods = [*members(PLUGINS, 2, node="n1"), *members(PLUGINS, 1, start=2, resourceClaims=[{"name": "r"}])]
    view = view_one(pods, gang(PLUGINS, 2))
    patch = patch_pod(pods[2], make_member(pods[2], NOWHERE), view, tell_gang(view), NOW)
    assert patch.body["status"]["conditions"][0]["reason"] == "Unsupported"


def test_a_gated_member_of_a_gang_that_lacks_room_is_no_demand():
    pods = [*members(PLUGINS, 2), *members(PLUGINS, 1, start=2, schedulingGates=[{"name": "g"}])]
    view = view_one(pods, gang(PLUGINS, 2))
    told_to = [patch_pod(each, make_member(each, NOWHERE), view, tell_gang(view, *SHORT), NOW) for each in pods]
    assert [patch is not None for patch in told_to] == [True, True, False]


@pytest.mark.parametrize("more", [{"node": "n1"}, {"phase": "Succeeded"}])
def test_a_pod_that_has_a_place_is_left_alone(more):
    _, view, tiding = waiting(PLUGINS)
    (each,) = members(PLUGINS, 1, **more)
    assert patch_pod(each, make_member(each, NOWHERE), view, tiding, NOW) is None


def test_a_pod_by_itself_is_told_what_is_refused():
    each = pod("solo", resourceClaims=[{"name": "gpu"}])
    view = view_one([each])
    (condition,) = patch_pod(each, make_member(each, NOWHERE), view, tell_gang(view), NOW).body["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "Unsupported")
    assert condition["message"].startswith("Unsupported: Pod solo: spec.resourceClaims")


def test_a_gated_gang_is_told_as_held_and_its_pods_are_left_alone():
    each = pod("solo", schedulingGates=[{"name": "example.com/g"}])
    view = view_one([each])
    assert tell_gang(view).word == "Held"
    assert patch_pod(each, make_member(each, NOWHERE), view, tell_gang(view), NOW) is None


def test_a_group_that_is_not_there_makes_its_gang_incomplete():
    assert tell_gang(view_one(members(PLUGINS, 2))).word == "GangIncomplete"


# --- events ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("api", DIALECTS)
def test_one_series_of_events_per_gang_and_reason(api):
    group, view, tiding = waiting(api)
    event = make_event(view, group, tiding)
    assert (event.api_version, event.kind, event.name, event.uid) == (api, "PodGroup", "g", "uid-g")
    assert (event.type, event.reason, event.note) == ("Warning", "Capacity", tiding.text)
    other = make_event(view, group, tell_gang(view, Code.CAPACITY, "other numbers"))
    assert other.series == event.series
    assert make_event(view, group, tell_gang(view, Code.TOPOLOGY, "")).series != event.series


@pytest.mark.parametrize("api", DIALECTS)
def test_success_is_a_normal_event(api):
    group, view, tiding = bound(api)
    assert tiding.standing is GangStanding.BOUND
    assert (make_event(view, group, tiding).type, make_event(view, group, tiding).reason) == ("Normal", "Scheduled")


def test_a_gang_without_an_object_is_told_at_its_first_pod():
    view = view_one([pod("solo")])
    event = make_event(view, None, tell_gang(view, *SHORT))
    assert (event.kind, event.name, event.uid) == ("Pod", "solo", "uid-solo")


@pytest.mark.parametrize("code", [code for code in Code if code is not Code.NONE])
def test_every_code_can_be_told_in_every_dialect(code):
    for api in DIALECTS:
        group, view, _ = waiting(api)
        tiding = tell_gang(view, code, "words")
        assert tiding.text == f"{code.word}: words"
        assert patch_group(group, view, tiding, NOW) is not None
        json.dumps(patch_group(group, view, tiding, NOW).body)


def test_messages_are_bounded():
    _, view, _ = waiting(NATIVE)
    assert len(tell_gang(view, Code.CAPACITY, "x" * 100_000).text) <= 900


def test_a_name_out_of_an_annotation_steers_no_terminal():
    name = "\x1b]0;pwned\x07" + "g" * 5_000
    each = pod("p", annotations={"gang.scheduling.koordinator.sh/name": name})
    view = view_one([each])
    patch = patch_pod(each, make_member(each, NOWHERE), view, tell_gang(view), NOW)
    (condition,) = patch.body["status"]["conditions"]
    note = make_event(view, None, tell_gang(view)).note
    assert condition["message"].startswith("gang team/?]0;pwned?ggg")
    assert ": InvalidSpec: " in condition["message"]
    assert condition["message"].isprintable()
    assert note.isprintable()
