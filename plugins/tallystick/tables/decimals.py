"""Decimals as integers and as bytes: the unscaled value, and Iceberg's single-value serialisation of it."""

from __future__ import annotations

from decimal import Decimal


def unscaled(value: Decimal) -> int:
    """Return the digits of a decimal as an integer, e.g. -1230 for -12.30. Its scale is the caller's."""
    sign, digits, _ = value.as_tuple()
    number = int("".join(map(str, digits)))
    return -number if sign else number


def decimal_bytes(number: int) -> bytes:
    """Return big-endian two's complement in the smallest number of bytes (Iceberg spec, Appendix D)."""
    bits = (number if number >= 0 else ~number).bit_length() + 1
    return number.to_bytes((bits + 7) // 8, "big", signed=True)
