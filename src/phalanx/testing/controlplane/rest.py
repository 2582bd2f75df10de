"""A small blocking client of the API server: JSON in, JSON out, a connection for each thread.

The standard library's, so that a test of ours stands on nothing that it tests. Nothing is retried: whether a call
that was cut off has happened is what many a test is about.
"""

from __future__ import annotations

import http.client
import ssl
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import msgspec

T = TypeVar("T")

TIMEOUT_S: Final = 30.0
JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
#: How many calls `create_all` has under way: more did not help on two cores.
PARALLEL: Final = 8


class KubeRefusedError(Exception):
    """The API server's answer is no: `code` 409, `reason` Conflict; 410 is Expired or Gone."""

    def __init__(self, call: str, code: int, status: Mapping[str, Any]) -> None:
        super().__init__(f"{call}: {code} {status.get('reason', '')}: {status.get('message', '')}")
        self.code, self.reason = code, str(status.get("reason", ""))


class KubeUnreachableError(Exception):
    """No answer: the call may have happened or not."""


class RestVerbs(ABC):
    """Calls by what they do, over whatever makes them."""

    def get(self, path: str, **query: object) -> Any:
        """An object, or a list of them."""
        return self.call("GET", path, query=query)

    def create(self, path: str, tree: object) -> Any:
        """POST; the object as stored."""
        return self.call("POST", path, tree)

    def replace(self, path: str, tree: object) -> Any:
        """PUT; refused if the resourceVersion in it is old."""
        return self.call("PUT", path, tree)

    def patch(self, path: str, tree: object, kind: str = MERGE_PATCH) -> Any:
        """PATCH."""
        return self.call("PATCH", path, tree, kind=kind)

    def delete(self, path: str, **query: object) -> Any:
        """DELETE: one object, or all that a list would show."""
        return self.call("DELETE", path, query=query)

    @abstractmethod
    def call(
        self,
        method: str,
        path: str,
        tree: object = None,
        *,
        query: Mapping[str, object] | None = None,
        kind: str = JSON,
    ) -> Any:
        """Any call; text is answered where the server sends no JSON."""


class KubeRest(RestVerbs):
    """One user's way to the API server."""

    def __init__(self, port: int, authority: Path, token: str) -> None:
        self._port = port
        self._authority = authority
        self._headers = {"Authorization": f"Bearer {token}", "Accept": JSON}
        self._local = threading.local()
        self._context: ssl.SSLContext | None = None
        self._kept: list[http.client.HTTPSConnection] = []

    # --- calls -----------------------------------------------------------------------------------

    def bind(self, pod: str, node: str, namespace: str = "default") -> Any:
        """As a scheduler does."""
        tree = {"metadata": {"name": pod}, "target": {"kind": "Node", "name": node}}
        return self.create(f"/api/v1/namespaces/{namespace}/pods/{pod}/binding", tree)

    def create_all(self, path: str, trees: Iterable[object]) -> list[Any]:
        """One POST each, some at a time; a refusal is raised when the others are through."""
        todo = list(trees)
        made: list[Any] = [None] * len(todo)
        shared = iter(enumerate(todo))  # one list's iterator: each thread takes the next, no lock needed

        def work() -> None:
            try:
                for at, tree in shared:
                    made[at] = self.create(path, tree)
            finally:
                self.close()

        with ThreadPoolExecutor(PARALLEL) as pool:
            for done in [pool.submit(work) for _ in range(PARALLEL)]:
                done.result()
        return made

    def call(
        self,
        method: str,
        path: str,
        tree: object = None,
        *,
        query: Mapping[str, object] | None = None,
        kind: str = JSON,
    ) -> Any:
        """Any call; text is answered where the server sends no JSON."""
        response = self._send(self._connection(), method, path, tree, query or {}, kind)
        try:
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise KubeUnreachableError(f"{method} {path}: the answer broke off: {error}") from error
        is_json = response.headers.get("Content-Type", "").startswith(JSON)
        answer = msgspec.json.decode(body) if is_json else body.decode()
        if response.status >= http.client.BAD_REQUEST:
            raise KubeRefusedError(
                f"{method} {path}", response.status, answer if isinstance(answer, dict) else {"message": answer}
            )
        return answer

    def watch(self, path: str, resource_version: str, limit_s: float = TIMEOUT_S, **query: object) -> Iterator[Any]:
        """Events until the server ends it, at the latest after the limit; an ERROR event is raised as a refusal."""
        asked = {"watch": 1, "resourceVersion": resource_version, "timeoutSeconds": max(1, int(limit_s)), **query}
        connection = self._connect(limit_s + TIMEOUT_S)
        try:
            response = self._send(connection, "GET", path, None, asked, JSON)
            if response.status >= http.client.BAD_REQUEST:
                raise KubeRefusedError(f"watch {path}", response.status, msgspec.json.decode(response.read()))
            for line in response:
                event = msgspec.json.decode(line)
                if event["type"] == "ERROR":
                    raise KubeRefusedError(f"watch {path}", event["object"].get("code", 0), event["object"])
                yield event
        finally:
            connection.close()

    # --- connections -----------------------------------------------------------------------------

    def _send(
        self,
        connection: http.client.HTTPSConnection,
        method: str,
        path: str,
        tree: object,
        query: Mapping[str, object],
        kind: str,
    ) -> http.client.HTTPResponse:
        body = None if tree is None else msgspec.json.encode(tree)
        headers = self._headers if body is None else {**self._headers, "Content-Type": kind}
        try:
            connection.request(method, f"{path}?{urlencode(query)}" if query else path, body, headers)
            return connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise KubeUnreachableError(f"{method} {path}: {error}") from error

    def _connection(self) -> http.client.HTTPSConnection:
        kept: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
        if kept is None:
            kept = self._local.connection = self._connect(TIMEOUT_S)
            self._kept.append(kept)
        return kept

    def _connect(self, timeout_s: float) -> http.client.HTTPSConnection:
        if self._context is None:
            try:
                self._context = ssl.create_default_context(cafile=self._authority)
            except OSError as error:  # the server has not written it yet, or not all of it
                raise KubeUnreachableError(f"{self._authority}: {error}") from error
            # Python 3.13 asks for extensions that the certificate, made by the server itself, does not have.
            self._context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return http.client.HTTPSConnection("127.0.0.1", self._port, timeout=timeout_s, context=self._context)

    def close(self) -> None:
        """Close this thread's connection; the next call makes another."""
        kept: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
        if kept is not None:
            kept.close()
            self._kept.remove(kept)
            self._local.connection = None

    def close_all(self) -> None:
        """Close those of all threads, at the end."""
        for kept in self._kept:
            kept.close()


def wait_until(look: Callable[[], T], what: object, limit_s: float = TIMEOUT_S, nap_s: float = 0.05) -> T:
    """Ask again until the answer is a true one, and return it; `what` may be a function that tells how things stand."""
    limit = time.monotonic() + limit_s
    while not (answer := look()):
        if time.monotonic() > limit:
            raise TimeoutError(f"waited {limit_s:g} s for {what() if callable(what) else what}")
        time.sleep(nap_s)
    return answer
