"""An archive for a bug report: what was found, with names, places and secrets taken out."""

from __future__ import annotations

import io
import json
import os
import platform
import re
import sqlite3
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Final

from phalanx import __version__
from phalanx.control.spec.errors import BadInput
from phalanx.frontends.host.doctor.surroundings import Diagnosis, Surroundings

_LOG_BYTES_MAX: Final = 256 << 10
_PACKAGES: Final = ("msgspec", "numpy", "nvidia-ml-py", "psutil", "starlette", "uvicorn", "click", "rich")
_HIDDEN: Final = "[redacted]"

_SECRETS: Final = (
    # name = value, name: value, "name": "value", --name value
    re.compile(
        r"(?i)([\w-]*(?:token|secret|passw(?:or)?d|passphrase|credential|api[_-]?key|access[_-]?key|private[_-]?key)[\w-]*"
        r"[\"']?(?:\s*[=:]\s*|\s+)[\"']?)[^\s\"',;&}\]]+"
    ),
    re.compile(r"(?i)((?:bearer|basic)\s+)[\w.~+/=-]{8,}"),
    re.compile(r"(\w+://[^/\s:@]*:)[^@\s/]+(?=@)"),
    # Keys that come without a name: hex, or base64 with digits in it.
    re.compile(r"()\b[0-9a-fA-F]{32,}\b"),
    re.compile(r"()(?<![\w/+=-])(?=[\w+/=-]*[0-9])(?=[\w+/=-]*[A-Z])(?=[\w+/=-]*[a-z])[\w+=-]{36,}(?![\w/+=-])"),
)


def write_bundle(target: Path, findings: Sequence[Diagnosis], around: Surroundings) -> Path:
    """Write a new .tar.gz that only its owner can read; an archive that is there already is left alone."""
    redact = make_redactor(around, findings)
    parts = {
        "findings.json": json.dumps([asdict(finding) for finding in findings], indent=1),
        "versions.json": json.dumps(_read_versions(around), indent=1),
        "settings.json": json.dumps(around.settings.table(), indent=1, default=str),
        "daemon.log": _read_tail(around.state_dir / "daemon.log"),
    }
    try:
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise BadInput("is there already; name another file, or take it away", file=str(target)) from None
    except OSError as bad:
        raise BadInput(f"cannot be written: {bad.strerror}; name a file elsewhere", file=str(target)) from None
    with os.fdopen(handle, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, text in parts.items():
            content = redact(text).encode()
            about = tarfile.TarInfo(f"phalanx-doctor/{name}")
            about.size, about.mtime, about.mode = len(content), int(around.wall_s()), 0o600
            archive.addfile(about, io.BytesIO(content))
    return target


class Redactor:
    """Takes out what looks like a secret, and words that say who and where."""

    def __init__(self, words: Mapping[str, str]) -> None:
        """`words`: what each of them becomes; longer ones go first, since a home contains its user's name."""
        self._words = [
            (re.compile(rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])"), stand_in)
            for word, stand_in in sorted(words.items(), key=lambda pair: -len(pair[0]))
            if len(word) > 1
        ]

    def __call__(self, text: str) -> str:
        """The text without them."""
        for pattern in _SECRETS:
            text = pattern.sub(rf"\g<1>{_HIDDEN}", text)
        for pattern, stand_in in self._words:
            text = pattern.sub(stand_in, text)
        return text


def make_redactor(around: Surroundings, findings: Sequence[Diagnosis]) -> Redactor:
    """One that knows this machine's name, this user's home, and everybody who has a process here."""
    words = {platform.node(): "[host]", platform.node().partition(".")[0]: "[host]"}
    people = {around.user, *(process.user for process in around.processes())} - _SYSTEM_USERS
    words |= {person: f"[user{number}]" for number, person in enumerate(sorted(people), start=1)}
    home = around.env.get("HOME", "")
    if len(home) > 1:
        words[home] = "~"
    return Redactor(words)


#: Names that say nothing about anybody.
_SYSTEM_USERS: Final = frozenset({"root", "daemon", "nobody", "messagebus", "systemd-network", "?", ""})


def _read_versions(around: Surroundings) -> dict[str, object]:
    found: dict[str, object] = {
        "phalanx": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "sqlite": sqlite3.sqlite_version,
        "driver": around.devices.driver,
        "gpus": [device.model for device in around.devices.list()],
    }
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return found


def _read_tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _LOG_BYTES_MAX))
            return file.read(_LOG_BYTES_MAX).decode("utf-8", "replace")
    except OSError as bad:
        return f"(not read: {bad.strerror})\n"
