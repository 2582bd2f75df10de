"""Who of several replicas binds: one Lease, and an epoch that grows whenever it changes hands.

How long a lease is good is measured on the own clock, from when a change of it was seen: clocks of two machines need
not agree. Whoever leads stops before the lease ends by more than a call takes, so that nothing of it is under way when
the next one begins; one that slept through that finds out before its next write, by a clock that counts sleep.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

from phalanx.frontends.kube.api.api_client import ApiClient, ApiRefusedError, ApiSilentError, decode_any
from phalanx.frontends.kube.intents import FencedError
from phalanx.frontends.kube.kube_clock import KubeClock

LEASE_S: Final = 15
RENEW_LIMIT_S: Final = 10
RETRY_S: Final = 2.0
#: The smallest lease of somebody else that is believed; a shorter one would be taken from whoever blinks.
_LEASE_S_MIN: Final = 1


class Leadership:
    """Of one replica."""

    def __init__(
        self,
        api: ApiClient,
        clock: KubeClock,
        tell: Callable[..., None],
        *,
        namespace: str,
        name: str,
        identity: str,
        replica: str = "",
    ) -> None:
        """`replica`: a word for a place where never two of us are alive at once, if we have one."""
        self._api, self._clock, self._tell = api, clock, tell
        self._replica = replica
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._name, self._identity = name, f"{replica}_{identity}" if replica else identity
        self._seen: tuple[str, int] = ("", 0)  # the version of the lease, and when it was first seen
        self._good_until_us = 0
        self._tree: dict[str, Any] = {}
        self._said = ""
        self.holder = ""  # who leads, as far as that was looked at

    def is_good(self) -> bool:
        """Whether we lead, for sure, for as long as a call takes."""
        return self._clock.boot_us() < self._good_until_us

    async def win(self) -> int:
        """Wait until we lead; the answer is the epoch."""
        while True:
            try:
                epoch = await self._try()
            except (ApiSilentError, ApiRefusedError) as bad:
                self._say("lease-trouble", str(bad))
                epoch = None
            if epoch is not None:
                return epoch
            await asyncio.sleep(RETRY_S)

    async def keep(self) -> None:
        """Renew it until it is lost, which is a `FencedError`."""
        while True:
            await asyncio.sleep(RETRY_S)
            try:
                await self._renew()
            except ApiSilentError as silent:
                self._say("lease-trouble", str(silent))
            except ApiRefusedError as refused:
                if refused.code == HTTPStatus.CONFLICT and not await self._is_still_ours():
                    raise FencedError("somebody else has taken the lease") from refused
            if not self.is_good():
                raise FencedError(f"the lease could not be renewed for {RENEW_LIMIT_S} s")

    async def release(self) -> None:
        """Let the next one begin at once."""
        if not self.is_good():
            return
        try:
            await self._give_up()
        except ApiRefusedError as refused:
            # A renewal that was broken off by the end may have been done all the same.
            if refused.code != HTTPStatus.CONFLICT or not await self._is_still_ours():
                raise
            await self._give_up()

    async def _give_up(self) -> None:
        self._good_until_us = 0
        tree = {
            **self._tree,
            "spec": {**self._tree["spec"], "holderIdentity": "", "leaseDurationSeconds": _LEASE_S_MIN},
        }
        await self._api.call("PUT", f"{self._path}/{self._name}", tree)

    # ---- behind

    async def _try(self) -> int | None:
        asked_us = self._clock.boot_us()
        try:
            tree = decode_any(await self._api.get(f"{self._path}/{self._name}"))
        except ApiRefusedError as refused:
            if refused.code != HTTPStatus.NOT_FOUND:
                raise
            if self._seen[0] and asked_us < self._seen[1] + LEASE_S * 1_000_000:
                return None  # somebody has deleted it, and whoever held it need not know yet
            return await self._create(asked_us)
        version, spec = tree["metadata"]["resourceVersion"], tree.get("spec") or {}
        if version != self._seen[0]:
            self._seen = (version, asked_us)
        holder = spec.get("holderIdentity") or ""
        lease_us = max(int(spec.get("leaseDurationSeconds") or LEASE_S), _LEASE_S_MIN) * 1_000_000
        # One that was in our place before us has ended: the outage that took its lease need not cost another lease.
        was_ours = bool(self._replica) and holder.startswith(f"{self._replica}_")
        if holder and not was_ours and asked_us < self._seen[1] + lease_us:
            self.holder = holder
            self._say("follow", f"{holder} leads")
            return None
        epoch = int(spec.get("leaseTransitions") or 0) + 1
        tree["spec"] = self._spec(epoch)
        try:
            answer = await self._api.call("PUT", f"{self._path}/{self._name}", tree)
        except ApiRefusedError as refused:
            if refused.code == HTTPStatus.CONFLICT:
                return None  # somebody was quicker
            raise
        return self._note(decode_any(answer), asked_us)

    async def _create(self, asked_us: int) -> int | None:
        tree = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name},
            "spec": self._spec(1),
        }
        try:
            answer = await self._api.call("POST", self._path, tree)
        except ApiRefusedError as refused:
            if refused.code == HTTPStatus.CONFLICT:
                return None
            raise
        return self._note(decode_any(answer), asked_us)

    async def _renew(self) -> None:
        asked_us = self._clock.boot_us()
        self._tree["spec"]["renewTime"] = self._clock.stamp_micro()
        answer = await self._api.call("PUT", f"{self._path}/{self._name}", self._tree)
        self._note(decode_any(answer), asked_us)

    async def _is_still_ours(self) -> bool:
        """A conflict may be with our own write whose answer was lost."""
        try:
            asked_us = self._clock.boot_us()
            tree = decode_any(await self._api.get(f"{self._path}/{self._name}"))
        except (ApiSilentError, ApiRefusedError):
            return True  # not known; the clock decides
        spec = tree["spec"]
        mine = self._tree["spec"]
        if (spec["holderIdentity"], spec["leaseTransitions"]) != (mine["holderIdentity"], mine["leaseTransitions"]):
            return False
        if spec.get("renewTime") == mine["renewTime"]:
            self._note(tree, asked_us)
        self._tree = tree
        return True

    def _note(self, tree: dict[str, Any], asked_us: int) -> int:
        self._tree = tree
        # From before the call went out: the others count from when they see it.
        self._good_until_us = asked_us + RENEW_LIMIT_S * 1_000_000
        return int(tree["spec"]["leaseTransitions"])

    def _spec(self, epoch: int) -> dict[str, Any]:
        now = self._clock.stamp_micro()
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": LEASE_S,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": epoch,
        }

    def _say(self, word: str, says: str) -> None:
        if says != self._said:
            self._tell(word, says=says)
            self._said = says
