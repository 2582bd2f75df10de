"""The data that a page draws from, as JSON that is safe inside a script element."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from phalanx.control.spec.quantity import SECOND_US
from phalanx.frontends.sim.printing import LEDGER_WORDS
from phalanx.frontends.sim.report.cdf import Curve
from phalanx.frontends.sim.report.comparison import PARTS, by_policy, ledger_of
from phalanx.frontends.sim.report.device_layout import Boxes, Shade
from phalanx.frontends.sim.report.facts import Pictures, ReportFacts
from phalanx.frontends.sim.report.run_picture import Picture, Tooltip
from phalanx.frontends.sim.report.steps import IntArray


def make_payload(runs: Sequence[ReportFacts], unit: str) -> str:
    """One JSON text for all runs that have pictures."""
    drawn = [(facts, facts.pictures) for facts in runs if facts.pictures is not None]
    ledgers = {policy: ledger_of(group) for policy, group in by_policy(runs).items()}
    parts = dict.fromkeys((*PARTS, *(part for ledger in ledgers.values() for part in ledger)))
    return encode(
        {
            "unit": unit,
            "horizon": [min(facts.horizon_s[0] for facts in runs), max(facts.horizon_s[1] for facts in runs)],
            "parts": [[part, LEDGER_WORDS.get(part, part.replace("_", " "))] for part in parts],
            "ledgers": [[policy, [ledger.get(part, 0) for part in parts]] for policy, ledger in ledgers.items()],
            "runs": [_run(facts, pictures) for facts, pictures in drawn],
        }
    )


def encode(value: object) -> str:
    """JSON in ASCII without any character that could end the element it stands in."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _run(facts: ReportFacts, pictures: Pictures) -> dict[str, object]:
    usage = pictures.usage
    return {
        "policy": facts.policy,
        "seed": facts.seed,
        "gangs": facts.gangs,
        "usage": {
            "t": _short(usage.at_s),
            "capacity": _short(usage.capacity),
            "busy": _short(usage.busy),
            "productive": _short(usage.productive),
        },
        "waits": _curve(pictures.waits),
        "completions": _curve(pictures.completions),
        "queueT": _short(pictures.queue_at_s),
        "queues": [
            {
                "name": queue.standing.name,
                "levels": _short(queue.levels),
                "guarantee": queue.guarantee,
                "entitlement": queue.entitlement,
                "limit": queue.limit,
            }
            for queue in pictures.queues
        ],
        "picture": _picture(pictures.picture),
    }


def _curve(curve: Curve) -> dict[str, object]:
    return {"x": _short(curve.x), "y": [round(y, 6) for y in curve.y]}


@dataclass(slots=True)
class _Words:
    """Texts that repeat, each once; elsewhere stands its number."""

    words: dict[str, int] = field(default_factory=dict)

    def number(self, word: str) -> int:
        """Of this word."""
        return self.words.setdefault(word, len(self.words))


def _picture(picture: Picture) -> dict[str, object]:
    words = _Words()
    told = [_told(gang, words) for gang in picture.told]
    units = [units for _, units in picture.nodes]
    grain = math.gcd(*units, *_bounds(picture.boxes)) or 1
    found: dict[str, object] = {
        "nodes": [name for name, _ in picture.nodes],
        "heights": [each // grain for each in units],
        "boxes": None if picture.boxes is None else _boxes(picture.boxes, grain),
        "boxesAll": picture.boxes_all,
        "share": round(picture.share_drawn, 4),
        "shade": None if picture.shade is None else _shade(picture.shade),
        "marks": [[mark.node, _time(mark.start_us), _time(mark.end_us), mark.what] for mark in picture.marks],
        "rows": [
            [row.gang, [[*_short([start, end]), what, members] for start, end, what, members in row.stretches]]
            for row in picture.rows
        ],
        "gangsAll": picture.gangs_all,
        "told": told,
    }
    found["words"] = list(words.words)
    return found


def _told(gang: Tooltip, words: _Words) -> list[object]:
    """A list, since there are thousands of them; the page's script names the places."""
    return [
        *(gang.name, words.number(gang.user), words.number(gang.queue), words.number(gang.state)),
        *(_number(value) for value in (gang.submit_s, gang.start_s, gang.end_s, gang.wait_s)),
        *(gang.members, gang.members_max, _number(gang.needed), _number(gang.unused), words.number(gang.why)),
        *([[_number(at), words.number(event), members] for at, event, members in gang.story] for _ in gang.story[:1]),
    ]


def _bounds(boxes: Boxes | None) -> list[int]:
    if boxes is None:
        return []
    found: IntArray = np.unique(np.concatenate((boxes.top, boxes.bottom)))
    return [int(each) for each in found]


def _boxes(boxes: Boxes, grain: int) -> Mapping[str, object]:
    return {
        "gang": boxes.gang.tolist(),
        "runs": boxes.runs.tolist() if not boxes.runs.all() else None,
        "top": (boxes.top // grain).tolist(),
        "height": ((boxes.bottom - boxes.top) // grain).tolist(),
        "start": [_time(each) for each in boxes.start_us.tolist()],
        "length": [_time(each) for each in (boxes.end_us - boxes.start_us).tolist()],
    }


def _shade(shade: Shade) -> Mapping[str, object]:
    levels = np.ceil(np.clip(shade.shares, 0.0, 1.0) * 255).astype(np.uint8)
    return {
        "rows": levels.shape[0],
        "columns": levels.shape[1],
        "start": _time(shade.start_us),
        "end": _time(shade.end_us),
        "levels": base64.b64encode(levels.tobytes()).decode(),
    }


def _time(us: int) -> float:
    """Seconds with at most three decimals: finer is no picture."""
    return _number(us / SECOND_US) or 0


def _short(values: Sequence[float]) -> list[float]:
    return [_number(value) or 0 for value in values]


def _number(value: float | None) -> float | None:
    if value is None:
        return None
    rounded = round(value, 3)
    return int(rounded) if rounded == int(rounded) else rounded
