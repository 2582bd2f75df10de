"""Reports: queues, the machine, how somebody stands, where the device time went, how good estimates were, gauges."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, Protocol

import msgspec

from phalanx.control.amounts import least_devices
from phalanx.control.queue_view import find_entitled
from phalanx.frontends.host.core.jobs import Job
from phalanx.frontends.host.core.knowledge import Knowledge
from phalanx.frontends.host.core.processes import Processes
from phalanx.frontends.host.core.rows import Rows, seated
from phalanx.frontends.host.messages import DeviceRow, DeviceUse, NodeRow, QueueRow
from phalanx.frontends.host.ports import Caller, Device, DeviceReading
from phalanx.frontends.host.service import Figures
from phalanx.frontends.host.store import VOID_US, EstimateRecord, JobRecord
from phalanx.frontends.host.stranger_watch import Stranger
from phalanx.model.fleet import IntArray
from phalanx.model.queue import ROOT
from phalanx.model.resources import DEVICE_KIND, MILLI, units_per_whole
from phalanx.words import gpus, number

Ledger = Mapping[str, float]
Groups = dict[tuple[object, ...], dict[str, Any]]
DeviceState = Literal["free", "busy", "stranger", "quarantined", "gone"]

#: Ended jobs that a report reads at most; what is older is left out and the report says so.
RECORDS_MOST: Final = 20_000
ESTIMATES_SHOWN: Final = 100
QUARANTINED: Final = "quarantined"


class Watched(Protocol):
    """The devices as they were read last."""

    @property
    def readings(self) -> Mapping[int, DeviceReading]: ...  # noqa: D102

    def stranger(self, device: int) -> Stranger | None: ...  # noqa: D102


def open_ledger(job: Job, now_us: int) -> dict[str, float]:
    """Device time of a running attempt so far, which is booked only when it ends; all of it counts as kept."""
    live, devices = job.live, _held(job)
    if live is None or live.started_us is None or not devices:
        return {}
    works_us = min(now_us, max(live.started_us, live.first_step_us or live.started_us))
    parts = {"startup": works_us - live.started_us, "productive": now_us - works_us}
    return {part: devices * span_us / 1e6 for part, span_us in parts.items() if span_us > 0}


def sum_up(*ledgers: Ledger) -> dict[str, float]:
    """Ledgers added, part by part."""
    total: dict[str, float] = {}
    for ledger in ledgers:
        for part, value in ledger.items():
            total[part] = total.get(part, 0.0) + value
    return total


class Reports:
    """Answers about everybody."""

    def __init__(self, known: Knowledge, processes: Processes, rows: Rows) -> None:
        """Knows nothing of its own."""
        self.known, self.processes = known, processes
        self.rows = rows

    # ------------------------------------------------------------------ queues

    def queues(self) -> list[QueueRow]:
        """Every queue with its rights and what it uses; what those below it use is part of that."""
        columns = self.known.planner.state.show_queues()
        counts = self._count_jobs()
        return [
            QueueRow(
                name=name,
                parent=columns.names[columns.parent[row]] if columns.parent[row] >= 0 else "",
                weight=float(columns.weight[row]),
                guarantee=self._amounts(columns.guarantee[row], 1),
                limit=self._amounts(columns.limit[row], 0),
                used=self._amounts(columns.usage[row], 1),
                pending=counts.get((name, "pending"), 0),
                running=counts.get((name, "running"), 0),
            )
            for row, name in enumerate(columns.names)
            if name != ROOT
        ]

    def _count_jobs(self) -> dict[tuple[str, str], int]:
        """Jobs that wait and jobs that hold seats, by queue."""
        counts: dict[tuple[str, str], int] = {}
        for job in self.known.register:
            if not job.ended:
                key = job.queue, "pending" if job.state == "pending" else "running"
                counts[key] = counts.get(key, 0) + 1
        return counts

    def _amounts(self, units: IntArray, least: int) -> dict[str, Any]:
        """Engine units as people write them; cells below `least` are left out."""
        kinds = self.known.planner.state.fleet.kinds
        return {kind: _whole(kind, cell) for kind, cell in zip(kinds, units.tolist(), strict=True) if cell >= least}

    # ------------------------------------------------------------------ the machine

    def nodes(self, watched: Watched) -> list[NodeRow]:
        """The machine with every device, who has it, and who uses it without having asked."""
        state = self.known.planner.state
        node, columns = state.fleet.nodes[0], state.show_nodes()
        return [
            NodeRow(
                name=self.known.node,
                resources={kind: _whole(kind, units) for kind, units in node.resources.items()},
                free=self._amounts(columns.free[0], 0),
                labels=dict(node.labels),
                open=bool(columns.open[0] and columns.up[0]),
                containment=str(getattr(self.processes.launcher, "containment", "")),
                devices=[self._device(device, watched) for device in self.known.devices],
            )
        ]

    def _device(self, device: Device, watched: Watched) -> DeviceRow:
        index = device.index
        reading = watched.readings.get(index, DeviceReading())
        stranger = watched.stranger(index)
        uses = self._list_uses(index)
        first = uses[0] if uses else None
        state = self._device_state(index, reading, stranger)
        user = None if first is None else first.user
        if state == "stranger" and stranger is not None:
            user = stranger.user or None
        pids = [use.pid for use in uses if use.pid is not None] or [use.pid for use in reading.uses]
        return DeviceRow(
            index=index,
            uuid=device.uuid,
            model=device.model,
            memory_bytes=device.memory_bytes,
            island=device.island,
            state=state,
            job=None if first is None else first.job,
            rank=None if first is None else first.rank,
            user=user,
            pids=list(stranger.pids) if state == "stranger" and stranger is not None else pids,
            utilization=reading.utilization,
            memory_used_bytes=reading.memory_used_bytes,
            uses=uses,
        )

    def _list_uses(self, index: int) -> list[DeviceUse]:
        """Everybody who has a part of a device."""
        found = []
        for run, key in self.known.occupancy.users(index):
            job = self.known.register.by_id.get(int(run.partition(".")[0]))
            if job is not None:
                lives = (live for live in (job.live, job.next) if live is not None and live.run == run)
                member = next((live.members[key] for live in lives if key in live.members), None)
                share = self.known.occupancy.share(index, run, key) / MILLI
                place = (None, None) if member is None else (member.rank, member.pid)
                found.append(DeviceUse(job.id, place[0], job.user, share, place[1]))
        return found

    def _device_state(self, index: int, reading: DeviceReading, stranger: Stranger | None) -> DeviceState:
        closed = self.known.occupancy.closed.get(index, "")
        if not reading.present:
            return "gone"
        if closed.startswith(QUARANTINED):
            return "quarantined"
        if self.known.occupancy.users(index):
            return "busy"
        return "stranger" if closed or stranger is not None else "free"

    # ------------------------------------------------------------------ shares

    def share(self, caller: Caller) -> dict[str, Any]:
        """How somebody stands, in a sentence and in numbers."""
        state = self.known.planner.state
        snapshot = state.borrow()
        columns = state.show_queues()
        entitled = columns.guarantee  # before anybody has asked for anything
        if snapshot.forms:
            entitled = find_entitled(state, self.known.planner.policy)
        mine = {job.queue for job in self.known.register if job.uid == caller.uid and not job.ended}
        listed = [row for row, name in enumerate(columns.names) if name in mine] or [columns.names.index("default")]
        rows = []
        for row in listed:
            used, own = columns.usage[row], entitled[row]
            parts = [int(a) / int(b) for a, b in zip(used, own, strict=True) if b]
            rows.append(
                {
                    "name": columns.names[row],
                    "used": self._amounts(used, 1),
                    "guarantee": self._amounts(columns.guarantee[row], 1),
                    "limit": self._amounts(columns.limit[row], 0),
                    "weight": float(columns.weight[row]),
                    "entitled": self._amounts(own, 1),
                    "share": round(max(parts, default=0.0), 3),
                }
            )
        return {"user": caller.user, "sentence": self._say_share(caller, rows), "queues": rows}

    def _say_share(self, caller: Caller, rows: Sequence[Mapping[str, Any]]) -> str:
        running = [job for job in self.known.register if job.uid == caller.uid and job.live is not None]
        waiting = [job for job in self.known.register if job.uid == caller.uid and job.state == "pending"]
        held = sum(_held(job) for job in running)
        parts = [f"You hold {number(held)} of {gpus(len(self.known.devices))} in {_jobs(len(running))}"]
        if waiting:
            asked = sum(least_devices(job.gang) for job in waiting)
            parts[0] += f", and {_jobs(len(waiting))} wait{'s' if len(waiting) == 1 else ''} for {number(asked)} more"
        for row in rows:
            used, own = (row[key].get(DEVICE_KIND, 0) for key in ("used", "entitled"))
            text = f"queue {row['name']} uses {gpus(used)}"
            if self.known.planner.state.show_queues().many:
                place = "below" if used < own else "at" if used == own else "above"
                effect = {
                    "below": "so its jobs come before those of queues above theirs",
                    "at": "so others come first for what is left",
                    "above": "so others come first, and it may have to give some back",
                }[place]
                text += f" of the {number(own)} that it is entitled to now: it is {place} its share, {effect}"
            parts.append(text)
        return "; ".join(parts) + "."

    # ------------------------------------------------------------------ where the time went

    def report(self, caller: Caller | None, by: Sequence[str], since_s: float | None) -> dict[str, Any]:
        """Device time by user, queue and job, and how much of it was progress.

        Counts jobs that ended since then, whole, and jobs that have not ended as far as they are.
        """
        now_us = self.known.now_us()
        since_us = 0 if since_s is None else max(0, now_us - round(since_s * 1e6))
        records = self.known.store.ended(since_us, limit=RECORDS_MOST)
        books: list[tuple[Job | JobRecord, Ledger]] = [
            (record, msgspec.json.decode(record.ledger)) for record in records if record.ledger
        ]
        books += [(job, sum_up(job.ledger, open_ledger(job, now_us))) for job in self.known.register if not job.ended]
        told = tell_books(by, books, since_s, self.known.settings.gpu_hour_price)
        if len(records) == RECORDS_MOST:
            told["warning"] = f"only the last {RECORDS_MOST} jobs were read; ask for a shorter time"
        return told

    # ------------------------------------------------------------------ how good estimates were

    def report_eta(self, caller: Caller | None = None) -> dict[str, Any]:
        """Every estimate whose job has started, against what happened; the last ones one by one."""
        wall_now, now_us = self.known.clock.wall_s(), self.known.now_us()
        iso = self.known.iso
        return tell_estimates(self.known.store.estimates(), lambda at_us: iso(wall_now + (at_us - now_us) / 1e6))

    # ------------------------------------------------------------------ gauges

    def figures(self) -> Figures:
        """Numbers for whoever scrapes: gangs, reasons, waits, devices, goodput of what is in memory."""
        figures = Figures()
        told = self.rows.explained().reasons
        now_us = self.known.now_us()
        oldest: dict[str, int] = {}
        parts: dict[str, dict[str, float]] = {}
        for job in self.known.register:
            _count(figures, "phalanx_gangs", queue=job.queue, state=job.state)
            if job.state == "pending":
                reason = self.rows.reason(job, told)
                word = "None" if reason is None else reason.code
                _count(figures, "phalanx_pending_gangs", queue=job.queue, reason=word)
                if not job.gates:
                    oldest[job.queue] = min(job.submit_us, oldest.get(job.queue, now_us))
            parts[job.queue] = sum_up(parts.get(job.queue, {}), job.ledger, open_ledger(job, now_us))
        for name in self.known.planner.state.show_queues().names[1:]:
            waited_us = now_us - oldest.get(name, now_us)
            figures.gauges["phalanx_head_of_queue_wait_seconds", (("queue", name),)] = waited_us / 1e6
        for queue, books in parts.items():
            if total := sum(books.values()):
                share = books.get("productive", 0.0) / total
                figures.gauges["phalanx_goodput_ratio", (("queue", queue),)] = share
        self._count_devices(figures)
        return figures

    def _count_devices(self, figures: Figures) -> None:
        """By what they do: allocated counts for its queue, in parts where devices are shared; the rest for none."""
        for state in ("free", "stranger", "quarantined"):
            figures.gauges["phalanx_gpus", (("state", state),)] = 0.0
        for device in self.known.devices:
            state = self._device_state(device.index, DeviceReading(), None)
            if state != "busy":
                _count(figures, "phalanx_gpus", state=state)
        for job in self.known.register:
            held = _held(job)
            if held:
                key = "phalanx_gpus", (("queue", job.queue), ("state", "allocated"))
                figures.gauges[key] = figures.gauges.get(key, 0.0) + held


def tell_books(
    by: Sequence[str], books: Iterable[tuple[Job | JobRecord, Ledger]], since_s: float | None, price: float
) -> dict[str, Any]:
    """Device time by user, queue and job, from the books of each job."""
    keys = [key for key in dict.fromkeys(by) if key in ("user", "queue", "job")] or ["user"]
    groups: Groups = {}
    for job, ledger in books:
        _add(groups, _key_of(job, keys), ledger)
    rows = [_report_row(keys, key, group, price) for key, group in groups.items()]
    rows.sort(key=lambda row: -row["gpu_s"])
    return {"by": keys, "rows": rows, "since_s": since_s}


def _report_row(keys: Sequence[str], key: Sequence[object], group: Mapping[str, Any], price: float) -> dict[str, Any]:
    parts: dict[str, float] = group["parts"]
    total = sum(parts.values())
    row: dict[str, Any] = dict(zip(keys, key, strict=True))
    if "job" in row:
        row["job"], row["name"] = row["job"]
    return {
        **row,
        "jobs": group["jobs"],
        "gpu_s": round(total, 3),
        "gpu_hours": round(total / 3600, 4),
        "cost": None if not price else round(total / 3600 * price, 2),
        "goodput": round(parts.get("productive", 0.0) / total, 4) if total else None,
        "ledger_gpu_s": {part: round(value, 3) for part, value in parts.items()},
    }


def tell_estimates(made: Sequence[EstimateRecord], iso: Callable[[int], str]) -> dict[str, Any]:
    """Every estimate whose job has started, against what happened; `iso` tells an instant of the cluster's clock."""
    made = [each for each in made if each.actual_us != VOID_US]
    judged = [each for each in made if each.actual_us is not None]
    errors = sorted(abs(_error_s(each)) for each in judged)
    inside = sum(each.low_us <= (each.actual_us or 0) <= each.high_us for each in judged)
    return {
        "count": len(judged),
        "open": len(made) - len(judged),
        "within_range": round(inside / len(judged), 4) if judged else None,
        "error_s": {"p50": _quantile(errors, 0.5), "p90": _quantile(errors, 0.9)},
        "bias_s": round(math.fsum(map(_error_s, judged)) / len(judged), 3) if judged else None,
        "rows": [_estimate_row(each, iso) for each in judged[-ESTIMATES_SHOWN:]],
    }


def _estimate_row(each: EstimateRecord, iso: Callable[[int], str]) -> dict[str, Any]:
    return {
        "job": each.job,
        "made": iso(each.made_us),
        "ahead_s": round((each.at_us - each.made_us) / 1e6, 3),
        "at": iso(each.at_us),
        "actual": iso(each.actual_us or 0),
        "error_s": round(_error_s(each), 3),
        "within_range": each.low_us <= (each.actual_us or 0) <= each.high_us,
        "predicted": each.predicted,
    }


def _count(figures: Figures, name: str, **labels: str) -> None:
    key = name, tuple(sorted(labels.items()))
    figures.gauges[key] = figures.gauges.get(key, 0.0) + 1.0


def _key_of(job: Job | JobRecord, keys: Iterable[str]) -> tuple[object, ...]:
    return tuple((job.id, job.name) if key == "job" else getattr(job, key) for key in keys)


def _add(groups: Groups, key: tuple[object, ...], parts: Ledger) -> None:
    """A job that spent something counts."""
    if not parts:
        return
    group = groups.setdefault(key, {"jobs": 0, "parts": {}})
    group["jobs"] += 1
    group["parts"] = sum_up(group["parts"], parts)


def _held(job: Job) -> float:
    """Devices that a job has now."""
    present = [] if job.live is None else seated(job.live)
    return sum(milli for member in present for _, milli in member.devices) / MILLI


def _jobs(count: int) -> str:
    return f"{count} job{'' if count == 1 else 's'}"


def _whole(kind: str, units: int) -> float | int:
    value = units / units_per_whole(kind)
    return int(value) if value == int(value) else value


def _error_s(each: EstimateRecord) -> float:
    """How much later than expected it started."""
    return ((each.actual_us or 0) - each.at_us) / 1e6


def _quantile(ordered: Sequence[float], share: float) -> float | None:
    return round(ordered[max(0, math.ceil(share * len(ordered)) - 1)], 3) if ordered else None
