"""What lies in the state directory decides: good, damaged, too new, not ours."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path

import pytest

from phalanx.frontends.host.store import InsertJobs, PutMeta, StoreBroken, StoreFull, backups, opening, schema


def damage(path: Path) -> None:
    """Overwrite the middle of a closed database, past its first page."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))


def fill(store, job, name: str, count: int = 20) -> None:
    store.write_now(InsertJobs(1000, None, [job(name=name) for _ in range(count)]))


def names(store) -> set[str]:
    return {record.name for record in store.jobs()}


def integrity(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("PRAGMA integrity_check").fetchone()[0]


# ------------------------------------------------------------------- files


def test_nobody_else_can_read_the_files(store, home, job):
    fill(store, job, "a")
    store.backup()
    files = [path for path in home.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"phalanx.db", "phalanx.db-wal", "phalanx.db-shm", "ballast"}
    assert len(files) == 7
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in (home, home / "backups", home / "redo")} == {0o700}


def test_a_database_that_was_opened_up_is_closed_again(opened, home):
    opened().close_now()
    (home / "phalanx.db").chmod(0o644)
    opened()
    assert stat.S_IMODE((home / "phalanx.db").stat().st_mode) == 0o600


def test_one_file_is_left_after_a_clean_end(opened, home, job):
    store = opened()
    fill(store, job, "a")
    store.close_now()
    assert sorted(path.name for path in home.iterdir()) == ["ballast", "phalanx.db", "redo"]
    assert integrity(home / "phalanx.db") == "ok"


# ------------------------------------------------------------------- not ours to write


def test_a_directory_of_somebody_else_is_named_with_its_owner(tmp_path):
    opening.check_owner(tmp_path, 1234, 1234)
    with pytest.raises(StoreBroken, match="belongs to uid 54321") as caught:
        opening.check_owner(tmp_path, 54321, 54322)
    assert caught.value.kind == "foreign"
    assert "PHALANX_HOME" in caught.value.hint
    assert f"chown -R 54322 {tmp_path}" in caught.value.hint


@pytest.mark.parametrize("what", ["", "phalanx.db"])
def test_what_belongs_to_somebody_else_is_not_touched(opened, home, as_root, what):
    opened().close_now()
    os.chown(home / what, 54321, 54321)
    with pytest.raises(StoreBroken, match="uid 54321") as caught:
        opened()
    assert caught.value.kind == "foreign"


def test_a_directory_that_may_not_be_written(tmp_path, clock):
    """As another user than root, who may write anywhere."""
    home = tmp_path / "state"
    home.mkdir()
    code = textwrap.dedent("""
        import os, sys
        from pathlib import Path
        from phalanx.frontends.host.store import StoreBroken, open_store
        home = Path(sys.argv[1])
        os.chmod(home, 0o500)
        if os.geteuid() == 0:
            os.chown(home, 54321, 54321)
            os.seteuid(54321)
        class Clock:
            wall_s = staticmethod(lambda: 0.0)
        for place in (Path("state"), Path("state/deeper/down")):
            try:
                open_store(place, clock=Clock())
            except StoreBroken as broken:
                print(broken.kind, "|", broken.message, "|", broken.hint)
    """)
    done = subprocess.run(
        [sys.executable, "-c", code, home], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=60
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 2, done.stderr
    for line in lines:
        assert line.startswith("readonly | The state directory state")
        assert "PHALANX_HOME" in line


def test_a_disk_that_is_mounted_readonly(tmp_path, as_root, opened):
    home = tmp_path / "state"
    home.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,size=1m", "tmpfs", home], check=False).returncode:
        pytest.skip("mounting is not permitted here")
    try:
        with pytest.raises(StoreBroken, match="cannot be written") as caught:
            opened()
    finally:
        subprocess.run(["umount", home], check=True)
    assert caught.value.kind == "readonly"
    assert "findmnt" in caught.value.hint


def test_a_file_in_place_of_the_directory(tmp_path, opened):
    (tmp_path / "state").write_text("")
    with pytest.raises(StoreBroken) as caught:
        opened()
    assert caught.value.kind == "readonly"


# ------------------------------------------------------------------- versions


def test_a_newer_schema_is_refused_and_left_alone(opened, home, job):
    store = opened()
    fill(store, job, "a")
    store.close_now()
    with closing(sqlite3.connect(home / "phalanx.db")) as connection:
        connection.execute("PRAGMA user_version = 99")
    before = (home / "phalanx.db").read_bytes()
    with pytest.raises(StoreBroken, match="schema 99") as caught:
        opened()
    assert caught.value.kind == "newer"
    assert "Upgrade" in caught.value.hint
    assert (home / "phalanx.db").read_bytes() == before


@pytest.fixture
def version_2(monkeypatch):
    step = ("ALTER TABLE job ADD COLUMN colour TEXT NOT NULL DEFAULT 'red'", "CREATE TABLE extra (a)")
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS[:1], step))


def test_an_older_database_is_migrated_and_kept_as_it_was(opened, home, job, request):
    store = opened()
    fill(store, job, "a")
    store.close_now()
    request.getfixturevalue("version_2")
    again = opened()
    assert schema.read_version(again._reader) == 2
    assert names(again) == {"a"}
    assert again._reader.execute("SELECT DISTINCT colour FROM job").fetchall() == [("red",)]
    [copy] = backups.list_backups(home / "backups")
    with closing(sqlite3.connect(copy)) as connection:
        assert schema.read_version(connection) == 1
    fill(again, job, "b")
    assert names(again) == {"a", "b"}


def test_a_new_database_goes_through_every_version(opened, version_2, home):
    assert schema.read_version(opened()._reader) == 2
    assert backups.list_backups(home / "backups") == []


def test_a_migration_that_fails_changes_nothing(opened, home, job, monkeypatch):
    store = opened()
    fill(store, job, "a")
    store.close_now()
    first = schema.MIGRATIONS
    monkeypatch.setattr(schema, "MIGRATIONS", (*first, ("CREATE TABLE extra (a)", "CREATE TABLE job (a)")))
    with pytest.raises(StoreBroken, match="already exists"):
        opened()
    monkeypatch.setattr(schema, "MIGRATIONS", first)
    again = opened()
    assert schema.read_version(again._reader) == 1
    assert names(again) == {"a"}
    tables = again._reader.execute("SELECT name FROM sqlite_schema WHERE name = 'extra'").fetchall()
    assert tables == []


# ------------------------------------------------------------------- backups


def test_backups_are_whole_numbered_and_rotated(opened, home, job, clock):
    store = opened(backups=2)
    made = []
    for name in "abc":
        fill(store, job, name)
        clock.wall += 3600
        made.append(store.backup())
    assert [path.name for path in made] == [
        "000001-20270115T090000Z.db",
        "000002-20270115T100000Z.db",
        "000003-20270115T110000Z.db",
    ]
    assert backups.list_backups(home / "backups") == [made[2], made[1]]
    assert sorted(path.name for path in (home / "backups").iterdir()) == [made[1].name, made[2].name]
    assert integrity(made[1]) == "ok"
    with closing(sqlite3.connect(made[1])) as connection:
        assert connection.execute("SELECT count(*) FROM job").fetchone() == (40,)
        assert connection.execute("SELECT count(*) FROM job_run").fetchone() == (40,)
    clock.wall -= 86400  # the number orders them, not the clock
    assert store.backup().name == "000004-20270114T110000Z.db"
    assert backups.list_backups(home / "backups")[1] == made[2]


def test_a_backup_does_not_take_the_last_room(store, home, monkeypatch):
    monkeypatch.setattr(backups.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10 << 20}))
    with pytest.raises(StoreFull, match="No backup was made"):
        store.backup()
    assert list((home / "backups").iterdir()) == []


def test_a_damaged_copy_is_not_kept_and_pushes_no_good_one_out(opened, home, job, monkeypatch):
    store = opened(backups=1)
    fill(store, job, "a")
    good = store.backup()
    monkeypatch.setattr(backups, "find_damage", lambda _: "row 5 missing from index")
    with pytest.raises(StoreBroken, match="row 5 missing") as caught:
        store.backup()
    assert caught.value.kind == "corrupt"
    assert list((home / "backups").iterdir()) == [good]


# ------------------------------------------------------------------- damage


def test_damage_without_a_backup_is_told_at_every_start(opened, home, job):
    store = opened()
    fill(store, job, "a")
    store.close_now()
    damage(home / "phalanx.db")
    shutil.rmtree(home / "redo")
    before = (home / "phalanx.db").read_bytes()
    for _ in range(2):
        with pytest.raises(StoreBroken, match="is damaged") as caught:
            opened()
        assert caught.value.kind == "corrupt"
        assert ".recover" in caught.value.hint
        assert "mv " in caught.value.hint
    assert (home / "phalanx.db").read_bytes() == before


@pytest.mark.parametrize("how", ["pages", "header", "empty", "gone", "garbage"])
def test_damage_with_a_backup_goes_back_to_it_loudly(opened, home, job, how):
    store = opened()
    fill(store, job, "before", 5)
    copy = store.backup()
    fill(store, job, "after", 5)
    store.close_now()
    database = home / "phalanx.db"
    match how:
        case "pages":
            damage(database)
        case "header":
            with database.open("r+b") as file:
                file.write(b"not a database, is it?")
        case "empty":
            os.truncate(database, 0)
        case "gone":
            database.unlink()
        case "garbage":
            database.write_bytes(b"\x5a" * 50_000)
    again = opened()
    assert names(again) == {"before", "after"}
    assert str(copy) in again.restored
    assert "6, 7, 8, 9, 10" in again.restored
    assert again.problem == again.restored
    kept = [path for path in home.iterdir() if ".broken-" in path.name]
    assert len(kept) == 1
    assert str(kept[0]) in again.restored
    # Ids 6 to 10 were given to somebody: they do not come again.
    [[number]] = again.write_now(InsertJobs(1000, None, [job(name="new")]))
    assert number == 10 + backups.NUMBERS_SKIPPED + 1
    assert again.load_run(number)
    assert copy.exists()
    again.close_now()
    assert integrity(database) == "ok"
    third = opened()
    assert third.restored is None
    assert names(third) == {"before", "after", "new"}


def test_the_newest_good_backup_is_taken(opened, home, job):
    store = opened()
    copies = []
    for name in "abc":
        fill(store, job, name)
        copies.append(store.backup())
    store.close_now()
    damage(copies[2])
    with closing(sqlite3.connect(copies[1])) as connection:
        connection.execute("PRAGMA user_version = 99")
    damage(home / "phalanx.db")
    again = opened()
    assert names(again) == {"a", "b", "c"}
    assert str(copies[0]) in again.restored
    assert not list(home.glob("*.part"))


def test_the_log_of_a_damaged_database_does_not_meet_the_backup(opened, home, job, tmp_path):
    store = opened()
    fill(store, job, "before")
    store.backup()
    fill(store, job, "after")
    # As a crash leaves it: with a log beside it.
    crashed = tmp_path / "crashed"
    crashed.mkdir(mode=0o700)
    for name in ("phalanx.db", "phalanx.db-wal"):
        (crashed / name).write_bytes((home / name).read_bytes())
    (home / "backups").rename(crashed / "backups")
    with (crashed / "phalanx.db").open("r+b") as file:
        file.write(b"\xa5" * 4096)
    # The log holds page 1 too, so it must be spoilt for the damage to show.
    with (crashed / "phalanx.db-wal").open("r+b") as file:
        file.seek(40)
        file.write(b"\xa5" * 8)
    spoilt = {name: (crashed / f"phalanx.db{name}").read_bytes() for name in ("", "-wal")}
    again = opened(crashed)
    assert names(again) == {"before"}
    kept = {path.name.partition("Z")[2]: path.read_bytes() for path in crashed.glob("*.broken-*")}
    assert kept.keys() >= {"", "-wal"}
    assert {name: kept[name] for name in ("", "-wal")} == spoilt  # evidence


def test_damage_that_a_question_meets_ends_the_promises(opened, home, job):
    store = opened()
    fill(store, job, "a", 200)
    store.close_now()
    again = opened()
    again._reader.close()
    broken = home / "elsewhere.db"
    broken.write_bytes((home / "phalanx.db").read_bytes())
    damage(broken)
    again._reader = sqlite3.connect(broken, isolation_level=None, check_same_thread=False)
    with pytest.raises(StoreBroken) as caught:
        again.jobs()
    assert caught.value.kind == "corrupt"
    with pytest.raises(StoreBroken) as caught:
        again.write_now(PutMeta("a", b""))
    assert caught.value.kind == "corrupt"
    assert "Restart the daemon" in again.problem
