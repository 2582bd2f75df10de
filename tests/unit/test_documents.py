"""Every command that the documents and examples show can be typed as it stands."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from phalanx.cli import main

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").glob("*.yaml")),
]
COMMAND = re.compile(r"^[#$ ]*(?:\.venv/bin/)?(phalanx sim\b.*?)(?:\s+#.*)?$", re.MULTILINE)


def shown():
    """(page, command) of every command whose input is in the repository."""
    found = []
    for page in PAGES:
        for command in COMMAND.findall(page.read_text()):
            words = shlex.split(command)
            if len(words) < 3 or (ROOT / words[2]).exists():
                found.append(pytest.param(words[1:], id=f"{page.name}: {command}"))
    return found


@pytest.mark.parametrize("words", shown())
def test_commands_in_documents_run(words, monkeypatch):
    monkeypatch.chdir(ROOT)
    outcome = CliRunner().invoke(main, words)
    assert outcome.exit_code == 0, outcome.output


def test_enough_commands_are_shown():
    """If the pattern above stopped matching, the test above would pass by testing nothing."""
    assert len(shown()) >= 6


def test_the_mistake_in_the_readme_is_answered_as_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "cluster:\n  nodes: [{name: n0, resources: {gpu: 4}}]\ngangs:\n  - name: A\n    membrs: 4\n    each: {gpu: 1}\n    duration: 60\n"
    Path("broken.yaml").write_text(text)
    outcome = CliRunner().invoke(main, ["sim", "broken.yaml"])
    assert outcome.exit_code == 2
    assert outcome.stderr.strip() in (ROOT / "README.md").read_text()
