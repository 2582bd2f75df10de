"""The command line as people and programs meet it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from phalanx import __version__
from phalanx.cli import main
from phalanx.cli.screen import choose_glyphs, print_sheet, share_bar
from phalanx.frontends.sim.printing import Sheet
from phalanx.frontends.sim.text_gantt import ASCII, BLOCKS

SMALL = (Path(__file__).resolve().parents[3] / "examples" / "deadlock.yaml").read_text(encoding="utf-8")
LOG = "".join(f"{job} {job} -1 60 2 -1 -1 2 100 -1 1 {job % 3} 1 -1 1 -1 -1 -1\n" for job in range(1, 60))


@pytest.fixture
def small(tmp_path: Path) -> Path:
    file = tmp_path / "small.yaml"
    file.write_text(SMALL)
    return file


def run(*arguments: object) -> str:
    done = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def test_help_is_quick_to_import():
    code = (
        "import sys\nfrom phalanx.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "heavy = {'numpy', 'rich', 'yaml', 'msgspec'} & set(sys.modules)\nassert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "demo" in done.stdout
    assert "sim" in done.stdout


def test_version():
    assert run("--version").strip() == f"phalanx, version {__version__}"


def test_an_unknown_verb_is_a_usage_error():
    assert CliRunner().invoke(main, ["simm"]).exit_code == 2


def test_json_is_a_list_with_one_element_per_policy(small: Path):
    found = json.loads(run("sim", small, "--policy", "fcfs,easy", "--json", "--seed", 3))
    assert [(result["policy"], result["seed"]) for result in found] == [("fcfs", 3), ("easy", 3)]
    assert [gang["start_s"] for gang in found[1]["gangs"]] == [0, 60]


def test_the_policy_of_the_file_is_used_unless_another_is_named(small: Path):
    small.write_text(SMALL + "policy: {name: fcfs}\n")
    assert [result["policy"] for result in json.loads(run("sim", small, "--json"))] == ["fcfs"]
    assert [result["policy"] for result in json.loads(run("sim", small, "--json", "--policy", "easy"))] == ["easy"]


def test_the_text_has_tables_a_picture_and_no_colour(small: Path):
    text = run("sim", small, "--policy", "fcfs,easy")
    assert "policy fcfs" in text
    assert "policy easy" in text
    assert "2 of 2" in text
    assert "running" in text
    assert "\x1b" not in text
    assert "running" not in run("sim", small, "--policy", "easy", "--no-gantt")


def test_a_log(tmp_path: Path):
    file = tmp_path / "log.swf"
    file.write_text(LOG)
    text = run("sim", file, "--cluster", "1x8", "--policy", "easy", "--estimate", "rounded")
    assert "59 of 59" in text
    found = json.loads(run("sim", file, "--cluster", "2x4", "--policy", "easy", "--json"))
    assert {node for gang in found[0]["gangs"] for node in gang["placement"]} == {"n0", "n1"}


def test_a_cluster_may_stand_in_for_that_of_the_file(small: Path):
    found = json.loads(run("sim", small, "--cluster", "1x8", "--policy", "easy", "--json"))
    assert [gang["start_s"] for gang in found[0]["gangs"]] == [0, 0]


def test_a_terminal_that_knows_no_blocks_gets_ascii(small: Path):
    code = "from phalanx.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "sim", str(small), "--policy", "easy"], capture_output=True, check=False, timeout=60,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert b"####" in done.stdout
    assert done.stdout.isascii()


def test_glyphs_follow_the_encoding(monkeypatch: pytest.MonkeyPatch):
    class Stream:
        encoding = "ascii"

    monkeypatch.setattr(sys, "stdout", Stream())
    assert choose_glyphs() is ASCII
    Stream.encoding = "utf-8"
    assert choose_glyphs() is BLOCKS


def test_on_a_terminal_tables_are_drawn_and_names_are_not_markup(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_sheet(Sheet("runs", ("gang", "wait"), (("[red]A", "1s"),)))
    text = capsys.readouterr().out
    assert "[red]A" in text
    assert "│" in text or "┃" in text


def test_a_bar_is_for_long_runs_that_somebody_watches(monkeypatch: pytest.MonkeyPatch):
    with share_bar("easy", 100_000) as progress:
        assert progress is None, "standard error is no terminal here"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with share_bar("easy", 2_000) as progress:
        assert progress is None
    with share_bar("easy", 2_001) as progress:
        assert progress is not None
        progress(0.5)
