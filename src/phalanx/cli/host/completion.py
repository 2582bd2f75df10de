"""`phalanx completion`: what a shell needs to complete verbs, options, job ids and names."""

from __future__ import annotations

import click

_HOW = {
    "bash": 'eval "$(phalanx completion bash)"        # in ~/.bashrc',
    "zsh": 'eval "$(phalanx completion zsh)"         # in ~/.zshrc, after compinit',
    "fish": "phalanx completion fish | source        # in ~/.config/fish/config.fish",
}


@click.command()
@click.argument("shell", type=click.Choice(list(_HOW)))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell; ids and names of jobs are completed too.

    \b
    eval "$(phalanx completion bash)"
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None, "click knows these three"
    click.echo(f"# {_HOW[shell]}")
    # The template of the class, not its source(): that starts a bash to ask for its version.
    maker = found(context.find_root().command, {}, "phalanx", "_PHALANX_COMPLETE")
    click.echo(maker.source_template % maker.source_vars())
