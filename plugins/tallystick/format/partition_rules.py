"""Rules of partitioning as text: a column, or a transform of a column (Iceberg spec, Partition Transforms)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from tallystick.format.codec import StoredValue

RULES = "a column, or year(c), month(c), day(c), hour(c), bucket(n, c), truncate(n, c)"
_RULE = re.compile(
    r"(?:(?P<time>year|month|day|hour)\(\s*(?P<of>\w+)\s*\)"
    r"|(?P<sized>bucket|truncate)\(\s*(?P<size>\d{1,10})\s*,\s*(?P<in>\w+)\s*\)"
    r"|(?P<plain>\w+))",
    re.ASCII,
)
_SIZE_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRule:
    """One partition rule: a transform in Iceberg's notation (`identity`, `day`, `bucket[16]`) and its column."""

    transform: str
    column: str

    def __str__(self) -> str:
        """Return the rule as a pipeline declares it; two texts of one rule give the same result."""
        if self.transform == "identity":
            return self.column
        name, size = self.sized
        return f"{name}({self.column})" if size is None else f"{name}({size}, {self.column})"

    @property
    def sized(self) -> tuple[str, int | None]:
        """The name of the transform and its number: buckets, or the width of truncate; None for any other."""
        name, _, size = self.transform.rstrip("]").partition("[")
        return name, int(size) if size else None

    @property
    def field_name(self) -> str:
        """The name of the partition field, as Iceberg names a field that is added to a table.

        It contains the number of buckets, because a table can have another one later, and a name means one field.
        """
        name, size = self.sized
        if name == "identity":
            return self.column
        return (
            f"{self.column}_{name}"
            if size is None
            else f"{self.column}_{_SHORT.get(name, name)}_{size}"
        )


_SHORT = {"truncate": "trunc"}


def partition_rule(text: str) -> PartitionRule:
    """Parse a rule, e.g. `day(departure)` or `bucket(16, tail)`; raises ValueError."""
    found = _RULE.fullmatch(text.strip())
    if not found:
        raise ValueError(f"expected {RULES}, found {text!r}")
    if found["plain"]:
        return PartitionRule(transform="identity", column=found["plain"])
    if found["time"]:
        return PartitionRule(transform=found["time"], column=found["of"])
    size = int(found["size"])
    if not 1 <= size <= _SIZE_MAX:
        raise ValueError(f"expected a number from 1 to {_SIZE_MAX}, found {text!r}")
    return PartitionRule(transform=f"{found['sized']}[{size}]", column=found["in"])


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionField(StoredValue):
    """A partition field that a table has or had: the id of its column, its transform, and its name.

    A field keeps its name when its column is renamed.
    """

    AS_LIST: ClassVar[bool] = True

    source_id: int
    transform: str
    name: str
