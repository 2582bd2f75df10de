"""What a gang in a file becomes."""

import re

import pytest

from phalanx.control.spec.errors import BadInput
from phalanx.control.spec.gangs import Known, parse_gang, parse_gangs
from phalanx.control.spec.reader import parse_text
from phalanx.control.spec.spot import Spot, spot_of
from phalanx.model.gang import After, Gang, Role, Shape, Sizes, SnapshotHabit, Together
from phalanx.model.rules import Apart, AtMost, Beside, Evenly, Rather
from phalanx.model.topology import Segment, Topology

KNOWN = Known(queues=("research",), levels=("block", "rack"))
SECOND = 1_000_000


def one(text: str) -> Gang:
    return parse_gang(Spot(parse_text(text, "g.yaml", ".yaml"), "g.yaml"), KNOWN)


def several(text: str) -> tuple[Gang, ...]:
    return parse_gangs(Spot(parse_text(text, "g.yaml", ".yaml"), "g.yaml", field="gangs", path="gangs"), KNOWN)[0]


def test_the_least_that_can_be_said():
    assert one("{name: A, members: 4, each: {gpu: 1}}") == Gang(
        "A", (Role("member", Sizes((4,)), Shape((("gpu", 1000),))),)
    )


def test_everything_that_can_be_said():
    gang = one(
        """
        name: A
        submit: 5m
        queue: research
        user: ada
        priority: -3
        roles:
          - {name: worker, members: {min: 4, max: 16, step: 4}, each: {gpu: 8, memory: 1Gi}, topology: {prefer: node}}
          - {name: loader, members: 2, each: {cpu: 1.5}}
        together: {word: p, gangs: 2}
        topology: {require: rack, prefer: node, segment: {size: 8, level: block}}
        select: {gpu-model: [h200, h100], zone: 7}
        tolerate: [spot, old]
        walltime: 2h
        kill_after: 3h
        duration: 1h
        deadline: 4h
        preemptible: true
        snapshot: {every: 60s, stall: 0.2s, restore: 5s}
        resize_pause: 2s
        startup: 1s
        after: {any: [B, C, B]}
        hold: true
        max_restarts: 0
        """
    )
    select, tolerate = (("gpu-model", ("h200", "h100")), ("zone", ("7",))), ("old", "spot")
    worker = Shape((("gpu", 8000), ("memory", 1 << 30)), select, tolerate)
    assert gang == Gang(
        name="A",
        roles=(
            Role("worker", Sizes((4, 8, 12, 16)), worker, Topology(prefer="node")),
            Role("loader", Sizes((2,)), Shape((("cpu", 1500),), select, tolerate)),
        ),
        submit_us=300 * SECOND,
        queue="research",
        user="ada",
        priority=-3,
        topology=Topology("rack", "node", Segment(8, "block")),
        together=Together("p", 2),
        walltime_us=7200 * SECOND,
        kill_after_us=10800 * SECOND,
        deadline_us=14400 * SECOND,
        preemptible=True,
        snapshot=SnapshotHabit(60 * SECOND, 200_000, 5 * SECOND),
        resize_pause_us=2 * SECOND,
        startup_us=SECOND,
        after=After(("B", "C"), any_end=True),
        hold=True,
        max_restarts=0,
    )


@pytest.mark.parametrize(
    ("members", "sizes"),
    [
        ("4", (4,)),
        ("4.0", (4,)),
        ("{min: 2, max: 5}", (2, 3, 4, 5)),
        ("{min: 2, max: 8, step: 2}", (2, 4, 6, 8)),
        ("{min: 2, max: 7, step: 3}", (2, 5)),  # the last step falls short of max
        ("{min: 3, max: 3}", (3,)),
        ("{sizes: [8, 2, 4]}", (2, 4, 8)),
    ],
)
def test_sizes(members: str, sizes: tuple[int, ...]):
    assert one(f"{{name: A, members: {members}, each: {{gpu: 1}}}}").roles[0].sizes == Sizes(sizes)


def test_a_role_may_select_for_itself():
    gang = one(
        "{name: A, select: {pool: gpu}, roles: [{name: w, members: 1, each: {gpu: 1}},"
        " {name: l, members: 1, each: {cpu: 1}, select: {pool: cpu}, tolerate: spot}]}"
    )
    assert [role.shape.select for role in gang.roles] == [(("pool", ("gpu",)),), (("pool", ("cpu",)),)]
    assert [role.shape.tolerate for role in gang.roles] == [(), ("spot",)]


@pytest.mark.parametrize("written", ["01", "yes", "1_000", "0x1f", "2024-01-01", "1.50", "null_", "~x", "1:30"])
def test_words_stay_as_written(written: str):
    gang = one(f"{{name: {written}, user: {written}, members: 1, each: {{gpu: 1}}, select: {{{written}: {written}}}}}")
    assert (gang.name, gang.user, gang.roles[0].shape.select) == (written, written, ((written, (written,)),))


def test_words_of_plain_values():
    gang = parse_gang(spot_of({"name": 7, "user": True, "members": 1, "each": {"gpu": 1}}), KNOWN)
    assert (gang.name, gang.user) == ("7", "true")


def test_a_null_is_the_same_as_nothing():
    assert one("{name: A, members: 1, each: {gpu: 1}, queue: , topology: ~, roles: null, after: }").queue == "default"


def test_zero_amounts_are_not_asked_for():
    assert one("{name: A, members: 1, each: {gpu: 0, cpu: 1}}").roles[0].shape.need == (("cpu", 1000),)


def test_a_group_is_counted_over_the_file():
    gangs = several("[{name: A, members: 1, each: {gpu: 1}, together: p}, {name: B, members: 1, each: {gpu: 1}},"
                    " {name: C, members: 1, each: {gpu: 1}, together: p}]")  # fmt: skip
    assert [gang.together for gang in gangs] == [Together("p", 2), None, Together("p", 2)]


def test_a_group_may_still_miss_gangs():
    gangs = several("[{name: A, members: 1, each: {gpu: 1}, together: {word: p, gangs: 3}}]")
    assert gangs[0].together == Together("p", 3)


def test_a_long_chain_of_dependencies_is_no_circle():
    gangs = several("[{name: g0, members: 1, each: {gpu: 1}}" + "".join(
        f", {{name: g{n}, members: 1, each: {{gpu: 1}}, after: g{n - 1}}}" for n in range(1, 3000)) + "]")  # fmt: skip
    assert gangs[-1].after == After(("g2998",))


def test_a_refusal_carries_its_place():
    with pytest.raises(BadInput) as bad:
        several(
            "- {name: A, members: 1, each: {gpu: 1}}\n- name: B\n  each: {gpu: 1}\n  members:\n    min: 0\n    max: 2\n"
        )
    assert bad.value.file == "g.yaml"
    assert bad.value.line == 5
    assert bad.value.path == "gangs[1].members.min"
    assert bad.value.message == "gangs[1] 'B': members.min must be at least 1 (got 0)"
    assert str(bad.value) == "g.yaml: line 5: gangs[1] 'B': members.min must be at least 1 (got 0)"


def test_merged_keys_and_anchors_work():
    gangs = several("- &base {name: A, members: 2, each: {gpu: 1}}\n- {<<: *base, name: B}\n")
    assert [gang.name for gang in gangs] == ["A", "B"]
    assert gangs[0].roles == gangs[1].roles


def test_rules_about_others_are_of_the_gang_or_of_a_role():
    gang = one(
        """
        name: A
        bears: [web, web]
        at_most: {node: 1}
        roles:
          - {name: a, members: 2, each: {gpu: 1}, apart: {node: [db, web], block: x}, beside: {rack: cache}}
          - {name: b, members: 2, each: {gpu: 1}, bears: db, at_most: {rack: 2}, spread: {block: {word: db, skew: 2}}}
        """
    )
    assert [role.shape.bears for role in gang.roles] == [("web",), ("db",)]
    assert gang.roles[0].shape.rules == (
        *(AtMost("node", 1), Apart("node", "db"), Apart("node", "web"), Apart("block", "x"), Beside("rack", "cache")),
    )
    assert gang.roles[1].shape.rules == (AtMost("rack", 2), Evenly("block", "db", 2))


def test_wishes_are_sorted_by_weight():
    gang = one(
        """
        name: A
        members: 2
        each: {gpu: 1}
        rather:
          - {weight: 2, select: {model: [h200, h100]}}
          - {apart: {node: web}}
          - {weight: 7, spread: {rack: {word: w}}}
        """
    )
    assert gang.roles[0].shape.rather == (
        *(
            Rather(7, Evenly("rack", "w", 1)),
            Rather(2, (("model", ("h200", "h100")),)),
            Rather(1, Apart("node", "web")),
        ),
    )


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ("at_most: {zone: 1}", "no topology level or label 'zone'"),
        ("at_most: {node: 0}", "at_most.node"),
        ("apart: {rack: {a: 1}}", "apart.rack"),
        ("spread: {rack: {skew: 1}}", "word"),
        ("spread: {rack: {word: w, skew: 0}}", "skew"),
        ("at_most: {rack: 1, block: 1}", "shares out two kinds of domains"),
        ("at_most: {rack: 1}, topology: {require: block}", "is shared out by rack"),
        ("spread: {rack: {word: w}}, topology: {segment: {size: 2, level: node}}", "is shared out by rack"),
        ("rather: {weight: 1}", "needs exactly one of"),
        ("rather: {weight: 0, select: {a: b}}", "weight"),
        ("bears: w, apart: {rack: w}, topology: {require: block}", "is shared out by rack"),
    ],
)
def test_rules_that_mean_nothing_or_cannot_be_decided_are_refused(rules, says):
    with pytest.raises(BadInput, match=re.escape(says)):
        one(f"{{name: A, members: 4, each: {{gpu: 1}}, {rules}}}")
