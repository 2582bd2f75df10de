"""An ended job again: as it was, under a new id, and still behind whatever had not let it have its turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from phalanx.control.gates import GATE_HOLD
from phalanx.frontends.host.core.admission import Admission
from phalanx.frontends.host.core.jobs import Job, is_same_element
from phalanx.frontends.host.core.knowledge import Knowledge
from phalanx.frontends.host.messages import ENDED, Accepted, ArrayPart, Submission
from phalanx.frontends.host.ports import Caller, Refused
from phalanx.frontends.host.store import JobRecord


class Retries:
    """Hands ended jobs in again."""

    def __init__(self, known: Knowledge, admission: Admission) -> None:
        """By the door that every job comes through."""
        self.known, self.admission = known, admission

    async def retry(self, caller: Caller, job: Job, key: str | None) -> Accepted:
        """Submit an ended job again as it was, under a new id; an element takes the place of the one it repeats."""
        # Whoever asks, it stays its owner's: an administrator must not run what somebody else prepared.
        owner = caller if caller.uid == job.uid else Caller(job.uid, job.user)
        if key is not None and self.known.store.find_key(owner.uid, key) is not None:
            # It was acknowledged, and the line was cut: by now what it made may run, and be what the word means.
            return (await self.admission.submit(owner, [], key))[0]
        self._must_have_ended(job)
        stored = self.known.store.job(job.id)
        assert stored is not None
        options: Mapping[str, Any] = msgspec.json.decode(stored.options) if stored.options else {}
        part = options.get("array")
        gang, left_out = self._tie_again(stored, options.get("after", ()))
        submission = Submission(
            gang=msgspec.Raw(gang),
            run=msgspec.Raw(self.known.store.load_run(job.id)),
            name=stored.name,
            begin=self._begin_again(options.get("begin_us")),
            array=None if part is None else msgspec.convert(part, ArrayPart),
            singleton=bool(options.get("singleton")),
            allow_infeasible=bool(options.get("allow_infeasible")),
            hold=stored.held,
        )
        (accepted,) = await self.admission.submit(owner, [submission], key)
        held = f"it is on hold, as job {job.id} was; to let it start: phalanx release {accepted.id}"
        return msgspec.structs.replace(accepted, warnings=[*([held] if stored.held else []), *left_out])

    def _must_have_ended(self, job: Job) -> None:
        """Of one that waits a copy would go past its hold, its dependencies and its place in the line."""
        copies = (each for each in self.known.register if not each.ended and is_same_element(each, job))
        still = job if not job.ended else next(copies, None)
        if still is None:
            return
        told = f"job {still.id} has not ended: it is {still.state}"
        if still is not job:
            told = f"job {job.id} was submitted again already, as {still.id}, which has not ended: it is {still.state}"
        held = GATE_HOLD in still.gates
        way = f"phalanx release {still.id}" if held else f"see where it stands: phalanx why {still.id}"
        raise Refused("conflict", told, way if still.state == "pending" else f"end it first: phalanx cancel {still.id}")

    def _tie_again(self, stored: JobRecord, after: list[str]) -> tuple[bytes, list[str]]:
        """Its gang, behind those of its dependencies that have not ended, and what to say of the others."""
        tree: dict[str, Any] = msgspec.json.decode(stored.gang)
        any_end = isinstance(tree.pop("after", None), Mapping)
        tree.pop("hold", None)  # somebody may have released it since: the row knows
        states = {name: self._state_of(name) for name in after}
        left = [name for name, state in states.items() if state and state not in ENDED]
        if left:
            tree["after"] = {"any": left} if any_end else left
        # One that failed can never complete: to wait for its success again would be to be cancelled again.
        lost = [name for name, state in states.items() if state in ENDED - {"completed"} and not any_end]
        words = [f"it does not wait for {', '.join(lost)} any more, which did not complete"] if lost else []
        return msgspec.json.encode(tree), words

    def _state_of(self, name: str) -> str | None:
        """None: it ended so long ago that its row is gone."""
        job = self.known.register.by_id.get(int(name)) or self.known.store.job(int(name))
        return None if job is None else job.state

    def _begin_again(self, begin_us: int | None) -> str | None:
        """The same instant, unless it is over."""
        left_us = 0 if begin_us is None else begin_us - self.known.now_us()
        return f"+{left_us / 1e6:.6f}" if left_us > 0 else None
