"""A scenario into a file; the name says the format. What the format cannot hold comes back as words."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from phalanx.control.spec.errors import BadInput
from phalanx.frontends.sim.scenario import Scenario
from phalanx.frontends.sim.traces.files import write_whole
from phalanx.frontends.sim.traces.log_losses import HELD_BY_PLAIN, find_losses
from phalanx.frontends.sim.traces.plain import format_plain
from phalanx.frontends.sim.traces.scenarios import format_json, format_yaml
from phalanx.frontends.sim.traces.swfout import format_swf

FORMATS: Final = (".yaml", ".yml", ".json", ".csv", ".csv.gz", ".swf", ".swf.gz")


def check_name(path: Path) -> str:
    """The format that a name asks for, or a refusal; asked before any work is done."""
    name = path.name.lower()
    found = next((ending for ending in FORMATS if name.endswith(ending)), None)
    if found is None:
        raise BadInput(f"its name must end in {', '.join(FORMATS)} to say what it shall be", file=str(path))
    return found.removesuffix(".gz")


def write_any(path: Path, scenario: Scenario) -> list[str]:
    """Write the file whole; what it could not hold, in words."""
    text, losses = format_any(check_name(path), scenario)
    write_whole(path, text)
    return losses


def format_any(ending: str, scenario: Scenario) -> tuple[str, list[str]]:
    """The text of a file of this ending, and what it does not hold."""
    if ending == ".swf":
        return format_swf(scenario)
    if ending == ".csv":
        return format_plain(scenario), find_losses(scenario, HELD_BY_PLAIN)
    return (format_json if ending == ".json" else format_yaml)(scenario), []
