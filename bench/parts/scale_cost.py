"""What one operation on a store in memory costs: CPU and wall time, memory, requests and bytes."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from bench.parts.commits import CostedStore

T = TypeVar("T")
Figures = dict[str, float | str]
VERBS = ("GET", "PUT", "LIST", "DELETE")
_RESET_PEAK = "5"  # proc(5), clear_refs: reset the peak to the current resident memory


def measured(store: CostedStore, action: Callable[[], T]) -> tuple[T, Figures]:
    """Return the result of an action, and what it cost, without the CPU time of the store itself.

    Memory is the peak above that before the action.
    """
    store.requests, store.bytes = Counter(), Counter()
    before_kib = resident_kib("VmRSS")
    Path("/proc/self/clear_refs").write_text(_RESET_PEAK)
    store.take_own_s()
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    result = action()
    cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
    cpu_s -= store.take_own_s()
    peak_kib = resident_kib("VmHWM")
    figures: Figures = {
        "cpu_ms": cpu_s * 1000,
        "wall_ms": wall_s * 1000,
        "peak_mib": max(0, peak_kib - before_kib) / 1024,
        **{verb: store.requests[verb] for verb in VERBS},
        **{way: store.bytes[way] for way in ("read", "written")},
    }
    return result, figures


def medians(costs: Sequence[Mapping[str, float | str]]) -> Figures:
    """Return the median of each figure of several runs."""
    return {name: statistics.median(float(c[name]) for c in costs) for name in costs[0]}


def named(prefix: str, figures: Mapping[str, float | str]) -> Figures:
    """Return the figures with a prefix before each name."""
    return {f"{prefix}_{name}": value for name, value in figures.items()}


def resident_kib(name: str) -> int:
    """Return VmRSS or VmHWM of this process (proc(5))."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (x for x in lines if x.startswith(f"{name}:"))
    return int(line.split()[1])
