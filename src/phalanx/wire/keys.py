"""From the key of a job to the key of one connection.

A run has one random key of 32 bytes in a file that only the job's user can read. It is never used
on a message: each connection derives its own from it (HKDF-SHA256, RFC 5869), bound to the
generation in which the member was started and to a nonce of each end. A recorded connection is
therefore worth nothing on another one, whoever recorded it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from typing import Final

from phalanx.wire.refusals import Malformed

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 16
PROTOCOL: Final = b"phalanx.job/1"


def derive_key(job_key: bytes, generation: int, salt: bytes) -> bytes:
    """The key of one connection: HKDF-SHA256 of the job key, one block long."""
    # One block of output is the whole of expand: T(1) = HMAC(PRK, info ‖ 0x01).
    secret = hmac.digest(salt or bytes(hashlib.sha256().digest_size), job_key, "sha256")
    return hmac.digest(secret, PROTOCOL + generation.to_bytes(4, "big") + b"\x01", "sha256")


def parse_key(text: bytes) -> bytes:
    """The key as it stands in a key file: 64 hexadecimal digits, and perhaps a line end."""
    try:
        key = bytes.fromhex(text.decode("ascii").strip())
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        # Not a word of what was read: a wrong path may well name somebody's secret.
        raise Malformed(f"a key file holds {2 * KEY_BYTES} hexadecimal digits, and this one does not")
    return key


def read_key(path: str | os.PathLike[str]) -> bytes:
    """Read a key file; raises OSError where it cannot, Malformed where it holds something else."""
    with open(path, "rb") as file:  # noqa: PTH123 - a bounded read of whatever is there
        return parse_key(file.read(4 * KEY_BYTES))
