"""The corner cases of the peers that are about translation, one test or more named after each.

The numbers are those of docs/corner-cases.md; docs/kubernetes-corner-cases.md says which remain for whoever binds.
"""

import re

import pytest
from kube_objects import KOORDINATOR, NATIVE, PLUGINS, VOLCANO, gang, key_of, members, pod, said, view_all, view_one

from phalanx.frontends.kube.constraints import Surrounding
from phalanx.frontends.kube.gang_view import GangView, MatchPolicy, MemberPhase
from phalanx.frontends.kube.pod_members import make_member
from phalanx.frontends.kube.statuses import patch_group, patch_pod, tell_gang
from phalanx.frontends.kube.translating import translate_gang
from phalanx.model.reason import Code

DIALECTS = [NATIVE, PLUGINS, KOORDINATOR, VOLCANO]
every_dialect = pytest.mark.parametrize("api", DIALECTS)
NOWHERE = Surrounding()
NOW = "2026-01-01T00:00:00Z"
MATCH = "gang.scheduling.koordinator.sh/match-policy"


def least_of(view: GangView) -> list[int]:
    return [role.members_min for role in view.roles]


def policy(word):
    return {"meta": {"annotations": {MATCH: word}}}


def going(api, counts, **more):
    """Members of one gang by what has become of them: {"seated": 3, "waiting": 1}."""
    ways = {
        "waiting": {},
        "seated": {"node": "n1"},
        "done": {"node": "n1", "phase": "Succeeded"},
        "failed": {"node": "n1", "phase": "Failed"},
        "leaving": {"node": "n2", "meta": {"deletionTimestamp": NOW}},
        "gone": {"meta": {"deletionTimestamp": NOW}},
        "gated": {"schedulingGates": [{"name": "example.com/wait"}]},
    }
    pods, start = [], 0
    for way, count in counts.items():
        pods += members(api, count, start=start, **{**ways[way], **more})
        start += count
    return pods


# --- life of the quorum ------------------------------------------------------------------------------


@every_dialect
def test_case_1_members_that_have_succeeded_lower_the_outstanding_minimum(api):
    view = view_one(going(api, {"done": 3, "waiting": 1}), gang(api, 4))
    assert (view.outstanding, view.startable) == (1, True)
    whole = view_one(going(api, {"done": 1, "seated": 3}), gang(api, 4))
    assert (whole.outstanding, whole.regressed) == (0, False)


@every_dialect
def test_case_1_members_that_have_failed_do_not(api):
    assert view_one(going(api, {"failed": 1, "waiting": 3}), gang(api, 4)).missing == 1


@pytest.mark.parametrize(
    ("word", "counts", "outstanding", "startable"),
    [
        # Once satisfied: whoever comes later is an ordinary pod.
        ("once-satisfied", {"waiting": 4}, 4, True),
        ("once-satisfied", {"seated": 4, "waiting": 1}, 0, True),
        # Waiting and running: whoever comes later must see the minimum with those that run.
        ("waiting-and-running", {"seated": 3, "waiting": 1}, 1, True),
        ("waiting-and-running", {"seated": 2, "waiting": 1}, 2, False),
        ("waiting-and-running", {"seated": 4, "waiting": 1}, 0, True),
        # Only waiting: whoever runs does not count at all.
        ("only-waiting", {"seated": 4, "waiting": 3}, 4, False),
        ("only-waiting", {"seated": 4, "waiting": 4}, 4, True),
        ("only-waiting", {"done": 2, "waiting": 2}, 2, True),
    ],
)
def test_case_2_all_three_match_policies(word, counts, outstanding, startable):
    view = view_one(going(KOORDINATOR, counts), gang(KOORDINATOR, 4, **policy(word)))
    assert (view.outstanding, view.startable) == (outstanding, startable)


def test_case_2_satisfied_is_what_somebody_else_remembers_where_no_object_does():
    prefix = "gang.scheduling.koordinator.sh/"
    said_by_pods = {"annotations": {f"{prefix}name": "g", f"{prefix}min-available": "4"}, "labels": {}}
    pods = going(KOORDINATOR, {"seated": 1, "waiting": 1}, **said_by_pods)
    members_ = [make_member(each, NOWHERE) for each in pods]
    views = [translate_gang(key_of(KOORDINATOR), None, pods, members_, {}, was_whole=known) for known in (False, True)]
    assert [(view.outstanding, view.startable) for view in views] == [(3, False), (0, True)]


def test_case_2_satisfied_is_remembered_by_the_object_after_a_loss():
    status = {"phase": "Running"}
    view = view_one(going(KOORDINATOR, {"seated": 1, "waiting": 1}), gang(KOORDINATOR, 4, status=status))
    assert (view.said.match, view.satisfied, view.outstanding) == (MatchPolicy.ONCE_SATISFIED, True, 0)
    assert least_of(view) == [0]


@every_dialect
def test_case_3_a_lone_replacement_counts_together_with_those_that_run(api):
    view = view_one(going(api, {"seated": 3, "waiting": 1}), gang(api, 4))
    assert (view.outstanding, view.startable, least_of(view)) == (1, True, [1])


@pytest.mark.parametrize("api", [PLUGINS, KOORDINATOR, VOLCANO])
def test_case_4_a_gang_that_was_whole_has_regressed_and_one_that_never_was_is_partial(api):
    lost = view_one(going(api, {"seated": 3}), gang(api, 4, status={"phase": "Running"}))
    assert (lost.regressed, lost.partial) == (True, False)
    never = view_one(going(api, {"seated": 3}), gang(api, 4))
    assert (never.regressed, never.partial) == (False, True)


@every_dialect
def test_case_5_a_leaving_pod_keeps_its_seat_and_does_not_count_and_one_without_a_node_does_neither(api):
    view = view_one(going(api, {"seated": 2, "leaving": 1, "gone": 1, "waiting": 1}), gang(api, 4))
    assert (view.holding, view.missing) == (2, 1)
    assert view.anchors == ("n1", "n2")


@every_dialect
def test_case_6_gated_pods_are_tolerated_down_to_the_quorum(api):
    assert view_one(going(api, {"waiting": 4, "gated": 2}), gang(api, 4)).startable
    short = view_one(going(api, {"waiting": 3, "gated": 2}), gang(api, 4))
    assert (short.startable, short.missing) == (False, 1)
    assert said(short.blockers) == [("NotYet", "spec.schedulingGates")] * 2


@every_dialect
def test_case_6_gated_pods_hold_nothing_and_ask_for_nothing(api):
    view = view_one(going(api, {"waiting": 2, "gated": 2}), gang(api, 2))
    assert sum(len(role.members) for role in view.roles) == 2


@every_dialect
def test_case_7_a_minimum_that_is_lowered_lets_it_start_and_one_that_is_raised_disturbs_nobody(api):
    pods = going(api, {"waiting": 3})
    assert [view_one(pods, gang(api, least)).startable for least in (4, 3)] == [False, True]
    raised = view_one(going(api, {"seated": 4}), gang(api, 6))
    assert raised.count(MemberPhase.SEATED) == 4
    assert raised.missing == 2


@every_dialect
def test_case_8_pods_first_and_the_group_later(api):
    pods = members(api, 2)
    assert [view_one(pods).startable, view_one(pods, gang(api, 2)).startable] == [False, True]


@every_dialect
def test_case_8_a_group_that_was_made_anew_is_another_one_with_its_own_minimum(api):
    old, new = gang(api, 2, meta={"uid": "one"}), gang(api, 3, meta={"uid": "two"})
    before, after = view_one(members(api, 2), old), view_one(members(api, 2), new)
    assert before.said.uid != after.said.uid
    assert (before.startable, after.startable) == (True, False)


def test_case_8_a_gang_of_annotations_is_gone_with_its_last_pod():
    assert view_all([]) == {}


@every_dialect
def test_case_9_more_pods_than_the_minimum_do_not_fail_it(api):
    view = view_one(members(api, 9), gang(api, 4))
    assert view.startable
    assert [(role.members_min, len(role.members)) for role in view.roles] == [(4, 9)]


@every_dialect
def test_case_9_what_can_never_be_enough_is_known_at_once(api):
    view = view_one(going(api, {"seated": 1, "waiting": 2}), gang(api, 4))
    assert tell_gang(view).word == "GangIncomplete"


@pytest.mark.parametrize(("mode", "startable"), [("Strict", False), ("NonStrict", True)])
def test_case_10_strict_gangs_are_not_judged_before_all_have_come(mode, startable):
    prefix = "gang.scheduling.koordinator.sh/"
    total = {"meta": {"annotations": {f"{prefix}total-number": "6", f"{prefix}mode": mode}}}
    view = view_one(members(KOORDINATOR, 4), gang(KOORDINATOR, 4, **total))
    assert (view.startable, view.missing) == (startable, 0 if startable else 2)
    assert view_one(members(KOORDINATOR, 6), gang(KOORDINATOR, 4, **total)).startable


def test_case_10_a_total_below_the_minimum_is_repaired():
    total = {"meta": {"annotations": {"gang.scheduling.koordinator.sh/total-number": "2"}}}
    view = view_one(members(KOORDINATOR, 4), gang(KOORDINATOR, 4, **total))
    assert (view.said.members_total, view.startable) == (4, True)


# --- barrier and deadlock --------------------------------------------------------------------------


@every_dialect
def test_case_11_gangs_whose_pods_come_in_turns_are_kept_apart(api):
    pods = [each for i in range(2) for name in "ab" for each in members(api, 1, name, start=i)]
    views = view_all(pods, [gang(api, 2, "a"), gang(api, 2, "b")])
    assert [[member.name for member in view.members] for view in views.values()] == [["a-0", "a-1"], ["b-0", "b-1"]]


@pytest.mark.parametrize("api", [PLUGINS, KOORDINATOR])
@pytest.mark.parametrize(
    ("seconds", "taken"), [(None, None), (0, 0), (10, 10), (1500, 1500), (-1, None), (2**40, None)]
)
def test_case_12_a_time_out_is_one_of_the_gang_and_stops_nobody(api, seconds, taken):
    view = view_one(members(api, 2), gang(api, 2, **({} if seconds is None else {"scheduleTimeoutSeconds": seconds})))
    assert (view.said.timeout_s, view.startable) == (taken, True)


@every_dialect
def test_case_13_a_member_that_is_deleted_while_it_waits_is_out_at_once(api):
    pods = members(api, 4)
    assert view_one(pods, gang(api, 4)).startable
    assert view_one(pods[:3], gang(api, 4)).missing == 1
    assert view_one([*pods[:3], *members(api, 1, start=3, meta={"deletionTimestamp": NOW})], gang(api, 4)).missing == 1


@every_dialect
def test_case_14_every_member_is_told_the_one_cause(api):
    pods = members(api, 2)
    view = view_one(pods, gang(api, 2))
    tiding = tell_gang(view, Code.CAPACITY, "needs room for 2 members, free resources hold 1", 2, 1)
    told = {
        patch_pod(each, make_member(each, NOWHERE), view, tiding, NOW).body["status"]["conditions"][0]["message"]
        for each in pods
    }
    assert told == {"gang team/g: Capacity: needs room for 2 members, free resources hold 1"}


@every_dialect
def test_case_14_a_member_that_is_refused_is_the_cause_for_all(api):
    pods = [*members(api, 1), *members(api, 1, start=1, resourceClaims=[{"name": "gpu"}])]
    tiding = tell_gang(view_one(pods, gang(api, 2)))
    assert tiding.word == "Unsupported"
    assert tiding.message.startswith("Pod g-1: spec.resourceClaims")


@pytest.mark.parametrize(("api", "needed"), [(KOORDINATOR, 0), (NATIVE, 0), (PLUGINS, 0), (VOLCANO, 0)])
def test_case_15_after_the_first_success_a_pod_that_could_not_be_bound_retries_by_itself(api, needed):
    view = view_one(going(api, {"seated": 4, "waiting": 1}), gang(api, 4))
    assert (view.outstanding, least_of(view)) == (needed, [0])


@every_dialect
@pytest.mark.parametrize(
    ("field", "value"), [("priority", 1), ("schedulerName", "other"), ("preemptionPolicy", "Never")]
)
def test_case_16_members_that_contradict_each_other_stop_the_whole_gang(api, field, value):
    view = view_one([*members(api, 2), *members(api, 1, start=2, **{field: value})], gang(api, 2))
    assert said(view.blockers) == [("Invalid", f"spec.{field}")]


def test_case_16_also_those_that_are_bound_already():
    view = view_one([*going(NATIVE, {"seated": 1}), *members(NATIVE, 1, start=1, priority=9)], gang(NATIVE, 2))
    assert said(view.blockers) == [("Invalid", "spec.priority")]


@every_dialect
def test_case_17_a_gang_of_which_a_part_is_created_later_says_how_many_it_waits_for(api):
    """A launcher that is made when the others run, in one static gang with them: nobody else can know that."""
    tiding = tell_gang(view_one(members(api, 3), gang(api, 4)))
    assert (tiding.word, tiding.needed, tiding.available) == ("GangIncomplete", 4, 3)
    assert "1 more must be created" in tiding.message


def test_case_18_a_group_without_pods_is_let_in_so_that_its_pods_are_made():
    group = gang(VOLCANO, 4)
    view = view_one([], group)
    assert patch_group(group, view, tell_gang(view), NOW).body["status"]["phase"] == "Inqueue"


@pytest.mark.parametrize(
    ("code", "told"),
    [(Code.CAPACITY, True), (Code.FRAGMENTATION, True), (Code.TOPOLOGY, True), (Code.INFEASIBLE, True),
     (Code.NODE_CONSTRAINT, True), (Code.QUEUE_LIMIT, False), (Code.BEHIND, False), (Code.RESERVED, False)],
)  # fmt: skip
def test_case_18_an_autoscaler_sees_members_of_gangs_that_lack_room_and_no_others(code, told):
    (each,) = members(PLUGINS, 1)
    view = view_one([each], gang(PLUGINS, 1))
    patch = patch_pod(each, make_member(each, NOWHERE), view, tell_gang(view, code, "words"), NOW)
    assert (patch is not None) is told
    assert not told or patch.body["status"]["conditions"][0]["reason"] == "Unschedulable"


# --- topology and replacement ------------------------------------------------------------------------


@every_dialect
def test_case_34_a_replacement_knows_the_nodes_of_its_siblings(api):
    pods = [*members(api, 1, node="n3"), *members(api, 2, start=1, node="n1"), *members(api, 1, start=3)]
    assert view_one(pods, gang(api, 4)).anchors == ("n3", "n1")


def test_case_35_a_level_that_several_gangs_must_share_is_refused_and_not_ignored():
    prefix = "gang.scheduling.koordinator.sh/"
    spec = '{"gatherStrategy": [{"layer": "rack", "strategy": "MustGather"}]}'
    both = {
        "meta": {"annotations": {f"{prefix}groups": '["team/a", "team/b"]', f"{prefix}network-topology-spec": spec}}
    }
    views = view_all(
        [*members(KOORDINATOR, 1, "a"), *members(KOORDINATOR, 1, "b")],
        [gang(KOORDINATOR, 1, "a", **both), gang(KOORDINATOR, 1, "b", **both)],
    )
    for view in views.values():
        assert said(view.blockers) == [("Unsupported", f"metadata.annotations[{prefix}network-topology-spec]")]


@pytest.mark.parametrize(
    "written",
    [
        lambda index: {"annotations": {"gang.scheduling.koordinator.sh/network-topology-index": str(index)}},
        lambda index: {"annotations": {"batch.kubernetes.io/job-completion-index": str(index)}},
        lambda index: {"labels": {"batch.kubernetes.io/job-completion-index": str(index)}},
        lambda index: {"labels": {"training.kubeflow.org/replica-index": str(index)}},
        lambda index: {"labels": {"apps.kubernetes.io/pod-index": str(index)}},
    ],
)
def test_case_36_ranks_follow_the_number_and_then_the_name(written):
    rest = {"labels": {"pod-group.scheduling.sigs.k8s.io": "g"}}
    pods = []
    for name, index in [("x", 10), ("y", 9), ("b-10", None), ("b-9", None), ("z", 0)]:
        more = written(index) if index is not None else {}
        labels = {**rest["labels"], **more.get("labels", {})}
        pods.append(pod(name, labels=labels, annotations=more.get("annotations", {})))
    view = view_one(pods, gang(KOORDINATOR, 5))
    assert [member.name for member in view.members] == ["z", "y", "x", "b-9", "b-10"]


@pytest.mark.parametrize("index", ["-1", "one", "1.5", "9" * 30, ""])
def test_case_36_a_number_that_cannot_be_read_is_none(index):
    key = "gang.scheduling.koordinator.sh/network-topology-index"
    pods = [
        pod(name, labels={"pod-group.scheduling.sigs.k8s.io": "g"}, annotations={key: number})
        for name, number in [("a", index), ("b", "0")]
    ]
    assert [member.name for member in view_one(pods, gang(KOORDINATOR, 2)).members] == ["b", "a"]


def test_case_37_minimums_of_tasks_count_only_if_the_gang_asks_for_as_many():
    naming = "scheduling.k8s.io/group-name"
    pods = [pod(f"w{i}", annotations={naming: "g", "volcano.sh/task-spec": "worker"}) for i in range(2)]
    strict = view_one(pods, gang(VOLCANO, 4, minTaskMember={"worker": 4}))
    assert (strict.startable, strict.missing) == (False, 2)
    loose = view_one(pods, gang(VOLCANO, 1, minTaskMember={"worker": 4}))
    assert (loose.startable, loose.outstanding) == (True, 1)
    assert said(loose.remarks) == [("Notice", "spec.minTaskMember")]


def test_the_page_and_the_tests_speak_of_the_same_cases(repo_root):
    page = (repo_root / "docs" / "kubernetes-corner-cases.md").read_text()
    listed = [int(number) for number in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)]
    tested = {int(number) for name in globals() for number in re.findall(r"^test_case_(\d+)_", name)}
    assert listed == [*range(1, 19), *range(34, 38)]
    assert tested == set(listed)
