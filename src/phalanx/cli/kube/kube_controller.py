"""`phalanx kube run`: the controller, in the foreground."""

from __future__ import annotations

from pathlib import Path

import click

from phalanx.cli.failure import CommandFailure


@click.command()
@click.option("--kubeconfig", type=click.Path(dir_okay=False), metavar="FILE", help="Which cluster, and as whom.")
@click.option("--scheduler-name", metavar="NAME", help="Pods that name it are ours [phalanx].")
@click.option("--namespace", metavar="NAME", help="Of our own objects [of the account, or of the context].")
@click.option("--no-leader-election", is_flag=True, help="Nobody else runs; for trying it out.")
@click.option("--listen", metavar="ADDR:PORT", help="Metrics, health, and answers for the plugin of kubectl.")
@click.option("--config", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="All settings.")
def run(
    kubeconfig: str | None,
    scheduler_name: str | None,
    namespace: str | None,
    no_leader_election: bool,
    listen: str | None,
    config: Path | None,
) -> None:
    """Schedule pods that name this scheduler.

    One line of JSON for each happening on standard output; SIGTERM ends it.
    """
    import msgspec

    from phalanx.frontends.kube.api.kubeconfig import KubeconfigError, find_access
    from phalanx.frontends.kube.kube_settings import KubeSettingsError, read_settings
    from phalanx.frontends.kube.running import run_controller

    try:
        settings = read_settings(config)
        access = find_access(kubeconfig)
    except (KubeconfigError, KubeSettingsError) as bad:
        raise CommandFailure(str(bad)) from bad
    said = {"scheduler_name": scheduler_name, "namespace": namespace, "listen": listen}
    changed = {key: value for key, value in said.items() if value is not None}
    if no_leader_election:
        settings = msgspec.structs.replace(settings, leader_election=False)
    raise SystemExit(run_controller(access, msgspec.structs.replace(settings, **changed)))
