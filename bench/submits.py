"""Durable submits to the one-machine daemon: one client, many, and one batch.

Judged against this disk in the same run: a bare loop of write and fdatasync.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.host import batch_s, daemon, fsyncs_per_s, submits_per_s
from bench.measure import Measured

NAME = "submits"
WHAT = "durable submits a second: 1 client / 32 clients / one batch of 10,000"
ONE, MANY, CLIENTS, BATCH = 1000, 6000, 32, 10_000


def run(*, quick: bool) -> Measured:
    """Wall time: a promise on disk is waiting, not computing."""
    scale = 4 if quick else 1
    with tempfile.TemporaryDirectory(prefix="phalanx-bench-") as folder:
        disk = fsyncs_per_s(Path(folder))
        with daemon(Path(folder) / "a") as (_, path):
            alone = submits_per_s(path, 1, ONE // scale)
            many = submits_per_s(path, CLIENTS, MANY // scale)
        with daemon(Path(folder) / "b") as (_, path):
            batch = BATCH / batch_s(path, BATCH)
    met = alone >= 0.6 * disk and many >= 2000 and batch >= 20_000
    value = f"{alone:,.0f} ({alone / disk:.0%} of the disk) / {many:,.0f} / {batch:,.0f}"
    return Measured(value, "≥ 60 % of the disk / 2,000 / 20,000", met, f"{disk:,.0f} fdatasync/s in this run")
