"""What is counted for people who watch many machines."""

from __future__ import annotations

from typing import Protocol


class Meters(Protocol):
    """Where it is counted; `api.prometheus_meters` has the one that is scraped."""

    def count_submits(self, jobs: int = 1) -> None: ...  # noqa: D102

    def count_admission(self, waited_s: float) -> None: ...  # noqa: D102

    def count_eviction(self, reason: str) -> None: ...  # noqa: D102

    def count_resize(self, direction: str, took_s: float) -> None: ...  # noqa: D102

    def count_cycle(self, took_s: float, exit_reason: str) -> None: ...  # noqa: D102

    def count_lost(self, cause: str, gpu_s: float) -> None: ...  # noqa: D102

    def count_eta_error(self, error_s: float) -> None: ...  # noqa: D102


class NoMeters:
    """Counts nothing."""

    def count_submits(self, jobs: int = 1) -> None:
        """Jobs are on disk."""

    def count_admission(self, waited_s: float) -> None:
        """A gang got its places."""

    def count_eviction(self, reason: str) -> None:
        """A gang lost everything."""

    def count_resize(self, direction: str, took_s: float) -> None:
        """A gang has another size."""

    def count_cycle(self, took_s: float, exit_reason: str) -> None:
        """The engine ran."""

    def count_lost(self, cause: str, gpu_s: float) -> None:
        """Work is gone."""

    def count_eta_error(self, error_s: float) -> None:
        """A start was expected at another time."""
