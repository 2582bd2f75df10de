"""Those who use a made-up machine: they submit, change their minds, and do not give up when the line is cut."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from phalanx.frontends.host.core.core import Core
from phalanx.frontends.host.messages import ENDED, Accepted, Submission
from phalanx.frontends.host.ports import Caller, Refused
from phalanx.frontends.host.service import Listing
from phalanx.frontends.host.store import Change, StoreBroken, UpdateJob
from phalanx.testing.hosts.host_world import HostWorld, caller_of
from phalanx.testing.hosts.machine_rules import Acknowledged, Checks

ADMIN: Final = Caller(0, "root", admin=True)
#: Words that are said again and again until they are acknowledged.
INSISTED: Final = ("cancel", "release")
LOOKS: Final = ("rows", "why", "detail", "nodes", "queues", "share", "report", "report_eta", "gantt", "status")

Chosen = tuple[int, Acknowledged]


@dataclass(slots=True)
class IntendedSubmit:
    """A submit that somebody is determined to make."""

    caller: Caller
    key: str
    submissions: list[Submission]
    promises: list[Acknowledged]
    ids: list[int] = field(default_factory=list)


class People:
    """Everybody who speaks with the daemon of one trial."""

    def __init__(self, world: HostWorld, checks: Checks, dice: Random, troubles: frozenset[str]) -> None:
        """Nobody has said anything."""
        self.world, self.checks, self.dice, self.troubles = world, checks, dice, troubles
        self.on_told: Callable[[], None] = lambda: None  # somebody got an answer
        self.fickle = True  # some change their minds just when a job starts
        self.wishes: list[IntendedSubmit] = []
        world.store.watchers.append(self._on_commit)

    def again(self, call: Callable[[], None]) -> None:
        """In a while."""
        self.world.at(self.world.now_us + self.dice.choice((50_000, 1_000_000, 7_000_000)), call)

    # ------------------------------------------------------------------ submits

    def submit(self, wish: IntendedSubmit, copies_us: Sequence[int] = ()) -> None:
        """Now, and once more after each of these times, as clients do that did not hear the answer."""
        self.wishes.append(wish)
        self._try(wish)
        for later_us in copies_us:
            self.world.at(self.world.now_us + later_us, lambda: self._try(wish))

    def _try(self, wish: IntendedSubmit) -> None:
        self.world.ask(
            lambda core: core.submit(wish.caller, wish.submissions, wish.key, dry_run=False),
            lambda reply: self._on_submitted(wish, reply),
            lambda: self.again(lambda: self._try(wish)),
        )

    def _on_submitted(self, wish: IntendedSubmit, reply: list[Accepted] | Exception) -> None:
        if isinstance(reply, Exception):
            code = reply.refusal.code if isinstance(reply, Refused) else "unavailable"
            self.checks.note(f"refused {wish.key}: {code}")
            if code == "unavailable":
                self.again(lambda: self._try(wish))
            return
        wish.ids = [accepted.id for accepted in reply]
        self.checks.on_accepted(wish.caller.uid, wish.key, wish.ids, wish.promises)
        self.on_told()

    # ------------------------------------------------------------------ words

    def act(self, verb: str, body: dict[str, Any] | None = None, chosen: Chosen | None = None) -> None:
        """Do something to a job, or to any."""
        found = chosen or self._choose(verb)
        if found is None:
            return
        number, promise = found
        owner = next(who for who in map(caller_of, ("ada", "bob")) if who.uid == promise.uid)
        who = owner if verb == "retry" else ADMIN
        promise.wants.add(verb)
        if verb == "release":
            promise.held = False
        self.checks.note(f"ask {verb} {number}")
        self.world.ask(
            lambda core: core.act(who, str(number), verb, body or {}),
            lambda reply: self._on_done(verb, number, promise, reply),
            lambda: self._on_lost(verb, found),
        )

    def look(self, what: str) -> None:
        """Only look; whatever is shown, nothing may break."""
        found = self._choose("look")
        who = self.dice.choice((ADMIN, caller_of("ada")))
        if found is None:
            return
        asked: dict[str, Callable[[Core], Awaitable[object]]] = {
            "rows": lambda core: core.rows(who, Listing(everybody=True, finished=self.dice.random() < 0.5)),
            "why": lambda core: core.why(who, str(found[0])),
            "detail": lambda core: core.detail(who, str(found[0])),
            "nodes": lambda core: core.nodes(who),
            "queues": lambda core: core.queues(who),
            "share": lambda core: core.share(who),
            "report": lambda core: core.report(who, ["user", "queue"], None),
            "report_eta": lambda core: core.report_eta(who),
            "gantt": lambda core: core.gantt(who, 3600.0),
            "status": lambda core: core.status(who),
        }
        self.world.ask(asked[what])

    def _on_lost(self, verb: str, chosen: Chosen) -> None:
        if verb in INSISTED:
            self.again(lambda: self.act(verb, {}, chosen))

    def _choose(self, verb: str) -> Chosen | None:
        known = sorted(self.checks.promises.items())
        running = {process.job for process in self.world.processes()}
        if verb not in ("hold", "release", "retry") and self.dice.random() < 0.7:
            known = [each for each in known if each[0] in running] or known
        if verb == "resize":
            known = [each for each in known if each[1].elastic_least is not None] or known
        return self.dice.choice(known) if known else None

    def _on_done(self, verb: str, number: int, promise: Acknowledged, reply: object) -> None:
        self.checks.note(f"{verb} {number}: {'no' if isinstance(reply, Exception) else 'done'}")
        if isinstance(reply, Exception):
            if _is_unavailable(reply):
                self._on_lost(verb, (number, promise))
            return
        if verb == "cancel":
            promise.cancelled = True
            core = self.world.core
            job = None if core is None else core.known.register.by_id.get(number)
            # Of one whose last member has just ended well, the end may not be on disk yet.
            promise.in_time = promise.in_time or (job is not None and job.state not in ENDED)
        elif verb == "hold" and "release" not in promise.wants:
            promise.held = True
        elif verb == "retry" and isinstance(reply, Accepted):
            # What kept the first from its turn keeps this one, but for dependencies that have ended.
            records = {number: self.world.store.job(number) for number in promise.after}
            after = tuple(number for number, record in records.items() if record and record.state not in ENDED)
            wants = promise.wants & {"hold"}
            fresh = replace(promise, after=after, cancelled=False, in_time=False, wants=wants)
            self.checks.promises.setdefault(reply.id, fresh)
        self.on_told()

    def _on_commit(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if not isinstance(change, UpdateJob) or change.columns.get("state") != "starting":
                continue
            promise = self.checks.promises.get(change.id)
            if promise is not None and "cancels" in self.troubles and self.fickle and self.dice.random() < 0.1:
                chosen = (change.id, promise)
                delay_us = self.dice.choice((0, 1_000, 50_000, 300_000))
                self.world.at(self.world.now_us + delay_us, lambda chosen=chosen: self.act("cancel", {}, chosen))  # type: ignore[misc]

    def release_all(self) -> None:
        """Whatever people held up is let go."""
        for number, promise in sorted(self.checks.promises.items()):
            if promise.held or "hold" in promise.wants:
                self.act("release", {}, (number, promise))


def _is_unavailable(reply: Exception) -> bool:
    return isinstance(reply, StoreBroken) or (isinstance(reply, Refused) and reply.refusal.code == "unavailable")
