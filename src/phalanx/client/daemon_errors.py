"""What can go wrong on the way to the daemon, and the exit code that a command ends with for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

#: Error code → exit code of a command; everything else ends with 1.
EXIT_CODES: Final[dict[str, int]] = {
    "usage": 2,
    "ambiguous": 2,
    "conflict": 2,
    "too_large": 2,
    "not_found": 3,
    "infeasible": 4,
    "unreachable": 5,
}


class ClientError(Exception):
    """Something did not work: what and why in the message, what to do next in the hint."""

    def __init__(
        self, message: str, hint: str = "", *, code: str = "failure", details: Mapping[str, Any] | None = None
    ) -> None:
        """`code` is one of the daemon's error codes, or `unreachable`, or `failure`."""
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code
        self.details = dict(details or {})

    @property
    def exit_code(self) -> int:
        """How a command ends that fails with this."""
        return EXIT_CODES.get(self.code, 1)

    def __str__(self) -> str:
        return f"{self.message}\n  next: {self.hint}" if self.hint else self.message


class UsageError(ClientError):
    """What was asked for cannot be meant."""

    def __init__(self, message: str, hint: str = "") -> None:
        """A mistake that no daemon needs to be asked about."""
        super().__init__(message, hint, code="usage")


class RefusedError(ClientError):
    """The daemon said no."""


class UnreachableError(ClientError):
    """There is no daemon that could be asked."""

    def __init__(self, message: str, hint: str = "") -> None:
        """Nothing was sent, or nothing came back."""
        super().__init__(message, hint, code="unreachable")


class LostError(UnreachableError):
    """The connection broke after something had been sent: nobody knows whether it was done."""
