"""`phalanx config`: settings, and where each of them comes from."""

from __future__ import annotations

from typing import Final

import click

from phalanx.cli.host.checking_settings import read_settings
from phalanx.cli.host.listing import dump, output_option
from phalanx.cli.host.talking import HostFailure, failing, talking
from phalanx.cli.host.text import clean, table
from phalanx.client.daemon_places import find_state

_VALUE_CHARS: Final = 60  # all of it is in -o json


@click.group()
def config() -> None:
    """Settings of the daemon.

    Flags go before PHALANX_* variables, those before the project's, the user's and
    the machine's file.
    """


@config.command()
@click.option("--origin", is_flag=True, help="Also where each value comes from.")
@output_option("table", "json")
def show(origin: bool, output: str) -> None:
    """Print all settings.

    \b
    phalanx config show --origin
    """
    try:
        with talking() as daemon:
            values = daemon.get("/v1/config")["values"]
    except HostFailure as bad:
        if bad.code == "unreachable":
            with failing():
                read_settings(find_state())  # a daemon that could not start has nothing to do with the hint to start it
        raise
    if output == "json":
        dump(values)
        return
    rows = [[clean(each["key"]), _text(each["value"]), *([clean(each["origin"])] if origin else [])] for each in values]
    headers = ["KEY", "VALUE", *(["ORIGIN"] if origin else [])]
    for line in table(headers, rows):
        click.echo(line)


def _text(value: object) -> str:
    import json

    text = "-" if value is None else clean(value) if isinstance(value, str) else clean(json.dumps(value))
    return text if len(text) <= _VALUE_CHARS else f"{text[: _VALUE_CHARS - 1]}…"
