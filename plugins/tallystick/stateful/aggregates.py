"""Mergeable aggregates: the values of two sets of rows combine to the value of all the rows, in any order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc

from tallystick.errors import InvalidPipeline

How = Literal["count", "sum", "min", "max"]
_HOW: tuple[How, ...] = get_args(How)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """One value of many rows: `how` of `column`. A count has no column and counts rows.

    Sums of floating-point numbers are refused: their last digits depend on the order of the rows, and so would the
    result. For an average, use a sum and a count.
    """

    how: How
    column: str | None = None

    def __post_init__(self) -> None:
        if self.how not in _HOW or (self.how == "count") is not (self.column is None):
            raise InvalidPipeline(
                f"aggregate: expected count without a column, or sum, min or max of one, found {self.how!r} of "
                f"{self.column!r}.",
                hint="use how='count' without a column, or sum, min or max with one.",
            )


Aggregates = Mapping[str, Aggregate]


def partial(rows: pa.Table, key: Sequence[str], aggregates: Aggregates) -> pa.Table:
    """Return one row per key with each aggregate under its name.

    Raises InvalidPipeline if a sum is not of whole numbers or decimals, or may not fit its type.
    """
    columns = {name: rows[name] for name in key}
    for name, one in aggregates.items():
        if one.column is None:
            columns[name] = pa.chunked_array([pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows)])
        else:
            columns[name] = _value(rows, name, one)
    return merged(pa.table(columns), key, aggregates)


def merged(partials: pa.Table, key: Sequence[str], aggregates: Aggregates) -> pa.Table:
    """Return one row per key from partial rows, of which a key may have several; the types do not change.

    Raises InvalidPipeline if a sum may not fit its type.
    """
    rows = partials.select([*key, *aggregates])
    hows = [(name, "sum" if a.how == "count" else a.how) for name, a in aggregates.items()]
    found = rows.group_by(list(key)).aggregate(hows)
    _refuse_overflow(rows, key, [name for name, how in hows if how == "sum"])
    named = {name: found[name] for name in key} | {
        name: found[f"{name}_{how}"] for name, how in hows
    }
    return pa.table(named).cast(rows.schema)


def _refuse_overflow(rows: pa.Table, key: Sequence[str], sums: Sequence[str]) -> None:
    """Refuse a sum that its type cannot hold, because Arrow's sums wrap without an error. Raises InvalidPipeline."""
    for name in sums:
        kind = rows.schema.field(name).type
        digits = kind.precision - kind.scale if pa.types.is_decimal(kind) else None
        room = 2.0**63 if digits is None else 10.0**digits
        sizes = pa.table(
            {**{k: rows[k] for k in key}, "size": pc.abs(rows[name].cast(pa.float64(), safe=False))}
        )
        largest = pc.max(sizes.group_by(list(key)).aggregate([("size", "sum")])["size_sum"]).as_py()
        # Doubles are exact enough to prove that a sum is not near the limit. If it is near, it is refused too.
        if largest is not None and largest >= room * 0.999:
            raise InvalidPipeline(
                f"aggregate {name!r}: expected a sum below {room:.3g} for {kind}, found about {largest:.3g}.",
                hint="sum a decimal(38, ...) column, or smaller units.",
            )


def _value(rows: pa.Table, name: str, one: Aggregate) -> pa.ChunkedArray:
    assert one.column is not None  # `partial` handles counts
    values = rows[one.column]
    if one.how == "sum":
        if pa.types.is_floating(values.type):
            raise InvalidPipeline(
                f"aggregate {name!r}: expected an exact type to sum, found {one.column!r} of type {values.type}: the "
                "last "
                "digits of its sum depend on the order in which intervals run.",
                hint="cast it to a decimal or a whole number first.",
            )
        if pa.types.is_integer(values.type):
            return values.cast(pa.int64())
        if not pa.types.is_decimal(values.type):
            raise InvalidPipeline(
                f"aggregate {name!r}: expected a number to sum, found {one.column!r} of type {values.type}.",
                hint="sum a whole number or a decimal.",
            )
        return pc.cast(values, pa.decimal128(38, values.type.scale))
    return values
