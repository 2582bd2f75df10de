"""Files with settings: where they may lie, which of them count, and their text as trees."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from phalanx.control.spec.errors import BadInput
from phalanx.control.spec.reader import Raw, parse_text
from phalanx.frontends.host.trusted_files import StrangersFile, read_trusted

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
    typed: bool = False  # by whoever starts the daemon, who means what they name


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
        return SettingFiles(() if named == "none" else (_read_named(Path(named), system=system),), ())
    paths = [system_file or SYSTEM_FILE]
    if not system:
        paths += [find_user_file(env), state_dir / "config.toml", cwd / PROJECT_FILE]
    sources, warnings = [], []
    for path in paths:
        try:
            # Only in one's own folder does a link say what its owner meant; in others it may have been anybody.
            found = _read_if_there(path, follow=path.name != PROJECT_FILE)
        except StrangersFile as stranger:
            if system:
                raise _refuse(stranger, path) from None
            warnings.append(f"{path}: {stranger}; its settings do not count")
            continue
        if found is not None:
            sources.append(found)
    return SettingFiles(tuple(sources), tuple(warnings))


def find_user_file(env: Mapping[str, str]) -> Path:
    """Where a user's own settings are."""
    base = env.get("XDG_CONFIG_HOME") or ""
    # The standard says that a relative one is to be ignored.
    folder = Path(base) if base.startswith("/") else Path(env.get("HOME") or "~").expanduser() / ".config"
    return folder / "phalanx" / "config.toml"


def _read_named(path: Path, *, system: bool) -> Source:
    """The one file that counts.

    Whoever names one for a daemon of their own means that file, wherever it lies and whosever it is. A daemon for
    everybody runs for others than who named it, so that its file must be nobody else's wherever it lies.
    """
    try:
        source = _read_if_there(path, follow=True, trusted=not system)
    except StrangersFile as stranger:
        raise _refuse(stranger, path) from None
    if source is None:
        raise BadInput(f"there is no such file; {CONFIG_VARIABLE} names it", file=str(path))
    return source


def _refuse(stranger: StrangersFile, path: Path) -> BadInput:
    return BadInput(f"{stranger.what}; {stranger.fix or f'give it to root: chown root {path}'}", file=str(path))


def _read_if_there(path: Path, *, follow: bool, trusted: bool = False) -> Source | None:
    """The file, None if there is none; raises StrangersFile if it is not `trusted` and others could have written it."""
    label = str(path)
    try:
        content = _read_plain(path) if trusted else read_trusted(path, _BYTES_MAX, follow=follow)
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


def _read_plain(path: Path) -> bytes:
    # Without waiting for somebody to write into a pipe that has this name.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
        return file.read(_BYTES_MAX + 1)


def read_policy_file(path: Path) -> bytes:
    """The code of a policy that settings name, before any of it runs; BadInput if others could have written it."""
    try:
        code = read_trusted(path, _BYTES_MAX)
    except StrangersFile as stranger:
        fix = stranger.fix or f"give it, and the folders that it lies in, to whom the daemon runs as: chown root {path}"
        raise BadInput(f"is not run, since it {stranger.what}; {fix}", file=str(path)) from None
    if len(code) > _BYTES_MAX:
        raise BadInput(f"is larger than {_BYTES_MAX:,} bytes", file=str(path))
    return code
