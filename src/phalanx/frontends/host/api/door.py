"""The front door: every request passes here, in one order, and nothing behind it asks again who speaks.

Host, identity, rate, route, scope, size, shape; only then the handler. A request that fails at one step
learns nothing of the later ones: without a token there is no telling which paths exist.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from phalanx.frontends.host.api.asking import Ask, House
from phalanx.frontends.host.api.decoding import decode_query
from phalanx.frontends.host.api.http_protocol import ApiConnection
from phalanx.frontends.host.api.replies import refuse, reply
from phalanx.frontends.host.api.request_limits import RequestRates, Slots, too_often
from phalanx.frontends.host.api.routes import NotAllowed, Route, Router, Served
from phalanx.frontends.host.api.tokens import TokenFileError, Tokens
from phalanx.frontends.host.messages import Refusal
from phalanx.frontends.host.ports import Caller, Refused

RANK: Final = {"read": 0, "submit": 1, "admin": 2}
UNIX_HOSTS: Final = frozenset({b"", b"localhost"})

_STOPPING = Refusal("unavailable", "the daemon is stopping", "run the same command again; it starts the next one")
_INTERNAL = Refusal(
    "internal", "the daemon failed at this request", "its log says where: phalanx status names the folder"
)
_log = logging.getLogger("phalanx.api")


class _HungUp(Exception):  # noqa: N818 - nobody is told
    """The caller went away in the middle of the request."""


@dataclass(frozen=True, slots=True)
class Identities:
    """How callers become known."""

    identify: Callable[[int], Caller]  # raises LookupError for a uid that the machine does not know
    tokens: Tokens | None
    tcp_hosts: frozenset[bytes]


class Door:
    """The ASGI application."""

    def __init__(self, house: House, identities: Identities, rates: RequestRates) -> None:
        self._house = house
        self._identities = identities
        self._rates = rates
        self._router = Router()
        self._large = Slots("large batches", house.limits.large, house.limits.large_per_uid)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, whatever happens."""
        connection: ApiConnection = scope["state"]["connection"]
        try:
            response = await self._answer(connection, scope, receive)
        except _HungUp:
            return
        except Refused as no:
            response = await self._refuse(no.refusal)
        except NotAllowed as no:
            refusal = Refusal("usage", f"this path knows {no}, not this verb", "GET /openapi.json lists what there is")
            response = refuse(refusal, status=405, headers={"allow": str(no)})
        except asyncio.CancelledError:  # only a stop that ran out of patience cancels requests
            response = refuse(_STOPPING)
        except Exception:  # noqa: BLE001 - a boundary: the daemon goes on, the caller is told, the log has the story
            _log.exception("a request failed")
            response = refuse(_INTERNAL)
        if connection.receiving and self._is_endless(scope):
            # The rest of the body would have to be read to get at the next request. Nobody wants it.
            response.headers["connection"] = "close"
        if type(response) is Response:
            await connection.answer(response)
        else:  # it has more to say than one answer: events
            await response(scope, receive, send)

    async def _answer(self, connection: ApiConnection, scope: Scope, receive: Receive) -> Response:
        headers = read_headers(scope, connection, self._identities.tcp_hosts)
        caller = await self._identify(connection, headers)
        self._rates.check(caller)
        served, ref = self._router.find(scope["method"], scope["raw_path"])
        check_scope(served.route, caller)
        query = decode_query(served.route.query, scope["query_string"]) if scope["query_string"] else served.no_query
        limits = self._house.limits
        size = read_size(headers)
        if size > limits.body_bytes and served.route.large and connection.unix:
            check_size(size, limits.batch_bytes)
            slot = self._large.take(caller.uid)
            most = limits.batch_bytes
        else:
            check_size(size, limits.body_bytes)
            slot = contextlib.nullcontext()
            most = limits.body_bytes
        with slot:
            body = await self._read_body(served, headers, receive, most)
            answer = await served.route.handler(Ask(self._house, caller, ref, query, body, headers, receive))
        return answer if isinstance(answer, Response) else reply(answer)

    async def _identify(self, connection: ApiConnection, headers: Mapping[bytes, bytes]) -> Caller:
        if connection.unix:
            if connection.caller is None:
                connection.caller = self._identify_uid(connection.uid)
            return connection.caller
        try:
            caller = self._identify_token(headers)
        except Refused:
            # Guessing has a rate of its own, so that it cannot use up anybody's.
            if not self._rates.take(None):
                raise too_often(self._house.limits.requests_per_s) from None
            raise
        connection.crowd.know(connection)
        return caller

    def _identify_uid(self, uid: int | None) -> Caller:
        if uid is None:
            what = "the kernel cannot tell who you are (a user namespace hides it)"
            raise Refused("forbidden", what, "run the command outside of the container, or the daemon inside")
        try:
            return self._identities.identify(uid)
        except LookupError as no:
            what = f"uid {uid} has no access here: {no.args[0] if no.args else 'nobody knows it'}"
            raise Refused("forbidden", what, "start a daemon of your own: phalanx up") from None

    def _identify_token(self, headers: Mapping[bytes, bytes]) -> Caller:
        hint = "send Authorization: Bearer TOKEN, or use the unix socket"
        kind, _, text = headers.get(b"authorization", b"").partition(b" ")
        if not text or kind.lower() != b"bearer" or self._identities.tokens is None:
            raise Refused("unauthorised", "this port needs a token", hint)
        try:
            token = self._identities.tokens.find(text.strip().decode("latin-1"))
        except TokenFileError as wrong:
            _log.error("%s", wrong)
            raise Refused("unavailable", "the daemon cannot read its tokens", "its log says why") from None
        if token is None:
            raise Refused("unauthorised", "this token is unknown, revoked or expired", hint)
        owner = self._identify_uid(token.uid)
        return dataclasses.replace(owner, admin=owner.admin and token.scope == "admin", scope=token.scope)

    async def _read_body(self, served: Served, headers: Mapping[bytes, bytes], receive: Receive, most: int) -> object:
        if served.decoder is None:
            if read_size(headers) or b"transfer-encoding" in headers:
                raise Refused("usage", "this request takes no body", "put what you want to say into the query")
            return None
        body = await read_body(receive, most)
        return served.decoder.decode(body)

    async def _refuse(self, refusal: Refusal) -> Response:
        headers: dict[str, str] = {}
        if refusal.code == "too_many":
            await asyncio.sleep(self._house.limits.throttle_s)
            headers["retry-after"] = "1"
        elif refusal.code == "unauthorised":
            headers["www-authenticate"] = "Bearer"
        return refuse(refusal, headers=headers)

    def _is_endless(self, scope: Scope) -> bool:
        headers = dict(scope["headers"])
        # Who waits for leave to send the body has got an answer instead, and may send it or not.
        size = b"" if b"expect" in headers else headers.get(b"content-length", b"")
        return not size.isdigit() or int(size) > self._house.limits.body_bytes


def read_headers(scope: Scope, connection: ApiConnection, tcp_hosts: frozenset[bytes]) -> dict[bytes, bytes]:
    """Headers by name; refuses a request that was meant for another host, or that says so twice."""
    pairs = scope["headers"]
    headers: dict[bytes, bytes] = dict(pairs)
    allowed = UNIX_HOSTS if connection.unix else tcp_hosts
    host = headers.get(b"host", b"").lower()
    if host not in allowed or (len(headers) < len(pairs) and sum(name == b"host" for name, _ in pairs) > 1):
        # A page of another site can make a browser connect here by a name of its own, but it cannot choose this header.
        raise Refused("misdirected", "this is not the host that the request names", "send Host: localhost")
    return headers


def check_scope(route: Route, caller: Caller) -> None:
    """Default is no: the route says what it needs, the caller has to have it."""
    if RANK.get(caller.scope, -1) < RANK[route.scope]:
        what = f"this needs a token of scope {route.scope}, and yours is {caller.scope}"
        raise Refused("forbidden", what, "issue another token, or use the unix socket")
    if route.scope == "admin" and not caller.admin:
        raise Refused("forbidden", "only the daemon's own user and its administrators may do this", "ask one of them")


def read_size(headers: Mapping[bytes, bytes]) -> int:
    """How long the request says its body is; the parser has refused what is not a number."""
    size = headers.get(b"content-length", b"0")
    return int(size) if size.isdigit() else 0


def check_size(size: int, most: int) -> None:
    """Refuse a body before any of it is read."""
    if size > most:
        raise Refused(
            "too_large",
            f"the body is longer than {most} bytes",
            "split it; a larger batch goes through the unix socket, with a Content-Length",
        )


async def read_body(receive: Receive, most: int) -> bytes:
    """The whole body; most come in one piece."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise _HungUp
    body: bytes = message["body"]
    if not message["more_body"]:
        check_size(len(body), most)
        return body
    pieces, size = [body], len(body)
    while message["more_body"]:
        check_size(size, most)
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _HungUp
        pieces.append(message["body"])
        size += len(message["body"])
    check_size(size, most)
    return b"".join(pieces)
