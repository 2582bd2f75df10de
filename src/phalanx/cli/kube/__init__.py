"""`phalanx kube`: the scheduler for Kubernetes. Each verb is imported when it is asked for."""

from __future__ import annotations

from typing import Final

import click

from phalanx.cli.verb_group import VerbGroup

_SECTIONS: Final = {
    "Commands": {
        "run": ("kube.kube_controller", "Schedule pods that name this scheduler; stays in the foreground."),
        "install": ("kube.kube_manifests", "Print all manifests: rights, deployment, service."),
        "fake-nodes": ("kube.kube_manifests", "Print nodes that are objects only, to try it out."),
    }
}


@click.group(cls=VerbGroup, sections=_SECTIONS, program="phalanx kube")
def kube() -> None:
    """Gangs of pods: start whole or not at all.

    \b
    phalanx kube install | kubectl apply -f -
    phalanx kube run --kubeconfig ~/.kube/config
    kubectl phalanx ps -A      # ask it: ps, why, fit, gantt, dump
    """
