"""Resource kinds and the integer units they are counted in.

The engine adds, subtracts and compares integers only: floats would make two machines
disagree about whether the last half GPU is free. Every kind has a fixed scale: memory-like
kinds are counted in bytes, everything else in thousandths, so half a GPU is 500.
"""

from __future__ import annotations

from typing import Final

#: The one kind whose units are physical devices: a share of it sits on a single device.
DEVICE_KIND: Final = "gpu"

#: What a cluster given as NxM offers: an anonymous place, such as a processor of an SWF log.
SLOT_KIND: Final = "slot"

#: One whole unit of every kind that is not counted in bytes.
MILLI: Final = 1000

#: No amount may pass this, so that sums over 10,000 nodes stay inside 64 bits.
AMOUNT_MAX: Final = 1 << 49

#: Kinds counted in bytes; everything else is counted in thousandths.
BYTE_KINDS: Final = frozenset({"memory", "storage", "disk", "ephemeral-storage"})


def units_per_whole(kind: str) -> int:
    """How many engine units one written unit of this kind is."""
    return 1 if kind in BYTE_KINDS or kind.startswith("hugepages") else MILLI
