"""Who is behind which gate now, in the words of `control.gates`: for whoever looks ahead, or writes the state down."""

from __future__ import annotations

from phalanx.control.gates import GATE_ARRAY, GATE_BEGIN, GATE_SINGLETON, GateLine, Gates
from phalanx.control.state import State
from phalanx.engine.lifecycle import Phase
from phalanx.frontends.host.core.jobs import Job
from phalanx.frontends.host.core.knowledge import Knowledge


def list_gates(known: Knowledge, state: State) -> Gates:
    """Of everybody in this state, a copy perhaps, that has not ended there."""
    bounds = known.settings.user_bounds.items()
    of = {user: bound.max_running for user, bound in bounds if bound.max_running is not None}
    gates = Gates(running_max=known.settings.max_running_per_user, running_max_of=of)
    lines: dict[tuple[str, str], GateLine] = {}
    for job in known.register:
        if not job.ended and 0 <= job.number < len(state.gangs) and not state.phase_of(job.number).ended:
            _note(gates, lines, job, waits=state.phase_of(job.number) is Phase.PENDING)
    gates.lines = list(lines.values())
    return gates


def _note(gates: Gates, lines: dict[tuple[str, str], GateLine], job: Job, *, waits: bool) -> None:
    name = job.gang.name
    if job.gates and waits:  # of one that runs a gate says nothing, and it counts as through
        gates.shut[name] = set(job.gates)
    if GATE_BEGIN in job.gates and waits:
        gates.begins_us[name] = job.begin_us or 0
    if job.array is not None and job.array.at_most:
        line = GateLine(GATE_ARRAY, job.array.at_most, [])
        lines.setdefault((GATE_ARRAY, job.array.key), line).names.append(name)
    if job.singleton:
        key = f"{job.uid}/{job.born or job.name}"
        lines.setdefault((GATE_SINGLETON, key), GateLine(GATE_SINGLETON, 1, [])).names.append(name)
