"""The trials can fail: each mistake planted here is found within a few seeds, and by the rule that it breaks.

A plant changes the running core by `monkeypatch`. It stands for a mistake that somebody could make, most of them one
line in the core; several were made while it was written.
"""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from selection import rest_long

from phalanx.control.gates import GATE_ARRAY
from phalanx.frontends.host.core import admission
from phalanx.frontends.host.core import pen as pen_module
from phalanx.frontends.host.core.admission import Admission
from phalanx.frontends.host.core.attempt_phases import STEPS, D, E, OnDisk, P
from phalanx.frontends.host.core.ending import Ending
from phalanx.frontends.host.core.pen import Pen
from phalanx.frontends.host.core.resizing import Resizing
from phalanx.frontends.host.core.starting import Starting
from phalanx.frontends.host.core.watching import Watching
from phalanx.frontends.host.store import InsertJobs, PutRun
from phalanx.testing.hosts.machine_rules import BrokenRule
from phalanx.testing.hosts.trials import run_trial
from phalanx.testing.hosts.virtual_launcher import FakeLauncher

#: Seeds that a plant may take until it is found.
WITHIN = 40


def start_before_commit(patch):
    """Members are let through while the disk is still busy with the word that they exist."""
    commit = Pen.commit

    async def hurried(self, *changes, facts=()):
        if any(isinstance(change, PutRun) and change.record.state == "starting" for change in changes):
            self.errands.spawn(commit(self, *changes, facts=facts))
        else:
            await commit(self, *changes, facts=facts)

    patch.setattr(Pen, "commit", hurried)


def free_when_told_to_stop(patch):
    """Devices are given away when the signal is sent, not when nobody is left."""
    tell = Ending.tell_to_go

    async def generous(self, job, live):
        await tell(self, job, live)
        self.known.occupancy.give(live, live.members.values())
        self.starting.try_all()

    patch.setattr(Ending, "tell_to_go", generous)


def go_whatever_was_said(patch):
    """Nobody asks before the gate whether the job is still wanted."""
    patch.setitem(STEPS, (P.UNWANTED, E.AT_GATE), (P.REGRETTED, (D.OPEN,)))


def count_no_attempts(patch):
    """A further attempt has the number of the last."""
    plan = Starting.plan

    def forgetful(self, job, begin):
        if job.attempt:
            job.attempt -= 1
        plan(self, job, begin)

    patch.setattr(Starting, "plan", forgetful)


def start_again_what_went(patch):
    """After a restart, a run that goes on is taken for one that never began."""
    find = FakeLauncher.find

    async def short_sighted(self, named=()):
        return [found for found in await find(self, named) if not found.went]

    patch.setattr(pen_module, "ROW_STATES", dict.fromkeys(OnDisk, "starting"))
    patch.setattr(FakeLauncher, "find", short_sighted)


def lose_the_key(patch):
    """The idempotency key is not written down."""
    patch.setattr(admission, "InsertJobs", lambda uid, key, jobs: InsertJobs(uid, None, jobs))


def open_two_gates(patch):
    """When one element of an array ends, two more have their turn."""
    on_ended = Admission.on_ended

    def twice(self, job):
        on_ended(self, job)
        if job.array is not None:
            mates = self._arrays.get(job.array.key, [])
            for mate in [mate for mate in mates if GATE_ARRAY in mate.gates][:1]:
                self.open_gate(mate, GATE_ARRAY)

    patch.setattr(Admission, "on_ended", twice)


def forget_who_is_leaving(patch):
    """Devices of members that were asked to leave are free at once."""
    plan = Resizing.plan

    def hasty(self, job, change):
        plan(self, job, change)
        if job.live is not None and job.live.resizing is not None:
            members = job.live.members
            self.known.occupancy.give(job.live, [members[key] for key in job.live.resizing.leaving])

    patch.setattr(Resizing, "plan", hasty)


def believe_a_lost_shim(patch):
    """A shim that was killed counts as one whose members ended well."""
    on_event = Ending.on_event

    async def trusting(self, event):
        job = self.known.register.by_id.get(int(event.run.partition(".")[0]))
        if event.kind == "lost" and job is not None and job.live is not None and job.live.run == event.run:
            for member in job.live.members.values():
                member.exited, member.code, member.signal = True, 0, None
            event = replace(event, kind="empty")
        await on_event(self, event)

    patch.setattr(Ending, "on_event", trusting)


def acknowledge_a_cancel_early(patch):
    """A cancel is acknowledged before it is on disk."""
    cancel = Ending.cancel

    async def hurried(self, job, by):
        self.errands.spawn(cancel(self, job, by))

    patch.setattr(Ending, "cancel", hurried)


def forget_holds(patch):
    """What was on hold is not after a restart."""
    make = Admission.make
    patch.setattr(Admission, "make", lambda self, record, *rest: _without_hold(make(self, record, *rest)))


def _without_hold(job):
    if job.attempt or job.id % 2:  # not of those that were just submitted so
        job.gates.discard("hold")
    return job


def ignore_strangers(patch):
    """Whoever else uses a device is not looked at."""

    async def blind(self):
        return None

    patch.setattr(Watching, "look", blind)


def forget_why_it_stops(patch):
    """That a run is being ended, and why, is not written down with it."""
    put_run = Pen.put_run

    def silent(self, live, **intent):
        change = put_run(self, live, **intent)
        change.record.intent = None
        return change

    patch.setattr(Pen, "put_run", silent)


def end_twice(patch):
    """An end is written down once more when the run is cleared away."""
    finish = Ending.finish

    async def repeated(self, job, live):
        was = job.live
        await finish(self, job, live)
        if was is live and job.ended:
            await self.close(job, job.state, [(job.id, "complete", {})])

    patch.setattr(Ending, "finish", repeated)


def never_insist(patch):
    """A gang that lost a member is told to stop, and nobody kills who does not care."""

    async def polite(self, job, live):
        await self.processes.launcher.signal(live.run, None, "TERM")

    patch.setattr(Ending, "tell_to_go", polite)


def forget_what_waits(patch):
    """A start that has to wait for its devices is never looked at again."""
    plan = Starting.plan

    def absent(self, job, begin):
        plan(self, job, begin)
        self.waiting.pop(job.id, None)

    patch.setattr(Starting, "plan", absent)


#: Plant → the rules that may report it, and the seed to begin with.
PLANTS = {
    start_before_commit: ({"I6"}, 0),
    free_when_told_to_stop: ({"I1", "I10"}, 0),
    go_whatever_was_said: ({"I11"}, 0),
    count_no_attempts: ({"I3", "I8"}, 0),
    start_again_what_went: ({"I1", "I4", "I10"}, 0),
    lose_the_key: ({"I7"}, 0),
    open_two_gates: ({"array"}, 0),
    forget_who_is_leaving: ({"I1", "I10"}, 0),
    believe_a_lost_shim: ({"I9"}, 0),
    acknowledge_a_cancel_early: ({"I11"}, 60),
    forget_holds: ({"I11"}, 0),
    ignore_strangers: ({"I1"}, 60),
    forget_why_it_stops: ({"I11"}, 0),
    end_twice: ({"I9"}, 0),
    never_insist: ({"I5", "L1", "L3"}, 0),
    forget_what_waits: ({"L1", "L3"}, 0),
}


@pytest.fixture(autouse=True)
def _quiet_log():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def find_broken(seed: int) -> BrokenRule | None:
    try:
        run_trial(seed)
    except BrokenRule as broken:
        return broken
    return None


@pytest.mark.parametrize("plant", rest_long(PLANTS, short=6), ids=lambda plant: plant.__name__)
def test_a_planted_mistake_is_found(monkeypatch, plant):
    rules, first = PLANTS[plant]
    plant(monkeypatch)
    found = next(filter(None, map(find_broken, range(first, first + WITHIN))), None)
    assert found is not None, f"{plant.__doc__} Not found by {WITHIN} seeds."
    assert found.rule in rules, f"found something else: {found}"
