"""Between a scheduler and the API server: lets so many bindings through, then something happens.

Plain HTTP to the scheduler, TLS to the server, the scheduler's own token. Bindings go one at a time, so that it is always
the same number that has come through.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import ssl
import threading

BUSY = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 2\r\n\r\n{}"


class BindProxy:
    """`after` bindings, then `action` once; from then on bindings are dropped unless `goes_on`.

    `lost`: of so many bindings the answer is dropped, after the server has done them; or of so many other requests, if
    `lost_of` says of which.
    `busy`: those that do not come through are told to come again, as by a server with too much to do.
    """

    def __init__(self, plane, after=None, action=lambda: None, *, goes_on=False, lost=0, lost_of=None, busy=False):
        self.plane, self.after, self.action, self.goes_on, self.lost = plane, after, action, goes_on, lost
        self.busy, self.lost_of = busy, lost_of
        self.passed = 0
        self.tripped = threading.Event()
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._context = ssl.create_default_context(cafile=self.plane.places.certificate)
        self._context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        self._thread.start()
        assert self._ready.wait(5)
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def kubeconfig(self, folder, user="phalanx"):
        path = folder / "through-proxy.json"
        tree = json.loads(self.plane.kubeconfig(user).read_text())
        tree["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{self.port}"}
        path.write_text(json.dumps(tree))
        return path

    def _run(self):
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self):
        self._stop, self._lock = asyncio.Event(), asyncio.Lock()
        self._tasks = set()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader, writer):
        self._tasks.add(asyncio.current_task())
        upstream = None
        try:
            port = self.plane.places.api_port
            upstream = await asyncio.open_connection("127.0.0.1", port, ssl=self._context)
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.readexactly(_length(head))
                if self.lost and self.lost_of and re.match(self.lost_of, head):
                    self.lost -= 1
                    await _exchange(head + body, upstream, None)
                    return
                if re.match(rb"POST [^ ]*/binding ", head):
                    await self._bind(head + body, upstream, writer)
                else:
                    await _exchange(head + body, upstream, writer)
        except (OSError, EOFError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(asyncio.current_task())
            for each in (writer, *(upstream or ())[1:]):
                with contextlib.suppress(Exception):
                    each.transport.abort()

    async def _bind(self, request, upstream, writer):
        async with self._lock:
            if self.tripped.is_set() and not self.goes_on:
                if not self.busy:
                    raise EOFError
                writer.write(BUSY)
                await writer.drain()
                return
            if self.lost and not self.lost_of:
                self.lost -= 1
                await _exchange(request, upstream, None)
                self.passed += 1
                raise EOFError
            status = await _exchange(request, upstream, writer)
            self.passed += status < 300
            if self.passed == self.after and not self.tripped.is_set():
                self.tripped.set()
                await self._loop.run_in_executor(None, self.action)


def _length(head):
    found = re.search(rb"(?i)content-length: (\d+)", head)
    return int(found[1]) if found else 0


async def _exchange(request, upstream, writer):
    reader, out = upstream
    out.write(request)
    head = await reader.readuntil(b"\r\n\r\n")

    async def give(data):
        if writer is not None:
            writer.write(data)
            await writer.drain()

    await give(head)
    if re.search(rb"(?i)transfer-encoding: chunked", head):
        while True:
            line = await reader.readuntil(b"\r\n")
            data = await reader.readexactly(int(line, 16) + 2)
            await give(line + data)
            if line == b"0\r\n":
                break
    else:
        await give(await reader.readexactly(_length(head)))
    return int(head.split(b" ")[1])
