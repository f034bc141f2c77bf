"""The state of a table in one root, which a commit passes to the table layer. Has no heavy imports."""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.format import keys
from tallystick.format.columns import FormerName, TableColumn, check_columns
from tallystick.format.root import RootTable
from tallystick.format.upkeep import DEFAULT, Upkeep


def table_state(name: str, table: RootTable) -> TableState:
    """Return the state of a table of a root."""
    return TableState(
        name=name,
        uuid=table.uuid,
        metadata=table.metadata,
        columns=table.columns,
        partition_by=table.partition_by,
        dropped=table.dropped,
        former_names=table.former_names,
        upkeep=table.upkeep,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """The state of a table in one root.

    `metadata` is a key relative to the lake URI, or None if nothing was written yet. `columns` are all columns that
    ever got an id from the root, in that order. Columns that the pipeline no longer declares have `required=False`,
    because new files lack them. `partition_by` are the rules for files that are added now. `dropped` are the columns
    that the table had, `former_names` the names that its columns had before they were renamed. `upkeep`: as declared.
    """

    name: str
    uuid: str
    metadata: str | None
    columns: tuple[TableColumn, ...]
    partition_by: tuple[str, ...] = ()
    dropped: tuple[TableColumn, ...] = ()
    former_names: tuple[FormerName, ...] = ()
    upkeep: Upkeep = DEFAULT

    def __post_init__(self) -> None:
        keys.check_name(self.name, "table")
        keys.check_uuid(self.uuid)
        check_columns(self.columns)
        if self.metadata is not None:
            keys.check_metadata(self.metadata, self.name)
