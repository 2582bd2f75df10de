"""One replica as a process: log lines, signals, the way to the API server, and how it ends."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from typing import IO, Any, Final

import msgspec

from phalanx.frontends.kube.answers.desk import Desk
from phalanx.frontends.kube.api.api_client import ApiClient, ApiRefusedError, ApiSilentError
from phalanx.frontends.kube.api.kubeconfig import ApiAccess
from phalanx.frontends.kube.controller import Controller
from phalanx.frontends.kube.intents import FencedError
from phalanx.frontends.kube.kube_clock import KubeClock
from phalanx.frontends.kube.kube_door import PROBES, TEXT, DoorReply, DoorRequest, open_door
from phalanx.frontends.kube.kube_settings import KubeSettings
from phalanx.frontends.kube.leadership import Leadership

#: Somebody else leads: whoever started us starts us again, and we wait for our turn.
EXIT_FENCED: Final = 3


#: In the environment of a container: its pod's uid. A container that is started again comes after the one that ended.
REPLICA: Final = "PHALANX_REPLICA"


class JsonLog:
    """A line for each happening."""

    def __init__(self, clock: KubeClock, out: IO[str] = sys.stdout) -> None:
        self._clock, self._out = clock, out

    def tell(self, word: str, **fields: Any) -> None:
        """One."""
        line = msgspec.json.encode({"at": self._clock.stamp_micro(), "event": word, **fields})
        self._out.write(line.decode() + "\n")
        self._out.flush()


def run_controller(access: ApiAccess, settings: KubeSettings) -> int:
    """Until SIGTERM or SIGINT, or until somebody else leads; the answer is the exit code."""
    # Objects of the API are trees without cycles, made by the ten thousand: collecting them again and again is most of
    # what a start costs otherwise.
    gc.set_threshold(100_000, 50, 50)
    clock = KubeClock()
    log = JsonLog(clock)
    return asyncio.run(_run(access, settings, clock, log))


async def _run(access: ApiAccess, settings: KubeSettings, clock: KubeClock, log: JsonLog) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    controller = make_replica(
        access,
        settings,
        clock,
        log.tell,
        f"{socket.gethostname()}_{os.getpid()}_{clock.boot_us()}",
        replica=os.environ.get(REPLICA, ""),
    )
    desk = Desk(controller, log.tell)
    door = await open_door(settings.listen, partial(_answer, controller, desk)) if settings.listen else None
    log.tell("start", scheduler=settings.scheduler_name, server=f"{access.host}:{access.port}")
    try:
        await controller.run(stop)
    except FencedError as fenced:
        log.tell("fenced", says=str(fenced))
        return EXIT_FENCED
    except (ApiRefusedError, ApiSilentError) as bad:
        # Where there is no going on, as without a right that is needed to begin: a restart begins from what is there.
        log.tell("failed", says=str(bad))
        return 1
    finally:
        if door is not None:
            door.close()
    log.tell("stop")
    return 0


def make_replica(
    access: ApiAccess,
    settings: KubeSettings,
    clock: KubeClock,
    tell: Callable[..., None],
    identity: str,
    *,
    replica: str = "",
) -> Controller:
    """One, by a name that no other has; it does nothing yet."""
    leadership = None
    if settings.leader_election:
        leadership = Leadership(
            # Connections of its own: renewing must not queue behind a thousand bindings.
            ApiClient(access),
            clock,
            tell,
            namespace=settings.namespace or access.namespace,
            name=settings.scheduler_name,
            identity=identity,
            replica=replica,
        )
    return Controller(ApiClient(access), settings, clock, tell, leadership)


async def _answer(controller: Controller, desk: Desk, request: DoorRequest) -> DoorReply:
    code, text = 200, "ok\n"
    # Probes never wait for anybody's question.
    if request.path == "/metrics":
        text = _tell_metrics(controller)
    elif request.path == "/readyz" and not controller.has_sight:
        # A replica that follows is ready to lead.
        code, text = 503, "the cluster has not been listed yet\n"
    elif request.path not in PROBES:
        return await desk.answer(request)
    return DoorReply(code, text.encode(), TEXT)


def _tell_metrics(controller: Controller) -> str:
    counts, writes = controller.binder.counts, controller.api.writes
    views = controller.views.values()
    lines = [
        "# TYPE phalanx_kube_leading gauge",
        f"phalanx_kube_leading {int(controller.is_leading)}",
        "# TYPE phalanx_kube_pods_bound_total counter",
        f"phalanx_kube_pods_bound_total {counts.bound}",
        "# TYPE phalanx_kube_binds_read_back_total counter",
        f"phalanx_kube_binds_read_back_total {counts.read_back}",
        "# TYPE phalanx_kube_pods_evicted_total counter",
        f"phalanx_kube_pods_evicted_total {counts.evicted}",
        "# TYPE phalanx_kube_gangs_waiting gauge",
        f"phalanx_kube_gangs_waiting {sum(bool(view.roles) for view in views)}",
        "# TYPE phalanx_kube_api_writes_total counter",
        *(
            f'phalanx_kube_api_writes_total{{method="{call.partition(" ")[0]}",to="{call.partition(" ")[2]}"}} {count}'
            for call, count in sorted(writes.items())
        ),
    ]
    return "\n".join(lines) + "\n"
