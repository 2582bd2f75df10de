"""`phalanx nodes`: the GPUs of the machine, and who has each of them."""

from __future__ import annotations

from typing import Any, Final

import click

from phalanx.cli.host.listing import (
    Column,
    Row,
    choose_columns,
    columns_option,
    output_option,
    print_rows,
    print_wrapped,
)
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
            print_wrapped([_title(node)], 2)
    print_rows(
        rows,
        chosen,
        output,
        headers=not no_headers,
        none="no GPUs; phalanx down && phalanx up --fake-gpus 8 makes some up",
        fits=output == "table",
    )


def device_rows(found: list[Row]) -> list[Row]:
    """One row a device, with the node it is in."""
    return [{**device, "node": node["name"]} for node in found for device in node["devices"]]


def _title(node: Row) -> str:
    words = [clean(node["name"]), *([] if node.get("open", True) else ["closed"]), amounts(node["resources"])]
    return "  ".join([*words, f"free {amounts(node['free'])}", f"containment {clean(node['containment'])}"])


def _holder(row: Row) -> str:
    user = clean(row.get("user") or "-")
    pids = row.get("pids") or []
    return f"{user} (pid {', '.join(map(str, pids[:3]))})" if row["state"] == "stranger" and pids else user


def _or_dash(key: str, *, right: bool = False) -> Column:
    return Column(key, lambda row: clean(row[key]) if row.get(key) is not None else "-", right=right)


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
    _or_dash("job", right=True),
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
