"""What a member finds in its environment, for every shape of gang."""

from __future__ import annotations

import pytest

from phalanx.frontends.host.core.jobs import ArrayPlace, Job, Live, Member
from phalanx.frontends.host.core.member_environment import SharedEnvironment, clean, environment
from phalanx.model.gang import Gang, Role, Shape, Sizes

GANG = Gang("7", (Role("member", Sizes((2,)), Shape((("gpu", 1000),))),))


def make(
    devices: list[tuple[tuple[int, int], ...]], uuids: list[str] | None = None, *, base=None, **job
) -> list[dict[str, str]]:
    members = {at: Member(at, "member", each, rank=at) for at, each in enumerate(devices)}
    live = Live(7, 3, members)
    owner = Job(7, 0, 0, "ada", "train", GANG, "starting", 0, 0.0, **job)
    setting = SharedEnvironment(uuids or [f"GPU-{at}" for at in range(8)], 29500, "/state/runs/7.3")
    found = {"HOME": "/u/ada", "RANK": "99", **(base or {})}
    return [environment(found, owner, live, member, setting) for member in members.values()]


def test_single_devices_are_seen_by_the_whole_gang_in_order_of_rank():
    first, second = make([((2, 1000),), ((5, 1000),)])
    assert first["CUDA_VISIBLE_DEVICES"] == second["CUDA_VISIBLE_DEVICES"] == "GPU-2,GPU-5"
    assert [
        (e["RANK"], e["LOCAL_RANK"], e["WORLD_SIZE"], e["LOCAL_WORLD_SIZE"], e["GROUP_RANK"]) for e in (first, second)
    ] == [
        ("0", "0", "2", "2", "0"),
        ("1", "1", "2", "2", "0"),
    ]
    assert second["PHALANX_DEVICES"] == "GPU-5"


def test_a_member_with_several_devices_sees_its_own_and_is_a_node_to_its_launcher():
    first, second = make([((0, 1000), (1, 1000)), ((2, 1000), (3, 1000))])
    assert (first["CUDA_VISIBLE_DEVICES"], second["CUDA_VISIBLE_DEVICES"]) == ("GPU-0,GPU-1", "GPU-2,GPU-3")
    assert (second["LOCAL_RANK"], second["LOCAL_WORLD_SIZE"], second["GROUP_RANK"]) == ("0", "1", "1")
    assert (second["PET_NNODES"], second["PET_NODE_RANK"], second["PET_NPROC_PER_NODE"]) == ("2", "1", "2")


@pytest.mark.parametrize(
    ("devices", "uuids"),
    [([((0, 500),), ((0, 500),)], None), ([((0, 1000),), ((1, 1000),)], ["MIG-a", "MIG-b"])],
    ids=["a share", "a slice"],
)
def test_of_parts_of_devices_a_member_sees_its_own(devices, uuids):
    found = make(devices, uuids)
    assert all("," not in each["CUDA_VISIBLE_DEVICES"] and each["LOCAL_RANK"] == "0" for each in found)


def test_torchrun_finds_its_rendezvous():
    (only,) = make([((0, 1000), (1, 1000), (2, 1000), (3, 1000))])
    assert only["PET_NPROC_PER_NODE"] == "4"
    assert only["PET_RDZV_ENDPOINT"] == f"{only['MASTER_ADDR']}:{only['MASTER_PORT']}" == "127.0.0.1:29500"
    assert only["PET_RDZV_ID"] == "phalanx-7-3-1"


def test_what_a_member_is_comes_from_us_alone():
    env = clean(
        {
            "RANK": "9",
            "PET_NNODES": "8",
            "PHALANX_JOB": "1",
            "CUDA_VISIBLE_DEVICES": "0",
            "TORCHELASTIC_RUN_ID": "x",
            "A": "b",
        }
    )
    assert env == {"A": "b"}
    (first,) = make([((0, 1000),)])
    assert (first["RANK"], first["HOME"], first["PHALANX_JOB"], first["PHALANX_ATTEMPT"]) == (
        "0",
        "/u/ada",
        "7",
        "3",
    )


def test_an_element_of_an_array_knows_its_index():
    (only,) = make([((0, 1000),)], array=ArrayPlace("sweep", 4, 2))
    assert only["PHALANX_ARRAY_INDEX"] == "4"
    assert "PHALANX_ARRAY_INDEX" not in make([((0, 1000),)])[0]


def test_what_python_prints_is_in_the_log_at_once_unless_somebody_wants_it_otherwise():
    assert make([((0, 1000),)])[0]["PYTHONUNBUFFERED"] == "1"
    for said in ("", "0"):
        assert make([((0, 1000),)], base={"PYTHONUNBUFFERED": said})[0]["PYTHONUNBUFFERED"] == said
