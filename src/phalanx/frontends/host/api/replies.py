"""How answers travel: JSON by msgspec, errors in one shape, and the raw bytes for who is shown the door."""

from __future__ import annotations

import http
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from starlette.responses import Response

from phalanx.frontends.host.api.shapes import Failure
from phalanx.frontends.host.messages import HTTP_STATUS, Refusal

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
EVENT_STREAM: Final = "text/event-stream"

#: On every answer. Nothing here is for a browser to guess at, keep, run or frame; and there is no header
#: that lets a page of another origin read it, ever.
COMMON_HEADERS: Final = (
    ("x-content-type-options", "nosniff"),
    ("cache-control", "no-store"),
    ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
)

_encode = msgspec.json.Encoder().encode


def encode(value: Any) -> bytes:
    """A value as JSON; text that came from the file system may hold bytes that are not UTF-8."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(_scrub(msgspec.to_builtins(value)))


def _scrub(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode("utf-8")
        case dict():
            return {_scrub(key): _scrub(part) for key, part in value.items()}
        case list():
            return [_scrub(part) for part in value]
        case _:
            return value


def reply(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer in JSON."""
    return Response(encode(value), status, headers, JSON)


def refuse(refusal: Refusal, *, status: int = 0, headers: Mapping[str, str] | None = None) -> Response:
    """An error; its code decides on the status unless HTTP has a closer word."""
    return reply(Failure(refusal), status or HTTP_STATUS.get(refusal.code, 500), headers)


def write_refusal(refusal: Refusal) -> bytes:
    """A whole HTTP answer for a connection that never got as far as a request."""
    status = HTTP_STATUS.get(refusal.code, 500)
    body = encode(Failure(refusal))
    lines = [f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}"]
    lines += [f"{name}: {value}" for name, value in COMMON_HEADERS]
    lines += [f"content-type: {JSON}", f"content-length: {len(body)}", "connection: close", "", ""]
    return "\r\n".join(lines).encode("latin-1") + body
