"""An elastic job without torch: N items, each done exactly once, whatever happens to the members.

    python -m phalanx.elastic.toy WORK                                     alone
    phalanx submit -g 2:8 -- python -m phalanx.elastic.toy WORK            as an elastic gang
    python -m phalanx.elastic.toy WORK --verify                            look at the books

WORK is a folder that all members see (on one machine: it relies on flock). It holds one ledger, to
which a member appends under a lock what it claims and what it has done. A member that is killed
leaves its claim behind; the kernel lets go of the lock that it held for life, by which the others
see that it is dead and take the claim over. An item counts when its line is on the disk, and at no
other time: killed before that, it is done again; after that, never.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from phalanx import elastic

LINE = re.compile(r"(items|claim|done) (\d{1,9}) ([\w.-]{1,100})")
ITEMS = 100
#: How long to wait while all that is left is being done by others.
WAIT_S = 0.05


class ClaimFile:
    """Who has claimed and done what: a file that only grows, read and written under a lock."""

    def __init__(self, folder: Path, items: int | None, token: str) -> None:
        self.folder, self.token = folder, token
        (folder / "members").mkdir(parents=True, exist_ok=True)
        self.file = os.open(folder / "ledger", os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self.read_to = 0
        self.items = 0
        self.claims: dict[int, str] = {}  # item → token of whoever has it
        self.done: dict[int, int] = {}  # item → how often; once, or we are wrong
        self.next = 0  # nobody has claimed this one or any above it
        with self.locked():
            if not self.items:
                self.append("items", items or ITEMS)
                sync_folder(folder)
            elif items not in (None, self.items):
                sys.exit(f"{folder} holds a job of {self.items} items, not {items}: name another folder")
        self.mine = self.hold_life_lock()

    def hold_life_lock(self) -> int:
        """A lock that the kernel takes back when this process is gone, however it goes."""
        mine = os.open(self.folder / "members" / self.token, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        fcntl.flock(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return mine

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Alone with the ledger, and with everything read that stands in it."""
        fcntl.flock(self.file, fcntl.LOCK_EX)
        try:
            self.refresh()
            yield
        finally:
            fcntl.flock(self.file, fcntl.LOCK_UN)

    def refresh(self) -> None:
        """Read what was appended since; cut off a line whose writer died in the middle of it."""
        size = os.fstat(self.file).st_size
        text = os.pread(self.file, size - self.read_to, self.read_to)
        whole = text[: text.rfind(b"\n") + 1]
        if len(whole) < len(text):
            os.ftruncate(self.file, self.read_to + len(whole))
        self.read_to += len(whole)
        for line in whole.decode("ascii", "replace").splitlines():
            if match := LINE.fullmatch(line):
                self.take_in(match[1], int(match[2]), match[3])

    def take_in(self, what: str, number: int, token: str) -> None:
        """One line of the ledger."""
        if what == "items":
            self.items = self.items or number
        elif what == "claim":
            self.claims[number] = token
            self.next = max(self.next, number + 1)
        else:
            self.claims.pop(number, None)
            self.done[number] = self.done.get(number, 0) + 1

    def append(self, what: str, number: int) -> None:
        """Write one line, and be sure of it: a claim may be lost with the machine, but the rest may not."""
        line = f"{what} {number} {self.token}\n".encode()
        try:
            while line:  # a full disk takes a part, and then raises
                line = line[os.write(self.file, line) :]
            if what != "claim":
                os.fsync(self.file)
        except OSError as error:
            sys.exit(f"{self.folder / 'ledger'}: {error.strerror}; nothing is lost: make room and start again")
        self.refresh()

    def claim(self) -> int | None:
        """An item that nobody has, else one of somebody dead; None while the rest is in good hands."""
        with self.locked():
            orphans = (item for item, token in self.claims.items() if self.is_dead(token))
            item = self.next if self.next < self.items else next(orphans, None)
            if item is not None:
                self.append("claim", item)
            return item

    def finish(self, item: int) -> bool:
        """Write that it is done; False if somebody else had taken it over, and then it does not count."""
        with self.locked():
            if self.claims.get(item) != self.token:
                return False
            self.append("done", item)
            return True

    def is_dead(self, token: str) -> bool:
        """Whether a member is gone: it left, or nobody holds its lock any more."""
        if token == self.token:
            return False
        try:
            theirs = os.open(self.folder / "members" / token, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(theirs, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(theirs)
        (self.folder / "members" / token).unlink(missing_ok=True)
        return True

    def leave(self) -> None:
        """Give up the lock and the name."""
        (self.folder / "members" / self.token).unlink(missing_ok=True)
        os.close(self.mine)
        os.close(self.file)

    def count(self) -> tuple[int, int, int, int]:
        """Items, done, lost and done twice, from the file itself and not from what we remember of it."""
        lines = LINE.findall((self.folder / "ledger").read_text(encoding="ascii", errors="replace"))
        done = [int(number) for what, number, _ in lines if what == "done"]
        distinct = {number for number in done if number < self.items}
        return self.items, len(distinct), self.items - len(distinct), len(done) - len(set(done))


def sync_folder(folder: Path) -> None:
    """Make the name of a new file as durable as its contents."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(handle)
    os.close(handle)


def say(text: str) -> None:
    """One line, at once: whoever watches wants to see it now."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def work(job: elastic.Job, ledger: ClaimFile, seconds: float) -> bool:
    """Do items until all are done (True) or the scheduler wants this member to go (False)."""
    pause = threading.Event()
    while True:
        change = job.pending()
        if change is not None:
            size = f" to {change.members} members" if change.members else ""
            say(f"rank {job.rank}: {change.kind}{size}, {change.left_s:.0f} s left")
            job.done(change, step=len(ledger.done))  # between two items there is nothing to save
            if change.leaves:
                return False
        item = ledger.claim()
        if item is not None:
            pause.wait(seconds)
            if ledger.finish(item):
                say(f"rank {job.rank} of {job.world}: item {item}, {len(ledger.done)} of {ledger.items} done")
        elif len(ledger.done) >= ledger.items:
            return True
        else:
            pause.wait(WAIT_S)
        job.progress(len(ledger.done), total=ledger.items, saved_step=len(ledger.done))


def main() -> int:
    """Run one member, or look at the books."""
    parser = argparse.ArgumentParser(description="An elastic job that loses no item.")
    parser.add_argument("work", type=Path, help="folder shared by all members")
    parser.add_argument("--items", type=int, help=f"how many there are to do ({ITEMS} for a new folder)")
    parser.add_argument("--seconds", type=float, default=0.1, help="how long one takes")
    parser.add_argument("--verify", action="store_true", help="only count what was done")
    options = parser.parse_args()
    if options.verify and not (options.work / "ledger").exists():
        parser.error(f"{options.work} holds no ledger: nothing was ever done there")
    if options.items is not None and not 0 < options.items < 10**9:
        parser.error("--items must be from 1 to 999999999")

    job = elastic.join()
    token = f"{os.environ.get('PHALANX_ATTEMPT', '0')}.{job.rank}.{os.getpid()}.{os.urandom(4).hex()}"
    ledger = ClaimFile(options.work, options.items, token)
    try:
        is_over = options.verify or work(job, ledger, options.seconds)
        if not is_over or not (options.verify or job.rank == 0):
            return 0
        items, done, lost, twice = ledger.count()
        say(f"items {items} done {done} lost {lost} twice {twice}")
        return 1 if lost or twice else 0
    finally:
        ledger.leave()


if __name__ == "__main__":
    sys.exit(main())
