"""Bytes in, whole files out: what is compressed is unpacked, and nothing is ever half written."""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path
from typing import Final

from phalanx.control.spec.errors import BadInput

_GZIP_MAGIC: Final = b"\x1f\x8b"


def read_bytes(path: Path) -> bytes:
    """What a file holds, unpacked if it is gzip by its name or by its first bytes."""
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if path.suffix == ".gz" or data.startswith(_GZIP_MAGIC) else data
    except (EOFError, zlib.error, gzip.BadGzipFile) as bad:
        raise BadInput(f"is not a whole gzip file: {bad}", file=str(path)) from None
    except OSError as bad:
        raise BadInput(f"cannot be read: {bad.strerror or bad}", file=str(path)) from None


def decode(data: bytes, file: str) -> str:
    """The text of a table or a log."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput("is not UTF-8 text; is it a log or a table at all?", file=file) from None


def write_whole(path: Path, text: str) -> None:
    """Write a file, gzip if its name says so: all of it, or nothing where the old one stays as it was."""
    data = text.encode()
    if path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)  # without the time, so that the same jobs are the same bytes
    if path.exists() and not path.is_file():
        path.write_bytes(data)  # a pipe or a device has no place beside it and cannot be replaced
        return
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
