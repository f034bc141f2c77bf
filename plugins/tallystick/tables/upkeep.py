"""The upkeep of a table in Iceberg's form: table properties and sort orders, and what differs from its metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import (
    INITIAL_SORT_ORDER_ID,
    UNSORTED_SORT_ORDER,
    NullOrder,
    SortDirection,
    SortField,
    SortOrder,
)
from pyiceberg.table.update import (
    AddSortOrderUpdate,
    RemovePropertiesUpdate,
    SetDefaultSortOrderUpdate,
    SetPropertiesUpdate,
    TableUpdate,
)
from pyiceberg.transforms import IdentityTransform

from tallystick.format.columns import TableColumn
from tallystick.format.upkeep import DEFAULT, Upkeep

_MILLISECOND = timedelta(milliseconds=1)
# Iceberg table properties, Write properties (1.11). With 2, parquet-java uses the encodings of Parquet 2, too.
PAGE_VERSION = "write.parquet.page-version"
# What only an upkeep that differs from the default has.
_OPTIONAL = frozenset({TableProperties.MAX_SNAPSHOT_AGE_MS, PAGE_VERSION})


def upkeep_properties(upkeep: Upkeep) -> dict[str, str]:
    """Return the table properties of an upkeep."""
    found = {
        TableProperties.MIN_SNAPSHOTS_TO_KEEP: str(upkeep.snapshots_kept),
        TableProperties.METADATA_PREVIOUS_VERSIONS_MAX: str(upkeep.metadata_kept),
        TableProperties.WRITE_TARGET_FILE_SIZE_BYTES: str(upkeep.file_size_bytes),
        TableProperties.PARQUET_COMPRESSION: upkeep.compression,
    }
    if upkeep.snapshots_kept_for is not None:
        age_ms = upkeep.snapshots_kept_for // _MILLISECOND
        found[TableProperties.MAX_SNAPSHOT_AGE_MS] = str(age_ms)
    if upkeep.parquet_version != DEFAULT.parquet_version:
        found[PAGE_VERSION] = str(upkeep.parquet_version)
    return found


# A table whose metadata lacks a property was written by a version that did what the default is.
_UNWRITTEN = upkeep_properties(DEFAULT)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepChanges:
    """The updates that bring metadata to its declared upkeep.

    `due`: metadata is written for them. `with_others`: a property that the metadata lacks and that has its default; it is
    written only together with something else.
    """

    due: tuple[TableUpdate, ...] = ()
    with_others: tuple[TableUpdate, ...] = ()


def upkeep_changes(
    metadata: TableMetadata,
    upkeep: Upkeep,
    columns: Sequence[TableColumn],
    *,
    fixed: Mapping[str, str],
) -> UpkeepChanges:
    """Return what differs between metadata and its declared upkeep.

    `columns`: those of the table after the commit. `fixed`: the properties that no upkeep has.
    """
    found, declared = metadata.properties, upkeep_properties(upkeep)
    changed = {k: v for k, v in declared.items() if found.get(k, _UNWRITTEN.get(k)) != v}
    wanted = {**fixed, **declared}
    lacking = {k: v for k, v in wanted.items() if found.get(k) != v and k not in changed}
    due: list[TableUpdate] = []
    if changed:
        due.append(SetPropertiesUpdate(updates=changed))
    if removed := sorted(_OPTIONAL & (found.keys() - declared.keys())):
        due.append(RemovePropertiesUpdate(removals=removed))
    return UpkeepChanges(
        due=(*due, *_order_changes(metadata, sort_order(columns, upkeep.sort_by))),
        with_others=(SetPropertiesUpdate(updates=lacking),) if lacking else (),
    )


def sort_order(columns: Sequence[TableColumn], sort_by: Sequence[str]) -> SortOrder:
    """Return the sort order of these columns, ascending, nulls first, with the first id that is not `unsorted`."""
    ids = {column.name: column.id for column in columns}
    if not sort_by:
        return UNSORTED_SORT_ORDER
    return SortOrder(
        *(_ascending(ids[name]) for name in sort_by),
        order_id=INITIAL_SORT_ORDER_ID,
    )


def known_order(metadata: TableMetadata, sorted_by: Sequence[int]) -> int | None:
    """Return the id of the sort order by which a file is sorted; None if the metadata has no such order, or no column.

    `sorted_by`: the ids of the columns. An order that was declared before is still the order of its files (Iceberg spec,
    Manifests: sort_order_id).
    """
    for order in metadata.sort_orders if sorted_by else ():
        if order.fields == [_ascending(number) for number in sorted_by]:
            return order.order_id
    return None


def _ascending(source_id: int) -> SortField:
    return SortField(
        source_id=source_id,
        transform=IdentityTransform(),
        direction=SortDirection.ASC,
        null_order=NullOrder.NULLS_FIRST,
    )


def _order_changes(metadata: TableMetadata, wanted: SortOrder) -> list[TableUpdate]:
    """Return the updates to a sort order: a known one with the same fields is used again."""
    known = next((o for o in metadata.sort_orders if o.fields == wanted.fields), None)
    if known is None:
        order_id = max(order.order_id for order in metadata.sort_orders) + 1
        # 0 is only for the order without a field (Iceberg spec, Sorting).
        known = wanted if wanted.is_unsorted else wanted.model_copy(update={"order_id": order_id})
    elif known.order_id == metadata.default_sort_order_id:
        return []
    changes: list[TableUpdate] = []
    if known not in metadata.sort_orders:
        changes.append(AddSortOrderUpdate.model_validate({"sort-order": known}))
    chosen = {"sort-order-id": known.order_id}
    return [*changes, SetDefaultSortOrderUpdate.model_validate(chosen)]
