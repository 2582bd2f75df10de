"""What an end of a connection refuses; after any of these the connection is closed and never used again."""

from __future__ import annotations


class WireError(Exception):
    """The bytes of the peer are refused; whoever catches this closes the connection."""


class Forged(WireError):  # noqa: N818 - what happened, not a kind of mistake
    """The MAC does not fit: another key, job, attempt, generation, direction or place in the stream."""


class TooLarge(WireError):  # noqa: N818 - the same
    """The length says more than a frame may hold; nothing of it was read or kept."""


class Malformed(WireError):  # noqa: N818 - the same
    """Authentic bytes that are no message of the protocol."""


class Stale(WireError):  # noqa: N818 - the same
    """An authentic opening of a member that the run does not have (any more) in that generation."""
