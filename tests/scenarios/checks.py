"""The language in which `expect.yaml` says what must be true of a run.

A check is a mapping. With `gang` it speaks of that gang, one entry per property; without, it speaks
of the whole run. Numbers are equal to a millisecond, null means absent, and text may be ">=60",
"<60", "!=3", "10..20" (both ends in) or "pending|running". The meaning is that of the published
contract's runner; the words are ours.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from phalanx.control.spec.hostlist import expand_hosts

Json = Mapping[str, Any]

MILLISECOND = 1e-3
_ENDED = {"completed", "failed", "cancelled"}
_EVICTED = re.compile("evict|preempt|reclaim|requeue", re.IGNORECASE)
_NOT_EVICTED = {"lose", "fail", "restart", "yield"}
_RANGE = re.compile(r"(-?[\d.]+)\.\.(-?[\d.]+)")
_BOUND = re.compile(r"(>=|<=|>|<|!=)\s*(-?[\d.]+)")
_SLACK = {">=": -MILLISECOND, "<=": MILLISECOND, ">": MILLISECOND, "<": -MILLISECOND}
_COMPARE = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}


class Outcome:
    """What one policy made of one scenario, as its JSON tells it."""

    def __init__(self, result: Json, scenario: Json) -> None:
        self.metrics: Json = result["metrics"]
        self.gangs: dict[str, Json] = {gang["name"]: gang for gang in result["gangs"]}
        self.asked: dict[str, Json] = {gang["name"]: gang for gang in scenario["gangs"]}
        self.queues: list[Json] = scenario.get("queues") or []
        self.nodes: dict[str, Json] = {
            name: node for node in scenario["cluster"]["nodes"] for name in expand_hosts(node["name"])
        }

    def label(self, node: str, level: str) -> str | None:
        return node if level == "node" else (self.nodes.get(node, {}).get("labels") or {}).get(level)

    def stays(self, name: str) -> list[tuple[float, float, int, Json]]:
        """From when, until when, how many members, where: every stretch between two changes."""
        gang, history = self.gangs[name], self.gangs[name]["history"]
        last = math.inf if gang["end_s"] is None else gang["end_s"]
        ends = [*(entry["at_s"] for entry in history), last][1:]
        spells = [
            (entry["at_s"], end, entry["members"], entry["placement"]) for entry, end in zip(history, ends, strict=True)
        ]
        return [spell for spell in spells if spell[1] > spell[0]]

    def placements(self, name: str, start: float = -math.inf, stop: float = math.inf) -> list[Json]:
        return [where for since, until, _, where in self.stays(name) if where and since < stop and until > start]

    def members_at(self, name: str, at: float) -> int:
        return sum(members for since, until, members, _ in self.stays(name) if since <= at + 1e-6 and at < until)

    def evicted(self, name: str) -> bool:
        gang = self.gangs[name]
        last = gang["end_s"] if gang["state"] in _ENDED else None
        return any(
            _EVICTED.search(entry["event"])
            or (not entry["members"] and entry["event"] not in _NOT_EVICTED and (last is None or entry["at_s"] < last))
            for entry in gang["history"]
        )

    def queue_gangs(self, queue: str) -> list[str]:
        inside = {queue}
        for _ in self.queues:
            inside |= {each["name"] for each in self.queues if each.get("parent") in inside}
        return [name for name, gang in self.asked.items() if gang.get("queue") in inside]

    def starts(self, names: Iterable[str]) -> list[float | None]:
        return [self.gangs[name]["start_s"] for name in names]


def matches(seen: Any, want: Any) -> bool:
    """Whether a value is what a check asks for."""
    if seen is None or want is None:
        return seen is want
    if isinstance(want, str):
        return _matches_text(seen, want)
    if isinstance(want, list | dict) or isinstance(seen, list | dict):
        return bool(seen == want)
    return abs(seen - want) <= MILLISECOND


def _matches_text(seen: Any, want: str) -> bool:
    if found := _RANGE.fullmatch(want):
        return bool(float(found[1]) - MILLISECOND <= seen <= float(found[2]) + MILLISECOND)
    if found := _BOUND.fullmatch(want):
        bound = float(found[2])
        if found[1] == "!=":
            return abs(seen - bound) > MILLISECOND
        return bool(_COMPARE[found[1]](seen, bound + _SLACK[found[1]]))
    return seen in want.split("|")


def find_misses(result: Json, scenario: Json, checks: Iterable[Json]) -> list[str]:
    """Every check that does not hold, with what was seen instead."""
    outcome = Outcome(result, scenario)
    return [f"{check}: saw {seen}" for check in checks for seen in _misses(outcome, check)]


def _misses(outcome: Outcome, check: Json) -> list[object]:
    if "gang" in check:
        answers = [GANG[kind](outcome, check["gang"], want) for kind, want in check.items() if kind != "gang"]
    else:
        (kind,) = [kind for kind in check if kind in WHOLE]
        answers = [WHOLE[kind](outcome, check[kind], check)]
    return [seen for holds, seen in answers if not holds]


# ---- of one gang: (outcome, gang, wanted) → whether it holds, and what was seen

Answer = tuple[bool, object]


def _field(key: str) -> Callable[[Outcome, str, Any], Answer]:
    return lambda outcome, name, want: (matches(outcome.gangs[name][key], want), f"{key} {outcome.gangs[name][key]}")


def _date(key: str) -> Callable[[Outcome, str, Any], Answer]:
    """What was said of its date; null: nothing was."""

    def check(outcome: Outcome, name: str, want: Any) -> Answer:
        seen = (outcome.gangs[name].get("date") or {}).get(key)
        return matches(seen, want), seen

    return check


def _gang_members_at(outcome: Outcome, name: str, want: Json) -> Answer:
    seen = outcome.members_at(name, want["t"])
    return matches(seen, want["n"]), f"{seen} members"


def _members_in(outcome: Outcome, name: str, want: list[int]) -> Answer:
    seen = [entry["members"] for entry in outcome.gangs[name]["history"] if entry["members"]]
    return bool(seen) and set(seen) <= set(want), f"sizes {seen}"


def _same_domain(outcome: Outcome, name: str, level: str) -> Answer:
    seen = [{outcome.label(node, level) for node in where} for where in outcome.placements(name)]
    return bool(seen) and all(len(domains) == 1 and None not in domains for domains in seen), seen


def _only_on(outcome: Outcome, name: str, hosts: list[str]) -> Answer:
    seen = outcome.placements(name)
    return bool(seen) and all(set(where) <= _expand(hosts) for where in seen), seen


def _never_on(outcome: Outcome, name: str, want: Any) -> Answer:
    spell = want if isinstance(want, dict) else {"nodes": want}
    seen = outcome.placements(name, spell.get("from", -math.inf), spell.get("to", math.inf))
    return not any(set(where) & _expand(spell["nodes"]) for where in seen), seen


def _nodes_max(outcome: Outcome, name: str, most: int) -> Answer:
    seen = [len(where) for where in outcome.placements(name)]
    return bool(seen) and max(seen) <= most, f"{seen} nodes"


def _placed(outcome: Outcome, name: str, want: Json) -> Answer:
    """Where it sits first, all of it."""
    seen = next(iter(outcome.placements(name)), {})
    return dict(seen) == want, seen


def _evicted(outcome: Outcome, name: str, want: bool) -> Answer:
    return outcome.evicted(name) is want, [entry["event"] for entry in outcome.gangs[name]["history"]]


def _has_reason(outcome: Outcome, name: str, want: bool) -> Answer:
    reason = outcome.gangs[name]["reason"]
    return bool(reason and reason["code"] and reason["message"]) is want, f"reason {reason}"


def _starts_after_end_of(outcome: Outcome, name: str, other: str) -> Answer:
    start, end = outcome.gangs[name]["start_s"], outcome.gangs[other]["end_s"]
    return start is None or (end is not None and start >= end - MILLISECOND), f"start {start}, end of {other} {end}"


def _history(outcome: Outcome, name: str, want: list[str]) -> Answer:
    """These events happened in this order; others may stand between them."""
    seen = [entry["event"] for entry in outcome.gangs[name]["history"]]
    rest = iter(seen)
    return all(event in rest for event in want), seen


def _never(outcome: Outcome, name: str, banned: list[str]) -> Answer:
    seen = [entry["event"] for entry in outcome.gangs[name]["history"]]
    return not set(seen) & set(banned), seen


def _held_at(outcome: Outcome, name: str, want: Json) -> Answer:
    """Seats kept for a hurt gang, by its newest entry at that time."""
    told = [entry.get("held") or {} for entry in outcome.gangs[name]["history"] if entry["at_s"] <= want["t"] + 1e-6]
    seen = sum(told[-1].values()) if told else 0
    return matches(seen, want["n"]), f"{seen} held"


GANG: Mapping[str, Callable[[Outcome, str, Any], Answer]] = {
    **{key: _field(key) for key in ("start_s", "end_s", "wait_s", "state")},
    "members_at": _gang_members_at,
    "members_in": _members_in,
    "same_domain": _same_domain,
    "only_on": _only_on,
    "never_on": _never_on,
    "nodes_max": _nodes_max,
    "placed": _placed,
    "evicted": _evicted,
    "has_reason": _has_reason,
    "starts_after_end_of": _starts_after_end_of,
    "history": _history,
    "never": _never,
    "held_at": _held_at,
    "promised": _date("promised"),
    "earliest_s": _date("earliest_s"),
}


# ---- of the whole: (outcome, wanted, check) → whether it holds, and what was seen


def _metric(outcome: Outcome, name: str, check: Json) -> Answer:
    seen = outcome.metrics.get(name)
    return seen is not None and matches(seen, check["value"]), seen


def _sum_members_at(outcome: Outcome, want: Json, _: Json) -> Answer:
    names = want.get("gangs") or outcome.queue_gangs(want["queue"])
    seen = sum(outcome.members_at(name, want["t"]) for name in names)
    return matches(seen, want.get("n", seen)) and want.get("min", seen) <= seen <= want.get("max", seen), seen


def _order(outcome: Outcome, names: list[str], _: Json) -> Answer:
    seen = [math.inf if start is None else start for start in outcome.starts(names)]
    return all(map(operator.lt, seen, seen[1:])), seen


def _same_start(outcome: Outcome, names: list[str], _: Json) -> Answer:
    seen = outcome.starts(names)
    return len(set(seen)) == 1 and None not in seen, seen


def _starts_sorted(outcome: Outcome, want: Json, _: Json) -> Answer:
    seen = sorted(start for start in outcome.starts(want["gangs"]) if start is not None)
    return len(seen) == len(want["values"]) and all(map(matches, seen, want["values"])), seen


def _started_by(outcome: Outcome, want: Json, _: Json) -> Answer:
    starts = outcome.starts(want.get("gangs") or outcome.asked)
    seen = sum(start is not None and start <= want["t"] for start in starts)
    return matches(seen, want["n"]), seen


def _evicted_of(outcome: Outcome, want: Json, _: Json) -> Answer:
    seen = [name for name in want["gangs"] if outcome.evicted(name)]
    return matches(len(seen), want["n"]), seen


def _all_state(outcome: Outcome, want: str, _: Json) -> Answer:
    odd = {name: gang["state"] for name, gang in outcome.gangs.items() if not matches(gang["state"], want)}
    return not odd, odd


def _reason(outcome: Outcome, want: Json, _: Json) -> Answer:
    reason = outcome.gangs[want["gang"]]["reason"] or {"code": ""}
    return any(word in reason["code"].lower() for word in want["code_in"]), reason


def _within_capacity(outcome: Outcome, _want: bool, _: Json) -> Answer:
    """Of gangs of one role and plain numbers: no node ever gives more than it has."""
    for at in sorted({entry["at_s"] for gang in outcome.gangs.values() for entry in gang["history"]}):
        given: dict[tuple[str, str], float] = {}
        for name, gang in outcome.asked.items():
            for where in outcome.placements(name, at, at + 1e-6):
                for node, members in where.items():
                    for kind, amount in gang.get("each", {}).items():
                        if isinstance(amount, int | float):
                            given[node, kind] = given.get((node, kind), 0) + members * amount
        over = {
            key: total
            for key, total in given.items()
            if total > outcome.nodes[key[0]]["resources"].get(key[1], 0) + 1e-6
        }
        if over:
            return False, f"{over} at {at}"
    return True, None


def _ledger(outcome: Outcome, want: Json, _: Json) -> Answer:
    """The parts named, by value; and all parts but the capacity sum to it, whichever are named."""
    seen = outcome.metrics["ledger_gpu_s"]
    rest = math.fsum(amount for part, amount in seen.items() if part != "capacity")
    sums = abs(rest - seen["capacity"]) <= 1e-9 * max(1.0, seen["capacity"])
    return sums and all(matches(seen.get(part), amount) for part, amount in want.items()), seen


def _events_of(outcome: Outcome, want: Json, _: Json) -> Answer:
    """How often something happened to these gangs, all together."""
    told = [entry["event"] for name in want["gangs"] for entry in outcome.gangs[name]["history"]]
    return matches(told.count(want["event"]), want["n"]), told


WHOLE: Mapping[str, Callable[[Outcome, Any, Json], Answer]] = {
    "metric": _metric,
    "sum_members_at": _sum_members_at,
    "order": _order,
    "same_start": _same_start,
    "starts_sorted": _starts_sorted,
    "started_by": _started_by,
    "evicted_of": _evicted_of,
    "all_state": _all_state,
    "reason": _reason,
    "within_capacity": _within_capacity,
    "ledger": _ledger,
    "events_of": _events_of,
}


def _expand(hosts: Iterable[str]) -> set[str]:
    return {name for each in hosts for name in expand_hosts(each)}
