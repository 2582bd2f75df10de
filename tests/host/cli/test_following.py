"""Logs, run and wait: every rank, every attempt, whole lines, the job's own exit code."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from types import SimpleNamespace
from urllib.parse import parse_qs

import pytest

from phalanx.cli.host.following import tame


class Logs:
    """A job that prints, served piece by piece."""

    def __init__(self, daemon, canned, job=5):
        self.canned, self.job = canned, job
        self.text = {}  # (attempt, rank) → bytes
        self.ended = set()  # attempts
        self.row = canned.row(id=job, name="train", attempt=1)
        self.failure = None
        self.moves = []  # what happens at each long poll
        daemon.answer("GET", f"/v1/jobs/{job}/logs", self.logs)
        daemon.answer("GET", f"/v1/jobs/{job}", lambda _: reply(canned.detail(self.row, failure=self.failure)))
        daemon.answer("GET", f"/v1/jobs/{job}/wait", self.wait)

    def logs(self, request):
        query = {key: values[0] for key, values in parse_qs(request.query).items()}
        attempt = int(query.get("attempt", self.row["attempt"]))
        rank = int(query["rank"])
        whole = self.text.get((attempt, rank), b"")
        offset = int(query.get("offset", 0))
        if "tail" in query:
            lines = whole.splitlines(keepends=True)
            kept = b"".join(lines[len(lines) - int(query["tail"]) :])
            offset = len(whole) - len(kept)
        piece = whole[offset : offset + int(query["limit"])]
        ranks = len({rank for at, rank in self.text if at == attempt}) or 1
        headers = {
            "X-Phalanx-Offset": str(offset + len(piece)),
            "X-Phalanx-Ended": "1" if attempt in self.ended else "0",
            "X-Phalanx-Ranks": str(ranks),
        }
        return reply(piece, headers)

    def wait(self, _request):
        if self.moves:
            self.moves.pop(0)()
        ended = self.row["state"] in ("completed", "failed", "cancelled")
        told = {"id": self.job, "state": self.row["state"], "exit_code": self.row["exit_code"], "ended": ended}
        return reply(told)

    def end(self, state="completed", code=0):
        self.ended.add(self.row["attempt"])
        self.row = {**self.row, "state": state, "exit_code": code}


def reply(body, headers=None):
    return SimpleNamespace(body=body, status=200, headers=headers or {})


@pytest.fixture
def logs(daemon, canned):
    return Logs(daemon, canned)


def test_all_ranks_with_their_numbers(phalanx, logs):
    logs.text = {(1, 0): b"a\nb\n", (1, 1): b"c\nd without an end"}
    assert phalanx("logs", "5").stdout == "[0] a\n[0] b\n[1] c\n[1] d without an end\n"
    assert phalanx("logs", "5", "--rank", "1").stdout == "c\nd without an end\n"
    assert phalanx("logs", "5", "--tail", "1").stdout == "[0] b\n[1] d without an end\n"


def test_one_rank_needs_no_number_and_bytes_stay_bytes(phalanx, logs):
    logs.text = {(1, 0): b"\xff\x1b[31mred\n"}
    assert phalanx("logs", "5").stdout_bytes == b"\xff\x1b[31mred\n"


def test_a_long_log_comes_in_pieces(phalanx, logs, monkeypatch):
    monkeypatch.setattr("phalanx.cli.host.following.PIECE", 100)
    text = b"".join(b"line %d\n" % number for number in range(500))
    logs.text = {(1, 0): text}
    assert phalanx("logs", "5").stdout_bytes == text


def test_an_earlier_attempt(phalanx, logs):
    logs.row["attempt"] = 2
    logs.text = {(1, 0): b"first\n", (2, 0): b"second\n"}
    assert phalanx("logs", "5").stdout == "second\n"
    assert phalanx("logs", "5", "--attempt", "1").stdout == "first\n"


def test_following_goes_through_attempts_until_the_end(phalanx, logs):
    logs.text = {(1, 0): b"one\n", (1, 1): b"two\n"}
    logs.ended = {1}

    def again():
        logs.row = {**logs.row, "attempt": 2, "state": "running"}
        logs.text[2, 0] = b"three\n"
        logs.end()

    logs.row["state"] = "pending"
    logs.moves = [again]
    done = phalanx("logs", "-f", "5")
    assert done.stdout == "[0] one\n[1] two\nthree\n"
    assert "attempt 2 of 5 train" in done.stderr
    assert done.exit_code == 0


def test_following_reads_a_log_to_its_very_end(phalanx, logs, monkeypatch):
    monkeypatch.setattr("phalanx.cli.host.following.PIECE", 100)
    text = b"".join(b"line %d\n" % number for number in range(100)) + b"no end"
    logs.text = {(1, 0): text}
    logs.end()
    assert phalanx("logs", "-f", "5").stdout_bytes == text + b"\n"


def test_following_a_job_that_waits_says_that_it_waits(phalanx, logs, canned):
    logs.row = canned.row(id=5, name="train", state="pending", attempt=0, reason=canned.CAPACITY, eta=None)

    def start():
        logs.row = canned.row(id=5, name="train", attempt=1)
        logs.text = {(1, 0): b"hello\n"}
        logs.end()

    logs.moves = [start]
    done = phalanx("logs", "-f", "5")
    assert done.stderr == "phalanx: 5 train waits: needs 4 members and 0 fit\n"
    assert done.stdout == "hello\n"


def test_run_ends_with_the_exit_code_of_the_job(phalanx, daemon, logs):
    daemon.answer("POST", "/v1/jobs", {"id": 5, "name": "train", "state": "pending", "eta": None})
    logs.text = {(1, 0): b"out\n"}
    logs.end("failed", 42)
    logs.failure = {"rank": 0, "exit_code": 42, "signal": None, "lines": ["out"]}
    done = phalanx("run", "-g", "1", "--", "sleep", "1")
    assert (done.exit_code, done.stdout) == (42, "out\n")
    assert done.stderr == (
        "phalanx: 5 train pending, 1 rank × 1 GPU; Ctrl-C detaches\nrank 0 failed first (exit code 42)\n"
        "phalanx: 5 train failed with exit code 42\n"
    )


CODES = {("completed", 0): 0, ("failed", 3): 3, ("failed", None): 1, ("cancelled", None): 1, ("failed", 0): 1,
         ("failed", 256): 1, ("completed", None): 0}  # fmt: skip


@pytest.mark.parametrize("end", CODES)
def test_wait_ends_with_the_exit_code_of_the_job(phalanx, logs, end):
    logs.end(*end)
    done = phalanx("wait", "5")
    assert done.exit_code == CODES[end]
    assert done.stdout == ("5 train completed\n" if end[0] == "completed" else "")


def test_wait_tells_the_last_lines_of_what_failed(phalanx, logs):
    logs.end("failed", 1)
    logs.failure = {"rank": 3, "exit_code": None, "signal": 9, "lines": ["a\x1b[31m", "b"]}
    assert phalanx("wait", "5").stderr == (
        "rank 3 failed first (signal 9):\n  | a\\x1b[31m\n  | b\nphalanx: 5 train failed with exit code 1\n"
    )


def test_an_end_that_was_no_ranks_doing_is_told_without_one(phalanx, logs):
    logs.end("failed", 124)
    logs.failure = {"rank": None, "exit_code": 124, "signal": None, "why": "it ran too long"}
    assert phalanx("wait", "5").stderr == "it ran too long\nphalanx: 5 train failed with exit code 124\n"


def test_wait_gives_up(phalanx, logs):
    done = phalanx("wait", "5", "--timeout", "0.05s")
    assert done.exit_code == 124
    assert done.stderr == "phalanx: 5 is running after 0.05s\n"


def test_wait_for_several_ends_with_the_first_failure(phalanx, daemon, canned):
    first, second = Logs(daemon, canned, 5), Logs(daemon, canned, 6)
    first.end("failed", 7)
    second.end()
    done = phalanx("wait", "6", "5", "-o", "json")
    assert done.exit_code == 7
    import json

    assert [job["id"] for job in json.loads(done.stdout)] == [6, 5]


LINES = {
    "plain": "plain",
    "\x1b[31mred\x1b[0m": "\x1b[31mred\x1b[0m\x1b[0m",
    "\x1b]0;title\x07x": "\\x1b]0;title\\x07x",
    "10%\r50%\r100%\r": "100%",
    "a\tb": "a    b",
    "\x1b[2Jgone": "\\x1b[2Jgone",
    "\u202eevil": "\\u202eevil",
}


@pytest.mark.parametrize("line", LINES)
def test_on_a_terminal_a_log_cannot_do_more_than_colours(line):
    assert tame(line) == LINES[line]


# ---- Ctrl-C on a real terminal


class Terminal:
    """`phalanx run` behind a pseudo-terminal."""

    def __init__(self, *words, second_s=60):
        self.read_end, inside = pty.openpty()
        # On a busy machine two seconds may pass before a test has pressed the key again.
        # Whoever runs the tests in the background ignores Ctrl-C, and so would everybody they start.
        awake = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
        slow = f"import phalanx.cli.host.run as run; run._SECOND_S = {second_s}"
        code = f"{awake}\n{slow}\nfrom phalanx.cli import main; main()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *words],
            stdin=inside, stdout=inside, stderr=inside, start_new_session=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        os.close(inside)
        self.seen = ""

    def until(self, text, patience_s=30):
        end = time.monotonic() + patience_s
        while text not in self.seen:
            assert time.monotonic() < end, self.seen
            if select.select([self.read_end], [], [], 0.2)[0]:
                try:
                    self.seen += os.read(self.read_end, 4096).decode()
                except OSError:  # the other side has gone
                    assert text in self.seen, self.seen

    def interrupt(self):
        os.kill(self.process.pid, signal.SIGINT)

    def interrupt_until(self, text):
        """As people do: whoever sees nothing happen presses again. One that falls into a finaliser is lost."""
        for patience_s in (10, 30):
            self.interrupt()
            try:
                self.until(text, patience_s)
            except AssertionError:
                continue
            return
        self.until(text, 0)

    def type(self, text):
        os.write(self.read_end, text.encode())

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(30)
        os.close(self.read_end)


def start_running(daemon, logs, second_s):
    daemon.answer("POST", "/v1/jobs", {"id": 5, "name": "train", "state": "running", "eta": None})
    daemon.answer("POST", "/v1/jobs/5/cancel", logs.row)
    logs.text = {(1, 0): b"step 1\n"}
    return Terminal("run", "-g", "1", "--", "sleep", "1", second_s=second_s)


@pytest.fixture
def running(daemon, logs):
    found = start_running(daemon, logs, 60)
    yield found
    found.close()


def test_ctrl_c_detaches_and_says_how_to_come_back(daemon, logs):
    running = start_running(daemon, logs, 0.1)
    try:
        running.until("step 1")
        running.interrupt()
        running.until("phalanx logs -f 5   come back")
        assert "detached; 5 train goes on" in running.seen
        assert running.process.wait(30) == 130
        assert daemon.sent("POST", "/v1/jobs/5/cancel") == []
    finally:
        running.close()


def test_a_second_ctrl_c_asks_and_then_cancels(running, daemon):
    running.until("step 1")
    running.interrupt()
    running.until("come back")
    running.interrupt_until("cancel 5 train? [y/N]")
    running.type("y\n")
    running.until("cancelled")
    assert running.process.wait(30) == 130
    assert len(daemon.sent("POST", "/v1/jobs/5/cancel")) == 1


def test_a_second_ctrl_c_with_a_no_cancels_nothing(running, daemon):
    running.until("step 1")
    running.interrupt()
    running.until("come back")
    running.interrupt_until("cancel 5 train? [y/N]")
    running.type("n\n")
    assert running.process.wait(30) == 130
    assert daemon.sent("POST", "/v1/jobs/5/cancel") == []


def test_ctrl_c_while_following_leaves_the_job_alone(daemon, logs):
    logs.text = {(1, 0): b"step 1\n"}
    terminal = Terminal("logs", "-f", "5")
    try:
        terminal.until("step 1")
        terminal.interrupt()
        terminal.until("still there: phalanx logs -f 5")
        assert terminal.process.wait(30) == 130
    finally:
        terminal.close()
