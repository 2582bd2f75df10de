"""The jobs of ElasticFlow and Sia under our policies, beside what the two reach on their own simulators."""

from __future__ import annotations

import gzip
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.losers import Course, find_worst, read_courses, tell
from bench.measure import Measured, Skipped, find_log, nearest_rank
from bench.peers import SETS, Figures, PeerSet, Wanted

NAME = "elastic-peers"
WHAT = "public jobs of ElasticFlow and Sia (elastic, most with dates): what is wanted of goodput beside what they reach"
POLICIES = ("goodput", "deadline", "easy")
#: Whose figures are wanted, and whose losers are shown.
JUDGED = "goodput"
QUICK_SET, QUICK_POLICIES = "elasticflow-fig10", (JUDGED,)
LOSERS = 3
HEAD = f"{'':<22}{'met':>5}{'ended':>7}{'completion':>12}{'p99':>11}{'makespan':>12}{'resizes':>9}{'CPU-s':>7}  wanted"


def run(*, quick: bool) -> Measured | Skipped:
    """Every set under every policy; the row stands for how many of the wanted figures `goodput` reaches."""
    sets = [each for each in SETS if not quick or each.name == QUICK_SET]
    logs = {each.name: find_log(f"elastic-peers/{each.name}.json.gz") for each in sets}
    absent = next((log for log in logs.values() if isinstance(log, Skipped)), None)
    if absent is not None:
        return absent
    lines: list[str] = []
    verdicts: list[bool] = []
    with tempfile.TemporaryDirectory() as folder:
        for each in sets:
            file = unpack(Path(str(logs[each.name])), Path(folder))
            scenario = json.loads(file.read_text(encoding="utf-8"))
            runs = {policy: simulate(file, policy) for policy in (QUICK_POLICIES if quick else POLICIES)}
            ours = [measure(policy, result, cpu_s) for policy, (result, cpu_s) in runs.items()]
            lines += [f"{each.name}: {describe(scenario)} on {each.cluster}", *tabulate(each, ours)]
            lines += tell_worst(read_courses(scenario, runs[JUDGED][0]["gangs"]))
            verdicts += [wanted.is_met(ours[0]) for wanted in each.wanted]
    value = f"{sum(verdicts)} of {len(verdicts)} as wanted"
    return Measured(value, f"all {len(verdicts)}", all(verdicts), "\n".join(lines))


def unpack(log: Path, folder: Path) -> Path:
    """The scenario as a plain file, which is what the command reads."""
    file = folder / log.name.removesuffix(".gz")
    file.write_bytes(gzip.decompress(log.read_bytes()))
    return file


def simulate(file: Path, policy: str) -> tuple[dict[str, Any], float]:
    """The result of the whole command, and its CPU-seconds."""
    phalanx = Path(sys.executable).with_name("phalanx")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [str(phalanx), "sim", str(file), "--policy", policy, "--json"]
    done = subprocess.run(command, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    result: dict[str, Any] = json.loads(done.stdout)[0]
    return result, cpu_s


def measure(policy: str, result: Mapping[str, Any], cpu_s: float) -> Figures:
    """One run as the peers' are told; times are those of gangs that ended, as theirs are."""
    metrics = result["metrics"]
    took = [gang["end_s"] - gang["submit_s"] for gang in result["gangs"] if gang["end_s"] is not None]
    return Figures(
        policy,
        met=metrics["deadlines_met"],
        ended=len(took),
        completion_s=sum(took) / max(1, len(took)),
        p99_s=nearest_rank(took, 99) if took else None,
        makespan_s=metrics["makespan_s"],
        resizes=metrics["resizes"],
        cpu_s=cpu_s,
    )


def describe(scenario: Mapping[str, Any]) -> str:
    """How many jobs, and how many dates anybody could meet: no policy reaches more."""
    gangs = scenario["gangs"]
    dated = [gang for gang in gangs if "deadline" in gang]
    alone = sum(gang.get("startup", 0) + gang["duration"] <= gang["deadline"] for gang in dated)
    return f"{len(gangs)} jobs" + (f", {alone} of {len(dated)} dates can be met by a job alone" if dated else "")


def tabulate(each: PeerSet, ours: Sequence[Figures]) -> list[str]:
    """One set: our policies, then the peers."""
    dated = any(wanted.figure == "met" for wanted in each.wanted)
    lines = [HEAD]
    for figures in (*ours, *each.peers):
        verdict = tell_verdict(each.wanted, figures) if figures.name == JUDGED else ""
        met = _number(figures.met) if dated else "–"
        cells = (
            f"{figures.name:<22}{met:>5}{_number(figures.ended):>7}{_number(figures.completion_s):>12}"
            f"{_number(figures.p99_s):>11}{_number(figures.makespan_s):>12}{_number(figures.resizes):>9}"
            f"{_number(figures.cpu_s, 1):>7}"
        )
        lines.append(f"{cells}  {verdict}".rstrip())
    return lines


def tell_verdict(wanted: Sequence[Wanted], figures: Figures) -> str:
    """Each bound with whether it was reached."""
    said = []
    for each in wanted:
        name, sign = each.figure.removesuffix("_s"), "≥" if each.figure == "met" else "≤"
        said.append(f"{'better' if each.is_met(figures) else 'WORSE'}: {name} {sign} {each.bound:,.0f}")
    return ", ".join(said)


def tell_worst(courses: Sequence[Course]) -> list[str]:
    """The few that fared worst, each with its sizes over time; then a line of space."""
    worst = [f"  {tell(course)}" for course in find_worst(courses, LOSERS)]
    said = f"worst under {JUDGED}, members from so long after submit on:" if worst else "nobody who ran missed a date"
    return [said, *worst, ""]


def _number(value: float | None, digits: int = 0) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"
