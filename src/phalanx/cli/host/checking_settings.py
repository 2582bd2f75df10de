"""Settings are read where nobody runs who could say what is wrong: before a daemon is stopped, and after it failed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from phalanx.client.daemon_errors import UsageError

if TYPE_CHECKING:
    from phalanx.frontends.host.settings import Settings

#: What to do about a value in a file or a variable that cannot be meant.
MEND = "mend it where it stands, then phalanx up"


def read_settings(state: Path, flags: Mapping[str, object] | None = None, *, system: bool = False) -> Settings:
    """The settings that a daemon started now would have; what it could not use is a usage error."""
    from phalanx.control.spec.errors import BadInput
    from phalanx.frontends.host.settings import load_settings

    try:
        return load_settings(state, flags=flags or {}, env=os.environ, system=system)
    except BadInput as bad:
        why = str(bad)
        for key in flags or {}:
            rest = why.removeprefix(f"flag --{key}: {key} ")
            if rest != why:
                raise UsageError(f"--{key} {rest}", f"write another --{key}; docs/settings.md") from None
        raise UsageError(why, MEND) from None
