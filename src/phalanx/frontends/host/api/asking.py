"""A request as handlers see it: who asks what of whom."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.types import Receive

from phalanx.frontends.host.api.prometheus_meters import PrometheusMeters
from phalanx.frontends.host.api.request_limits import ApiLimits, Slots
from phalanx.frontends.host.ports import Caller
from phalanx.frontends.host.service import Service


@dataclass(frozen=True, slots=True)
class House:
    """What all requests share."""

    service: Service
    meters: PrometheusMeters
    limits: ApiLimits
    streams: Slots
    stopping: asyncio.Event
    document: bytes  # of OpenAPI


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, let in and decoded."""

    house: House
    caller: Caller
    ref: str  # of the job, where the path names one
    query: Any
    body: Any
    headers: Mapping[bytes, bytes]
    receive: Receive

    @property
    def service(self) -> Service:
        """The core."""
        return self.house.service

    async def until_gone(self) -> None:
        """Return when the caller has hung up."""
        while (await self.receive())["type"] != "http.disconnect":
            pass
