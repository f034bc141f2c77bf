"""The examples' judges: what came out, against a reference computed otherwise from what the producer wrote down.

They import nothing of tallystick (a contract of the import linter and a test hold them to that).
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

_WIDTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check: what was looked at, whether it holds, and the figures or the first difference."""

    check: str
    holds: bool
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """All findings over so many rows; it passes when each holds and there was something to look at."""

    rows: int
    findings: Sequence[Finding]

    @property
    def passed(self) -> bool:
        """Whether every check holds, and something was checked at all."""
        return self.rows > 0 and bool(self.findings) and all(f.holds for f in self.findings)

    def lines(self) -> Iterator[str]:
        """The findings as text, one line each."""
        for finding in self.findings:
            line = f"  {'ok  ' if finding.holds else 'BAD '} {finding.check:<14} {finding.says}"
            yield from textwrap.wrap(line, _WIDTH, subsequent_indent=" " * 22, drop_whitespace=True)


def finding(check: str, figures: str, problem: str | None) -> Finding:
    """The finding that there is no problem, told by figures; or the problem."""
    return Finding(check=check, holds=problem is None, says=problem or figures)


def ruling(judge: Callable[[], Ruling]) -> Ruling:
    """What a judge finds; that it cannot look at something is a finding that does not hold, never an exception."""
    try:
        return judge()
    except Exception as error:  # noqa: BLE001  (whatever keeps a judge from looking is a reason to say FAIL)
        return Ruling(
            rows=0,
            findings=[
                Finding(check="readable", holds=False, says=f"{type(error).__name__}: {error}")
            ],
        )
