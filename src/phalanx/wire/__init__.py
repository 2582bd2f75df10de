"""Messages and frames between a job and its scheduler: `phalanx.job/1`.

Standard library only, and nothing of the scheduler: a job imports this next to its own code, and an
implementer in another language finds all of it in docs/protocol.md. `keys` derives, `vocabulary` says
what may be said, `frames` makes bytes of it and back, `channel` opens a connection. No module here
touches a socket: bytes come in, messages go out.
"""

from phalanx.wire.channel import MemberEnd, SchedulerEnd
from phalanx.wire.frames import FRAME_BYTES_MAX, PAYLOAD_BYTES_MAX, SCHEDULER, Codec, member_name
from phalanx.wire.keys import KEY_BYTES, read_key
from phalanx.wire.refusals import Forged, Malformed, Stale, TooLarge, WireError
from phalanx.wire.vocabulary import FROM_JOB, FROM_SCHEDULER, UnknownType, check

__all__ = [
    "FRAME_BYTES_MAX",
    "FROM_JOB",
    "FROM_SCHEDULER",
    "KEY_BYTES",
    "PAYLOAD_BYTES_MAX",
    "SCHEDULER",
    "Codec",
    "Forged",
    "Malformed",
    "MemberEnd",
    "SchedulerEnd",
    "Stale",
    "TooLarge",
    "UnknownType",
    "WireError",
    "check",
    "member_name",
    "read_key",
]
