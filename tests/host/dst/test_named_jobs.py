"""What people write for jobs, arrays and ranges of ids among it, held to the whole daemon."""

from __future__ import annotations

from datetime import datetime

import msgspec
import pytest

from phalanx.cli.host.ps import collapse
from phalanx.frontends.host.core.jobs import LINGER_US
from phalanx.frontends.host.messages import ArrayPart
from phalanx.frontends.host.ports import Caller, Refused
from phalanx.frontends.host.service import Listing
from phalanx.frontends.sim.scenario import TrueRun
from phalanx.testing.builders import make_gang
from phalanx.testing.hosts.host_world import HostWorld, Setup, make_submission, small_node
from phalanx.testing.hosts.scripts import WorkScript

SECOND = 1_000_000
ADA = Caller(1000, "ada")
BOB = Caller(1001, "bob")


class People:
    """A machine of four GPUs, and people who speak one after the other."""

    def __init__(self, world: HostWorld) -> None:
        self.world, self.now_us = world, SECOND

    def ask(self, question):
        replies: list = []
        self.now_us += SECOND
        self.world.at(self.now_us, lambda: self.world.ask(question, replies.append, lambda: replies.append("lost")))
        self.now_us += SECOND
        self.world.run_until(self.now_us)
        (reply,) = replies
        return reply

    def submit(self, name, line="1 gpu=1", *, array=(), at_most=0, key="", caller=ADA, hold=False):
        parts = [ArrayPart(index, name, at_most, key) for index in array] or [None]
        gang = make_gang(name, line)
        jobs = [make_submission(gang, {}, {}, array=part, hold=hold) for part in parts]
        return [accepted.id for accepted in self.ask(lambda core: core.submit(caller, jobs, None, dry_run=False))]

    def find(self, ref, caller=ADA):
        async def look(core):
            return core.access.find_each(caller, [ref])

        found, refused = self.ask(look)
        assert not refused, refused
        return [job.id for _, job in found]

    def detail(self, ref, caller=ADA):
        reply = self.ask(lambda core: core.detail(caller, ref))
        return reply if isinstance(reply, Refused) else reply.job.id


@pytest.fixture
def people():
    with HostWorld(Setup(small_node(4)), lambda what: 20_000) as world:
        world.boot()
        yield People(world)


def test_two_arrays_of_one_name_are_two(people):
    first = people.submit("sweep", array=range(4), at_most=2, hold=True)
    second = people.submit("sweep", array=range(2, 6), at_most=2, hold=True)
    assert people.find("sweep") == second
    assert people.find("sweep[3]") == [second[1]]
    assert people.find("sweep[2-3,5]") == [second[0], second[1], second[3]]
    assert people.find(f"{first[0]}-{first[-1]}") == first
    assert people.find(f"{first[0]},{second[0]}-{second[1]}") == [first[0], *second[:2]]
    assert people.detail("sweep[2]") == second[0]
    no = people.detail("sweep")
    assert (no.refusal.code, no.refusal.details["several"]) == ("ambiguous", second)
    no = people.detail("sweep[0]")
    assert no.refusal.message == "array 'sweep' has no element 0: it has 2-5"
    rows = people.ask(lambda core: core.rows(ADA, Listing()))
    assert len({row.array_key for row in rows if row.id in first}) == 1
    assert len({row.array_key for row in rows}) == 2


def test_each_array_has_its_own_bound_on_how_many_run(people):
    """Two arrays of one name with %1 on four GPUs: one of each runs."""
    people.world.machine.scripts = lambda order: Sleeper()
    first = people.submit("sweep", array=range(2), at_most=1)
    second = people.submit("sweep", array=range(2), at_most=1)
    states = {
        number: people.ask(lambda core, n=number: core.detail(ADA, str(n))).job.state for number in first + second
    }
    assert states == {first[0]: "running", first[1]: "pending", second[0]: "running", second[1]: "pending"}


class Sleeper:
    """Sits there until it is killed."""

    def refusal(self, order) -> None: ...

    def share(self, role: str) -> int:
        return 1000

    def begin(self, run, members) -> None: ...

    def hear(self, run, member, message) -> None: ...

    def feel(self, run, member, signal) -> None: ...


def test_an_array_is_the_same_one_after_a_restart(people):
    first = people.submit("sweep", array=range(2), hold=True)
    second = people.submit("sweep", array=range(2), hold=True)
    people.world.crash()
    people.world.boot()
    assert people.find("sweep") == second
    assert people.find("sweep[0]") == second[:1]
    assert people.find(f"{first[0]}-{first[1]}") == first


def test_parts_of_a_large_array_are_one_by_their_key(people):
    found = people.submit("sweep", array=(0, 1), key="k", hold=True) + people.submit(
        "sweep", array=(2, 3), key="k", hold=True
    )
    assert people.find("sweep") == found


def test_a_name_means_the_newest(people):
    first, second, third = (people.submit("train", hold=True)[0] for _ in range(3))
    assert people.find("train") == [third]
    assert people.detail("train") == third
    people.ask(lambda core: core.act(ADA, str(third), "cancel", {}))
    assert people.detail("train") == third, "also when it has ended"
    told = people.ask(lambda core: core.act_on_all(ADA, ["train"], "cancel"))
    assert told.jobs == [], "typed twice it cancels nobody else"
    assert told.refused[0].error.message == (
        f"the newest 'train' is job {third}, which has ended: cancelled; of that name there is still {first}-{second}"
    )
    assert told.refused[0].error.hint == f"name it by its id: {second}"
    assert people.find(str(second)) == [second]
    other = people.submit("trained", hold=True)[0]
    assert people.find("trained") == [other]
    no = people.detail("trai")
    assert no.refusal.code == "ambiguous"
    assert "train" in no.refusal.message
    assert first < second


def test_one_s_own_come_first_and_others_are_refused(people):
    mine = people.submit("train", hold=True)
    theirs = people.submit("train", hold=True, caller=BOB)
    assert people.find("train", ADA) == mine
    assert people.find(f"{mine[0]}-{theirs[0]}", ADA) == mine, "of a range, one's own"
    told = people.ask(lambda core: core.act_on_all(ADA, [str(theirs[0]), "nobody", str(mine[0])], "cancel"))
    assert [row.id for row in told.jobs] == mine
    assert [(each.ref, each.error.code) for each in told.refused] == [
        (str(theirs[0]), "forbidden"),
        ("nobody", "not_found"),
    ]


@pytest.mark.parametrize("ref", ["9-3", "sweep[x]", "1-999999999", "sweep[3-1]"])
def test_what_cannot_be_meant_is_refused(people, ref):
    people.submit("sweep", array=range(4), hold=True)
    no = people.detail(ref)
    assert no.refusal.code == "usage"
    assert no.refusal.hint


def test_after_an_array_means_after_all_of_it(people):
    array = people.submit("sweep", array=range(3), hold=True)
    gang = make_gang("after", "1 gpu=1", after=("sweep",))
    job = make_submission(gang, {"sweep": "sweep"})
    (accepted,) = people.ask(lambda core: core.submit(ADA, [job], None, dry_run=False))

    async def look(core):
        return core.known.register.by_id[accepted.id].gang.after.names

    assert people.ask(look) == tuple(map(str, array))


def test_nobody_starts_between_the_cancels_of_one_request(people):
    """Four run on four GPUs, four wait; whoever cancels all but one of them in one request sees only that one start."""
    long = make_gang("long", "1 gpu=1", walltime=1000)
    machine = people.world.machine
    machine.scripts = lambda order: WorkScript(machine, long, TrueRun(1000 * SECOND))  # SIGTERM ends it at once
    running = [people.submit(f"run{at}")[0] for at in range(4)]
    waiting = [people.submit(f"wait{at}")[0] for at in range(4)]
    told = people.ask(lambda core: core.act_on_all(ADA, [str(each) for each in running + waiting[:3]], "cancel"))
    assert [row.id for row in told.jobs] == running + waiting[:3]
    people.now_us += 60 * SECOND
    people.world.run_until(people.now_us)

    async def look(core):
        return [event.job for event in core.known.store.events(limit=10_000) if event.event == "bind"]

    assert people.ask(look) == [*running, waiting[3]]


def test_show_tells_everything_that_was_asked_for(people):
    (first,) = people.submit("first", hold=True)
    gang = make_gang(
        "train", "1 gpu=1", walltime=3600, deadline_us=7200 * SECOND, kill_after_us=5400 * SECOND, after=("first",)
    )
    run = {"restarts": 3, "on_preempt": "requeue", "kill_after_warning": {"signal": "USR1", "before_s": 90.0}}
    job = make_submission(gang, {"first": first}, run, begin="+10m", singleton=True)
    (accepted,) = people.ask(lambda core: core.submit(ADA, [job], None, dry_run=False))
    told = people.ask(lambda core: core.detail(ADA, str(accepted.id)))
    asked, submitted = told.asked, datetime.fromisoformat(told.job.submitted)
    assert (asked.time_s, asked.kill_after_s, asked.warn) == (3600.0, 5400.0, "USR1 90 s before")
    assert (asked.restarts, asked.restarts_left, asked.after, asked.requeue, asked.singleton) == (
        3,
        3,
        [first],
        True,
        True,
    )
    assert abs((datetime.fromisoformat(asked.deadline) - submitted).total_seconds() - 7200) <= 1
    assert abs((datetime.fromisoformat(asked.begin) - submitted).total_seconds() - 600) <= 1


def test_elements_and_names_are_found_when_they_ended_long_ago(people):
    long = make_gang("long", "1 gpu=1", walltime=1000)
    machine = people.world.machine
    machine.scripts = lambda order: WorkScript(machine, long, TrueRun(1000 * SECOND))
    array = people.submit("sweep", array=range(3))
    (single,) = people.submit("single")
    people.ask(lambda core: core.act_on_all(ADA, [str(array[0]), "single"], "cancel"))
    people.now_us += 900 * SECOND
    people.world.run_until(people.now_us)
    assert people.detail("sweep[0]") == array[0], "forgotten, and on disk"
    assert people.find("sweep[0-1]") == [array[1]], "of several, those that have not ended"
    assert people.find("sweep") == array[1:]
    assert people.detail("single") == single
    assert people.detail("sweep[7]").refusal.message == "array 'sweep' has no element 7: it has 0-2"
    people.now_us += 2000 * SECOND
    people.world.run_until(people.now_us)
    assert people.detail("sweep").refusal.details["several"] == array
    assert people.find(f"{array[0]}-{single}") == [*array, single]


# ---------------------------------------------------------------------- again


def retry(people, ref, **body):
    return people.ask(lambda core: core.act(ADA, str(ref), "retry", body))


def test_a_job_that_has_not_ended_is_not_submitted_again(people):
    # `submit --hold --name pp`, `retry pp`: a copy ran past the hold.
    (held,) = people.submit("pp", hold=True)
    no = retry(people, "pp")
    assert (no.refusal.code, no.refusal.message) == ("conflict", f"job {held} has not ended: it is pending")
    assert no.refusal.hint == f"phalanx release {held}"
    people.world.machine.scripts = lambda order: Sleeper()
    (running,) = people.submit("run")
    assert retry(people, running).refusal.hint == f"end it first: phalanx cancel {running}"
    people.ask(lambda core: core.act(ADA, str(held), "cancel", {}))
    again = retry(people, held)
    assert again.id > running
    assert again.warnings == [f"it is on hold, as job {held} was; to let it start: phalanx release {again.id}"]


def test_a_retry_that_is_asked_for_again_with_its_key_is_one(people):
    """The line was cut before the answer came; by then the name means the copy, which runs."""
    (first,) = people.submit("pp", hold=True)
    people.ask(lambda core: core.act(ADA, str(first), "cancel", {}))
    again = retry(people, "pp", key="k1")
    assert retry(people, "pp", key="k1").id == again.id
    assert retry(people, first, key="k1").id == again.id
    assert retry(people, first, key="k2").id == again.id + 1


def waits_for(people, ref):
    """What keeps a job, and after whom it comes."""
    told = people.ask(lambda core: core.detail(ADA, str(ref)))
    return (told.job.reason and told.job.reason.code, told.asked.after)


@pytest.mark.parametrize("any_end", [False, True])
def test_a_retried_job_waits_for_what_the_first_one_waited_for(people, any_end):
    # `submit --hold --name A`, `submit --after A --name B`, `cancel B`, `retry B`: B ran, and A had not.
    (first,) = people.submit("A", hold=True)
    gang = make_gang("B", "1 gpu=1", **{"after_any" if any_end else "after": ("A",)})
    (second,) = people.ask(lambda core: core.submit(ADA, [make_submission(gang, {"A": first})], None, dry_run=False))
    people.ask(lambda core: core.act(ADA, str(second.id), "cancel", {}))
    third = retry(people, second.id)
    assert third.warnings == []
    assert waits_for(people, third.id) == ("DependencyWaiting", [first])
    people.ask(lambda core: core.act(ADA, str(third.id), "cancel", {}))
    people.ask(lambda core: core.act(ADA, str(first), "cancel", {}))
    last = retry(people, third.id)
    left_out = [] if any_end else [f"it does not wait for {first} any more, which did not complete"]
    assert last.warnings == left_out
    assert waits_for(people, last.id)[1] == []


def test_a_retried_job_does_not_begin_before_its_time(people):
    gang = make_gang("late", "1 gpu=1")
    submission = make_submission(gang, {}, begin="+60s")
    (first,) = people.ask(lambda core: core.submit(ADA, [submission], None, dry_run=False))
    people.ask(lambda core: core.act(ADA, str(first.id), "cancel", {}))
    begins = [people.ask(lambda core: core.detail(ADA, str(first.id))).asked.begin]
    second = retry(people, first.id).id
    begins.append(people.ask(lambda core: core.detail(ADA, str(second))).asked.begin)
    assert begins[0] == begins[1] != ""
    people.ask(lambda core: core.act(ADA, str(second), "cancel", {}))
    people.now_us += 60 * SECOND
    people.world.run_until(people.now_us)
    third = retry(people, second).id
    assert people.ask(lambda core: core.detail(ADA, str(third))).asked.begin == ""


def test_whoever_was_released_is_not_held_again(people):
    """A file said `hold`; the word of a person came later."""
    gang = make_gang("job", "1 gpu=1", hold=True)
    (first,) = people.ask(lambda core: core.submit(ADA, [make_submission(gang, {})], None, dry_run=False))
    people.world.machine.scripts = lambda order: Sleeper()
    people.ask(lambda core: core.act(ADA, str(first.id), "release", {}))
    people.ask(lambda core: core.act(ADA, str(first.id), "cancel", {}))
    people.now_us += 30 * SECOND
    people.world.run_until(people.now_us)
    second = retry(people, first.id)
    assert second.warnings == []
    assert waits_for(people, second.id)[0] is None


def test_a_retried_element_takes_the_place_of_the_one_it_repeats(people):
    old = people.submit("arr", array=range(4), at_most=2, hold=True)
    other = people.submit("arr2", array=range(1), hold=True)
    people.ask(lambda core: core.act_on_all(ADA, ["arr"], "cancel"))
    people.world.machine.scripts = lambda order: Sleeper()
    fresh = retry(people, "arr[1]").id
    people.ask(lambda core: core.act(ADA, str(fresh), "release", {}))
    assert people.find("arr[1]") == [fresh]
    assert people.find("arr") == [fresh], "of those named in a verb only what has not ended"
    no = people.detail("arr")
    assert no.refusal.details["several"] == [old[0], old[2], old[3], fresh], "each element once"
    for ref in ("arr[1]", fresh, old[1]):
        assert retry(people, ref).refusal.code == "conflict", "never the same element twice"
    rows = [msgspec.to_builtins(row) for row in people.ask(lambda core: core.rows(ADA, Listing()))]
    line = next(row for row in collapse(rows) if row["name"].startswith("arr["))
    assert (line["name"], line["state"], line["gpus"]) == ("arr[0-3]", "running", 1)
    assert line["info"] == "1 running, 3 cancelled"
    # The limit of the array holds for both: one runs, so one more may.
    more = [retry(people, number).id for number in (old[0], old[2])]
    people.ask(lambda core: core.act_on_all(ADA, [str(number) for number in more], "release"))
    states = [people.ask(lambda core, n=n: core.detail(ADA, str(n))).job.state for n in (fresh, *more)]
    assert states == ["running", "running", "pending"]
    assert people.find("arr2") == other


def test_what_ended_a_moment_ago_is_listed_after_a_restart(people):
    # After `down` and `up` `ps` said "no jobs of yours".
    first, second, third = (people.submit(f"job{at}", hold=True)[0] for at in range(3))
    people.ask(lambda core: core.act(ADA, str(second), "cancel", {}))
    people.ask(lambda core: core.act(ADA, str(first), "cancel", {}))
    ended = people.detail("job1")
    people.world.crash()
    people.world.boot()
    rows = {row.id: row.state for row in people.ask(lambda core: core.rows(ADA, Listing()))}
    assert rows == {first: "cancelled", second: "cancelled", third: "pending"}
    assert list(people.world.core.known.register.by_id) == [first, second, third]
    assert people.detail("job1") == ended
    people.now_us += LINGER_US
    rows = people.ask(lambda core: core.rows(ADA, Listing()))
    assert [row.id for row in rows] == [third]
    assert len(people.ask(lambda core: core.rows(ADA, Listing(finished=True)))) == 3


def test_a_job_that_comes_after_a_failed_one_says_which_and_how(people):
    (first,) = people.submit("prep", hold=True)
    people.ask(lambda core: core.act(ADA, str(first), "cancel", {}))

    def after():
        gang = make_gang("late", "1 gpu=1", after=("prep",))
        submission = make_submission(gang, {"prep": first}, {})
        (accepted,) = people.ask(lambda core: core.submit(ADA, [submission], None, dry_run=False))
        row = people.ask(lambda core: core.detail(ADA, str(accepted.id))).job
        return row.state, row.reason.code, row.reason.message

    words = f"cancelled, since {first} (prep), which it waited for, was cancelled"
    assert after() == ("cancelled", "DependencyFailed", words)
    people.now_us += LINGER_US
    assert after() == ("cancelled", "DependencyFailed", words), "also if it is only on disk"
