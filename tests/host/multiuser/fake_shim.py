"""A job that takes the place of its own shim: it answers at control.sock instead, and says what it was told to say.

Arguments: a file to write when it listens, and lines of Python. They find `state` (what an honest shim would answer),
`say` (messages, or bytes, one line each) and `line` (the connection); they run for each daemon that connects.
"""

import json
import os
import socket
import sys
import time
from pathlib import Path

listening, play = sys.argv[1:]
os.chdir(Path(os.environ["PHALANX_KEY_FILE"]).parent)
ready = json.loads(Path("journal").read_bytes().split(b"\n")[1])
rank, pid, start = ready["members"][0]
while not Path("control.sock").exists():
    time.sleep(0.01)  # noqa: TID251 - a process of its own
Path("control.sock").unlink()
door = socket.socket(socket.AF_UNIX)
door.bind("control.sock")
door.listen(8)
Path(listening).touch()
while True:
    line, _ = door.accept()
    line.recv(65536)
    member = {"rank": rank, "generation": 1, "pid": pid, "start": start, "code": None, "signal": None, "exited": False}
    state = {"v": 1, "event": "state", "generation": 1, "went": True, "members": [member], "spoke": []}
    state |= {"contained": "cgroup2", "empty": False, "stuck": []}

    def say(*messages, line=line):
        for message in messages:
            line.sendall((message if isinstance(message, bytes) else json.dumps(message).encode()) + b"\n")

    try:
        exec(play)  # noqa: S102 - the test's own words
    except OSError:
        continue  # the daemon hung up
