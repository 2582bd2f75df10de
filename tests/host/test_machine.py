"""The machine as the engine sees it."""

from __future__ import annotations

import os

import pytest

from phalanx.control.spec.cluster import parse_nodes
from phalanx.control.spec.errors import BadInput
from phalanx.control.spec.spot import spot_of
from phalanx.control.spec.writing import node_tree
from phalanx.frontends.host.devices import NoDevices, open_devices
from phalanx.frontends.host.machine import (
    clean_model,
    clean_name,
    count_cpus_milli,
    describe_node,
    read_memory_bytes,
)
from phalanx.frontends.host.ports import Device
from phalanx.model.fleet import Fleet

GIB = 1 << 30


class Some:
    """Devices of any kind."""

    fake = False

    def __init__(self, *devices: Device) -> None:
        self._devices = devices

    def list(self):
        return self._devices

    def read(self):
        return {}


def test_resources_are_in_the_engines_units():
    node = describe_node(open_devices(8), name="box", cpus=32, memory_bytes=256 * GIB)
    assert node.name == "box"
    assert node.resources == {"gpu": 8000, "cpu": 32000, "memory": 256 * GIB}
    assert node.islands == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert node.labels["gpu-model"] == "fake-gpu"
    assert node.labels["gpu-islands"] == "0-3 4-7"
    assert Fleet([node], []).device_capacity.tolist() == [[1000] * 8]


def test_one_island_is_nothing_to_prefer():
    assert describe_node(open_devices(4)).islands == ()


def test_a_machine_without_gpus_still_counts_them():
    node = describe_node(NoDevices("none here"), cpus=2, memory_bytes=GIB)
    assert node.resources["gpu"] == 0
    assert "gpu-model" not in node.labels
    assert Fleet([node], []).kinds == ("gpu", "cpu", "memory")


def test_what_is_kept_for_the_system_is_not_offered():
    node = describe_node(open_devices(1), cpus=8, memory_bytes=16 * GIB, reserve={"cpu": 1500, "memory": GIB})
    assert node.resources == {"gpu": 1000, "cpu": 6500, "memory": 15 * GIB}


@pytest.mark.parametrize("reserve", [{"cpu": 8000}, {"memory": 99 * GIB}, {"gpu": 1000}])
def test_the_system_cannot_have_everything(reserve):
    with pytest.raises(BadInput, match="reserve"):
        describe_node(open_devices(1), cpus=8, memory_bytes=16 * GIB, reserve=reserve)


def test_several_models_are_never_taken_for_one():
    node = describe_node(
        Some(Device(0, "GPU-a", "NVIDIA H200", 140 * GIB, "x"), Device(1, "GPU-b", "NVIDIA L4", 23 * GIB, "y"))
    )
    assert node.labels["gpu-model"] == "mixed"
    assert node.labels["gpu-models"] == "h200:1,l4:1"
    assert node.labels["gpu-memory"] == "23Gi"


def test_a_described_machine_can_be_written_and_read_again():
    node = describe_node(open_devices(8), name="box")
    assert parse_nodes(spot_of(node_tree(node))) == [node]


@pytest.mark.parametrize(
    ("written", "name"),
    [("gpu-box.example.org", "gpu-box.example.org"), ("a[0-3],b", "a-0-3-b"), ("", "localhost"), ("x" * 99, "x" * 63),
     ("bad\nname\x1b[2J", "bad-name-2J")],
)  # fmt: skip
def test_a_hosts_name_becomes_a_nodes_name(written, name):
    assert clean_name(written) == name


@pytest.mark.parametrize(
    ("written", "model"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "a100-sxm4-40gb-mig-1g.5gb"),
        ("Tesla T4", "tesla-t4"),
        ("", "unknown"),
    ],
)
def test_a_model_becomes_a_label(written, model):
    assert clean_model(written) == model


# ---- what we may use, on made-up machines


@pytest.fixture
def machine(tmp_path):
    """A root directory with files as the kernel would show them."""

    def build(files: dict[str, str]):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return build


V2 = {
    "proc/self/cgroup": "0::/user.slice/app\n",
    "proc/self/mounts": "proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n",
    "proc/meminfo": "MemTotal:       67108864 kB\nMemFree: 1 kB\n",
}


def test_an_unlimited_machine_is_counted_whole(machine):
    root = machine(V2)
    assert count_cpus_milli(root) == len(os.sched_getaffinity(0)) * 1000
    assert read_memory_bytes(root) == 64 * GIB


def test_the_tightest_group_above_us_counts(machine):
    root = machine(
        V2
        | {
            "sys/fs/cgroup/user.slice/app/cpu.max": "max 100000\n",
            "sys/fs/cgroup/user.slice/cpu.max": "50000 100000\n",
            "sys/fs/cgroup/user.slice/app/memory.max": f"{32 * GIB}\n",
            "sys/fs/cgroup/user.slice/memory.max": f"{8 * GIB}\n",
        }
    )
    assert count_cpus_milli(root) == 500
    assert read_memory_bytes(root) == 8 * GIB


def test_version_1_groups_are_understood_also_from_inside_a_container(machine):
    root = machine(
        {
            "proc/self/cgroup": "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n0::/\n",
            "proc/self/mounts": "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n"
            "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n",
            "proc/meminfo": V2["proc/meminfo"],
            # the host's path is not there: our group is at the top
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "25000\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{4 * GIB}\n",
        }
    )
    assert count_cpus_milli(root) == 250
    assert read_memory_bytes(root) == 4 * GIB


def test_no_limit_is_written_as_a_huge_number_or_minus_one_in_version_1(machine):
    root = machine(
        {
            "proc/self/cgroup": "4:memory:/\n3:cpu:/\n",
            "proc/self/mounts": "c /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\nc /sys/fs/cgroup/memory cgroup rw,memory 0 0\n",
            "proc/meminfo": V2["proc/meminfo"],
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        }
    )
    assert count_cpus_milli(root) == len(os.sched_getaffinity(0)) * 1000
    assert read_memory_bytes(root) == 64 * GIB


def test_affinity_counts(monkeypatch, machine):
    root = machine(V2)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 7})
    assert count_cpus_milli(root) == 3000
