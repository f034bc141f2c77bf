"""A table as one root knows it, without any heavy import: what a commit hands to the table layer."""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.format import keys
from tallystick.format.columns import TableColumn, check_columns


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """A table as one root knows it.

    `metadata` is a key relative to the lake root, None where nothing was written yet. `columns` are all that the root
    ever gave an id to, in that order; `required=False` for those that the pipeline no longer declares, since new files
    lack them. `partition_by` are the rules for what is added now.
    """

    name: str
    uuid: str
    metadata: str | None
    columns: tuple[TableColumn, ...]
    partition_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        keys.check_name(self.name, "table")
        keys.check_uuid(self.uuid)
        check_columns(self.columns)
        if self.metadata is not None:
            keys.check_metadata(self.metadata, self.name)
