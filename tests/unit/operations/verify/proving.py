"""What the tests of `verify` share: asking for a proof, and what a damage must make it tell."""

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
    """The counter-examples of one check."""
    return next(c for c in proof.checks if c.name == check).findings


@dataclass(frozen=True)
class Damage:
    """What is done to a good lake, and the counter-example that must be told."""

    do: Callable[[SmallLake], object]
    check: str
    rule: str
    where: str
    message: str
    expected: str
    found: str


def is_told(damage: Damage, finding: Finding) -> bool:
    """Whether a finding is the one that the damage must make."""
    return finding.rule == damage.rule and all(
        wanted in got
        for wanted, got in (
            (damage.where, finding.where),
            (damage.message, finding.message),
            (damage.expected, finding.expected),
            (damage.found, finding.found),
        )
    )


def check_damage(small: SmallLake, damage: Damage) -> None:
    """Do the damage; the lake must not be proven, and the counter-example be told by its check."""
    damage.do(small)
    proof = prove(small)
    told = findings(proof, damage.check)
    assert not proof.proven
    assert any(is_told(damage, finding) for finding in told), [str(f) for f in told]


def live_file(small: SmallLake, table: str = "events", number: int = 0) -> FileReport:
    """A file of day 1, which nobody replaced."""
    (key,) = small.keys(f"attempts/{days(1, 2).part}/")
    stored = small.store.get(key)
    assert stored is not None
    return [f for f in Report.decode(stored.body, where=key).files if f.table == table][number]
