"""Show something again and again: in place on a terminal, as it changes elsewhere."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import time
from collections.abc import Callable

import click


def again(show: Callable[[], None], pause_s: float) -> None:
    """Until Ctrl-C. Each picture is drawn whole, so that the terminal does not flicker."""
    there = sys.stdout.isatty()
    context = click.get_current_context()
    if there and context.color is None:
        context.color = True  # the picture is made in memory, which is no terminal
    last = ""
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            picture = io.StringIO()
            with contextlib.redirect_stdout(picture):
                show()
            text = picture.getvalue()
            if there:
                rows = os.get_terminal_size().lines - 1
                click.echo("\x1b[H\x1b[2J" + "\n".join(text.split("\n")[:rows]), nl=False, color=True)
            elif text != last:
                click.echo(text, nl=False)
            last = text
            time.sleep(pause_s)
