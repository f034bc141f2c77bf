"""Fits the columns that a job returns to the declared types, at any depth, without changing a value.

A type is allowed if each of its values is a value of the declared type, for example an int for a long. Nulls in required
columns and times outside the years 1 to 9999 are refused, also in structs, lists and maps. Null where the struct, list or
map around it is null is none.
"""

from __future__ import annotations

from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tallystick.errors import InvalidPipeline
from tallystick.format.types import KEY, VALUE
from tallystick.tables.calendar import ONLY_THESE, outside_calendar
from tallystick.tables.schema import is_list, type_name, uuid_bytes


def mismatch(message: str) -> InvalidPipeline:
    """Build the error for a result of a job that does not fit the declaration."""
    return InvalidPipeline(
        f"{message}.",
        hint="correct the transform or the pipeline's declaration, deploy both and clear `plan`.",
    )


def check_type(found: pa.DataType, wanted: pa.DataType, where: str) -> None:
    """Raise InvalidPipeline naming both types if a column of the type `found` does not fit."""
    if not fits(found, wanted):
        raise mismatch(f"{where}: expected {type_name(wanted)}, found {type_name(found)}")


def fits(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Return True if a column of the type `found` is allowed where `wanted` is declared."""
    kinds = pa.types
    if kinds.is_dictionary(found):
        return fits(found.value_type, wanted)
    if kinds.is_null(found):
        return True
    if kinds.is_struct(wanted):
        if not kinds.is_struct(found):
            return False
        there = {f.name: f.type for f in _fields(found)}
        declared = {f.name: f.type for f in _fields(wanted)}
        return (
            len(there) == found.num_fields
            and there.keys() == declared.keys()
            and all(fits(there[name], kind) for name, kind in declared.items())
        )
    if kinds.is_map(wanted):
        return bool(
            kinds.is_map(found)
            and fits(found.key_type, wanted.key_type)
            and fits(found.item_type, wanted.item_type)
        )
    if kinds.is_list(wanted):
        return is_list(found) and fits(found.value_type, wanted.value_type)
    return bool(found == wanted) or _lossless(found, wanted)


def _fields(kind: pa.StructType) -> list[pa.Field]:
    return [kind.field(i) for i in range(kind.num_fields)]


def _lossless(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Return True if the values of the primitive type `found` are values of the type `wanted`.

    For some types this depends on the value: `conformed` refuses bytes of another length, a text that is no UUID, and
    nanoseconds.
    """
    kinds = pa.types
    if kinds.is_string(wanted):
        return bool(
            kinds.is_large_string(found) or kinds.is_string_view(found) or found == pa.uuid()
        )
    if kinds.is_binary(wanted):
        return bool(
            kinds.is_large_binary(found)
            or kinds.is_binary_view(found)
            or kinds.is_fixed_size_binary(found)
        )
    if kinds.is_fixed_size_binary(wanted):
        return bool(kinds.is_binary(found) or kinds.is_large_binary(found))
    if wanted == pa.uuid():
        return bool(
            found == pa.binary(16) or kinds.is_string(found) or kinds.is_large_string(found)
        )
    if kinds.is_timestamp(wanted) and kinds.is_timestamp(found):
        return bool((found.tz is None) == (wanted.tz is None) and found.unit in ("s", "ms", "us"))
    if kinds.is_time(wanted):
        return bool(kinds.is_time(found))
    if kinds.is_signed_integer(wanted) and kinds.is_integer(found):
        narrower = found.bit_width < wanted.bit_width
        return bool(narrower)
    if kinds.is_float64(wanted):
        return bool(kinds.is_float32(found) or kinds.is_float16(found))
    if kinds.is_float32(wanted):
        return bool(kinds.is_float16(found))
    if kinds.is_decimal(wanted) and kinds.is_decimal(found):
        whole = wanted.precision - wanted.scale >= found.precision - found.scale
        return bool(whole and wanted.scale >= found.scale)
    return False


def as_declared(values: pa.ChunkedArray, field: pa.Field, where: str) -> pa.ChunkedArray:
    """Return a column in the type of its declared field; raises InvalidPipeline naming the column if it does not fit."""
    place = f"{where}, column {field.name!r}"
    check_type(values.type, field.type, place)
    if not field.nullable and values.null_count:
        raise _nulls(f"{where}, required column {field.name!r}", values.null_count)
    chunks = [conformed(chunk, field.type, place) for chunk in values.chunks]
    return pa.chunked_array(chunks, field.type)


def conformed(values: pa.Array, wanted: pa.DataType, place: str) -> pa.Array:
    """Return an array of a type that fits in the type `wanted`; raises InvalidPipeline naming `place` for its values."""
    kinds = pa.types
    if kinds.is_null(values.type):
        return pa.nulls(len(values), wanted)
    if kinds.is_dictionary(values.type):
        values = values.dictionary_decode()
    if kinds.is_struct(wanted):
        return _struct(values, wanted, place)
    if kinds.is_map(wanted) or kinds.is_list(wanted):
        return _repeated(values, wanted, place)
    if values.type != wanted:
        try:
            values = _cast(values, wanted)
        except pa.ArrowInvalid as error:
            # The type is allowed, but a value does not fit: seconds that microseconds cannot hold.
            raise mismatch(f"{place}: {error}") from error
    if (outside := outside_calendar(values)) is not None:
        raise InvalidPipeline(
            f"{place}: {outside} {ONLY_THESE}, the only ones that all readers of a table accept.",
            hint="correct the unit if it is wrong. If the value is a sentinel for 'no time', return null (with "
            "required=False) or omit the row. Then deploy the job and clear `plan`.",
        )
    return values


def _cast(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return values in another primitive type; raises ArrowInvalid for a value that does not fit."""
    is_text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
    if values.type == pa.uuid() and pa.types.is_string(wanted):
        texts = [None if value is None else str(value) for value in values.to_pylist()]
        return pa.array(texts, wanted)
    if wanted == pa.uuid() and is_text:
        return pa.array([_uuid(text) for text in values.to_pylist()], pa.binary(16)).cast(wanted)
    return values.cast(wanted)


def _uuid(text: str | None) -> bytes | None:
    try:
        return None if text is None else UUID(text).bytes
    except ValueError:
        raise pa.ArrowInvalid(f"expected a UUID, found {text!r}") from None


def _struct(values: pa.StructArray, wanted: pa.StructType, place: str) -> pa.StructArray:
    # Flattened, a child is null if the struct is: a value below a null is not checked, and not written.
    there = dict(zip((f.name for f in _fields(values.type)), values.flatten(), strict=True))
    children = []
    for field in _fields(wanted):
        child, at = there[field.name], f"{place}, field {field.name!r}"
        nulls = child.null_count - values.null_count
        if not field.nullable and nulls:
            raise _nulls(f"{at}, which is required", nulls)
        found = conformed(child, field.type, at)
        children.append(found if field.nullable else without_nulls(found))
    mask = values.is_null() if values.null_count else None
    return pa.StructArray.from_arrays(children, fields=_fields(wanted), mask=mask)


def without_nulls(values: pa.Array) -> pa.Array:
    """Return an array with some value in place of each null.

    Arrow's Parquet writer refuses a null of a required field, also if the struct around it is null, and the value has no
    meaning.
    """
    if not values.null_count:
        return values
    kind = values.type
    if kind == pa.uuid():
        return pa.ExtensionArray.from_storage(kind, without_nulls(values.storage))
    if pa.types.is_struct(kind):
        inner = [values.field(number) for number in range(kind.num_fields)]
        return pa.StructArray.from_arrays(inner, fields=_fields(kind))
    children: list[pa.Array] = []
    buffers = values.buffers()[1:]
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        children, buffers = [_child(values)], buffers[:1]
    return pa.Array.from_buffers(
        kind, len(values), [None, *buffers], offset=values.offset, children=children
    )


def _child(values: pa.Array) -> pa.Array:
    """Return the array that the offsets of a list or map refer to."""
    if not pa.types.is_map(values.type):
        return values.values
    entry = [values.type.key_field, values.type.item_field]
    return pa.StructArray.from_arrays([values.keys, values.items], fields=entry)


def _repeated(values: pa.Array, wanted: pa.DataType, place: str) -> pa.Array:
    """Return a list or a map with its elements or entries in the declared type."""
    is_map = pa.types.is_map(wanted)
    if not is_map and not pa.types.is_list(values.type):
        try:
            values = values.cast(pa.list_(values.type.value_field))
        except pa.ArrowInvalid as error:
            raise mismatch(f"{place}: {error}") from error
    lengths = np.diff(np.asarray(values.offsets))
    present = np.asarray(values.is_valid())
    offsets = np.concatenate([[0], np.cumsum(np.where(present, lengths, 0))]).astype(np.int32)
    if is_map:
        entry = pa.struct([wanted.key_field, wanted.item_field])
        children = _struct(entries_of(values), entry, place)
        if repeated_keys(children.field(0), np.diff(offsets)).size:
            raise mismatch(f"{place}: expected each key of a map once, found a key twice")
    else:
        inner = elements_of(values)
        at, field = f"{place}, its elements", wanted.value_field
        if not field.nullable and inner.null_count:
            raise _nulls(f"{at}, which are required", inner.null_count)
        children = conformed(inner, field.type, at)
    bitmap = None
    if values.null_count:
        bitmap = pa.py_buffer(np.packbits(present, bitorder="little").tobytes())
    return pa.Array.from_buffers(
        wanted, len(values), [bitmap, pa.py_buffer(offsets)], children=[children]
    )


def elements_of(values: pa.ListArray) -> pa.Array:
    """Return the elements of lists, one after another; null lists have none."""
    offsets = np.asarray(values.offsets)
    begin, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    if values.null_count and np.diff(offsets)[np.asarray(values.is_null())].any():
        return values.flatten()
    # Not flatten(), which raises if there are only nulls and a uuid is in a struct.
    return values.values.slice(begin, count)


def entries_of(values: pa.MapArray) -> pa.StructArray:
    """Return the entries of maps, one after another, as structs of `key` and `value`; null maps have none."""
    offsets = np.asarray(values.offsets)
    begin, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    entries = pa.StructArray.from_arrays(
        [values.keys.slice(begin, count), values.items.slice(begin, count)],
        fields=[values.type.key_field.with_name(KEY), values.type.item_field.with_name(VALUE)],
    )
    lengths = np.diff(offsets)
    if values.null_count and lengths[np.asarray(values.is_null())].any():
        return entries.filter(pa.array(np.repeat(np.asarray(values.is_valid()), lengths)))
    return entries


def repeated_keys(keys: pa.Array, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the positions of the keys that an earlier entry of their map has; `lengths` are the entries of each map."""
    if len(keys) < 2:
        return np.empty(0, np.int64)
    encoded = pc.dictionary_encode(uuid_bytes(keys))
    codes = pc.fill_null(encoded.indices, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    maps = np.repeat(np.arange(len(lengths)), lengths)
    places = maps * np.int64(len(encoded.dictionary) + 1) + codes
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    found: NDArray[np.int64] = order[1:][ordered[1:] == ordered[:-1]]
    return found


def _nulls(what: str, count: int) -> InvalidPipeline:
    return mismatch(f"{what}: expected no nulls, found {count}")
