"""The demo tells what really happened, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest


def processes_with(word: bytes) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if word in (entry / "environ").read_bytes() or word in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    folder = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-c", "from phalanx.cli import main; main()", "demo"]
    env = {**os.environ, "TMPDIR": str(folder)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, folder


def order(text: str, *parts: str) -> bool:
    """Whether these stand in the text in this order."""
    at = -1
    for part in parts:
        found = re.search(part, text[at + 1 :])
        if found is None:
            return False
        at += 1 + found.start()
    return True


def test_a_gang_waits_and_an_elastic_job_shrinks_for_it(shown):
    text, _ = shown
    assert order(text, r"big +submitted", r"train +gives GPUs up and goes on with 2", r"big +starts whole, 6 ranks")


def test_a_small_one_backfills(shown):
    text, _ = shown
    assert order(text, r"big +submitted", r"probe +starts", r"probe +completed", r"big +starts")


def test_a_killed_rank_recovers(shown):
    text, _ = shown
    assert order(text, r"healer +starts", "SIGKILL", r"the gang starts again", r"healer +starts", r"healer +completed")


def test_no_item_is_lost(shown):
    text, _ = shown
    assert "items 260 done 260 lost 0 twice 0" in text
    assert text.count(" completed") == 6


def test_nothing_is_left(shown):
    _, folder = shown
    assert not list(folder.iterdir())
    assert not processes_with(os.fsencode(folder))


def test_the_next_command_can_be_typed(monkeypatch, tmp_path):
    """After `make demo` the program is in .venv/bin, which is on nobody's PATH."""
    from phalanx.cli import demo

    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "phalanx"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(sys, "argv", ["bin/phalanx", "demo"])
    assert demo.how_to_type_us() == "bin/phalanx"
    monkeypatch.chdir("/")
    monkeypatch.setattr(sys, "argv", [str(program), "demo"])
    assert demo.how_to_type_us() == str(program).removeprefix("/")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    assert demo.how_to_type_us() == "phalanx"
