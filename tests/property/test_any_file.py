"""Whatever stands in a file, it becomes a scenario or is refused; nothing else ever comes out."""

import copy
import json

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.control.spec.errors import BadInput
from phalanx.control.spec.reader import parse_text
from phalanx.control.spec.spot import Spot, spot_of
from phalanx.frontends.sim.scenario import Scenario, parse_scenario

SOUND = {
    "cluster": {
        "topology": ["block", "rack"],
        "nodes": [
            {"name": "a[0-3]", "resources": {"gpu": 4, "memory": "1Gi"}, "labels": {"block": "b", "rack": "r"},
             "taints": ["spot"], "islands": [[0, 1], [2, 3]]},
        ],
    },
    "maintenance": [{"nodes": "a0", "at": "2h", "for": "30m"}],
    "reservations": [{"name": "r", "nodes": "a1", "at": 0, "for": 60, "users": ["ada"]}],
    "queues": [{"name": "q", "parent": "root", "weight": 2, "guarantee": {"gpu": 1}, "limit": {"gpu": 4}}],
    "users": [{"name": "ada", "limit": {"gpu": 4}}],
    "gangs": [
        {"name": "A", "submit": 0, "queue": "q", "user": "ada", "priority": 0, "members": {"min": 1, "max": 4, "step": 1},
         "each": {"gpu": 1}, "topology": {"require": "rack", "prefer": "node", "segment": {"size": 2, "level": "node"}},
         "select": {"rack": ["r", "s"]}, "tolerate": ["spot"], "walltime": "2h", "kill_after": "3h", "duration": "1h",
         "speedup": {"amdahl": 0.02}, "deadline": "3h", "preemptible": True, "resize_pause": "2s", "startup": "0s",
         "snapshot": {"every": "60s", "stall": "0.2s", "restore": "5s"}, "hold": False, "max_restarts": 3},
        {"name": "B", "roles": [{"name": "w", "members": {"sizes": [1, 2]}, "each": {"gpu": 0.5}, "topology": {"prefer": "rack"}}],
         "duration": 60, "together": {"word": "p", "gangs": 2}, "after": ["A"], "speedup": {"table": {"1": 1, "2": 1.5}}},
        {"name": "C", "members": 1, "each": {"gpu": 1}, "duration": 60, "together": "p", "after": {"any": ["A"]}},
    ],
    "events": [{"at": 5, "fail": "a0"}, {"at": 6, "resize": {"A": 2}}, {"at": 7, "drain": "a1", "by": 9},
               {"at": 8, "add": {"name": "c0", "resources": {"gpu": 1}}}],
    "policy": {"name": "easy", "reservations": 2},
    "until": "1d",
}  # fmt: skip

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.integers(), st.floats(), st.text(max_size=8),
    st.integers(10**18, 10**60), st.dates(), st.binary(max_size=4),
    st.sampled_from(["5m", "-1h", "1e99", "a[0-3", "a[3-0]", "a[0-99999999]", "A", "B", "root", "rack", "node", "64Gi",
                     "9" * 400, "linear", "auto", "\x1b[31m", "\0", "é", "[0-1]"]),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)),
    max_leaves=5,
)


def paths(value, here=()):
    """Every place of a tree, inner ones too."""
    yield here
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from paths(inner, (*here, key))


PATHS = list(paths(SOUND))


def replaced(tree, path, value):
    if not path:
        return value
    tree = copy.copy(tree)
    tree[path[0]] = replaced(tree[path[0]], path[1:], value)
    return tree


def outcome(spot: Spot) -> object:
    try:
        found: object = parse_scenario(spot)
    except BadInput as bad:
        found = bad
    if isinstance(found, BadInput):
        assert str(found).isprintable(), "one line that a terminal only prints"
        assert len(str(found)) < 2000
    else:
        assert isinstance(found, Scenario)
    return found


def test_the_sound_file_is_sound():
    assert isinstance(outcome(spot_of(SOUND)), Scenario)


# There are many places; each gets a share of the examples that a whole property gets.
@settings(max_examples=max(5, settings.default.max_examples // 6))
@pytest.mark.parametrize("path", PATHS, ids=lambda path: ".".join(map(str, path)) or "top")
@given(value=VALUES)
def test_anything_at_any_place(path, value):
    outcome(spot_of(replaced(SOUND, path, value)))


@given(path=st.sampled_from(PATHS), key=st.text(max_size=8), value=VALUES)
def test_a_key_more_anywhere(path, key, value):
    tree = copy.deepcopy(SOUND)
    place = tree
    for step in path:
        place = place[step]
    if isinstance(place, dict):
        place[key] = value
    outcome(spot_of(tree))


@given(path=st.sampled_from([path for path in PATHS if path]))
def test_a_place_less_anywhere(path):
    tree = copy.deepcopy(SOUND)
    place = tree
    for step in path[:-1]:
        place = place[step]
    del place[path[-1]]
    outcome(spot_of(tree))


@given(path=st.sampled_from(PATHS), value=VALUES)
def test_the_same_through_a_yaml_file(path, value):
    text = yaml.safe_dump(replaced(SOUND, path, value), allow_unicode=True)
    try:
        raw = parse_text(text, "f.yaml", ".yaml")
    except BadInput:
        return
    outcome(Spot(raw, "f.yaml"))


@given(text=st.text(max_size=60), extension=st.sampled_from([".yaml", ".json", ".toml"]))
def test_any_text(text, extension):
    try:
        raw = parse_text(text, "f", extension)
    except BadInput:
        return
    outcome(Spot(raw, "f"))


SOUND_TEXT = json.dumps(SOUND, indent=1)


@given(at=st.integers(0, len(SOUND_TEXT)), junk=st.sampled_from([*"{}[]:,&*!|>'\"%@`#-?\t\n\\", "<<: ", "*a", "&a ", "!!set "]),
       extension=st.sampled_from([".yaml", ".json"]))  # fmt: skip
def test_a_slip_of_the_keyboard(at, junk, extension):
    try:
        raw = parse_text(SOUND_TEXT[:at] + junk + SOUND_TEXT[at:], "f", extension)
    except BadInput:
        return
    outcome(Spot(raw, "f"))
