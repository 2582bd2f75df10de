"""What a scheduler answers: rows, reasons, forecasts, what a manifest would come to, and what it says no with."""

from __future__ import annotations

import asyncio
import gc
import json
import re

import click
import pytest
import yaml
from kube_objects import NAMING, NATIVE, gang, node
from unit.kube.answering_world import GPU, World, gpu_pod

from phalanx.cli.kube import kube_fits, kube_listing, kube_pictures, kube_whys
from phalanx.control.restore import read_state, restore_state
from phalanx.control.state import State
from phalanx.frontends.kube.answers import fitting
from phalanx.frontends.kube.answers.kube_replies import AnswerError
from phalanx.frontends.kube.answers.manifest_reading import read_manifests
from phalanx.frontends.kube.gang_view import Dialect
from phalanx.frontends.kube.kube_door import BODY_BYTES_MAX


def answer(world, path, **query):
    return asyncio.run(world.ask(path, **query))


def good(world, path, **query):
    status, told = answer(world, path, **query)
    assert status == 200, told
    return told


def refused(world, path, **query):
    status, told = answer(world, path, **query)
    assert status >= 400
    assert told["error"]["message"]
    assert told["error"]["hint"]
    return status, told["error"]


def page(told):
    return click.unstyle("\n".join(kube_whys.lines_of(told)))


def native(world, name, count, gpus=8, **more):
    world.add(gang(NATIVE, count, name), dialect=Dialect.NATIVE)
    world.add(*(gpu_pod(f"{name}-{at}", gpus, **NAMING[NATIVE](name), **more) for at in range(count)))


@pytest.fixture
def full():
    """32 GPUs: `a` has 24 for an hour, `b` wants 16, `c` one of the 8 that are free, `d` more than there are."""
    world = World()
    native(world, "a", 3, activeDeadlineSeconds=3600)
    native(world, "b", 2)
    native(world, "c", 1, gpus=4)
    native(world, "d", 5)
    return world


def rows_of(world, **query):
    return {row["name"]: row for row in good(world, "/v1/gangs", **query)["gangs"]}


def test_rows_say_how_far_each_is_and_why(full):
    rows = rows_of(full)
    assert {name: row["state"] for name, row in rows.items()} == {
        "a": "bound",
        "b": "pending",
        "c": "bound",
        "d": "infeasible",
    }
    assert (rows["a"]["bound"], rows["a"]["wanted"], rows["a"]["nodes"]) == (3, 3, {"n0": 1, "n1": 1, "n2": 1})
    reason = rows["b"]["reason"]
    assert reason["code"] == "Capacity"
    assert reason["message"] == "needs 16 GPUs at once, 4 of 32 free: team/a holds 24, team/c holds 4"
    assert (rows["b"]["ahead"]["gangs"], rows["d"]["ahead"]) == (0, None)
    assert rows["b"]["eta"]["at"].startswith("2026-11-19T")
    assert rows["b"]["eta"]["hangs_on"].startswith("when team/")


def test_those_that_run_stand_first_and_those_that_never_can_last(full):
    assert [row["name"] for row in good(full, "/v1/gangs")["gangs"]] == ["a", "c", "b", "d"]


def test_rows_of_one_namespace(full):
    assert rows_of(full, namespace="team").keys() == {"a", "b", "c", "d"}
    assert rows_of(full, namespace="other") == {}


def test_the_table_as_people_read_it(full):
    rows = good(full, "/v1/gangs")["gangs"]
    shown = {row["name"]: [column.show(row) for column in kube_listing.COLUMNS] for row in rows}
    assert shown["a"][:5] == ["team", "a", "native", "bound", "3/3"]
    assert "Capacity: needs 16 GPUs at once" in shown["b"][-1]
    assert shown["d"][-1].startswith("Infeasible: can never run here: the cluster holds 4 of 5 members")
    assert kube_listing.members({"bound": 4, "wanted": 6, "members_min": 4, "dialect": "native"}) == "4/6 (min 4)"


def test_a_table_for_programs_has_whole_numbers_of_gpus_whole(full):
    (column,) = (each for each in kube_listing.COLUMNS if each.name == "gpus")
    rows = rows_of(full)
    assert (column.value(rows["a"]), column.value({**rows["a"], "gpus": 0.5})) == ("24", "0.5")


def test_pods_of_others_are_told_among_those_who_hold_devices(full):
    full.planner.set_others("n3", {"cpu": 1000, GPU: 2000})
    says = rows_of(full)["b"]["reason"]["message"]
    assert says == "needs 16 GPUs at once, 2 of 32 free: team/a holds 24, team/c holds 4; pods of others hold 2"


def test_why_names_who_is_ahead_and_which_nodes_are_out(full):
    native(full, "e", 2)
    told = good(full, "/v1/why", namespace="team", gang="e")
    assert told["gang"]["ahead"] == {"gangs": 1, "gpus": 16.0, "first": ["team/b"]}
    (funnel,) = told["funnels"]
    assert (funnel["nodes"], funnel["full"], funnel["roomy"]) == (4, 4, 0)
    text = page(told)
    assert "team/e  PENDING" in text
    assert "needs 16 GPUs as 2 x 8" in text
    assert "AHEAD       1 gang, 16 GPUs  team/b" in text
    assert "NODES       of 4 nodes: 4 with less than 8 GPUs free" in text
    assert "STARTS" in text


def test_why_of_one_that_can_never_run_says_no_start(full):
    text = page(good(full, "/v1/why", namespace="team", gang="d"))
    assert "INFEASIBLE" in text
    assert "STARTS" not in text
    assert "PASSING" not in text


def test_a_gang_is_found_by_the_name_of_a_pod_and_with_its_namespace(full):
    for name in ("b-1", "team/b", "native:team/b", "pod/b-1", "podgroup/b", "podgroups.scheduling.k8s.io/b"):
        assert good(full, "/v1/why", namespace="team", gang=name)["gang"]["name"] == "b"


@pytest.mark.parametrize(
    ("namespace", "name", "hint"),
    [("team", "bb", "did you mean b?"), ("other", "b", "there is team/b: -n names its namespace"), ("x", "y", "ps -A")],
)
def test_a_name_that_nobody_has(full, namespace, name, hint):
    status, error = refused(full, "/v1/why", namespace=namespace, gang=name)
    assert (status, error["code"]) == (404, "not_found")
    assert hint in error["hint"]


def test_two_gangs_of_one_name_in_two_dialects_are_told_apart(full):
    full.add(gpu_pod("a", 1))
    status, error = refused(full, "/v1/why", namespace="team", gang="a")
    assert (status, error["hint"]) == (409, "name one: native:team/a, plain:team/a")
    assert good(full, "/v1/why", namespace="team", gang="plain:team/a")["gang"]["dialect"] == "plain"


def test_a_gang_that_is_refused_names_its_field(full):
    full.add(gang(NATIVE, 0, "bad"), dialect=Dialect.NATIVE)
    full.add(gpu_pod("bad-0", **NAMING[NATIVE]("bad")))
    told = good(full, "/v1/why", namespace="team", gang="bad")
    assert told["gang"]["state"] == "refused"
    assert told["gang"]["reason"]["field"] == "spec.schedulingPolicy.gang.minCount"
    assert "BLOCKED BY  InvalidSpec" in page(told)


def test_what_holds_all_members_is_told_once_and_nobody_guesses_a_start(full):
    full.add(gang(NATIVE, 3, "held"), dialect=Dialect.NATIVE)
    gates = [{"name": "example.com/wait"}]
    full.add(*(gpu_pod(f"held-{at}", **NAMING[NATIVE]("held"), schedulingGates=gates) for at in range(3)))
    told = good(full, "/v1/why", namespace="team", gang="held")
    assert (told["gang"]["reason"]["code"], told["blockers"]) == ("Held", [])
    text = page(told)
    assert "whoever set the gate takes it away" in text
    assert "STARTS" not in text
    assert "MEMBERS     0/3: 3 held" in text


def test_nodes_are_out_for_the_plainest_reason():
    world = World(6)
    for name, spec, labels in (
        ("n0", {"unschedulable": True}, {"disk": "ssd"}),
        ("n1", {"taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}]}, {"disk": "ssd"}),
        ("n2", {}, {}),
    ):
        status = {"allocatable": {"cpu": "96", "memory": "1Ti", "pods": "110", GPU: "8"}}
        world.put_node(node(name, labels=labels, spec=spec, status=status))
    small = {"allocatable": {"cpu": "1", "memory": "1Ti", "pods": "110", GPU: "4"}}
    for at in (3, 4, 5):
        status = small if at == 3 else {"allocatable": {**small["allocatable"], GPU: "8"}}
        world.put_node(node(f"n{at}", labels={"disk": "ssd"}, status=status))
    world.planner.set_others("n4", {GPU: 1000})
    world.add(gang(NATIVE, 2, "g"), dialect=Dialect.NATIVE)
    chosen = {"nodeSelector": {"disk": "ssd"}, **NAMING[NATIVE]("g")}
    world.add(*(gpu_pod(f"g-{at}", **chosen) for at in range(2)))
    told = good(world, "/v1/why", namespace="team", gang="g")
    (funnel,) = told["funnels"]
    counts = [funnel[key] for key in ("nodes", "closed", "unselected", "tainted", "too_small", "full", "roomy")]
    assert counts == [6, 1, 1, 1, 1, 1, 1]
    assert "1 cordoned or not ready" in funnel["message"]
    assert "1 with taints that it does not tolerate (team=a:NoSchedule)" in funnel["message"]


def test_a_gang_that_lost_members_is_degraded():
    whole = {"conditions": [{"type": "PodGroupInitiallyScheduled", "status": "True"}]}
    world = World(2)
    world.add(gang(NATIVE, 3, "g", status=whole), dialect=Dialect.NATIVE)
    world.add(*(gpu_pod(f"g-{at}", node=f"n{at}", **NAMING[NATIVE]("g")) for at in range(2)))
    for at in range(2):
        world.planner.set_others(f"n{at}", {GPU: 8000})
    world.add(gpu_pod("g-2", **NAMING[NATIVE]("g")))
    row = rows_of(world)["g"]
    assert (row["state"], row["bound"], row["wanted"], row["reason"]["code"]) == ("degraded", 2, 3, "Capacity")


def test_who_passes_is_told_by_rule():
    world = World(2)
    native(world, "a", 1, activeDeadlineSeconds=7200)
    native(world, "b", 2)
    native(world, "c", 1, gpus=8, activeDeadlineSeconds=60)
    native(world, "d", 1, activeDeadlineSeconds=60)
    told = good(world, "/v1/why", namespace="team", gang="b")
    (passing,) = told["passed_by"]
    # `c` started at once: it is done before `b` could start. `d` does the same after it.
    assert passing.startswith("team/d will pass: done before this gang's reservation")
    assert passing.endswith("(fill: arrival)")
    assert rows_of(world)["c"]["state"] == "bound"
    assert "PASSING     team/d will pass" in page(told)


def test_a_gang_that_came_since_the_last_look_is_found(full):
    rows_of(full)
    native(full, "new", 1, gpus=1)
    assert good(full, "/v1/why", namespace="team", gang="new")["gang"]["state"] == "bound"


def test_the_picture_has_a_row_for_each_gang(full):
    told = good(full, "/v1/gantt")
    assert {bar["gang"]: bar["kind"] for bar in told["bars"]} == {
        "team/a": "running",
        "team/c": "running",
        "team/b": "forecast",
    }
    text = "\n".join(kube_pictures.draw(told))
    assert "team/a" in text
    assert "16 GPUs" in text
    assert kube_pictures.draw({**told, "bars": []}) == [
        "nothing runs, and nothing waits that is expected to start; -A looks at all namespaces"
    ]


def test_a_dump_is_loaded_with_everybody_in_it(full, tmp_path):
    full.planner.set_others("n3", {"cpu": 1000, GPU: 2000})
    status, told = answer(full, "/v1/state")
    assert (status, told["schema"]) == (200, "phalanx.state/1")
    (tmp_path / "state.json").write_text(json.dumps(told))
    state = restore_state(read_state(tmp_path / "state.json")).state
    assert {gang.name for gang in state.gangs} >= {"native:team/a", "native:team/b"}
    # What pods of others take is not there at all; what ours hold is.
    at = state.fleet.index_by_name["n3"]
    assert state.fleet.capacity[at, state.fleet.kind_index[GPU]] == 6000


# ---- fit


def manifests(*trees):
    return yaml.safe_dump_all(trees).encode()


def job(name="j", count=2, gpus=8, group=None, **spec):
    container = {"name": "main", "resources": {"limits": {GPU: gpus}}}
    named = {"schedulingGroup": {"podGroupName": group}} if group else {}
    template = {"spec": {"schedulerName": "phalanx", "containers": [container], **named, **spec}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"parallelism": count, "template": template},
    }


def native_group(name, least):
    return {
        "apiVersion": NATIVE,
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": {"gang": {"minCount": least}}},
    }


def fits(world, *trees, namespace="team"):
    return good(world, "/v1/fit", method="POST", body=manifests(*trees), namespace=namespace)


def test_a_job_that_fits_says_where_and_nothing_is_changed():
    world = World()
    before = world.planner.state.list_names()
    (row,) = fits(world, native_group("g", 3), job("j", 3, group="g"))["gangs"]
    assert (row["verdict"], row["name"], row["members"], row["nodes"]) == ("now", "g", 3, {"n0": 1, "n1": 1, "n2": 1})
    assert world.planner.state.list_names() == before
    assert rows_of(world) == {}
    assert "FITS NOW" in "\n".join(kube_fits.lines_of(row))


@pytest.mark.parametrize(
    ("count", "gpus", "verdict", "code"),
    [(2, 8, "later", "Capacity"), (5, 8, "never", "Infeasible"), (1, 9, "never", "Infeasible")],
)
def test_a_job_that_does_not(full, count, gpus, verdict, code):
    (row,) = fits(full, native_group("g", count), job("j", count, gpus, group="g"))["gangs"]
    assert (row["verdict"], row["reason"]["code"]) == (verdict, code)
    assert code in "\n".join(kube_fits.lines_of(row))


def test_what_pods_say_and_nobody_honours_is_refused_by_name():
    (row,) = fits(World(), job(count=1, volumes=[{"name": "v", "ephemeral": {}}]))["gangs"]
    assert row["verdict"] == "refused"
    assert row["reason"]["field"].startswith("spec.volumes")


@pytest.mark.parametrize("grouped", [True, False])
def test_a_priority_class_that_is_not_there_is_refused_as_the_server_does(grouped):
    trees = [native_group("g", 2), job("j", 2, group="g")] if grouped else [job("j", 2)]
    trees[-1]["spec"]["template"]["spec"]["priorityClassName"] = "nonesuch"
    told = fits(World(), *trees)
    assert {row["verdict"] for row in told["gangs"]} == {"refused"}
    row = told["gangs"][0]
    assert (row["reason"]["code"], row["reason"]["field"]) == ("InvalidSpec", "spec.priorityClassName")
    assert "'nonesuch', which does not exist" in row["reason"]["message"]
    assert row["nodes"] == {}


def test_a_priority_class_may_come_with_the_file():
    tree = job("j", 1, priorityClassName="mine")
    brought = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "mine"}, "value": 7}
    assert [row["verdict"] for row in fits(World(), tree, brought)["gangs"]] == ["now"]


def test_a_group_without_enough_pods_would_wait_for_them():
    (row,) = fits(World(), native_group("g", 3), job("j", 2, group="g"))["gangs"]
    assert (row["verdict"], row["reason"]["code"]) == ("incomplete", "GangIncomplete")


def test_pods_of_another_scheduler_are_told_about():
    tree = job(count=1)
    del tree["spec"]["template"]["spec"]["schedulerName"]
    told = fits(World(), tree, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}})
    assert [each["verdict"] for each in told["gangs"]] == ["now"]
    assert any("name no scheduler" in each for each in told["notices"])
    assert any(each.startswith("Service: not looked at") for each in told["notices"])


def test_a_gang_of_that_name_is_there_already(full):
    (row,) = fits(full, native_group("c", 1), job("c", 1, 1, group="c"))["gangs"]
    assert row["verdict"] in ("now", "later")
    assert "there is a gang team/c already" in row["notices"][0]


def test_pods_that_fare_alike_are_told_once():
    told = fits(World(), job(count=6, gpus=8))
    assert [row["verdict"] for row in told["gangs"]] == ["now"] * 4 + ["later"] * 2
    text = click.unstyle("\n".join(kube_fits.page(told)))
    assert text.count("FITS NOW") == text.count("WOULD WAIT") == 1
    assert "ALIKE       3 more, up to j-3" in text
    assert "ALIKE       1 more, up to j-5" in text


def test_gangs_stand_as_in_the_file():
    told = fits(World(), job("z", 12, 1), native_group("a", 2), job("y", 2, 1, group="a"))
    assert [row["name"] for row in told["gangs"]] == [*(f"z-{at}" for at in range(12)), "a"]


def replicas(count, **more):
    container = {"name": "main", "resources": {"limits": {GPU: 1}}}
    return {"replicas": count, "template": {"spec": {"schedulerName": "phalanx", "containers": [container]}}, **more}


@pytest.mark.parametrize(
    ("tree", "gangs"),
    [
        ({"apiVersion": "apps/v1", "kind": "Deployment", "spec": replicas(3)}, [("plain", 1)] * 3),
        (
            {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": {"Master": replicas(1), "Worker": replicas(3)}}},
            [("scheduler-plugins", 4)],
        ),
        (
            {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "spec": {"minAvailable": 3, "tasks": [replicas(4, name="w")]}},
            [("volcano", 4)],
        ),
        (
            {
                "apiVersion": "jobset.x-k8s.io/v1alpha2",
                "kind": "JobSet",
                "spec": {"replicatedJobs": [{"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 2, "template": replicas(1)["template"]}}}]},
            },
            [("plain", 1)] * 4,
        ),
    ],
    ids=["deployment", "pytorch", "volcano", "jobset"],
)  # fmt: skip
def test_what_makes_pods_of_a_template(tree, gangs):
    told = fits(World(), {**tree, "metadata": {"name": "x"}})
    assert [(row["dialect"], row["members"]) for row in told["gangs"]] == gangs
    assert {row["verdict"] for row in told["gangs"]} == {"now"}


BILLION = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: [*b,*b,*b,*b]\n"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "nothing that makes pods"),
        (b"\xff\xfe\x00", "no text in UTF-8"),
        (b"a: [", "cannot be read"),
        (b"just words", "an object is expected"),
        (b"- 1\n- 2\n", "an object is expected"),
        (b"[" * 100_000, "nested more deeply"),
        (b"{" + b'"a":{' * 100_000, "cannot be read|nested"),
        (BILLION.encode(), "the alias '\\*a' is not followed"),
        (b"kind: Pod\napiVersion: v1\nmetadata: 7\n", "metadata is no mapping"),
        (b"kind: Pod\napiVersion: v1\nspec: 7\n", "cannot be read"),
        (b"kind: Pod\napiVersion: v1\n? [1, 2]\n: x\n", "cannot be read"),
        (b"kind: RayCluster\napiVersion: ray.io/v1\n", "'?RayCluster'? of '?ray.io/v1'? is no kind that is read here"),
        (b"apiVersion: v1\nmetadata: {name: x}\n", "names no kind"),
        (b"kind: Job\napiVersion: batch/v1\nspec: {parallelism: 99999}\n", "more than 5,000 pods"),
        (b"kind: Job\napiVersion: batch/v1\nspec: {parallelism: two}\n", "parallelism is"),
        (b"kind: Job\napiVersion: batch/v1\nspec: {parallelism: -1}\n", "parallelism is"),
        (b"kind: Job\napiVersion: batch/v1\nspec: {template: 3}\n", "template is no mapping"),
        (b"kind: ConfigMap\napiVersion: v1\n", "nothing that makes pods"),
        (b"kind: PodGroup\napiVersion: scheduling.k8s.io/v1beta1\n", "groups, and no pods"),
        (b"kind: PodGroup\napiVersion: scheduling.k8s.io/v1beta1\nspec: 3\n", "cannot be read"),
        (b"---\n" * 3 + b"kind: Pod\n" * 2, "has no containers"),
        (b"kind: Pod\napiVersion: v1\nmetadata: {creationTimestamp: 2026-99-99}\n", "has no containers|cannot be read"),
    ],
)  # fmt: skip
def test_hostile_files_are_refused_in_words(body, says):
    world = World()
    status, told = answer(world, "/v1/fit", method="POST", body=body)
    assert status in (400, 413), told
    assert re.search(says, told["error"]["message"]), told
    assert told["error"]["hint"]
    assert world.events == []  # nothing was a surprise


@pytest.mark.parametrize(
    ("path", "method", "status", "says"),
    [
        ("/v1/nothing", "GET", 404, "there is nothing at"),
        ("/v1/fit", "GET", 400, "is asked with POST"),
        ("/v1/gangs", "DELETE", 400, "is asked with GET"),
        ("/v1/why", "GET", 400, "needs a gang"),
    ],
)
def test_questions_that_are_none(path, method, status, says):
    found, error = refused(World(), path, method=method)
    assert found == status
    assert says in error["message"]


def test_one_look_serves_many_for_as_long_as_it_is_good(full):
    async def many():
        return await asyncio.gather(*(full.ask("/v1/gangs") for _ in range(8)), full.ask("/v1/gantt"))

    replies = asyncio.run(many())
    assert [status for status, _ in replies] == [200] * 8 + [429]
    assert full.questions == 1


def test_a_failure_of_ours_is_logged_and_told_and_no_more(full, monkeypatch):
    monkeypatch.setattr(full, "take_picture", lambda: 1 / 0)
    status, error = refused(full, "/v1/gangs")
    assert (status, error["code"]) == (500, "internal")
    assert full.events[0][0] == "answer-failed"


def bare_pods(count):
    return [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p-{at}"}, "spec": BARE} for at in range(count)]


BARE = {"containers": [{"name": "main"}]}
CONFIG = {"apiVersion": "v1", "kind": "ConfigMap"}


def test_as_many_pods_are_read_as_the_page_says():
    body = json.dumps({"kind": "List", "items": [*bare_pods(5_000), *[CONFIG] * 5_000]}).encode()
    assert len(body) < BODY_BYTES_MAX
    assert len(read_manifests(body, "team", "phalanx", {}).pods) == 5_000


@pytest.mark.parametrize(
    ("items", "says"),
    [(bare_pods(5_001), "more than 5,000 pods"), ([CONFIG] * 10_001, "more than 10,000 objects")],
    ids=["pods", "objects"],
)
def test_more_than_that_is_refused(items, says):
    with pytest.raises(AnswerError, match=says):
        read_manifests(json.dumps({"kind": "List", "items": items}).encode(), "team", "phalanx", {})


def test_only_the_first_of_many_that_wait_are_looked_at_closely(monkeypatch):
    looked = []
    monkeypatch.setattr(fitting, "look_around", lambda found, number, told: looked.append(number) or [])
    rows = fits(World(1), job("j", 40, 8))["gangs"]
    assert [row["verdict"] for row in rows] == ["now", *["later"] * 39]
    assert all(row["reason"]["code"] == "Capacity" for row in rows[1:])
    assert len(looked) == len(set(looked)) == 16


def test_copies_of_the_state_are_let_go_without_the_collector():
    """By itself it comes after hundreds of answers."""
    world = World(1)
    fits(world, job("j", 2))
    gc.collect()
    gc.disable()
    try:
        before = sum(isinstance(each, State) for each in gc.get_objects())
        for _ in range(3):
            fits(world, job("j", 2))
        assert sum(isinstance(each, State) for each in gc.get_objects()) == before
    finally:
        gc.enable()
