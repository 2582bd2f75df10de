"""`phalanx wait`: until jobs have ended; ends with their exit code."""

from __future__ import annotations

import time
from typing import Final

import click

from phalanx.cli.host.following import PATIENCE_S
from phalanx.cli.host.listing import dump, output_option
from phalanx.cli.host.run import exit_code_of, tell_end
from phalanx.cli.host.talking import for_each, refs_argument, talking
from phalanx.cli.host.text import clean
from phalanx.client.daemon import job_path
from phalanx.client.times import seconds_of

_POLL_S: Final = 30.0
_TIMED_OUT: Final = 124
_INTERRUPTED: Final = 130


@click.command()
@refs_argument
@click.option("--timeout", metavar="LENGTH", help="Give up after so long, with exit code 124.")
@output_option("table", "json")
def wait(refs: tuple[str, ...], timeout: str | None, output: str) -> None:
    """Wait until jobs have ended; the exit code is that of the first one that failed.

    \b
    phalanx wait 12 && phalanx submit -g 1 -- python evaluate.py
    """
    with talking() as daemon:
        daemon.patience_s = PATIENCE_S
        until = None if timeout is None else time.monotonic() + seconds_of(timeout, "--timeout")
        # Names are looked up once: another job may get the name while we wait.
        ids = [
            str(number)
            for ref in refs
            for number in for_each(ref, lambda each: daemon.get(job_path(each))["job"]["id"])
        ]
        ended = []
        try:
            for number in ids:
                while True:
                    left = _POLL_S if until is None else max(0.0, min(_POLL_S, until - time.monotonic()))
                    told = daemon.get(job_path(number, "wait"), {"timeout_s": f"{left:.3f}"}, timeout_s=left + 60)
                    if told["ended"]:
                        break
                    if until is not None and time.monotonic() >= until:
                        click.echo(f"phalanx: {number} is {told['state']} after {timeout}", err=True)
                        raise SystemExit(_TIMED_OUT)
                ended.append(daemon.get(job_path(number))["job"])
        except KeyboardInterrupt:
            raise SystemExit(_INTERRUPTED) from None
        if output == "json":
            dump(ended if len(ended) > 1 else ended[0])
            codes = [exit_code_of(job) for job in ended]
        else:
            codes = [tell_end(daemon, job) for job in ended]
            for job in ended:
                if job["state"] == "completed":
                    click.echo(f"{job['id']} {clean(job['name'])} completed")
    raise SystemExit(next((code for code in codes if code), 0))
