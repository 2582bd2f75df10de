"""What the shell is offered for an option's value: queues, states, columns, policies, files."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import closing
from typing import TYPE_CHECKING, Final

from phalanx.client.daemon import open_daemon
from phalanx.client.daemon_errors import ClientError

if TYPE_CHECKING:
    import click
    from click.shell_completion import CompletionItem

_ASK_S: Final = 3.0
_STATES: Final = ("pending", "starting", "running", "stopping", "completed", "failed", "cancelled", "infeasible")


def complete_queue(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of queues; silence where there is nobody to ask."""
    try:
        with closing(open_daemon(any_version=True)) as daemon:
            rows = daemon.get("/v1/queues", timeout_s=_ASK_S)["queues"]
    except (ClientError, KeyError, TypeError):
        return []
    return _items((str(row["name"]) for row in rows), incomplete)


def complete_states(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """States, also behind a comma."""
    return _items(_STATES, incomplete, several=True)


def complete_columns(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Columns of the verb at hand, also behind a comma."""
    module = sys.modules[context.command.callback.__module__] if context.command.callback else None
    return _items((column.name for column in getattr(module, "COLUMNS", ())), incomplete, several=True)


def complete_policy(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Policies by name; one of a user's own is a file."""
    from click.shell_completion import CompletionItem

    from phalanx.policy import POLICIES

    found = _items(sorted(POLICIES), incomplete)
    return found or [CompletionItem(incomplete, type="file")]


def complete_report_keys(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """What a report can be by, also behind a comma."""
    return _items(("user", "queue", "job"), incomplete, several=True)


def complete_policies(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Policies by name, also behind a comma."""
    from phalanx.policy import POLICIES

    return _items(sorted(POLICIES), incomplete, several=True) or complete_policy(context, parameter, incomplete)


def complete_command(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files, as the shell itself would: scripts, job files, arguments of the command."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def _items(words: Iterable[str], incomplete: str, *, several: bool = False) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    before, comma, last = incomplete.rpartition(",") if several else ("", "", incomplete)
    said = set(before.split(","))
    return [CompletionItem(f"{before}{comma}{word}") for word in words if word.startswith(last) and word not in said]
