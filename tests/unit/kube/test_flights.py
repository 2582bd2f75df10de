"""What becomes of a gang on its way, word by word."""

from __future__ import annotations

import time
import uuid
import zlib
from base64 import b64encode
from random import Random

import pytest

from phalanx.frontends.kube.flights import (
    Berth,
    BerthFate,
    Course,
    Flight,
    Word,
    find_short,
    judge,
    read_intent,
    write_intent,
)
from phalanx.frontends.kube.gang_view import Dialect, GangKey

KEY = GangKey(Dialect.NATIVE, "team", "a")
BERTHS = tuple(Berth("team", f"a-{at}", f"uid-{at}", f"n{at % 2}", KEY.unique, "member", at) for at in range(4))
FLIGHT = Flight((KEY,), BERTHS, 100.0, {})
BOUND, FREE, UNKNOWN = Word(BerthFate.BOUND), Word(BerthFate.FREE, "too old"), Word(BerthFate.UNKNOWN, "silence")


def words(*said):
    return {berth.uid: word for berth, word in zip(BERTHS, said, strict=True)}


@pytest.mark.parametrize(
    ("said", "now_s", "short", "course", "says"),
    [
        ((BOUND,) * 4, 0, "", Course.LAND, ""),
        ((BOUND,) * 4, 200, "n0 is full", Course.LAND, ""),  # what is done is done
        ((BOUND, FREE, BOUND, UNKNOWN), 0, "", Course.ON, ""),
        ((BOUND, FREE, BOUND, BOUND), 99, "", Course.ON, ""),
        ((BOUND, FREE, BOUND, BOUND), 100, "", Course.BACK, "1 of 4 members not bound in time: too old"),
        ((BOUND, UNKNOWN, BOUND, BOUND), 200, "", Course.ON, ""),  # nobody has refused anything
        ((BOUND, FREE, FREE, BOUND), 0, "n0 is full", Course.BACK, "2 of 4 members no longer fit: n0 is full"),
        ((BOUND, Word(BerthFate.LOST, "is gone"), BOUND, UNKNOWN), 0, "", Course.BACK, "pod a-1: is gone"),
        (
            (BOUND, Word(BerthFate.REFUSED, "no"), Word(BerthFate.REFUSED, "no"), BOUND),
            0,
            "",
            Course.BACK,
            "and 1 more",
        ),
    ],
)
def test_how_a_flight_goes_on(said, now_s, short, course, says):
    judged = judge(FLIGHT, words(*said), now_s, short)
    assert judged.course is course
    assert says in judged.says


def test_what_is_written_down_is_read_back():
    again = read_intent(write_intent(FLIGHT, 7))
    assert (again.keys, again.berths, again.deadline_s) == (FLIGHT.keys, FLIGHT.berths, 100.0)


def make_large_flight(members, random):
    """As bad as it gets: nothing in the uids repeats, and nodes come in no order."""
    uids = (str(uuid.UUID(int=random.getrandbits(128))) for _ in range(members))
    berths = (
        Berth(
            "research",
            f"pretraining-worker-{at}",
            uid,
            f"gpu-{random.randrange(2_500):04}.example.com",
            KEY.unique,
            "w",
            at,
        )
        for at, uid in enumerate(uids)
    )
    return Flight((KEY,), tuple(berths), 100.0, {})


def test_a_plan_of_twenty_thousand_members_fits_into_one_object():
    flight = make_large_flight(20_000, Random(0))
    text = write_intent(flight, 7)
    assert len(text) < 900_000, "of the megabyte that the API takes"
    assert read_intent(text).berths == flight.berths
    assert write_intent(make_large_flight(500, Random(0)), 7).startswith("{"), "what fits is for people to read"


def test_what_is_packed_by_somebody_else_is_no_plan_and_costs_little():
    bomb = "zlib:" + b64encode(zlib.compress(b" " * (40 << 20), 1)).decode()
    began = time.process_time()
    assert read_intent(bomb) is None
    assert time.process_time() - began < 1
    for text in ("zlib:", "zlib:%%", "zlib:AAAA", "zlib:" + b64encode(zlib.compress(b"{}")).decode()):
        assert read_intent(text) is None


@pytest.mark.parametrize("text", ["", "{}", "[]", "\x00", '{"epoch": 1}', '{"gangs": [{"dialect": "no"}]}'])
def test_what_cannot_be_read_is_nothing_to_do(text):
    assert read_intent(text) is None


def test_room_is_counted_node_by_node_and_kind_by_kind():
    need = {berth.uid: {"gpu": 1} for berth in BERTHS}
    assert find_short(BERTHS, {"n0": {"gpu": 2}, "n1": {"gpu": 2}}, need) == ""
    assert find_short(BERTHS, {"n0": {"gpu": 2}, "n1": {"gpu": 1}}, need) == "node n1 has too little gpu left"
    assert find_short(BERTHS, {"n0": {"gpu": 2}}, need) == "node n1 is gone or takes no more pods"
    assert find_short(BERTHS[:1], {"n0": {"gpu": -1}}, {}) == "", "one that is bound by now needs nothing more"
