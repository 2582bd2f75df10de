"""Turn bytes from outside into typed requests, and what is wrong with them into sentences.

msgspec says what was expected and where, in the words of a type checker. People who wrote JSON by hand
want the field first. Nothing here repeats a value from the request: a token that was put into a wrong
place must not come back in an answer, and answers end up in logs.
"""

from __future__ import annotations

import codecs
import re
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from phalanx.frontends.host.ports import Refused

QUERY_FIELDS_MAX: Final = 32
FIELD_CHARACTERS_MAX: Final = 80

_HINT: Final = "the fields are described by GET /openapi.json"
_UTF8_PIECE_BYTES: Final = 1 << 20
_AT = re.compile(r"^(?P<what>.*?)(?: - at `(?P<path>[^`]*)`)?$", re.DOTALL)
_MISSING = re.compile(r"^Object missing required field `(.*)`$", re.DOTALL)
_UNKNOWN = re.compile(r"^Object contains unknown field `(.*)`$", re.DOTALL)


class _Peek(msgspec.Struct):
    jobs: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class Decoder:
    """Reads the body of one route; the second type, if any, is the one with `jobs` in it."""

    def __init__(self, types: tuple[type, ...]) -> None:
        self._decoders: list[msgspec.json.Decoder[Any]] = [msgspec.json.Decoder(kind) for kind in types]
        self._peek = msgspec.json.Decoder(_Peek)

    def decode(self, body: bytes) -> Any:
        """The request, or a refusal that names the field."""
        try:
            _check_utf8(body)
            return self._decode(body)
        except msgspec.DecodeError as wrong:
            raise explain(wrong) from None
        except UnicodeDecodeError:
            raise Refused("usage", "the body is not UTF-8", _HINT) from None
        except RecursionError:
            raise Refused("usage", "the body is nested too deeply", _HINT) from None

    def _decode(self, body: bytes) -> Any:
        first, *others = self._decoders
        if not others:
            return first.decode(body or b"{}")
        # The common case pays for nothing: a single job decodes at the first attempt, and a batch
        # fails at its first key, however long it is.
        try:
            return first.decode(body)
        except msgspec.ValidationError:
            if self._peek.decode(body).jobs is msgspec.UNSET:
                raise
            return others[0].decode(body)


def decode_query(kind: type[Any], query: bytes) -> Any:
    """The query of a request, or a refusal that names the parameter."""
    try:
        pairs = parse_qsl(
            query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=QUERY_FIELDS_MAX
        )
    except UnicodeDecodeError:
        raise Refused("usage", "the query is not UTF-8 in percent encoding", _HINT) from None
    except ValueError:
        raise Refused("usage", f"the query has more than {QUERY_FIELDS_MAX} parameters", _HINT) from None
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Refused("usage", f"the query parameter {_quote(twice)} is given twice", _HINT)
    try:
        return msgspec.convert(found, kind, strict=False)
    except msgspec.ValidationError as wrong:
        raise explain(wrong, place="the query") from None


def explain(wrong: msgspec.DecodeError, place: str = "the body") -> Refused:
    """A refusal in which the field comes first."""
    match = _AT.match(str(wrong))
    assert match is not None
    what, path = match["what"], (match["path"] or "$").removeprefix("$").removeprefix(".")
    if not isinstance(wrong, msgspec.ValidationError):
        why = what.removeprefix("JSON is malformed: ")
        if "surrogate" in why:
            # Python programs that pass on file names or variables which are not text produce this.
            return Refused(
                "usage", f"{place} holds text that is not UTF-8: {why}", "look at paths and at the environment"
            )
        why = "it ends too early" if why == "Input data was truncated" else why
        return Refused("usage", f"{place} is not JSON: {why}", _HINT)
    where = f"{place}, field {_quote(path)}" if path else place
    if missing := _MISSING.match(what):
        return _refuse(where, f"the field {_quote(missing[1])} is missing", _join(path, missing[1]))
    if unknown := _UNKNOWN.match(what):
        return _refuse(where, f"there is no field {_quote(unknown[1])}", _join(path, unknown[1]))
    # A value that is not one of a few: msgspec repeats it, we do not.
    if what.startswith("Invalid enum value"):
        return _refuse(where, "not one of the words that are allowed here", path)
    said = what.replace("`", "").replace("Expected", "expected", 1)
    if place == "the query":
        said = said.removesuffix(", got str")
    return _refuse(where, said[0].lower() + said[1:], path)


def _refuse(where: str, what: str, field: str) -> Refused:
    return Refused("usage", f"{where}: {what}", _HINT, field=_cut(field))


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _cut(text: str) -> str:
    return text if len(text) <= FIELD_CHARACTERS_MAX else text[:FIELD_CHARACTERS_MAX] + "…"


def _quote(name: str) -> str:
    """A name in quotes; control characters are spelt out, because errors are printed on terminals."""
    return "'" + "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in _cut(name)) + "'"


def _check_utf8(body: bytes) -> None:
    # msgspec passes over `Raw` parts without looking at their characters; the core would stumble later,
    # after jobs before it in the batch were looked at.
    if body.isascii():
        return
    decode = codecs.getincrementaldecoder("utf-8")().decode
    for start in range(0, len(body), _UTF8_PIECE_BYTES):
        decode(body[start : start + _UTF8_PIECE_BYTES])
    decode(b"", final=True)
