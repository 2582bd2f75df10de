"""Which control plane, and where its programs are: one folder for each pair of versions, outside any checkout."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

KUBERNETES: Final = "1.37.1"
ETCD: Final = "3.7.0"

#: Without these there is no control plane; the others some tests do without.
NEEDED: Final = ("etcd", "kube-apiserver")
PROGRAMS: Final = (*NEEDED, "kube-controller-manager", "kube-scheduler", "kubectl")

#: The variable by which test environments of controllers name such a folder.
ASSETS: Final = "KUBEBUILDER_ASSETS"


class ControlPlaneMissingError(Exception):
    """Programs of the control plane are not here; the text says what to do."""


def find_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where the programs are looked for, whether or not they are there."""
    if named := environment.get(ASSETS):
        return Path(named)
    # An empty or relative value is to be ignored, says the specification of these variables.
    cache = Path(environment.get("XDG_CACHE_HOME", ""))
    base = cache if cache.is_absolute() else Path(environment.get("HOME") or Path.home()) / ".cache"
    return base / "phalanx" / "controlplane" / f"k8s-{KUBERNETES}-etcd-{ETCD}"


def find_missing(programs: Iterable[str] = NEEDED, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Those that are not there, in the order asked."""
    folder = find_folder(environment)
    return [name for name in programs if not os.access(folder / name, os.X_OK)]


def find_program(name: str, environment: Mapping[str, str] = os.environ) -> Path:
    """The path of one program, or the error that says how to get it."""
    if find_missing([name], environment):
        raise ControlPlaneMissingError(explain_missing([name], environment))
    return find_folder(environment) / name


def explain_missing(missing: Iterable[str], environment: Mapping[str, str] = os.environ) -> str:
    """What is missing, why it is looked for there, and what to do next."""
    names, folder = ", ".join(missing), find_folder(environment)
    if ASSETS in environment:
        return f"no {names} in {folder}, which {ASSETS} names: unset it and run `make controlplane`, or put them there"
    return f"no {names} in {folder}: `make controlplane` builds Kubernetes {KUBERNETES} once (about 10 minutes)"
