"""What one user may take from the others without anybody's leave: nothing."""

from __future__ import annotations

import pytest
from people import ADA, CAI


@pytest.mark.parametrize(
    ("config", "most"),
    [
        ("", 0),
        ("priority_ceiling = 7\n", 7),
        ('[[queues]]\nname = "default"\npriority_ceiling = 5\n', 5),
        ('[[users]]\nname = "ada"\npriority_ceiling = 3\n', 3),
        ('priority_ceiling = "none"\n', 1_000_000_000),
    ],
)
def test_a_priority_goes_as_far_as_the_administrator_lets_it(make_shared, config, most):
    """Priorities come before fair shares: with one of a billion ada was served before everybody else."""
    daemon = make_shared(gpus=1, config=config).start()
    ada, cai = daemon.by(ADA), daemon.by(CAI)
    assert ada.post(ada.submission("true", 1, priority=most)).status == 200
    if most < 1_000_000_000:
        refused = ada.post(ada.submission("true", 1, priority=most + 1))
        assert refused.status == 403, refused
        assert f"at most {most} in queue default (got {most + 1})" in refused["error"]["message"]
        assert f"use --priority {most}" in refused["error"]["hint"]
        assert "priority_ceiling" in refused["error"]["hint"]
        assert cai.post(cai.submission("true", 1, priority=most + 1)).status == 200, "an administrator may"
    told = {row["key"]: row["value"] for row in ada.get("/v1/config")["values"]}
    assert told["priority_ceiling"] == {"": 0, "priority_ceiling = 7\n": 7}.get(config, told["priority_ceiling"])


def test_nobody_is_bounded_in_a_daemon_of_their_own(make_shared):
    daemon = make_shared(gpus=1, owner=ADA).start()
    ada = daemon.by(ADA)
    assert ada.post(ada.submission("true", 1, priority=1_000_000_000)).status == 200


@pytest.mark.parametrize("own", [0, 300])
def test_a_score_for_when_memory_runs_out_that_is_no_favour_is_kept(make_shared, own):
    """What a session gave its daemon goes on to jobs; below zero, see `launching`."""
    before = f"with open('/proc/self/oom_score_adj', 'w') as score: score.write('{own}')"
    daemon = make_shared(gpus=1, before=before).start()
    ada = daemon.by(ADA)
    score = "/proc/self/oom_score_adj"
    job = ada.submit(f"cat {score}; (echo -500 > {score}) 2>/dev/null; cat {score}", 1)
    assert ada.wait(job)["state"] == "completed"
    assert ada.call("GET", f"/v1/jobs/{job}/logs?rank=0").body.split() == [str(own)] * 2
