"""Files that decide what the daemon runs: read only if nobody but root and the daemon's user could have written them.

That is a matter of the file and of every folder on the way to it, links included: whoever may write to one of those
decides which file a name means. Each is opened first and then looked at, so that what is read is what was looked at.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_LOOK: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_LINKS_MAX: Final = 40
_ACL: Final = "system.posix_acl_access"


class StrangersFile(Exception):  # noqa: N818 - what is the case, not a kind of mistake
    """Somebody else could have written a file: settings can name Python files that are run."""

    def __init__(self, what: str, fix: str = "") -> None:
        """`fix`: the command that helps, if one does."""
        super().__init__(f"{what} ({fix})" if fix else what)
        self.what, self.fix = what, fix


def read_trusted(path: Path, bytes_max: int, *, follow: bool = True) -> bytes:
    """At most so much of a file and one byte more; raises OSError, or StrangersFile if others could have written it."""
    with contextlib.ExitStack() as opened:
        walk = _Walk(opened)
        fd = walk.go(path.absolute(), follow=follow)
        # Looked at by a descriptor that cannot read: by now it is known to be no pipe that would make us wait.
        trouble = _judge_file(fd, path) or walk.trouble
        if trouble is not None:
            raise trouble
        with os.fdopen(os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC), "rb") as file:
            return file.read(bytes_max + 1)


class _Walk:
    """From the root to a file, one name after the other."""

    def __init__(self, opened: contextlib.ExitStack) -> None:
        self._opened = opened
        self._links = 0
        #: Of the folder nearest to the file; told only if there is a file.
        self.trouble: StrangersFile | None = None

    def go(self, path: Path, *, follow: bool) -> int:
        """A descriptor of what is there."""
        root = self._open("/", None)
        folders, names = [(root, Path("/"))], _list_names(path)
        self._look(*folders[0])
        while names:
            name = names.pop()
            if name == "..":
                del folders[max(1, len(folders) - 1) :]  # above the root is the root
                continue
            folder, where = folders[-1]
            fd = self._open(name, folder)
            facts = os.fstat(fd)
            if stat.S_ISLNK(facts.st_mode):
                if not names and not follow:
                    raise StrangersFile("is a link")
                self._judge_link(facts, where / name)
                target = Path(os.readlink("", dir_fd=fd))
                del folders[1 if target.is_absolute() else len(folders) :]
                names += _list_names(target)
            elif not names:
                return fd
            else:
                folders.append((fd, where / name))
                self._look(fd, where / name)
        return folders[-1][0]

    def _open(self, name: str, folder: int | None) -> int:
        fd = os.open(name, _LOOK, dir_fd=folder)
        self._opened.callback(os.close, fd)
        return fd

    def _look(self, fd: int, folder: Path) -> None:
        facts = os.fstat(fd)
        if stat.S_ISDIR(facts.st_mode):
            self.trouble = _judge_folder(facts, fd, folder) or self.trouble

    def _judge_link(self, facts: os.stat_result, path: Path) -> None:
        self._links += 1
        if self._links > _LINKS_MAX:
            raise StrangersFile("is a link that never ends")
        if not _is_ours(facts):  # in a folder like /tmp anybody may make one
            self.trouble = StrangersFile(f"is reached by a link of user {facts.st_uid}: {path}")


def _list_names(path: Path) -> list[str]:
    """The last one first; what is a link is not known yet, so that `..` stays."""
    return [name for name in reversed(path.parts) if name != "/"]


def _is_ours(facts: os.stat_result) -> bool:
    return facts.st_uid in (0, os.geteuid())


def _judge_file(fd: int, path: Path) -> StrangersFile | None:
    facts = os.fstat(fd)
    if stat.S_ISDIR(facts.st_mode):
        return None  # reading it says so in better words
    if not stat.S_ISREG(facts.st_mode):
        return StrangersFile("is no plain file")
    if not _is_ours(facts):
        return StrangersFile(f"belongs to user {facts.st_uid}, not to you")
    if facts.st_mode & stat.S_IWOTH:
        return StrangersFile("can be written by everybody", f"chmod go-w {path}")
    if _is_shared(facts, fd):
        return StrangersFile(f"can be written by its group, {_name_group(facts.st_gid)}", f"chmod g-w {path}")
    return None


def _judge_folder(facts: os.stat_result, fd: int, path: Path) -> StrangersFile | None:
    if not _is_ours(facts):
        return StrangersFile(f"lies in a folder of user {facts.st_uid}, who could put another in its place: {path}")
    if facts.st_mode & stat.S_ISVTX:  # others may add to it, and not replace what is ours
        return None
    put = "could put another in its place"
    if facts.st_mode & stat.S_IWOTH:
        return StrangersFile(f"lies in a folder in which everybody {put}", f"chmod go-w {path}")
    if _is_shared(facts, fd):
        return StrangersFile(
            f"lies in a folder in which its group, {_name_group(facts.st_gid)}, {put}", f"chmod g-w {path}"
        )
    return None


def _is_shared(facts: os.stat_result, fd: int) -> bool:
    """Whether a group may write to it in which somebody else may be.

    Where every user has a group of their own, files are often writable by it, and that is nobody else.
    """
    if not facts.st_mode & stat.S_IWGRP:
        return False
    with contextlib.suppress(OSError):  # then these bits are those of everybody whom the list names
        os.getxattr(f"/proc/self/fd/{fd}", _ACL)
        return True
    return facts.st_gid != 0 and not _is_private(facts.st_gid, facts.st_uid)


def _is_private(gid: int, uid: int) -> bool:
    """Whether a group is the user's first one and nobody else's."""
    try:
        owner, group = pwd.getpwuid(uid), grp.getgrgid(gid)
    except KeyError:
        return False
    if owner.pw_gid != gid or set(group.gr_mem) - {owner.pw_name}:
        return False
    return not any(other.pw_gid == gid for other in _list_others(uid))


def _list_others(uid: int) -> Iterator[pwd.struct_passwd]:
    return (entry for entry in pwd.getpwall() if entry.pw_uid != uid)


def _name_group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
