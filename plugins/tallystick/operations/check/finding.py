"""A finding of `tally check`: what was checked, the result, and the next step. A pure value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from tallystick.errors import RetryLater, TallystickError

State = Literal["ok", "FAIL", "warning", "not checked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The result of one check. `details` are lines below its text; `retry` is True if only a retry can answer it.

    `pipeline`: the pipeline that it is about; None for the file.
    """

    check: str
    state: State
    text: str
    hint: str | None = None
    details: tuple[str, ...] = ()
    kind: str | None = None
    retry: bool = False
    pipeline: str | None = None


def ok(check: str, text: str, *details: str) -> Checked:
    """Return a finding without a problem."""
    return Checked(check=check, state="ok", text=text, details=details)


def failed(check: str, text: str, hint: str, *details: str) -> Checked:
    """Return a problem that would make a run fail, or its result useless."""
    return Checked(check=check, state="FAIL", text=text, hint=hint, details=details)


def warning(check: str, text: str, hint: str, *details: str) -> Checked:
    """Return something that a run accepts and that is probably a mistake."""
    return Checked(check=check, state="warning", text=text, hint=hint, details=details)


def not_checked(check: str, why: str) -> Checked:
    """Return a check that was not made, and the reason."""
    return Checked(check=check, state="not checked", text=why)


def of_error(check: str, error: TallystickError, *details: str, where: str = "") -> Checked:
    """Return the finding of an error, in the error's own words; `where` is put before them."""
    return Checked(
        check=check,
        state="FAIL",
        text=f"{where}{error.message}",
        hint=error.hint,
        details=details,
        kind=error.kind,
        retry=isinstance(error, RetryLater),
    )


def problems(findings: Iterable[Checked]) -> list[Checked]:
    """Return the findings that are problems."""
    return [one for one in findings if one.state == "FAIL"]
