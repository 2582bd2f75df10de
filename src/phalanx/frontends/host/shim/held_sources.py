"""The protocol's modules as text, read when the shim starts and run when a member first speaks.

A shim lives as long as its job, and the package under it may be upgraded, moved or removed meanwhile. What was loaded
stays; what is imported later would be missing, or of another version. `phalanx.wire` is needed late and by few: loading
it costs as much CPU as all the rest of a start and nearly three megabytes, its text 25 kilobytes.
"""
# ruff: noqa: PTH208

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

#: The class of what finders return, without the package that tells everybody else of it.
_ModuleSpec: Any = type(sys.__spec__)


class HeldSources:
    """Finds and loads the modules of one package out of memory."""

    def __init__(self, package: str, folder: str) -> None:
        """Read them; raises OSError."""
        self._package = package
        self._texts: dict[str, tuple[str, bytes]] = {}
        for file in os.listdir(folder):
            if file.endswith(".py"):
                name = package if file == "__init__.py" else f"{package}.{file.removesuffix('.py')}"
                with open(f"{folder}/{file}", "rb") as text:  # noqa: PTH123
                    self._texts[name] = f"{folder}/{file}", text.read()

    def install(self) -> None:
        """Be asked before the disk is."""
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> Any:
        """Asked by an import."""
        if name not in self._texts:
            return None
        return _ModuleSpec(name, self, origin=self._texts[name][0], is_package=name == self._package)

    def create_module(self, _spec: object) -> None:
        """An ordinary module will do."""

    def exec_module(self, module: ModuleType) -> None:
        """Run its text."""
        path, text = self._texts[module.__name__]
        exec(compile(text, path, "exec"), module.__dict__)  # noqa: S102 - our own module


def hold_protocol() -> None:
    """From now on `phalanx.wire` is what it was when this was called."""
    HeldSources("phalanx.wire", __file__.rsplit("/frontends/host/shim/", 1)[0] + "/wire").install()
