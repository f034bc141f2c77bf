"""Merges the columns of several versions of a schema, field by field.

Allowed is what a table can follow without rewriting files (Iceberg specification, Schema Evolution): a new field, a wider
type, optional instead of required, also inside of structs, lists and maps. A column that has any other type in the later
version keeps the type that it has: whether the later version's records can be read into it is not decided here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from tallystick.format.types import LIST, MAP, NESTED, STRUCT, decimal_size
from tallystick.pipeline.columns import Column
from tallystick.pipeline.paths import escaped

_WIDER = {frozenset(("int", "long")): "long", frozenset(("float", "double")): "double"}


def merged_columns(
    known: Sequence[Column], later: Sequence[Column], *, taken: Collection[str] = ()
) -> tuple[Column, ...]:
    """Return the columns of both, in the order of `known`, then in that of the later version.

    Two columns are the same if they are read from the same field. A column that only one of them has is optional; if only
    the later version has it, so are the parts of its structs at any depth: an earlier version may have such a struct
    without the part. The name of a new column gets a number if another column has it, or if it is in `taken`.
    """
    by_field = {column.path: column for column in later}
    found: list[Column] = []
    for column in known:
        other = by_field.pop(column.path, None)
        found.append(replace(column, required=False) if other is None else _merged(column, other))
    names = [*taken, *(column.name for column in known)]
    return (*found, *numbered_columns(map(_optional, by_field.values()), names))


def numbered_columns(columns: Iterable[Column], taken: Collection[str] = ()) -> tuple[Column, ...]:
    """Return columns with names of which no two differ only in case, and none is in `taken`.

    The first column keeps its name, a later one gets a number and is read from the same field as before.
    """
    names = {name.lower() for name in taken}
    found: list[Column] = []
    for column in columns:
        name, number = column.name, 1
        while name.lower() in names:
            number += 1
            name = f"{column.name}_{number}"
        names.add(name.lower())
        source = escaped(column.name) if column.source is None else column.source
        found.append(column if name == column.name else replace(column, name=name, source=source))
    return tuple(found)


def _optional(column: Column) -> Column:
    """Return a column that is optional, as are the parts of its structs."""
    return replace(column, required=False, fields=_optional_parts(column))


def _optional_parts(column: Column) -> tuple[Column, ...]:
    if column.type == STRUCT:
        return tuple(map(_optional, column.fields))
    if column.type in (LIST, MAP):
        *key, value = column.fields
        return (*key, replace(value, fields=_optional_parts(value)))
    return tuple(column.fields)


def _merged(known: Column, later: Column) -> Column:
    required = known.required and later.required
    if known.type in NESTED and known.type == later.type:
        if known.type == STRUCT:
            fields = merged_columns(known.fields, later.fields)
        else:
            # A map's key never changes its type.
            *key, value = known.fields
            fields = (*key, _merged(value, later.fields[-1]))
        return replace(known, required=required, fields=fields)
    return replace(known, type=_wider(known.type, later.type), required=required)


def _wider(known: str, later: str) -> str:
    """Return the wider one of two types; the known one if no type has the values of both."""
    first, second = decimal_size(known), decimal_size(later)
    if first and second and first[1] == second[1]:
        return f"decimal({max(first[0], second[0])},{first[1]})"
    return _WIDER.get(frozenset((known, later)), known)
