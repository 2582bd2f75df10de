"""The daemon starts by itself, once, and a start that fails says why."""

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from phalanx import __version__
from phalanx.client.daemon_errors import UnreachableError
from phalanx.client.daemon_starting import command_of, prepare_state, start_daemon, tail_of, wait_until_gone

#: A daemon in twenty lines: it writes daemon.json when it answers, and goes when it is told to.
STUB = """
import fcntl, http.server, json, os, socketserver, sys
state = sys.argv[sys.argv.index("--state") + 1]
lock = open(os.path.join(state, "lock"), "ab")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    sys.exit(0)
path = os.path.join(state, "phalanx.sock")
if os.path.exists(path):
    os.unlink(path)
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self, body):
        text = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
    def do_GET(self):
        self.answer({"pid": os.getpid(), "socket": path, "version": VERSION, "uptime_s": 0.0, "mode": "user",
                     "policy": "goodput", "containment": "weak", "store": {"ok": True, "problem": None}, "jobs": {},
                     "gpus": {"total": 4.0, "free": 4.0}, "fake": True, "words": sys.argv[1:], "cwd": os.getcwd()})
    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == "/v1/down":
            self.answer({"stopping": True})
            self.wfile.flush()
            os._exit(0)
        self.answer({"id": 1, "name": "true", "state": "running", "eta": None})
    def address_string(self):
        return ""
class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
server = Server(path, Handler)
with open(os.path.join(state, "daemon.json.new"), "w") as file:
    json.dump({"pid": os.getpid(), "socket": path, "version": VERSION}, file)
os.replace(os.path.join(state, "daemon.json.new"), os.path.join(state, "daemon.json"))
server.serve_forever()
""".replace("VERSION", repr(__version__))


@pytest.fixture
def stub(home, monkeypatch):
    """`python -m phalanx.frontends.host` is a small stand-in; whatever was started is ended."""
    script = home.parent / "stub.py"
    script.write_text(STUB)
    spawned = []

    def command(state, flags=()):
        return [sys.executable, str(script), "--state", str(state), *flags]

    from phalanx.client import daemon_starting

    original = daemon_starting.spawn_daemon

    def spawn(words, log):
        pid = original(words, log)
        spawned.append(pid)
        return pid

    monkeypatch.setattr(daemon_starting, "command_of", command)
    monkeypatch.setattr(daemon_starting, "spawn_daemon", spawn)
    yield spawned
    for pid in spawned:
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


def test_the_first_submit_starts_a_daemon_and_the_second_finds_it(stub, phalanx, home):
    first = phalanx("submit", "true")
    assert first.exit_code == 0, first.output
    assert first.stdout.startswith("1 true  running  1 rank × 1 GPU\n")
    assert phalanx("submit", "true").exit_code == 0
    assert len(stub) == 1
    assert (home / "daemon.log").stat().st_mode & 0o077 == 0


def test_only_submit_and_up_start_one(stub, phalanx):
    assert phalanx("ps").exit_code == 5
    assert phalanx("status").exit_code == 5
    assert stub == []


def test_up_down_up(stub, phalanx):
    done = phalanx("up", "--fake-gpus", "4", "--policy", "easy")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(f"up: phalanx {__version__}, pid {stub[0]}, for 0s\n")
    again = phalanx("up", "--fake-gpus", "4")
    assert (again.exit_code, again.stdout.split(":")[0]) == (0, "already up")
    other = phalanx("up", "--fake-gpus", "8")
    assert other.exit_code == 1
    assert "a daemon runs already, with 4 fake GPUs; options count when it starts" in other.stderr
    assert "next: phalanx down && phalanx up --fake-gpus 8" in other.stderr
    assert phalanx("down").stdout == "down; running jobs go on\n"
    assert phalanx("down").stdout == "no daemon is running\n"
    assert phalanx("up").exit_code == 0
    assert len(stub) == 2


#: What is typed while a daemon with four fake GPUs runs: the error, and the next command.
BESIDE_A_DAEMON = {
    "--real-gpus": (
        "a daemon runs already, with 4 fake GPUs; options count when it starts",
        "phalanx down && phalanx up --real-gpus; running jobs go on",
    ),
    "--fake-gpus 2 --real-gpus": (
        "--fake-gpus 2 and --real-gpus cannot both be meant",
        "phalanx up --fake-gpus 2, or phalanx up --real-gpus",
    ),
    "--policy easy": (
        "a daemon runs already, with policy goodput; options count when it starts",
        "phalanx down && phalanx up --policy easy; running jobs go on",
    ),
    "--policy nosuch": ("--policy names no policy: 'nosuch'; valid: ", "write another --policy; docs/settings.md"),
    "--tcp 0.0.0.0:8480": ("--tcp must stay on this machine: 127.0.0.1", "write another --tcp; docs/settings.md"),
    "--tcp 8480": ("--tcp must be an address and a port", "write another --tcp; docs/settings.md"),
}


@pytest.mark.parametrize("words", BESIDE_A_DAEMON)
def test_up_beside_a_daemon(stub, phalanx, words):
    """Nobody is advised to stop a daemon for one that could not start."""
    assert phalanx("up", "--fake-gpus", "4").exit_code == 0
    done = phalanx("up", *words.split())
    said, following = BESIDE_A_DAEMON[words]
    error, hint = done.stderr.splitlines()
    assert error.startswith(f"phalanx: error: {said}")
    assert hint == f"  next: {following}"
    assert done.exit_code in (1, 2)
    assert len(stub) == 1


def test_settings_that_cannot_be_used_are_named_by_every_verb_that_needs_them(home, phalanx):
    """`up` said `phalanx doctor`, which found nothing failed; `config show` said `phalanx up`, which failed again."""
    (home / "config.toml").write_text('policy = "nosuch"\n')
    wrong = f"{home}/config.toml: policy names no policy: 'nosuch'"
    mend = "mend it where it stands, then phalanx up"
    done = phalanx("up")
    assert wrong in done.stderr
    assert f"  next: {mend}; its log is " in done.stderr
    done = phalanx("config", "show")
    assert wrong in done.stderr
    assert f"  next: {mend}\n" in done.stderr
    done = phalanx("doctor", "--json")
    first = json.loads(done.stdout)[0]
    assert (first["name"], first["level"], first["fix"], done.exit_code) == ("settings", "fail", mend, 1)
    assert wrong in first["message"]
    (home / "config.toml").unlink()
    assert "next: phalanx up\n" in phalanx("config", "show").stderr
    assert json.loads(phalanx("doctor", "--json").stdout)[0]["level"] == "ok"


def test_flags_reach_the_daemon(stub, phalanx):
    import json

    told = json.loads(phalanx("up", "--fake-gpus", "4", "--tcp", "127.0.0.1:8470", "-o", "json").stdout)
    assert told["words"][2:] == ["--fake-gpus", "4", "--tcp", "127.0.0.1:8470"]


def test_two_that_start_one_at_once_both_find_the_one_that_won(stub, home):
    first = start_daemon(home)
    second = start_daemon(home)
    assert first.pid == second.pid
    assert len(stub) == 2


def test_what_is_left_of_a_killed_daemon_is_no_hindrance(stub, phalanx):
    assert phalanx("up").exit_code == 0
    os.kill(stub[0], signal.SIGKILL)
    os.waitpid(stub[0], 0)
    done = phalanx("ps")
    assert done.exit_code == 5
    assert "the daemon is not running" in done.stderr
    assert phalanx("submit", "true").exit_code == 0
    assert len(stub) == 2


def test_a_daemon_that_dies_during_a_submit_is_started_again_and_asked_with_the_same_key(stub, phalanx, home):
    (home.parent / "stub.py").write_text(
        STUB.replace(
            'self.answer({"id"',
            "key = self.headers['Idempotency-Key']; seen = os.path.join(state, 'keys')\n"
            "        known = os.path.exists(seen)\n"
            "        open(seen, 'a').write(key + '\\n')\n"
            "        if not known: os._exit(9)\n"
            '        self.answer({"id"',
        )
    )
    done = phalanx("submit", "true")
    assert done.exit_code == 0, done.output
    assert len(stub) == 2
    first, second = (home / "keys").read_text().split()
    assert first == second


FAILURES = {
    "import sys; sys.stderr.write('phalanx: error: the database is corrupt\\n'); sys.exit(2)": (
        "phalanx: error: the daemon could not start (exit code 2): the database is corrupt\n"
    ),
    "print('one'); print('two'); 1/0": "  | ZeroDivisionError: division by zero\n",
    "import sys; sys.exit(3)": "phalanx: error: the daemon could not start (exit code 3); it said nothing\n",
}


@pytest.mark.parametrize("code", FAILURES)
def test_a_start_that_fails_shows_what_the_daemon_said(stub, phalanx, home, code):
    (home.parent / "stub.py").write_text(code)
    (home / "daemon.log").write_text("old lines\nphalanx: error: of last week\n")
    done = phalanx("submit", "true")
    assert done.exit_code == 5
    assert FAILURES[code] in done.stderr
    assert f"  next: phalanx doctor; its log is {home / 'daemon.log'}\n" in done.stderr
    assert "last week" not in done.stderr


def test_a_start_that_takes_for_ever_is_given_up(stub, phalanx, home, monkeypatch):
    (home.parent / "stub.py").write_text("import time\ntime.sleep(600)\n")
    monkeypatch.setattr("phalanx.client.daemon_starting.ANSWER_S_MAX", 0.2)
    done = phalanx("up")
    assert done.exit_code == 5
    assert "the daemon did not answer within 0 s" in done.stderr


# ---- state directories that cannot be used


def test_a_state_directory_that_is_a_file(phalanx, home, monkeypatch):
    (home / "file").write_text("")
    monkeypatch.setenv("PHALANX_HOME", str(home / "file"))
    done = phalanx("submit", "true")
    assert done.exit_code == 5
    assert f"the state directory {home / 'file'} cannot be used: File exists" in done.stderr
    assert "next: set PHALANX_HOME to a directory that you can write" in done.stderr


@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="no place here that nobody can write")
def test_a_state_directory_that_nobody_can_write(phalanx, home, monkeypatch):
    monkeypatch.setenv("PHALANX_HOME", "/sys/kernel/phalanx")
    done = phalanx("submit", "true")
    assert done.exit_code == 5
    assert "the state directory /sys/kernel/phalanx cannot be used: " in done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_state_directory(phalanx, home):
    home.chmod(0o500)
    done = phalanx("submit", "true")
    assert done.exit_code == 5
    assert "it is not writable" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a directory away")
def test_a_state_directory_of_somebody_else(phalanx, home):
    os.chown(home, 65534, 65534)
    for verb in ("up", "submit"):
        done = phalanx(verb, *(["true"] if verb == "submit" else []))
        assert done.exit_code == 5
        assert f"the state directory {home} belongs to nobody, and you are root" in done.stderr
        assert "next: set PHALANX_HOME to a directory of yours, or leave out sudo" in done.stderr
    assert list(home.iterdir()) == [], "nothing was left there"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_somebody_else_s_state_directory_cannot_even_be_read(home):
    """As another user, in a process of its own: the directory is 0700."""
    (home / "daemon.json").write_text("{}")
    code = (
        "import os; os.setgid(65534); os.setuid(65534)\n"
        "from phalanx.client.daemon_places import find_place\n"
        "from phalanx.client.daemon_errors import UnreachableError\n"
        "try: find_place()\n"
        "except UnreachableError as bad: print(bad.message); print(bad.exit_code)\n"
    )
    # Imported before the rights go: the interpreter may lie where nobody else can read.
    code = "import phalanx.client.daemon_places, phalanx.client.daemon_errors\n" + code
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == f"the state directory {home} is not yours\n5\n"


def test_the_real_command_line():
    words = command_of(Path("/s"), ["--fake-gpus", "8"])
    assert words == [sys.executable, "-P", "-m", "phalanx.frontends.host", "--state", "/s", "--fake-gpus", "8"]


def test_the_tail_of_a_log_begins_where_it_should(tmp_path):
    log = tmp_path / "log"
    log.write_text("a\nb\n\nc\n")
    assert tail_of(log, 2) == "b\nc"
    assert tail_of(tmp_path / "none") == ""


def test_prepare_makes_a_private_directory(home):
    prepare_state(home / "a" / "b")
    assert (home / "a" / "b").stat().st_mode & 0o777 == 0o700


def test_the_daemon_holds_nothing_open_that_its_starter_was_given(stub, home):
    """Else `out=$(make demo)` would wait for as long as the daemon lives."""
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, True)
    try:
        start_daemon(home)
        os.close(write_end)
        assert select.select([read_end], [], [], 30)[0], "somebody still holds the other end"
        assert os.read(read_end, 1) == b""
    finally:
        os.close(read_end)


def test_the_daemon_can_be_interrupted_even_if_its_starter_could_not(stub, home):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        place = start_daemon(home)
    finally:
        signal.signal(signal.SIGINT, before)
    status = Path(f"/proc/{place.pid}/status").read_text()
    ignored = int(next(line.split()[1] for line in status.splitlines() if line.startswith("SigIgn:")), 16)
    assert not ignored & (1 << (signal.SIGINT - 1))


def test_waiting_for_one_that_stays(stub, home, monkeypatch):
    place = start_daemon(home)
    monkeypatch.setattr("phalanx.client.daemon_starting.GONE_S_MAX", 0.1)
    assert not wait_until_gone(place)


def test_a_place_that_is_wrong_is_refused_at_once(home):
    with pytest.raises(UnreachableError):
        start_daemon(Path("/dev/null/state"))
