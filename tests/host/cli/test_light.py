"""`ps` is put under `watch` and into prompts: it must stay light."""

import json
import os
import subprocess
import sys

HEAVY = (
    *("rich", "numpy", "msgspec", "asyncio", "email", "http.client", "yaml", "subprocess", "ssl", "logging", "shutil"),
    *(
        "csv",
        "psutil",
        "tempfile",
        "phalanx.control",
        "phalanx.engine",
        "phalanx.frontends",
        "phalanx.model",
    ),
)
CODE = """
import json, sys
from phalanx.cli import main
try:
    main({words!r})
except SystemExit as end:
    assert not end.code, end.code
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def modules_after(*words):
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(words=list(words))], capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr.splitlines()[-1])), done.stdout


def test_ps_imports_nothing_heavy(telling):
    loaded, shown = modules_after("ps")
    assert "box: GPU 0-3" in shown
    assert "phalanx.cli.host.ps" in loaded
    assert loaded.isdisjoint(HEAVY), sorted(loaded.intersection(HEAVY))


def test_why_in_json_and_help_are_as_light(telling):
    for words in (["why", "214", "-o", "json"], ["ps", "-o", "json"], ["--help"]):
        loaded, _ = modules_after(*words)
        loaded -= {"shutil"} if words == ["--help"] else set()  # click asks it how wide the terminal is
        assert loaded.isdisjoint(HEAVY), (words, sorted(loaded.intersection(HEAVY)))


def test_the_package_itself_imports_nothing_of_the_client():
    code = "import sys, phalanx; assert not [m for m in sys.modules if m.startswith('phalanx.')], sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_client_needs_the_standard_library_only():
    code = (
        "import sys; before = set(sys.modules)\n"
        "import phalanx.client.api, phalanx.client.call, phalanx.client.daemon_starting\n"
        "new = {m.partition('.')[0] for m in set(sys.modules) - before}\n"
        "foreign = new - set(sys.stdlib_module_names) - {'phalanx'}\n"
        "assert not foreign, foreign\n"
        "ours = {m for m in sys.modules if m.startswith('phalanx.')}\n"
        "assert all(m.startswith('phalanx.client') for m in ours), ours\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
