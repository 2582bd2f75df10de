"""`make demo-kube` shows what it promises, and leaves nothing behind, whatever ends it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.live, pytest.mark.long]
COMMAND = [sys.executable, "-m", "phalanx.testing.controlplane.demo_kube"]


def processes_with(word):
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if word in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def check_gone(folder):
    for _ in range(100):
        if not processes_with(str(folder).encode()) and not list(folder.iterdir()):
            return
        time.sleep(0.1)
    raise AssertionError((processes_with(str(folder).encode()), list(folder.rglob("*"))[:10]))


def test_everything_that_it_promises(tmp_path):
    began = time.monotonic()
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(COMMAND, check=False, capture_output=True, text=True, timeout=150, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert time.monotonic() - began < 120
    for dialect in ("native", "scheduler-plugins", "koordinator", "volcano"):
        assert re.search(rf"in the words of {dialect}$", done.stdout, re.MULTILINE)
    bound = int(re.search(r"killed with SIGKILL: (\d+) of 64 are bound", done.stdout)[1])
    assert 0 < bound <= 64
    assert re.search(r"big\S* +is whole", done.stdout)
    assert "default/next  FITS NOW" in done.stdout
    check_gone(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_stopped_in_the_middle(tmp_path, number):
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env) as demo:
        for line in demo.stdout:
            if "two replicas run" in line:
                break
        demo.send_signal(number)
        demo.stdout.read()
        assert demo.wait(30) != 0
    check_gone(tmp_path)
