"""The openb log as jobs that come and go."""

from pathlib import Path

import pytest

from phalanx.control.spec.errors import BadInput
from phalanx.frontends.sim.traces.reading import read_any

HEADER = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
)
NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,32000,1024,2,T4\n"


def read(tmp_path: Path, rows: str):
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "log.csv").write_text(HEADER + rows)
    return read_any(tmp_path / "log.csv", str(tmp_path / "nodes.csv"))


def test_shapes_times_and_models(tmp_path):
    found = read(
        tmp_path,
        "b,12000,16384,1,460,V100|T4,LS,Running,50,200,60\n"
        "a,6000,512,2,1000,,LS,Failed,10,90,10\n"
        "c,1000,512,0,0,,BE,Pending,5,90,\n",
    )
    assert [(gang.name, gang.submit_us // 10**6) for gang in found.gangs] == [("a", 10), ("b", 50)]
    assert [truth.duration_us // 10**6 for truth in found.true_runs] == [80, 140]
    assert found.dropped == 1, "who was never scheduled never ran"
    whole, part = (gang.roles[0].shape for gang in found.gangs)
    assert whole.need == (("cpu", 6000), ("gpu", 2000), ("memory", 512 << 20))
    assert part.amount("gpu") == 460
    assert part.select == (("gpu-model", ("T4", "V100")),)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("b,1,1,1,460,,LS,Running,50,200,300\n", "line 2: deletion_time '200' is before scheduled_time '300'"),
        ("b,1,1,3,460,,LS,Running,50,200,60\n", "line 2: num_gpu 3 of gpu_milli 460 each cannot be held"),
        ("b,1,one,1,460,,LS,Running,50,200,60\n", "line 2: memory_mib must be a whole number"),
        ("b,0,0,0,0,,LS,Running,50,200,60\n", "line 2: asks for nothing at all"),
        ("b,1,1,1,1,,LS,Running,50,200,\n", "line 2: holds no job that ran (1 left out)"),
        (2 * "b,1,1,1,1,,LS,Running,50,200,60\n", "line 3: job 'b' stands twice"),
    ],
)
def test_bad_rows(tmp_path, row, why):
    with pytest.raises(BadInput) as bad:
        read(tmp_path, row)
    assert str(bad.value).startswith(f"{tmp_path / 'log.csv'}: {why}")


def test_a_grid_has_no_cores(tmp_path):
    (tmp_path / "log.csv").write_text(HEADER + "a,6000,512,2,1000,,LS,Failed,10,90,10\n")
    with pytest.raises(BadInput, match="ask for cpu and memory, and no node of 4x8 has any; give a table of nodes"):
        read_any(tmp_path / "log.csv", "4x8")
