"""The worked example of docs/protocol.md, computed again, and its tables against the code's."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from dataclasses import dataclass

import pytest

from phalanx.wire import FROM_JOB, FROM_SCHEDULER, Codec, MemberEnd, SchedulerEnd, member_name
from phalanx.wire.vocabulary import TABLES


@dataclass
class Example:
    """The lines of the example: those said once by name, and the frames in order."""

    said: dict[str, str]
    frames: list[tuple[str, str, str]]  # who, payload, frame


@pytest.fixture(scope="module")
def document(repo_root):
    return (repo_root / "docs" / "protocol.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def example(document):
    block = re.search(r"### An example\n.*?```\n(.*?)```", document, re.DOTALL)[1]
    said, frames, who, payload = {}, [], "", ""
    for line in filter(None, block.splitlines()):
        name, value = re.fullmatch(r"(\S+(?: \S+)*?) {2,}(\S.*)", line).groups()
        if name.endswith(" says"):
            who, payload = name.removesuffix(" says"), value
        elif name == "frame":
            frames.append((who, payload, value))
        else:
            said[name] = value
    return Example(said, frames)


@pytest.fixture
def ends(example):
    key = bytes.fromhex(example.said["key of the run"])
    job, attempt = example.said["job"], int(example.said["attempt"])
    generation, rank = int(example.said["generation"]), int(example.said["rank"])
    scheduler = SchedulerEnd(
        key, job, attempt, lambda *who: who == (rank, generation), bytes.fromhex(example.said["scheduler's nonce"])
    )
    member = MemberEnd(key, job, attempt, generation, rank, bytes.fromhex(example.said["member's nonce"]))
    return scheduler, member


def test_the_opening_is_the_documented_one(example, ends):
    scheduler, member = ends
    assert scheduler.greeting.hex() == example.said["greeting"]
    assert member.feed(scheduler.greeting) == []
    assert member.opening.hex() == example.said["opening"]
    assert scheduler.feed(member.opening) == []
    assert (scheduler.rank, scheduler.generation) == (3, 2)


def test_every_frame_is_the_documented_one(example, ends):
    scheduler, member = ends
    member.feed(scheduler.greeting)
    scheduler.feed(member.opening)
    assert len(example.frames) == 3
    for who, payload, frame in example.frames:
        speaker, listener = (scheduler, member) if who == "scheduler" else (member, scheduler)
        assert speaker.encode(json.loads(payload)).hex() == frame
        assert listener.feed(bytes.fromhex(frame)) == [json.loads(payload)]


def test_the_example_follows_from_the_words_alone(example):
    """Nothing of `wire` here: an implementer in another language has only the page."""

    def mac(key, data):
        return hmac.new(key, data, hashlib.sha256).digest()

    said = example.said
    salt = bytes.fromhex(said["scheduler's nonce"] + said["member's nonce"])
    info = b"phalanx.job/1" + int(said["generation"]).to_bytes(4, "big")
    key = mac(mac(salt, bytes.fromhex(said["key of the run"])), info + b"\x01")
    assert key.hex() == said["key K"]

    def fields(sender, receiver, seq, payload):
        parts = [said["job"].encode(), (1).to_bytes(4, "big"), (2).to_bytes(4, "big"), sender, receiver]
        return b"".join(len(p).to_bytes(4, "big") + p for p in [*parts, seq.to_bytes(8, "big"), payload])

    member, scheduler = b"member:3", b"scheduler"
    opening = bytes.fromhex(said["opening"])
    assert opening[32:] == mac(key, fields(member, scheduler, 0, opening[:32]))
    _, welcome, frame = example.frames[1]
    assert fields(scheduler, member, 1, welcome.encode()).hex() == said["MAC over"]
    assert bytes.fromhex(frame)[4:36] == mac(key, bytes.fromhex(said["MAC over"]))


def test_a_codec_without_nonces_has_golden_bytes_too():
    codec = Codec(bytes(range(32)), 12, 1, 2, member_name(3), "scheduler")
    frame = codec.encode({"type": "answer", "id": "a", "verdict": "accept"})
    assert frame.hex() == (
        "0000002d"
        "4df999644b5692c785e622be03cef9ef207708cbbb2f1a2b234c1863a819921e"
        "7b2274797065223a22616e73776572222c226964223a2261222c2276657264696374223a22616363657074227d"
    )


def read_message_table(document: str, heading: str) -> dict[str, dict[str, bool]]:
    section = re.search(rf"### {heading}\n(.*?)\n### ", document, re.DOTALL)[1]
    rows = re.findall(r"^\| `([a-z]+)` \| (.*?) \|", section, re.MULTILINE)
    return {kind: {name: mark == "?" for name, mark in re.findall(r"`([a-z_]+)(\??)`", names)} for kind, names in rows}


@pytest.mark.parametrize(("heading", "direction"), [("From the job", FROM_JOB), ("From the scheduler", FROM_SCHEDULER)])
def test_the_documented_messages_are_those_of_the_code(document, heading, direction):
    coded = {
        kind: {name: field.optional for name, field in fields.items()} for kind, fields in TABLES[direction].items()
    }
    assert read_message_table(document, heading) == coded


def test_the_documented_bounds_are_those_of_the_code(document):
    section = re.search(r"### Bounds\n(.*?)\n## ", document, re.DOTALL)[1]
    documented = {
        name: bound
        for names, bound in re.findall(r"^\| (`.*?) \| (.*?) \|$", section, re.MULTILINE)
        for name in re.findall(r"`([a-z_]+)`", names)
    }
    coded = {
        name: field.says for table in TABLES.values() for fields in table.values() for name, field in fields.items()
    }
    assert documented == coded
