"""What was run, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from phalanx import __version__
from phalanx.frontends.sim.report.comparison import say_number
from phalanx.frontends.sim.report.facts import name_unit
from phalanx.frontends.sim.report.page import Heading
from phalanx.frontends.sim.report.stays import Meter
from phalanx.frontends.sim.scenario import Scenario


def make_heading(scenario: Scenario, file: str, command: str, seeds: Sequence[int]) -> Heading:
    """The words above a report."""
    meter = Meter(scenario)
    dropped = f" ({scenario.dropped:,} of the log never ran and are left out)" if scenario.dropped else ""
    return Heading(
        file=file,
        cluster=describe_cluster(scenario, meter),
        gangs=f"{len(scenario.gangs):,}{dropped}",
        seeds=describe_seeds(seeds),
        version=__version__,
        command=command,
        unit=name_unit(meter.kind),
    )


def describe_cluster(scenario: Scenario, meter: Meter) -> str:
    """How many nodes of how much, as 64 nodes of 8 GPUs, 512 in all."""
    unit = name_unit(meter.kind)
    amounts = Counter(node.resources.get(meter.kind, 0) / meter.whole for node in scenario.nodes)
    total = sum(each * count for each, count in amounts.items())
    kinds = " and ".join(
        f"{count:,} {'node' if count == 1 else 'nodes'} of {say_number(each)} {unit}{'' if each == 1 else 's'}"
        for each, count in sorted(amounts.items(), reverse=True)[:4]
    )
    more = " and others" if len(amounts) > 4 else ""
    return f"{kinds}{more}" + (f", {say_number(total)} in all" if len(scenario.nodes) > 1 else "")


def describe_seeds(seeds: Sequence[int]) -> str:
    """As they would be typed: ranges where there are any."""
    parts: list[list[int]] = []
    for seed in seeds:
        if parts and seed == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], seed]
        else:
            parts.append([seed])
    return ", ".join("–".join(map(str, part)) for part in parts)
