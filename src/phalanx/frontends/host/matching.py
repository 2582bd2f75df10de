"""A process that matches other people's patterns, so that a pattern that never ends hurts nobody else.

`python -I -m phalanx.frontends.host.matching`: one JSON line in, one out. Whoever asks kills it when
it takes too long, and starts another.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Final

LINE_MOST: Final = 2000


def find_progress(pattern: str, text: str) -> dict[str, float] | None:
    """The last line that tells of a step, and of a total if it does. Long lines are no progress."""
    compiled = re.compile(pattern)
    for line in reversed(text.splitlines()):
        found = compiled.search(line) if len(line) <= LINE_MOST else None
        if found is None:
            continue
        told = {name: _number(found[name]) for name in ("step", "total") if name in compiled.groupindex}
        kept = {name: value for name, value in told.items() if value is not None}
        if "step" in kept:
            return kept
    return None


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 <= value < 2**53 else None  # also false for what is no number


def main() -> None:
    """Answer until nobody asks any more."""
    for line in sys.stdin:
        asked = json.loads(line)
        sys.stdout.write(json.dumps(find_progress(asked["pattern"], asked["text"])) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
