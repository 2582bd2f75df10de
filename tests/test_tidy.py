"""A ratchet on tidiness: sizes, names, words and what must not be in a tracked file.

The lists of exceptions may only shrink: an entry that is no longer needed fails the test too.
Each check is a function from text to findings, so that the self-tests below can show it failing.
Patterns are glued together from pieces where this file would otherwise find itself.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from phalanx.cli import main

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "phalanx"

FUNCTION_CODE_LINES_MAX = 60
FILE_LINES_MAX = 500

#: "engine/cycle.py:schedule" → why it may be longer. An entry goes as soon as it is not needed.
LONG_FUNCTIONS: dict[str, str] = {}
#: "engine/cycle.py" → why it may be longer.
LONG_FILES: dict[str, str] = {}

CLASS_METHODS_MAX = 25
CLASS_ATTRIBUTES_MAX = 30

#: Classes that do too much, and how much; a number goes down with the class and never up.
MANY_METHODS = {
    "elastic/client.py:Job": 34,  # every word that a job may say is one
    "frontends/host/core/resizing.py:Resizing": 30,
    "testing/drawn.py:_Drawing": 27,
    "testing/hosts/made_up_machine.py:Machine": 28,
    "testing/hosts/virtual_launcher.py:FakeLauncher": 26,
}
MANY_ATTRIBUTES = {
    "frontends/host/core/jobs.py:Job": 36,
}

#: Class names that stand for several things, and for how many.
REPEATED_CLASSES = {
    "Change": 3,  # `phalanx.elastic.Change` is what people import
    "Happening": 2,  # in the OpenAPI document
    "Job": 3,  # what a user submits: in the daemon, inside the job and to a client (people import both)
    "Reason": 2,  # in the OpenAPI document
    "Resize": 2,  # in the OpenAPI document
    "Table": 2,
}
#: Modules of one name, and how many. Verbs of the command line are not counted: there the verb is the name.
REPEATED_MODULES = {
    "explain": 2,
    "reading": 2,  # the traces' is in docs/traces.md
    "seats": 2,
    "speedup": 2,
    "writing": 2,  # in docs/traces.md too
}

#: Tests that put something in the place of a private name, and how often. Each is a tax on whoever changes what is
#: behind it: plant it at a door (`tests/planted`), or make the name one. A number goes down and never up.
PRIVATE_PATCHES = {
    "tests/elastic/conftest.py": 1,
}

#: Lines with a comment, in percent of lines with code. The floors follow what is written and are never lowered:
#: whoever takes the argument out of a piece of code that stays has to leave another one.
COMMENT_PERCENT_MIN = {"engine/": 17.5, "control/": 16.7}
COMMENT_PERCENT_SLACK = 1.0

BANNED_MODULE_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "managers", "misc"}

CORE = ("model/", "perfmodel/", "engine/", "policy/")
#: Foreign words stay at the edge that translates them.
FOREIGN = ("frontends/kube/", "testing/controlplane/", "testing/kube/")
#: (pattern, what to say instead, where it holds). docs/glossary.md has the whole table.
BANNED_WORDS = [
    (r"workloads?", "job (what a user submits) or gang (what starts together)", ()),
    (r"pod[ _-]?groups?", "gang", ()),
    (r"min_?(?:available|members?)", "members_min", ()),
    (r"workers?", "member", CORE),
    (r"pods?", "member", CORE),
    (r"quotas?", "guarantee or limit, whichever is meant", CORE),
    (r"nominat(?:ed|ion)", "reservation", CORE),
]

SKIPPED_FOLDERS = {".git", ".venv", "__pycache__", "build", "dist", ".hypothesis"}


def read_tracked_files() -> dict[str, str]:
    """Text files of the repository by relative path: what git has or would add, else what lies there."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
        names = sorted(set(filter(None, listed.split("\0"))))
    except (OSError, subprocess.CalledProcessError):
        paths = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
        names = sorted(
            str(path) for path in paths if not any(p in SKIPPED_FOLDERS or p.endswith("_cache") for p in path.parts)
        )
    texts = {}
    for name in names:
        path = ROOT / name
        if not path.is_file():
            continue  # deleted in the working tree, not yet in the index
        try:
            texts[name] = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # binary
    return texts


@pytest.fixture(scope="module")
def tracked() -> dict[str, str]:
    return read_tracked_files()


@pytest.fixture(scope="module")
def modules() -> dict[str, str]:
    """Sources of the package by path inside it."""
    return {
        path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))
    }


# --- sizes ---------------------------------------------------------------------------------------


def find_code_lines(source: str) -> set[int]:
    """Line numbers that hold code: no blanks, comments or docstrings."""
    silent = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in silent:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def measure_functions(source: str) -> dict[str, int]:
    """Code lines of every function by dotted name; a nested one counts in its parent too."""
    code = find_code_lines(source)

    def walk(node: ast.AST, prefix: str) -> Iterator[tuple[str, int]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{prefix}{child.name}"
                if not isinstance(child, ast.ClassDef):
                    yield name, sum(line in code for line in range(child.lineno, (child.end_lineno or 0) + 1))
                yield from walk(child, f"{name}.")
            else:
                yield from walk(child, prefix)

    sizes: dict[str, int] = {}
    for name, size in walk(ast.parse(source), ""):
        sizes[name] = max(size, sizes.get(name, 0))  # overloads and property setters share a name
    return sizes


def check_ratchet(sizes: dict[str, int], limit: int, allowed: dict[str, str]) -> list[str]:
    """What is too long without being listed, and what is listed without being too long."""
    found = [
        f"{name}: {size} lines, limit {limit}" for name, size in sizes.items() if size > limit and name not in allowed
    ]
    for name in allowed:
        if name not in sizes:
            found.append(f"{name}: listed as long, but does not exist; take it off the list")
        elif sizes[name] <= limit:
            found.append(f"{name}: listed as long, but has {sizes[name]} lines now; take it off the list")
    return found


def test_functions_stay_short(modules):
    sizes = {f"{path}:{name}": n for path, text in modules.items() for name, n in measure_functions(text).items()}
    assert check_ratchet(sizes, FUNCTION_CODE_LINES_MAX, LONG_FUNCTIONS) == []


def test_files_stay_short(modules):
    sizes = {path: len(text.splitlines()) for path, text in modules.items()}
    assert check_ratchet(sizes, FILE_LINES_MAX, LONG_FILES) == []


def measure_classes(source: str) -> dict[str, tuple[int, int]]:
    """Methods and attributes of every class by its name; an attribute is annotated in the class or set on `self`."""
    found: dict[str, tuple[int, int]] = {}
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ClassDef):
            continue
        methods = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
        attributes = {each.target.id for each in node.body if is_field(each)}
        attributes |= {inner.attr for method in methods for inner in ast.walk(method) if is_set_on_self(inner)}
        # By name: a property and its setter are one thing to whoever reads the class.
        found[node.name] = len({method.name for method in methods}), len(attributes)
    return found


def is_field(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and "ClassVar" not in ast.unparse(node.annotation)
    )


def is_set_on_self(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )


def check_counts(counts: Mapping[str, int], limit: int, allowed: Mapping[str, int], what: str) -> list[str]:
    """What is above the limit, or above its own number if it has one; and numbers that are too high by now."""
    found = [
        f"{name}: {count} {what}, at most {allowed.get(name, limit)}"
        for name, count in counts.items()
        if count > allowed.get(name, limit)
    ]
    for name, most in allowed.items():
        count = counts.get(name, 0)
        if count <= limit:
            found.append(f"{name}: {count} {what} now; take it off the list")
        elif count < most:
            found.append(f"{name}: {count} {what} now; write {count} in the list")
    return found


def test_classes_stay_small(modules):
    sizes = {f"{path}:{name}": n for path, text in modules.items() for name, n in measure_classes(text).items()}
    methods = {name: count for name, (count, _) in sizes.items()}
    attributes = {name: count for name, (_, count) in sizes.items()}
    assert check_counts(methods, CLASS_METHODS_MAX, MANY_METHODS, "methods") == []
    assert check_counts(attributes, CLASS_ATTRIBUTES_MAX, MANY_ATTRIBUTES, "attributes") == []


def measure_comments(sources: Iterable[str]) -> float:
    """Lines with a comment, in percent of lines with code."""
    comments = code = 0
    for source in sources:
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        comments += len({token.start[0] for token in tokens if token.type == tokenize.COMMENT})
        code += len(find_code_lines(source))
    return 100 * comments / code


def check_comments(name: str, percent: float, floor: float) -> list[str]:
    """Too few, or so many more that the floor should follow."""
    if percent < floor:
        return [f"{name}: comments on {percent:.1f} % of the code, at least {floor}: say why where you changed it"]
    if percent >= floor + COMMENT_PERCENT_SLACK:
        return [f"{name}: comments on {percent:.1f} % of the code by now; raise the floor to {percent:.1f}"]
    return []


@pytest.mark.parametrize("package", COMMENT_PERCENT_MIN)
def test_code_that_decides_goes_on_saying_why(modules, package):
    percent = measure_comments(text for path, text in modules.items() if path.startswith(package))
    assert check_comments(package, percent, COMMENT_PERCENT_MIN[package]) == []


# --- names and words -----------------------------------------------------------------------------


def check_module_name(path: str) -> list[str]:
    """A module is named after what it decides."""
    parts = Path(path).with_suffix("").parts
    return [f"{path}: '{part}' says nothing" for part in parts if part.strip("_") in BANNED_MODULE_NAMES]


def count_class_names(modules: Mapping[str, str]) -> Counter[str]:
    """How many classes have each name, wherever they are."""
    trees = map(ast.parse, modules.values())
    return Counter(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def count_module_names(paths: Iterable[str], verbs: Collection[str]) -> Counter[str]:
    """How many modules have each name; packages and programs are called by their folder."""
    found: Counter[str] = Counter()
    for path in map(Path, paths):
        is_verb = path.parts[0] == "cli" and path.stem.replace("_", "-") in verbs
        if not is_verb and not path.stem.startswith("__"):
            found[path.stem] += 1
    return found


def check_words(path: str, text: str) -> list[str]:
    """One word per idea."""
    if path.startswith(FOREIGN):
        return []
    found = []
    for pattern, instead, where in BANNED_WORDS:
        if where and not path.startswith(where):
            continue
        # A hyphen or underscore makes another word: the policy `pod-fifo` is a name people know.
        for match in re.finditer(rf"(?<![\w-])(?:{pattern})(?![\w-])", text, re.IGNORECASE):
            line = text.count("\n", 0, match.start()) + 1
            found.append(f"{path}:{line}: '{match[0]}': say {instead}")
    return found


def check_docstring(path: str, text: str) -> list[str]:
    """Every module says what it decides."""
    return [] if ast.get_docstring(ast.parse(text)) else [f"{path}: no module docstring"]


def check_one_engine(path: str, text: str) -> list[str]:
    """The same code in simulation and in the field; the adapter differs, never a branch."""
    branch = re.compile(r"\bif\s+(?:not\s+)?(?:\w+\.)*(?:is_|in_)?simulat(?:ion|ing|ed)\b")
    return [f"{path}: '{match[0]}': plug in an adapter instead" for match in branch.finditer(text)]


RIM = ("frontends/", "cli/")
#: What a state keeps for itself: its tables, its records and the parts that it is put together from. What it may be
#: asked is in `control.lookups`, and what a snapshot shows of it comes from its `show_` methods.
_KEPT = (
    r"\.columns\[|(?<![a-z])state\.(?:records|nodes|pending|running|allocations|vacating|timers|groups|dependencies|hints|"
    r"forms|curves|promises|degraded|pins|judged|fresh|unconfirmed|refusals|tenants(?!\.(?:tell|recall)_decayed\())\b"
)
_WRITTEN = (
    r"(?m)^[ \t]*(?:\w+\.)*(?:state|record)(?:\.\w+)*\.(?:now_us|phase|row|seats|held|attempts|history|eligible_us|kept|"
    r"records|promises|pins|judged|fresh|timers|vacating|degraded|refusals|unconfirmed|half_life_us|watched)"
    r"(?:\[[^\]]*\])?(?:,\s*[\w.]+)*\s*[-+|&]?=(?!=)"
)


def check_state_is_a_boundary(path: str, text: str) -> list[str]:
    """Front ends call methods of a state; they neither see its tables and records nor write them."""
    if not path.startswith(RIM):
        return []
    found = [(match, "ask the state for it") for match in re.finditer(_KEPT, text)]
    found += [(match, "call a method of the state") for match in re.finditer(_WRITTEN, text)]
    return [f"{path}:{text.count(chr(10), 0, match.start()) + 1}: '{match[0]}': {say}" for match, say in found]


@pytest.mark.parametrize("check", [check_words, check_docstring, check_one_engine, check_state_is_a_boundary])
def test_modules_are_tidy(modules, check):
    assert [finding for path, text in modules.items() for finding in check(path, text)] == []


def test_modules_are_named_after_what_they_decide(modules):
    assert [finding for path in modules for finding in check_module_name(path)] == []


def test_one_name_is_one_class(modules):
    assert check_counts(count_class_names(modules), 1, REPEATED_CLASSES, "classes") == []


def test_one_name_is_one_module(modules):
    verbs = main.list_commands(click.Context(main))
    assert check_counts(count_module_names(modules, verbs), 1, REPEATED_MODULES, "modules") == []


# --- tests stay outside --------------------------------------------------------------------------


def count_private_patches(source: str) -> int:
    """Calls that set or patch an attribute whose name begins with an underscore, by name or by a dotted path."""
    found = 0
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if not re.search(r"(?:^|\.)(?:setattr|delattr|patch|patch\.object|patch\.multiple)$", called):
            continue
        named = [each.value for each in node.args[:2] if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        named += [keyword.arg for keyword in node.keywords if keyword.arg and called.endswith("multiple")]
        found += any(re.match(r"_(?!_)", name.rpartition(".")[2]) for name in named)
    return found


def test_nothing_private_is_patched(tracked):
    texts = {name: text for name, text in tracked.items() if name.startswith("tests/") and name.endswith(".py")}
    counts = {name: count_private_patches(text) for name, text in texts.items()}
    assert check_counts(counts, 0, PRIVATE_PATCHES, "patches of private names") == []


# --- what must not be in a tracked file ----------------------------------------------------------

UNFINISHED = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
MACHINE_PATH = re.compile(r"(?<![\w.$}~-])/(?:wo" + r"rk|ro" + r"ot|ho" + r"me)/")
REGISTRIES = [
    "py_pi.org",
    "python_hosted.org",
    "docker_.io",
    "gh_cr.io",
    "qu_ay.io",
    "gc_r.io",
    "nv_cr.io",
    "npm_js.org",
]
REGISTRY = re.compile(
    "|".join(rf"\b{re.escape(name.replace('_', ''))}\b" for name in REGISTRIES)
    + r"|\bregistry(?:-\d)?\.[\w-]+\.(?:io|com|org)\b"
    + r"|--(?:extra-)?index-url[ =]\S*//"
)


def check_text(name: str, text: str) -> list[str]:
    """No unfinished business, no path of one machine, no address of a package registry."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        for pattern, what in [
            (UNFINISHED, "do it or write an issue"),
            (MACHINE_PATH, "a path of one machine"),
            (REGISTRY, "an address of a registry"),
        ]:
            if match := pattern.search(line):
                found.append(f"{name}:{number}: '{match[0]}': {what}")
    return found


def test_tracked_files_hold_nothing_they_should_not(tracked):
    assert [finding for name, text in tracked.items() for finding in check_text(name, text)] == []


# --- no test is left out -------------------------------------------------------------------------

#: Not yet in `.ci/run`: the front end that they are about is not finished, and the control plane takes a new machine ten
#: minutes. `make test` runs the short ones where there is one.
BY_HAND = {"test-live"}
#: Together everything by construction: a test that is in none would be nobody's.
SELECTIONS = {"test": "not long", "test-long": "long and not live", "test-live": "live"}


def check_selections(makefile: str, ci: str) -> list[str]:
    """Each target selects what the other leaves out, and both have to pass before a change goes in."""
    found = []
    for target, marks in SELECTIONS.items():
        recipe = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
        if re.findall(r' -m "([^"]*)"', recipe[1] if recipe else "") != [marks]:
            found.append(f"Makefile: {target} does not run exactly -m {marks!r}")
        if target not in BY_HAND and f"make {target}" not in ci.splitlines():
            found.append(f".ci/run: does not run make {target}")
    return found


def test_every_test_is_in_one_of_the_selections(tracked):
    assert check_selections(tracked["Makefile"], tracked[".ci/run"]) == []


# --- decision records ----------------------------------------------------------------------------

DECISION_HEADINGS = ["Context", "Decision", "Alternatives", "Consequences", "How we will know"]


def check_decisions(texts: dict[str, str]) -> list[str]:
    """Records are numbered from 0001 without a gap and say the same five things."""
    found = []
    for number, (name, text) in enumerate(sorted(texts.items()), start=1):
        if not re.fullmatch(rf"{number:04d}-[a-z0-9]+(?:-[a-z0-9]+)*\.md", name):
            found.append(f"{name}: expected {number:04d}-words-with-hyphens.md")
        headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
        found += [f"{name}: no section '{heading}'" for heading in DECISION_HEADINGS if heading not in headings]
    return found


def test_decision_records_have_one_form(tracked):
    folder = "docs/decisions/"
    assert check_decisions({n.removeprefix(folder): t for n, t in tracked.items() if n.startswith(folder)}) == []


# --- the checks can fail -------------------------------------------------------------------------


def make_function(lines: int) -> str:
    body = "".join(f"    x{i} = {i}\n" for i in range(lines - 1))
    return f'class A:\n  def long(self):\n    """Docstring.\n\n    Two."""\n    # comment\n\n{body}'


def test_a_long_function_is_found_without_its_comments():
    assert measure_functions(make_function(61)) == {"A.long": 61}
    assert check_ratchet({"a.py:f": 61}, 60, {}) == ["a.py:f: 61 lines, limit 60"]
    assert check_ratchet({"a.py:f": 60}, 60, {}) == []
    assert check_ratchet({"a.py:f": 61}, 60, {"a.py:f": "walks straight down"}) == []


def test_the_list_of_exceptions_only_shrinks():
    assert "take it off" in check_ratchet({"a.py:f": 60}, 60, {"a.py:f": "was long"})[0]
    assert "does not exist" in check_ratchet({}, 60, {"a.py:gone": "was long"})[0]


def test_a_large_class_is_found():
    source = """
class Large:
    kept: int
    shared: ClassVar[int] = 0
    def __init__(self): self.a, self.b = 1, 2
    @property
    def size(self): return self.a
    @size.setter
    def size(self, size): self.a = size
    async def run(self): self.c += 1
"""
    assert measure_classes(source) == {"Large": (3, 4)}
    assert check_counts({"Large": 26}, 25, {}, "methods") == ["Large: 26 methods, at most 25"]
    assert check_counts({"Large": 25}, 25, {}, "methods") == []


def test_the_number_of_an_exception_only_goes_down():
    assert check_counts({"Large": 30}, 25, {"Large": 30}, "methods") == []
    assert check_counts({"Large": 31}, 25, {"Large": 30}, "methods") == ["Large: 31 methods, at most 30"]
    assert "write 29" in check_counts({"Large": 29}, 25, {"Large": 30}, "methods")[0]
    assert "take it off" in check_counts({"Large": 25}, 25, {"Large": 30}, "methods")[0]
    assert "take it off" in check_counts({}, 25, {"Gone": 30}, "methods")[0]


def test_a_name_for_two_things_is_found():
    classes = count_class_names({"a.py": "class Row: ...", "b.py": "def f():\n  class Row: ..."})
    assert check_counts(classes, 1, {}, "classes") == ["Row: 2 classes, at most 1"]
    paths = ["cli/host/run.py", "sim/run.py", "sim/gantt.py", "report/gantt.py", "sim/__init__.py", "__init__.py"]
    assert check_counts(count_module_names(paths, {"run"}), 1, {}, "modules") == ["gantt: 2 modules, at most 1"]
    assert count_module_names(["cli/what_if.py", "cli/text.py"], {"what-if"}) == {"text": 1}


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ('monkeypatch.setattr(Walk, "_commit", forgetful)', 1),
        ('patch.setattr(\n    losses,\n    "_lose_members", soft)', 1),
        ('with patch.object(placement, "_place_roles", f): ...', 1),
        ('mock.patch("phalanx.cli.host.sending._PART_BYTES", 3)', 1),
        ("patch.multiple(placement, _place_roles=f)", 1),
        ('monkeypatch.setattr(losses, "HOLD_FOR_US", 3)', 0),
        ('monkeypatch.setattr("phalanx.cli.host.sending.PART_BYTES", 3)', 0),
        ('monkeypatch.setattr(Reclaimable, "__init__", f)', 0),
        ('monkeypatch.setenv("_X", "1")', 0),
    ],
)
def test_a_patch_of_a_private_name_is_found(source, count):
    assert count_private_patches(source) == count


def test_code_without_reasons_is_found():
    percent = measure_comments(["# why\nx = 1  # and why\ny = 2\n", '"""Docstring."""\nz = 3\nu = 4\n'])
    assert percent == 50
    assert check_comments("engine/", 4.9, 5.0) == [
        "engine/: comments on 4.9 % of the code, at least 5.0: say why where you changed it"
    ]
    assert check_comments("engine/", 5.9, 5.0) == []
    assert "raise the floor to 6.1" in check_comments("engine/", 6.1, 5.0)[0]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("cli/ps.py", "# the Workload waits"),
        ("control/loop.py", "min_available = 3"),
        ("engine/order.py", "# each worker of it"),
        ("model/gang.py", "pods = 4"),
    ],
)
def test_a_foreign_word_is_found(path, text):
    assert len(check_words(path, text)) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("frontends/kube/watch.py", "# Workload and PodGroup"),
        ("policy/names.py", '"pod-fifo"'),
        ("frontends/sim/read.py", "role worker"),
    ],
)
def test_a_word_in_its_place_is_not(path, text):
    assert check_words(path, text) == []


def test_the_other_checks_can_fail():
    assert check_module_name("engine/utils.py")
    assert check_module_name("common/order.py")
    assert not check_module_name("engine/order.py")
    assert check_docstring("a.py", "x = 1\n")
    assert check_one_engine("a.py", "if self.simulation:\n")
    assert not check_one_engine("a.py", "# if the simulation ends\n")
    assert check_state_is_a_boundary("frontends/a.py", 'state.running.columns["x"][row] = 1')
    assert check_state_is_a_boundary("cli/a.py", "hub.planner.state.now_us = 3")
    assert check_state_is_a_boundary("cli/a.py", "record.held = True")
    assert check_state_is_a_boundary("cli/a.py", "state.pending.remove(row)")
    assert check_state_is_a_boundary("cli/a.py", "if not len(state.pending):")
    assert check_state_is_a_boundary("frontends/a.py", "attempts = self._state.records[number].attempts")
    assert check_state_is_a_boundary("frontends/a.py", "tenants = hub.planner.state.tenants")
    assert not check_state_is_a_boundary("frontends/a.py", "told = hub.planner.state.tenants.tell_decayed()")
    assert not check_state_is_a_boundary("frontends/a.py", "free = state.show_nodes().free")
    assert not check_state_is_a_boundary("control/a.py", "state.records[number].seats")
    assert not check_state_is_a_boundary("cli/a.py", "if state.now_us == 3:")
    assert not check_state_is_a_boundary("control/a.py", "record.held = True")
    assert check_text("a.md", "TO" + "DO: later")
    assert check_text("a.md", "see /ho" + "me/ada/x")
    assert not check_text("a.md", "net/wo" + "rk/x")
    assert check_text("r.txt", "--index-" + "url https://mirror.example/simple")
    assert check_text("r.txt", "https://py" + "pi.org/simple")
    makefile = "\n".join(f'{target}: setup\n\tpytest -m "{marks}"\n' for target, marks in SELECTIONS.items())
    ci = "".join(f"make {target}\n" for target in SELECTIONS)
    assert not check_selections(makefile, ci)
    assert check_selections(makefile, "make test-long\n")
    assert check_selections(makefile.replace('"not long"', '"not long and not slow"'), ci)
    assert check_decisions({"0001-a.md": "## Context\n"})
    assert check_decisions({"0002-a.md": "".join(f"## {h}\n" for h in DECISION_HEADINGS)})
    assert not check_decisions({"0001-a.md": "".join(f"## {h}\n" for h in DECISION_HEADINGS)})
