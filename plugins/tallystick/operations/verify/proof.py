"""The result of a verification: checks, each with its counts and the counter-examples that it found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

Watch = Callable[[str, int, int], None]
"""A progress callback; it gets what is being done, how much of it is done, and how much there is."""

FINDINGS_KEPT = 100

CHECKS: Mapping[str, str] = {
    "chain": "commit records form one chain from the root back to the first commit, versions fall, no commit of the "
    "chain is missing from the ledger, and no record names a root that the chain lacks (I4, I5, I10)",
    "tiling": "entries do not overlap, boundaries never go back, each committed range is the difference of its two "
    "boundaries (I1, I2)",
    "accounts": "the classes of each committed range add up to its length and to the ledger's totals, and cover the "
    "plan's ranges; dead letters are as many as the tables hold (I7)",
    "objects": "every object that the root reaches is there, data files with the size and ETag that were reported (I3)",
    "tables": "each table's metadata lists exactly the files of the committed plans, none twice (I5, I8)",
    "columns": "topics, tables and column ids mean the same in the root, every record and the tables (I11)",
    "lineage": "the offsets that each file was reported to hold lie in its own plan's ranges (I1)",
    "rows": "each row read from a data file holds an offset of its own plan's ranges, each offset at most once per "
    "table, and dead letters are exactly the accounted ones (I1, I7)",
}
"""The checks by name, in the order of the report, and what each proves. `rows` runs only if `deep` is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """The additional requirements of `deep` for record-level tables.

    `every_record`: tables that must contain each decoded record of each interval. `repeats`: tables whose transform may
    produce several rows for one record; an offset may repeat in the files of one task, but not across tasks.
    """

    every_record: frozenset[str] = frozenset()
    repeats: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A counter-example: the broken rule (an invariant's number), its location, and both values."""

    rule: str
    where: str
    message: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.rule} {self.where}: {self.message}: expected {self.expected}, found {self.found}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The result of one check: its counts, the number of counter-examples, the first of them, and remarks."""

    name: str
    counted: Mapping[str, int]
    problems: int
    findings: tuple[Finding, ...]
    remarks: tuple[str, ...] = ()

    @property
    def proven(self) -> bool:
        """True if no counter-example was found."""
        return not self.problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The result of a verification of one root of one lake: every check, and if `deep` was set."""

    uri: str
    pipeline: str
    version: int
    root_id: str
    deep: bool
    checks: tuple[Check, ...]

    @property
    def proven(self) -> bool:
        """True if no check has a counter-example."""
        return all(check.proven for check in self.checks)


@dataclass(slots=True)
class Ongoing:
    """A check in progress."""

    name: str
    counted: Counter[str] = field(default_factory=Counter)
    problems: int = 0
    findings: list[Finding] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def count(self, what: str, number: int = 1) -> None:
        """Add `number` to the count of the checked objects `what`."""
        self.counted[what] += number

    def found(
        self, rule: str, where: str, message: str, *, expected: object, found: object
    ) -> None:
        """Record a counter-example. All are counted, the first FINDINGS_KEPT are kept."""
        self.problems += 1
        if len(self.findings) < FINDINGS_KEPT:
            finding = Finding(
                rule=rule, where=where, message=message, expected=str(expected), found=str(found)
            )
            self.findings.append(finding)

    def differs(
        self, rule: str, where: str, message: str, *, expected: object, found: object
    ) -> None:
        """Record a counter-example if the two values are not equal."""
        if expected != found:
            self.found(rule, where, message, expected=expected, found=found)

    def differ_in(
        self,
        rule: str,
        where: str,
        message: str,
        *,
        expected: Collection[object],
        found: Collection[object],
    ) -> None:
        """Record a counter-example if two collections differ, with the first missing and the first unexpected item."""
        missing = [item for item in expected if item not in found]
        strange = [item for item in found if item not in expected]
        if missing or strange or len(expected) != len(found):
            self.found(
                rule,
                where,
                message,
                expected=missing[0] if missing else f"{len(expected)} items",
                found=strange[0] if strange else f"{len(found)} items",
            )

    def done(self) -> Check:
        """Return the check as an immutable value."""
        return Check(
            name=self.name,
            counted=dict(self.counted),
            problems=self.problems,
            findings=tuple(self.findings),
            remarks=tuple(self.remarks),
        )


@dataclass(slots=True)
class Checks:
    """All checks in progress."""

    by_name: dict[str, Ongoing] = field(
        default_factory=lambda: {name: Ongoing(name) for name in CHECKS}
    )

    def __getitem__(self, name: str) -> Ongoing:
        return self.by_name[name]
