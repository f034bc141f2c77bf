"""Shared by the tests of `verify`: a proof of a lake, and damages with the findings that they must cause."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from support.small_lake import SmallLake, days
from tallystick.format.report import FileReport, Report
from tallystick.operations.verify import Demands, Finding, Proof, verify

EVENTS = Demands(every_record=frozenset({"events"}))


def prove(small: SmallLake, *, deep: bool = False, demands: Demands | None = None) -> Proof:
    """Verify a lake."""
    return verify(small.lake, deep=deep, demands=demands)


def findings(proof: Proof, check: str) -> tuple[Finding, ...]:
    """Return the findings of one check."""
    return next(c for c in proof.checks if c.name == check).findings


@dataclass(frozen=True)
class Damage:
    """A damage to a good lake, and the finding that it must cause."""

    do: Callable[[SmallLake], object]
    check: str
    rule: str
    where: str
    message: str
    expected: str
    found: str


def matches(damage: Damage, finding: Finding) -> bool:
    """Return whether a finding is the one that the damage must cause."""
    return finding.rule == damage.rule and all(
        expected in found
        for expected, found in (
            (damage.where, finding.where),
            (damage.message, finding.message),
            (damage.expected, finding.expected),
            (damage.found, finding.found),
        )
    )


def check_damage(small: SmallLake, damage: Damage) -> None:
    """Do the damage. The lake must not be proven, and the check must have the finding."""
    damage.do(small)
    proof = prove(small)
    reported = findings(proof, damage.check)
    assert not proof.proven
    assert any(matches(damage, finding) for finding in reported), [str(f) for f in reported]


def live_file(small: SmallLake, table: str = "events", number: int = 0) -> FileReport:
    """Return a file of day 1, which was never replaced."""
    (key,) = small.keys(f"attempts/{days(1, 2).part}/")
    stored = small.store.get(key)
    assert stored is not None
    return [f for f in Report.decode(stored.body, where=key).files if f.table == table][number]
