"""Computes Iceberg's bucket transform: a 32-bit Murmur3 hash of a value, modulo the number of buckets.

The hash is that of the value's bytes in Iceberg's form (Iceberg spec, Appendix B): numbers, days and microseconds as
64-bit little-endian integers, decimals as big-endian two's complement in the smallest number of bytes, strings as UTF-8.
"""

from __future__ import annotations

from decimal import Decimal

import mmh3
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tallystick.tables.decimals import decimal_bytes, unscaled
from tallystick.tables.schema import uuid_bytes

_INT_MAX = 2**31 - 1


def bucketed(values: pa.Array, buckets: int) -> pa.Array:
    """Return the bucket of each value as int32, from 0 to `buckets` - 1; null stays null.

    Each distinct value of a string, binary, fixed, uuid or decimal column is hashed once; others as whole arrays.
    """
    values = uuid_bytes(values)
    kind = values.type
    if pa.types.is_string(kind) or _is_bytes(kind) or pa.types.is_decimal(kind):
        encoded = pc.dictionary_encode(values)
        hashes = pa.array(
            [mmh3.hash(_bytes(value)) for value in encoded.dictionary.to_pylist()], pa.int32()
        )
        return _buckets(hashes.to_numpy(zero_copy_only=False), buckets).take(encoded.indices)
    whole = values.cast(pa.int32()) if pa.types.is_date32(kind) else values
    numbers = pc.fill_null(whole.cast(pa.int64()), 0)
    found = _buckets(_hashes(numbers.to_numpy(zero_copy_only=False)), buckets)
    return pc.if_else(values.is_valid(), found, pa.scalar(None, pa.int32()))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _buckets(hashes: NDArray[np.int32], buckets: int) -> pa.Array:
    return pa.array((hashes & np.int32(_INT_MAX)) % np.int32(buckets), pa.int32())


def _bytes(value: str | bytes | Decimal) -> bytes:
    if isinstance(value, str):
        return value.encode()
    return decimal_bytes(unscaled(value)) if isinstance(value, Decimal) else value


def _hashes(values: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the Murmur3 hashes (x86, 32 bits, seed 0) of 8-byte values."""
    words = values.astype("<i8").view("<u4").reshape(-1, 2)
    found = np.zeros(len(values), np.uint32)
    for place in range(2):
        word = words[:, place] * np.uint32(0xCC9E2D51)
        word = _rotated(word, 15) * np.uint32(0x1B873593)
        found = _rotated(found ^ word, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    found ^= np.uint32(8)  # the length
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        found = (found ^ (found >> np.uint32(shift))) * np.uint32(factor)
    return (found ^ (found >> np.uint32(16))).view(np.int32)


def _rotated(words: NDArray[np.uint32], bits: int) -> NDArray[np.uint32]:
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))
