"""Functions on their way to a job: by name where a member can import them, else as source.

A function of a module travels as `module:name`. One of a script travels as the script's path and its name, and the
script is imported there under another name, so that what stands under `if __name__ == "__main__"` is not run. One of a
notebook has no file: its source is sent, with what it uses of the cells, which must be modules, other functions and
classes, or values that JSON knows. Nothing is pickled: who can write into the queue cannot thereby run code of their
own in somebody's process.
"""

from __future__ import annotations

import ast
import inspect
import json
import linecache
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final

from phalanx.client.daemon_errors import UsageError

#: What `phalanx.client.call` sets while it imports a script for its function.
IMPORTING: Final = "__phalanx_importing__"
_MAIN: Final = "__main__"
_HINT: Final = "put it into a file, as train.py, and: from train import main; phalanx.submit(main)"

Function = Callable[..., object]


def command_of_function(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
    """The words that run a function with these arguments."""
    module = str(getattr(function, "__module__", None) or "")
    name = str(getattr(function, "__qualname__", ""))
    if "<" in name or not name:
        what = f"{module}.{name}" if name else f"a {type(function).__name__}"
        raise UsageError(f"{what} has no name by which a job could import it", _HINT)
    told: dict[str, Any] = {"args": list(args), "kwargs": dict(kwargs)}
    place = _place_of(function, module, name, told)
    try:
        text = json.dumps(told)
    except (TypeError, ValueError) as bad:
        why = f"the arguments of {name} are not JSON: {bad}"
        raise UsageError(why, "pass numbers, texts, lists and mappings; write the rest to a file") from None
    return [sys.executable, "-m", "phalanx.client.call", place, text]


def _place_of(function: Function, module: str, name: str, told: dict[str, Any]) -> str:
    """Where a member finds the function; what it needs beside that is added to what it is told."""
    if module not in ("", _MAIN):
        return _place_in_module(function, module, name, told)
    file = getattr(sys.modules.get(_MAIN), "__file__", None)
    if file is not None and Path(file).is_file():
        path = Path(file).absolute()
        told |= {"file": str(path), "path": [str(path.parent)]}
        return f"{path.stem}:{name}"
    if isinstance(function, FunctionType):
        told["source"] = _source_with_needs(function)
        return f"notebook:{name}"
    raise UsageError(f"{name} is no function whose source could be sent", _HINT)


def _place_in_module(function: Function, module: str, name: str, told: dict[str, Any]) -> str:
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not function:
        raise UsageError(f"{module}.{name} is something else when it is imported", _HINT)
    file = getattr(sys.modules.get(module.partition(".")[0]), "__file__", None)
    # The folder in which the module was found here may not be on the path there.
    folder = str(Path(file).absolute().parents[1 if Path(file).name == "__init__.py" else 0]) if file else None
    told["path"] = [folder] if folder else []
    return f"{module}:{name}"


# ---- functions of notebooks


def _source_with_needs(function: FunctionType) -> str:
    """Lines that make the function where nothing else is: what it uses of the notebook, then itself."""
    lines: dict[str, str] = {}
    _add(function.__name__, function, function.__globals__, lines)
    return "\n\n".join(lines.values()) + "\n"


def _add(name: str, value: Any, known: Mapping[str, Any], lines: dict[str, str]) -> None:
    """What makes one global of the notebook; what it uses itself goes before it."""
    if name in lines:
        return
    if isinstance(value, ModuleType):
        lines[name] = f"import {value.__name__} as {name}"
    elif getattr(value, "__module__", _MAIN) != _MAIN and hasattr(value, "__qualname__"):
        lines[name] = f"from {value.__module__} import {value.__qualname__} as {name}"
    elif isinstance(value, (FunctionType, type)):
        source = _source_of(value, name)
        lines[name] = ""  # begun: two functions may call each other
        for used in _names_in(source):
            if used in known and used != name:
                _add(used, known[used], known, lines)
        del lines[name]
        lines[name] = source
    else:
        lines[name] = f"{name} = {_literal(name, value)}"


def _source_of(value: FunctionType | type, name: str) -> str:
    try:
        found = inspect.getsource(value) if isinstance(value, FunctionType) else _source_of_class(value)
    except (OSError, TypeError):
        raise UsageError(f"the source of {name} cannot be found, so a job cannot have it", _HINT) from None
    return textwrap.dedent(found).rstrip()


def _source_of_class(made: type) -> str:
    """From the newest cell that makes a class of that name: `inspect` looks for a file, and a notebook has none."""
    for entry in reversed(linecache.cache.values()):
        text = "".join(entry[2]) if len(entry) > 2 else ""
        if f"class {made.__name__}" not in text:
            continue
        tree = ast.parse(text)
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name == made.__name__:
                first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                return "\n".join(text.splitlines()[first - 1 : node.end_lineno])
    raise OSError(f"no cell makes {made.__name__}")


def _names_in(source: str) -> list[str]:
    """Names that the text uses, in the order in which they stand there."""
    return list(dict.fromkeys(node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)))


def _literal(name: str, value: Any) -> str:
    try:
        if json.loads(json.dumps(value)) == (list(value) if isinstance(value, tuple) else value):
            return repr(value)
    except (TypeError, ValueError):
        pass
    why = f"the function uses {name} of the notebook, a {type(value).__name__}, which cannot be sent"
    raise UsageError(why, f"make {name} inside the function, or pass numbers and texts as kwargs")
