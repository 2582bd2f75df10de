"""What must not be in shipped code: anything that turns bytes from outside into code."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "phalanx"
MODULES = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"}
BUILT_IN = {"eval", "exec"}
#: Where → what and why it may. An entry that is not needed any more fails the test.
ALLOWED = {
    "control/policies.py": ["exec"],  # a policy file: Python that the operator wrote and named on purpose
    "client/call.py": ["exec"],  # a function of a notebook, run by its owner as `python -c` would be
    "frontends/host/shim/held_sources.py": ["exec"],  # our own modules, read before an upgrade could replace them
}
CALLS = {("yaml", "load"), ("yaml", "unsafe_load"), ("yaml", "full_load"), ("torch", "load")}


def find_banned(source: str) -> list[str]:
    """Each banned import, call or argument."""
    return [what for node in ast.walk(ast.parse(source)) for what in _names(node)]


def _names(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names if alias.name.split(".")[0] in MODULES]
        case ast.ImportFrom(module=str(module), names=names):
            imported = [module] if module.split(".")[0] in MODULES else []
            return imported + [f"{module}.{alias.name}" for alias in names if (module, alias.name) in CALLS]
        case (
            ast.Call(func=ast.Name(id="__import__"), args=[ast.Constant(value=str(name)), *_])
            | ast.Call(func=ast.Name(id=name))
        ) if name in MODULES | BUILT_IN:
            return [name]
        case ast.Attribute(value=ast.Name(id=module), attr=name) if (module, name) in CALLS:
            return [f"{module}.{name}"]
        case ast.keyword(arg="shell", value=value) if not (isinstance(value, ast.Constant) and value.value is False):
            return ["shell="]
    return []


def test_nothing_shipped_can_run_what_it_reads():
    sources = {path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    assert sources
    assert {name: found for name, text in sources.items() if (found := find_banned(text))} == ALLOWED


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "import marshal as m",
        "from shelve import open",
        "from pickle import loads",
        "eval('1')",
        "exec(text)",
        "yaml.load(f)",
        "from yaml import load",
        "torch.load(f)",
        "f = torch.load",
        "__import__('pickle')",
        "subprocess.run('ls', shell=True)",
        "run(x, shell=flag)",
    ],
)
def test_the_rule_can_fail(line):
    assert len(find_banned(line)) == 1


@pytest.mark.parametrize(
    "line", ["# pickle", "'eval('", "yaml.safe_load(f)", "model.eval()", "os.execve(a, b, c)", "run(x, shell=False)"]
)
def test_the_rule_leaves_others_alone(line):
    assert find_banned(line) == []


@pytest.mark.parametrize(
    ("package", "allowed"),
    [
        ("phalanx.wire", {"phalanx.wire"}),
        ("phalanx.elastic", {"phalanx.wire", "phalanx.elastic", "phalanx.perfmodel"}),
    ],
)
def test_an_import_loads_the_standard_library_and_what_is_allowed(package, allowed):
    """In a process of its own, without site: what is loaded is what the package asked for."""
    code = f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r}); import {package}; print(*sys.modules)"
    command = [sys.executable, "-I", "-S", "-c", code]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    ours = {".".join(name.split(".")[:2]) for name in loaded if name.startswith("phalanx.")}
    foreign = {name for name in loaded if name.split(".")[0] not in {*sys.stdlib_module_names, "phalanx", "__main__"}}
    assert package in ours
    assert ours <= allowed
    assert foreign == set()
    assert "pickle" not in loaded
