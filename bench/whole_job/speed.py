"""The speed of the machine at a moment: the CPU seconds of a fixed piece of work, on all cores at once.

Virtual machines share processors, and the CPU time of the same work differs by the minute. The work is measured before
and after each run; a report can then multiply the run's CPU seconds by (the median of all such figures / the run's).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from statistics import mean, median
from typing import Any

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


def at_even_speed(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the runs with the CPU seconds of each step as the machine would have used at its median speed.

    `runs`: as JSON, all of one machine. Runs without the figure of the fixed work are left out.
    """
    known = [run for run in runs if run.get(FIELD)]
    usual_s = median(run[FIELD] for run in known) if known else 0.0
    return [
        {
            **run,
            "steps": [
                {**step, "cpu_s": step["cpu_s"] * usual_s / run[FIELD]} for step in run["steps"]
            ],
        }
        for run in known
    ]
