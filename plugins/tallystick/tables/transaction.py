"""A PyIceberg transaction that applies each update once, so that the cost of a commit does not grow with its snapshots.

PyIceberg's own applies all updates at every access to the metadata, and copies all snapshots deeply: about 20 times per
table and commit.
"""

from __future__ import annotations

from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    TableUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
)


class TableTransaction(Transaction):
    """A transaction of one commit. Its metadata is shared: it must not be changed in place, and updates copy it."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._built: tuple[tuple[TableUpdate, ...], TableMetadata] = ((), table.metadata)
        self._context = _TableMetadataUpdateContext()

    @property
    def table_metadata(self) -> TableMetadata:
        """The table's metadata with all updates of this transaction so far."""
        applied, metadata = self._built
        updates = self._updates
        if updates is not applied:
            for update in updates[len(applied) :]:
                metadata = _apply_table_update(update, metadata, self._context)
            # PyIceberg's threads may build it twice, with equal results: the pair is replaced as a whole.
            self._built = (updates, metadata)
        return metadata
