"""Answers of a daemon as the contract has them, at nine o'clock on 16 November 2026."""

from __future__ import annotations

from typing import Any


def at(clock: str) -> str:
    """An instant of that day."""
    return f"2026-11-16T{clock}+00:00"


def row(**changes: Any) -> dict[str, Any]:
    """A job in a listing; it runs on four GPUs unless something else is said."""
    return {
        "id": 1,
        "name": "train",
        "user": "ada",
        "queue": "default",
        "state": "running",
        "members": 4,
        "members_min": 4,
        "members_max": 4,
        "placement": {"box": 4},
        "reason": None,
        "eta": None,
        "gpus": 4.0,
        "devices": ["GPU-0", "GPU-1", "GPU-2", "GPU-3"],
        "priority": 0,
        "submitted": at("08:30:00"),
        "started": at("08:40:00"),
        "ended": None,
        "waited_s": 600.0,
        "ran_s": 1200.0,
        "exit_code": None,
        "attempt": 1,
        "progress": None,
        "array": None,
        "info": "box: GPU 0-3",
        **changes,
    }


ETA = {
    "at": at("10:05:00"),
    "low": at("09:50:00"),
    "high": at("10:40:00"),
    "hangs_on": "when #1 ends",
    "predicted": False,
}
CAPACITY = {"code": "Capacity", "message": "needs 4 members and 0 fit", "needed": 4, "available": 0}
PENDING = row(
    id=2, name="sft", state="pending", members=0, members_min=2, members_max=8, placement={}, reason=CAPACITY, eta=ETA,
    gpus=2.0, devices=[], started=None, waited_s=2460.0, ran_s=0.0, attempt=0, info="starts about 10:05 (Capacity)",
)  # fmt: skip
FAILED = row(
    id=3, name="evil\x1b[31m\u202ename", state="failed", placement={}, ended=at("08:50:00"), exit_code=1, devices=[],
    info="exit 1",
)  # fmt: skip
PROGRESS = row(id=4, name="go", user="bob", progress={"step": 40.0, "total": 100.0, "rate": 0.5}, info="box: GPU 4-7")
ARRAY = [
    row(id=10 + index, name="sweep", array=f"sweep[{index}]", members=1, members_min=1, members_max=1, gpus=1.0,
        state="running" if index < 2 else "pending", placement={}, devices=[])
    for index in range(4)
]  # fmt: skip

WHY_PENDING = {
    "id": 214,
    "name": "llama-sft",
    "state": "pending",
    "queue": "research",
    "needs": "16 GPUs (min 8) as 16 x 1",
    "since": at("08:19:00"),
    "reason": {
        "code": "Fragmentation",
        "message": "22 GPUs are free, but no place has 8: 6, 5, 4, 3, 2, 2",
        "needed": 8,
        "available": 6,
    },
    "blockers": [
        {"code": "Fragmentation", "message": "22 GPUs are free", "needed": 8, "available": 6},
        {"code": "QueueLimit", "message": "research uses 40 of its 48", "needed": 16, "available": 8},
        {"code": "Behind", "message": "2 gangs are ahead", "needed": 3, "available": 1},
    ],
    "ahead": {
        "gangs": 3,
        "gpus": 32.0,
        "jobs": [
            {"id": 198, "name": "a", "user": "alice", "gpus": 16.0},
            {"id": 207, "name": "b", "user": "bob", "gpus": 8.0},
        ],
    },
    "eta": ETA,
    "sooner_if": [
        {"what": "you accept 8 GPUs now", "command": "phalanx resize 214 --min 8", "at": at("09:00:30")},
        {"what": 'topology "node" is only preferred', "command": "phalanx edit 214 --topology prefer:node", "at": None},
    ],
    "decisions": [],
    "passed_by": [
        {
            "jobs": [215, 216],
            "rule": "shortest",
            "message": "215 (b), 216 (c) will pass: shorter, and done before this job's reservation at 10:05 (fill: shortest)",
        }
    ],
    "fills_after": {
        "jobs": [217],
        "rule": "tier",
        "message": "queue 'research' is not below its guarantee; 217 (y) of queue 'q', below its own, fills first",
    },
}
WHY_RUNNING = {
    **WHY_PENDING,
    "passed_by": [],
    "fills_after": None,
    "surplus": {
        "members": 2,
        "needs": 4,
        "coming": 2,
        "sentences": ["its date 18:00 needs 4 members; it has 2: 2 are coming", "nobody is before it"],
    },
    "id": 1,
    "name": "train",
    "state": "running",
    "needs": "4 GPUs as 4 x 1",
    "queue": "default",
    "since": at("08:40:00"),
    "reason": None,
    "blockers": [],
    "ahead": {"gangs": 0, "gpus": 0.0, "jobs": []},
    "eta": None,
    "sooner_if": [],
    "decisions": [
        {"seq": 7, "at": at("08:40:00"), "job": 1, "event": "bind", "data": {"members": 4, "placement": {"box": 4}}},
        {
            "seq": 9,
            "at": at("08:55:10"),
            "job": 1,
            "event": "shrink",
            "data": {"members": 2, "for": 2, "because": "gives 2 back: job 2's date needs 3"},
        },
    ],
}
WHY_ENDED = {
    **WHY_RUNNING,
    "surplus": None,
    "id": 3,
    "name": "evil\x1b[31m\u202ename",
    "state": "failed",
    "reason": {"code": "Failed", "message": "rank 2 ended with exit code 1", "needed": 0, "available": 0},
    "decisions": [],
}


def detail(job: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Everything about a job."""
    return {
        "job": job,
        "gang": {"members": 4, "each": {"gpu": 1, "memory": 17179869184}},
        "command": ["python", "train.py", "--name", "a b"],
        "cwd": "/data/ada",
        "env": {"B": "2", "A": "1\x1b"},
        "members": [
            {"rank": 0, "role": "member", "devices": ["GPU-0"], "pid": 4711, "exit_code": None, "signal": None},
            {"rank": 1, "role": "member", "devices": ["GPU-1"], "pid": 4712, "exit_code": None, "signal": 9},
        ],
        "attempts": 2,
        "history": [
            {"seq": 1, "at": at("08:30:00"), "job": 1, "event": "submit", "data": {}},
            {
                "seq": 7,
                "at": at("08:40:00"),
                "job": 1,
                "event": "bind",
                "data": {"members": 4, "placement": {"box": 4}},
            },
        ],
        "failure": None,
        "ledger_gpu_s": {"productive": 4000.0, "startup": 400.0, "lost": 400.0, "snapshot": 0.0},
        "run_dir": "/state/runs/1.2",
        "asked": {
            "time_s": 7200.0,
            "kill_after_s": 9000.0,
            "warn": "USR1 60 s before",
            "deadline": at("15:00:00"),
            "begin": at("08:35:00"),
            "after": [7, 9],
            "after_any": True,
            "restarts": 3,
            "restarts_left": 2,
            "requeue": True,
            "preemptible": True,
            "singleton": True,
            "topology": {"prefer": "node"},
        },
        **changes,
    }


FAILURE = {
    "rank": 2,
    "exit_code": 1,
    "signal": None,
    "lines": ["Traceback (most recent call last):", "ValueError: \x1b]0;owned\x07bad"],
}

NODES = [
    {
        "name": "box",
        "resources": {"gpu": 3, "cpu": 64, "memory": 549755813888},
        "free": {"gpu": 1, "cpu": 60, "memory": 274877906944},
        "labels": {},
        "open": True,
        "containment": "cgroup2",
        "devices": [
            {"index": 0, "uuid": "GPU-aa", "model": "H200", "memory_bytes": 150754820096, "island": "0", "state": "busy",
             "job": 1, "rank": 0, "user": "ada", "pids": [4711], "utilization": 0.97, "memory_used_bytes": 75377410048},
            {"index": 1, "uuid": "GPU-bb", "model": "H200", "memory_bytes": 150754820096, "island": "0",
             "state": "stranger", "job": None, "rank": None, "user": "mallory", "pids": [99, 100], "utilization": None,
             "memory_used_bytes": None},
            {"index": 2, "uuid": "GPU-cc", "model": "H200", "memory_bytes": 150754820096, "island": "1", "state": "free",
             "job": None, "rank": None, "user": None, "pids": [], "utilization": 0.0, "memory_used_bytes": 0},
        ],
    }
]  # fmt: skip
QUEUES = [
    {"name": "root", "parent": "", "weight": 1.0, "guarantee": {}, "limit": {}, "used": {"gpu": 6}, "pending": 0, "running": 0},
    {"name": "research", "parent": "root", "weight": 2.0, "guarantee": {"gpu": 4}, "limit": {"gpu": 8}, "used": {"gpu": 6},
     "pending": 3, "running": 2},
]  # fmt: skip
REPORT = {
    "by": ["user", "queue"],
    "rows": [
        {"user": "ada", "queue": "research", "jobs": 12, "gpu_s": 36000.0, "goodput": 0.9,
         "ledger_gpu_s": {"productive": 32400.0, "startup": 1800.0, "lost": 1800.0, "restore": 0.0}},
        {"user": "bob", "queue": "default", "jobs": 1, "gpu_s": 3600.0, "goodput": 0.5,
         "ledger_gpu_s": {"productive": 1800.0, "startup": 0.0, "lost": 1800.0, "restore": 0.0}},
    ],
}  # fmt: skip
REPORT_ETA = {
    "count": 42,
    "within_range": 0.81,
    "error_s": {"p50": 12.0, "p90": 300.0},
    "bias_s": -4.0,
    "rows": [{"job": 2, "made": at("08:30:00"), "expected": at("08:41:00"), "actual": at("08:40:00"), "error_s": -60.0,
              "predicted": True}],
}  # fmt: skip
GANTT = {
    "now": at("09:00:00"),
    "devices": [0, 1],
    "bars": [
        {"job": 1, "name": "train", "user": "ada", "device": 0, "start": at("08:00:00"), "end": at("08:30:00"), "kind": "past"},
        {"job": 12, "name": "sft", "user": "bob", "device": 0, "start": at("08:30:00"), "end": at("09:30:00"), "kind": "running"},
        {"job": 12, "name": "sft", "user": "bob", "device": 1, "start": at("08:30:00"), "end": at("09:30:00"), "kind": "running"},
        {"job": 13, "name": "go", "user": "ada", "device": 1, "start": at("09:30:00"), "end": at("10:00:00"), "kind": "forecast"},
    ],
}  # fmt: skip
SHARE = {
    "user": "ada",
    "sentence": "You use 6 of the 4 GPUs that research is guaranteed; what is above may be taken back.",
    "queues": [
        {
            "name": "research",
            "used": {"gpu": 6},
            "guarantee": {"gpu": 4},
            "limit": {"gpu": 8},
            "weight": 2.0,
            "share": 0.75,
        }
    ],
}
CONFIG = {
    "values": [
        {"key": "policy", "value": "goodput", "origin": "default"},
        {"key": "price_per_gpu_hour", "value": 2.5, "origin": "PHALANX_PRICE"},
        {"key": "queues", "value": [{"name": "a"}], "origin": "/etc/phalanx/config.toml"},
    ]
}
STATUS = {
    "schema": "phalanx.status/1",
    "pid": 77,
    "socket": "/state/phalanx.sock",
    "version": "0.1.0",
    "uptime_s": 3725.0,
    "mode": "user",
    "policy": "goodput",
    "containment": "weak",
    "store": {"ok": True, "problem": None},
    "jobs": {"pending": 1, "running": 2},
    "gpus": {"total": 8, "free": 2, "busy": 6, "quarantined": 0},
    "fake": True,
}


def serve(daemon: Any) -> None:
    """Let a fake daemon answer with all of it."""
    jobs = {"schema": "phalanx.jobs/1", "jobs": [row(), PENDING, FAILED, PROGRESS, *ARRAY]}
    daemon.answer("GET", "/v1/jobs", jobs)
    daemon.answer("GET", "/v1/jobs/1", detail(row()))
    daemon.answer("GET", "/v1/jobs/3", detail(FAILED, failure=FAILURE))
    daemon.answer("GET", "/v1/jobs/214/why", WHY_PENDING)
    daemon.answer("GET", "/v1/jobs/1/why", WHY_RUNNING)
    daemon.answer("GET", "/v1/jobs/3/why", WHY_ENDED)
    daemon.answer("GET", "/v1/nodes", {"schema": "phalanx.nodes/1", "nodes": NODES})
    daemon.answer("GET", "/v1/queues", {"schema": "phalanx.queues/1", "queues": QUEUES})
    daemon.answer("GET", "/v1/report", REPORT)
    daemon.answer("GET", "/v1/report/eta", REPORT_ETA)
    daemon.answer("GET", "/v1/gantt", GANTT)
    daemon.answer("GET", "/v1/share", SHARE)
    daemon.answer("GET", "/v1/config", CONFIG)
    daemon.answer("GET", "/v1/status", STATUS)
    daemon.answer(
        "POST", "/v1/jobs", {"id": 7, "name": "train", "state": "pending", "eta": ETA, "reason": None, "warnings": []}
    )
    for verb in ("cancel", "hold", "release", "resize", "preempt"):
        daemon.answer("POST", f"/v1/jobs/2/{verb}", PENDING)
    for verb in ("cancel", "hold", "release"):
        daemon.answer("POST", f"/v1/{verb}", {"jobs": [PENDING], "refused": []})
    daemon.answer("PATCH", "/v1/jobs/2", PENDING)
    daemon.answer(
        "POST",
        "/v1/jobs/3/retry",
        {"id": 8, "name": "train", "state": "running", "eta": None, "reason": None, "warnings": []},
    )
