"""SWF logs."""

import gzip
import time
from pathlib import Path

import pytest

from phalanx.control.spec.errors import BadInput
from phalanx.frontends.sim.scenario import read_cluster
from phalanx.frontends.sim.traces.believed import Estimate
from phalanx.frontends.sim.traces.swf import read_swf

SECOND = 1_000_000
NODES = read_cluster("1x100", "slot")
HEAD = "; Version: 2\n;\n\n"


def line(job=1, submit=0, run=100, allocated=4, requested=4, request_s=200, user=7) -> str:
    return f"{job} {submit} 5 {run} {allocated} -1 -1 {requested} {request_s} -1 1 {user} 1 -1 1 -1 -1 -1\n"


def read(tmp_path: Path, text: str, estimate: Estimate = "requested"):
    file = tmp_path / "log.swf"
    file.write_text(text)
    return read_swf(file, estimate, NODES)


def test_a_job(tmp_path: Path):
    found = read(tmp_path, HEAD + line())
    gang = found.gangs[0]
    assert (gang.name, gang.user, gang.submit_us, gang.walltime_us) == ("1", "u7", 0, 200 * SECOND)
    assert [(role.name, role.sizes.allowed, role.shape.need) for role in gang.roles] == [
        ("member", (4,), (("slot", 1000),))
    ]
    assert found.true_runs[0].duration_us == 100 * SECOND
    assert (found.nodes, found.dropped) == (NODES, 0)


@pytest.mark.parametrize("column", range(18))
@pytest.mark.parametrize("word", ["x", "12a", "nan"])
def test_a_word_in_any_column_is_an_error_that_names_the_line(tmp_path: Path, column: int, word: str):
    """Most columns are not read; a word in one of them says that the line is not what it is taken for."""
    fields = line(job=2).split()
    fields[column] = word
    with pytest.raises(BadInput, match=r"log\.swf.* line 2"):
        read(tmp_path, line() + " ".join(fields) + "\n")


def test_numbers_are_written_as_people_write_them(tmp_path: Path):
    fields = line().split()
    fields[5], fields[6], fields[9] = "1.5e3", "+7", "-1.0"
    assert len(read(tmp_path, " ".join(fields) + "\n").gangs) == 1


def test_jobs_stand_in_order_of_their_number(tmp_path: Path):
    found = read(tmp_path, line(job=10, submit=5) + line(job=2, submit=9) + line(job=1, submit=7))
    assert [gang.name for gang in found.gangs] == ["1", "2", "10"]


def test_jobs_that_never_ran_are_dropped_and_counted(tmp_path: Path):
    found = read(
        tmp_path, line(job=1, run=0) + line(job=2, run=-1) + line(job=3, allocated=-1, requested=-1) + line(job=4)
    )
    assert [gang.name for gang in found.gangs] == ["4"]
    assert found.dropped == 3


def test_processors_fall_back_to_those_allocated(tmp_path: Path):
    assert read(tmp_path, line(requested=-1, allocated=9)).gangs[0].members_min == 9


def test_a_run_is_cut_at_its_request(tmp_path: Path):
    assert read(tmp_path, line(run=300, request_s=200)).true_runs[0].duration_us == 200 * SECOND


def test_without_a_request_the_run_is_believed(tmp_path: Path):
    assert read(tmp_path, line(run=300, request_s=-1)).gangs[0].walltime_us == 300 * SECOND


@pytest.mark.parametrize(
    ("run", "believed"),
    [
        (1, 3600),
        (3600, 3600),
        (3601, 14400),
        (50_000, 86_400),
        (100_000, 172_800),
        (200_000, 604_800),
        (700_000, 700_000),
    ],
)
def test_rounded_estimates(tmp_path: Path, run: int, believed: int):
    assert read(tmp_path, line(run=run, request_s=10**6), "rounded").gangs[0].walltime_us == believed * SECOND


def test_actual_estimates_are_the_run(tmp_path: Path):
    assert read(tmp_path, line(run=300, request_s=1000), "actual").gangs[0].walltime_us == 300 * SECOND
    assert read(tmp_path, line(run=300, request_s=200), "actual").gangs[0].walltime_us == 200 * SECOND


def test_equal_sizes_share_one_object(tmp_path: Path):
    found = read(tmp_path, line(job=1) + line(job=2))
    assert found.gangs[0].roles is found.gangs[1].roles


def test_fractions_of_a_second_are_read(tmp_path: Path):
    assert read(tmp_path, line(run=1.5)).true_runs[0].duration_us == 1_500_000


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (HEAD + "1 2 3\n", "line 4: has 3 fields, and a job of an SWF log has 18"),
        (line() + line(job=2, run="abc"), "line 2: is not all numbers (starts '2 0 5 abc 4"),
        (line(user="bob"), "line 1: is not all numbers"),
        (line(run="nan"), "line 1: has a time or a number of processors out of bounds"),
        (line(run="1e30"), "line 1: has a time or a number of processors out of bounds"),
        (line(submit=-5), "line 1: has a time or a number of processors out of bounds"),
        (line(requested=10**9), "line 1: has a time or a number of processors out of bounds"),
        (line() + line(), "line 2: job 1 stands twice"),
        (HEAD, "holds no job that ran (0 left out)"),
        (line(run=0), "holds no job that ran (1 left out)"),
    ],
)
def test_bad_logs(tmp_path: Path, text: str, why: str):
    with pytest.raises(BadInput) as bad:
        read(tmp_path, text)
    assert str(bad.value).startswith(f"{tmp_path / 'log.swf'}: {why}")


def test_a_compressed_log(tmp_path: Path):
    file = tmp_path / "log.swf.gz"
    whole = gzip.compress((HEAD + line()).encode())
    file.write_bytes(whole)
    assert len(read_swf(file, "requested", NODES).gangs) == 1
    for broken in (whole[:-6], whole[:12], b"not gzip at all", whole[:-8] + b"12345678"):
        file.write_bytes(broken)
        with pytest.raises(BadInput, match="is not a whole gzip file"):
            read_swf(file, "requested", NODES)


def test_a_log_that_is_not_there(tmp_path: Path):
    with pytest.raises(BadInput, match="cannot be read: No such file"):
        read_swf(tmp_path / "nowhere.swf", "requested", NODES)


def test_a_published_log(traces_dir: Path):
    before = time.process_time()
    found = read_swf(traces_dir / "kth-sp2" / "KTH-SP2-raw.swf.gz", "requested", NODES)
    spent = time.process_time() - before
    assert (len(found.gangs), found.dropped) == (28_481, 8)
    # Measured 0.25 s; the bound only catches a change of order on a slow machine.
    assert spent < 2.0
