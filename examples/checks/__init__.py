"""Shared parts of the checks: each compares a result with a reference that is computed independently.

The reference comes from the producer's record of what it sent. The checks import nothing of tallystick (a contract of
import-linter and a test enforce this).
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

_WIDTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check: its name, whether it holds, and the figures or the first difference."""

    check: str
    holds: bool
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """All findings, and the number of rows that they cover; it passes if each finding holds and there is a row."""

    rows: int
    findings: Sequence[Finding]

    @property
    def passed(self) -> bool:
        """True if there are rows and findings, and every finding holds."""
        return self.rows > 0 and bool(self.findings) and all(f.holds for f in self.findings)

    def lines(self) -> Iterator[str]:
        """Return the findings as text, one line each."""
        for finding in self.findings:
            line = f"  {'ok  ' if finding.holds else 'BAD '} {finding.check:<14} {finding.text}"
            yield from textwrap.wrap(line, _WIDTH, subsequent_indent=" " * 22, drop_whitespace=True)


def finding(check: str, figures: str, problem: str | None) -> Finding:
    """Return a finding that holds, with these figures, if `problem` is None; otherwise one with the problem."""
    return Finding(check=check, holds=problem is None, text=problem or figures)


def run_check(check: Callable[[], CheckResult]) -> CheckResult:
    """Return the result of a check; an exception becomes a finding that does not hold."""
    try:
        return check()
    except Exception as error:  # noqa: BLE001  (any failure of the check itself is a FAIL)
        return CheckResult(
            rows=0,
            findings=[
                Finding(check="readable", holds=False, text=f"{type(error).__name__}: {error}")
            ],
        )
