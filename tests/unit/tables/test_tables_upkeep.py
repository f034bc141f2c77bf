"""The declared upkeep is in the Iceberg metadata: properties, snapshots, the metadata log and the sort order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField
from pyiceberg.transforms import IdentityTransform

from tallystick.format.columns import FormerName
from tallystick.format.upkeep import DEFAULT, SNAPSHOTS_MAX, SORTABLE, Upkeep
from tallystick.tables import snapshots, staging
from tallystick.tables.reading import static_table
from tallystick.tables.schema import arrow_type
from tallystick.tables.upkeep import UpkeepChanges

NOW = datetime(2020, 1, 1, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
OF_DEFAULT = {
    "history.expire.min-snapshots-to-keep": "50",
    "write.metadata.previous-versions-max": "20",
    "write.target-file-size-bytes": "134217728",
    "write.parquet.compression-codec": "zstd",
}
AGE = "history.expire.max-snapshot-age-ms"
PAGES = "write.parquet.page-version"


def row(day: int) -> dict[str, Any]:
    return {"departure": datetime(2013, 1, day, 5, tzinfo=UTC), "origin": "JFK", "delay": 0}


def metadata_of(table: Any, key: str | None = None) -> TableMetadata:
    return static_table(table.store, key or table.state.metadata).metadata


def declare(table: Any, **upkeep: Any) -> None:
    table.state = replace(table.state, upkeep=Upkeep(**upkeep))


def upkeep_of(table: Any, key: str | None = None) -> dict[str, str]:
    found = metadata_of(table, key).properties
    return {name: found[name] for name in (*OF_DEFAULT, AGE, PAGES) if name in found}


def times(table: Any) -> list[timedelta]:
    """Return the times of the listed snapshots, after NOW."""
    found = metadata_of(table).snapshots
    return [timedelta(milliseconds=s.timestamp_ms) + EPOCH - NOW for s in found]


class TestProperties:
    def test_a_new_table_has_all_of_them(self, flights: Any) -> None:
        declare(flights, snapshots_kept=7, snapshots_kept_for=timedelta(days=1), metadata_kept=9)
        flights.commit()
        assert upkeep_of(flights) == OF_DEFAULT | {
            "history.expire.min-snapshots-to-keep": "7",
            "write.metadata.previous-versions-max": "9",
            AGE: "86400000",
        }

    def test_a_change_is_written_and_a_removed_value_is_removed(self, flights: Any) -> None:
        flights.commit(flights.files([row(1)]))
        assert upkeep_of(flights) == OF_DEFAULT
        declare(
            flights,
            snapshots_kept_for=SECOND,
            file_size_bytes=1 << 20,
            compression="gzip",
            parquet_version=2,
        )
        flights.commit()
        assert upkeep_of(flights) == OF_DEFAULT | {
            "write.target-file-size-bytes": "1048576",
            "write.parquet.compression-codec": "gzip",
            AGE: "1000",
            PAGES: "2",
        }
        declare(flights)
        flights.commit()
        assert upkeep_of(flights) == OF_DEFAULT
        assert flights.rows() == [row(1)]
        assert flights.stage() == flights.state.metadata, "nothing is left to write"

    def test_metadata_is_not_written_only_because_it_lacks_a_default(
        self, flights: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A table of an earlier version has none of the properties, and did what the defaults are."""
        with monkeypatch.context() as earlier:
            earlier.setattr(staging, "upkeep_properties", lambda _: {})
            flights.commit(flights.files([row(1)]))
        assert upkeep_of(flights) == {}
        assert flights.stage() == flights.state.metadata
        flights.commit(flights.files([row(2)]))
        assert upkeep_of(flights) == OF_DEFAULT

    def test_a_declared_value_is_written_into_a_table_that_lacks_the_property(
        self, flights: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as earlier:
            earlier.setattr(staging, "upkeep_properties", lambda _: {})
            flights.commit()
        declare(flights, metadata_kept=3)
        assert flights.stage() != flights.state.metadata
        flights.commit()
        assert upkeep_of(flights) == OF_DEFAULT | {"write.metadata.previous-versions-max": "3"}

    def test_the_metadata_log_is_shortened_by_the_commit_that_writes_the_change(
        self, flights: Any
    ) -> None:
        for _ in range(10):
            flights.commit(flights.files([row(1)]))
        assert len(metadata_of(flights).metadata_log) == 9
        last = flights.state.metadata
        declare(flights, metadata_kept=3)
        flights.commit()
        log = metadata_of(flights).metadata_log
        assert len(log) == 3
        assert log[-1].metadata_file.endswith(last)


class TestSnapshots:
    @pytest.mark.parametrize("with_files", [True, False])
    def test_a_smaller_number_applies_at_the_next_commit_also_of_the_change_alone(
        self, flights: Any, *, with_files: bool
    ) -> None:
        for day in range(1, 9):
            flights.commit(flights.files([row(day)]))
        declare(flights, snapshots_kept=3)
        newest = metadata_of(flights).snapshots
        flights.commit(flights.files([row(9)]) if with_files else ())
        metadata = metadata_of(flights)
        expected = [s.sequence_number for s in newest][-3:]
        if with_files:
            expected = [*expected[1:], 9]
        assert [s.sequence_number for s in metadata.snapshots] == expected
        current = metadata.current_snapshot()
        assert current is not None
        assert current.sequence_number == expected[-1]
        assert len(flights.rows()) == 8 + with_files

    def test_a_snapshot_is_kept_at_exactly_the_declared_age_and_not_a_millisecond_longer(
        self, make_table: Callable[..., Any]
    ) -> None:
        for late, kept in ((timedelta(0), 4), (timedelta(milliseconds=1), 3)):
            table = make_table()
            declare(table, snapshots_kept=1, snapshots_kept_for=3 * SECOND)
            for number in range(3):
                table.commit(table.files([row(1)]), now=NOW + number * SECOND)
            table.commit(table.files([row(1)]), now=NOW + 3 * SECOND + late)
            assert len(times(table)) == kept, late

    @pytest.mark.parametrize("hours_ahead", [-1, 0, 1])
    def test_the_age_is_measured_from_the_time_of_the_commit_not_from_the_clock(
        self, flights: Any, hours_ahead: int
    ) -> None:
        """PyIceberg gives the new snapshot the time of the machine's clock until the commit."""
        first = datetime.now(UTC) + timedelta(hours=hours_ahead)
        declare(flights, snapshots_kept=1, snapshots_kept_for=3 * SECOND)
        for number in range(6):
            flights.commit(flights.files([row(1)]), now=first + number * SECOND)
        assert len(metadata_of(flights).snapshots) == 4

    def test_the_current_snapshot_of_a_table_that_rests_is_kept(self, flights: Any) -> None:
        declare(flights, snapshots_kept=1, snapshots_kept_for=SECOND)
        flights.commit(flights.files([row(1)]))
        flights.commit(flights.files([row(2)]))
        declare(flights, snapshots_kept=1)
        flights.commit(now=NOW + timedelta(days=900))
        assert len(metadata_of(flights).snapshots) == 1
        assert flights.rows() == [row(1), row(2)]

    def test_the_number_is_kept_if_the_snapshots_are_older(self, flights: Any) -> None:
        declare(flights, snapshots_kept=3, snapshots_kept_for=SECOND)
        for number in range(5):
            flights.commit(flights.files([row(1)]), now=NOW + number * timedelta(days=1))
        assert times(flights) == [timedelta(days=d) for d in (2, 3, 4)]

    def test_at_most_a_thousand_are_kept_by_their_age(
        self, flights: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert SNAPSHOTS_MAX == 1000
        monkeypatch.setattr(snapshots, "SNAPSHOTS_MAX", 6)  # a thousand commits take minutes
        declare(flights, snapshots_kept=2, snapshots_kept_for=timedelta(days=1))
        for number in range(8):
            flights.commit(flights.files([row(1)]), now=NOW + number * SECOND)
        assert times(flights) == [number * SECOND for number in range(2, 8)]


class TestSortOrder:
    def order(self, table: Any) -> tuple[int, list[int]]:
        """Return the id of the table's sort order, and the ids of its columns."""
        found = metadata_of(table).sort_order()
        for field in found.fields:
            assert field == SortField(
                source_id=field.source_id,
                transform=IdentityTransform(),
                direction=SortDirection.ASC,
                null_order=NullOrder.NULLS_FIRST,
            )
        return found.order_id, [f.source_id for f in found.fields]

    def test_a_new_table_has_the_declared_order(self, flights: Any) -> None:
        declare(flights, sort_by=["origin", "departure"])
        flights.commit(flights.files([row(1)]))
        assert self.order(flights) == (1, [2, 1])

    def test_an_order_is_added_changed_used_again_and_removed(self, flights: Any) -> None:
        flights.commit()
        assert self.order(flights) == (0, [])
        for sort_by, expected in (
            (["origin"], (1, [2])),
            (["delay"], (2, [3])),
            (["origin"], (1, [2])),
            ([], (0, [])),
            (["delay"], (2, [3])),
        ):
            declare(flights, sort_by=sort_by)
            flights.commit()
            assert self.order(flights) == expected
        assert [o.order_id for o in metadata_of(flights).sort_orders] == [0, 1, 2]

    def test_an_order_of_a_new_table_is_removed(self, flights: Any) -> None:
        declare(flights, sort_by=["origin"])
        flights.commit()
        declare(flights)
        flights.commit()
        assert self.order(flights) == (0, [])

    def test_it_follows_the_ids_of_renamed_columns(self, flights: Any) -> None:
        declare(flights, sort_by=["origin"])
        flights.commit(flights.files([row(1)]))
        columns = [replace(c, name="airport") if c.id == 2 else c for c in flights.state.columns]
        flights.state = replace(
            flights.state,
            columns=tuple(columns),
            former_names=(FormerName(id=2, name="origin"),),
            upkeep=Upkeep(sort_by=["airport"]),
        )
        flights.commit()
        assert metadata_of(flights).schema().find_column_name(2) == "airport"
        assert self.order(flights) == (1, [2])
        assert len(metadata_of(flights).sort_orders) == 1

    def test_it_is_replaced_by_the_declared_one_when_its_column_is_dropped(
        self, flights: Any
    ) -> None:
        declare(flights, sort_by=["delay"])
        flights.commit(flights.files([row(1)]))
        flights.state = replace(
            flights.state,
            columns=flights.state.columns[:2],
            dropped=flights.state.columns[2:],
            upkeep=Upkeep(sort_by=["origin"]),
        )
        flights.commit()
        assert self.order(flights) == (2, [2])
        assert metadata_of(flights).schema().column_names == ["departure", "origin"]

    def test_files_name_no_order_because_they_are_not_sorted(self, flights: Any) -> None:
        declare(flights, sort_by=["delay"])
        flights.commit(flights.files([row(1)]))
        table = static_table(flights.store, flights.state.metadata)
        (task,) = table.scan().plan_files()
        assert task.file.sort_order_id is None


@pytest.mark.parametrize("kind", SORTABLE)
def test_arrow_sorts_each_type_that_is_allowed(kind: str) -> None:
    sizes = {"decimal": "decimal(9,2)", "fixed": "fixed[2]"}
    column = arrow_type(sizes.get(kind, kind))
    none = pa.nulls(1, column)
    found = pc.sort_indices(pa.table({"c": none}), sort_keys=[("c", "ascending")])
    assert found.to_pylist() == [0]


def test_values_of_bytes_and_texts_are_ordered_by_their_unsigned_bytes() -> None:
    """As Iceberg orders them: a signed comparison, or one of UTF-16 units, would have another order."""
    data = pa.table(
        {"b": pa.array([b"\xff", b"\x7f", b"\x80"]), "s": ["\U0001f600", "\uffee", "z"]}
    )
    for name, expected in (("b", [1, 2, 0]), ("s", [2, 1, 0])):
        assert pc.sort_indices(data, sort_keys=[(name, "ascending")]).to_pylist() == expected


MUTANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "the defaults are written alone": lambda patch: patch.setattr(
        "tallystick.tables.upkeep._UNWRITTEN", {}
    ),
    "properties are never changed": lambda patch: patch.setattr(
        staging, "upkeep_changes", _nothing
    ),
    "the age is measured from the clock": lambda patch: patch.setattr(
        staging, "_since_ms", lambda state, _: _clock_ms() - _age_ms(state)
    ),
    "the age is not used": lambda patch: patch.setattr(staging, "_since_ms", lambda *_: None),
    "nothing expires": lambda patch: patch.setattr(staging, "expire", lambda *_, **__: None),
}


def _nothing(*_: Any, **__: Any) -> UpkeepChanges:
    return UpkeepChanges()


def _clock_ms() -> int:
    return (datetime.now(UTC) - EPOCH) // timedelta(milliseconds=1)


def _age_ms(state: Any) -> int:
    return (state.upkeep.snapshots_kept_for or timedelta(0)) // timedelta(milliseconds=1)


CLAIMS: dict[str, Callable[[Any, pytest.MonkeyPatch], None]] = {
    "the defaults are written alone": lambda table, patch: (
        TestProperties().test_metadata_is_not_written_only_because_it_lacks_a_default(table, patch)
    ),
    "properties are never changed": lambda table, _: (
        TestProperties().test_a_change_is_written_and_a_removed_value_is_removed(table)
    ),
    "the age is measured from the clock": lambda table, _: (
        TestSnapshots().test_the_age_is_measured_from_the_time_of_the_commit_not_from_the_clock(
            table, 1
        )
    ),
    "the age is not used": lambda table, _: (
        TestSnapshots().test_the_age_is_measured_from_the_time_of_the_commit_not_from_the_clock(
            table, 0
        )
    ),
    "nothing expires": lambda table, _: (
        TestSnapshots().test_the_number_is_kept_if_the_snapshots_are_older(table)
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_removed_guard_is_detected(
    flights: Any, monkeypatch: pytest.MonkeyPatch, mutant: str
) -> None:
    MUTANTS[mutant](monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        CLAIMS[mutant](flights, monkeypatch)


def test_the_default_is_what_tables_had_before_it_could_be_declared() -> None:
    assert DEFAULT.to_json() == {
        "snapshots_kept": 50,
        "snapshots_kept_for": None,
        "metadata_kept": 20,
        "file_size_bytes": 134_217_728,
        "compression": "zstd",
        "sort_by": [],
    }
