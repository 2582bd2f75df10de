"""A figure as PNG, by matplotlib: an extra, `phalanx[plot]`, that is imported only when somebody asks for one."""

from __future__ import annotations

import io
from importlib import import_module
from typing import Any

from phalanx.frontends.sim.report.figure import Figure, Panel

_DPI = 160
_WIDTH_IN = 10.0


def draw_png(figure: Figure) -> bytes:
    """The whole figure, without any window system."""
    heights = [0.55 + 0.42 * len(figure.bars), *(1.15 for _ in figure.over_time), 2.6]
    canvas = import_module("matplotlib.figure").Figure(
        figsize=(_WIDTH_IN, sum(heights) + 1.9), dpi=_DPI, layout="constrained"
    )
    import_module("matplotlib.backends.backend_agg").FigureCanvasAgg(canvas)
    # Everywhere below, no mathematics: a $ in a name is a dollar.
    canvas.suptitle(f"{figure.title}\n{figure.subtitle}", fontsize=9, x=0.01, ha="left", parse_math=False)
    rows = canvas.add_gridspec(len(heights), 2, height_ratios=heights)
    _draw_bars(canvas.add_subplot(rows[0, :]), figure)
    for index, panel in enumerate(figure.over_time, start=1):
        _draw_panel(canvas.add_subplot(rows[index, :]), panel, with_label=index == len(figure.over_time))
    for index, panel in enumerate(figure.shares):
        axes = canvas.add_subplot(rows[-1, index])
        _draw_panel(axes, panel, with_label=True)
        if len(panel.traces) > 1:
            for text in axes.legend(fontsize=7, frameon=False).get_texts():
                text.set_parse_math(False)
    data = io.BytesIO()
    canvas.savefig(data, format="png", metadata={"Software": None})
    return data.getvalue()


def _draw_bars(axes: Any, figure: Figure) -> None:
    seen: dict[str, object] = {}
    for row, bar in enumerate(figure.bars):
        left = 0.0
        for word, colour, share in bar.parts:
            drawn = axes.barh(row, share, left=left, height=0.62, color=colour)
            seen.setdefault(word, drawn)
            left += share
    axes.set_yticks(range(len(figure.bars)), [bar.label for bar in figure.bars], fontsize=8, parse_math=False)
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"], fontsize=7)
    axes.invert_yaxis()
    axes.set_title(figure.bars_title, fontsize=9, loc="left", parse_math=False)
    axes.spines[["top", "right", "left"]].set_visible(False)
    where = {"loc": "upper left", "bbox_to_anchor": (0, -0.12 - 0.1 / max(1, len(figure.bars)))}
    words = [word for word, _ in figure.parts]
    axes.legend([seen[word] for word in words], words, ncols=6, fontsize=7, frameon=False, **where)


def _draw_panel(axes: Any, panel: Panel, *, with_label: bool) -> None:
    for trace in panel.traces:
        if not trace.y:
            continue
        if trace.filled:
            axes.stairs(trace.y, trace.x, fill=True, color=trace.colour, label=trace.name)
        else:
            style = (0, trace.dash) if trace.dash else "solid"
            axes.step(trace.x, [*trace.y, trace.y[-1]], where="post", color=trace.colour, linestyle=style,
                      linewidth=1.4, label=trace.name)  # fmt: skip
    if panel.log:
        axes.set_xscale("log")
        axes.minorticks_off()
    if panel.high > panel.low:
        axes.set_xlim(panel.low, panel.high)
    axes.set_ylim(0, 1)
    axes.set_xticks([value for value, _ in panel.ticks], [word for _, word in panel.ticks], fontsize=7)
    axes.set_yticks([0, 0.5, 1], ["0 %", "50 %", "100 %"], fontsize=7)
    axes.set_title(panel.title, fontsize=8, loc="left", parse_math=False)
    axes.set_ylabel(panel.y_label, fontsize=7)
    axes.set_xlabel(panel.x_label if with_label else "", fontsize=7, loc="right")
    axes.grid(axis="y", color="#e9ecef", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
