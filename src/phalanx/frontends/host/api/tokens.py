"""Bearer tokens for the loopback port: 256 random bits each, kept as hashes, with a scope and an end.

A token belongs to a user and never grants more than that user has. The file is the truth: the daemon
reads it again when it changed, so that a token that was revoked is dead at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal

import msgspec

PREFIX: Final = "phx_"
TOKEN_CHARACTERS_MAX: Final = 128
DEFAULT_LIFE_S: Final = 30 * 86400.0
TOKENS_MAX: Final = 1000

Scope = Literal["read", "submit", "admin"]


class Token(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is kept of a token: nothing that could be presented."""

    id: str
    hash: str  # SHA-256, hexadecimal
    uid: int
    scope: Scope
    created_s: float  # since the epoch
    expires_s: float
    note: str = ""


class TokenFileError(Exception):
    """The file of tokens cannot be trusted or read; the message says why and what to do."""


class Tokens:
    """The daemon's view of the file."""

    def __init__(self, path: Path, *, wall_s: Callable[[], float]) -> None:
        self._path = path
        self._wall_s = wall_s
        self._seen: tuple[int, int, int] | None = None
        self._tokens: list[Token] = []
        self._refresh()

    def find(self, presented: str) -> Token | None:
        """The living token that was presented, if it is one."""
        if len(presented) > TOKEN_CHARACTERS_MAX:
            return None
        self._refresh()
        digest = _hash(presented)
        found = None
        # All are compared, each in constant time: neither the place nor a common beginning shows in the time taken.
        for token in self._tokens:
            if hmac.compare_digest(token.hash, digest):
                found = token
        return found if found is not None and self._wall_s() < found.expires_s else None

    def _refresh(self) -> None:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            self._seen, self._tokens = None, []
            return
        seen = (status.st_ino, status.st_mtime_ns, status.st_size)
        if seen != self._seen:
            self._tokens = list_tokens(self._path)
            self._seen = seen


def issue_token(
    path: Path, *, uid: int, scope: Scope, wall_s: float, life_s: float = DEFAULT_LIFE_S, note: str = ""
) -> tuple[str, Token]:
    """Make a token; its text is returned here and never again."""
    if not life_s > 0:
        raise ValueError("a token has to live for a while: give a life above 0 s")
    text = PREFIX + secrets.token_urlsafe(32)
    token = Token(secrets.token_hex(4), _hash(text), uid, scope, wall_s, wall_s + life_s, note)
    with _locked(path):
        living = [old for old in list_tokens(path) if old.expires_s > wall_s]
        if len(living) >= TOKENS_MAX:
            raise TokenFileError(f"{path} holds {TOKENS_MAX} living tokens: revoke some first")
        _write(path, [*living, token])
    return text, token


def list_tokens(path: Path) -> list[Token]:
    """All tokens of the file, without what could be presented."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return []
    except OSError as wrong:
        raise TokenFileError(f"{path} cannot be read: {wrong.strerror}") from None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise TokenFileError(f"{path} is not a file of the daemon's own user: move it away and issue tokens anew")
        if stat.S_IMODE(status.st_mode) & 0o077:
            raise TokenFileError(f"{path} is open to other users: chmod 600 {path}")
        try:
            return msgspec.json.decode(file.read(), type=list[Token])
        except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
            raise TokenFileError(f"{path} is damaged ({wrong}): move it away and issue tokens anew") from None


def revoke_token(path: Path, identifier: str) -> bool:
    """Forget a token; False if there is none of that id."""
    with _locked(path):
        tokens = list_tokens(path)
        kept = [token for token in tokens if token.id != identifier]
        if len(kept) == len(tokens):
            return False
        _write(path, kept)
    return True


def _hash(text: str) -> str:
    # No salt and no slow hash: 256 random bits cannot be guessed from their digest.
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _write(path: Path, tokens: list[Token]) -> None:
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(tokens), indent=1))
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Two commands that change the file at once do so one after the other."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path.with_name(path.name + ".lock"), flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
