"""Frames: a length, a MAC and a JSON object, in a stream whose order cannot be changed.

    frame = length (4 bytes, big endian, of the payload, 2 to 65,536) ‖ MAC (32 bytes) ‖ payload

The MAC is HMAC-SHA256 with the key of the connection over seven fields, each with its length (4
bytes, big endian) before it: job, attempt, generation, sender, receiver, seq, payload. `seq` is not
sent: it counts the frames of one direction of one connection from 1 (0 is the opening, see
`channel`), so that a frame left out, repeated, moved or sent back to its sender has a wrong MAC.

The generation in the MAC is that of the connection: the one in which the member was started, said
in the opening. It does not change while the connection lasts. A resize changes the generation of
the world, which messages carry in their field `generation`; a member that stays keeps its
connection and its key, and one that connects again says its own generation again. What is refused
is an opening of a rank in a generation in which the run has no such member now.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NoReturn

from phalanx.wire.keys import derive_key
from phalanx.wire.refusals import Forged, Malformed, TooLarge, WireError
from phalanx.wire.vocabulary import FROM_JOB, FROM_SCHEDULER, UnknownType, check

SCHEDULER: Final = "scheduler"
LENGTH_BYTES: Final = 4
MAC_BYTES: Final = 32
HEAD_BYTES: Final = LENGTH_BYTES + MAC_BYTES
PAYLOAD_BYTES_MAX: Final = 65_536
FRAME_BYTES_MAX: Final = HEAD_BYTES + PAYLOAD_BYTES_MAX


def member_name(rank: int) -> str:
    """The name of a member as sender or receiver."""
    return f"member:{rank}"


def pack_fields(fields: Iterable[bytes]) -> bytes:
    """Fields one after the other, each with its length before it, so that no two lists make the same bytes."""
    return b"".join(len(field).to_bytes(4, "big") + field for field in fields)


class Codec:
    """One end of one connection, without the socket: messages to bytes, bytes to messages.

    After a `WireError` the codec refuses everything: the stream has no known place to go on from.
    It holds at most one unfinished frame, whatever it is fed.
    """

    def __init__(
        self, key: bytes, job: str | int, attempt: int, generation: int, sender: str, receiver: str, salt: bytes = b""
    ) -> None:
        self._key = derive_key(key, generation, salt)
        self._bound = [str(job).encode(), attempt.to_bytes(4, "big"), generation.to_bytes(4, "big")]
        self._sender, self._receiver = sender.encode(), receiver.encode()
        self._says, self._hears = (FROM_SCHEDULER, FROM_JOB) if sender == SCHEDULER else (FROM_JOB, FROM_SCHEDULER)
        self._sent = self._heard = 0
        self._buffer = bytearray()
        self._broken: WireError | None = None
        self.unknown = 0  # messages of a type that this version does not know, skipped

    def seal(self, seq: int, payload: bytes) -> bytes:
        """The MAC of what this end says at that place of the stream."""
        return self._mac(self._sender, self._receiver, seq, payload)

    def is_sealed(self, seq: int, payload: bytes, mac: bytes) -> bool:
        """Whether the other end said this at that place of the stream."""
        return hmac.compare_digest(self._mac(self._receiver, self._sender, seq, payload), mac)

    def _mac(self, sender: bytes, receiver: bytes, seq: int, payload: bytes) -> bytes:
        fields = [*self._bound, sender, receiver, seq.to_bytes(8, "big"), payload]
        return hmac.digest(self._key, pack_fields(fields), "sha256")

    def encode(self, message: Mapping[str, Any]) -> bytes:
        """One frame; raises Malformed or TooLarge, and then nothing was counted as sent."""
        payload = write_payload(check(self._says, message))
        self._sent += 1
        return len(payload).to_bytes(LENGTH_BYTES, "big") + self.seal(self._sent, payload) + payload

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """The messages that these bytes complete; raises Forged, TooLarge or Malformed, and then close."""
        if self._broken is not None:
            raise self._broken
        self._buffer += data
        try:
            return self._take_messages()
        except WireError as broken:
            self._broken = broken
            self._buffer.clear()
            raise

    def _take_messages(self) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = []
        taken = 0
        while (payload := self._find_payload(taken)) is not None:
            taken += HEAD_BYTES + len(payload)
            try:
                messages.append(check(self._hears, read_payload(payload)))
            except UnknownType:
                self.unknown += 1
        # Once for all frames of a read: a peer that sends many small ones costs no more than one large one.
        del self._buffer[:taken]
        return messages

    def _find_payload(self, start: int) -> bytes | None:
        """The authentic payload that begins there, or None until all of it has come."""
        buffer = self._buffer
        if len(buffer) < start + LENGTH_BYTES:
            return None
        # Judged as soon as it is known, before anything is kept for it.
        size = int.from_bytes(buffer[start : start + LENGTH_BYTES], "big")
        if size > PAYLOAD_BYTES_MAX:
            raise TooLarge(f"a frame of {size} bytes was announced; {PAYLOAD_BYTES_MAX} is the most")
        if len(buffer) < start + HEAD_BYTES + size:
            return None
        mac = bytes(buffer[start + LENGTH_BYTES : start + HEAD_BYTES])
        payload = bytes(buffer[start + HEAD_BYTES : start + HEAD_BYTES + size])
        if not self.is_sealed(self._heard + 1, payload, mac):
            raise Forged(f"frame {self._heard + 1} of this connection was not said by the peer here and now")
        self._heard += 1
        return payload


def write_payload(message: Mapping[str, Any]) -> bytes:
    """The JSON of a message; raises TooLarge."""
    payload = json.dumps(message, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode("ascii")
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise TooLarge(f"a message of {len(payload)} bytes; {PAYLOAD_BYTES_MAX} is the most")
    return payload


def read_payload(payload: bytes) -> dict[str, Any]:
    """The JSON object in a payload; raises Malformed for everything else."""
    try:
        # A decoder of our own: an end may be asked to read what a hostile member wrote.
        message = json.loads(payload.decode("utf-8"), parse_constant=_refuse, object_pairs_hook=_read_object)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"the payload is no JSON object: {type(error).__name__}") from None
    if not isinstance(message, dict):
        raise Malformed("the payload is no JSON object")
    return message


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Two readers may disagree on which of two equal names counts; so neither does.
    message = dict(pairs)
    if len(message) != len(pairs):
        raise ValueError("a name stands twice")
    return message
