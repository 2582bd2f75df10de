"""Power loss at every write boundary, over the daemon's own SQL, settings and migrations.

A shim below SQLite notes what is written, synced, truncated and deleted while a history of writes runs once. For every
prefix of that trace the disk is then rebuilt as a power loss might leave it: all that was not synced is gone, or any
part of it, or some sectors of it. The database on that disk must hold the state after the last acknowledged write, or
after the one that was under way, and nothing else. The last tests plant weaker settings and see them caught.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import apsw
import pytest

from phalanx.frontends.host.store import (
    AddEstimate,
    AddEvents,
    CloseEstimate,
    DropRun,
    EventRecord,
    InsertJobs,
    PutMeta,
    PutRun,
    RunRecord,
    UpdateJob,
    schema,
)
from phalanx.frontends.host.store.applying import apply_group
from phalanx.frontends.host.store.database import prepare_writer, write_checkpoint
from phalanx.frontends.host.store.stored_rows import Forget

SECTOR = 512
MODES = ("kept", "dropped", "subset", "torn")  # "kept" is kill -9: the kernel still has everything


@dataclass(frozen=True)
class Step:
    """Something the disk was asked to do, or an acknowledgement."""

    kind: str  # write, truncate, sync, delete, ack
    file: str = ""
    offset: int = 0
    data: bytes = b""


class NotingDisk(apsw.VFS):
    """Passes everything on to the real disk, and notes it."""

    def __init__(self, name: str) -> None:
        self.steps: list[Step] = []
        super().__init__(name, "unix")

    def xOpen(self, name, flags):  # noqa: N802 - SQLite's name
        return NotingFile(self.steps, name, flags)

    def xDelete(self, name, sync):  # noqa: N802 - SQLite's name
        self.steps.append(Step("delete", Path(name).name))
        super().xDelete(name, sync)


class NotingFile(apsw.VFSFile):
    """A file of that disk."""

    def __init__(self, steps, name, flags) -> None:
        self._steps = steps
        self._name = Path(name.filename() if isinstance(name, apsw.URIFilename) else name).name
        super().__init__("unix", name, flags)

    def xWrite(self, data, offset):  # noqa: N802 - SQLite's name
        self._steps.append(Step("write", self._name, offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, size):  # noqa: N802 - SQLite's name
        self._steps.append(Step("truncate", self._name, size))
        super().xTruncate(size)

    def xSync(self, flags):  # noqa: N802 - SQLite's name
        self._steps.append(Step("sync", self._name))
        super().xSync(flags)


@dataclass
class Disk:
    """What is on the platter, and what is only in the cache above it."""

    durable: dict[str, bytearray] = field(default_factory=dict)
    pending: list[Step] = field(default_factory=list)

    def follow(self, step: Step) -> None:
        if step.kind == "ack":
            return
        if step.kind != "sync":
            self.pending.append(step)
            return
        # A sync makes one file durable, and with it the names in the folder.
        for old in self.pending:
            if old.file == step.file or old.kind == "delete":
                _apply(self.durable, old)
        self.pending = [old for old in self.pending if old.file != step.file and old.kind != "delete"]

    def lose_power(self, mode: str, dice: random.Random) -> dict[str, bytearray]:
        """The files as they are found afterwards."""
        files = {name: bytearray(content) for name, content in self.durable.items()}
        for step in self.pending:
            if mode == "kept" or (mode in ("subset", "torn") and dice.random() < 0.5):
                for part in _tear(step, dice) if mode == "torn" else [step]:
                    _apply(files, part)
        return files


def _tear(step: Step, dice: random.Random) -> Iterator[Step]:
    """Some of the sectors that a write touches."""
    if step.kind != "write":
        yield step
        return
    start = step.offset
    end = step.offset + len(step.data)
    while start < end:
        stop = min(end, (start // SECTOR + 1) * SECTOR)
        if dice.random() < 0.5:
            yield Step("write", step.file, start, step.data[start - step.offset : stop - step.offset])
        start = stop


def _apply(files: dict[str, bytearray], step: Step) -> None:
    if step.kind == "delete":
        files.pop(step.file, None)
        return
    content = files.setdefault(step.file, bytearray())
    if step.kind == "truncate":
        del content[step.offset :]
    else:
        content.extend(bytes(max(0, step.offset - len(content))))
        content[step.offset : step.offset + len(step.data)] = step.data


# ------------------------------------------------------------------- a history


def make_history(job) -> list[list[list[object]]]:
    """Groups of writes with everything in them that the daemon writes."""
    dice = random.Random(7)
    groups: list[list[list[object]]] = []
    for number in range(1, 11):
        blob = dice.randbytes(dice.choice([50, 900, 9000]))
        first = 2 * number - 1  # every group brings two jobs
        submit = [InsertJobs(1000, f"k{number}", [job(name=f"n{number}", run=blob), job(run=None)])]
        start = [
            PutRun(RunRecord(f"{first}.1", first, 1, 1, "starting", "boot", blob[:40])),
            UpdateJob(first, state="starting", attempt=1),
            AddEvents([EventRecord(first, "start", number, 0.5, blob[:100])]),
            AddEstimate(first, number, 5, 4, 6, predicted=True),
            PutMeta("mark", bytes([number])),
        ]
        doomed = [UpdateJob(first, state="failed"), UpdateJob(999, state="failed")]  # fails, and must leave nothing
        groups.append([submit, doomed, start] if number % 2 else [[*submit, *start]])
    end = [UpdateJob(1, state="completed", end_us=3), DropRun("1.1"), CloseEstimate(1, 9)]
    return [*groups[:6], [end], *groups[6:8], [[Forget(4, 100, 50)]], *groups[8:]]


def dump(connection) -> tuple[object, ...]:
    """All that a database says."""
    tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
    question = "SELECT * FROM {} ORDER BY 1, 2"
    rows = [tuple(connection.execute(question.format(table)).fetchall()) for table in tables]
    return (schema.read_version(connection), tuple(zip(tables, rows, strict=True)))


@pytest.fixture
def trace(tmp_path, job, monkeypatch):
    """Runs the history with a setting of `synchronous`; its steps, and the state at each acknowledgement."""

    def run(synchronous: str | None) -> tuple[list[Step], list[tuple[object, ...]]]:
        folder = tmp_path / f"traced-{synchronous}"
        folder.mkdir()
        disk = NotingDisk(f"noting-{folder}")
        states: list[tuple[object, ...]] = []
        first = schema.MIGRATIONS
        with closing(apsw.Connection(str(folder / "phalanx.db"), vfs=f"noting-{folder}")) as connection:

            def acknowledge() -> None:
                disk.steps.append(Step("ack"))
                states.append(dump(connection))

            prepare_writer(connection)
            assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
            if synchronous:
                connection.execute(f"PRAGMA synchronous = {synchronous}")
            schema.migrate(connection)
            acknowledge()
            for number, group in enumerate(make_history(job)):
                apply_group(connection, group)
                acknowledge()
                if number in (3, 6, 9):
                    write_checkpoint(connection)
                if number == 7:
                    step = ("ALTER TABLE job ADD COLUMN colour TEXT DEFAULT 'red'", "CREATE TABLE extra (a, b)")
                    monkeypatch.setattr(schema, "MIGRATIONS", (*first, step))
                    schema.migrate(connection)
                    acknowledge()
                    write_checkpoint(connection, "TRUNCATE")
        disk.unregister()
        return disk.steps, states

    return run


# ------------------------------------------------------------------- the verdict


def judge(folder: Path, files: dict[str, bytearray], states: list[tuple[object, ...]], acknowledged: int) -> str:
    """Whether a database that was found after a power loss is as good as promised."""
    for path in folder.iterdir():
        path.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    try:
        with closing(apsw.Connection(str(folder / "phalanx.db"))) as connection:
            connection.execute("PRAGMA synchronous = OFF")  # only to be quick; nothing is lost any more
            found = dump(connection)
            if connection.execute("PRAGMA integrity_check").fetchone() != ("ok",):
                return "corrupt"
    except (apsw.CorruptError, apsw.NotADBError, apsw.SQLError):
        return "corrupt"
    # `states[k]` is the state at acknowledgement k + 1; before the first there is nothing.
    everything = [(0, ()), *states]
    if found in everything[acknowledged : acknowledged + 2]:
        return "good"
    return "lost" if found in everything[:acknowledged] else "half"


def lose_power_everywhere(
    folder: Path, steps: list[Step], states: list[tuple[object, ...]], every: int = 1
) -> Counter[str]:
    """Verdicts over every boundary, or every third say."""
    folder.mkdir()
    dice = random.Random(11)
    verdicts: Counter[str] = Counter()
    disk = Disk()
    acknowledged = 0
    for number, step in enumerate(steps):
        disk.follow(step)
        acknowledged += step.kind == "ack"
        for mode in MODES if number % every == 0 else ():
            verdicts[judge(folder, disk.lose_power(mode, dice), states, acknowledged)] += 1
    return verdicts


def test_nothing_acknowledged_is_lost_at_any_power_loss(tmp_path, trace):
    steps, states = trace(None)
    kinds = Counter(step.kind for step in steps)
    # The trace has what it should: every acknowledgement, syncs for each, and both files were written.
    assert kinds["ack"] == len(states) == 14
    assert len(set(states)) == 14
    assert kinds["sync"] >= 14
    assert {step.file for step in steps if step.kind == "write"} >= {"phalanx.db", "phalanx.db-wal"}
    verdicts = lose_power_everywhere(tmp_path / "after", steps, states)
    assert verdicts == {"good": len(steps) * len(MODES)}
    assert len(steps) > 150


def test_synchronous_off_is_caught(tmp_path, trace):
    verdicts = lose_power_everywhere(tmp_path / "after", *trace("OFF"), every=5)
    assert verdicts["lost"] > 0
    assert verdicts["corrupt"] + verdicts["half"] > 0


def test_synchronous_normal_is_caught(tmp_path, trace):
    verdicts = lose_power_everywhere(tmp_path / "after", *trace("NORMAL"), every=5)
    assert verdicts["lost"] > 0
    # It keeps the database whole; what it does not keep is promises.
    assert verdicts["corrupt"] == verdicts["half"] == 0
