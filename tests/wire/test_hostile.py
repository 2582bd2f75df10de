"""What an end refuses: everything the other end did not say here, now, to it."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.wire import (
    FRAME_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    Codec,
    Forged,
    Malformed,
    MemberEnd,
    SchedulerEnd,
    Stale,
    TooLarge,
    WireError,
    member_name,
)

KEY = bytes(range(32))
SALT = b"s" * 32
HELLO = {"type": "hello", "rank": 3, "pid": 7, "speaks": ["shrink"], "version": 1}
DONE = {"type": "answer", "id": "a", "verdict": "done"}
WELCOME = {"type": "welcome", "generation": 2, "members": 4}


def make_pair(key=KEY, job=12, attempt=1, generation=2, rank=3, salt=SALT) -> tuple[Codec, Codec]:
    """The codecs of a member and of its scheduler on one connection."""
    names = member_name(rank), "scheduler"
    return (
        Codec(key, job, attempt, generation, *names, salt),
        Codec(key, job, attempt, generation, *reversed(names), salt),
    )


def open_pair(**seat) -> tuple[MemberEnd, SchedulerEnd]:
    """Both ends of a connection that is open, nothing said yet."""
    seat = {"job": 12, "attempt": 1, "generation": 2, "rank": 3} | seat
    scheduler = SchedulerEnd(KEY, seat["job"], seat["attempt"], lambda rank, generation: True)
    member = MemberEnd(KEY, seat["job"], seat["attempt"], seat["generation"], seat["rank"])
    member.feed(scheduler.greeting)
    scheduler.feed(member.opening)
    return member, scheduler


def forge(codec: Codec, payload: bytes, seq: int = 1) -> bytes:
    """A frame as somebody with the key could send it, whatever is in it."""
    return len(payload).to_bytes(4, "big") + codec.seal(seq, payload) + payload


# --- frames ----------------------------------------------------------------------------------------


def test_what_is_said_is_heard_in_order():
    member, scheduler = make_pair()
    frames = [member.encode(m) for m in (HELLO, DONE, DONE)]
    assert scheduler.feed(b"".join(frames)) == [HELLO, DONE, DONE]
    assert member.feed(scheduler.encode(WELCOME)) == [WELCOME]


def test_a_slow_sender_is_heard_when_the_last_byte_is_there():
    member, scheduler = make_pair()
    frames = member.encode(HELLO) + member.encode(DONE)
    heard = [scheduler.feed(frames[i : i + 1]) for i in range(len(frames))]
    assert [m for messages in heard for m in messages] == [HELLO, DONE]
    assert heard[-1] == [DONE]


def test_every_truncation_is_waited_for_and_nothing_of_it_is_heard():
    member, _ = make_pair()
    frame = member.encode(DONE)
    for cut in range(len(frame)):
        _, scheduler = make_pair()
        assert scheduler.feed(frame[:cut]) == []
        assert scheduler.feed(frame[cut:]) == [DONE]


def test_a_replayed_frame_is_forged():
    member, scheduler = make_pair()
    frame = member.encode(DONE)
    scheduler.feed(frame)
    with pytest.raises(Forged, match="frame 2"):
        scheduler.feed(frame)


def test_a_frame_left_out_or_moved_is_forged():
    member, scheduler = make_pair()
    member.encode(HELLO)
    with pytest.raises(Forged):
        scheduler.feed(member.encode(DONE))


def test_a_reflected_frame_is_forged():
    # `status` is said in both directions, so only the MAC can tell.
    member, scheduler = make_pair()
    with pytest.raises(Forged):
        scheduler.feed(scheduler.encode({"type": "status", "id": "x"}))
    with pytest.raises(Forged):
        member.feed(member.encode({"type": "status", "id": "x"}))


@pytest.mark.parametrize(
    "other",
    [
        {"key": bytes(32)},
        {"job": 13},
        {"job": "1"},
        {"attempt": 2},
        {"generation": 1},
        {"generation": 3},
        {"rank": 2},
        {"salt": b"t" * 32},
    ],
    ids=str,
)
def test_a_frame_of_another_job_attempt_generation_member_or_connection_is_forged(other):
    foreign, _ = make_pair(**other)
    _, scheduler = make_pair()
    with pytest.raises(Forged):
        scheduler.feed(foreign.encode(DONE))


def test_fields_do_not_run_into_each_other():
    # Job "1" with attempt bytes that begin with "2…" must not look like job "12".
    one = Codec(KEY, "1", 0x32000000, 2, member_name(3), "scheduler", SALT)
    two = Codec(KEY, "12", 0, 2, member_name(3), "scheduler", SALT)
    assert one.seal(1, b"{}") != two.seal(1, b"{}")


def test_every_flipped_bit_is_refused():
    member, _ = make_pair()
    frame = member.encode(DONE)
    for bit in range(8 * len(frame)):
        _, scheduler = make_pair()
        bad = bytearray(frame)
        bad[bit // 8] ^= 1 << bit % 8
        # A length that got longer waits for bytes; the next frame brings them, and the MAC does not fit.
        with pytest.raises((Forged, TooLarge)):
            scheduler.feed(bytes(bad) + bytes(PAYLOAD_BYTES_MAX))


@pytest.mark.parametrize(
    "length", [(2**63).to_bytes(8, "big"), b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", (65_537).to_bytes(4, "big")]
)
def test_an_absurd_length_is_refused_before_anything_is_kept(length):
    _, scheduler = make_pair()
    with pytest.raises(TooLarge):
        scheduler.feed(length[:4])


def test_memory_is_bounded_by_one_frame_whatever_comes():
    _, scheduler = make_pair()
    tracemalloc.start()
    try:
        scheduler.feed(PAYLOAD_BYTES_MAX.to_bytes(4, "big"))
        assert not any(scheduler.feed(bytes(1000)) for _ in range(65))
        with pytest.raises(Forged):
            scheduler.feed(bytes(1000))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 6 * FRAME_BYTES_MAX


def test_a_codec_that_refused_once_refuses_for_good():
    member, scheduler = make_pair()
    good = member.encode(DONE)
    with pytest.raises(Forged):
        scheduler.feed(bytes(100))
    with pytest.raises(Forged):
        scheduler.feed(good)


def test_what_is_too_large_is_not_said_and_leaves_no_gap():
    member, scheduler = make_pair()
    ranks = list(range(60_000, 60_000 + 4096))
    wide = {"type": "shrink", "id": "a", "generation": 2, "members": 1, "deadline_s": 1}
    wide |= {"leaving": ranks, "ranks": ranks, "why": "☂" * 1000}
    assert member.feed(scheduler.encode(wide)) == [wide], "the largest message of the table fits a frame"
    with pytest.raises(Malformed):
        member.encode({"type": "answer", "id": "a", "verdict": "perhaps"})
    assert scheduler.feed(member.encode(DONE)) == [DONE]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"{" * 60_000,
        b"[" * 60_000,
        b'{"type":"answer","id":"a","id":"b","verdict":"done"}',
        b'{"type":"status","loss":NaN}',
        b'{"type":"status","loss":1e999}',
        b'{"type":"status","loss":' + b"9" * 4000 + b"}",
        b'{"type":"status","step":' + b"9" * 60_000 + b"}",
        b'{"type":"status","step":9007199254740992}',
        b'{"type":"status","step":-1}',
        b'{"type":"status","step":1.0}',
        b'{"type":"status","step":true}',
        b'{"type":"status","rate":-1}',
        b'{"type":"status","phase":"Train"}',
        b'{"type":"status","saved_age_s":1e10}',
        b'{"type":"answer","id":"","verdict":"done"}',
        b'{"type":"answer","id":"a\\n","verdict":"done"}',
        b'{"type":"answer","id":"a"}',
        b'{"type":"answer","id":"a","verdict":["done"]}',
        b'{"type":"answer","id":"a","verdict":"done","why":"\\ud800"}',
        b'{"type":"answer","id":null,"verdict":"done"}',
        b'{"type":{"a":1}}',
        b'{"type":"hello","rank":70000,"pid":1,"speaks":[],"version":1}',
        b'{"type":"hello","rank":0,"pid":1,"speaks":["a b"],"version":1}',
        b'{"type":"hello","rank":0,"pid":1,"speaks":"shrink","version":1}',
    ],
    ids=lambda payload: payload[:60].decode("ascii", "replace"),
)
def test_an_authentic_payload_that_is_no_message_is_malformed(payload):
    member, scheduler = make_pair()
    with pytest.raises(Malformed):
        scheduler.feed(forge(member, payload))


@pytest.mark.parametrize("ranks", [[1, 1], [2, 1], [-1], [True], [65_536], ["1"], list(range(4097)), {"a": 1}])
def test_ranks_are_increasing_and_few(ranks):
    member, scheduler = make_pair()
    shrink = {"type": "shrink", "id": "a", "generation": 2, "members": 1, "deadline_s": 1, "leaving": ranks}
    with pytest.raises(Malformed, match="leaving"):
        member.feed(forge(scheduler, json.dumps(shrink).encode()))


def test_an_unknown_type_is_skipped_and_counted_and_an_unknown_field_dropped():
    member, scheduler = make_pair()
    frames = forge(member, b'{"type":"want","members":9}', 1)
    frames += forge(member, b'{"type":"answer","id":"a","verdict":"done","colour":"red","why":null}', 2)
    assert scheduler.feed(frames) == [DONE]
    assert scheduler.unknown == 1


def test_a_message_of_the_other_direction_is_unknown():
    member, scheduler = make_pair()
    assert scheduler.feed(forge(member, json.dumps(WELCOME).encode())) == []
    assert scheduler.unknown == 1
    with pytest.raises(Malformed):
        member.encode(WELCOME)


# --- openings --------------------------------------------------------------------------------------


def test_a_connection_opens_byte_by_byte():
    scheduler, member = SchedulerEnd(KEY, 12, 1, lambda *_: True), MemberEnd(KEY, 12, 1, 2, 3)
    for byte in scheduler.greeting:
        assert not member.is_open
        member.feed(bytes([byte]))
    for byte in member.opening + member.encode(HELLO):
        heard = scheduler.feed(bytes([byte]))
    assert heard == [HELLO]
    assert (scheduler.rank, scheduler.generation, scheduler.hello) == (3, 2, HELLO)


@pytest.mark.parametrize(
    "other", [{"key": bytes(32)}, {"job": 13}, {"attempt": 2}], ids=["another key", "another job", "another attempt"]
)
def test_a_stranger_does_not_get_in(other):
    seat = {"key": KEY, "job": 12, "attempt": 1, "generation": 2, "rank": 3} | other
    asked = []
    scheduler = SchedulerEnd(KEY, 12, 1, lambda *who: asked.append(who) is None)
    stranger = MemberEnd(**seat)
    stranger.feed(scheduler.greeting)
    with pytest.raises(Forged):
        scheduler.feed(stranger.opening)
    assert not scheduler.is_open
    assert scheduler.rank is None
    assert asked == [], "nobody is looked up for whoever has no key"


def test_a_recorded_connection_is_worth_nothing():
    recorded = MemberEnd(KEY, 12, 1, 2, 3)
    first = SchedulerEnd(KEY, 12, 1, lambda *_: True)
    recorded.feed(first.greeting)
    stream = recorded.opening + recorded.encode(HELLO) + recorded.encode(DONE)
    assert first.feed(stream) == [HELLO, DONE]
    with pytest.raises(Forged):
        SchedulerEnd(KEY, 12, 1, lambda *_: True).feed(stream)


def test_a_recorded_scheduler_is_worth_nothing():
    _, scheduler = open_pair()
    replayed = scheduler.greeting + scheduler.encode(WELCOME)
    fresh = MemberEnd(KEY, 12, 1, 2, 3)
    with pytest.raises(Forged):
        fresh.feed(replayed)


def test_a_member_that_was_replaced_does_not_come_back():
    members = {3: 5}  # rank 3 was started again in generation 5
    old, new = MemberEnd(KEY, 12, 1, 2, 3), MemberEnd(KEY, 12, 1, 5, 3)
    for member, welcome in ((old, False), (new, True)):
        scheduler = SchedulerEnd(KEY, 12, 1, lambda rank, generation: members.get(rank) == generation)
        member.feed(scheduler.greeting)
        if welcome:
            scheduler.feed(member.opening)
            assert scheduler.is_open
        else:
            with pytest.raises(Stale, match="no rank 3 of generation 2"):
                scheduler.feed(member.opening)


def test_a_changed_generation_or_rank_in_the_opening_is_forged():
    for place in range(8, 16):
        scheduler, member = SchedulerEnd(KEY, 12, 1, lambda *_: True), MemberEnd(KEY, 12, 1, 2, 3)
        member.feed(scheduler.greeting)
        opening = bytearray(member.opening)
        opening[place] ^= 1
        with pytest.raises(Forged):
            scheduler.feed(bytes(opening))


@pytest.mark.parametrize("head", [b"GET / HTTP/1.1\r\n", b"PHALANX\x02" + bytes(16), b"\x00"])
def test_another_protocol_or_version_is_refused_at_its_first_bytes(head):
    with pytest.raises(Malformed):
        SchedulerEnd(KEY, 12, 1, lambda *_: True).feed(head)
    with pytest.raises(Malformed):
        MemberEnd(KEY, 12, 1, 2, 3).feed(head)


def test_a_member_speaks_for_itself_and_says_hello_first():
    member, scheduler = open_pair()
    with pytest.raises(Malformed, match="before hello"):
        scheduler.feed(member.encode(DONE))
    member, scheduler = open_pair()
    with pytest.raises(Malformed, match="hello of rank 2 on the connection of rank 3"):
        scheduler.feed(member.encode(HELLO | {"rank": 2}))


# --- whatever comes --------------------------------------------------------------------------------

bytes_of_any_kind = st.lists(
    st.one_of(st.binary(max_size=200), st.integers(0, 2**32 - 1).map(lambda n: n.to_bytes(4, "big"))), max_size=8
)


@given(bytes_of_any_kind)
def test_feeding_anything_raises_only_refusals_and_keeps_little(chunks):
    _, scheduler = make_pair()
    end = SchedulerEnd(KEY, 12, 1, lambda *_: True)
    for peer in (scheduler, end):
        for chunk in chunks:
            try:
                assert peer.feed(chunk) == []
            except WireError:
                break
    assert len(scheduler._buffer) <= FRAME_BYTES_MAX
    assert len(end._head) <= 64


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=4)),
    max_leaves=10,
)
field_names = st.sampled_from(["type", "id", "step", "rank", "verdict", "why", "speaks", "pid", "version", "loss", "x"])
type_names = st.sampled_from(["hello", "status", "answer", "welcome", "shrink", ""])
hostile_messages = st.dictionaries(field_names, json_values, max_size=6).flatmap(
    lambda message: type_names.map(lambda kind: message | {"type": kind})
)


@given(st.one_of(json_values, hostile_messages))
def test_a_hostile_member_with_the_key_gets_only_messages_of_the_table_through(value):
    member, scheduler = make_pair()
    try:
        heard = scheduler.feed(forge(member, json.dumps(value).encode()))
    except Malformed:
        return
    for message in heard:
        again, listener = make_pair()
        assert listener.feed(again.encode(message)) == [message], "what was let in can be said again"


@given(st.data())
def test_any_cut_of_the_stream_gives_the_same_messages(data):
    member, scheduler = make_pair()
    messages = data.draw(st.lists(st.sampled_from([HELLO, DONE, {"type": "status", "step": 5}]), max_size=6))
    stream = b"".join(member.encode(m) for m in messages)
    heard = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        heard += scheduler.feed(stream[:size])
        stream = stream[size:]
    assert heard == messages
