"""Numbers for Prometheus, with names that stay.

Counters and histograms are told by the core as things happen (`PrometheusMeters`); gauges are read from the core
when somebody scrapes, so that nothing has to be kept in step. Labels are few and closed: a job's name or
number is never one, or the number of series would grow with the number of jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import (
    CONTENT_TYPE_PLAIN_0_0_4,
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from phalanx.frontends.host.service import Figures

PREFIX: Final = "phalanx_"
CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4

#: Gauges that `Service.figures()` may hold: name → what it says, and its labels in order.
GAUGES: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "phalanx_gangs": ("Gangs by state.", ("queue", "state")),
    "phalanx_pending_gangs": ("Waiting gangs by the reason that keeps them.", ("queue", "reason")),
    "phalanx_head_of_queue_wait_seconds": ("How long the first waiting gang of a queue has waited.", ("queue",)),
    "phalanx_gpus": (
        "GPUs by what they do: allocated (to jobs of a queue), free, stranger, quarantined.",
        ("queue", "state"),
    ),
    "phalanx_goodput_ratio": ("Useful GPU time as a part of all allocated GPU time.", ("queue",)),
}

_MINUTES: Final = (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 86400, 7 * 86400)
_MOMENTS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
_PAUSES: Final = (0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)


class PrometheusMeters:
    """What the core counts, in a registry of its own: other parts of the process export nothing here."""

    def __init__(self) -> None:
        # Series that say when a counter was made double what a scrape carries, and answer no question.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        registry = self.registry = CollectorRegistry()
        name = PREFIX.__add__
        self._submits = Counter(name("submits"), "Jobs taken in.", registry=registry)
        self._admissions = Counter(name("admissions"), "Gangs that were given their places.", registry=registry)
        self._evictions = Counter(
            name("evictions"), "Gangs that everything was taken from.", ["reason"], registry=registry
        )
        self._resizes = Counter(name("resizes"), "Resizes of running gangs.", ["direction"], registry=registry)
        self._exits = Counter(name("cycle_exit"), "Cycles by what ended them.", ["reason"], registry=registry)
        self._lost = Counter(name("lost_gpu_seconds"), "GPU time whose work was lost.", ["cause"], registry=registry)
        self._resize_s = _histogram(
            "resize_seconds", "From the decision to resize until it was done.", _PAUSES, registry
        )
        self._wait_s = _histogram("queue_wait_seconds", "From submit to start.", _MINUTES, registry)
        self._cycle_s = _histogram("scheduling_cycle_seconds", "One run of the engine.", _MOMENTS, registry)
        self._eta_s = _histogram("eta_error_seconds", "How far a start was from its estimate.", _MINUTES, registry)
        for direction in ("grow", "shrink"):
            self._resizes.labels(direction)

    def count_submits(self, jobs: int = 1) -> None:
        """Jobs are on disk."""
        self._submits.inc(jobs)

    def count_admission(self, waited_s: float) -> None:
        """A gang got its places after this wait."""
        self._admissions.inc()
        self._wait_s.observe(waited_s)

    def count_eviction(self, reason: str) -> None:
        """A gang lost everything; `reason` is a closed code."""
        self._evictions.labels(reason).inc()

    def count_resize(self, direction: str, took_s: float) -> None:
        """A running gang has another size now; `direction` is grow or shrink."""
        self._resizes.labels(direction).inc()
        self._resize_s.observe(took_s)

    def count_cycle(self, took_s: float, exit_reason: str) -> None:
        """The engine ran once; `exit_reason` is a closed code."""
        self._cycle_s.observe(took_s)
        self._exits.labels(exit_reason).inc()

    def count_lost(self, cause: str, gpu_s: float) -> None:
        """Work is gone that this much GPU time had made; `cause` is a closed code."""
        self._lost.labels(cause).inc(gpu_s)

    def count_eta_error(self, error_s: float) -> None:
        """A job started this long before or after what it had been told."""
        self._eta_s.observe(abs(error_s))

    def write(self, figures: Figures) -> bytes:
        """Everything as a scrape reads it."""
        return generate_latest(_Scrape(self.registry, figures))


class _Scrape(Collector):
    """The counters and the gauges of this moment."""

    def __init__(self, registry: CollectorRegistry, figures: Figures) -> None:
        self._registry = registry
        self._figures = figures

    def collect(self) -> Iterable[Metric]:
        """All families."""
        yield from find_gauges(self._figures)
        yield from self._registry.collect()


def find_gauges(figures: Figures) -> Iterator[Metric]:
    """Gauges in the order of the table; a family without values is there too, so that its name is known."""
    unknown = {name for name, _ in figures.gauges} - set(GAUGES)
    assert not unknown, f"figures that are not in the table of gauges: {sorted(unknown)}"
    families = {name: GaugeMetricFamily(name, text, labels=labels) for name, (text, labels) in GAUGES.items()}
    for (name, labels), value in figures.gauges.items():
        told = dict(labels)
        # A label without a value is no label to Prometheus: what belongs to no queue says nothing of queues.
        families[name].add_metric([told.pop(label, "") for label in GAUGES[name][1]], value)
        assert not told, f"labels that {name} does not have: {sorted(told)}"
    yield from families.values()


def _histogram(name: str, text: str, buckets: Iterable[float], registry: CollectorRegistry) -> Histogram:
    return Histogram(PREFIX + name, text, buckets=tuple(buckets), registry=registry)
