"""Runs examinations at the same time, each within a time limit. One that fails or hangs hides no other one."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextvars import copy_context
from dataclasses import dataclass

from tallystick.operations.doctor.check import Area, DoctorCheck

LIMIT_S = 10.0
Watch = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """Checks that are made one after the other, such as those of one server. `steps` yields them.

    `name`: of the check that is added if `steps` raises, or yields nothing for `limit_s`.
    """

    area: str
    name: str
    steps: Callable[[], Iterable[DoctorCheck]]
    limit_s: float = LIMIT_S


def examine(
    examinations: Sequence[Examination], *, what: str = "checks", watch: Watch | None = None
) -> tuple[DoctorCheck, ...]:
    """Return the checks of all examinations, in the order of the examinations.

    They only read: one that hangs is left behind when its time is over, in a thread that ends with this process. `watch`
    is called with `what`, the number of examinations that have ended, and the number of all.
    """
    arrived: queue.Queue[tuple[int, DoctorCheck | None]] = queue.Queue()
    for number, examination in enumerate(examinations):
        # Each in a copy of this context: settings of the command's output are context variables.
        threading.Thread(
            target=copy_context().run,
            args=(_steps, number, examination, arrived),
            name=f"tally-doctor-{number}",
            daemon=True,
        ).start()
    shown = None if watch is None else lambda done: watch(what, done, len(examinations))
    return _collected(examinations, arrived, shown)


def _steps(
    number: int,
    examination: Examination,
    arrived: queue.Queue[tuple[int, DoctorCheck | None]],
) -> None:
    try:
        for check in examination.steps():
            arrived.put((number, check))
    except Exception as error:  # noqa: BLE001 - becomes a check
        arrived.put((number, Area(examination.area).raised(examination.name, error)))
    arrived.put((number, None))


def _collected(
    examinations: Sequence[Examination],
    arrived: queue.Queue[tuple[int, DoctorCheck | None]],
    show: Callable[[int], None] | None,
) -> tuple[DoctorCheck, ...]:
    found: list[list[DoctorCheck]] = [[] for _ in examinations]
    now = time.monotonic()
    deadlines = {number: now + one.limit_s for number, one in enumerate(examinations)}
    while deadlines:
        if show is not None:
            show(len(examinations) - len(deadlines))
        try:
            wait_s = max(0.0, min(deadlines.values()) - time.monotonic())
            number, check = arrived.get(timeout=wait_s)
        except queue.Empty:
            now = time.monotonic()
            for late in [n for n, deadline in deadlines.items() if deadline <= now]:
                found[late].append(_late(examinations[late]))
                del deadlines[late]
            continue
        if number not in deadlines:
            continue  # it was given up before
        if check is None:
            del deadlines[number]
        else:
            found[number].append(check)
            deadlines[number] = time.monotonic() + examinations[number].limit_s
    return tuple(check for checks in found for check in checks)


def _late(examination: Examination) -> DoctorCheck:
    return Area(examination.area).error(
        examination.name,
        f"no answer within {examination.limit_s:g} s",
        "check that this machine reaches the server, and that names are resolved.",
    )
