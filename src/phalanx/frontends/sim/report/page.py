"""One page that holds everything: words, tables, data, style and script. It loads nothing from anywhere.

Tables are written here, so that they can be read (and checked) without running the script; the script draws the
pictures. Whatever comes from a file is escaped: in markup by `html.escape`, in data by `payload.encode`.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from itertools import accumulate
from typing import Final

from phalanx.frontends.sim.report.comparison import (
    TableRow,
    by_policy,
    compare,
    ledger_lines,
    say_decimal,
    say_number,
    say_s,
)
from phalanx.frontends.sim.report.csvs import make_tables
from phalanx.frontends.sim.report.facts import Pictures, ReportFacts, Slow
from phalanx.frontends.sim.report.payload import make_payload
from phalanx.frontends.sim.report.tenant_totals import TenantTotals

USERS_SHOWN: Final = 12
#: A curve may be beside the ledger by so much of the capacity without a word: it could not be seen.
_DIFFERENCE_SHOWN: Final = 0.002
_SCRIPTS: Final = ("draw.js", "charts.js", "gantt.js", "telling.js", "page.js")


@dataclass(frozen=True, slots=True)
class Heading:
    """What was run."""

    file: str
    cluster: str
    gangs: str
    seeds: str
    version: str
    command: str
    unit: str  # what the ledger counts: GPU, slot


def make_page(heading: Heading, runs: Sequence[ReportFacts]) -> str:
    """The whole page. The same facts give the same bytes: there is no clock in it."""
    style, script = _read("page.css"), "\n".join(_read(name) for name in _SCRIPTS)
    drawn = [(facts, facts.pictures) for facts in runs if facts.pictures is not None]
    sections = [
        _comparison(heading, runs),
        _ledger(heading, runs),
        _over_time(drawn),
        _gantt(heading, drawn),
        _distributions(),
        _tenants(heading, drawn),
        _slowest(heading, drawn),
        _numbers(runs, drawn),
    ]
    page = (
        "<!doctype html>\n"
        f'<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_content_rules(style, script)}">\n'
        f"<title>{escape(heading.file)} – Phalanx simulation</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f"{_header(heading, runs)}\n<main>\n{''.join(sections)}</main>\n"
        f"<footer>Made by phalanx {escape(heading.version)}. This file is complete: it loads nothing.</footer>\n"
        '<div id="tip" role="status" hidden></div>\n'
        f'<script type="application/json" id="data">{make_payload(runs, heading.unit)}</script>\n'
        f"<script>{script}</script>\n</body>\n</html>\n"
    )
    return page.encode("utf-8", "replace").decode()  # half a character, which no file can hold, becomes a ?


def _read(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _content_rules(style: str, script: str) -> str:
    """Only this style and this script run: a name that slipped through as markup could still do nothing."""
    marks = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    return f"default-src 'none'; style-src 'sha256-{marks[0]}'; script-src 'sha256-{marks[1]}'; base-uri 'none'"


def _header(heading: Heading, runs: Sequence[ReportFacts]) -> str:
    first, last = min(facts.horizon_s[0] for facts in runs), max(facts.horizon_s[1] for facts in runs)
    facts = {
        "cluster": heading.cluster,
        "gangs": heading.gangs,
        "policies": ", ".join(by_policy(runs)),
        "seeds" if len({facts.seed for facts in runs}) > 1 else "seed": heading.seeds,
        "simulated time": say_s(last - first),
        "made by": f"phalanx {heading.version}",
    }
    listed = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in facts.items())
    links = "".join(f'<a href="#{name}">{escape(title)}</a>' for name, title in _TITLES.items())
    return (
        f'<header>\n<p class="brand">Phalanx · simulation report</p>\n<h1>{escape(heading.file)}</h1>\n'
        f'<dl class="run">{listed}</dl>\n<p class="command"><code>{escape(heading.command)}</code></p>\n'
        f'<nav aria-label="Sections">{links}</nav>\n</header>'
    )


_TITLES: Final = {
    "comparison": "Comparison",
    "ledger": "Ledger",
    "over-time": "Over time",
    "gantt": "Gantt",
    "distributions": "Waits",
    "tenants": "Fairness",
    "slowest": "Longest waits",
    "numbers": "CSV",
}


def _section(name: str, title: str, body: str, note: str = "") -> str:
    lead = f'<p class="lead">{note}</p>\n' if note else ""
    return f'<section id="{name}">\n<h2>{escape(title)}</h2>\n{lead}{body}\n</section>\n'


def _table(
    headers: Sequence[str],
    rows: Iterable[Sequence[str]],
    caption: str,
    right: range | None = None,
    kind: str = "",
    groups: Sequence[tuple[str, int]] = (),
) -> str:
    """A table of texts that are already safe. Columns in `right` hold numbers; `groups` are headers over several."""
    numeric = range(1, len(headers)) if right is None else right
    above = "".join(f'<th colspan="{wide}" scope="colgroup" class="over">{escape(text)}</th>' for text, wide in groups)
    kinds = ["n" if column in numeric else "" for column in range(len(headers))]
    for column in accumulate(wide for _, wide in groups[:-1]):
        kinds[column] += " first"  # a gap before every group
    named_by = [f' class="{kind.strip()}"' if kind else "" for kind in kinds]
    head = "".join(f'<th scope="col"{kind}>{escape(text)}</th>' for text, kind in zip(headers, named_by, strict=True))
    body = "".join(f"<tr>{_cells(row, named_by)}</tr>\n" for row in rows)
    named = f' class="{kind}"' if kind else ""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}">'
        f"<table{named}><caption>{escape(caption)}</caption>\n<thead>"
        f"{f'<tr>{above}</tr>' if above else ''}<tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table></div>"
    )


def _cells(row: Sequence[str], kinds: Sequence[str]) -> str:
    first = f'<th scope="row">{row[0]}</th>'
    return first + "".join(f"<td{kind}>{text}</td>" for text, kind in zip(row[1:], kinds[1:], strict=True))


def _lines_table(policies: Sequence[str], lines: Sequence[TableRow], caption: str, kind: str) -> str:
    rows = [
        (escape(line.label), *(f"<b>{escape(c.text)}</b>" if c.best else escape(c.text) for c in line.cells))
        for line in lines
    ]
    return _table(("", *policies), rows, caption, kind=kind)


def _comparison(heading: Heading, runs: Sequence[ReportFacts]) -> str:
    policies = list(by_policy(runs))
    note = "The best of each row is in bold." if len(policies) > 1 else ""
    if len({facts.seed for facts in runs}) > 1:
        note += f" Means over seeds {escape(heading.seeds)}, ± standard deviation."
    table = _lines_table(policies, compare(runs, heading.unit), "Metrics by policy", "compare")
    return _section("comparison", "Comparison", table, note.strip())


def _ledger(heading: Heading, runs: Sequence[ReportFacts]) -> str:
    table = _lines_table(list(by_policy(runs)), ledger_lines(runs), "Shares of the ledger by policy", "parts")
    note = f"Every {escape(heading.unit)}-second of the cluster is in exactly one part; the parts sum to 100 %."
    body = f'<div class="side"><div id="ledger-bars"></div>\n{table}</div>'
    return _section("ledger", f"Where {heading.unit} time went", body, note)


def _over_time(drawn: Sequence[tuple[ReportFacts, Pictures]]) -> str:
    note = "Share of the cluster that was busy, and of it the part that was productive. "
    points = max((len(pictures.usage.at_s) for _, pictures in drawn), default=0)
    note += f"Each step is a mean over its time; at most {points - 1} steps." if points else ""
    differs = max((pictures.usage.differs for _, pictures in drawn), default=0.0)
    if differs > _DIFFERENCE_SHOWN:
        note += f" When time was productive is worked out from the histories; its sum is {100 * differs:.1f} % of "
        note += "capacity beside that of the ledger, which is exact."
    return _section("over-time", "Utilization and goodput over time", '<div id="usage"></div>', note)


def _gantt(heading: Heading, drawn: Sequence[tuple[ReportFacts, Pictures]]) -> str:
    body = '<div id="gantt-view"></div>'
    note = (
        f"By node: time to the right, {escape(heading.unit)}s of the nodes downwards. By gang: one row each, with its "
        "waiting. Drag to pan, Ctrl and wheel or the buttons to zoom; point at anything to read about it."
    )
    return _section("gantt", "Who ran when and where", body, note)


def _distributions() -> str:
    body = '<div class="pair"><div id="wait-cdf"></div><div id="completion-cdf"></div></div>'
    note = (
        "Share of all gangs that waited, or took from submit to end, at most so long. "
        "A curve that stays below 100 % means gangs that never got there."
    )
    return _section("distributions", "Waits and completion times", body, note)


def _tenants(heading: Heading, drawn: Sequence[tuple[ReportFacts, Pictures]]) -> str:
    policies = [facts.policy for facts, _ in drawn]
    parts = []
    if any(pictures.queue_at_s for _, pictures in drawn):
        parts.append('<div id="queues" class="grid"></div>')
        names = dict.fromkeys(queue.standing.name for _, pictures in drawn for queue in pictures.queues)
        known = [{queue.standing.name: queue.standing for queue in pictures.queues} for _, pictures in drawn]
        parts.append(_standing_table("queue", list(names), known, policies, heading.unit))
    users = [{user.name: user for user in pictures.users} for _, pictures in drawn]
    names = dict.fromkeys(user.name for user in drawn[0][1].users) if drawn else {}
    parts.append(_standing_table("user", list(names)[:USERS_SHOWN], users, policies, heading.unit))
    note = ""
    if len(names) > USERS_SHOWN:
        note = f"Users: the {USERS_SHOWN} with most {escape(heading.unit)} time of {len(names)}; all are in users.csv."
    return _section("tenants", "Fairness", "\n".join(parts), note)


def _standing_table(
    what: str, names: Sequence[str], known: Sequence[Mapping[str, TenantTotals]], policies: Sequence[str], unit: str
) -> str:
    """Slowdown, wait and device time of each name under each policy: a group of columns for each."""
    words = ("mean bounded slowdown", "mean wait", f"{unit}-hours")
    groups = [("", 2), *((word, len(policies)) for word in words)] if len(policies) > 1 else []
    headers = [what, "gangs", *([*policies] * 3 if len(policies) > 1 else words)]
    rows = []
    for name in names:
        each = [by.get(name, TenantTotals(name)) for by in known]
        rows.append(
            (
                escape(name or "(none)"),
                f"{max(standing.gangs for standing in each):,}",
                *(say_decimal(standing.slowdown_mean) if standing.completed else "–" for standing in each),
                *(say_s(standing.wait_s_mean) if standing.started else "–" for standing in each),
                *(say_number(round(standing.device_s / 3600, 1)) for standing in each),
            )
        )
    return _table(headers, rows, f"By {what}: {', '.join(words)}", groups=groups)


def _slowest(heading: Heading, drawn: Sequence[tuple[ReportFacts, Pictures]]) -> str:
    parts = []
    for place, (facts, pictures) in enumerate(drawn):
        headers = ("gang", "wait", "members", f"{heading.unit}s needed", "left", "user", "queue", "state", "why")
        told = any(slow.code for slow in pictures.slowest)
        rows = [_slow_row(slow)[: None if told else -1] for slow in pictures.slowest]
        caption = f"Longest waits under {facts.policy}"
        table = _table(headers[: None if told else -1], rows, caption, right=range(1, 5), kind="slow")
        opened = " open" if place == 0 else ""
        body = table if rows else "<p>Nobody waited.</p>"
        parts.append(f"<details{opened}><summary>{escape(facts.policy)}</summary>\n{body}</details>")
    note = (
        f"Left: {escape(heading.unit)}s in service that nobody held when the gang could first have started. "
        "If that was enough, it was places, order or a limit that kept it."
    )
    return _section("slowest", "Longest waits", "\n".join(parts), note)


def _slow_row(slow: Slow) -> tuple[str, ...]:
    return (
        escape(slow.name),
        say_s(slow.wait_s) if slow.started else f"{say_s(slow.wait_s)} so far",
        *(f"{slow.members:,}", say_number(slow.needed), say_number(slow.unused)),
        *(escape(slow.user or "–"), escape(slow.queue), escape(slow.state)),
        escape(f"{slow.why} ({slow.code})" if slow.code else "–"),
    )


def _numbers(runs: Sequence[ReportFacts], drawn: Sequence[tuple[ReportFacts, Pictures]]) -> str:
    """Tables to download, each in the page as gzip in base64: no other way makes megabytes of rows small."""
    packed = {name: gzip.compress(text.encode("utf-8", "backslashreplace"), mtime=0)
              for name, text in make_tables(runs).items()}  # fmt: skip
    for facts, pictures in drawn:
        name = f"gangs-{_file_word(facts.policy)}"
        while f"{name}.csv" in packed:
            name += "-2"  # two labels that differ in letters a file name cannot have
        packed[f"{name}.csv"] = pictures.gangs_csv
    buttons, blocks = [], []
    for name, data in packed.items():
        buttons.append(f'<button type="button" class="csv" data-csv="{name}">{name}</button>')
        text = base64.b64encode(data).decode()
        blocks.append(f'<script type="application/octet-stream" data-name="{name}">{text}</script>')
    note = "Every number of this page, and every gang of every run, to open elsewhere."
    return _section("numbers", "Numbers as CSV", f'<p class="buttons">{"".join(buttons)}</p>\n{"".join(blocks)}', note)


def _file_word(policy: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", policy)
