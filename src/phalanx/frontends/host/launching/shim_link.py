"""One run as the daemon holds it: its line, who waits for what, and its events in order.

Answers (`ready`, `gone`, `state`) go to whoever asked, at once. Events go through a queue of their own to
the listener, so that a listener may ask the same run for something while it handles an event of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from phalanx.frontends.host.launching.directory import RunFacts
from phalanx.frontends.host.launching.line import Line
from phalanx.frontends.host.ports import CannotStart, RunEvent
from phalanx.frontends.host.shim.bounds import (
    GENERATION_MAX,
    PID_MAX,
    RANK_MAX,
    bounded,
    read_end,
    read_generation,
    read_member,
)

_log = logging.getLogger(__name__)
_QUEUE_HIGH = 256
_OUTBOX_MAX = 256
_TAIL_MAX = 4096
_PIDS_MAX = 1000
_UNKNOWN_MAX = 1000

#: What goes wrong when somebody plays shim.
NONSENSE = (KeyError, TypeError, ValueError, AttributeError, ArithmeticError)

Listener = Callable[[RunEvent], Awaitable[None]]


class ShimLink:
    """A run that the daemon has to do with."""

    def __init__(
        self,
        facts: RunFacts,
        on_cut: Callable[[ShimLink], None],
        on_empty: Callable[[ShimLink], None],
        on_stuck: Callable[[ShimLink], None],
    ) -> None:
        """`on_cut`: the line has ended and nobody here wanted that.

        `on_empty`, `on_stuck`: the shim says that nothing is left, or that something does not die.
        """
        self.facts, self._on_cut, self._on_empty, self._on_stuck = facts, on_cut, on_empty, on_stuck
        self.line: Line | None = None
        self.went = False
        self.cuts = 0  # how often the line has ended by itself
        self.left = False  # aborted, forgotten or detached: nobody wants to hear of it any more
        self.contained = facts.containment
        self.blame = ""  # why its shim was killed from here
        self._unknown, self._nonsense = 0, False
        self._asked: dict[tuple[str, int], asyncio.Future[Mapping[str, Any]]] = {}
        self._exits: set[tuple[int, int]] = set()
        self._ended = False  # `empty` or `lost` was said
        self.is_stuck = False  # something does not die, and that was said
        self._events: asyncio.Queue[RunEvent] = asyncio.Queue()
        self._outbox: list[tuple[str, dict[str, Any]]] = []
        self._teller: asyncio.Task[None] | None = None

    @property
    def run(self) -> str:
        """Its name."""
        return self.facts.run

    # ------------------------------------------------------------------ the line

    def make_line(self) -> Line:
        """A protocol for a new connection, which becomes this run's line."""
        self.line = Line(self._on_message, self._on_end)
        return self.line

    def send(self, verb: str, **fields: Any) -> None:
        """Tell the shim, or keep it until the line is there again."""
        if self.line is not None:
            self.line.send(verb, **fields)
        elif not self._ended and len(self._outbox) < _OUTBOX_MAX:
            self._outbox.append((verb, fields))

    def flush(self) -> None:
        """The line is there again."""
        outbox, self._outbox = self._outbox, []
        for verb, fields in outbox:
            self.send(verb, **fields)

    def ask(self, answer: str, generation: int = 0) -> asyncio.Future[Mapping[str, Any]]:
        """What a message of this kind will say; CannotStart if the shim fails first."""
        future = asyncio.get_running_loop().create_future()
        self._asked[answer, generation] = future
        if self.line is not None:
            # Whoever asks may be the listener itself, which takes no further event until it is answered.
            self.line.pause(paused=False)
        return future

    def _on_end(self, line: Line) -> None:
        if line is not self.line:
            return
        self.line = None
        self.fail("the shim ended before it answered")
        if not self.left:
            self._on_cut(self)

    def fail(self, why: str, generation: int | None = None) -> None:
        """Whoever waits for an answer (of this generation) does not get one."""
        for key, future in list(self._asked.items()):
            if generation is None or key[1] == generation:
                del self._asked[key]
                if not future.done():
                    future.set_exception(CannotStart(why))
                    future.exception()  # seen, even if whoever asked has gone

    def check_line(self) -> None:
        """Raises CannotStart if the line has ended in the meantime."""
        if self.line is None:
            raise CannotStart("the shim ended as soon as it had answered")

    def leave(self) -> None:
        """Nobody here wants to hear of it any more."""
        self.left = True
        if self.line is not None:
            self.line.close()
        if self._teller is not None:
            self._teller.cancel()

    # ------------------------------------------------------------------ what the shim says

    def _on_message(self, message: dict[str, Any]) -> None:
        try:
            self._take(message)
        except NONSENSE as error:
            # Nobody but a job's user who plays shim says such things; the line ends, and with it the run. That is said
            # once: whoever has its place has a line again in a moment, and says it as fast as it likes.
            if not self._nonsense:
                _log.warning("run %s: its shim says what it cannot mean (%r)", self.run, error)
            self._nonsense = True
            if self.line is not None:
                self.line.abort()

    def _take(self, message: dict[str, Any]) -> None:
        event = message.get("event")
        if event in ("ready", "gone", "state"):
            generation = 0 if event == "state" else read_generation(message["generation"])
            future = self._asked.pop((event, generation), None)
            if future is not None and not future.done():
                future.set_result(message)
        elif event == "failed":
            self.fail(plain(message.get("why", "")), message.get("generation"))
        elif event == "exit":
            self.tell_exit(message, plain(message.get("tail", "")))
        elif event == "empty":
            self._on_empty(self)
        elif event == "stuck":
            self._on_stuck(self)
        elif event == "job":
            self._tell_job(message)
        else:
            # A word of another version's shim; too many of them, or what is no word, are no shim's.
            self._unknown += 1
            if not isinstance(event, str) or self._unknown > _UNKNOWN_MAX:
                raise ValueError("words that no shim has")
            if self._unknown == 1:
                _log.info("run %s: its shim says something this daemon does not know: %.100r", self.run, event)

    def read_state(self, state: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
        """The members in a state by rank, checked."""
        self.went = bool(state["went"])
        bounded(state["generation"], 0, GENERATION_MAX)
        found = {}
        for member in state["members"]:
            rank, _ = read_member(member["rank"], member["pid"], member["start"])
            read_generation(member["generation"])
            read_end(member["code"], member["signal"])
            if not isinstance(member["exited"], bool):
                raise TypeError("exited or not")
            found[rank] = member
        for said in state.get("spoke", ()):
            _read_said(said)
        for pid in state.get("stuck") or ():
            bounded(pid, 1, PID_MAX)
        return found

    def tell_state(self, state: Mapping[str, Any], read_tail: Callable[[int], str]) -> None:
        """What happened while nobody listened."""
        for rank, member in self.read_state(state).items():
            if member["exited"]:
                self.tell_exit(member, read_tail(rank))
        for spoken in state.get("spoke", ()):
            self._tell_job(spoken)
        if state.get("stuck"):
            self._on_stuck(self)
        if state.get("empty"):
            self._on_empty(self)

    def is_over(self, ranks: Sequence[int] | None) -> bool:
        """Whether these members (None: all) are known to be gone."""
        return self._ended or (ranks is not None and set(ranks) <= {rank for rank, _ in self._exits})

    def know_exit(self, rank: int, generation: int) -> bool:
        """Whether this exit is news; it is not after this."""
        news = (rank, generation) not in self._exits
        self._exits.add((rank, generation))
        return news

    def tell_exit(self, end: Mapping[str, Any], tail: str) -> None:
        """A member ended; told once."""
        rank, generation = bounded(end["rank"], 0, RANK_MAX), read_generation(end["generation"])
        code, number = read_end(end["code"], end["signal"])
        if self.know_exit(rank, generation):
            self._tell(
                RunEvent(
                    self.run,
                    "exit",
                    rank=rank,
                    generation=generation,
                    code=code,
                    signal=number,
                    tail=tail,
                )
            )

    def tell_end(self, kind: str) -> None:
        """`empty` or `lost`; told once."""
        if not self._ended:
            self._ended = True
            message = {"contained": self.contained, "blame": self.blame} if kind == "lost" else {}
            self._tell(RunEvent(self.run, kind, message=message))

    def know_end(self) -> None:
        """Whoever asked knows that nothing is left."""
        self._ended = True

    def tell_stuck(self, pids: Sequence[int]) -> None:
        """Something does not die."""
        self.is_stuck = True
        self._tell(RunEvent(self.run, "stuck", message={"pids": list(pids[:_PIDS_MAX])}))

    def _tell_job(self, said: Mapping[str, Any]) -> None:
        rank, message = _read_said(said)
        self._tell(RunEvent(self.run, "job", rank=rank, message=message))

    # ------------------------------------------------------------------ the listener

    def _tell(self, event: RunEvent) -> None:
        self._events.put_nowait(event)
        self._pace()

    def _pace(self) -> None:
        """Read no further while much is not dealt with, unless somebody waits for an answer."""
        if self.line is not None:
            self.line.pause(paused=self._events.qsize() > _QUEUE_HIGH and not self._asked)

    def start_telling(self, listeners: list[Listener]) -> None:
        """From now on events reach the listeners, one after the other."""
        if self._teller is None and not self.left:
            self._teller = asyncio.get_running_loop().create_task(self._tell_all(listeners))

    async def _tell_all(self, listeners: list[Listener]) -> None:
        while True:
            event = await self._events.get()
            self._pace()
            for listener in listeners:
                try:
                    await listener(event)
                except Exception:  # noqa: BLE001
                    # The next event must reach the core all the same; this one is in the journal.
                    _log.exception("run %s: the core failed on the event '%s'", self.run, event.kind)


def plain(text: object) -> str:
    """Words of a shim as any database takes them, and no more of them than anybody reads."""
    return str(text)[-_TAIL_MAX:].encode("utf-8", "replace").decode("utf-8")


def _read_said(said: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    message = said["message"]
    if not isinstance(message, dict):
        raise TypeError("a message of a job is an object")
    return bounded(said["rank"], 0, RANK_MAX), message
