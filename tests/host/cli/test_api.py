"""`phalanx.submit` and `Job`, and the program at the other end."""

import functools
import json
import os
import os.path
import subprocess
import sys
from types import SimpleNamespace

import pytest

import phalanx
from phalanx.client.api import Job
from phalanx.client.call import main as call
from phalanx.client.daemon_errors import ClientError, UsageError


@pytest.fixture
def sent(daemon):
    """What arrived last."""
    daemon.answer("POST", "/v1/jobs", {"id": 9, "name": "x", "state": "pending", "eta": None, "warnings": []})
    return lambda: daemon.sent("POST", "/v1/jobs")[-1].body


def test_a_command(sent):
    job = phalanx.submit(["sleep", "1"], gpus=(2, 8), name="x", time="1h", priority=3, after=[4, Job(5)])
    assert (job.id, job.name, repr(job)) == (9, "x", "<phalanx.Job 9 x>")
    body = sent()
    assert body["gang"] == {
        "members": {"min": 2, "max": 8}, "each": {"gpu": 1}, "priority": 3, "walltime": "3600s", "after": ["4", "5"],
    }  # fmt: skip
    assert body["run"]["command"] == ["sleep", "1"]
    assert isinstance(job, phalanx.Job)


def test_a_line_for_the_shell_and_an_environment(sent):
    phalanx.submit("echo $A | cat", gpus=0.5, env={"A": "1"}, time=90)
    body = sent()
    assert body["run"]["command"] == ["/bin/sh", "-c", "echo $A | cat"]
    assert body["run"]["env"]["A"] == "1"
    assert body["gang"] == {"members": 1, "each": {"gpu": 0.5}, "walltime": "90s"}


def test_a_function_travels_by_name(sent, tmp_path, monkeypatch):
    (tmp_path / "trainer.py").write_text("class A:\n    @staticmethod\n    def go(x, y=0):\n        print(x + y)\n")
    monkeypatch.syspath_prepend(tmp_path)
    import trainer

    phalanx.submit(trainer.A.go, gpus=1, members=1, args=[1], kwargs={"y": 2})
    body = sent()
    program, *words = body["run"]["command"]
    assert (program, words[:3]) == (sys.executable, ["-m", "phalanx.client.call", "trainer:A.go"])
    assert body["name"] == "go"
    done = subprocess.run(body["run"]["command"], capture_output=True, text=True, check=True, cwd="/", timeout=60)
    assert done.stdout == "3\n", "wherever it is started"


def outer():
    return lambda: None


BAD = {
    "a lambda": (outer(), "has no name by which a job could import it"),
    "a partial": (functools.partial(json.dumps, 1), "a partial has no name by which a job could import it"),
    "something else under its name": (functools.wraps(json.dumps)(lambda: 1), "is something else when it is imported"),
}


@pytest.mark.parametrize("name", BAD)
def test_functions_that_cannot_be_imported_are_refused(daemon, name):
    function, why = BAD[name]
    with pytest.raises(UsageError, match=why) as caught:
        phalanx.submit(function, gpus=1)
    assert "put it into a file" in caught.value.hint
    assert daemon.requests == []


def test_what_was_typed_at_a_prompt_is_refused(home):
    code = "import phalanx\ndef f(): pass\nphalanx.submit(f, gpus=1)\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "the source of f cannot be found, so a job cannot have it" in done.stderr
    assert "from train import main" in done.stderr


SCRIPT = """
import sys
import phalanx
from phalanx.client.functions import command_of_function

SCALE = 10

def scaled(x, y=1):
    return {"value": x * SCALE + y, "name": __name__}

GUARD
    print("\\n".join(command_of_function(scaled, [4], {"y": 2})))
    phalanx.submit(scaled, args=[4])
"""


def run_elsewhere(command, tmp_path, code=0):
    """A member in a directory of its own, with a place for results."""
    place = tmp_path / "run"
    place.mkdir(exist_ok=True)
    env = {**os.environ, "PHALANX_SOCKET": str(place / "job.sock"), "RANK": "0"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", timeout=60, env=env)
    assert done.returncode == code, done.stderr
    found = place / "result-0.json"
    return json.loads(found.read_text()) if found.exists() else done.stderr


def test_a_function_of_a_script_is_run_as_the_script_has_it(sent, tmp_path):
    file = tmp_path / "my-script.py"
    file.write_text(SCRIPT.replace("GUARD", "if __name__ == '__main__':"))
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert run_elsewhere(done.stdout.splitlines(), tmp_path) == {"value": {"value": 42, "name": "my-script"}}
    assert sent()["name"] == "scaled"


def test_a_script_that_submits_whenever_it_is_imported_does_not_submit_for_ever(sent, tmp_path):
    file = tmp_path / "script.py"
    file.write_text(SCRIPT.replace("GUARD", "if True:"))
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, check=False, timeout=60)
    told = run_elsewhere(done.stdout.splitlines(), tmp_path, code=1)
    assert "submits a job whenever it is imported" in told
    assert "if __name__ == '__main__':" in told


#: As IPython runs them: each under a name of its own that linecache knows.
CELLS = [
    "import math as m\nfrom json import dumps\nimport phalanx",
    "BASE = 2\nclass Point:\n    def __init__(self, x): self.x = x + BASE",
    "def even(n):\n    return n == 0 or odd(n - 1)\ndef odd(n):\n    return n != 0 and even(n - 1)",
    "def train(x, *, y=0):\n    return [m.floor(Point(x).x + y), dumps({'a': even(4)})]",
    "handle = open('/dev/null')\ndef bad():\n    return handle.name",
]
NOTEBOOK = """
import json, linecache, sys
for number, cell in enumerate(json.loads(sys.argv[1])):
    name = f"<ipython-input-{number}>"
    linecache.cache[name] = (len(cell), None, cell.splitlines(keepends=True), name)
    exec(compile(cell, name, "exec"), globals())
del globals()["__file__"]
from phalanx.client.functions import command_of_function
from phalanx.client.daemon_errors import UsageError
print(json.dumps(command_of_function(train, [1.5], {"y": 1})))
try:
    command_of_function(bad, [], {})
except UsageError as no:
    print(no.message)
"""


def test_a_function_of_a_notebook_takes_along_what_it_uses_of_the_cells(tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text(NOTEBOOK)
    done = subprocess.run(
        [sys.executable, file, json.dumps(CELLS)], capture_output=True, text=True, check=True, timeout=60
    )
    command, refused = done.stdout.splitlines()
    assert run_elsewhere(json.loads(command), tmp_path) == {"value": [4, '{"a": true}']}
    assert refused == "the function uses handle of the notebook, a TextIOWrapper, which cannot be sent"


def test_what_a_function_returned_is_asked_of_the_job(daemon, canned, tmp_path):
    ended = canned.row(state="completed", exit_code=0)
    daemon.answer("GET", "/v1/jobs/1/wait", {"id": 1, "state": "completed", "exit_code": 0, "ended": True})
    daemon.answer("GET", "/v1/jobs/1", canned.detail(ended, run_dir=str(tmp_path)))
    (tmp_path / "result-0.json").write_text('{"value": {"loss": 0.5}}')
    (tmp_path / "result-1.json").write_text('{"error": "the function returned a set, which is not JSON"}')
    assert Job(1).result() == {"loss": 0.5}
    with pytest.raises(ClientError, match="returned a set"):
        Job(1).result(rank=1)
    with pytest.raises(ClientError, match="left no result of rank 2: it is a command"):
        Job(1).result(rank=2)
    with pytest.raises(ClientError, match=r"job 1 has ranks 0 to 3 \(got 5\)"):  # was: its run directory is gone
        Job(1).result(rank=5)
    failed = canned.row(state="failed", exit_code=1, reason={"code": "Failed", "message": "rank 2 exited with code 1"})
    daemon.answer("GET", "/v1/jobs/1", canned.detail(failed, failure=canned.FAILURE))
    with pytest.raises(ClientError, match=r"(?s)job 1 failed: rank 2 exited with code 1.*ValueError"):
        Job(1).result()


def test_what_is_not_json_is_said_and_does_not_fail_the_member(tmp_path):
    code = "from phalanx.client.call import write_result; write_result({1, 2})"
    told = run_elsewhere([sys.executable, "-c", code], tmp_path)
    assert told["error"].startswith("the function returned a set, which is not JSON")


def test_the_package_shows_what_it_has():
    assert {"submit", "Job", "__version__"} <= set(dir(phalanx))


def test_what_else_is_refused(daemon):
    for keywords, why in (
        ({"what": os.path.join, "args": [object()]}, "the arguments of join are not JSON"),
        ({"what": ["true"], "args": [1]}, "args and kwargs go to a function"),
        ({"what": ["true"], "gpu": 1}, "has no option 'gpu'"),
        ({"what": ["true"], "array": "0-3"}, "makes one job"),
        ({"what": ["true"], "gpus": (8, 2)}, "least above its most"),
        ({"what": ["nosuchprogram"]}, "there is no command"),
    ):
        with pytest.raises(UsageError, match=why):
            phalanx.submit(**keywords)
    assert daemon.requests == []
    with pytest.raises(AttributeError):
        _ = phalanx.nothing


def test_notes_are_warnings(daemon):
    told = {"id": 9, "name": "x", "state": "pending", "eta": None, "warnings": ["the queue is long"]}
    daemon.answer("POST", "/v1/jobs", told)
    with pytest.warns(UserWarning, match="the queue is long"):
        phalanx.submit(["true"])


def test_a_refusal_is_an_error_with_a_code(daemon):
    error = {"code": "infeasible", "message": "too big", "hint": "phalanx nodes"}
    daemon.answer("POST", "/v1/jobs", {"error": error}, 422)
    with pytest.raises(ClientError) as caught:
        phalanx.submit(["true"], gpus=99)
    assert (caught.value.code, caught.value.exit_code) == ("infeasible", 4)
    assert str(caught.value) == "too big\n  next: phalanx nodes"


def test_a_job_can_be_asked_and_stopped(daemon, canned):
    waits = iter([False, False, True])

    def wait(_):
        told = {"id": 1, "state": "running", "exit_code": 3, "ended": next(waits)}
        return SimpleNamespace(body=told, status=200, headers={})

    canned.serve(daemon)
    daemon.answer("GET", "/v1/jobs/1/wait", wait)
    daemon.answer("POST", "/v1/jobs/1/cancel", canned.row())
    pieces = {"0": b"abc", "3": b"def", "6": b""}

    def logs(request):
        offset = dict(pair.split("=") for pair in request.query.split("&"))["offset"]
        piece = pieces[offset]
        return SimpleNamespace(body=piece, status=200, headers={"X-Phalanx-Offset": str(int(offset) + len(piece))})

    daemon.answer("GET", "/v1/jobs/1/logs", logs)
    job = Job(1, "train")
    assert job.state() == "running"
    assert job.why() == canned.WHY_RUNNING
    assert job.wait() == 3
    assert job.logs() == "abcdef"
    job.cancel()
    assert len(daemon.sent("POST", "/v1/jobs/1/cancel")) == 1


def test_waiting_has_an_end(daemon):
    daemon.answer("GET", "/v1/jobs/1/wait", {"id": 1, "state": "running", "exit_code": None, "ended": False})
    with pytest.raises(TimeoutError, match=r"job 1 is running after 0\.01 s"):
        Job(1).wait(timeout_s=0.01)


def test_a_card_for_notebooks_escapes_names(daemon, canned):
    daemon.answer("GET", "/v1/jobs/1", canned.detail(canned.row(name="<script>", info="a & b")))
    card = Job(1)._repr_html_()
    assert "&lt;script&gt;" in card
    assert "a &amp; b" in card
    assert "<script>" not in card
    assert "there is no /v1/jobs/2" in Job(2, "gone")._repr_html_()


def test_the_other_end_says_what_it_needs(capsys):
    assert call([]) == 2
    assert "MODULE:FUNCTION" in capsys.readouterr().err
