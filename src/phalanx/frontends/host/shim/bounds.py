"""What numbers a shim's words and its journal may hold.

Both are in the hands of the job's user, and whoever reads them acts on them: a pid is looked up, an exit
code is written to a database. What is out of bounds was not said by a shim.
"""

RANK_MAX = 65_535
GENERATION_MAX = 2**32 - 1
PID_MAX = 2**22
START_MAX = 2**63 - 1
CODE_MAX = 255
SIGNAL_MAX = 64


def bounded(value: object, least: int, most: int) -> int:
    """A whole number within bounds; raises ValueError."""
    if type(value) is not int or not least <= value <= most:
        raise ValueError("a number that no shim would say")
    return value


def read_member(rank: object, pid: object, start: object) -> tuple[int, tuple[int, int]]:
    """Rank, pid and start time."""
    return bounded(rank, 0, RANK_MAX), (bounded(pid, 1, PID_MAX), bounded(start, 0, START_MAX))


def read_generation(value: object) -> int:
    """Which agreed membership it is about."""
    return bounded(value, 1, GENERATION_MAX)


def read_end(code: object, signal: object) -> tuple[int | None, int | None]:
    """How somebody ended: by a code, by a signal, or nobody knows."""
    return (
        None if code is None else bounded(code, 0, CODE_MAX),
        None if signal is None else bounded(signal, 1, SIGNAL_MAX),
    )
