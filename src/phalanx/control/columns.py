"""Growable tables of columns, the mutable side of `model.snapshot`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Table:
    """Rows that come and go. A row number is good until the next `compact`."""

    def __init__(self, columns: dict[str, tuple[Any, tuple[int, ...]]], capacity: int = 64) -> None:
        """`columns` maps a name to (dtype, shape of one entry)."""
        self.columns: dict[str, Array] = {
            name: np.zeros((capacity, *shape), dtype=dtype) for name, (dtype, shape) in columns.items()
        }
        self.alive: npt.NDArray[np.bool_] = np.zeros(capacity, dtype=np.bool_)
        self.used = 0  # rows ever handed out since the last compaction
        self.dead = 0
        self.version = 0  # changes whenever the arrays themselves are replaced

    def __len__(self) -> int:
        """How many rows are alive."""
        return self.used - self.dead

    def add(self, count: int = 1) -> slice:
        """Fresh rows at the end, alive."""
        if self.used + count > len(self.alive):
            self._grow(self.used + count)
        rows = slice(self.used, self.used + count)
        self.alive[rows] = True
        self.used += count
        return rows

    def remove(self, rows: Any) -> None:
        """Rows that nobody may look at any more."""
        self.alive[rows] = False
        self.dead += 1 if isinstance(rows, int) else len(rows)

    def wants_compaction(self) -> bool:
        """Whether more rows are dead than alive."""
        return self.dead > 64 and self.dead * 2 > self.used

    def compact(self) -> Array:
        """Close the gaps, keeping the order; the answer is the old row of every new one."""
        kept = np.flatnonzero(self.alive)
        for column in self.columns.values():
            column[: len(kept)] = column[kept]
        self.alive[:] = False
        self.alive[: len(kept)] = True
        self.used, self.dead = len(kept), 0
        return kept

    def copy(self) -> None:
        """Replace every array by a copy, so that whoever holds the old ones keeps them unchanged."""
        self.columns = {name: column.copy() for name, column in self.columns.items()}
        self.alive = self.alive.copy()
        self.version += 1

    def _grow(self, least: int) -> None:
        capacity = max(least, 2 * len(self.alive))
        for name, column in self.columns.items():
            larger = np.zeros((capacity, *column.shape[1:]), dtype=column.dtype)
            larger[: self.used] = column[: self.used]
            self.columns[name] = larger
        alive = np.zeros(capacity, dtype=np.bool_)
        alive[: self.used] = self.alive[: self.used]
        self.alive = alive
        self.version += 1
