"""A daemon that answers: routes as calls, JSON as values, refusals as errors."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from phalanx import __version__
from phalanx.client.connection import TIMEOUT_S, BadStreamError, Connection, HttpReply
from phalanx.client.daemon_errors import ClientError, RefusedError, UnreachableError
from phalanx.client.daemon_places import Place, find_place

_SAFE: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~,")
_GOOD_BELOW: Final = 400
_STOPPING: Final = 503
_AGAIN_S: Final = 0.3
#: A daemon on a slow disk takes in so many of one request.
_JOBS_PER_S: Final = 500


class Daemon:
    """A connection with the manners of the API."""

    def __init__(self, place: Place, connection: Connection, *, starts: bool = False) -> None:
        """`starts`: a daemon that is gone may be started again to repeat what is safe to repeat."""
        self.place = place
        self.patience_s = 0.0  # what only looks is asked again for so long, while the daemon is restarted
        self._connection, self._starts = connection, starts

    def close(self) -> None:
        """Let go of the socket."""
        self._connection.close()

    def get(self, path: str, query: Mapping[str, object] | None = None, *, timeout_s: float = TIMEOUT_S) -> Any:
        """What a route tells."""
        return decode(self.raw("GET", path, query, timeout_s=timeout_s))

    def post(self, path: str, body: object = None, *, method: str = "POST", key: str | None = None) -> Any:
        """Ask for something to be done, once; with a key as often as it takes to hear that it is done."""
        return decode(self.raw(method, path, None, {} if body is None else body, key=key))

    def submit(
        self, jobs: Sequence[object], key: str, *, run: Mapping[str, Any] | None = None, dry_run: bool = False
    ) -> list[dict[str, Any]]:
        """Hand jobs in, all or none. The key makes it safe to ask again when nobody knows whether it was done.

        `run`: what the jobs have in common of theirs.
        """
        query = {"dry_run": 1} if dry_run else None
        body = {"jobs": list(jobs), **({"run": run} if run else {})}
        one = jobs[0] if len(jobs) == 1 and not run else None
        try:
            return self._submit(body, one, key, query)
        except UnreachableError:
            if not self._starts:
                raise
        # The daemon went away in the middle. It, or the one that follows it, knows the key if it took the jobs.
        self.close()
        again = open_daemon(start=True)
        self.place, self._connection = again.place, again._connection  # noqa: SLF001 - it is one of us
        return self._submit(body, one, key, query)

    def _submit(
        self, batch: Mapping[str, Any], one: object, key: str, query: Mapping[str, object] | None
    ) -> list[dict[str, Any]]:
        if one is not None:
            return [decode(self.raw("POST", "/v1/jobs", query, one, key=key))]
        patience_s = TIMEOUT_S + len(batch["jobs"]) / _JOBS_PER_S
        return list(decode(self.raw("POST", "/v1/jobs", query, batch, key=key, timeout_s=patience_s))["jobs"])

    def raw(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None = None,
        body: object = None,
        *,
        key: str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> HttpReply:
        """One exchange; an answer that is no success is raised."""
        sent = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        headers = {} if key is None else {"Idempotency-Key": key}
        target = target_of(path, query)
        until = time.monotonic() + (self.patience_s if method == "GET" else 0.0)
        while True:
            try:
                answer = self._connection.request(method, target, sent, headers, timeout_s=timeout_s)
                if answer.status < _GOOD_BELOW:
                    return answer
                if answer.status != _STOPPING or time.monotonic() >= until:
                    raise refusal_of(answer)
            except UnreachableError:
                if time.monotonic() >= until:
                    raise
            time.sleep(_AGAIN_S)

    def events(self, since: int) -> Iterator[dict[str, Any]]:
        """What happens to jobs, from a sequence number on, until the daemon goes."""
        try:
            for _, event, data in self._connection.events(target_of("/v1/events", {"since": since})):
                if event == "job":
                    yield json.loads(data)
        except BadStreamError as bad:
            raise refusal_of(bad.answer) from None


def open_daemon(*, start: bool = False, any_version: bool = False) -> Daemon:
    """The daemon to talk to, started first if it does not run and `start` allows it."""
    place = find_place()
    connection = Connection(place.socket)
    try:
        connection.open()
    except UnreachableError as bad:
        if not start or place.system:
            raise _explain(place, bad) from None
        from phalanx.client.daemon_starting import start_daemon

        place = start_daemon(place.state)
        connection = Connection(place.socket)
        connection.open()
    if not any_version:
        try:
            check_version(place)
        except UnreachableError:
            connection.close()
            raise
    return Daemon(place, connection, starts=start and not place.system)


def check_version(place: Place) -> None:
    """Refuse to talk to a daemon of another version: shapes may differ, and guesses would be worse."""
    if place.version is None or place.version == __version__:
        return
    # Jobs outlive the daemon, so a restart is harmless; for the machine's daemon it is the administrator's.
    hint = "systemctl restart phalanx (as root)" if place.system else "phalanx down && phalanx up"
    why = f"the daemon is phalanx {place.version}, and this command is {__version__}"
    raise UnreachableError(why, f"{hint}; running jobs go on meanwhile")


def target_of(path: str, query: Mapping[str, object] | None = None) -> str:
    """A request target; values that are None are left out."""
    pairs = [f"{name}={quote(str(value))}" for name, value in (query or {}).items() if value is not None]
    return f"{path}?{'&'.join(pairs)}" if pairs else path


def job_path(ref: str, verb: str = "") -> str:
    """The route of a job, whatever characters its name has."""
    return f"/v1/jobs/{quote(ref)}{'/' if verb else ''}{verb}"


def quote(text: str) -> str:
    """A word as it stands in an address."""
    return "".join(chr(byte) if byte in _SAFE else f"%{byte:02X}" for byte in text.encode("utf-8", "surrogateescape"))


def decode(answer: HttpReply) -> Any:
    """The JSON of an answer."""
    try:
        return json.loads(answer.body) if answer.body else None
    except ValueError:
        raise ClientError("the daemon's answer is not JSON", "phalanx doctor") from None


def refusal_of(answer: HttpReply) -> RefusedError:
    """An answer that is no success, as an error."""
    try:
        told = json.loads(answer.body)["error"]
        return RefusedError(
            str(told["message"]), str(told.get("hint") or ""), code=str(told["code"]), details=told.get("details")
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        words = answer.body[:200].decode("utf-8", "replace")
        return RefusedError(f"the daemon answered {answer.status}: {words}", "phalanx doctor")


def _explain(place: Place, bad: UnreachableError) -> UnreachableError:
    if place.pid is None and not place.system and "no socket" in bad.message:
        return UnreachableError(f"no daemon is running (state directory {place.state})", "phalanx up")
    if place.system:
        return UnreachableError(bad.message, "systemctl status phalanx")
    return bad
