"""Python's garbage collector while a process loads its modules.

A staging process creates half a million objects by loading PyArrow, pandas and the clients of Kafka
and S3. They live until it ends, but every full collection visits all of them: a fifth of the CPU time of a small run.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from threading import Event

COLLECTED_AFTER = 100_000
"""Objects that are allocated, and not freed, before the youngest generation is collected; Python's own is 700."""


@contextmanager
def loading() -> Iterator[None]:
    """Collect garbage rarely inside; afterwards as before, without visiting what exists then (`gc.freeze`).

    Safe to repeat: each one exempts what has been loaded since the last. Cycles that are garbage at its end are never
    freed, so what runs inside has an end that is near. A process that has switched collection off (a threshold of 0)
    keeps that.
    """
    before = gc.get_threshold()
    gc.set_threshold(before[0] and max(before[0], COLLECTED_AFTER), *before[1:])
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(*before)


_worked = Event()


@contextmanager
def first_work() -> Iterator[None]:
    """As `loading` around a process's first piece of work, which loads what all need; nothing around later ones.

    Safe to repeat: work that raises was not the first. If a user's transform leaves its records in cycles, those of the
    first input split stay in memory, and later ones are freed.
    """
    with nullcontext() if _worked.is_set() else loading():
        yield
    _worked.set()
