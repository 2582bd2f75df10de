"""`phalanx doctor`: is this machine fit, and what to do where it is not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from phalanx.cli.host.checking_settings import read_settings
from phalanx.cli.host.listing import dump, output_option
from phalanx.cli.host.talking import HostFailure
from phalanx.cli.host.text import clean
from phalanx.client.daemon_errors import ClientError, UsageError
from phalanx.client.daemon_places import find_state

if TYPE_CHECKING:
    from phalanx.frontends.host.doctor import Diagnosis, Surroundings

_COLOURS: Final = {"ok": "green", "warn": "yellow", "fail": "red"}


@click.command()
@click.option("--system", is_flag=True, help="For a daemon of all users.")
@click.option("--bundle", type=click.Path(path_type=Path), help="Write an archive for a bug report, without secrets.")
@output_option("table", "json")
def doctor(system: bool, bundle: Path | None, output: str) -> None:
    """Check this machine: driver, GPUs, containment, disk, clock; a fix for each finding.

    \b
    phalanx doctor
    """
    from phalanx.frontends.host.doctor import run_checks, write_bundle

    around = look_around(system=system)
    findings = [check_settings(system=system), *run_checks(around)]
    if bundle is not None:
        from phalanx.control.spec.errors import BadInput

        try:
            write_bundle(bundle, findings, around)
        except BadInput as bad:
            raise HostFailure(ClientError(str(bad))) from None
    if output == "json":
        dump([{"name": each.name, "level": each.level, "message": each.message, "fix": each.fix} for each in findings])
    else:
        _print(findings)
        if bundle is not None:
            click.echo(f"bundle: {bundle}")
    if any(finding.level == "fail" for finding in findings):
        raise SystemExit(1)


def look_around(*, system: bool) -> Surroundings:
    """The machine with its GPUs and settings; what cannot be read is a finding, not an end."""
    from phalanx.frontends.host.devices import open_devices
    from phalanx.frontends.host.doctor import Surroundings
    from phalanx.frontends.host.settings import Settings

    state = _state_of(system=system)
    try:
        settings = read_settings(state, system=system)
    except UsageError:
        settings = Settings()  # `check_settings` says it
    return Surroundings(state_dir=state, devices=open_devices(None), system=system, settings=settings)


def check_settings(*, system: bool) -> Diagnosis:
    """Whether a daemon could start with them."""
    from phalanx.frontends.host.doctor.surroundings import Diagnosis

    try:
        found = read_settings(_state_of(system=system), system=system)
    except UsageError as bad:
        return Diagnosis("settings", "fail", f"a daemon cannot start with them: {bad.message}", bad.hint)
    if found.warnings:
        return Diagnosis("settings", "warn", "; ".join(found.warnings), "mend it where it stands")
    return Diagnosis("settings", "ok", "can be read; phalanx config show --origin tells them")


def _state_of(*, system: bool) -> Path:
    return Path("/var/lib/phalanx") if system else find_state()


def _print(findings: list[Diagnosis]) -> None:
    size = max(len(finding.name) for finding in findings)
    for finding in findings:
        level = click.style(f"{finding.level:<4}", fg=_COLOURS[finding.level])
        click.echo(f"{level}  {clean(finding.name):<{size}}  {clean(finding.message)}")
        if finding.fix:
            click.echo(f"{'':4}  {'':{size}}  fix: {clean(finding.fix)}")
    bad = [sum(finding.level == level for finding in findings) for level in ("fail", "warn")]
    click.echo(f"{len(findings)} checks: {bad[0]} failed, {bad[1]} to look at")
