"""Write a report: the kind is what the name ends in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from phalanx.frontends.sim.report.destination import write_whole
from phalanx.frontends.sim.report.facts import ReportFacts
from phalanx.frontends.sim.report.page import Heading


def write_report(path: Path, heading: Heading, runs: Sequence[ReportFacts]) -> None:
    """Draw everything first, then write it whole."""
    kind = path.suffix.lower()
    if kind == ".html":
        from phalanx.frontends.sim.report.page import make_page  # noqa: PLC0415 - one kind needs one drawer

        write_whole(path, make_page(heading, runs).encode())
        return
    from phalanx.frontends.sim.report.figure import make_figure  # noqa: PLC0415 - the same

    figure = make_figure(heading, runs)
    if kind == ".svg":
        from phalanx.frontends.sim.report.svg import draw_svg  # noqa: PLC0415 - the same

        write_whole(path, draw_svg(figure).encode())
    else:
        from phalanx.frontends.sim.report.plot import draw_png  # noqa: PLC0415 - the same

        write_whole(path, draw_png(figure))
