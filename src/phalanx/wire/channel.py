"""How a connection opens: each end says a nonce, and the member proves who it is.

    scheduler → member   greeting  "PHALANX" ‖ version (1 byte) ‖ nonce (16)                       24 bytes
    member → scheduler   opening   "PHALANX" ‖ version ‖ generation (4) ‖ rank (4) ‖ nonce (16) ‖ MAC (32)  64 bytes

Both nonces, the scheduler's first, are the salt of the connection's key. The MAC of the opening is
that of a frame with seq 0 and the first 32 bytes of the opening as payload. Job and attempt are not
sent, since both ends know them; with another job or attempt the MAC is wrong. Then come frames, both
ways; the first of a member is `hello`, the first of the scheduler `welcome`.

Nothing is read as a message, and nothing but 64 bytes is kept, before the MAC of the opening fits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from phalanx.wire.frames import MAC_BYTES, SCHEDULER, Codec, member_name
from phalanx.wire.keys import NONCE_BYTES
from phalanx.wire.refusals import Forged, Malformed, Stale, WireError
from phalanx.wire.vocabulary import RANK_MAX

VERSION: Final = 1
MAGIC: Final = b"PHALANX"
GREETING_BYTES: Final = len(MAGIC) + 1 + NONCE_BYTES
OPENING_BYTES: Final = len(MAGIC) + 1 + 4 + 4 + NONCE_BYTES + MAC_BYTES


def _check_magic(head: bytes) -> None:
    """Judge as many of the first bytes as have come."""
    if head[: len(MAGIC)] != MAGIC[: len(head)]:
        raise Malformed("the peer does not speak phalanx.job")
    if len(head) > len(MAGIC) and head[len(MAGIC)] != VERSION:
        raise Malformed(f"the peer speaks phalanx.job/{head[len(MAGIC)]}, and this end version {VERSION}")


class _End:
    """What both ends share: bytes are kept until the opening is through, then the codec has them."""

    def __init__(self, first_bytes: int) -> None:
        self._first_bytes = first_bytes
        self._head = bytearray()
        self._broken: WireError | None = None
        self.codec: Codec | None = None  # None until the connection is open

    @property
    def is_open(self) -> bool:
        """Whether messages can be said."""
        return self.codec is not None

    def encode(self, message: Mapping[str, Any]) -> bytes:
        """One frame; only once the connection is open."""
        assert self.codec is not None, "nothing can be said before the connection is open"
        return self.codec.encode(message)

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """The messages that these bytes complete; raises a WireError, and then close."""
        if self._broken is not None:
            raise self._broken
        try:
            return self._feed(data)
        except WireError as broken:
            self._broken = broken
            raise

    def _feed(self, data: bytes) -> list[dict[str, Any]]:
        if self.codec is None:
            missing = self._first_bytes - len(self._head)
            self._head += data[:missing]
            data = data[missing:]
            _check_magic(bytes(self._head[: len(MAGIC) + 1]))
            if len(self._head) < self._first_bytes:
                return []
            self.codec = self._open(bytes(self._head))
        return self.codec.feed(data)

    def _open(self, head: bytes) -> Codec:
        raise NotImplementedError


class SchedulerEnd(_End):
    """The scheduler's end of one connection.

    `greeting` is sent as soon as the connection is accepted. `admit(rank, generation)` says whether
    the run has this member now; the answer is asked for only when the MAC has proved the key. Who a
    message is from is `rank`: the opening proved it, and a `hello` that says otherwise is refused.
    """

    def __init__(
        self, key: bytes, job: str | int, attempt: int, admit: Callable[[int, int], bool], nonce: bytes | None = None
    ) -> None:
        super().__init__(OPENING_BYTES)
        self._key, self._job, self._attempt, self._admit = key, job, attempt, admit
        self._nonce = os.urandom(NONCE_BYTES) if nonce is None else nonce
        self.greeting = MAGIC + bytes([VERSION]) + self._nonce
        self.rank: int | None = None  # None until the connection is open
        self.generation: int | None = None
        self.hello: dict[str, Any] | None = None  # what the member said first

    def _feed(self, data: bytes) -> list[dict[str, Any]]:
        messages = super()._feed(data)
        for message in messages:
            if message["type"] == "hello":
                if message["rank"] != self.rank:
                    raise Malformed(f"a hello of rank {message['rank']} on the connection of rank {self.rank}")
                self.hello = message
            elif self.hello is None:
                raise Malformed(f"'{message['type']}' before hello")
        return messages

    def _open(self, head: bytes) -> Codec:
        said, mac = head[:-MAC_BYTES], head[-MAC_BYTES:]
        generation, rank = int.from_bytes(said[8:12], "big"), int.from_bytes(said[12:16], "big")
        salt = self._nonce + said[16:]
        codec = Codec(self._key, self._job, self._attempt, generation, SCHEDULER, member_name(rank), salt)
        if not codec.is_sealed(0, said, mac):
            raise Forged("whoever connected does not have the key of this run, or means another run")
        if rank > RANK_MAX or not self._admit(rank, generation):
            raise Stale(f"the run has no rank {rank} of generation {generation}")
        self.rank, self.generation = rank, generation
        return codec


class MemberEnd(_End):
    """The job's end of one connection.

    `opening` is empty until the scheduler's greeting has been fed, then holds what to send first.
    """

    def __init__(
        self, key: bytes, job: str | int, attempt: int, generation: int, rank: int, nonce: bytes | None = None
    ) -> None:
        super().__init__(GREETING_BYTES)
        self._key, self._job, self._attempt = key, job, attempt
        self._generation, self._rank = generation, rank
        self._nonce = os.urandom(NONCE_BYTES) if nonce is None else nonce
        self.opening = b""

    def _open(self, head: bytes) -> Codec:
        salt = head[-NONCE_BYTES:] + self._nonce
        codec = Codec(self._key, self._job, self._attempt, self._generation, member_name(self._rank), SCHEDULER, salt)
        who = self._generation.to_bytes(4, "big") + self._rank.to_bytes(4, "big")
        said = MAGIC + bytes([VERSION]) + who + self._nonce
        self.opening = said + codec.seal(0, said)
        return codec
