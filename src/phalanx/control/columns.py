"""Growable tables of columns, the mutable side of `model.snapshot`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


Columns = dict[str, tuple[Any, tuple[int, ...]]]  # a name to (dtype, shape of one entry)


#: Fewer dead rows than this are not worth closing the gaps. With 64, compactions of the allocation table were 2 %
#: of a log on a hundred nodes.
DEAD_LEAST = 256


class Table:
    """Rows that come and go. A row number is good until the next `compact`."""

    def __init__(self, columns: Columns, capacity: int = 64) -> None:
        """No row yet."""
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
        # Doubled below, so that growing costs a constant per row over a whole run.
        if self.used + count > len(self.alive):
            self._grow(self.used + count)
        rows = slice(self.used, self.used + count)
        self.alive[rows] = True
        self.used += count
        return rows

    def add_row(self) -> int:
        """One fresh row, alive."""
        row = self.used
        if row >= len(self.alive):
            self._grow(row + 1)
        self.alive[row] = True
        self.used = row + 1
        return row

    def remove(self, row: int) -> None:
        """A row that nobody may look at any more."""
        # Not cleared: whoever reads goes by `alive`, and writing twenty columns at every end would be work for nobody.
        self.alive[row] = False
        self.dead += 1

    def wants_compaction(self) -> bool:
        """Whether more rows are dead than alive."""
        # A compaction costs as much as the rows it keeps; with half of them dead it
        # has been paid for by those who went.
        return self.dead > DEAD_LEAST and self.dead * 2 > self.used

    def compact(self) -> Array:
        """Close the gaps, keeping the order; the answer is the old row of every new one."""
        kept = np.flatnonzero(self.alive)
        for column in self.columns.values():
            # In place, and in order: rows stand by arrival, which `Hints.in_order` lets the engine rely on.
            column[: len(kept)] = column[kept]
        self.alive[:] = False
        self.alive[: len(kept)] = True
        self.used, self.dead = len(kept), 0
        return kept

    def unshare(self) -> None:
        """Replace every array by a copy, so that whoever holds the old ones keeps them unchanged."""
        self.columns = {name: column.copy() for name, column in self.columns.items()}
        self.alive = self.alive.copy()
        # A snapshot was made of the old arrays: whoever makes the next one must look them up again.
        self.version += 1

    def _grow(self, least: int) -> None:
        capacity = max(least, 2 * len(self.alive))
        for name, column in self.columns.items():
            # New arrays and never a resize in place: a snapshot may still hold the old ones.
            larger = np.zeros((capacity, *column.shape[1:]), dtype=column.dtype)
            larger[: self.used] = column[: self.used]
            self.columns[name] = larger
        alive = np.zeros(capacity, dtype=np.bool_)
        alive[: self.used] = self.alive[: self.used]
        self.alive = alive
        self.version += 1


class HeldTable(Table):
    """Rows that belong to holders, some to each: whoever gives its rows back need not be looked for.

    A search through the whole table at every end was 1.6 % of the samples of a log on one node.
    """

    def __init__(self, columns: Columns, capacity: int = 64) -> None:
        """Nobody holds anything."""
        super().__init__(columns, capacity)
        self._held: dict[int, tuple[slice, ...]] = {}

    def add_for(self, holder: int, count: int) -> slice:
        """Fresh rows at the end, for somebody."""
        rows = self.add(count)
        # Several slices, one for each role and each time it was seated anew.
        self._held[holder] = (*self._held.get(holder, ()), rows)
        return rows

    def remove_of(self, holder: int) -> None:
        """Everything that somebody holds, nothing included."""
        for rows in self._held.pop(holder, ()):
            self.alive[rows] = False
            self.dead += rows.stop - rows.start

    def renumber(self, new_by_old: dict[int, int]) -> None:
        """Holders are called something else."""
        self._held = {new_by_old[holder]: rows for holder, rows in self._held.items()}

    def compact(self) -> Array:
        """As above. Rows that were added together die together, so they still stand side by side."""
        kept = super().compact()
        new_row = np.zeros(int(kept.max(initial=0)) + 1, dtype=np.int64)
        new_row[kept] = np.arange(len(kept))

        def moved(rows: slice) -> slice:
            # By its first row alone: rows that were added together die together
            # (`remove_of`), so none in between is missing.
            start = int(new_row[rows.start])
            return slice(start, start + rows.stop - rows.start)

        self._held = {holder: tuple(moved(each) for each in rows) for holder, rows in self._held.items()}
        return kept

    def unshare(self) -> None:
        """As above, with who holds what."""
        super().unshare()
        # The slices are values, so that the dictionary alone has to be another.
        self._held = dict(self._held)
