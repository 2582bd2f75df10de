"""The daemon's settings: what may be said, where it was said, and what it comes to.

A key is taken whole from the strongest place that says it: a flag, the environment (`PHALANX_TCP` for
`tcp`), `phalanx.toml` in the folder where the daemon was started, `config.toml` in its state directory, the
user's file, the system's file. `setting_files` finds the files; here they are laid over each other and checked.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from phalanx.control.policies import find_policy, settle_name
from phalanx.control.spec.errors import BadInput, BadText, show, suggest
from phalanx.control.spec.quantity import SECOND_US, amount, number
from phalanx.control.spec.queues import QUEUE_KEYS, USER_KEYS, parse_queues, parse_users, with_default
from phalanx.control.spec.reader import Raw, raw_of
from phalanx.control.spec.spot import Fields, Spot
from phalanx.engine.policy import Policy
from phalanx.frontends.host.setting_files import Source, find_sources, read_policy_file
from phalanx.frontends.host.stranger_watch import DISPLAY_PROCESSES, SMALL_BYTES
from phalanx.model.queue import DEFAULT_QUEUE, Queue, UserLimit
from phalanx.policy import LENGTHS, POLICIES, BadOption, UnknownPolicy

DEFAULT_POLICY: Final = "goodput"
ENVIRONMENT: Final = "PHALANX_"
NONE: Final = "none"  # TOML has no word for nothing, and a stronger place may want to take something back

_COUNT_MAX: Final = 10_000_000
_PRIORITY_MAX: Final = 1_000_000_000
_DAY_S: Final = 86_400
_LOG_BYTES_MIN: Final = 64 << 10
_QUEUE_EXTRAS: Final = ("priority_ceiling",)
_USER_EXTRAS: Final = ("priority_ceiling", "max_queued", "max_running")
#: Variables that mean something else to somebody; a near miss of a setting is none of these.
_OTHER_VARIABLES: Final = frozenset(
    f"{ENVIRONMENT}{word}"
    for word in (
        "HOME", "SOCKET_PATH", "CONFIG", "JOB", "ATTEMPT", "GENERATION", "SOCKET", "KEY_FILE", "FAKE_USES", "BOOT_ID",
        "CRASH", "CRASH_LOG", "TOKEN", "TRACES", "SCENARIOS", "HYPOTHESIS",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bounds:
    """What differs for one user or queue; None: as for everybody."""

    priority_ceiling: int | None = None
    max_queued: int | None = None
    max_running: int | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything the daemon can be told. `origins` says of each key where it was said."""

    policy: str = DEFAULT_POLICY
    policy_options: Mapping[str, object] = field(default_factory=dict)  # in the units of `find_policy`
    queues: tuple[Queue, ...] = (Queue(DEFAULT_QUEUE),)
    users: tuple[UserLimit, ...] = ()
    queue_bounds: Mapping[str, Bounds] = field(default_factory=dict)
    user_bounds: Mapping[str, Bounds] = field(default_factory=dict)
    max_queued_per_user: int = 10_000
    max_running_per_user: int | None = None
    priority_ceiling: int | None = None
    priority_ceiling_unsaid: int | None = None  # where neither the file nor the user's or queue's entry names one
    log_cap_bytes: int = 64 << 20
    log_keep: int = 1
    default_walltime_us: int | None = None
    kill_grace_s: float = 10.0
    notice_s: float = 30.0  # to whoever is asked to save and leave
    resize_s: float = 60.0  # to answer a change of size
    pids_max: int = 0  # processes of one run; 0: no bound
    retention_days: int = 30
    admin_group: str | None = "phalanx"
    gpu_hour_price: float = 0.0  # 0: reports speak of hours only
    tcp: tuple[str, int] | None = None
    reserve: Mapping[str, int] = field(default_factory=dict)  # kept for the system, in engine units
    display_processes: frozenset[str] = DISPLAY_PROCESSES
    small_use_bytes: int = SMALL_BYTES
    policy_trusted: bool = True  # whoever starts the daemon has typed its name; else its file is looked at first
    origins: Mapping[str, str] = field(default_factory=dict)
    written: Mapping[str, object] = field(default_factory=dict)  # key → as somebody wrote it
    warnings: tuple[str, ...] = ()

    def make_policy(self) -> Policy:
        """The policy with its options laid over it."""
        read = Path.read_bytes if self.policy_trusted else read_policy_file
        return find_policy(self.policy, self.policy_options, read=read)

    def queued_max(self, user: str) -> int:
        """How many jobs of this user may wait at a time."""
        own = self.user_bounds.get(user, Bounds()).max_queued
        return self.max_queued_per_user if own is None else own

    def running_max(self, user: str) -> int | None:
        """How many jobs of this user may run at a time; None: as many as fit."""
        own = self.user_bounds.get(user, Bounds()).max_running
        return self.max_running_per_user if own is None else own

    def priority_max(self, user: str, queue: str) -> int | None:
        """The highest priority that this user may ask for in this queue; None: any."""
        own = self.user_bounds.get(user, Bounds()).priority_ceiling
        here = self.queue_bounds.get(queue, Bounds()).priority_ceiling
        said = [bound for bound in (self.priority_ceiling if own is None else own, here) if bound is not None]
        return min(said, default=self.priority_ceiling_unsaid)

    def table(self) -> list[dict[str, Any]]:
        """Every key with its value and where it comes from, for `config`."""
        return [
            {
                "key": key,
                "value": self.written.get(key, _plain_default(key)),
                "origin": self.origins.get(key, "default"),
            }
            for key in KEYS
        ]


def load_settings(
    state_dir: Path,
    *,
    flags: Mapping[str, object],
    env: Mapping[str, str],
    cwd: Path | None = None,
    system: bool = False,
    system_file: Path | None = None,
) -> Settings:
    """Read all places. In system mode the files of whoever started it do not count. Raises `BadInput`."""
    places = find_sources(state_dir, env=env, cwd=cwd or Path.cwd(), system=system, system_file=system_file)
    typed = [*_read_environment(env, cwd or Path.cwd()), *_read_flags(flags, cwd or Path.cwd())]
    # Who starts a daemon for everybody runs code as all of them: there even what was typed is looked at.
    sources = [*places.sources, *(replace(source, typed=not system) for source in typed)]
    said: dict[str, tuple[Source, Raw]] = {}
    for source in sources:  # weakest first
        top = Spot(source.tree, source.label)
        said.update({key: (source, raw) for key, raw in top.fields(KEYS).inner.items() if raw.value is not None})
    settings = Settings(
        origins={key: said[key][0].label if key in said else "default" for key in KEYS},
        written={key: _plain(raw) for key, (_, raw) in said.items()},
        warnings=(*places.warnings, *_near_misses(env)),
    )
    for key, (source, raw) in said.items():
        spot = Spot(raw, source.label, "", key, key)
        settings = replace(settings, **KEYS[key](spot, source))
    return replace(settings, queues=with_default(settings.queues, wanted=True))


# ---------------------------------------------------------------------- places other than files


def _read_environment(env: Mapping[str, str], cwd: Path) -> list[Source]:
    found = []
    for key in KEYS:
        variable = ENVIRONMENT + key.upper()
        if env.get(variable):
            tree = Raw({key: raw_of(_understand(env[variable]))})
            found.append(Source(f"environment {variable}", tree, cwd))
    return found


def _understand(text: str) -> object:
    """Text as TOML would read it on the right of an equals sign, else the text itself: 8, 2h, {cpu = 2}."""
    try:
        tree = tomllib.loads(f"value = {text}")
    except ValueError:
        return text
    value = tree.pop("value")
    return text if tree or not isinstance(value, bool | int | float | str | list | dict) else value


def _read_flags(flags: Mapping[str, object], cwd: Path) -> list[Source]:
    return [
        Source(f"flag --{key.replace('_', '-')}", Raw({key: raw_of(value)}), cwd)
        for key, value in flags.items()
        if value is not None
    ]


def _near_misses(env: Mapping[str, str]) -> list[str]:
    """A variable with a slip in its name would do nothing, in silence."""
    known = {ENVIRONMENT + key.upper() for key in KEYS}
    told = []
    for variable in sorted(env):
        if variable.startswith(ENVIRONMENT) and variable not in known | _OTHER_VARIABLES:
            near = difflib.get_close_matches(variable, known, n=1, cutoff=0.85)
            if near:
                told.append(f"environment: {variable} means nothing; did you mean {near[0]}?")
    return told


# ---------------------------------------------------------------------- one function a key


def _policy(spot: Spot, source: Source) -> dict[str, Any]:
    name, options = DEFAULT_POLICY, {}
    if isinstance(spot.value, dict):
        for key, inner in spot.pairs():
            if key == "name":
                name = inner.text()
            elif isinstance(inner.value, dict | list):
                inner.refuse("must be a single value")
            else:
                lengthy = key in LENGTHS and not isinstance(inner.value, bool)
                options[key] = inner.length_us() if lengthy else inner.value
    else:
        name = spot.text()
    try:
        settled = settle_name(name, (source.folder,))
        find_policy(settled, options, read=Path.read_bytes if source.typed else read_policy_file)
    except UnknownPolicy:
        spot.refuse(f"names no policy: {show(name)}; {suggest(name, list(POLICIES))}")
    except BadOption as bad:
        spot.refuse(f"cannot be used: {bad}")
    except BadInput as bad:
        spot.refuse(f"cannot be used: {bad}")
    return {"policy": settled, "policy_options": options, "policy_trusted": source.typed}


def _queues(spot: Spot, source: Source) -> dict[str, Any]:
    bare, extras = _split(spot, QUEUE_KEYS, _QUEUE_EXTRAS)
    queues = parse_queues(bare)
    return {"queues": queues, "queue_bounds": dict(zip((q.name for q in queues), extras, strict=True))}


def _users(spot: Spot, source: Source) -> dict[str, Any]:
    bare, extras = _split(spot, USER_KEYS, _USER_EXTRAS)
    named = [entry.titled().fields(USER_KEYS).need("name", 'name = "ada"').text() for entry in bare.items()]
    twice = next((name for name in named if named.count(name) > 1), None)
    if twice is not None:
        spot.refuse(f"there is already a user {show(twice)}; names are unique")
    # Here a user may have other bounds than a limit; elsewhere an entry is there for its limit.
    limited = [raw for raw in _items(bare) if isinstance(raw.value, dict) and "limit" in raw.value]
    users = parse_users(replace(bare, raw=Raw(limited)))
    return {"users": users, "user_bounds": dict(zip(named, extras, strict=True))}


def _split(spot: Spot, own: Collection[str], extra: Collection[str]) -> tuple[Spot, list[Bounds]]:
    """The entries as `control.spec` knows them, and what only the daemon adds to them."""
    bounds, bare = [], []
    for entry in spot.items():
        _check_misplaced(entry, (*own, *extra))
        found = entry.titled().fields((*own, *extra))
        bounds.append(Bounds(**{key: _bound(found, key) for key in extra}))
        bare.append(Raw({key: raw for key, raw in found.inner.items() if key not in extra}))
    return replace(spot, raw=Raw(bare)), bounds


def _check_misplaced(entry: Spot, valid: Collection[str]) -> None:
    """The classic slip of TOML: everything below [[queues]] belongs to that queue."""
    for key in entry.value if isinstance(entry.value, dict) else ():
        if key not in valid and key in KEYS:
            table = entry.path.partition("[")[0]
            entry.titled().refuse(f"{key} belongs to the whole file; write it above the first [[{table}]]")


def _bound(found: Fields, key: str) -> int | None:
    spot = found.get(key)
    if spot is None:
        return None
    return spot.integer(-_PRIORITY_MAX, _PRIORITY_MAX) if key == "priority_ceiling" else spot.integer(0, _COUNT_MAX)


def _items(spot: Spot) -> list[Raw]:
    return spot.value if isinstance(spot.value, list) else []


def _tcp(spot: Spot, source: Source) -> dict[str, Any]:
    text = spot.text()
    if text == NONE:
        return {"tcp": None}
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:]+)\]|([^:\[\]]+)):([0-9]{1,5})", text)
    if match is None or not 1 <= int(match[3]) <= 0xFFFF:
        spot.refuse(f'must be an address and a port, as "127.0.0.1:8470" (got {show(text)})')
    host = match[1] or match[2]
    if host != "localhost" and not _is_loopback(host):
        spot.refuse(
            f"must stay on this machine: 127.0.0.1, ::1 or localhost (got {show(host)}); "
            f"from elsewhere: ssh -L {match[3]}:127.0.0.1:{match[3]}"
        )
    return {"tcp": (host, int(match[3]))}


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _price(spot: Spot, source: Source) -> dict[str, Any]:
    price = float(spot.parsed(number))
    if price < 0:
        spot.refuse(f"must not be negative (got {show(spot.value)})")
    return {"gpu_hour_price": price}


def _reserve(spot: Spot, source: Source) -> dict[str, Any]:
    for kind, inner in spot.pairs():
        if kind not in ("cpu", "memory"):
            inner.refuse(f"cannot be kept for the system; {suggest(kind, ('cpu', 'memory'))}")
    return {"reserve": spot.amounts()}


def _bytes_of(value: object, least: int) -> int:
    found = amount(value, "memory")
    if found < least:
        raise BadText(f"must be at least {least:,} bytes (got {show(value)})")
    return found


def _count(key: str, least: int, most: int, *, optional: bool = False) -> _Parse:
    def parse(spot: Spot, source: Source) -> dict[str, Any]:
        return {key: None if optional and spot.value == NONE else spot.integer(least, most)}

    return parse


def _bytes(key: str, least: int) -> _Parse:
    return lambda spot, source: {key: spot.parsed(partial(_bytes_of, least=least))}


def _walltime(spot: Spot, source: Source) -> dict[str, Any]:
    return {"default_walltime_us": None if spot.value == NONE else spot.length_us()}


def _seconds(key: str) -> _Parse:
    def parse(spot: Spot, source: Source) -> dict[str, Any]:
        length_s = spot.time_us() / SECOND_US
        if length_s > _DAY_S:
            spot.refuse(f"must be at most a day (got {show(spot.value)})")
        return {key: length_s}

    return parse


def _group(spot: Spot, source: Source) -> dict[str, Any]:
    name = spot.text()
    return {"admin_group": None if name == NONE else name}


def _display(spot: Spot, source: Source) -> dict[str, Any]:
    return {"display_processes": frozenset(item.text() for item in spot.items())}


_Parse = Callable[[Spot, Source], dict[str, Any]]

#: What may be said, and how it is read.
KEYS: Final[Mapping[str, _Parse]] = {
    "policy": _policy,
    "queues": _queues,
    "users": _users,
    "max_queued_per_user": _count("max_queued_per_user", 1, _COUNT_MAX),
    "max_running_per_user": _count("max_running_per_user", 1, _COUNT_MAX, optional=True),
    "priority_ceiling": _count("priority_ceiling", -_PRIORITY_MAX, _PRIORITY_MAX, optional=True),
    "log_cap_bytes": _bytes("log_cap_bytes", _LOG_BYTES_MIN),
    "log_keep": _count("log_keep", 0, 100),
    "default_walltime": _walltime,
    "kill_grace_s": _seconds("kill_grace_s"),
    "notice_s": _seconds("notice_s"),
    "resize_s": _seconds("resize_s"),
    "pids_max": _count("pids_max", 0, _COUNT_MAX),
    "retention_days": _count("retention_days", 1, 36_500),
    "admin_group": _group,
    "gpu_hour_price": _price,
    "tcp": _tcp,
    "reserve": _reserve,
    "display_processes": _display,
    "small_use_bytes": _bytes("small_use_bytes", 0),
}


def _plain(raw: Raw) -> object:
    if isinstance(raw.value, dict):
        return {key: _plain(inner) for key, inner in raw.value.items()}
    if isinstance(raw.value, list):
        return [_plain(inner) for inner in raw.value]
    return raw.value


def _plain_default(key: str) -> object:
    names = {one.name for one in fields(Settings)}
    value = getattr(Settings(), key if key in names else f"{key}_us")
    if isinstance(value, frozenset):
        return sorted(value)
    if key in ("queues", "users"):
        return [{"name": entry.name} for entry in value]
    return dict(value) if isinstance(value, Mapping) else value
