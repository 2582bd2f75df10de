"""`phalanx up`, `down` and `status`: the daemon itself."""

from __future__ import annotations

import contextlib
import os
import shlex
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from phalanx.cli.host.checking_settings import read_settings
from phalanx.cli.host.completing import complete_policy
from phalanx.cli.host.listing import dump, output_option
from phalanx.cli.host.talking import HostFailure, failing, note, talking
from phalanx.cli.host.text import clean, span
from phalanx.client.daemon import Daemon, check_version, open_daemon
from phalanx.client.daemon_errors import ClientError, RefusedError, UnreachableError, UsageError
from phalanx.client.daemon_places import Place, answers, find_place, find_state, read_place

Status = dict[str, Any]

_NO_GPUS: Final = "there are no GPUs here; to try it with made-up ones: phalanx down && phalanx up --fake-gpus 8"


class Flags(NamedTuple):
    """What was said of the daemon to be."""

    fake_gpus: int | None
    real_gpus: bool
    policy: str | None
    tcp: str | None

    def words(self) -> list[str]:
        """The same, to be typed again."""
        said = (("--fake-gpus", self.fake_gpus), ("--policy", self.policy), ("--tcp", self.tcp))
        found = [word for name, value in said if value is not None for word in (name, str(value))]
        return [*found, *(["--real-gpus"] if self.real_gpus else [])]


@click.command()
@click.option("--fake-gpus", type=click.IntRange(0, 4096), metavar="N", help="Make up so many GPUs; remembered.")
@click.option("--real-gpus", is_flag=True, help="The machine's own again.")
@click.option("--policy", help="Another policy than the settings name.", shell_complete=complete_policy)
@click.option("--tcp", metavar="HOST:PORT", help="Listen on loopback too, with a token.")
@click.option("--foreground", is_flag=True, help="Stay in this terminal; Ctrl-C stops it, jobs go on.")
@output_option("table", "json")
def up(
    fake_gpus: int | None, real_gpus: bool, policy: str | None, tcp: str | None, foreground: bool, output: str
) -> None:
    """Start the daemon of this user; the first submit does that by itself.

    \b
    phalanx up --fake-gpus 8
    """
    state = find_state()
    if fake_gpus is not None and real_gpus:
        why = f"--fake-gpus {fake_gpus} and --real-gpus cannot both be meant"
        raise HostFailure(UsageError(why, f"phalanx up --fake-gpus {fake_gpus}, or phalanx up --real-gpus"))
    flags = Flags(fake_gpus, real_gpus, policy, tcp)
    place = read_place_or_fail(state)
    if policy is not None or tcp is not None:
        # Before anything is said about a daemon that runs: a hint to stop it must not leave nobody running.
        with failing():
            read_settings(state, {"policy": policy, "tcp": tcp})
    if answers(place.socket):
        with failing():
            check_version(place)
        _tell_running(flags, output)
        return
    with failing():
        from phalanx.client.daemon_starting import command_of, prepare_state, start_daemon

        if foreground:
            prepare_state(state)
            command = command_of(state, [*flags.words(), "--foreground"])
            os.execv(command[0], command)  # noqa: S606 - the daemon takes this process's place
        start_daemon(state, flags.words())
        status = _read_own()
    _tell(status, output, "up")


def _read_own() -> Status:
    """The status of the user's own daemon, even where the machine has one."""
    from phalanx.client.connection import Connection

    place = read_place(find_state())
    with closing(Daemon(place, Connection(place.socket))) as daemon:
        return dict(daemon.get("/v1/status"))


def read_place_or_fail(state: Path) -> Place:
    """What a state directory says, or the end of the command."""
    with failing():
        return read_place(state)


def _tell_running(flags: Flags, output: str) -> None:
    with failing():
        status = _read_own()
    other = _differs(status, flags)
    if other or flags.tcp is not None:
        why = f"a daemon runs already{', ' + other if other else ''}; options count when it starts"
        hint = f"phalanx down && phalanx up {shlex.join(flags.words())}; running jobs go on"
        raise HostFailure(ClientError(why, hint))
    _tell(status, output, "already up")


def _differs(status: Status, flags: Flags) -> str:
    gpus, fake, policy = status["gpus"]["total"], bool(status.get("fake")), flags.policy
    if (flags.fake_gpus is not None and (not fake or gpus != flags.fake_gpus)) or (flags.real_gpus and fake):
        return f"with {gpus:g} {'fake' if fake else 'real'} GPUs"
    if policy is not None and status.get("policy") != policy:
        return f"with policy {clean(status.get('policy'))}"
    return ""


@click.command()
@output_option("table", "json")
def down(output: str) -> None:
    """Stop the daemon; running jobs go on, and the next daemon finds them again.

    \b
    phalanx down && phalanx up        # after an upgrade
    """
    with failing():
        place = find_place()
        if not answers(place.socket):
            _tell_down(output, was_up=False, waiting=0)
            return
        daemon = open_daemon(any_version=True)
        waiting = 0
        try:
            with contextlib.suppress(ClientError, KeyError, TypeError):  # it may be too ill to tell
                waiting = int(daemon.get("/v1/status")["jobs"].get("pending", 0))
            daemon.post("/v1/down")
        except RefusedError:
            raise
        except UnreachableError:
            pass  # it was quicker than its answer
        finally:
            daemon.close()
        from phalanx.client.daemon_starting import wait_until_gone

        if not wait_until_gone(place):
            raise ClientError(
                f"the daemon (pid {place.pid}) was told to stop and is still there",
                f"see what it is doing: tail {place.state / 'daemon.log'}",
            )
    _tell_down(output, was_up=True, waiting=waiting)


def _tell_down(output: str, *, was_up: bool, waiting: int) -> None:
    if output == "json":
        dump({"was_up": was_up, "pending": waiting})
        return
    if waiting:
        jobs = "1 job waits" if waiting == 1 else f"{waiting:,} jobs wait"
        note(f"{jobs}, and nothing starts until the daemon is up again: phalanx up")
    click.echo("down; running jobs go on" if was_up else "no daemon is running")


@click.command()
@output_option("table", "json")
def status(output: str) -> None:
    """Say whether the daemon runs, and how; exit code 5 if it does not.

    \b
    phalanx status -o json
    """
    with talking(any_version=True) as daemon:
        told = daemon.get("/v1/status")
        place = daemon.place
    _tell(told, output, "up")
    with failing():
        check_version(place)


def _tell(status: Status, output: str, word: str) -> None:
    gpus = status["gpus"]
    notes = [] if gpus["total"] else [_NO_GPUS]
    if output == "json":
        dump({**status, **({"warnings": notes} if notes else {})})
        return
    parts = [f"{number:g} {clean(name)}" for name, number in gpus.items() if name != "total" and number]
    kind = "fake GPUs" if status.get("fake") else "GPUs"
    click.echo(f"{word}: phalanx {clean(status['version'])}, pid {status['pid']}, for {span(status['uptime_s'])}")
    click.echo(f"  socket     {clean(status['socket'])}")
    click.echo(f"  GPUs       {gpus['total']:g} {kind}{': ' + ', '.join(parts) if parts else ''}")
    jobs = [f"{count} {clean(state)}" for state, count in (status.get("jobs") or {}).items() if count]
    click.echo(f"  jobs       {', '.join(jobs) or 'none'}")
    click.echo(
        f"  policy     {clean(status.get('policy'))}, for {_whom(status)}, containment {clean(status['containment'])}"
    )
    store = status.get("store") or {}
    if not store.get("ok", True):
        click.echo(f"  store      {click.style('broken', fg='red')}: {clean(store.get('problem'))}")
    for text in notes:
        note(text)


def _whom(status: Status) -> str:
    return "all users" if status.get("mode") == "system" else "one user"
