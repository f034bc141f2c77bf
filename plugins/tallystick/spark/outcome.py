"""Reports the outcome of a job to the process that started it: an exit code, and optionally a JSON file.

If TALLYSTICK_RESULT_FILE is set, it is the path of that file. The file contains either a list of
{"plan": key, "report": key or null}, or {"error": {"kind", "message", "hint"}}. A null report means that the job staged
nothing for the plan, because it was committed or superseded already. The file is written once, whole, at the end.

With the argument --outcome-to-lake the same is written to the lake instead (tallystick.format.outcome).
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import socket
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tallystick.errors import (
    ActionRequired,
    RetryLater,
    ScratchFull,
    Superseded,
    TallystickError,
    error_of_kind,
)
from tallystick.format import keys
from tallystick.format.outcome import OutcomeError, OutcomePlan, StageOutcome
from tallystick.lake import Lake
from tallystick.store.create_once import create_once

log = logging.getLogger("tallystick.spark")
RESULT_FILE_ENV = "TALLYSTICK_RESULT_FILE"
RETRY_LATER, SUPERSEDED, ACTION_REQUIRED, OTHER = 75, 76, 77, 1
NO_ROOM = "No space left on device"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_ERROR = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt)(?::|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedPlan:
    """One plan and its report; None if the job staged nothing because the plan was committed or superseded already."""

    plan: keys.PlanKey
    report: keys.ReportKey | None


def scratch_full(error: BaseException) -> ScratchFull | None:
    """Return a ScratchFull that names the full disk if `error` means that a disk is full, else None."""
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        # Not gettempdir(): its first call probes by writing, which fails if this disk is full.
        place = (
            error.filename or tempfile.tempdir or os.environ.get("TMPDIR", "the temporary folder")
        )
        where = f"{place} on {socket.gethostname()}"
        message = f"{where}: {os.strerror(error.errno)}"
    elif NO_ROOM in str(error):
        message = error_line(str(error)).rstrip(".")  # Spark's own files: its text names the file
    else:
        return None
    return ScratchFull(
        f"{message}. Nothing was committed.",
        hint="free space there, or give Spark another place: spark.local.dir, and TMPDIR for its Python workers. "
        "The task retries by itself; gc collects what failed attempts left in the lake.",
    )


def exit_code(error: BaseException) -> int:
    """Return the exit code of an error, by which the starting process acts (75 is EX_TEMPFAIL of sysexits.h)."""
    groups = (
        (RetryLater, RETRY_LATER),
        (Superseded, SUPERSEDED),
        (ActionRequired, ACTION_REQUIRED),
    )
    return next((code for group, code in groups if isinstance(error, group)), OTHER)


def error_json(error: BaseException) -> dict[str, str]:
    """Return the JSON form of an error. For an error that is not tallystick's, the message is its type and one line."""
    if isinstance(error, TallystickError):
        return {"kind": error.kind, "message": error.message, "hint": error.hint}
    return {
        "kind": "error",
        "message": f"{type(error).__name__}: {error_line(str(error))}",
        "hint": "read the driver's log above; then clear this task.",
    }


def most_decisive(errors: Sequence[TallystickError]) -> TallystickError:
    """Return the error that decides what happens next, so that an error to retry does not hide a final one.

    The order is: ActionRequired, Superseded, errors of no group, RetryLater. Within a group, the first error wins.
    """
    ranks = {ACTION_REQUIRED: 0, SUPERSEDED: 1, OTHER: 2, RETRY_LATER: 3}
    return min(errors, key=lambda error: ranks[exit_code(error)])


def error_line(text: str) -> str:
    """Return the most useful line of a long error text: the last error of a traceback, else the first line.

    Spark wraps an error of a Python worker in two long stack traces.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR.match(line)]
    traced = any("Traceback (most recent call last)" in line for line in lines)
    return (errors[-1] if traced and errors else next(iter(lines), ""))[:500]


def error_from(value: dict[str, Any]) -> TallystickError:
    """Return the error whose JSON form is `value`, of the class that its kind names."""
    return error_of_kind(value["kind"], value["message"], hint=value["hint"])


class OutcomeWriter(Protocol):
    """The place to which a job writes its outcome, once, at its end."""

    def write_results(self, staged: Sequence[StagedPlan]) -> None:
        """Write the list of staged plans. Safe to repeat: see the implementations."""
        ...

    def write_error(self, error: BaseException) -> None:
        """Write the error. Safe to repeat: see the implementations."""
        ...


@dataclass(frozen=True, slots=True)
class FileOutcome:
    """A local file, for a task on the same machine; without a path, nothing is written."""

    path: str | None

    def write_results(self, staged: Sequence[StagedPlan]) -> None:
        """Write the list of staged plans. Safe to repeat: the file is replaced whole."""
        self.write_value([{"plan": s.plan, "report": s.report} for s in staged])

    def write_error(self, error: BaseException) -> None:
        """Write the error. Safe to repeat: the file is replaced whole."""
        self.write_value({"error": error_json(error)})

    def write_value(self, value: Any) -> None:
        """Write a JSON value. Safe to repeat: the file is replaced whole."""
        if not self.path:
            return
        # Rename is atomic within a folder: a reader gets the old file or the new file, never a partial one.
        half = Path(f"{self.path}.{os.getpid()}.part")
        half.write_text(json.dumps(value), encoding="utf-8")
        half.replace(self.path)


@dataclass(frozen=True, slots=True)
class LakeOutcome:
    """An object of the lake, for a task that is on another machine or waits in the triggerer."""

    lake: Lake
    plan: keys.PlanKey
    attempt: str

    def write_results(self, staged: Sequence[StagedPlan]) -> None:
        """Write the reports of the plans. Safe to repeat: the first outcome of an attempt stays, and it is whole."""
        plans = tuple(OutcomePlan(plan=s.plan, report=s.report) for s in staged)
        self._create(StageOutcome(attempt=self.attempt, plans=plans))

    def write_error(self, error: BaseException) -> None:
        """Write the error. Safe to repeat: the first outcome of an attempt stays; without one, the task is retried."""
        fields = OutcomeError(**error_json(error))
        try:
            self._create(StageOutcome(attempt=self.attempt, error=fields))
        except TallystickError as failed:  # the driver's log and its exit code have the first error
            log.warning("the outcome could not be written: %s", failed)

    def _create(self, outcome: StageOutcome) -> None:
        key = keys.outcome(self.plan, self.attempt)
        create_once(self.lake.store, key, outcome.encode(), runtime=self.lake.runtime)
