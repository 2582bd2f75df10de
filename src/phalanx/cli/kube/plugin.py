"""`kubectl phalanx`: what the scheduler of a cluster knows of its gangs. Found by kubectl as `kubectl-phalanx`."""

from __future__ import annotations

from typing import Final

import click

from phalanx import __version__
from phalanx.cli.verb_group import VerbGroup

_SECTIONS: Final = {
    "Questions": {
        "ps": ("kube.kube_listing", "Gangs: how far each is, why it waits, who is ahead, when it starts."),
        "why": ("kube.kube_whys", "Everything that keeps one gang waiting."),
        "fit": ("kube.kube_fits", "What would become of a manifest; nothing is created."),
        "gantt": ("kube.kube_pictures", "Present and forecast as a picture."),
        "dump": ("kube.kube_pictures", "What the scheduler sees, for phalanx what-if."),
    }
}


@click.group(
    cls=VerbGroup,
    sections=_SECTIONS,
    program="kubectl phalanx",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="kubectl-phalanx")
def main() -> None:
    """Ask the scheduler about gangs; nothing is changed by it.

    \b
    kubectl phalanx ps -A
    kubectl phalanx why train
    kubectl phalanx fit -f job.yaml
    """
