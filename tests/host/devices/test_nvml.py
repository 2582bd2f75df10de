"""Real GPUs, with the driver's library replaced by one that a test can break."""

from __future__ import annotations

import inspect
import itertools
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from phalanx.frontends.host.devices import nvml as nvml_module
from phalanx.frontends.host.devices import open_devices
from phalanx.frontends.host.devices.nvml import open_nvml
from phalanx.frontends.host.devices.owners import UNKNOWN_USER, read_owner
from phalanx.frontends.host.ports import Device, DeviceReading, Use

GIB = 1 << 30
LOST, RESET, UNKNOWN, NOT_SUPPORTED, NO_PERMISSION = 15, 16, 999, 3, 4


def link(driver, *groups):
    for group in groups:
        driver.links |= {frozenset(pair) for pair in itertools.combinations(group, 2)}


def nobody(pid):
    return ("ada", "python") if pid == 100 else ("bob", "train")


# ---- what there is


def test_gpus_are_listed_with_uuid_model_memory_and_driver(make_driver, make_gpu):
    found = open_nvml(make_driver(make_gpu("GPU-a"), make_gpu("GPU-b", "NVIDIA A100-SXM4-80GB", 80 * GIB)))
    assert [(d.index, d.uuid, d.model, d.memory_bytes) for d in found.list()] == [
        (0, "GPU-a", "NVIDIA H200", 140 * GIB),
        (1, "GPU-b", "NVIDIA A100-SXM4-80GB", 80 * GIB),
    ]
    assert (found.fake, found.problem, found.driver) == (False, "", "580.65.06")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (12, "no NVIDIA driver"),
        (9, "modprobe nvidia"),
        (18, "restart the machine"),
        (4, "/dev/nvidiactl"),
        (999, "does not answer: code 999"),
    ],
)
def test_without_a_driver_the_inventory_is_empty_and_says_why(make_driver, make_gpu, code, words):
    driver = make_driver(make_gpu("GPU-a"))
    driver.init_error = code
    found = open_nvml(driver)
    assert list(found.list()) == []
    assert dict(found.read()) == {}
    assert words in found.problem


def test_a_missing_package_is_a_problem_and_no_crash(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "nvidia-ml-py" in open_devices(None).problem


def test_a_loaded_driver_without_gpus_is_let_go_again(make_driver):
    driver = make_driver()
    assert "knows no GPU" in open_nvml(driver).problem
    assert not driver.open


def test_slices_of_a_gpu_stand_in_its_place(make_driver, make_gpu):
    slices = [make_gpu(f"MIG-{n}", "NVIDIA A100 MIG 3g.20gb", 20 * GIB, utilization=None) for n in range(2)]
    driver = make_driver(make_gpu("GPU-whole"), make_gpu("GPU-cut", slices=[slices[0], None, slices[1]]))
    found = open_nvml(driver, who=nobody)
    assert [(d.uuid, d.island[:-1]) for d in found.list()] == [
        ("GPU-whole", "numa"),
        ("MIG-0", "mig"),
        ("MIG-1", "mig"),
    ]
    slices[1].compute = [(7, GIB)]
    assert found.read()[2] == DeviceReading((Use(7, "bob", GIB, "train"),), None, 0)


def test_a_gpu_in_mig_mode_without_slices_is_no_device(make_driver, make_gpu):
    found = open_nvml(make_driver(make_gpu("GPU-a"), make_gpu("GPU-cut", slices=[None, None])))
    assert [d.uuid for d in found.list()] == ["GPU-a"]
    assert "GPU 1 is in MIG mode and has no slices" in found.problem


def test_a_gpu_that_knows_no_mig_is_whole(make_driver, make_gpu):
    found = open_nvml(make_driver(make_gpu("GPU-a", "NVIDIA GeForce RTX 4090")))
    assert [d.uuid for d in found.list()] == ["GPU-a"]


def test_a_gpu_that_is_lost_at_the_start_does_not_hide_the_others(make_driver, make_gpu):
    found = open_nvml(make_driver(make_gpu("GPU-a"), make_gpu("GPU-b", error=LOST), make_gpu("GPU-c")))
    assert [(d.index, d.uuid) for d in found.list()] == [(0, "GPU-a"), (1, "GPU-c")]
    assert "GPU 1 does not answer" in found.problem


# ---- islands


def islands(found) -> dict[str, list[str]]:
    by_island: dict[str, list[str]] = {}
    for device in found.list():
        by_island.setdefault(device.island, []).append(device.uuid)
    return by_island


def test_bridged_pairs_are_islands_and_stand_together(make_driver, make_gpu):
    driver = make_driver(*(make_gpu(name) for name in "abcd"))
    link(driver, "ac", "bd")
    found = open_nvml(driver)
    assert islands(found) == {"nvlink0": ["a", "c"], "nvlink1": ["b", "d"]}
    assert [d.index for d in found.list()] == [0, 1, 2, 3]


def test_behind_switches_everybody_is_one_island(make_driver, make_gpu):
    driver = make_driver(*(make_gpu(str(n)) for n in range(8)))
    link(driver, "01234567")
    assert islands(open_nvml(driver)) == {"nvlink0": list("01234567")}


def test_a_cube_mesh_has_two_halves_though_all_is_linked(make_driver, make_gpu):
    driver = make_driver(*(make_gpu(str(n)) for n in range(8)))
    link(driver, "0123", "4567", "04", "15", "26", "37")
    assert islands(open_nvml(driver)) == {"nvlink0": list("0123"), "nvlink1": list("4567")}


def test_without_nvlink_the_bus_decides(make_driver, make_gpu):
    driver = make_driver(*(make_gpu(name) for name in "abcd"))
    driver.ancestors = {frozenset("ab"): 30, frozenset("cd"): 40}
    assert islands(open_nvml(driver)) == {"numa0": ["a", "b"], "numa1": ["c", "d"]}


def test_where_the_driver_knows_no_topology_the_kernel_does(make_driver, make_gpu, tmp_path):
    driver = make_driver(*(make_gpu(f"GPU-{n}", bus=f"00000000:{n}A:00.0") for n in range(4)))
    driver.ancestor_default = None
    for n in range(4):
        place = tmp_path / f"bus/pci/devices/0000:{n}a:00.0"
        place.mkdir(parents=True)
        (place / "numa_node").write_text(f"{1 - n % 2}\n")
    # The half at NUMA node 0 comes first, though its first GPU is the driver's second.
    assert islands(open_nvml(driver, sysfs=tmp_path)) == {"numa0": ["GPU-1", "GPU-3"], "numa1": ["GPU-0", "GPU-2"]}


# ---- who is on them


def test_processes_are_named_with_owner_once_each(make_driver, make_gpu):
    gpu = make_gpu("GPU-a", used=3 * GIB, utilization=87, compute=[(200, 2 * GIB), (100, None)], graphics=[(200, GIB)])
    reading = open_nvml(make_driver(gpu), who=nobody).read()[0]
    assert reading.uses == (Use(100, "ada", 0, "python"), Use(200, "bob", 2 * GIB, "train"))
    assert (reading.utilization, reading.memory_used_bytes, reading.present) == (0.87, 3 * GIB, True)


def test_the_owner_is_the_kernels_word():
    child = subprocess.Popen(["sleep", "60"])
    try:
        user, name = read_owner(child.pid)
    finally:
        child.kill()
        child.wait()
    assert (user, name) == (pwd.getpwuid(os.getuid()).pw_name, "sleep")
    assert read_owner(child.pid) == (UNKNOWN_USER, "")


def test_a_process_of_an_unseen_namespace_still_counts(make_driver, make_gpu):
    gpu = make_gpu("GPU-a", compute=[(0x7FFFFFF0, GIB)])
    assert open_nvml(make_driver(gpu)).read()[0].uses == (Use(0x7FFFFFF0, UNKNOWN_USER, GIB, ""),)


# ---- what goes wrong later


@pytest.mark.parametrize("code", [LOST, RESET, 28])
def test_a_gpu_that_falls_off_the_bus_takes_nobody_with_it(make_driver, make_gpu, code):
    gpus = [make_gpu("GPU-a"), make_gpu("GPU-b"), make_gpu("GPU-c", compute=[(5, GIB)])]
    found = open_nvml(make_driver(*gpus), who=nobody)
    gpus[1].error = code
    readings = found.read()
    assert [readings[n].present for n in range(3)] == [True, False, True]
    assert len(readings[2].uses) == 1
    assert [d.index for d in found.list()] == [0, 1, 2]
    gpus[1].error = None
    assert found.read()[1].present


def test_a_slice_that_was_cut_away_is_gone(make_driver, make_gpu):
    whole = make_gpu("GPU-a", slices=[make_gpu("MIG-0"), make_gpu("MIG-1")])
    driver = make_driver(whole)
    found = open_nvml(driver)
    driver.stale.add(id(found._handles[1]))
    whole.slices.pop()
    assert [reading.present for reading in found.read().values()] == [True, False]


def test_a_stale_handle_is_asked_for_anew(make_driver, make_gpu):
    driver = make_driver(make_gpu("GPU-a"))
    found = open_nvml(driver)
    driver.stale.add(id(found._handles[0]))
    assert found.read()[0].present


def test_a_gpu_that_answers_nonsense_is_left_out(make_driver, make_gpu):
    gpus = [make_gpu("GPU-a"), make_gpu("GPU-b")]
    found = open_nvml(make_driver(*gpus))
    gpus[0].error = UNKNOWN
    assert list(found.read()) == [1]


def test_a_driver_that_is_replaced_makes_all_unreadable_and_then_comes_back(make_driver, make_gpu):
    driver = make_driver(make_gpu("GPU-a"), make_gpu("GPU-b"))
    found = open_nvml(driver)
    driver.open, driver.init_error = False, 9
    assert found.read() == {}
    assert found.read() == {}
    driver.init_error = None
    assert [reading.present for reading in found.read().values()] == [True, True]
    assert driver.inits == 2


@pytest.mark.parametrize("code", [NOT_SUPPORTED, NO_PERMISSION])
def test_a_driver_that_never_lists_processes_leaves_memory_as_the_witness(make_driver, make_gpu, code):
    found = open_nvml(make_driver(make_gpu("GPU-a", used=9 * GIB, processes_error=code)))
    assert found.read()[0] == DeviceReading((), 0.0, 9 * GIB)


def test_a_driver_that_tells_nothing_at_all_is_no_witness(make_driver, make_gpu):
    assert open_nvml(make_driver(make_gpu("GPU-a", processes_error=3, memory_error=3))).read() == {}


def test_what_the_driver_keeps_for_itself_is_not_in_use(make_driver, make_gpu):
    assert open_nvml(make_driver(make_gpu("GPU-a"))).read()[0].memory_used_bytes == 0


def test_an_old_driver_without_the_second_version_of_memory_is_understood(make_driver, make_gpu):
    driver = make_driver(make_gpu("GPU-a"))
    second = driver.nvmlDeviceGetMemoryInfo

    def first_only(handle, version=None):
        if version:
            raise driver.NVMLError(13)
        return second(handle)

    driver.nvmlDeviceGetMemoryInfo = first_only
    found = open_nvml(driver)
    assert found.list()[0].memory_bytes == 140 * GIB
    assert found.read()[0].memory_used_bytes == GIB // 2


def test_closing_lets_the_driver_go(make_driver, make_gpu):
    driver = make_driver(make_gpu("GPU-a"))
    open_nvml(driver).close()
    assert not driver.open


# ---- the double is like the real thing


def test_the_double_has_the_names_arguments_and_numbers_of_the_real_library(make_driver):
    pynvml = pytest.importorskip("pynvml")
    for name, value in inspect.getmembers(make_driver):
        if name.startswith("NVML_") or name == "nvmlMemory_v2":
            assert getattr(pynvml, name) == value
        elif name.startswith("nvml"):
            ours = list(inspect.signature(value).parameters)[1:]
            assert list(inspect.signature(getattr(pynvml, name)).parameters) == ours, name


def test_the_numbers_of_errors_are_those_of_the_real_library():
    pynvml = pytest.importorskip("pynvml")
    for ours, theirs in {
        "_UNINITIALIZED": "UNINITIALIZED",
        "_INVALID_ARGUMENT": "INVALID_ARGUMENT",
        "_NOT_SUPPORTED": "NOT_SUPPORTED",
        "_NO_PERMISSION": "NO_PERMISSION",
        "_NOT_FOUND": "NOT_FOUND",
        "_DRIVER_NOT_LOADED": "DRIVER_NOT_LOADED",
        "_LIBRARY_NOT_FOUND": "LIBRARY_NOT_FOUND",
        "_FUNCTION_NOT_FOUND": "FUNCTION_NOT_FOUND",
        "_GPU_IS_LOST": "GPU_IS_LOST",
        "_RESET_REQUIRED": "RESET_REQUIRED",
        "_MISMATCH": "LIB_RM_VERSION_MISMATCH",
        "_VERSION_MISMATCH": "ARGUMENT_VERSION_MISMATCH",
        "_GPU_NOT_FOUND": "GPU_NOT_FOUND",
    }.items():
        assert getattr(nvml_module, ours) == getattr(pynvml, f"NVML_ERROR_{theirs}"), theirs


def test_nothing_of_the_library_is_used_that_the_double_lacks(make_driver):
    import re

    used = set(re.findall(r"nvml\.((?:nvml|NVML)\w+)", Path(nvml_module.__file__).read_text()))
    assert used <= set(dir(make_driver)), used - set(dir(make_driver))


def test_the_library_is_imported_only_when_gpus_are_looked_for():
    code = "import sys, phalanx.frontends.host.devices; sys.exit('pynvml' in sys.modules or 'psutil' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_device_is_plain_data(make_driver, make_gpu):
    assert open_nvml(make_driver(make_gpu("GPU-a"))).list()[0] == Device(0, "GPU-a", "NVIDIA H200", 140 * GIB, "numa0")
