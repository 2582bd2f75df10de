"""The command line. Each verb is a module that is imported when it is asked for.

Heavy imports (NumPy, rich) stay inside the functions that need them: `phalanx --help` and the
quick verbs must answer at once.
"""

from __future__ import annotations

import os
from typing import Final

import click

from phalanx import __version__
from phalanx.cli.verb_group import VerbGroup

#: Section of the help → verb → the module that has the command of that name, and what it does in a few words.
#: The words stand here because `phalanx --help` would otherwise import every module to read them.
_SECTIONS: Final[dict[str, dict[str, tuple[str, str]]]] = {
    "Jobs": {
        "submit": ("host.submit", "Hand in a job: a command, a script, a file of gangs."),
        "run": ("host.run", "Submit and follow the output; Ctrl-C detaches."),
        "ps": ("host.ps", "List jobs."),
        "show": ("host.show", "Everything about one job."),
        "why": ("host.why", "Why a job waits, when it starts, what would help."),
        "logs": ("host.logs", "What a job printed; -f follows."),
        "wait": ("host.wait", "Wait until jobs have ended; the job's exit code."),
        "cancel": ("host.acting", "Stop jobs."),
        "retry": ("host.acting", "Submit an ended job again."),
        "hold": ("host.acting", "Keep pending jobs from starting."),
        "release": ("host.acting", "Let held jobs start."),
        "resize": ("host.acting", "Change how many members an elastic job has."),
        "edit": ("host.acting", "Change a pending job."),
        "preempt": ("host.acting", "Rehearse a preemption."),
        "events": ("host.events", "What happens to jobs, as it happens."),
    },
    "Machine": {
        "up": ("host.up", "Start the daemon."),
        "down": ("host.up", "Stop the daemon; jobs go on."),
        "status": ("host.up", "Whether the daemon runs, and how."),
        "nodes": ("host.nodes", "The machine's GPUs and who has them."),
        "top": ("host.top", "The same, refreshed."),
        "queues": ("host.queues", "Queues, their rights and what they use."),
        "share": ("host.queues", "How you stand among the others."),
        "gantt": ("host.gantt", "Past, present and forecast as a picture."),
        "report": ("host.report", "Where the GPU time went."),
        "config": ("host.config", "Settings, and where each comes from."),
        "doctor": ("host.doctor", "Check this machine; a fix for each finding."),
        "install": ("host.install", "One daemon for all users of this machine."),
        "token": ("host.token", "Tokens for the loopback port."),
        "completion": ("host.completion", "Completion for bash, zsh or fish."),
    },
    "Cluster": {
        "kube": ("kube", "The scheduler for Kubernetes."),
    },
    "Simulator": {
        "sim": ("sim", "Run a scenario or a log under policies and compare them."),
        "trace": ("trace", "Look at logs, convert them, make new ones."),
        "what-if": ("what_if", "What a change would do to a cluster as it stands."),
        "demo": ("demo", "Gang scheduling in one screen."),
    },
}


@click.group(cls=VerbGroup, sections=_SECTIONS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="phalanx")
@click.pass_context
def main(context: click.Context) -> None:
    """Gang scheduling for AI compute: jobs start whole or not at all.

    \b
    phalanx submit -g 4 -- python train.py     # starts a daemon of yours if there is none
    phalanx ps; phalanx why 1; phalanx logs -f 1
    """
    if os.environ.get("NO_COLOR"):
        context.color = False
