"""`phalanx submit`: hand in a job and get the terminal back."""

from __future__ import annotations

from typing import Any

import click

from phalanx.cli.host.completing import complete_command
from phalanx.cli.host.listing import output_option
from phalanx.cli.host.options import wish_of, wish_options
from phalanx.cli.host.preparing import prepare
from phalanx.cli.host.sending import is_doomed, look_again, send, tell_accepted
from phalanx.cli.host.talking import failing, note, retyping, talking


@click.command(context_settings={"allow_interspersed_args": False})
@wish_options
@click.option("--each", is_flag=True, help="Read commands from standard input, one job a line.")
@click.option("--dry-run", is_flag=True, help="Say what would happen; submit nothing.")
@output_option("table", "json", "jsonl")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, shell_complete=complete_command)
def submit(each: bool, dry_run: bool, output: str, command: tuple[str, ...], **params: Any) -> None:
    """Hand in a job; a daemon of yours is started if there is none.

    COMMAND is started once for each GPU, each start with its RANK; with -n 1 once
    with all of them, as launchers (torchrun, accelerate, deepspeed) want it. It may
    also be a script with #PHALANX or #SBATCH lines, which is run as it then is, or a
    YAML file of gangs with a command in each.

    \b
    phalanx submit -g 4 --time 2h -- python train.py --lr 3e-4
    phalanx submit -g 2:8 --name sweep -- python train_elastic.py
    phalanx submit -g 1 --each < commands.txt
    """
    notes: list[str] = []
    with failing(), retyping(command):
        wish = wish_of(params)
        jobs = prepare(wish, command, each=each, notes=notes)
    for text in dict.fromkeys(notes):
        note(text)
    with talking(start=True) as daemon:
        accepted = send(daemon, jobs, dry_run=dry_run)
        if not dry_run:
            accepted = look_again(daemon, accepted)
    many = each or len(jobs) > 1 or wish.array is not None
    tell_accepted(accepted, output, many=many, dry_run=dry_run, jobs=jobs)
    if not dry_run and is_doomed(accepted):
        raise SystemExit(1)  # a script that goes on would wait for something that never runs
