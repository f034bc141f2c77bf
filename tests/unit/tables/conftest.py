"""A table on a store in memory, advanced as swaps of a root would advance it."""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tallystick.format import keys
from tallystick.format.columns import TableColumn
from tallystick.format.report import FileReport
from tallystick.runtime import system_runtime
from tallystick.store import Applied, Outcome, Stored, Unknown
from tallystick.store.memory import MemoryStore
from tallystick.tables.partitioning import split_by_partition
from tallystick.tables.reading import static_table
from tallystick.tables.schema import arrow_schema
from tallystick.tables.staging import IcebergTables
from tallystick.tables.state import TableState
from tallystick.tables.statistics import column_statistics, split_offsets

NOW = datetime(2020, 1, 1, tzinfo=UTC)
JAN_1, JAN_2 = datetime(2013, 1, 1, tzinfo=UTC), datetime(2013, 1, 2, tzinfo=UTC)
FLIGHTS = (
    TableColumn(id=1, name="departure", type="timestamptz", required=True),
    TableColumn(id=2, name="origin", type="string", required=False),
    TableColumn(id=3, name="delay", type="int", required=True),
)


class CountingStore(MemoryStore):
    """A store in memory that records each request, and answers `unknown` to the creates that `lost` selects."""

    def __init__(self, name: str = "lake") -> None:
        super().__init__(name)
        self.requests: list[tuple[str, str]] = []
        self.lost: Callable[[str], bool | None] = lambda key: None

    def get(self, key: str) -> Stored | None:
        self.requests.append(("get", key))
        return super().get(key)

    def create(self, key: str, body: bytes | Path) -> Outcome:
        self.requests.append(("create", key))
        is_applied = self.lost(key)
        if is_applied is None:
            return super().create(key, body)
        if is_applied:
            super().create(key, body)
        return Unknown(because="reply lost")

    def delete(self, keys: Any) -> None:
        raise AssertionError("a writer deleted")

    def replace(self, key: str, body: bytes, *, expected: Any) -> Outcome:
        raise AssertionError("a writer replaced an object")


def fresh_uuid() -> str:
    return uuid.uuid4().hex


def parquet_bytes(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", **options)
    return sink.getvalue()


@dataclass
class StagedTable:
    """A table. `state` is its state in the root."""

    store: CountingStore
    state: TableState
    tables: IcebergTables
    pauses: list[float] = field(default_factory=list)

    def files(
        self, rows: Sequence[Mapping[str, Any]], columns: tuple[TableColumn, ...] = ()
    ) -> list[FileReport]:
        """Write rows as an attempt does: one file per partition, below the prefix of a new plan."""
        columns = columns or self.state.columns
        plan = keys.plan(JAN_1, JAN_2, fresh_uuid())
        reports = []
        table = pa.Table.from_pylist([dict(r) for r in rows], schema=arrow_schema(columns))
        for partition, part in split_by_partition(table, self.state.partition_by, columns):
            key = keys.data_file(self.state.name, plan, "a1", "t0", fresh_uuid())
            body = parquet_bytes(part)
            footer = pq.read_metadata(io.BytesIO(body))
            outcome = self.store.create(key, body)
            assert isinstance(outcome, Applied)
            reports.append(
                FileReport(
                    table=self.state.name,
                    key=key,
                    etag=outcome.etag,
                    size_bytes=len(body),
                    rows=part.num_rows,
                    partition=partition,
                    columns=column_statistics(footer, columns, where=key),
                    split_offsets=split_offsets(footer),
                )
            )
        return reports

    def stage(
        self,
        add: Sequence[FileReport] = (),
        drop: Collection[str] = (),
        *,
        delete: Mapping[str, tuple[tuple[int, int], ...]] | None = None,
        now: datetime = NOW,
        properties: Mapping[str, str] | None = None,
    ) -> str:
        return self.tables.stage(
            self.state,
            add=add,
            drop=drop,
            delete=delete or {},
            properties=properties or {},
            now=now,
        )

    def commit(
        self, add: Sequence[FileReport] = (), drop: Collection[str] = (), **options: Any
    ) -> str:
        """Stage and advance `state`, as if the root was swapped."""
        key = self.stage(add, drop, **options)
        self.state = replace(self.state, metadata=key)
        return key

    def with_columns(self, *columns: TableColumn) -> None:
        self.state = replace(self.state, columns=columns)

    def rows(self, key: str | None = None) -> list[dict[str, Any]]:
        found = (
            static_table(self.store, key or self.state.metadata or "").scan().to_arrow().to_pylist()
        )
        return sorted(found, key=repr)


@pytest.fixture
def make_table() -> Callable[..., StagedTable]:
    def make(
        *,
        columns: tuple[TableColumn, ...] = FLIGHTS,
        partition_by: tuple[str, ...] = ("day(departure)",),
        name: str = "flights",
        store: CountingStore | None = None,
        new_uuid: Callable[[], str] = fresh_uuid,
    ) -> StagedTable:
        store = store or CountingStore()
        pauses: list[float] = []
        state = TableState(
            name=name, uuid=fresh_uuid(), metadata=None, columns=columns, partition_by=partition_by
        )
        return StagedTable(
            store=store,
            state=state,
            tables=IcebergTables(
                store,
                replace(
                    system_runtime(),
                    uuid=new_uuid,
                    sleep=pauses.append,
                    monotonic_s=lambda: sum(pauses),
                    chance=lambda: 1.0,
                ),
            ),
            pauses=pauses,
        )

    return make


@pytest.fixture
def flights(make_table: Callable[..., StagedTable]) -> StagedTable:
    return make_table()
