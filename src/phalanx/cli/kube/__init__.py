"""`phalanx kube`: the scheduler for Kubernetes. Each verb is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

_VERBS: Final = {
    "run": ("controller", "Schedule pods that name this scheduler; stays in the foreground."),
    "install": ("manifests", "Print all manifests: rights, deployment, service."),
    "fake-nodes": ("manifests", "Print nodes that are objects only, to try it out."),
}


class _KubeGroup(click.Group):
    """A group that imports a verb when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All verbs."""
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """One of them."""
        if cmd_name not in _VERBS:
            return None
        found = getattr(import_module(f"phalanx.cli.kube.kube_{_VERBS[cmd_name][0]}"), cmd_name.replace("-", "_"))
        return found if isinstance(found, click.Command) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(verb, words) for verb, (_, words) in _VERBS.items()])


@click.group(cls=_KubeGroup)
def kube() -> None:
    """Gangs of pods: start whole or not at all.

    \b
    phalanx kube install | kubectl apply -f -
    phalanx kube run --kubeconfig ~/.kube/config
    """
