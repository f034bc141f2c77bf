"""Operations on bytes that compiled loops need and numba lacks. The caller checks all bounds.

Importing this module does not load numba.
"""

# mypy does not see the types of numba's decorators.
# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any, cast


class Operation:
    """An operation inside of compiled loops; Python cannot call it."""

    def __init__(self, define: Callable[..., Any]) -> None:
        self.define = cast("FunctionType", define)

    @cache  # noqa: B019 - one per operation, for ever
    def of_numba(self) -> Any:
        """Return numba's operation. Loads numba."""
        from numba.extending import intrinsic

        return intrinsic(prefer_literal=True)(self.define)


def _copy_bytes(typing_context, into, into_at, source, source_at, count):
    """Copy `count` bytes between two byte arrays by memcpy; numba's own slice assignment takes four times as long.

    The caller has checked the bounds of both arrays; `count` is not negative.
    """

    from numba import types
    from numba.core import cgutils

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

    from llvmlite import ir
    from numba import types

    def generate(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.ptrtoint(array.data, ir.IntType(64))

    return types.int64(content), generate


def _byte_at(typing_context, address, at):
    """Return the byte at `address` + `at`. The caller has checked that it is inside of the array."""

    from llvmlite import ir
    from numba import types

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

    from llvmlite import ir
    from numba import types

    def generate(context, builder, signature, arguments):
        del context, signature
        word = ir.IntType(64)
        place = builder.inttoptr(builder.add(*arguments), word.as_pointer())
        return builder.load(place, align=1)

    return types.uint64(types.int64, types.int64), generate


def _lowest_bit(typing_context, word):
    """Return the number of the lowest bit of a number that is set. The number is not 0."""

    from llvmlite import ir
    from numba import types

    def generate(context, builder, signature, arguments):
        del context, signature
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


def _special_bytes(typing_context, address, at):
    """Return a bit for each of 32 bytes from `address` + `at` on, the first in the lowest: 1 if it is not plain in JSON.

    These are quotes, backslashes, control characters and what is not ASCII. The caller has checked that all 32 bytes are
    inside of the array.
    """

    from llvmlite import ir
    from numba import types

    def generate(context, builder, signature, arguments):
        del context, signature
        content = _bytes_at(builder, arguments, 32)
        # As numbers with a sign, bytes above 127 are smaller than 32, too.
        found = builder.icmp_signed("<", content, _repeated(32, 32))
        for byte in (34, 92):
            found = builder.or_(found, builder.icmp_signed("==", content, _repeated(byte, 32)))
        return builder.zext(builder.bitcast(found, ir.IntType(32)), ir.IntType(64))

    return types.uint64(types.int64, types.int64), generate


def _bytes_at(builder, arguments, count):
    from llvmlite import ir

    kind = ir.VectorType(ir.IntType(8), count).as_pointer()
    return builder.load(builder.inttoptr(builder.add(*arguments), kind), align=1)


def _repeated(byte, count):
    from llvmlite import ir

    kind = ir.IntType(8)
    return ir.Constant(ir.VectorType(kind, count), [ir.Constant(kind, byte)] * count)


def _other_than_digits(typing_context, address, at):
    """Return a bit for each of 16 bytes from `address` + `at` on, the first in the lowest: 1 if it is no decimal digit.

    The caller has checked that all 16 bytes are inside of the array.
    """

    from llvmlite import ir
    from numba import types

    def generate(context, builder, signature, arguments):
        del context, signature
        value = builder.sub(_bytes_at(builder, arguments, 16), _repeated(48, 16))
        found = builder.icmp_unsigned(">", value, _repeated(9, 16))
        return builder.zext(builder.bitcast(found, ir.IntType(16)), ir.IntType(64))

    return types.uint64(types.int64, types.int64), generate


def _prefetch(typing_context, address, at):
    """Ask the processor to load the byte at `address` + `at` into its cache. Any address is allowed: nothing is read."""
    from llvmlite import ir
    from numba import types

    def generate(context, builder, signature, arguments):
        del signature
        number, pointer = ir.IntType(32), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        place = builder.inttoptr(builder.add(*arguments), pointer)
        # To read, into all levels of the cache, data and no code.
        builder.call(prefetch, [place, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


def _zeros(typing_context, count):
    """Return an array of `count` numbers of 64 bits, a constant, on the stack: it is gone when the function returns."""
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.np.arrayobj import populate_array

    kind = types.Array(types.int64, 1, "C")
    length = count.literal_value

    def generate(context, builder, signature, arguments):
        del signature, arguments
        word = ir.IntType(64)
        place = cgutils.alloca_once(builder, ir.ArrayType(word, length))
        cgutils.memset(builder, place, ir.Constant(word, 8 * length), 0)
        array = context.make_array(kind)(context, builder)
        populate_array(
            array,
            data=builder.bitcast(place, word.as_pointer()),
            shape=[ir.Constant(word, length)],
            strides=[ir.Constant(word, 8)],
            itemsize=ir.Constant(word, 8),
            meminfo=None,
        )
        return array._getvalue()

    return kind(count), generate


copy_bytes: Any = Operation(_copy_bytes)
address_of: Any = Operation(_address_of)
byte_at: Any = Operation(_byte_at)
word_at: Any = Operation(_word_at)
lowest_bit: Any = Operation(_lowest_bit)
special_bytes: Any = Operation(_special_bytes)
other_than_digits: Any = Operation(_other_than_digits)
prefetch: Any = Operation(_prefetch)
zeros: Any = Operation(_zeros)
