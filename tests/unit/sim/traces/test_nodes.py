"""Tables of nodes for `--cluster`."""

from pathlib import Path

import pytest

from phalanx.control.spec.errors import BadInput
from phalanx.frontends.sim.traces.nodes import read_nodes
from phalanx.frontends.sim.traces.reading import Reading, find_cluster, read_any

GIB = 1 << 30


def write(tmp_path: Path, text: str, name: str = "nodes.csv") -> Path:
    file = tmp_path / name
    file.write_text(text)
    return file


def test_the_plain_table(tmp_path):
    found = read_nodes(
        write(
            tmp_path,
            "name,gpu,cpu,memory,level:block,level:rack,gpu-model,taints,resource:rdma,spare\n"
            'a0,8,96,1Ti,b0,r0,h200,spot old,2,\n"c[0-1,7]",4,,,,,,,,true\n',
        )
    )
    assert found.levels == ("block", "rack")
    assert [node.name for node in found.nodes] == ["a0", "c0", "c1", "c7"]
    a0, c0 = found.nodes[0], found.nodes[1]
    assert a0.resources == {"gpu": 8000, "cpu": 96_000, "memory": 1024 * GIB, "rdma": 2000}
    assert a0.labels == {"block": "b0", "rack": "r0", "gpu-model": "h200"}
    assert (a0.taints, a0.spare) == (("old", "spot"), False)
    assert (c0.resources, c0.labels, c0.taints, c0.spare) == ({"gpu": 4000}, {}, (), True)


def test_openb(tmp_path):
    found = read_nodes(write(tmp_path, "sn,cpu_milli,memory_mib,gpu,model\nn-0,32000,1024,2,T4\nn-1,1000,1,0,\n"))
    assert found.nodes[0].resources == {"gpu": 2000, "cpu": 32_000, "memory": GIB}
    assert [node.labels for node in found.nodes] == [{"gpu-model": "T4"}, {}]


def test_tiresias(tmp_path):
    header = "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n"
    found = read_nodes(write(tmp_path, header + "2,3,4,128,256"))
    assert [(node.name, node.labels["switch"]) for node in found.nodes] == [
        *(("n0", "s0"), ("n1", "s0"), ("n2", "s0"), ("n3", "s1"), ("n4", "s1"), ("n5", "s1")),
    ]
    assert found.nodes[0].resources == {"gpu": 4000, "cpu": 128_000, "memory": 256 * GIB}
    assert found.levels == ("switch",)


def test_a_spot_cluster(tmp_path):
    found = read_nodes(write(tmp_path, "gpu_model,gpu_capacity_num,cpu_num,node_name\nA10,1,128,7\n"))
    assert [(node.name, node.labels) for node in found.nodes] == [("n7", {"gpu-model": "A10"})]


BAD = {
    "empty": ("", "nodes.csv: is empty; a table of nodes has a header"),
    "header-only": ("name,gpu\n", "nodes.csv: holds no node below its header"),
    "no-name": ("node,gpu\n", "nodes.csv: line 1: has no column name; it has node, gpu"),
    "name-empty": ("name,gpu\n,1\n", "nodes.csv: line 2: name is empty"),
    "name-list": ('name,gpu\n"a[3-0]",1\n', "nodes.csv: line 2: name has a reversed range"),
    "text": ("name,gpu\na,1\nb,many\n", "nodes.csv: line 3: gpu is no amount"),
    "negative": ("name,gpu\na,-1\n", "nodes.csv: line 2: gpu must not be negative"),
    "half": ("name,gpu\na,1.5\n", "nodes.csv: line 2: gpu of a node must be whole"),
    "huge": ("name,gpu\na,1e30\n", "nodes.csv: line 2: gpu is too large"),
    "too-many": ("name,gpu\na,20000\n", "nodes.csv: line 2: gpu is more than 10,000 on one node"),
    "twice": ('name,gpu\na0,1\n"a[0-2]",1\n', "nodes.csv: line 3: there is already a node 'a0'; names are unique"),
    "nothing": ("name,rack\na,r0\n", "nodes.csv: gives no node anything; add a column such as gpu"),
    "short": ("name,gpu\na\n", "nodes.csv: line 2: has 1 fields, and the header has 2"),
    "spare": ("name,gpu,spare\na,1,perhaps\n", "nodes.csv: line 2: spare must be true or false"),
    "level": ("name,gpu,level:node\na,1,x\n", "nodes.csv: line 1: names the level 'node'; node is implied"),
    "switches": (
        "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n0,3,4,1,1\n",
        "nodes.csv: line 2: must have 1 to 200,000 nodes",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_tables(tmp_path, name):
    text, why = BAD[name]
    with pytest.raises(BadInput) as bad:
        read_nodes(write(tmp_path, text))
    assert why in str(bad.value)


def test_a_table_stands_in_for_the_cluster_of_a_scenario(tmp_path):
    scenario = write(
        tmp_path,
        "cluster: {nodes: [{name: n0, resources: {gpu: 1}}]}\n"
        "gangs: [{name: A, members: 2, each: {gpu: 1}, duration: 60, topology: {require: rack}}]\n"
        "events: [{at: 5, fail: a1}]\n",
        "s.yaml",
    )
    nodes = write(tmp_path, 'name,gpu,level:rack\n"a[0-3]",2,r0\n')
    found = read_any(scenario, str(nodes))
    assert [node.name for node in found.nodes] == ["a0", "a1", "a2", "a3"]
    assert found.levels == ("rack",)
    with pytest.raises(BadInput, match=r"topology\.require names no topology level"):
        read_any(scenario, "4x2")


def test_a_grid_for_a_scenario_of_slots_has_slots(tmp_path):
    text = "gangs: [{name: A, members: 2, each: {slot: 1}, duration: 60}]\n"
    found = read_any(write(tmp_path, text, "s.yaml"), "2x3")
    assert [node.resources for node in found.nodes] == 2 * [{"slot": 3000}]


def test_a_log_on_a_table_of_nodes_that_lack_what_it_asks_for(tmp_path):
    log = write(tmp_path, "1 0 -1 60 2 -1 -1 2 100 -1 1 1 1 -1 1 -1 -1 -1\n", "log.swf")
    nodes = write(tmp_path, "name,gpu\na,2\n")
    with pytest.raises(BadInput, match=r"ask for slot, and no node of .*nodes.csv has any; add a column slot"):
        read_any(log, str(nodes))
    nodes.write_text("name,slot\na,2\n")
    assert read_any(log, str(nodes), Reading()).nodes[0].resources == {"slot": 2000}


def test_what_is_no_cluster(tmp_path):
    with pytest.raises(BadInput, match="'lots' is no cluster; write nodes x gpus per node"):
        find_cluster("lots", "gpu")
    with pytest.raises(BadInput, match=r"nowhere\.csv: cannot be read: No such file"):
        find_cluster("nowhere.csv", "gpu")
