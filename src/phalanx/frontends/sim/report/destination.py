"""Where a report goes: checked before a long run, written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from phalanx.control.spec.errors import BadInput

KINDS: Final = (".html", ".svg", ".png")
_PERMISSIONS: Final = 0o666


def check_place(path: Path) -> None:
    """Refuse a place that cannot be written, and a kind of file that cannot be made here."""
    if path.suffix.lower() not in KINDS:
        raise BadInput(f"--report: {path} should end in .html, .svg or .png, which says what to write")
    if path.suffix.lower() == ".png" and find_spec("matplotlib") is None:
        raise BadInput("--report: a .png needs matplotlib; pip install 'phalanx[plot]', or write .html or .svg")
    target = _target(path)
    if target.exists() and not target.is_file():
        raise BadInput(f"--report: {path} is there and is no plain file; name another")
    if target.exists() and not os.access(target, os.W_OK):
        raise BadInput(f"--report: {path} is write-protected; name another")
    try:
        # The only sure test of whether a file can be made is to make one.
        handle, name = tempfile.mkstemp(prefix=f".{target.name[:40]}.", dir=target.parent)
    except OSError as bad:
        raise BadInput(f"--report: cannot write {path}: {bad.strerror or bad}; name another place") from None
    os.close(handle)
    Path(name).unlink()


def write_whole(path: Path, content: bytes) -> None:
    """Write beside the place and move it there: nobody ever sees half a report, and a failure leaves the old one."""
    target = _target(path)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name[:40]}.", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            Path(name).chmod(_PERMISSIONS & ~_read_umask())
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as bad:
        raise BadInput(f"--report: cannot write {path}: {bad.strerror or bad}; name another place") from None


def _target(path: Path) -> Path:
    """Through links: the file that a link names is replaced, not the link."""
    try:
        return path.resolve()
    except (OSError, RuntimeError) as bad:
        raise BadInput(f"--report: {path} cannot be followed: {bad}") from None


def _read_umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
