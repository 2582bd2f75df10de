"""`phalanx kube install` and `fake-nodes`: manifests on standard output, for kubectl."""

from __future__ import annotations

import re
from pathlib import Path

import click

from phalanx.cli.failure import CommandFailure


@click.command()
@click.option("--namespace", default="phalanx-system", show_default=True, metavar="NAME", help="Where it runs.")
@click.option("--scheduler-name", default="phalanx", show_default=True, metavar="NAME", help="What pods call it.")
@click.option("--image", default="phalanx:latest", show_default=True, metavar="IMAGE", help="What the replicas run.")
@click.option("--replicas", default=2, show_default=True, type=click.IntRange(1, 9), help="One leads.")
@click.option("--config", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Settings to run with.")
def install(namespace: str, scheduler_name: str, image: str, replicas: int, config: Path | None) -> None:
    """Print everything that it needs in a cluster.

    \b
    phalanx kube install | kubectl apply -f -
    phalanx kube install | kubectl delete -f -
    """
    from phalanx.frontends.kube.kube_settings import KubeSettingsError, read_settings
    from phalanx.frontends.kube.manifests import KubeInstallation, list_manifests

    try:
        read_settings(config)  # here, where somebody looks, and not in a container that ends
    except KubeSettingsError as bad:
        raise CommandFailure(str(bad)) from bad
    settings = config.read_text(encoding="utf-8") if config is not None else ""
    _print_all(list_manifests(KubeInstallation(namespace, scheduler_name, image, replicas, settings)))


@click.command(name="fake-nodes")
@click.argument("shape", metavar="NxM")
def fake_nodes(shape: str) -> None:
    """Print nodes that are objects only, to try it out: N nodes with M devices each.

    \b
    phalanx kube fake-nodes 16x8 | kubectl create -f -
    """
    from phalanx.frontends.kube.manifests import make_fake_nodes

    match = re.fullmatch(r"(\d{1,5})x(\d{1,4})", shape)
    if match is None:
        raise CommandFailure(f"{shape!r} is no cluster; write nodes x devices per node, as 16x8")
    _print_all(make_fake_nodes(int(match[1]), int(match[2])))


def _print_all(trees: list[dict[str, object]]) -> None:
    import yaml

    click.echo(yaml.safe_dump_all(trees, sort_keys=False), nl=False)
