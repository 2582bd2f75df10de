"""`python -m phalanx.client.call PLACE ARGUMENTS`: the other end of `phalanx.submit(function)`.

The function travels by name, as the path of a script or as source, its arguments as JSON; what it returns is written
beside the run's logs, as JSON too. Nothing is unpickled (`functions`).
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from phalanx.client.functions import IMPORTING

_WORDS: Final = 3
#: What a rank returned lies under this name in the directory of its run.
RESULT: Final = "result-{rank}.json"


def main(words: list[str]) -> int:
    """Import, call, and end; what the function raises ends the member as it would end a script."""
    if len(words) < _WORDS - 1:
        sys.stderr.write("phalanx: error: call needs MODULE:FUNCTION and its arguments as JSON\n")
        return 2
    told: dict[str, Any] = json.loads(words[1])
    for folder in reversed(told.get("path", [])):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    module, _, name = words[0].partition(":")
    found: Any = _load(module, told)
    for part in name.split("."):
        found = getattr(found, part)
    write_result(found(*told.get("args", ()), **told.get("kwargs", {})))
    return 0


def _load(module: str, told: dict[str, Any]) -> ModuleType:
    """The module that has the function: an importable one, a script, or source that was sent."""
    if "file" in told:
        return _import_script(module, told["file"])
    if "source" in told:
        made = ModuleType(module)
        sys.modules[module] = made
        # Its owner submitted it, as they might have submitted `python -c`.
        exec(compile(told["source"], f"<{module}>", "exec"), made.__dict__)  # noqa: S102
        return made
    return import_module(module)


def _import_script(module: str, file: str) -> ModuleType:
    """A script under another name than __main__: what it does when it is started is not done again."""
    found = spec_from_file_location(module, file)
    assert found is not None and found.loader is not None, file  # noqa: PT018 - both, or it is no Python
    made = module_from_spec(found)
    sys.modules[module] = made
    main_module = sys.modules["__main__"]
    setattr(main_module, IMPORTING, file)
    try:
        found.loader.exec_module(made)
    finally:
        delattr(main_module, IMPORTING)
    return made


def write_result(value: object) -> None:
    """Put down what the function returned; outside a job there is no place for it."""
    socket = os.environ.get("PHALANX_SOCKET")
    if socket is None:
        return
    try:
        text = json.dumps({"value": value})
    except (TypeError, ValueError) as bad:
        text = json.dumps({"error": f"the function returned a {type(value).__name__}, which is not JSON: {bad}"})
    target = Path(socket).parent / RESULT.format(rank=os.environ.get("RANK", "0"))
    # Whole or not at all. A disk without room must not fail work that is done: whoever asks is told that it is missing.
    with contextlib.suppress(OSError):
        draft = target.with_suffix(".new")
        draft.write_text(text, encoding="utf-8")
        draft.replace(target)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
