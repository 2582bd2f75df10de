"""`phalanx nodes`: the GPUs of the machine, and who has each of them."""

from __future__ import annotations

from typing import Any, Final

import click

from phalanx.cli.host.listing import Column, Row, choose_columns, columns_option, output_option, print_rows
from phalanx.cli.host.talking import talking
from phalanx.cli.host.text import amounts, clean, gibibytes

_USUAL: Final = ("gpu", "model", "memory", "state", "job", "rank", "user")
_WIDE: Final = (
    "node",
    "gpu",
    "uuid",
    "model",
    "memory",
    "island",
    "state",
    "job",
    "rank",
    "user",
    "pids",
    "util",
    "used",
)


@click.command()
@output_option()
@columns_option
def nodes(output: str, columns: str | None, no_headers: bool) -> None:
    """Show the GPUs of this machine and who has each of them.

    A GPU on which a process runs that is no job's is the `stranger` state: busy
    until that process is gone, and named.

    \b
    phalanx nodes
    """
    with talking() as daemon:
        chosen = choose_columns(columns, COLUMNS, _USUAL if output == "table" else _WIDE)
        found = daemon.get("/v1/nodes")["nodes"]
    if output in ("json", "jsonl"):
        print_rows(found, chosen, output)
        return
    rows = device_rows(found)
    if output != "csv":
        for node in found:
            click.echo(_title(node))
    print_rows(
        rows,
        chosen,
        output,
        headers=not no_headers,
        none="no GPUs; phalanx down && phalanx up --fake-gpus 8 makes some up",
    )


def device_rows(found: list[Row]) -> list[Row]:
    """One row a device with the node it is in, and of one that is shared a row for each who has a part of it."""
    return [row for node in found for device in node["devices"] for row in _split({**device, "node": node["name"]})]


def _split(device: Row) -> list[Row]:
    uses = device.get("uses") or []
    if len(uses) < 2:
        return [device]
    # What is read of the device as a whole stays in each row: a program takes any of them for it.
    return [
        {**device, **{key: use.get(key) for key in ("job", "rank", "user", "share")}, "pids": _known([use.get("pid")])}
        for use in uses
    ]


def _known(pids: list[int | None]) -> list[int]:
    return [pid for pid in pids if pid is not None]


def _title(node: Row) -> str:
    words = [clean(node["name"]), *([] if node.get("open", True) else ["closed"]), amounts(node["resources"])]
    return "  ".join([*words, f"free {amounts(node['free'])}", f"containment {clean(node['containment'])}"])


def _holder(row: Row) -> str:
    user = clean(row.get("user") or "-")
    pids = row.get("pids") or []
    return f"{user} (pid {', '.join(map(str, pids[:3]))})" if row["state"] == "stranger" and pids else user


def _or_dash(key: str, *, right: bool = False) -> Column:
    return Column(key, lambda row: clean(row[key]) if row.get(key) is not None else "-", right=right)


def _job(row: Row) -> str:
    """Who has it, and of one that is shared how much."""
    part = f" ({row['share']:g})" if row.get("share") is not None else ""
    return "-" if row.get("job") is None else f"{row['job']}{part}"


def _share(row: dict[str, Any]) -> str:
    used = row.get("utilization")
    return "-" if used is None else f"{used:.0%}" if used <= 1 else f"{used:.0f}%"


COLUMNS: Final = (
    _or_dash("node"),
    Column("gpu", lambda row: str(row["index"]), right=True, plain=lambda row: row["index"]),
    _or_dash("uuid"),
    _or_dash("model"),
    Column(
        "memory", lambda row: gibibytes(row.get("memory_bytes")), right=True, plain=lambda row: row.get("memory_bytes")
    ),
    _or_dash("island"),
    _or_dash("state"),
    Column("job", _job, right=True, plain=lambda row: row.get("job")),
    _or_dash("rank", right=True),
    Column("user", _holder, plain=lambda row: row.get("user")),
    Column(
        "pids",
        lambda row: " ".join(map(str, row.get("pids") or ())) or "-",
        plain=lambda row: " ".join(map(str, row.get("pids") or ())),
    ),
    Column("util", _share, right=True, plain=lambda row: row.get("utilization")),
    Column(
        "used",
        lambda row: gibibytes(row.get("memory_used_bytes")),
        right=True,
        plain=lambda row: row.get("memory_used_bytes"),
    ),
)
