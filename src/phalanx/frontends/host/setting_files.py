"""Files with settings: where they may lie, which of them count, and their text as trees."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from phalanx.control.spec.errors import BadInput
from phalanx.control.spec.reader import Raw, parse_text

SYSTEM_FILE: Final = Path("/etc/phalanx/config.toml")
PROJECT_FILE: Final = "phalanx.toml"
CONFIG_VARIABLE: Final = "PHALANX_CONFIG"  # one file in place of all others, or "none"

_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """One place that says something."""

    label: str  # as people read it: a path, a variable, a flag
    tree: Raw
    folder: Path  # relative paths start here


@dataclass(frozen=True, slots=True)
class SettingFiles:
    """The files that count, weakest first, and what was left aside."""

    sources: tuple[Source, ...]
    warnings: tuple[str, ...]


def find_sources(
    state_dir: Path, *, env: Mapping[str, str], cwd: Path, system: bool, system_file: Path | None
) -> SettingFiles:
    """Read what is there; a file that is not there says nothing."""
    named = env.get(CONFIG_VARIABLE)
    if named:
        return SettingFiles(() if named == "none" else (_read_named(Path(named)),), ())
    paths = [system_file or SYSTEM_FILE]
    if not system:
        paths += [find_user_file(env), state_dir / "config.toml"]
    sources = [source for source in map(_read_if_there, paths) if source is not None]
    project = cwd / PROJECT_FILE
    # Settings can name Python files that are run: what lies about in a shared folder is not to be trusted.
    stranger = None if system else _find_stranger(project)
    if stranger is not None:
        return SettingFiles(tuple(sources), (f"{project}: {stranger}; its settings do not count",))
    found = None if system else _read_if_there(project)
    return SettingFiles((*sources, *([found] if found else [])), ())


def find_user_file(env: Mapping[str, str]) -> Path:
    """Where a user's own settings are."""
    base = env.get("XDG_CONFIG_HOME") or ""
    # The standard says that a relative one is to be ignored.
    folder = Path(base) if base.startswith("/") else Path(env.get("HOME") or "~").expanduser() / ".config"
    return folder / "phalanx" / "config.toml"


def _find_stranger(path: Path) -> str | None:
    """Who else could have written this file; None if nobody, or if it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    if found.st_uid not in (0, os.geteuid()):
        return f"belongs to user {found.st_uid}, not to you"
    return "can be written by everybody" if found.st_mode & stat.S_IWOTH else None


def _read_named(path: Path) -> Source:
    source = _read_if_there(path)
    if source is None:
        raise BadInput(f"there is no such file; {CONFIG_VARIABLE} names it", file=str(path))
    return source


def _read_if_there(path: Path) -> Source | None:
    label = str(path)
    try:
        with path.open("rb") as file:
            content = file.read(_BYTES_MAX + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as bad:
        raise BadInput(f"cannot be read: {bad.strerror or bad}; is it yours? ls -l {path}", file=label) from None
    if len(content) > _BYTES_MAX:
        raise BadInput(f"is larger than {_BYTES_MAX:,} bytes; settings are a page or two", file=label)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput("is not UTF-8 text", file=label) from None
    return Source(label, parse_text(text, label, ".toml"), path.parent)
