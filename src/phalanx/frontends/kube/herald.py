"""Tells people how gangs are: conditions where each dialect has them, and one event for each gang and reason.

What to write is worked out in `statuses`; here is when, and that it is written once. A gang that starts within a second
is never told that it waits: of the writes beside a binding, that is most of what the others pay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from phalanx.control.explain import Told
from phalanx.frontends.kube.api.api_client import ApiClient, ApiRefusedError, ApiSilentError
from phalanx.frontends.kube.gang_view import Dialect, GangKey, GangView
from phalanx.frontends.kube.kube_clock import KubeClock
from phalanx.frontends.kube.mirror import Mirror
from phalanx.frontends.kube.objects.decode import Unreadable
from phalanx.frontends.kube.remarks import NotYet
from phalanx.frontends.kube.statuses import (
    GangEvent,
    GangStanding,
    StatusPatch,
    Tiding,
    make_event,
    patch_group,
    patch_pod,
    tell_gang,
)
from phalanx.model.reason import Code

#: How long a gang waits before it is told so, and how long before it is told the same reason with other numbers.
PATIENCE_US: Final = 1_000_000
REPEAT_US: Final = 10_000_000
_EVENT_WORDS_CHARS_MAX: Final = 1_000
#: Gangs that are told beside each other: more than one, so that thousands are told within a minute; few, since what
#: the API server does for this it does not do for bindings.
_AT_A_TIME: Final = 4


@dataclass(slots=True)
class _ToldGang:
    """What one gang was told."""

    due_us: int  # not told before
    events: set[str]
    word: str = ""  # what it was told last
    told_us: int = 0


class Herald:
    """One for all gangs."""

    def __init__(
        self, api: ApiClient, mirror: Mirror, clock: KubeClock, tell: Callable[..., None], scheduler: str
    ) -> None:
        self._api, self._mirror, self._clock, self._tell = api, mirror, clock, tell
        self._scheduler = scheduler
        self._listeners: dict[GangKey, _ToldGang] = {}
        self._untold: set[GangKey] = set()
        self._review_us: int | None = None  # when all reasons are looked at again
        self._without_status: set[tuple[str, str]] = set()  # kinds that have no such subresource

    def mark(self, keys: Iterable[GangKey]) -> None:
        """Something about them has changed."""
        for key in keys:
            self._untold.add(key)
            self._listeners.setdefault(key, _ToldGang(self._clock.now_us() + PATIENCE_US, set()))

    def hasten(self, keys: Iterable[GangKey]) -> None:
        """Somebody waits for that word."""
        self.mark(keys)
        for key in keys:
            self._listeners[key].due_us = self._listeners[key].told_us = 0

    def forget(self, key: GangKey) -> None:
        """There is nothing of it any more."""
        self._listeners.pop(key, None)
        self._untold.discard(key)

    def review(self) -> None:
        """Room was taken or given back: others who wait may do so for another reason by now."""
        if self._review_us is None:
            self._review_us = self._clock.now_us() + PATIENCE_US

    def is_review_due(self) -> bool:
        """Whether it is time for that."""
        return self._review_us is not None and self._review_us <= self._clock.now_us()

    def add_stale(self, due: Iterable[GangKey], why: Mapping[GangKey, Told]) -> list[GangKey]:
        """Beside them, whoever was told another reason than the one that holds now; in a stable order."""
        self._review_us = None
        stale = {key for key, (code, *_) in why.items() if self._was_told_otherwise(key, code)}
        self._untold |= stale
        return sorted(stale.union(due), key=lambda key: key.unique)

    def _was_told_otherwise(self, key: GangKey, code: Code) -> bool:
        listener = self._listeners.get(key)
        return listener is not None and listener.word not in ("", code.word)

    def next_due_us(self) -> int | None:
        """When the first of those who were not told yet has waited long enough."""
        dues = [self._listeners[key].due_us for key in self._untold]
        return min(dues if self._review_us is None else [*dues, self._review_us], default=None)

    def list_due(self) -> list[GangKey]:
        """Whom to tell now, those for whom somebody waits first, then in the order in which they came."""
        now_us = self._clock.now_us()
        due = [key for key in self._untold if self._listeners[key].due_us <= now_us]
        return sorted(due, key=lambda key: (self._listeners[key].due_us, key.unique))

    async def tell_some(
        self, keys: Iterable[GangKey], views: Mapping[GangKey, GangView], why: Mapping[GangKey, Told]
    ) -> None:
        """How each of them is, if that is news."""
        todo = list(keys)
        # All at once: what is marked while the first are told is news of which `why` knows nothing.
        self._untold.difference_update(todo)
        shared = iter(todo)

        async def tell() -> None:
            for key in shared:
                view = views.get(key)
                if view is None or key not in self._listeners:
                    continue
                try:
                    await self._tell_one(view, why.get(key))
                except ApiSilentError as silent:
                    # Who does not answer for one need not be asked for all the others.
                    self._tell("status-silent", gang=str(key), says=str(silent))
                    self._postpone([key, *shared])

        await asyncio.gather(*(tell() for _ in range(_AT_A_TIME)))

    def _postpone(self, keys: Iterable[GangKey]) -> None:
        for key in keys:
            if key in self._listeners:
                self._listeners[key].due_us, self._listeners[key].told_us = self._clock.now_us() + PATIENCE_US, 0
                self._untold.add(key)

    async def _tell_one(self, view: GangView, told: Told | None) -> None:
        key = view.key
        code, message, needed, available = told if told is not None else (Code.NONE, "", 0, 0)
        if code is Code.NONE:
            told = None  # it starts just now
        tiding = tell_gang(view, code, message, needed, available)
        listener = self._listeners[key]
        now_us = self._clock.now_us()
        if tiding.word and tiding.word == listener.word and now_us < listener.told_us + REPEAT_US:
            # A gang whose pods come one by one must not be a write for each.
            listener.due_us = listener.told_us + REPEAT_US
            self._untold.add(key)
            return
        listener.word, listener.told_us = tiding.word, now_us
        group = self._mirror.find_group(key)
        now = self._clock.stamp()
        is_waiting = tiding.standing is GangStanding.WAITING and (bool(tiding.word) or told is not None)
        if group is not None and not isinstance(group, Unreadable) and (is_waiting or _is_settled(view, tiding)):
            await self._write(patch_group(group, view, tiding, now), key)
        for member in view.members:
            pod = self._mirror.find_pod((key.namespace, member.name))
            if pod is not None and pod.metadata.uid == member.uid and pod.spec.scheduler_name == self._scheduler:
                await self._write(patch_pod(pod, member, view, tiding, now), key)
        is_told_elsewhere = tiding.standing is GangStanding.BOUND and (
            group is not None or key.dialect is Dialect.PLAIN
        )
        if tiding.word and tiding.word not in listener.events and not is_told_elsewhere:
            listener.events.add(tiding.word)
            event = make_event(view, None if isinstance(group, Unreadable) else group, tiding)
            await self._post(event)

    async def _write(self, patch: StatusPatch | None, key: GangKey) -> None:
        if patch is None:
            return
        try:
            await self._send(patch)
        except ApiRefusedError as refused:
            if refused.code == HTTPStatus.TOO_MANY_REQUESTS:
                raise ApiSilentError(str(refused)) from refused  # as good as no answer: it is told later
            if refused.code == HTTPStatus.CONFLICT:
                pass  # it is looked at again when the newer one is here
            elif refused.code not in (HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY):
                self._tell("status-refused", gang=str(key), says=refused.words)

    async def _send(self, patch: StatusPatch) -> None:
        of_kind = (patch.api_version, patch.kind)
        # Asked for and not read off the patch: definitions of one kind differ from release to release in whether they
        # have a subresource, and a status that is written to the wrong one of the two is dropped without a word.
        path = _path_of(patch)
        if of_kind not in self._without_status:
            try:
                await self._api.call("PATCH", f"{path}/status", patch.body, kind=patch.patch_kind.value)
            except ApiRefusedError as refused:
                if refused.code != HTTPStatus.NOT_FOUND or patch.kind == "Pod":
                    raise
            else:
                return
        await self._api.call("PATCH", path, patch.body, kind=patch.patch_kind.value)
        self._without_status.add(of_kind)

    async def _post(self, event: GangEvent) -> None:
        namespace = event.key.namespace
        now = self._clock.stamp_micro()
        tree: dict[str, Any] = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"generateName": f"{event.name[:200]}-", "namespace": namespace},
            "eventTime": now,
            "reportingController": f"phalanx.dev/{self._scheduler}",
            "reportingInstance": self._scheduler,
            "action": event.action,
            "reason": event.reason,
            "type": event.type,
            "note": event.note[:_EVENT_WORDS_CHARS_MAX],
            "regarding": {
                "apiVersion": event.api_version,
                "kind": event.kind,
                "namespace": namespace,
                "name": event.name,
                "uid": event.uid,
            },
        }
        try:
            await self._api.call("POST", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", tree)
        except ApiRefusedError as refused:
            self._tell("event-refused", gang=str(event.key), says=refused.words)
        except ApiSilentError:
            pass  # an event is told once; whether that one came through is not worth a question


def _is_settled(view: GangView, tiding: Tiding) -> bool:
    """Whether what its object says need not wait: it is bound, has ended, or its pods are made when they read it."""
    if view.key.dialect is Dialect.VOLCANO:
        return True
    return tiding.standing is GangStanding.BOUND or not all(isinstance(each, NotYet) for each in view.blockers)


def _path_of(patch: StatusPatch) -> str:
    if patch.kind == "Pod":
        return f"/api/v1/namespaces/{patch.namespace}/pods/{patch.name}"
    return f"/apis/{patch.api_version}/namespaces/{patch.namespace}/podgroups/{patch.name}"
