"""`phalanx what-if`: a cluster as it stands, run forward as it is and with a change, and the difference."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from phalanx.cli.failure import CannotWrite, CommandFailure
from phalanx.cli.host.completing import complete_policy
from phalanx.cli.host.talking import complete_ref, failing
from phalanx.cli.screen import print_lines
from phalanx.cli.what_if_asked import AskedChange, WhatIfReport
from phalanx.cli.what_if_live import ask_daemon, read_submits

if TYPE_CHECKING:
    from phalanx.control.restore import Restored
    from phalanx.control.spec.errors import BadInput
    from phalanx.control.spec.spot import Spot
    from phalanx.control.state import State
    from phalanx.engine.policy import Policy
    from phalanx.frontends.sim.scenario import Scenario

#: The baseline that gives out single members: its clusters are not whole, and a state is.
_PARTIAL: Final = "pod-fifo"
_NAMED_MAX: Final = 8


@click.command("what-if")
@click.argument("state", required=False, type=click.Path(path_type=Path))
@click.option("--add-nodes", "add", metavar="NxM|FILE", help="More nodes: 2x8, or a file of node entries.")
@click.option("--remove-nodes", "remove", metavar="NODES", help="Nodes that go for good: a0,a1 or a[0-3].")
@click.option(
    "--cancel",
    multiple=True,
    metavar="GANG",
    help="A gang that is not wanted any more; may be repeated.",
    shell_complete=complete_ref,
)
@click.option("--add-gang", "gangs", type=click.Path(path_type=Path), help="A file of gangs that are submitted now.")
@click.option("--submit", multiple=True, metavar="WORDS", help="A job as submit takes it: '-g 4 --time 2h', or a file.")
@click.option("--policy", help="Another policy, by name or as path/to/file.py:NAME.", shell_complete=complete_policy)
@click.option("--until", help="Look so far ahead, as 1d; else until everybody has ended.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, schema phalanx.what-if/1.")
@click.option("--from", "scenario", type=click.Path(path_type=Path), help="Make the state from a scenario or a log.")
@click.option("--at", help="With --from: the instant, as 1h.")
@click.option("--cluster", help="With --from and a log: nodes x places, as 16x8, or a table of nodes.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Write the state there (--from's, or the daemon's), and stop.",
)
def what_if(
    state: Path | None,
    add: str | None,
    remove: str | None,
    cancel: tuple[str, ...],
    gangs: Path | None,
    submit: tuple[str, ...],
    policy: str | None,
    until: str | None,
    as_json: bool,
    scenario: Path | None,
    at: str | None,
    cluster: str | None,
    output: Path | None,
) -> None:
    """Ask what a change would do to a cluster as it stands: this machine's, or one from a file.

    STATE is a dumped state (JSON); without one the daemon is asked. The cluster is run forward twice, as it is
    and with the change, believing walltimes: what starts, what waits, what moves.

    \b
    phalanx what-if --submit "-g 4 --time 2h"      # when would it start, and who would wait for it?
    phalanx what-if --cancel train --add-nodes 1x8
    phalanx what-if --from examples/tenants.yaml --at 1h30m --policy fair -o state.json
    phalanx what-if state.json --add-nodes 1x8
    """
    from phalanx.control.spec.errors import BadInput

    if output == Path("json"):  # as with every other verb; a file of that name is ./json
        output, as_json = None, True
    try:
        with failing():
            said: list[str] = []
            submits = read_submits(submit, said)
            wanted = policy if scenario is None else None
            asked = AskedChange(add, remove, cancel, gangs, wanted, submits, notes=tuple(said))
        _check_usage(state, scenario, at, cluster, output, asked)
        if state is None and scenario is None:
            text, meant, labels = ask_daemon(cancel)
            if output is not None:
                _write(output, text)
                return
            asked = replace(asked, cancel=tuple(meant), typed=meant, labels=labels)
            spot = _spot_of(text, Path("the daemon's state"))
        elif scenario is not None:
            text = dump_scenario(scenario, cluster, _instant(at, "--at"), policy)
            if output is not None:
                _write(output, text)
                return
            spot = _spot_of(text, scenario)
        else:
            from phalanx.control.restore import read_state

            assert state is not None
            spot = read_state(state)
        place = (state or scenario or Path()).parent
        report = answer(spot, asked, None if until is None else _instant(until, "--until"), place)
    except (BadInput, CommandFailure) as bad:
        raise _told(bad, live=state is None and scenario is None) from None
    if as_json:
        click.echo(json.dumps(report.tree, ensure_ascii=False))
    else:
        from phalanx.cli.what_if_text import show

        show(report)


def _told(bad: BadInput | CommandFailure, *, live: bool) -> CommandFailure:
    """What was wrong; of what was asked of the daemon also where the words are that could have been meant."""
    failure = bad if isinstance(bad, CommandFailure) else CommandFailure(str(bad))
    if live and not failure.hint:
        lists = {
            "--remove-nodes": "phalanx nodes",
            "--cancel": "phalanx ps -a",
            "there is no policy": "docs/policies.md",
        }
        failure.hint = next((to for word, to in lists.items() if failure.message.startswith(word)), "")
    return failure


def _check_usage(
    state: Path | None,
    scenario: Path | None,
    at: str | None,
    cluster: str | None,
    output: Path | None,
    asked: AskedChange,
) -> None:
    if state is not None and scenario is not None:
        raise CommandFailure("STATE and --from both say where to start; keep one of them")
    if scenario is None:
        lonely = [name for name, value in (("--at", at), ("--cluster", cluster)) if value is not None]
        lonely += ["-o"] if output is not None and state is not None else []
        if lonely:
            there = f"{state} is one" if state is not None else "the daemon has one"
            raise CommandFailure(f"{lonely[0]} belongs to --from SCENARIO, which makes a state; {there} already")
    elif at is None:
        raise CommandFailure("--from needs --at: the instant at which the state is taken, as --at 1h")
    if output is not None and not asked.nothing:
        raise CommandFailure(
            "-o writes the state as it is; ask what a change would do in a second command, about that file"
        )


def _instant(text: str | None, option: str) -> int:
    from phalanx.control.spec.errors import BadInput, BadText
    from phalanx.control.spec.quantity import duration_us

    try:
        return duration_us(text or "0")
    except BadText as bad:
        raise BadInput(f"{option} {bad}") from None


def _spot_of(text: str, scenario: Path) -> Spot:
    from phalanx.control.spec.reader import parse_text
    from phalanx.control.spec.spot import Spot

    return Spot(parse_text(text, str(scenario), ".json"), str(scenario))


def _write(output: Path, text: str) -> None:
    from phalanx.frontends.sim.traces.files import write_whole

    if output.is_dir():
        raise CommandFailure(f"-o: {output} is a folder; name a file in it")
    try:
        write_whole(output, text)
    except OSError as bad:
        raise CannotWrite(f"-o: cannot write {output}: {bad.strerror or bad}; name another place") from None
    print_lines([f"state: {output}"])


# ---- a state out of a scenario


def dump_scenario(file: Path, cluster: str | None, at_us: int, policy: str | None) -> str:
    """Run a scenario up to and including an instant; its state then, as the text of a dump."""
    from phalanx.cli.sim import check_policy
    from phalanx.control.dump import dump_state, format_state
    from phalanx.control.policies import find_policy
    from phalanx.frontends.sim.traces.reading import read_any

    scenario = read_any(file, cluster)
    listed = dict(scenario.policies)
    if policy is None and len(scenario.policies) > 1:
        raise CommandFailure(f"{file}: names {len(scenario.policies)} policies; say which with --policy")
    name = policy if policy is not None else scenario.policies[0][0]
    places = [Path()] if policy is not None else [file.parent, Path()]
    settled, options = check_policy(name, listed.get(name, {}), places)
    if settled == _PARTIAL:
        raise CommandFailure(
            f"{_PARTIAL} leaves gangs with some of their members, and a state holds whole ones; name another"
        )
    state = run_to(scenario, find_policy(settled, options), at_us)
    return format_state(dump_state(state, (settled, options), list_drains(scenario, state, at_us)))


def run_to(scenario: Scenario, policy: Policy, at_us: int) -> State:
    """Play a scenario up to and including an instant."""
    from phalanx.control.forward import Arrival, Forward, Happens
    from phalanx.frontends.sim.run import curve_of, happenings, make_state
    from phalanx.frontends.sim.scribe import Scribe
    from phalanx.frontends.sim.world import World

    state = make_state(scenario)
    pairs = list(zip(scenario.gangs, scenario.true_runs, strict=True))
    world = World(state, {gang.name: truth for gang, truth in pairs})
    forward = Forward(state, policy, world, Scribe(state, world))
    # A word that nobody understands makes an instant of it, whatever else happens then.
    events = [*happenings(scenario), Happens(at_us, "look")]
    forward.run([Arrival(gang, curve_of(gang, truth)) for gang, truth in pairs], events, at_us)
    return state


def list_drains(scenario: Scenario, state: State, at_us: int) -> dict[str, int]:
    """When nodes that drain at an instant must be empty; the last word counts."""
    found: dict[str, int] = {}
    for event in sorted(scenario.events, key=lambda event: event.at_us):
        if event.verb == "drain" and event.at_us <= at_us and event.node is not None:
            found.pop(event.node, None)
            if event.by_us is not None and event.by_us > at_us:
                found[event.node] = event.by_us
    index, draining = state.fleet.index_by_name, state.show_nodes().draining
    return {name: by_us for name, by_us in found.items() if name in index and draining[index[name]]}


# ---- the answer


def answer(spot: Spot, asked: AskedChange, ahead_us: int | None, place: Path) -> WhatIfReport:
    """Run both ways and compare."""
    from phalanx.cli.what_if_changes import find_changes
    from phalanx.cli.what_if_text import make_title
    from phalanx.control.restore import restore_state
    from phalanx.control.what_if import compare, list_believed, list_late, list_unproven, play, tree_of
    from phalanx.frontends.sim.text_gantt import span

    as_is, changed = restore_state(spot), restore_state(spot)
    notes = [*dict.fromkeys(asked.notes)]
    changes = find_changes(changed.state, asked, notes)
    before, after = _find_policies(as_is, asked, place)
    until_us = None if ahead_us is None else as_is.state.now_us + ahead_us
    unproven = list_unproven(changes.add_gangs, changed)
    if unproven:
        default_us = as_is.runs.default_us
        length = span(as_is.state.default_walltime_us if default_us is None else default_us)
        notes.append(f"{_name_some(unproven)}: no walltime stated, so {length} is believed")
    late = [asked.label(name) for name in list_late(changed)]
    if late:
        have, they = ("has", "its") if len(late) == 1 else ("have", "their")
        notes.append(f"{_name_some(late)}: {have} outlived {they} walltime, so a minute or a tenth of its age is added")
    believed = [asked.label(name) for name in list_believed(changed)]
    if believed:
        notes.append(f"{_name_some(believed)}: no walltime stated, so what `phalanx why` goes by is believed")
    found = compare(play(as_is, before, until_us=until_us), play(changed, after, changes, until_us))
    tree = tree_of(found, asked.tell(), until_us, notes)
    return WhatIfReport(found, tree, make_title(found, asked), notes, asked.labels)


def _find_policies(restored: Restored, asked: AskedChange, place: Path) -> tuple[Policy, Policy]:
    """As it is, and with the change. A policy of a file is looked for beside the state too."""
    from phalanx.cli.sim import check_policy
    from phalanx.control.policies import find_policy
    from phalanx.frontends.sim.scenario import DEFAULT_POLICY

    name, options = restored.policy or (DEFAULT_POLICY, {})
    before = find_policy(*check_policy(name, options, [place, Path()]))
    after = before
    if asked.policy is not None:
        after = find_policy(*check_policy(asked.policy, options if asked.policy == name else {}))
    for each in (before, after):
        if each.name == _PARTIAL:
            raise CommandFailure(
                f"{_PARTIAL} gives out single members, and a state holds whole gangs; name another policy"
            )
    return before, after


def _name_some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMED_MAX])
    return shown if len(names) <= _NAMED_MAX else f"{shown} and {len(names) - _NAMED_MAX:,} more"
