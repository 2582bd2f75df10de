"""An elastic member that does whatever it is told at once, notes it, and stays until a file appears."""

import os
import sys
import threading
from pathlib import Path

from phalanx import elastic

starts = os.environ["STARTS"]
job = elastic.join()
nap = threading.Event()
while not Path(f"{starts}.open").exists():
    change = job.pending()
    if change is None:
        nap.wait(0.02)
        continue
    line = f"{os.environ['PHALANX_ATTEMPT']} {os.environ['PHALANX_RANK']} {change.kind} {change.id} {change.members}\n"
    with open(f"{starts}.changes", "a", encoding="ascii") as notes:  # noqa: PTH123
        notes.write(line)
    job.done(change)
    if change.leaves:
        sys.exit(0)
