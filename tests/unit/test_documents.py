"""Every command that the documents and examples show can be typed as it stands.

What only reads and writes files is run, page by page, in the order shown: `sim`, `trace`, `what-if`. What speaks to a daemon
is read by the command line, which knows its commands and options, and not run. What `make` is asked for is there.
"""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from phalanx.cli import main

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "bench/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").glob("*.yaml")),
]
COMMAND = re.compile(r"^[#$ ]*(?:\.venv/bin/)?((?:phalanx|make) +[a-z-].*?)(?:\s+#.*)?$", re.MULTILINE)
OFFLINE = ("sim", "trace", "what-if")
#: Stands for whatever log the reader has.
LOG = "LOG.swf.gz"
#: Shown because it is refused: see the last test.
REFUSED = ["phalanx", "sim", "broken.yaml"]


def shown(page):
    """The commands of a page in the order shown, as words."""
    lines = [line for text in COMMAND.findall(page.read_text()) for line in re.split(r" *; *", text)]
    return [shlex.split(line.removeprefix(".venv/bin/")) for line in lines]


def name_of(page):
    return page.relative_to(ROOT).as_posix()


def pages_with(wanted):
    """Pages that show such a command; the others are not worth a test."""
    return [page for page in PAGES if any(wanted(words) for words in shown(page))]


def is_offline(words):
    return words[0] == "phalanx" and words[1] in OFFLINE and words != REFUSED


def is_online(words):
    return words[0] == "phalanx" and words[1] not in OFFLINE


@pytest.mark.parametrize("page", pages_with(is_offline), ids=name_of)
def test_commands_in_documents_run(page, tmp_path, monkeypatch):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    commands = [words[1:] for words in shown(page) if is_offline(words)]
    if any(LOG in words for words in commands):
        commands.insert(0, shlex.split(f"trace make --model llm --jobs 20 --seed 1 --cluster 16x8 -o {LOG}"))
    for words in commands:
        outcome = CliRunner().invoke(main, words)
        assert outcome.exit_code == 0, (words, outcome.output)


def read_by_the_command_line(words):
    """Find the command and let it read its words, without running it."""
    command, context = main, None
    while True:
        context = command.make_context(command.name, list(words), parent=context)
        if not hasattr(command, "resolve_command"):
            return
        _, command, words = command.resolve_command(context, words)


@pytest.mark.parametrize("page", pages_with(is_online), ids=name_of)
def test_commands_that_need_a_daemon_are_understood(page):
    for words in filter(is_online, shown(page)):
        read_by_the_command_line(words[1:])


@pytest.mark.parametrize("page", pages_with(lambda words: words[0] == "make"), ids=name_of)
def test_what_make_is_asked_for_is_there(page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {words[1] for words in shown(page) if words[0] == "make"} <= targets


def test_enough_commands_are_shown():
    """If the pattern above stopped matching, the tests above would pass by testing nothing."""
    everything = [words for page in PAGES for words in shown(page)]
    assert sum(map(is_offline, everything)) >= 20
    assert sum(map(is_online, everything)) >= 10
    assert sum(words[0] == "make" for words in everything) >= 6


def test_the_mistake_in_the_readme_is_answered_as_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "cluster:\n  nodes: [{name: n0, resources: {gpu: 4}}]\ngangs:\n  - name: A\n    membrs: 4\n    each: {gpu: 1}\n    duration: 60\n"
    Path("broken.yaml").write_text(text)
    outcome = CliRunner().invoke(main, ["sim", "broken.yaml"])
    assert outcome.exit_code == 2
    assert outcome.stderr.strip() in (ROOT / "README.md").read_text()
