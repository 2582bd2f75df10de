"""Which parameters of a test are for `make test`, and which for `make test-long` alone.

`make test` runs what is not marked `long`, `make test-long` what is: a test is in one of them, whatever its marks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def rest_long(values: Iterable[Any], short: int) -> list[Any]:
    """Parameters of which all but the first few are long."""
    return [value if at < short else pytest.param(value, marks=pytest.mark.long) for at, value in enumerate(values)]
