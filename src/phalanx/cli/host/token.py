"""`phalanx token`: who may speak on the loopback port, where the kernel does not say who it is."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from phalanx.cli.host.listing import dump, output_option
from phalanx.cli.host.talking import HostFailure, failing
from phalanx.client.daemon_errors import ClientError
from phalanx.client.daemon_places import find_place
from phalanx.client.times import seconds_of

if TYPE_CHECKING:
    from phalanx.frontends.host.api.tokens import Token


def _file() -> Path:
    place = find_place()
    if place.system and os.geteuid() != 0:
        why = "tokens of the machine's daemon are its administrator's"
        raise HostFailure(ClientError(why, "sudo phalanx token issue --uid 1000"))
    return place.state / "tokens.json"


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
    from phalanx.frontends.host.api.tokens import TokenFileError, issue_token

    with failing():
        seconds = seconds_of(life, "--life")
    owner = os.getuid() if uid is None else uid
    try:
        text, made = issue_token(
            _file(), uid=owner, scope=cast("Any", scope), wall_s=time.time(), life_s=seconds, note=note
        )
    except (TokenFileError, OSError) as bad:
        raise HostFailure(ClientError(str(bad), "phalanx doctor")) from None
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
    from phalanx.frontends.host.api.tokens import TokenFileError, list_tokens

    try:
        found = list_tokens(_file())
    except TokenFileError as bad:
        raise HostFailure(ClientError(str(bad), "phalanx token issue")) from None
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

    if not revoke_token(_file(), identifier):
        raise HostFailure(ClientError(f"there is no token {identifier}", "phalanx token list", code="not_found"))
    if output == "json":
        dump({"id": identifier, "revoked": True})
        return
    click.echo(f"revoked {identifier}")
