"""A figure as SVG, by hand: rectangles, lines and words, nothing that needs a library."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import escape
from typing import Final

from phalanx.frontends.sim.report.figure import Bar, Figure, Panel, Trace

WIDTH: Final = 960
_EDGE: Final = 28
_LABEL: Final = 54  # for the numbers left of an axis
_CHAR: Final = 6.6  # a character of the small size, about

_INK, _MUTED, _LINE, _GRID = "#1b1f24", "#5a636e", "#c4cad1", "#e9ecef"


@dataclass(frozen=True, slots=True)
class _Box:
    """Where a panel's axes are."""

    left: float
    top: float
    right: float
    bottom: float


def draw_svg(figure: Figure) -> str:
    """The whole figure."""
    parts, height = _lay_out(figure)
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" '
        f'height="{height:.0f}" font-family="system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif" '
        f'font-size="12" fill="{_MUTED}">\n<title>{_safe(figure.title)}</title>\n'
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n{body}\n</svg>\n'
    )


def _lay_out(figure: Figure) -> tuple[list[str], float]:
    """Everything from the top down, and where it ends."""
    parts = [_text(_EDGE, 44, figure.title, size=20, bold=True), _text(_EDGE, 66, figure.subtitle)]
    top = 104.0
    parts.append(_text(_EDGE, top, figure.bars_title, size=14, bold=True))
    keys, top = _draw_keys([(word, colour, None) for word, colour in figure.parts], top + 12)
    parts += keys
    for bar in figure.bars:
        parts += _draw_bar(bar, top)
        top += 46
    if figure.over_time:
        parts.append(_text(_EDGE, top + 22, "Utilization and goodput over time", size=14, bold=True))
        keys, top = _draw_keys([(t.name, t.colour, None) for t in figure.over_time[0].traces[::-1]], top + 34)
        parts += keys
    for panel in figure.over_time:
        box = _Box(_EDGE + _LABEL, top + 18, WIDTH - _EDGE, top + 108)
        parts += _draw_panel(panel, box, with_label=panel is figure.over_time[-1])
        top += 140
    if figure.shares:
        top += 22
        keys, top = _draw_keys([(t.name, t.colour, t.dash) for t in figure.shares[0].traces], top)
        half = (WIDTH - 2 * _EDGE) / len(figure.shares)
        for index, panel in enumerate(figure.shares):
            left = _EDGE + index * half
            right = left + half - (18 if index + 1 < len(figure.shares) else 0)
            parts += _draw_panel(panel, _Box(left + _LABEL, top + 20, right, top + 230), with_label=True)
        parts += keys
        top += 280
    return parts, top + 8


def _draw_keys(entries: list[tuple[str, str, tuple[int, ...] | None]], top: float) -> tuple[list[str], float]:
    """A legend in as many lines as it takes."""
    parts, left = [], float(_EDGE)
    for word, colour, dash in entries:
        wide = 34 + _CHAR * len(word)
        if left + wide > WIDTH - _EDGE and left > _EDGE:
            left, top = _EDGE, top + 18
        if dash is None:
            parts.append(f'<rect x="{left:.1f}" y="{top:.1f}" width="12" height="12" rx="2" fill="{colour}"/>')
        else:
            drawn = _dashes(dash)
            parts.append(f'<path d="M{left:.1f} {top + 6:.1f}h22" stroke="{colour}" stroke-width="2"{drawn}/>')
        parts.append(_text(left + (17 if dash is None else 28), top + 10, word))
        left += wide + (0 if dash is None else 12)
    return parts, top + 26


def _draw_bar(bar: Bar, top: float) -> Iterator[str]:
    yield _text(_EDGE, top + 9, bar.label, bold=True)
    left = float(_EDGE)
    for word, colour, share in bar.parts:
        wide = share * (WIDTH - 2 * _EDGE)
        seen = max(0.3, wide - (1 if wide > 3 else 0))  # a gap between neighbours, and never quite nothing
        yield (
            f'<rect x="{left:.2f}" y="{top + 15:.1f}" width="{seen:.2f}" height="20" '
            f'fill="{colour}"><title>{_safe(f"{bar.label}: {word} {100 * share:.1f} %")}</title></rect>'
        )
        left += wide


def _draw_panel(panel: Panel, box: _Box, *, with_label: bool) -> Iterator[str]:
    across = _scale(panel, box)
    yield _text(box.left - _LABEL, box.top - 11, panel.title, bold=True)
    for share in (0.0, 0.5, 1.0):
        at = box.bottom - share * (box.bottom - box.top)
        yield f'<path d="M{box.left:.1f} {at:.1f}H{box.right:.1f}" stroke="{_GRID}"/>'
        yield _text(box.left - 7, at + 4, f"{100 * share:.0f} %", anchor="end", size=11)
    for trace in panel.traces:
        yield _draw_trace(trace, across, box)
    yield f'<path d="M{box.left:.1f} {box.bottom:.1f}H{box.right:.1f}" stroke="{_LINE}"/>'
    for value, word in panel.ticks:
        yield f'<path d="M{across(value):.1f} {box.bottom:.1f}v4" stroke="{_LINE}"/>'
        yield _text(across(value), box.bottom + 16, word, anchor="middle", size=11)
    middle = (box.top + box.bottom) / 2
    turned = f' transform="rotate(-90 {box.left - _LABEL + 10:.1f} {middle:.1f})"'
    yield _text(box.left - _LABEL + 10, middle, panel.y_label, anchor="middle", size=11, more=turned)
    if with_label:
        yield _text(box.right, box.bottom + 31, panel.x_label, anchor="end", size=11)


def _scale(panel: Panel, box: _Box) -> Callable[[float], float]:
    def place(value: float) -> float:
        return math.log10(value) if panel.log else value

    low, high = place(panel.low), place(panel.high)
    factor = (box.right - box.left) / (high - low) if high > low else 0.0
    return lambda value: box.left + (place(value) - low) * factor


def _draw_trace(trace: Trace, across: Callable[[float], float], box: _Box) -> str:
    if not trace.y:
        return ""
    floor = f"{box.bottom:.1f}"
    path = [f"M{across(trace.x[0]):.1f} {floor}"]
    for level, end in zip(trace.y, trace.x[1:], strict=True):
        path.append(f"V{box.bottom - level * (box.bottom - box.top):.1f}H{across(end):.1f}")
    if trace.filled:
        return f'<path d="{"".join(path)}V{floor}Z" fill="{trace.colour}"/>'
    drawn = _dashes(trace.dash)
    return f'<path d="{"".join(path)}" fill="none" stroke="{trace.colour}" stroke-width="1.8"{drawn}/>'


def _dashes(dash: tuple[int, ...]) -> str:
    return f' stroke-dasharray="{" ".join(map(str, dash))}"' if dash else ""


def _text(
    x: float, y: float, text: str, *, size: int = 12, bold: bool = False, anchor: str = "start", more: str = ""
) -> str:
    weight = f' font-weight="600" fill="{_INK}"' if bold else ""
    where = f' text-anchor="{anchor}"' if anchor != "start" else ""
    big = f' font-size="{size}"' if size != 12 else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{big}{weight}{where}{more}>{_safe(text)}</text>'


def _safe(text: str) -> str:
    """Escaped, and without what XML has no way to write: control characters and half characters."""
    return escape("".join(char if char.isprintable() else "�" for char in text))
