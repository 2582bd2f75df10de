"""`python -m phalanx.frontends.host`: the daemon's process."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import gc
import grp
import json
import logging
import logging.handlers
import os
import pwd
import resource
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import msgspec

from phalanx import __version__
from phalanx.control.spec.errors import BadInput
from phalanx.control.state import DEFAULT_WALLTIME_US
from phalanx.frontends.host.api import CannotListen, PrometheusMeters, TokenFileError, Tokens, serve
from phalanx.frontends.host.clock import ClockMark, HostClock
from phalanx.frontends.host.core.core import Core
from phalanx.frontends.host.core.intake import Intake
from phalanx.frontends.host.core.knowledge import Knowledge
from phalanx.frontends.host.core.means import Means
from phalanx.frontends.host.core.planner import Planner
from phalanx.frontends.host.devices import Inventory, open_devices
from phalanx.frontends.host.launching import HostLauncher
from phalanx.frontends.host.machine import describe_node
from phalanx.frontends.host.places import Places, find_places, open_ours
from phalanx.frontends.host.ports import Caller
from phalanx.frontends.host.settings import Settings, load_settings
from phalanx.frontends.host.store import PutMeta, Store, StoreBroken, open_store
from phalanx.model.fleet import Fleet

log = logging.getLogger("phalanx")

#: Exit codes of the process: another daemon has the state directory; settings or the machine are not as they must be.
BUSY, UNUSABLE = 0, 2
#: The store failed while it ran; whoever watches over the daemon starts it again.
FAILED = 1
#: Processes and threads of one run where many share a machine: far more than training needs, far less than there are.
SYSTEM_PIDS_MAX = 16_384
#: The highest priority that users may ask for where many share a machine, unless an administrator says otherwise:
#: priorities come before fair shares, so whoever could raise one's own would be served before everybody else.
SYSTEM_PRIORITY_MAX = 0
GROUND_EVERY_S = 5.0


def main(argv: list[str] | None = None) -> int:
    """Run until stopped."""
    told = _parse(argv)
    os.umask(0o077)
    _take_descriptors()
    try:
        places = find_places(Path(told.state), system=told.system)
    except BadInput as bad:
        return _complain(str(bad))
    try:
        lock = _lock(places)
    except OSError as bad:
        return _complain(
            f"{places.lock_file} cannot be opened: {bad.strerror}; look at what is there, and move it away"
        )
    if lock is None:
        return BUSY
    try:
        _log_to(places, foreground=told.foreground)
        told.lock = os.fstat(lock.fileno()).st_ino
        return asyncio.run(_serve(told, places))
    except (BadInput, StoreBroken, CannotListen, TokenFileError) as bad:
        hint = getattr(bad, "hint", "")
        story = f"{bad}; {hint}" if hint and hint not in str(bad) else str(bad)
        log.critical("%s", story)
        return _complain(story)
    finally:
        with contextlib.suppress(OSError):
            places.daemon_file.unlink()
        lock.close()


def _take_descriptors() -> None:
    """As many as there are to be had: every run takes two, and the usual soft limit of 1,024 is 500 of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="phalanx daemon", description="The one-machine daemon of Phalanx.")
    parser.add_argument("--state", required=True, help="the state directory")
    parser.add_argument("--fake-gpus", type=int, default=None, help="make up so many GPUs")
    parser.add_argument("--real-gpus", action="store_true", help="the machine's own, if others were made up before")
    parser.add_argument("--system", action="store_true", help="one queue for all users; jobs run as who submitted them")
    parser.add_argument("--policy", default=None, help="a policy by name")
    parser.add_argument("--tcp", default=None, metavar="HOST:PORT", help="listen on loopback as well, with tokens")
    parser.add_argument("--foreground", action="store_true", help="write the log to standard error")
    return parser.parse_args(argv)


def _complain(what: str) -> int:
    sys.stderr.write(f"phalanx: error: {what}\n")
    return UNUSABLE


def _lock(places: Places) -> IO[bytes] | None:
    """One daemon a state directory, for as long as the file is open."""
    lock = os.fdopen(open_ours(places.lock_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        return None
    return lock


def _log_to(places: Places, *, foreground: bool) -> None:
    handler: logging.Handler
    if foreground:
        handler = logging.StreamHandler()
    else:
        os.close(open_ours(places.log_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT))
        handler = logging.handlers.RotatingFileHandler(places.log_file, maxBytes=4 << 20, backupCount=2)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.getLogger().addHandler(handler)
    logging.getLogger().setLevel(logging.WARNING)
    log.setLevel(logging.INFO)


async def _serve(told: argparse.Namespace, places: Places) -> int:
    flags = {"policy": told.policy, "tcp": told.tcp}
    settings = load_settings(places.state, flags=flags, env=os.environ, system=told.system)
    for warning in settings.warnings:
        log.warning("%s", warning)
    store = open_store(places.state, clock=HostClock())
    if store.restored:
        log.error("%s", store.restored)
    try:
        return await _run(told, places, settings, store)
    finally:
        await store.close()


def _remember_gpus(store: Store, told: argparse.Namespace) -> int | None:
    """Made-up GPUs stay until somebody wants the real ones: a restart must not change the machine."""
    kept = store.meta("fake_gpus")
    wanted: int | None = told.fake_gpus
    if wanted is None and kept and not told.real_gpus:
        wanted = msgspec.json.decode(kept)
    store.write_now(PutMeta("fake_gpus", msgspec.json.encode(wanted)))
    return wanted


def _go_on(store: Store) -> HostClock:
    """The clock, from where it was written down last."""
    told = store.meta("clock")
    mark = None if told is None else msgspec.json.decode(told, type=ClockMark)
    clock = HostClock(mark)
    if mark is None or mark.boot_id != clock.boot_id:
        # Once a boot is enough: from then on this clock is exact, whatever happens to the daemon.
        store.write_now(PutMeta("clock", msgspec.json.encode(clock.mark())))
    return clock


def _for_everybody(settings: Settings) -> Settings:
    """Where many share a machine, nobody waits behind ten thousand jobs of one, unless somebody set it so."""
    if settings.origins.get("policy", "default") == "default":
        settings = replace(settings, policy_options={**settings.policy_options, "users": "fair"})
    written = dict(settings.written)
    if settings.origins.get("pids_max", "default") == "default":
        settings = replace(settings, pids_max=SYSTEM_PIDS_MAX)
        written["pids_max"] = SYSTEM_PIDS_MAX
    if settings.origins.get("priority_ceiling", "default") == "default":
        settings = replace(settings, priority_ceiling_unsaid=SYSTEM_PRIORITY_MAX)
        written["priority_ceiling"] = SYSTEM_PRIORITY_MAX
    return replace(settings, written=written)


def _make_means(
    told: argparse.Namespace,
    places: Places,
    settings: Settings,
    parts: tuple[HostClock, Store, HostLauncher, Inventory, PrometheusMeters],
) -> Means:
    """Everything that the parts of the core stand on."""
    clock, store, launcher, devices, meters = parts
    node = describe_node(devices, reserve=settings.reserve)
    fleet, policy = Fleet([node], ()), settings.make_policy()
    if told.system:
        settings = _for_everybody(settings)
        policy = settings.make_policy()
    walltime_us = settings.default_walltime_us or DEFAULT_WALLTIME_US
    known = Knowledge(
        clock=clock,
        store=store,
        devices=list(devices.list()),
        planner=Planner(fleet, policy, settings.queues, settings.users, walltime_us),
        intake=Intake(fleet, settings.queues, settings.users, policy, ()),
        runs=places.runs,
        settings=settings,
        system=told.system,
        node=node.name,
        meters=meters,
    )
    return Means(known, launcher, clock.boot_id)


async def _run(told: argparse.Namespace, places: Places, settings: Settings, store: Store) -> int:
    clock = _go_on(store)
    told.fake_gpus = _remember_gpus(store, told)
    os.chdir("/")  # the directory of whoever started us is theirs
    devices, launcher, meters = (
        open_devices(told.fake_gpus),
        HostLauncher(places.runs, drop_privileges=told.system),
        PrometheusMeters(),
    )
    means = _make_means(told, places, settings, (clock, store, launcher, devices, meters))
    about = {
        "pid": os.getpid(),
        "socket": str(places.socket),
        "version": __version__,
        "containment": launcher.containment,
        "state_dir": str(places.state),
    }
    core = Core(means, devices, about)
    core.house.recall()
    server = serve(
        core,
        socket_path=places.socket,
        socket_mode=0o666 if told.system else 0o600,
        identify=_identify(settings, system=told.system),
        tcp=settings.tcp,
        tokens=Tokens(places.state / "tokens.json", wall_s=clock.wall_s) if settings.tcp else None,
        version=__version__,
        hosts=(),
        meters=meters,
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, core.stop)
    await core.recover()
    facts = {
        "boot_id": clock.boot_id,
        "started": clock.wall_s(),
        "fake_gpus": told.fake_gpus,
        "restored": store.restored,
    }
    _write_about(places, about | facts)
    # Ten thousand waiting jobs are a million objects that nobody will free soon: looking through them costs
    # more than it finds.
    gc.freeze()
    # A forecast computes in a thread of its own; whoever waits for the disk must not wait for it as well.
    sys.setswitchinterval(0.0005)
    gc.set_threshold(50_000, 20, 50)
    log.info("version %s answers at %s with %d GPUs", __version__, places.socket, len(means.known.devices))
    listening = loop.create_task(server.run())
    standing = loop.create_task(_stand_on(places, told.lock, core))
    try:
        await core.run()
    finally:
        standing.cancel()
        server.stop()
        await listening
        await core.house.finish()
        log.info("stopped; running jobs go on")
    return FAILED if means.errands.broken.is_set() else 0


async def _stand_on(places: Places, lock: int, core: Core) -> None:
    """A daemon whose state directory was taken away serves nobody, and the next one would not know of it."""
    while True:
        await core.known.clock.sleep(GROUND_EVERY_S)
        try:
            here = places.lock_file.lstat().st_ino == lock
        except OSError:
            here = False
        if not here:
            log.critical("the state directory was removed or replaced; this daemon stops")
            core.stop()
            return


def _identify(settings: Settings, *, system: bool) -> Any:
    """Who speaks, by uid. In user mode only the daemon's own user and root are anybody."""
    own = os.getuid()

    def identify(uid: int) -> Caller:
        try:
            entry = pwd.getpwuid(uid)
            name, gid = entry.pw_name, entry.pw_gid
        except KeyError:
            name, gid = str(uid), -1
        if not system:
            if uid not in (0, own):
                raise LookupError(f"this is the daemon of uid {own}")
            return Caller(uid, name, admin=True)
        return Caller(uid, name, admin=uid == 0 or _in_group(name, gid, settings.admin_group))

    return identify


def _in_group(user: str, gid: int, group: str | None) -> bool:
    if not group:
        return False
    try:
        entry = grp.getgrnam(group)
    except KeyError:
        return False
    return gid == entry.gr_gid or user in entry.gr_mem


def _write_about(places: Places, about: dict[str, Any]) -> None:
    """Where clients find the daemon, whole or not at all."""
    draft = places.daemon_file.with_suffix(".new")
    try:
        draft.unlink(missing_ok=True)
        with os.fdopen(open_ours(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(json.dumps(about))
        draft.replace(places.daemon_file)
    except OSError as bad:  # a folder of that name, for example
        path = places.daemon_file
        raise BadInput(f"{path} cannot be written: {bad.strerror}; look at `ls -ld {path}*`, move it away") from None


if __name__ == "__main__":
    sys.exit(main())
