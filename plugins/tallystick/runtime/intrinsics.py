"""Operations on bytes that compiled loops need and numba lacks. The caller checks all bounds.

numba's cache of a compiled loop does not notice a change of this file: after one, delete the cached loops.
"""

# mypy does not see the types of numba's decorators.
# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def _copy_bytes(typing_context, into, into_at, source, source_at, count):
    """Copy `count` bytes between two byte arrays by memcpy; numba's own slice assignment takes four times as long.

    The caller has checked the bounds of both arrays; `count` is not negative.
    """

    def generate(context, builder, signature, arguments):
        to, to_at, origin, origin_at, size = arguments
        to_bytes = context.make_array(signature.args[0])(context, builder, to).data
        origin_bytes = context.make_array(signature.args[2])(context, builder, origin).data
        cgutils.raw_memcpy(
            builder, builder.gep(to_bytes, [to_at]), builder.gep(origin_bytes, [origin_at]), size, 1
        )
        return context.get_dummy_value()

    return types.void(into, types.int64, source, types.int64, types.int64), generate


def _address_of(typing_context, content):
    """Return the address of the first byte of a byte array, which must outlive its uses.

    A loop that gets an address instead of an array counts no references at each call, and checks no index for its sign.
    """

    def generate(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.ptrtoint(array.data, ir.IntType(64))

    return types.int64(content), generate


def _byte_at(typing_context, address, at):
    """Return the byte at `address` + `at`. The caller has checked that it is inside of the array."""

    def generate(context, builder, signature, arguments):
        del context, signature
        byte, wide = ir.IntType(8), ir.IntType(64)
        place = builder.inttoptr(builder.add(*arguments), byte.as_pointer())
        return builder.zext(builder.load(place), wide)

    return types.int64(types.int64, types.int64), generate


def _word_at(typing_context, address, at):
    """Return the eight bytes from `address` + `at` on as a number, the first byte in the lowest bits.

    The caller has checked that they are inside of the array.
    """

    def generate(context, builder, signature, arguments):
        del context, signature
        word = ir.IntType(64)
        place = builder.inttoptr(builder.add(*arguments), word.as_pointer())
        return builder.load(place, align=1)

    return types.uint64(types.int64, types.int64), generate


def _lowest_bit(typing_context, word):
    """Return the number of the lowest bit of a number that is set. The number is not 0."""

    def generate(context, builder, signature, arguments):
        del context, signature
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


copy_bytes: Any = intrinsic(_copy_bytes)
address_of: Any = intrinsic(_address_of)
byte_at: Any = intrinsic(_byte_at)
word_at: Any = intrinsic(_word_at)
lowest_bit: Any = intrinsic(_lowest_bit)
