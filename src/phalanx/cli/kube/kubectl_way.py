"""The way to a cluster that only kubectl knows: programs that make credentials, several kubeconfig files.

kubectl serves it on a socket that nobody else can open, for as long as a command takes. Slower by the start of kubectl
than reading the file ourselves, which is done wherever that is enough.
"""

from __future__ import annotations

import http.client
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from phalanx.client.daemon_errors import UnreachableError, UsageError

_END_S: Final = 5.0


class SocketConnection(http.client.HTTPConnection):
    """HTTP over a socket of this machine."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        """Open it."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


@contextmanager
def serve_cluster(kubeconfig: str | None, context: str | None) -> Iterator[tuple[Path, str]]:
    """A socket that is the API server, as that user, and the namespace of the context."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise UsageError("this kubeconfig needs kubectl, and there is none on the PATH", "install it, or --server URL")
    chosen = [*(["--kubeconfig", kubeconfig] if kubeconfig else []), *(["--context", context] if context else [])]
    namespace = _find_namespace(kubectl, chosen)
    # A folder of our own: whoever can open the socket is the user.
    with tempfile.TemporaryDirectory(prefix="kubectl-phalanx-") as folder:
        path = Path(folder) / "api"
        command = [kubectl, "proxy", f"--unix-socket={path}", *chosen]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as proxy:
            try:
                assert proxy.stdout is not None
                assert proxy.stderr is not None
                if not proxy.stdout.readline().startswith("Starting"):
                    raise UnreachableError(f"kubectl proxy: {proxy.stderr.read().strip()}", "kubectl version")
                yield path, namespace
            finally:
                proxy.kill()
                proxy.wait(_END_S)


def _find_namespace(kubectl: str, chosen: list[str]) -> str:
    command = [kubectl, "config", "view", "--minify", "-o", "jsonpath={..namespace}", *chosen]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UsageError(done.stderr.strip(), "kubectl config get-contexts")
    return done.stdout.strip() or "default"
