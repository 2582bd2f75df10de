"""A scenario as an SWF log: one line a gang, a processor a GPU or slot, everything else in the message."""

from __future__ import annotations

import re
from typing import Final

from phalanx.frontends.sim.scenario import Scenario
from phalanx.frontends.sim.traces.log_losses import find_losses
from phalanx.frontends.sim.traces.seconds import show_seconds
from phalanx.model.gang import Gang
from phalanx.model.resources import DEVICE_KIND, MILLI, SLOT_KIND

_NUMBER: Final = re.compile(r"[1-9][0-9]{0,17}")
_USER: Final = re.compile(r"u(0|-1|[1-9][0-9]{0,17})")


def format_swf(scenario: Scenario) -> tuple[str, list[str]]:
    """The text of the log, and what it does not hold."""
    pairs = [pair for pair in zip(scenario.gangs, scenario.true_runs, strict=True) if len(pair[0].roles) == 1]
    losses = find_losses(scenario, ())
    names = [gang.name for gang, _ in pairs]
    numbers = {name: name for name in names}
    if not all(_NUMBER.fullmatch(name) for name in names):
        numbers = {name: str(number) for number, name in enumerate(names, start=1)}
        losses.append("names of gangs (numbered)")
    users = _number_users(scenario.gangs)
    if any(user and f"u{number}" != user for user, number in users.items()):
        losses.append("names of users (numbered)")
    cut = sum(gang.walltime_us is not None and gang.walltime_us < truth.duration_us for gang, truth in pairs)
    if cut:
        losses.append(f"{cut:,} run times beyond the walltime (cut there by whoever reads it)")
    lines = ["; Version: 2", f"; MaxJobs: {len(pairs)}"]
    lines += [f"; User {number}: {user}" for user, number in users.items() if user and f"u{number}" != user]
    for gang, truth in pairs:
        size = _processors(gang)
        run, asked = show_seconds(truth.duration_us), show_seconds(gang.walltime_us) if gang.walltime_us else "-1"
        head = f"{numbers[gang.name]} {show_seconds(gang.submit_us)} -1 {run} {size} -1 -1 {size} {asked} -1 1"
        lines.append(f"{head} {users[gang.user]} -1 -1 -1 -1 -1 -1")
    return "\n".join(lines) + "\n", losses


def _processors(gang: Gang) -> int:
    """One for every GPU or slot at the largest size; a part of one is one."""
    shape, most = gang.roles[0].shape, gang.roles[0].sizes.most
    units = shape.amount(DEVICE_KIND) or shape.amount(SLOT_KIND)
    return most * max(1, -(-units // MILLI))


def _number_users(gangs: tuple[Gang, ...]) -> dict[str, int]:
    """A number for every user; nobody is -1, and users read from such a log keep theirs."""
    found = list(dict.fromkeys(gang.user for gang in gangs))
    known = {user: _USER.fullmatch(user) for user in found if user}
    if all(known.values()):
        return {user: int(match[1]) if match else -1 for user, match in [("", None), *known.items()]}
    return {"": -1} | {user: number for number, user in enumerate(known, start=1)}
