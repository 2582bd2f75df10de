"""Calls of the API server: JSON in, bytes out, over a handful of connections that are kept.

Nothing is retried in here. A call that was not answered may have happened (`ApiSilentError`), and what that means is
for whoever called: a binding is read back, a list is asked for again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlencode

import httptools
import msgspec

from phalanx.frontends.kube.api.api_connection import KubeConnection
from phalanx.frontends.kube.api.kubeconfig import ApiAccess

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
_IN_FLIGHT_MOST: Final = 32
#: Shorter than what lies between the end of a leader's work and the end of its lease: what it asked for last is
#: answered, or given up, before anybody else begins.
_TIMEOUT_S: Final = 4.5
_LIST_TIMEOUT_S: Final = 15.0
_WORDS_CHARS_MAX: Final = 1_000


class ApiRefusedError(Exception):
    """The API server's answer is no, and nothing has changed."""

    def __init__(
        self,
        call: str,
        code: int,
        reason: str,
        words: str,
        retry_after_s: float | None = None,
        causes: Sequence[str] = (),
    ) -> None:
        """`causes`: words of the API for why, where one code means several things."""
        super().__init__(f"{call}: {code} {reason}: {words}")
        self.code, self.reason, self.words, self.retry_after_s = code, reason, words, retry_after_s
        self.causes = tuple(causes)


class ApiSilentError(Exception):
    """No answer, or one that says nothing of what was done (5xx): the call may have happened or not."""


class _Cause(msgspec.Struct):
    reason: str = ""


class _Details(msgspec.Struct):
    causes: tuple[_Cause, ...] | None = None


class _StatusWords(msgspec.Struct):
    reason: str = ""
    message: str = ""
    details: _Details | None = None


class ApiClient:
    """One user's way to one server."""

    def __init__(self, access: ApiAccess, *, in_flight_most: int = _IN_FLIGHT_MOST, name: str = "phalanx") -> None:
        self.access = access
        self.writes: Counter[str] = Counter()  # by method and kind of path; for the metrics
        self._agent = name
        self._idle: list[KubeConnection] = []
        self._streams: set[KubeConnection] = set()
        self._slots = asyncio.Semaphore(in_flight_most)

    # ---- calls

    async def get(self, path: str, **query: object) -> bytes:
        """An object, or a page of a list."""
        timeout_s = _LIST_TIMEOUT_S if "limit" in query else _TIMEOUT_S
        try:
            return await self.call("GET", path, query=query, timeout_s=timeout_s)
        except ApiSilentError:
            # To ask twice changes nothing; and a kept connection may have been closed by a server that restarted.
            return await self.call("GET", path, query=query, timeout_s=timeout_s)

    async def call(
        self,
        method: str,
        path: str,
        tree: object = None,
        *,
        kind: str = JSON,
        query: Mapping[str, object] | None = None,
        timeout_s: float = _TIMEOUT_S,
    ) -> bytes:
        """Any call, once."""
        request = self._write_request(method, path, tree, kind, query)
        connection: KubeConnection | None = None
        is_answered = False
        async with self._slots:
            try:
                async with asyncio.timeout(timeout_s):
                    connection = self._take() or await KubeConnection.open(self.access)
                    await connection.send(request)
                    body = await connection.read()
                is_answered = connection.is_reusable
            except (OSError, TimeoutError, httptools.HttpParserError) as lost:
                raise ApiSilentError(f"{method} {path}: {_tell_lost(lost, 'no answer in time')}") from lost
            finally:
                if connection is not None:
                    if is_answered:
                        self._idle.append(connection)
                    else:
                        connection.close()
        _check(f"{method} {path}", connection.status, body, connection.headers)
        return body

    @asynccontextmanager
    async def stream(self, path: str, stall_s: float, **query: object) -> AsyncIterator[AsyncIterator[bytes]]:
        """The lines of a watch, on a connection of its own, until the server ends it."""
        request = self._write_request("GET", path, None, JSON, query)
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                connection = await KubeConnection.open(self.access)
                self._streams.add(connection)
        except (OSError, TimeoutError) as lost:
            raise ApiSilentError(f"watch {path}: {_tell_lost(lost, 'no connection in time')}") from lost
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await connection.send(request)
                if connection.status >= HTTPStatus.BAD_REQUEST:
                    _check(f"watch {path}", connection.status, await connection.read(), connection.headers)
            yield connection.read_lines(stall_s)
        except (OSError, TimeoutError, httptools.HttpParserError) as lost:
            raise ApiSilentError(f"watch {path}: {_tell_lost(lost, f'not a word for {stall_s:g} s')}") from lost
        finally:
            self._streams.discard(connection)
            connection.close()

    def close(self) -> None:
        """Let go of all connections."""
        for connection in (*self._idle, *self._streams):
            connection.close()
        self._idle.clear()

    # ---- behind

    def _take(self) -> KubeConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
            connection.close()
        return None

    def _write_request(
        self, method: str, path: str, tree: object, kind: str, query: Mapping[str, object] | None
    ) -> bytes:
        if method != "GET":
            self.writes[f"{method} {find_target(path)}"] += 1
        body = b"" if tree is None else msgspec.json.encode(tree)
        asked = f"?{urlencode({key: _spell(value) for key, value in query.items()})}" if query else ""
        token = self.access.find_token()
        head = [
            f"{method} {self.access.prefix}{path}{asked} HTTP/1.1",
            f"Host: {self.access.host}:{self.access.port}",
            f"User-Agent: {self._agent}",
            f"Accept: {JSON}",
            *([f"Authorization: Bearer {token}"] if token else []),
            *([f"Content-Type: {kind}", f"Content-Length: {len(body)}"] if body else []),
            "",
            "",
        ]
        return "\r\n".join(head).encode("ascii") + body


def find_target(path: str) -> str:
    """What kind of thing a path is of: its subresource, else its kind; never a name, of which there is no end."""
    # /api/v1 or /apis/GROUP/VERSION, then a namespace if it is in one, then kind, name and subresource.
    parts = path.strip("/").split("/")[2 if path.startswith("/api/") else 3 :]
    if parts[:1] == ["namespaces"] and len(parts) > 2:
        parts = parts[2:]
    return parts[2] if len(parts) > 2 else parts[0]


def _tell_lost(lost: BaseException, else_: str) -> str:
    return str(lost) or else_


def _spell(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value


def _check(call: str, code: int, body: bytes, headers: Mapping[str, str]) -> None:
    if code < HTTPStatus.BAD_REQUEST:
        return
    try:
        said = msgspec.json.decode(body, type=_StatusWords)
    except (msgspec.DecodeError, UnicodeDecodeError):
        said = _StatusWords(message=body[:_WORDS_CHARS_MAX].decode("utf-8", "replace"))
    if code >= HTTPStatus.INTERNAL_SERVER_ERROR:
        # Also of a write that was done: the server may have lost its own answer from etcd.
        raise ApiSilentError(f"{call}: {code} {said.reason}: {said.message[:_WORDS_CHARS_MAX]}")
    after = headers.get("retry-after", "")
    retry_after_s = float(after) if after.isdigit() else None
    causes = [each.reason for each in said.details.causes or ()] if said.details is not None else []
    raise ApiRefusedError(call, code, said.reason, said.message[:_WORDS_CHARS_MAX], retry_after_s, causes)


def decode_any(body: bytes) -> Any:
    """As plain values, where an object is written back as it was."""
    return msgspec.json.decode(body)
