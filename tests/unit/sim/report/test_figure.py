"""The figure: one description, drawn as SVG by hand and as PNG by an extra."""

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from phalanx.frontends.sim.report.facts import collect_facts
from phalanx.frontends.sim.report.figure import find_time_ticks, make_figure
from phalanx.frontends.sim.report.svg import WIDTH, draw_svg

SVG = "{http://www.w3.org/2000/svg}"


def texts(picture):
    return ["".join(each.itertext()) for each in ET.fromstring(picture).iter(f"{SVG}text")]  # noqa: S314 - our own


def test_the_bars_are_the_ledger(heading, runs, results):
    for bar, result in zip(make_figure(heading, runs).bars, results, strict=True):
        ledger = result.metrics["ledger_gpu_s"]
        assert sum(share for _, _, share in bar.parts) == pytest.approx(1)
        assert bar.parts[0] == ("productive", "#0072b2", pytest.approx(ledger["productive"] / ledger["capacity"]))


def test_the_svg_tells_what_was_run(heading, runs):
    found = texts(draw_svg(make_figure(heading, runs)))
    for words in ("mixed.yaml", "Where GPU time went", "productive", "fcfs", "goodput", "Wait", "Submit to end"):
        assert words in found
    assert any("16 in all" in words for words in found)
    assert any(words.startswith("simulated time") for words in found)


def test_nothing_is_drawn_beside_the_paper(heading, runs):
    root = ET.fromstring(draw_svg(make_figure(heading, runs)))  # noqa: S314 - our own
    for box in root.iter(f"{SVG}rect"):
        if box.get("width") != "100%":
            assert float(box.get("x")) >= 0
            assert float(box.get("x")) + float(box.get("width")) <= WIDTH
    high = float(root.get("height"))
    assert all(float(text.get("y")) <= high for text in root.iter(f"{SVG}text"))


def test_names_are_text_in_svg_too(heading, mixed, results):
    facts = collect_facts(mixed, results[0], "<b>&\x00\ud800</svg>", 100)
    picture = draw_svg(make_figure(replace(heading, file="</svg><script>alert(1)</script>"), [facts]))
    picture.encode()
    assert "<script" not in picture
    assert "</svg><script>alert(1)</script>" in texts(picture)


@pytest.mark.parametrize(
    ("low", "high", "unit", "words"),
    [
        (0, 10, "seconds", ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"]),
        (0, 7200, "minutes", ["0", "15", "30", "45", "60", "75", "90", "105", "120"]),
        (90_000, 172_800, "hours", ["26", "28", "30", "32", "34", "36", "38", "40", "42", "44", "46", "48"]),
        (0, 86_400 * 30, "days", ["0", "5", "10", "15", "20", "25", "30"]),
        (0, 0.5, "seconds", ["0", "0.08", "0.16", "0.24", "0.32", "0.4", "0.48"]),
        (5, 5, "seconds", ["5"]),
    ],
)
def test_ticks_are_round(low, high, unit, words):
    ticks, found = find_time_ticks(low, high, 12 if high == 172_800 else 10)
    assert (found, [word for _, word in ticks]) == (unit, words)
    assert all(low <= at <= high for at, _ in ticks)


def test_the_png(heading, runs):
    pytest.importorskip("matplotlib")
    from phalanx.frontends.sim.report.plot import draw_png

    assert draw_png(make_figure(heading, runs)).startswith(b"\x89PNG")
