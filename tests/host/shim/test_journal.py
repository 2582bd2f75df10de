"""The journal: on disk before anybody hears of it, readable whatever happened to its end."""

from __future__ import annotations

import json
import os

import pytest

from phalanx.frontends.host.shim.journal import Journal, load_story, read_story

HEAD = {"what": "head", "pid": 10, "start": 20, "boot_id": "b"}
READY = {"what": "ready", "generation": 1, "members": [[0, 11, 21], [1, 12, 22]]}
GO = {"what": "go", "generation": 1}
EXIT = {"what": "exit", "rank": 1, "generation": 1, "code": None, "signal": 9}
LINES = [HEAD, READY, GO, EXIT, {"what": "done"}]


@pytest.fixture
def dir_fd(tmp_path):
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def as_bytes(*lines):
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def test_what_is_written_is_read(tmp_path, dir_fd):
    journal = Journal(dir_fd)
    journal.make_room(2)
    taken = (tmp_path / "journal").stat().st_blocks
    for line in LINES:
        journal.write(line)
    os.close(journal._fd)
    assert (tmp_path / "journal").stat().st_blocks == taken  # all of it went into room that was there
    story = load_story(dir_fd, os.getuid())
    assert (story.pid, story.start, story.boot_id) == (10, 20, "b")
    assert (story.went, story.generation, story.done, story.never_started) == (True, 1, True, False)
    assert story.members == {0: (11, 21), 1: (12, 22)}
    assert story.exits == {1: (1, None, 9)}
    assert load_story(dir_fd, os.getuid() + 1) is None


def test_many_lines_at_once_and_more_than_expected(tmp_path, dir_fd):
    journal = Journal(dir_fd)
    journal.write(HEAD, READY, GO)
    journal.write(*({**EXIT, "rank": rank} for rank in range(500)))
    os.close(journal._fd)
    assert len(load_story(dir_fd).exits) == 500


def test_a_torn_line_counts_as_never_written():
    whole = as_bytes(*LINES)
    marks = [len(as_bytes(*LINES[:n])) for n in range(len(LINES) + 1)]
    for cut in range(len(whole) + 1):
        for rest in (b"", b"\0" * 50, b"\xff" * 10):
            story = read_story(whole[:cut] + rest)
            lines = sum(mark <= cut for mark in marks) - 1
            assert story.pid == (10 if lines >= 1 else 0)
            assert story.went == (lines >= 3)
            assert bool(story.exits) == (lines >= 4)
            assert story.done == (lines >= 5)


@pytest.mark.parametrize(
    "bad",
    [
        b"\n",
        b"7\n",
        b"[]\n",
        b'{"what":"go"}\n',
        b'{"what":"ready","generation":1,"members":[[1]]}\n',
        b'{"what":"exit","rank":0,"generation":1,"code":"x","signal":null}\n',
        b"[" * 100_000 + b"\n",
    ],
)
def test_a_line_without_sense_ends_the_story(bad):
    story = read_story(as_bytes(HEAD, READY) + bad + as_bytes(GO))
    assert story.pid == 10
    assert not story.went


def test_generations_and_ranks_that_come_again():
    later = [
        {"what": "ready", "generation": 2, "members": [[1, 13, 23]]},
        {"what": "dropped", "generation": 2},
        {"what": "ready", "generation": 3, "members": [[1, 14, 24], [2, 15, 25]]},
    ]
    story = read_story(as_bytes(HEAD, READY, GO, EXIT, *later))
    assert story.exits == {1: (1, None, 9)}
    assert story.waiting == {3: {1: (14, 24), 2: (15, 25)}}
    story = read_story(as_bytes(HEAD, READY, GO, EXIT, *later, {"what": "go", "generation": 3}))
    assert story.exits == {}  # of the rank that there is now
    assert story.members == {0: (11, 21), 1: (14, 24), 2: (15, 25)}
    assert story.generation == 3


def test_nothing_is_followed(tmp_path, dir_fd):
    (tmp_path / "elsewhere").write_bytes(as_bytes(*LINES))
    (tmp_path / "journal").symlink_to(tmp_path / "elsewhere")
    assert load_story(dir_fd) is None
    with pytest.raises(FileExistsError):
        Journal(dir_fd)
    (tmp_path / "journal").unlink()
    os.mkfifo(tmp_path / "journal")
    assert load_story(dir_fd) is None
