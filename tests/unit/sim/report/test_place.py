"""Where a report goes: refused early, written whole, and the old one is safe until the new one is."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from phalanx.cli import main
from phalanx.control.spec.errors import BadInput
from phalanx.frontends.sim.report import destination
from phalanx.frontends.sim.report.destination import check_place, write_whole

SMALL = "cluster: {nodes: [{name: n0, resources: {gpu: 2}}]}\ngangs:\n  - {name: A, members: 2, each: {gpu: 1}, duration: 60}\n  - {name: B, members: 2, each: {gpu: 1}, duration: 60}\n"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    file = tmp_path / "small.yaml"
    file.write_text(SMALL)
    return file


def run(*arguments):
    return CliRunner().invoke(main, ["sim", *map(str, arguments)])


def test_a_report_is_written_and_named(small: Path, tmp_path: Path):
    out = tmp_path / "out.html"
    done = run(small, "--policy", "fcfs,easy", "--report", out)
    assert done.exit_code == 0, (done.output, done.exception)
    assert f"report: {out}" in done.stdout
    assert out.read_text().startswith("<!doctype html>")
    assert "phalanx sim small.yaml --policy fcfs,easy --report out.html" in out.read_text()
    assert str(tmp_path) not in out.read_text(), "no folder of this machine"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["out.html", "small.yaml"]


def test_the_json_is_not_disturbed(small: Path, tmp_path: Path):
    plain = run(small, "--policy", "easy", "--json")
    told = run(small, "--policy", "easy", "--json", "--report", tmp_path / "out.html")
    assert told.stdout == plain.stdout
    assert (tmp_path / "out.html").exists()


def bad_places(tmp_path: Path) -> dict[str, tuple[Path, str]]:
    (tmp_path / "folder.html").mkdir()
    os.mkfifo(tmp_path / "pipe.html")
    (tmp_path / "round.html").symlink_to(tmp_path / "round.html")
    return {
        "ending": (tmp_path / "out.pdf", "should end in .html, .svg or .png"),
        "no-folder": (tmp_path / "no" / "out.html", "No such file or directory; name another place"),
        "in-a-file": (tmp_path / "small.yaml" / "out.html", "Not a directory"),
        "folder": (tmp_path / "folder.html", "is there and is no plain file"),
        "pipe": (tmp_path / "pipe.html", "is there and is no plain file"),
        "circle": (tmp_path / "round.html", "round.html"),
    }


@pytest.mark.parametrize("name", ["ending", "no-folder", "in-a-file", "folder", "pipe", "circle"])
def test_a_bad_place_is_refused_before_anything_runs(
    name: str, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def never(*_: object) -> None:
        raise AssertionError("it ran")

    monkeypatch.setattr("phalanx.frontends.sim.sweep.simulate", never)
    path, message = bad_places(tmp_path)[name]
    done = run(small, "--report", path)
    assert done.exit_code == 2, (done.output, done.exception)
    assert message in done.stderr
    assert done.stderr.startswith("phalanx: error: --report: ")
    assert done.stderr.count("\n") == 1
    assert not done.stdout
    assert not list(tmp_path.glob(".*")), "no temporary file is left"


def test_without_matplotlib_a_png_is_refused_with_what_to_type(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(destination, "find_spec", lambda _: None)
    done = run(small, "--report", tmp_path / "out.png")
    assert done.exit_code == 2
    assert "pip install 'phalanx[plot]'" in done.stderr
    check_place(tmp_path / "out.svg")


def test_looking_leaves_the_old_report_alone(tmp_path: Path):
    out = tmp_path / "out.html"
    out.write_text("old")
    check_place(out)
    assert [each.name for each in tmp_path.iterdir()] == ["out.html"]
    assert out.read_text() == "old"


def test_a_failure_while_writing_leaves_the_old_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    out = tmp_path / "out.html"
    out.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BadInput, match="No space left on device"):
        write_whole(out, b"new")
    assert out.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["out.html"]


def test_numbers_are_printed_even_if_the_report_cannot_be(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    done = run(small, "--policy", "easy", "--report", tmp_path / "out.html")
    assert done.exit_code == 1
    assert "2 of 2" in done.stdout
    assert "No space left on device" in done.stderr
    assert not (tmp_path / "out.html").exists()


def test_an_interrupt_while_writing_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_whole(tmp_path / "out.html", b"new")
    assert not list(tmp_path.iterdir())


def test_a_link_stays_a_link(tmp_path: Path):
    (tmp_path / "real").mkdir()
    link = tmp_path / "out.html"
    link.symlink_to(tmp_path / "real" / "target.html")
    write_whole(link, b"new")
    assert link.is_symlink()
    assert (tmp_path / "real" / "target.html").read_bytes() == b"new"


def test_a_report_may_be_read_by_whom_the_umask_lets(tmp_path: Path):
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "out.html", b"new")
    finally:
        os.umask(before)
    assert (tmp_path / "out.html").stat().st_mode & 0o777 == 0o640
