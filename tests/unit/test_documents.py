"""Every command that the documents and examples show can be typed as it stands.

What only reads and writes files is run, page by page, in the order shown: `sim`, `trace`, `what-if`. What speaks to a daemon
is read by the command line, which knows its commands and options, and not run. What `make` is asked for is there.

What the architecture and the glossary name of the code is there as well: modules, attributes, files and classes. Tables of the
reference pages are those that `docs/reference.py` makes from the code.
"""

import importlib.util
import pkgutil
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
    # Up to a pipe: what comes after it is somebody else's command.
    return [shlex.split(line.removeprefix(".venv/bin/").partition(" | ")[0]) for line in lines]


def name_of(page):
    return page.relative_to(ROOT).as_posix()


def pages_with(wanted):
    """Pages that show such a command; the others are not worth a test."""
    return [page for page in PAGES if any(wanted(words) for words in shown(page))]


def asks_daemon(words):
    """Without a state of its own what-if asks the daemon for one."""
    return words[1] not in OFFLINE or (words[1] == "what-if" and "--from" not in words and words[2:3] != ["state.json"])


def is_offline(words):
    return words[0] == "phalanx" and not asks_daemon(words) and words != REFUSED


def is_online(words):
    return words[0] == "phalanx" and asks_daemon(words)


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


# --- pages that are made from the code -----------------------------------------------------------


def load_reference():
    found = importlib.util.spec_from_file_location("docs_reference", ROOT / "docs" / "reference.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


REFERENCE = load_reference()


@pytest.mark.parametrize("page", REFERENCE.MADE)
def test_reference_pages_say_what_the_code_says(page):
    text = (ROOT / "docs" / page).read_text()
    assert text == REFERENCE.make_page(page), f"docs/{page} is old: make reference"
    assert f"docs/{page}" in (ROOT / "README.md").read_text(), "and the README leads there"


def test_a_page_that_lags_behind_is_noticed(monkeypatch):
    monkeypatch.setitem(REFERENCE.VARIABLES, "RANK", "something else")
    assert REFERENCE.make_page("member-environment.md") != (ROOT / "docs" / "member-environment.md").read_text()
    monkeypatch.delitem(REFERENCE.VARIABLES, "RANK")
    with pytest.raises(KeyError):
        REFERENCE.make_page("member-environment.md")


# --- what documents name of the code ---------------------------------------------------------------

SOURCE = ROOT / "src" / "phalanx"
MAPS = [ROOT / "ARCHITECTURE.md", ROOT / "docs" / "glossary.md"]
#: Where a path without the package's name begins; the architecture has a chapter on each.
BASES = ("phalanx", "phalanx.engine", "phalanx.frontends.host", "phalanx.frontends.kube")
FOLDERS = (ROOT, *(SOURCE.parent / base.replace(".", "/") for base in BASES))
QUOTED = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
DOTTED = re.compile(r"[a-z_]+(?:\.[A-Za-z_]+)+")
SLASHED = re.compile(r"\.?[a-z_]+(?:/[a-z_]+)+(?:\.py)?")
CLASS = re.compile(r"[A-Z][a-z]+(?:[A-Z][a-z]*)*")


def exists(dotted):
    """Whether this is a module, or an attribute of one, of the package or of what a chapter is about."""
    for base in BASES:
        try:
            pkgutil.resolve_name(f"{base}.{dotted}")
        except (ImportError, AttributeError):
            continue
        return True
    return False


def names_code(dotted):
    """Whether the first word is a package or module of ours; others write `gang.minCount`."""
    first = dotted.split(".")[0]
    return any((folder / first).is_dir() or (folder / f"{first}.py").is_file() for folder in FOLDERS[1:])


def list_dotted(text):
    return [word for word in QUOTED.findall(text) if DOTTED.fullmatch(word) and names_code(word)]


def list_places_of_words(text):
    """The last column of the glossary's tables of three: each word there says where the idea lives."""
    rows = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [word for row in rows if len(row) == 3 for word in QUOTED.findall(row[2])]


@pytest.mark.parametrize("page", MAPS, ids=name_of)
def test_modules_and_attributes_that_documents_name_exist(page):
    named = list_dotted(page.read_text())
    assert named
    assert [each for each in named if not exists(each)] == []


@pytest.mark.parametrize("page", MAPS, ids=name_of)
def test_files_and_folders_that_documents_name_exist(page):
    named = [word for word in QUOTED.findall(page.read_text()) if SLASHED.fullmatch(word)]
    spelt = {word: [folder / f"{word}{end}" for folder in FOLDERS for end in ("", ".py")] for word in named}
    assert [word for word, paths in spelt.items() if not any(path.exists() for path in paths)] == []


def test_classes_that_the_architecture_names_exist():
    source = "\n".join(path.read_text() for path in SOURCE.rglob("*.py"))
    named = {word for word in QUOTED.findall(MAPS[0].read_text()) if CLASS.fullmatch(word)}
    assert len(named) >= 20
    assert {word for word in named if not re.search(rf"^class {word}\b", source, re.MULTILINE)} == set()


def test_every_word_of_the_code_in_the_glossary_lives_somewhere():
    named = list_places_of_words(MAPS[1].read_text())
    assert len(named) >= 60
    assert [each for each in named if not exists(each)] == []


def test_what_is_gone_is_noticed():
    """If the patterns above stopped matching, or everything existed, the tests above would test nothing."""
    assert list_dotted("`engine.taking`, `core.pen`, `gang.minCount`") == ["engine.taking", "core.pen"]
    assert not exists("engine.taking")
    assert not exists("engine.cycle.arrange")
    assert exists("engine.cycle.schedule")
    assert exists("core.pen")
    assert list_places_of_words("| sitter | who sits | `engine.roster`, `shim` |") == ["engine.roster", "shim"]


# --- examples that are no commands ------------------------------------------------------------------


def blocks(page, kind):
    """The examples of one language on a page."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", (ROOT / "docs" / page).read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("kind", "name"), [("yaml", "jobs.yaml"), ("sh", "job.sh")])
def test_job_files_in_documents_are_jobs(tmp_path, monkeypatch, kind, name):
    """Read as `submit` reads them; what only the daemon knows is asked in tests/host/cli/test_real.py."""
    from phalanx.cli.host.preparing import prepare
    from phalanx.client.job_request import JobRequest

    monkeypatch.chdir(tmp_path)
    (tmp_path / "python").write_text("#!/bin/sh\n")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    found = blocks("job-files.md", kind)
    assert found
    for text in found:
        (tmp_path / name).write_text(text)
        assert prepare(JobRequest(), [f"./{name}" if kind == "sh" else name], each=False, notes=[])


@pytest.mark.parametrize("page", ["settings.md"])
def test_settings_in_documents_can_be_used(tmp_path, page):
    from phalanx.frontends.host.settings import load_settings

    found = blocks(page, "toml")
    assert found
    for text in found:
        (tmp_path / "config.toml").write_text(text)
        (tmp_path / "config.toml").chmod(0o600)
        settings = load_settings(tmp_path, flags={}, env={"PHALANX_CONFIG": str(tmp_path / "config.toml")})
        assert settings.written
