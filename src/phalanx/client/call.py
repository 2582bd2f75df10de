"""`python -m phalanx.client.call MODULE:FUNCTION ARGUMENTS`: the other end of `phalanx.submit(function)`.

The function travels by name and its arguments as JSON. Nothing is unpickled: who can write into the queue
cannot thereby run code of their own in somebody's process.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any, Final

_WORDS: Final = 3


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
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    found(*told.get("args", ()), **told.get("kwargs", {}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
