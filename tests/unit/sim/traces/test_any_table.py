"""Whatever bytes a log holds: a scenario, or one line that says what is wrong. Never a traceback."""

import gzip
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.control.spec.errors import BadInput
from phalanx.frontends.sim.traces.nodes import read_nodes
from phalanx.frontends.sim.traces.reading import read_any

LOGS = (
    "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:00:00,60,8,1,a\n2017-10-09 07:00:10,30,2,1,b\n",
    "job_id,user,num_gpu,submit_time,duration,expect_time_list,job_type\n7,vc_a,4,10,30,90-120,soft\n",
    "job_id,submit_time,ddl,num_gpu,duration,best_effort\n0,100,400,2,50,0\n",
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time,scheduled_time\na,1,1,1,460,T4,5,9,6\n",
    "name,time,application,num_replicas,batch_size\ncifar10-0,107,cifar10,6,2048\n",
    "LM (batch size 10)\tpython3 main.py\t--steps\t1\t300\t0.000000\t1\n",
    "name,submit_s,duration_s,members_min,members_max,sizes,gpu,priority,preemptible\nA,0,1.5,2,8,2 4 8,0.5,1,true\n",
    "; Version: 2\n1 0 -1 60 2 -1 -1 2 100 -1 1 1 1 -1 1 -1 -1 -1\n",
)
NODES = (
    'name,gpu,cpu,memory,level:rack,spare\n"a[0-3]",8,96,1Ti,r0,true\nb,4,,,,\n',
    "sn,cpu_milli,memory_mib,gpu,model\nn0,32000,1024,2,T4\n",
    "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n2,3,4,128,256\n",
)
PIECES = st.sampled_from(
    [
        b"",
        b",",
        b"\n",
        b"\r",
        b'"',
        b"\t",
        b"-",
        b"0",
        b"9" * 30,
        b"1e30",
        b"nan",
        b"\x00",
        b"\xff",
        b";",
        b"[0-9]",
        b" ",
    ]
)
EDITS = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 12), PIECES), max_size=4)


def change(text: str, edits) -> bytes:
    data = text.encode()
    for at, length, piece in edits:
        start = at % (len(data) + 1)
        data = data[:start] + piece + data[start + length :]
    return data


@pytest.mark.parametrize("text", LOGS)
@given(edits=EDITS, packed=st.booleans())
def test_any_log(text, edits, packed):
    data = change(text, edits)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "log.csv"
        file.write_bytes(gzip.compress(data) if packed else data)
        try:
            found = read_any(file, None, bare=True)
        except BadInput:
            return
    assert len(found.gangs) == len(found.true_runs) == len({gang.name for gang in found.gangs}) > 0
    assert all(truth.duration_us > 0 for truth in found.true_runs)
    assert all(0 <= gang.submit_us < 1 << 52 for gang in found.gangs)


@pytest.mark.parametrize("text", NODES)
@given(edits=EDITS)
def test_any_table_of_nodes(text, edits):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "nodes.csv"
        file.write_bytes(change(text, edits))
        try:
            found = read_nodes(file)
        except BadInput:
            return
    assert len({node.name for node in found.nodes}) == len(found.nodes) > 0
