"""`phalanx token`: who may speak on the loopback port, where the kernel does not say who it is."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from phalanx.cli.host.listing import dump, output_option
from phalanx.cli.host.talking import HostFailure, failing
from phalanx.client.daemon_errors import ClientError
from phalanx.client.daemon_places import find_place
from phalanx.client.times import length_of, seconds_of

if TYPE_CHECKING:
    from phalanx.frontends.host.api.tokens import Token


def _file() -> Path:
    place = find_place()
    if place.system and os.geteuid() != 0:
        why = "tokens of the machine's daemon are its administrator's"
        raise HostFailure(ClientError(why, "sudo phalanx token issue --uid 1000"))
    return place.state / "tokens.json"


@contextmanager
def _tokens(command: str) -> Iterator[Path]:
    """The file of tokens, for the length of a command; what is wrong with it is told."""
    from phalanx.frontends.host.api.tokens import TokenFileError

    file = _file()
    try:
        yield file
    except TokenFileError as bad:
        raise HostFailure(ClientError(str(bad), "phalanx doctor")) from None
    except PermissionError:
        named = f" PHALANX_HOME={shlex.quote(str(file.parent))}" if os.environ.get("PHALANX_HOME") else ""
        hint = f"ask who runs that daemon: sudo{named} phalanx token {command}"
        raise HostFailure(ClientError(f"the tokens in {file.parent} are not yours", hint)) from None
    except OSError as bad:
        raise HostFailure(ClientError(f"{file} cannot be used: {bad.strerror or bad}", "phalanx doctor")) from None


@click.group()
def token() -> None:
    """Issue, list and revoke tokens for a daemon with --tcp.

    \b
    phalanx token issue --scope read
    curl -H "Authorization: Bearer phx_..." http://127.0.0.1:8470/v1/jobs
    """


@token.command()
@click.option("--scope", type=click.Choice(["read", "submit", "admin"]), default="read", show_default=True)
@click.option("--uid", type=click.IntRange(min=0), help="Whose; else yours.")
@click.option("--life", default="30d", show_default=True, help="How long it lives: 8h, 30d.")
@click.option("--note", default="", help="What it is for.")
@output_option("table", "json")
def issue(scope: str, uid: int | None, life: str, note: str, output: str) -> None:
    """Make a token and print it, once."""
    from phalanx.frontends.host.api.tokens import issue_token

    with failing():
        seconds = seconds_of(length_of(life, "--life"), "--life")
    owner = os.getuid() if uid is None else uid
    with _tokens(f"issue --uid {owner} --scope {scope}") as file:
        text, made = issue_token(
            file, uid=owner, scope=cast("Any", scope), wall_s=time.time(), life_s=seconds, note=note
        )
    if output == "json":
        dump({"token": text, **_row(made)})
        return
    click.echo(text)
    click.echo(f"token {made.id}, {scope}; it is not shown again", err=True)


def _row(each: Token) -> dict[str, Any]:
    until = datetime.fromtimestamp(each.expires_s, UTC).astimezone().isoformat(timespec="seconds")
    return {"id": each.id, "uid": each.uid, "scope": each.scope, "expires": until, "note": each.note}


@token.command("list")
@output_option("table", "json")
def list_(output: str) -> None:
    """List tokens, without what could be presented."""
    from phalanx.frontends.host.api.tokens import list_tokens

    with _tokens("list") as file:
        found = list_tokens(file)
    if output == "json":
        dump([_row(each) for each in found])
        return
    for each in found:
        until = datetime.fromtimestamp(each.expires_s, UTC).astimezone().isoformat(timespec="minutes")
        click.echo(f"{each.id}  uid {each.uid}  {each.scope:<6}  until {until}  {each.note}".rstrip())


@token.command()
@click.argument("identifier")
@output_option("table", "json")
def revoke(identifier: str, output: str) -> None:
    """Let a token die at once."""
    from phalanx.frontends.host.api.tokens import revoke_token

    with _tokens(f"revoke {shlex.quote(identifier)}") as file:
        known = revoke_token(file, identifier)
    if not known:
        raise HostFailure(ClientError(f"there is no token {identifier}", "phalanx token list", code="not_found"))
    if output == "json":
        dump({"id": identifier, "revoked": True})
        return
    click.echo(f"revoked {identifier}")
