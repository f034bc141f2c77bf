"""Computes Iceberg's truncate transform: the first characters or bytes, or a number rounded down to a multiple."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from tallystick.errors import InvalidPipeline
from tallystick.tables.decimals import unscaled


def truncated(values: pa.Array, width: int) -> pa.Array:
    """Return the truncated values in their own type; null stays null.

    The width of a decimal counts units of its last digit (Iceberg spec, Truncate Transform Details). Raises
    InvalidPipeline if the multiple below a number does not fit its type: readers differ about such a value.
    """
    kind = values.type
    if pa.types.is_string(kind):
        return pc.utf8_slice_codeunits(values, 0, width)
    if pa.types.is_binary(kind):
        return pc.binary_slice(values, 0, width)
    if pa.types.is_decimal(kind):
        return _truncated_decimals(values, width)
    least = pc.min(values).as_py()
    if least is not None:
        _multiple(least, width, -(2 ** (kind.bit_width - 1)), kind)  # the smallest multiple of all
    numbers = values.cast(pa.int64())
    divisor = pa.scalar(width, pa.int64())
    # Arrow's division rounds towards zero; the rest of a negative number is negative.
    rest = pc.subtract(numbers, pc.multiply(pc.divide(numbers, divisor), divisor))
    rest = pc.if_else(pc.less(rest, 0), pc.add(rest, divisor), rest)
    return pc.subtract(numbers, rest).cast(kind)


def _truncated_decimals(values: pa.Array, width: int) -> pa.Array:
    kind, encoded = values.type, pc.dictionary_encode(values)
    numbers = (unscaled(value) for value in encoded.dictionary.to_pylist())
    low = -(10**kind.precision) + 1
    found = [_decimal(_multiple(n, width, low, kind), kind.scale) for n in numbers]
    return pa.array(found, kind).take(encoded.indices)


def _multiple(number: int, width: int, low: int, kind: pa.DataType) -> int:
    found = number - number % width
    if found < low:
        raise InvalidPipeline(
            f"partition_by truncate: the multiple of {width} below {number} does not fit the type {kind}.",
            hint="use a wider type for the column; or change the job so that such a value becomes null, or its record a "
            "dead letter. Deploy it and clear `plan`.",
        )
    return found


def _decimal(number: int, scale: int) -> Decimal:
    sign = 1 if number < 0 else 0
    return Decimal((sign, tuple(map(int, str(abs(number)))), -scale))
