"""The speed of the machine at a moment: the CPU seconds of a fixed piece of work, on all cores at once.

Virtual machines share processors, and the CPU time of the same work differs by the minute. The work is measured before
and after each run, and its spread shows how even the machine was. It does not correct the figure of a run: in an hour in
which it varied by 6 %, corrected figures varied as much as the measured ones.
"""

from __future__ import annotations

import os
import subprocess
import sys
from statistics import mean

_TIMEOUT_S = 300
# What contenders do, in small: compression, JSON, a hash table, copies of more bytes than a core's cache has. The
# start of Python is not in the figure.
_WORK = """
import json, random, time, zlib
chance = random.Random(1)
records = [{"id": number, "page": "/p/%d" % chance.randrange(900), "price": chance.random()} for number in range(9000)]
text = json.dumps(records).encode()
began_s = time.process_time()
for _ in range(3):
    zlib.compress(text, 5)
    seen = {}
    for record in json.loads(text):
        seen[record["page"]] = seen.get(record["page"], 0.0) + record["price"]
    parts = [bytes(bytearray(text * 16)) for _ in range(6)]
print(time.process_time() - began_s)
"""
FIELD = "work_s"


def work_s(cores: int | None = None) -> float:
    """Return the CPU seconds of the fixed work, the mean of as many processes at once as there are cores."""
    running = [
        subprocess.Popen([sys.executable, "-I", "-c", _WORK], stdout=subprocess.PIPE, text=True)
        for _ in range(cores or os.cpu_count() or 1)
    ]
    return mean(float(process.communicate(timeout=_TIMEOUT_S)[0]) for process in running)
