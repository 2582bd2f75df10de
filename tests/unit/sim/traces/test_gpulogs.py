"""Philly, Chronus, ElasticFlow and Tiresias: small logs by hand, and every way one can be wrong."""

import gzip
from pathlib import Path

import pytest

from phalanx.control.spec.errors import BadInput
from phalanx.frontends.sim.traces.reading import Reading, read_any

SECOND = 1_000_000
PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n"
CHRONUS = (
    "job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval,"
    "expect_time_list,expect_value_list,best_effort,job_type\n"
)
ELASTICFLOW = "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration\n"
TIRESIAS = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"


def read(tmp_path: Path, text: str | bytes, name: str = "log.csv", **how):
    file = tmp_path / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_any(file, "4x8", Reading(**how))


def times(scenario) -> list[tuple[str, float, float]]:
    pairs = zip(scenario.gangs, scenario.true_runs, strict=True)
    return [(gang.name, gang.submit_us / SECOND, truth.duration_us / SECOND) for gang, truth in pairs]


# ---- Philly


def test_philly_is_sorted_counted_from_the_first_and_named_by_row(tmp_path):
    found = read(
        tmp_path,
        PHILLY + "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n2017-10-09 07:00:00,2951.5,8,1.0,6214e9\n"
        "2017-10-09 07:01:55,1,2,1.0,11cb48\n",
    )
    assert times(found) == [("2", 0, 2951.5), ("1", 115, 66), ("3", 115, 1)]
    assert [gang.user for gang in found.gangs] == ["6214e9", "11cb48", "11cb48"]
    assert [gang.members_min for gang in found.gangs] == [8, 1, 2]
    gang = found.gangs[0]
    assert gang.roles[0].shape.need == (("gpu", 1000),)
    assert (gang.queue, gang.elastic, gang.preemptible, gang.deadline_us) == ("default", False, False, None)
    assert gang.walltime_us == 2_951_500_000
    assert len(found.nodes) == 4
    assert found.nodes[0].resources == {"gpu": 8000}


def test_philly_takes_its_columns_by_name(tmp_path):
    found = read(tmp_path, "cluster,num_gpus,duration,timestamp\nvc,4,10,2017-10-09 07:00:00\n")
    assert (found.gangs[0].user, found.gangs[0].members_max) == ("vc", 4)


def test_a_time_zone_is_honoured(tmp_path):
    rows = "2017-10-09 07:00:00+02:00,10,1,1,a\n2017-10-09 06:00:00+00:00,10,1,1,a\n"
    assert times(read(tmp_path, PHILLY + rows)) == [("1", 0, 10), ("2", 3600, 10)]


def test_jobs_without_a_run_or_a_gpu_are_left_out_and_counted(tmp_path):
    rows = "2017-10-09 07:00:00,0,1,1,a\n2017-10-09 07:00:01,5,0,1,a\n2017-10-09 07:00:02,5,1,1,a\n"
    found = read(tmp_path, PHILLY + rows)
    assert times(found) == [("3", 0, 5)]
    assert found.dropped == 2


@pytest.mark.parametrize(("estimate", "walltime_s"), [("requested", 5000), ("actual", 5000), ("rounded", 14_400)])
def test_beliefs_about_a_log_without_requests(tmp_path, estimate, walltime_s):
    found = read(tmp_path, PHILLY + "2017-10-09 07:00:00,5000,1,1,a\n", estimate=estimate)
    assert found.gangs[0].walltime_us == walltime_s * SECOND


def test_equal_sizes_and_runs_share_one_object(tmp_path):
    found = read(tmp_path, PHILLY + 2 * "2017-10-09 07:00:00,5000,4,1,a\n")
    assert found.gangs[0].roles is found.gangs[1].roles
    assert found.true_runs[0] is found.true_runs[1]


def test_the_name_of_the_file_does_not_matter(tmp_path):
    row = "2017-10-09 07:00:00,5000,1,1,a\n"
    packed = gzip.compress((PHILLY + row).encode())
    for name, data in {
        "a.csv.gz": packed,
        "b": PHILLY + row,
        "c.csv": packed,
        "d.log": "\ufeff" + PHILLY.replace("\n", "\r\n") + row,
    }.items():
        assert len(read(tmp_path, data, name).gangs) == 1, name


# ---- Chronus


def test_chronus_counts_in_minutes_and_the_first_deadline_is_the_one(tmp_path):
    found = read(
        tmp_path,
        CHRONUS + "7,vc_a,4,10,100,vgg16,30,1,90,10,0,strict\n"
        "8,vc_b,1,5,100,vgg16,20,1,60-90-120-150,10-8-5-2,0,soft\n9,vc_b,1,6,100,vgg16,20,1,6,10,1,best\n",
    )
    assert times(found) == [("8", 300, 1200), ("9", 360, 1200), ("7", 600, 1800)]
    deadlines = [None if gang.deadline_us is None else gang.deadline_us / SECOND for gang in found.gangs]
    assert deadlines == [3600, None, 5400]
    assert [gang.user for gang in found.gangs] == ["vc_b", "vc_b", "vc_a"]


def test_chronus_rows_without_a_gpu_are_left_out(tmp_path):
    rows = "1,a,0,1,1,m,1,1,9,1,0,strict\n2,a,1,1,1,m,1,1,9,1,0,strict\n"
    found = read(tmp_path, CHRONUS + rows)
    assert (len(found.gangs), found.dropped) == (1, 1)


# ---- ElasticFlow and Tiresias


def test_elasticflow_deadlines_are_instants(tmp_path):
    found = read(tmp_path, ELASTICFLOW + "0,100,10,vgg16,400,256,2,50\n")
    assert times(found) == [("0", 100, 50)]
    assert found.gangs[0].deadline_us == 300 * SECOND


def test_elasticflow_best_effort_has_no_deadline(tmp_path):
    text = ELASTICFLOW.replace("duration\n", "duration,best_effort\n")
    found = read(tmp_path, text + "0,100,10,vgg16,400,256,2,50,1\n1,100,10,vgg16,400,256,2,50,0\n")
    assert [gang.deadline_us for gang in found.gangs] == [None, 300 * SECOND]


def test_tiresias(tmp_path):
    found = read(tmp_path, TIRESIAS + "0,1,0,606,vgg19,164,30\n1,8,30,133,vgg11,147,23\n")
    assert times(found) == [("0", 0, 164), ("1", 30, 147)]
    assert [gang.members_max for gang in found.gangs] == [1, 8]


# ---- what is wrong

BAD = {
    "empty": (b"", "is empty; a log has a header and a row for every job"),
    "blank": ("\n\n", "is empty; a log has a header and a row for every job"),
    "header-only": (PHILLY, "holds no job that ran (0 left out)"),
    "missing-column": (
        PHILLY.replace("duration,", ""),
        "line 1: looks like Philly, and has no column duration",
    ),
    "no-column-at-all": ("a,b\n1,2\n", "line 1: is no log that is known here (columns 'a', 'b')"),
    "column-twice": ("timestamp,duration,duration\n", "line 1: names the column 'duration' twice"),
    "text": (PHILLY + "2017-10-09 07:00:00,soon,1,1,a\n", "line 2: duration is no time (got 'soon')"),
    "negative": (PHILLY + "2017-10-09 07:00:00,-5,1,1,a\n", "line 2: duration must not be negative (got '-5')"),
    "ages": (PHILLY + "2017-10-09 07:00:00,1e30,1,1,a\n", "line 2: duration is more than 100 years (got '1e30')"),
    "nan": (PHILLY + "2017-10-09 07:00:00,nan,1,1,a\n", "line 2: duration is no time (got 'nan')"),
    "no-duration": (PHILLY + "2017-10-09 07:00:00,,1,1,a\n", "line 2: duration is empty; write seconds"),
    "no-date": (PHILLY + "yesterday,5,1,1,a\n", "line 2: timestamp must be a date and time such as 2017-10-09"),
    "half-a-gpu": (
        PHILLY + "2017-10-09 07:00:00,5,1.5,1,a\n",
        "line 2: num_gpus must be a whole number of at least 0 (got '1.5')",
    ),
    "gpus-negative": (
        PHILLY + "2017-10-09 07:00:00,5,-1,1,a\n",
        "line 2: num_gpus must be a whole number of at least 0 (got '-1')",
    ),
    "gpus-huge": (
        PHILLY + "2017-10-09 07:00:00,5,1000000000,1,a\n",
        "line 2: num_gpus must be at most 1,000,000 (got '1000000000')",
    ),
    "centuries": (
        PHILLY + "1017-10-09 07:00:00,5,1,1,a\n2017-10-09 07:00:00,5,1,1,a\n",
        "line 3: spans more than 100 years",
    ),
    "short-row": (PHILLY + "2017-10-09 07:00:00,5\n", "line 2: has 2 fields, and the header has 5"),
    "long-row": (PHILLY + "2017-10-09 07:00:00,5,1,1,a,b\n", "line 2: has 6 fields, and the header has 5"),
    "control": (PHILLY + '2017-10-09 07:00:00,5,1,1,"a\x1b[31m"\n', "line 2: cluster must be printable text"),
    "binary": (b"\xff\xfe\x00\xd8", "is not UTF-8 text; is it a log or a table at all?"),
    "not-gzip": (b"\x1f\x8bnot really", "is not a whole gzip file"),
    "twice": (TIRESIAS + 2 * "0,1,0,606,vgg19,164,30\n", "line 3: job '0' stands twice"),
    "nameless": (TIRESIAS + ",1,0,606,vgg19,164,30\n", "line 2: has no name"),
    "past-deadline": (ELASTICFLOW + "0,100,10,m,50,1,1,5\n", "line 2: ddl '50' is not after submit_time '100'"),
    "chronus-type": (
        CHRONUS + "1,a,1,1,1,m,1,1,9,1,0,hard\n",
        "line 2: job_type must be strict, soft or best (got 'hard')",
    ),
    "chronus-list": (
        CHRONUS + "1,a,1,1,1,m,1,1,x-9,1,0,soft\n",
        "line 2: expect_time_list must be a whole number of at least 0 (got 'x')",
    ),
    "nodes": ("sn,cpu_milli,memory_mib,gpu,model\nn0,1,1,1,\n", "is a table of nodes; give it as --cluster"),
    "field-too-long": (PHILLY + "x" * 200_000 + ",5,1,1,a\n", "line 2: is no row of a table: field larger than"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_logs(tmp_path, name):
    text, why = BAD[name]
    with pytest.raises(BadInput) as bad:
        read(tmp_path, text)
    assert str(bad.value).startswith(f"{tmp_path / 'log.csv'}: {why}"), str(bad.value)


def test_truncated_gzip(tmp_path):
    whole = gzip.compress((PHILLY + "2017-10-09 07:00:00,5,1,1,a\n").encode())
    for broken in (whole[:-6], whole[:12], b"plain text"):
        with pytest.raises(BadInput, match="is not a whole gzip file"):
            read(tmp_path, broken, "log.csv.gz")
