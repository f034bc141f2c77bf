"""Finds why a job died before it wrote a result, from the last lines of the driver's output."""

from __future__ import annotations

import re
from collections.abc import Iterable

from airflow.sdk.exceptions import AirflowException

from tallystick.errors import InvalidPipeline, TallystickError
from tallystick.operations.job_file import CORRECT_JOB

_ERROR = re.compile(r"(?:[A-Za-z_]\w*\.)*([A-Z]\w*(?:Error|Exception|Exit|Interrupt))(?::|$)")
# Errors that importing the job file raises again in each try. If a job's `run` raises, its result file has the error.
_OF_THE_SOURCE = frozenset(
    {
        *("SyntaxError", "IndentationError", "TabError", "ImportError", "ModuleNotFoundError"),
        *("NameError", "AttributeError", "TypeError"),
    }
)


class JobDied(AirflowException):
    """The error of a job that ended before it wrote its result; `error`: raise it instead if a retry cannot help."""

    def __init__(self, text: str, error: TallystickError | None) -> None:
        super().__init__(text)
        self.error = error


def job_died(code: int | None, lines: Iterable[str], *, program: str = "spark-submit") -> JobDied:
    """Build the error for a program that ended with `code` and wrote no result; `lines` are its last output."""
    last = [line.strip() for line in lines if line.strip()]
    errors = [found for line in last if (found := _ERROR.match(line))]
    traced = any("Traceback (most recent call last)" in line for line in last)
    why = errors[-1].string if errors else "; ".join(last[-3:]) or "it printed nothing"
    message = f"{program} ended with exit code {code} before the job wrote a result: {why[:500]}."
    # Python prints no "Traceback" line above a SyntaxError of the file that it runs.
    if errors and errors[-1][1] in _OF_THE_SOURCE and (traced or errors[-1][1] == "SyntaxError"):
        return JobDied(message, InvalidPipeline(message, hint=CORRECT_JOB))
    return JobDied(
        f"{message} Next: read its output above in this log; the task retries by itself.",
        None,
    )
