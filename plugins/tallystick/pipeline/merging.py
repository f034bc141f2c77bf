"""Merges the columns of several versions of a schema: those that every version's records can be read into.

Allowed is what a table can follow without rewriting files (Iceberg specification, Schema Evolution): a new field, a wider
type, optional instead of required, also inside of structs, lists and maps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tallystick.format.types import LIST, MAP, NESTED, decimal_size
from tallystick.pipeline.columns import Column

_WIDER = {frozenset(("int", "long")): "long", frozenset(("float", "double")): "double"}


def merged_columns(known: Sequence[Column], later: Sequence[Column]) -> tuple[Column, ...] | None:
    """Return the columns of both; None if one of them has another type in the later version.

    A column that only one of them has is optional. The order is that of `known`, then that of the later version.
    """
    by_name = {column.name.lower(): column for column in later}
    found: list[Column] = []
    for column in known:
        other = by_name.pop(column.name.lower(), None)
        both = replace(column, required=False) if other is None else _merged(column, other)
        if both is None:
            return None
        found.append(both)
    return (*found, *(replace(column, required=False) for column in by_name.values()))


def _merged(known: Column, later: Column) -> Column | None:
    required = known.required and later.required
    if (known.source or known.name) != (later.source or later.name):
        return None
    if known.type in NESTED and known.type == later.type:
        if known.type in (LIST, MAP):
            parts = tuple(_merged(a, b) for a, b in zip(known.fields, later.fields, strict=True))
            fields = tuple(part for part in parts if part is not None)
            # A map's key never changes its type.
            fits = len(fields) == len(parts) and fields[:-1] == tuple(known.fields[:-1])
            return replace(known, required=required, fields=fields) if fits else None
        inside = merged_columns(known.fields, later.fields)
        return None if inside is None else replace(known, required=required, fields=inside)
    kind = _wider(known.type, later.type)
    return None if kind is None else replace(known, type=kind, required=required)


def _wider(known: str, later: str) -> str | None:
    if known == later:
        return known
    first, second = decimal_size(known), decimal_size(later)
    if first and second and first[1] == second[1]:
        return f"decimal({max(first[0], second[0])},{first[1]})"
    return _WIDER.get(frozenset((known, later)))
