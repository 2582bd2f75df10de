"""`phalanx install`: the daemon as a service, of one user or of the whole machine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from phalanx.cli.host.talking import HostFailure
from phalanx.client.daemon_errors import ClientError
from phalanx.client.daemon_places import find_state

if TYPE_CHECKING:
    from phalanx.frontends.host.install import Installation


@click.command()
@click.option("--system", is_flag=True, help="One daemon for all users; jobs run as who submitted them. Needs root.")
@click.option("--uninstall", is_flag=True, help="The reverse; state and running jobs stay.")
@click.option("--print", "only_print", is_flag=True, help="Show what would be done, and do nothing.")
def install(system: bool, uninstall: bool, only_print: bool) -> None:
    """Let systemd run the daemon: yours, or with --system one queue for everybody.

    \b
    sudo phalanx install --system
    """
    from phalanx.frontends.host.install import CannotInstall, Here, apply_installation, plan_install, plan_uninstall

    here = Here(
        state_dir=find_state(),
        env=dict(os.environ),
        command=click.get_current_context().find_root().info_name or "phalanx",
    )
    make = plan_uninstall if uninstall else plan_install
    try:
        plan = make(here, system=system, only_print=only_print)
        if only_print:
            click.echo(plan.describe(), nl=False)
            return
        apply_installation(plan)
    except CannotInstall as bad:
        raise HostFailure(ClientError(bad.message, bad.hint)) from None
    _tell(plan, uninstall=uninstall)


def _tell(plan: Installation, *, uninstall: bool) -> None:
    click.echo(f"{'removed' if uninstall else 'installed'} {plan.unit}")
    for line in plan.notes:
        click.echo(f"  {line}")
