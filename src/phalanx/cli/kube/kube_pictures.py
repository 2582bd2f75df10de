"""`kubectl phalanx gantt` and `dump`: the cluster as a picture, and as a file for `phalanx what-if`."""

from __future__ import annotations

from typing import Any, Final

import click

from phalanx.cli.host.gantt import choose_width, draw_rows
from phalanx.cli.host.listing import dump as print_json
from phalanx.cli.host.listing import output_option
from phalanx.cli.host.text import clean, gpus, instant, shorten
from phalanx.cli.kube.kube_asking import WhichScheduler, asking, place_options

_ROWS_MOST: Final = 40
_NAME_CHARS: Final = 32


@click.command()
@place_options
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Of all namespaces.")
@output_option("table", "json")
def gantt(
    place: WhichScheduler,
    everywhere: bool,
    output: str,
) -> None:
    """Draw who runs and who is expected to start when: one row for each gang.

    \b
    kubectl phalanx gantt -A
    """
    with asking(place) as asker:
        told = asker.get("/v1/gantt")
    if asker.namespace is not None and not everywhere:
        mine = f"{asker.namespace}/"
        told = {**told, "bars": [bar for bar in told["bars"] if bar["gang"].startswith(mine)]}
    if output == "json":
        print_json(told)
        return
    for line in draw(told):
        click.echo(line)


def draw(told: dict[str, Any]) -> list[str]:
    """The picture as lines."""
    here = instant(told["now"])
    names = list(dict.fromkeys(bar["gang"] for bar in told["bars"]))
    if here is None or not names:
        return ["nothing runs, and nothing waits that is expected to start; -A looks at all namespaces"]
    shown = names[:_ROWS_MOST]
    bars = [
        {**bar, "job": shown.index(bar["gang"]) + 1, "name": bar["gang"], "user": gpus(bar["gpus"])}
        for bar in told["bars"]
        if bar["gang"] in shown
    ]
    rows = [(shorten(clean(name), _NAME_CHARS), [bar for bar in bars if bar["gang"] == name]) for name in shown]
    margin = max(len(name) for name, _ in rows)
    width, there = choose_width(margin + 2)
    more = len(names) - len(shown)
    lines = draw_rows(rows, bars, here, width, there)
    return [*lines, *([f"and {more} more gangs; -o json has all of them"] if more > 0 else [])]


@click.command()
@place_options
def dump(place: WhichScheduler) -> None:
    """Print what the scheduler sees: a state that phalanx what-if loads.

    Gangs of all namespaces are in it, and pods of others as room that is not there.

    \b
    kubectl phalanx dump > state.json
    phalanx what-if state.json --add-nodes 2x8
    """
    with asking(place) as asker:
        text = asker.raw("GET", "/v1/state").decode()
    click.echo(text, nl=False)
