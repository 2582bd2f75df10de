"""Koordinator: gangs by PodGroup and annotations, or by annotations of pods alone."""

import json

import pytest
from kube_objects import KOORDINATOR, gang, members, pod, said, view_all, view_one

from phalanx.frontends.kube.gang_groups import check_group, check_groups
from phalanx.frontends.kube.gang_view import Dialect, GangKey, MatchPolicy

PREFIX = "gang.scheduling.koordinator.sh/"


def annotated(count=2, name="g", *, created=None, **annotations):
    """Pods that are a gang by annotations only; underscores stand for hyphens."""
    found = {
        f"{PREFIX}{key.replace('_', '-')}": value
        for key, value in {"name": name, "min_available": "2", **annotations}.items()
    }
    meta = {"creationTimestamp": created} if created else {}
    return [pod(f"{name}-{i}", annotations=found, meta=meta) for i in range(count)]


def grouped(**annotations):
    found = {f"{PREFIX}{key.replace('_', '-')}": value for key, value in annotations.items()}
    return gang(KOORDINATOR, 2, meta={"annotations": found})


BOTH = [lambda **more: view_one(annotated(**more)), lambda **more: view_one(members(KOORDINATOR, 2), grouped(**more))]
both = pytest.mark.parametrize("make", BOTH, ids=["annotations", "object"])


def test_annotations_alone_make_a_gang():
    view = view_one(annotated())
    assert (view.key, view.startable) == (GangKey(Dialect.KOORDINATOR, "team", "g"), True)
    assert (view.outstanding, view.said.match, view.said.strict) == (2, MatchPolicy.ONCE_SATISFIED, True)


@pytest.mark.parametrize(
    "naming",
    [
        {
            "labels": {
                "pod-group.scheduling.sigs.k8s.io/name": "g",
                "pod-group.scheduling.sigs.k8s.io/min-available": "2",
            }
        },
        {"labels": {"pod-group.scheduling.sigs.k8s.io/name": "g"}, "annotations": {f"{PREFIX}min-available": "2"}},
    ],
)
def test_the_labels_that_came_before_make_one_too(naming):
    view = view_one([pod("a", **naming), pod("b", **naming)])
    assert (view.key.dialect, view.said.members_min, view.startable) == (Dialect.KOORDINATOR, 2, True)


def test_the_label_of_the_object_goes_before_its_name_in_annotations():
    naming = {"labels": {"pod-group.scheduling.sigs.k8s.io": "a"}, "annotations": {f"{PREFIX}name": "b"}}
    assert list(map(str, view_all([pod("p", **naming)]))) == ["team/a"]


@pytest.mark.parametrize("least", ["", "two", "1.5", "1e3", "0", "-3", "99999999999999999999", "\u0663"])
def test_a_minimum_that_is_no_number_is_told(least):
    view = view_one(annotated(min_available=least))
    assert said(view.blockers) == [("Invalid", f"metadata.annotations[{PREFIX}min-available]")]


@both
@pytest.mark.parametrize(
    ("written", "policy"),
    [
        ("once-satisfied", MatchPolicy.ONCE_SATISFIED),
        ("only-waiting", MatchPolicy.ONLY_WAITING),
        ("waiting-and-running", MatchPolicy.WAITING_AND_RUNNING),
    ],
)
def test_the_three_match_policies(make, written, policy):
    assert make(match_policy=written).said.match is policy


def test_the_match_policy_has_another_key():
    pods = annotated()
    alias = {"pod-group.scheduling.sigs.k8s.io/match-policy": "only-waiting"}
    pods = [pod(each.metadata.name, annotations={**each.metadata.annotations, **alias}) for each in pods]
    assert view_one(pods).said.match is MatchPolicy.ONLY_WAITING


@both
@pytest.mark.parametrize(
    ("key", "written", "taken"),
    [
        ("mode", "Relaxed", ("strict", True)),
        ("match_policy", "sometimes", ("match", MatchPolicy.ONCE_SATISFIED)),
        ("total_number", "many", ("members_total", 2)),
        ("total_number", "1", ("members_total", 2)),
    ],
)
def test_what_koordinator_corrects_silently_is_corrected_and_told(make, key, written, taken):
    view = make(**{key: written})
    assert getattr(view.said, taken[0]) == taken[1]
    assert said(view.remarks) == [("Notice", f"metadata.annotations[{PREFIX}{key.replace('_', '-')}]")]
    assert view.startable


@both
def test_a_gang_may_be_non_strict(make):
    assert not make(mode="NonStrict").said.strict


@pytest.mark.parametrize(
    ("written", "seconds"), [("600s", 600), ("10m", 600), ("1h30m", 5400), ("1.5h", 5400), ("1500ms", 2), ("", None)]
)
def test_spans_of_time_as_go_writes_them(written, seconds):
    view = view_one(annotated(waiting_time=written))
    assert (view.said.timeout_s, view.remarks) == (seconds, ())


@pytest.mark.parametrize("written", ["90", "2d", "-5m", "soon", "9" * 40 + "h", "1h 30m"])
def test_what_is_no_span_of_time_is_told_and_left_out(written):
    view = view_one(annotated(waiting_time=written))
    assert view.said.timeout_s is None
    assert said(view.remarks) == [("Notice", f"metadata.annotations[{PREFIX}waiting-time]")]
    assert view.startable


def test_the_first_pod_speaks_for_its_gang_and_the_others_are_told():
    late = annotated(1, min_available="9", created="2026-01-02T00:00:00Z")
    early = [
        pod(
            "z",
            annotations={f"{PREFIX}name": "g", f"{PREFIX}min-available": "1"},
            meta={"creationTimestamp": "2026-01-01T00:00:00Z"},
        )
    ]
    view = view_one([*late, *early])
    assert view.said.members_min == 1
    assert said(view.remarks) == [("Notice", f"metadata.annotations[{PREFIX}min-available]")]


def test_the_queue_is_the_quota():
    pods = members(
        KOORDINATOR, 1, labels={"pod-group.scheduling.sigs.k8s.io": "g", "quota.scheduling.koordinator.sh/name": "ml"}
    )
    assert view_one(pods, gang(KOORDINATOR, 1)).said.queue == "ml"


# --- the network -----------------------------------------------------------------------------------


@both
def test_layers_of_the_network(make):
    rules = [
        {"layer": "block", "strategy": "MustGather"},
        {"layer": "rack", "strategy": "PreferGather", "podCountMultiple": 4},
    ]
    topology = make(network_topology_spec=json.dumps({"gatherStrategy": rules})).said.topology
    assert [level.name for level in topology.require] == ["block"]
    assert [level.name for level in topology.prefer] == ["rack"]
    assert [(size, level.name) for size, level in topology.segments] == [(4, "rack")]


@both
@pytest.mark.parametrize(
    "written",
    [
        "{", "[]", "{}", '{"gatherStrategy": [{"layer": "rack"}]}', '{"gatherStrategy": [{"strategy": "MustGather"}]}',
        '{"gatherStrategy": [{"layer": "rack", "strategy": "MustGather", "podCountMultiple": 0}]}',
        '{"gatherStrategy": [{"layer": "rack", "strategy": "MustGather", "podCountMultiple": 9999999999}]}',
    ],
)  # fmt: skip
def test_layers_that_cannot_be_read_are_told(make, written):
    view = make(network_topology_spec=written)
    assert said(view.blockers) == [("Invalid", f"metadata.annotations[{PREFIX}network-topology-spec]")]


# --- gangs of one group ----------------------------------------------------------------------------


def group_of(*names):
    return {"groups": json.dumps([f"team/{name}" for name in names])}


def test_gangs_of_one_group_know_each_other_by_one_word():
    from phalanx.frontends.kube.gang_groups import together_word

    views = view_all([*annotated(name="a", **group_of("a", "b")), *annotated(name="b", **group_of("b", "a"))])
    assert [view.startable for view in views.values()] == [True, True]
    assert {together_word(view) for view in views.values()} == {"koordinator:team/a+koordinator:team/b"}


def test_a_group_of_itself_is_no_group():
    assert view_one(annotated(**group_of("g"))).said.together == ()


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ('["other/x"]', "another namespace"),
        ('["team/UPPER"]', "team/UPPER"),
        ('["x"]', "names 'x'"),
        ('["team/a/b"]', "team/a/b"),
        ("team/x", "no JSON list"),
        ('{"team": "x"}', "no JSON list"),
        ("[1]", "no JSON list"),
        (json.dumps([f"team/x{i}" for i in range(1001)]), "no JSON list"),
    ],
)
def test_groups_that_make_no_sense_are_told(written, says):
    view = view_one(annotated(groups=written))
    assert view.blockers[0].field == f"metadata.annotations[{PREFIX}groups]"
    assert says in view.blockers[0].says
    assert not view.startable


def test_a_gang_that_is_not_there_is_waited_for():
    view = view_one(annotated(name="a", **group_of("a", "b")))
    assert said(view.blockers) == [("NotYet", "groups")]


def test_a_circle_of_groups_is_told_to_all_of_it():
    views = view_all([
        *annotated(name="a", **group_of("b")), *annotated(name="b", **group_of("c")), *annotated(name="c", **group_of("a")),
    ])  # fmt: skip
    for view in views.values():
        ((kind, _),) = said(view.blockers)
        assert kind == "Invalid"
        assert "circle: team/a → team/b → team/c → team/a" in view.blockers[0].says or "circle" in view.blockers[0].says


def test_a_gang_whose_group_does_not_name_it_back_is_told():
    views = view_all([*annotated(name="a", **group_of("b")), *annotated(name="b")])
    by_name = {key.name: view for key, view in views.items()}
    assert said(by_name["a"].blockers) == [("Invalid", "groups")]
    assert by_name["b"].startable


def test_gangs_of_one_group_share_a_queue():
    queue = {"quota.scheduling.koordinator.sh/name": "ml"}
    a = [
        pod(each.metadata.name, annotations=each.metadata.annotations, labels=queue)
        for each in annotated(name="a", **group_of("b"))
    ]
    views = view_all([*a, *annotated(name="b", **group_of("a"))])
    assert [said(view.blockers) for view in views.values()] == [[("Invalid", "groups")]] * 2


def test_ten_thousand_gangs_in_a_string_cost_no_time():
    pods = [each for i in range(2000) for each in annotated(1, name=f"g{i}", **group_of(f"g{i + 1}"))]
    views = view_all(pods)
    assert not any(view.startable for view in views.values())


class AskedByKey(dict):
    """All gangs of a cluster, which nobody may go through for the sake of one."""

    def __iter__(self):
        raise AssertionError("one by one")

    keys = values = items = __iter__


def test_for_one_gang_only_those_are_looked_at_whom_it_names():
    pods = [each for name in "abc" for each in annotated(name=name, **group_of("a", "b"))]
    views = view_all(pods)
    by_name = {key.name: view for key, view in views.items()}
    everybody = AskedByKey(views)
    assert check_group(by_name["a"], everybody) == ()
    ((kind, field),) = said(check_group(by_name["c"], everybody))
    assert (kind, field) == ("Invalid", "groups")
    assert check_groups([*views.values()])[by_name["c"].key] == check_group(by_name["c"], everybody)
