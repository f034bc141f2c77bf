"""A commit stages one snapshot with the ids of the root and the given time, under fresh names, and deletes nothing."""

from __future__ import annotations

import gc
import itertools
import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from pyiceberg.table.snapshots import Operation

from tallystick.errors import (
    Corrupt,
    IdentityChanged,
    InvalidPipeline,
    OutcomeUnknown,
    ReportRejected,
    SchemaChanged,
)
from tallystick.format.columns import TableColumn
from tallystick.store.tries import UNKNOWN_S
from tallystick.tables.file_io import StoreFileIO
from tallystick.tables.reading import LiveFile, live_files, metadata_uri, static_table
from tallystick.tables.state import TableState

NOW = datetime(2020, 1, 1, tzinfo=UTC)
NOW_MS = 1_577_836_800_000


def row(day, origin="JFK", delay=0):
    return {"departure": datetime(2013, 1, day, 5, tzinfo=UTC), "origin": origin, "delay": delay}


def metadata_of(table, key=None):
    return static_table(table.store, key or table.state.metadata).metadata


class TestCreate:
    def test_a_new_table_is_empty(self, flights):
        key = flights.commit()
        metadata = metadata_of(flights)
        assert key.startswith("tables/flights/metadata/00000-")
        assert metadata.table_uuid == UUID(hex=flights.state.uuid)
        assert metadata.format_version == 2
        assert metadata.snapshots == []
        assert flights.rows() == []
        assert list(live_files(flights.store, key)) == []

    def test_columns_have_the_ids_order_and_names_of_the_root(self, make_table):
        columns = (
            TableColumn(id=7, name="b", type="decimal(9,2)", required=True),
            TableColumn(id=2, name="a", type="binary", required=False),
        )
        table = make_table(columns=columns, partition_by=())
        table.commit(table.files([{"b": 1, "a": b"x"}]))
        metadata = metadata_of(table)
        assert [
            (f.field_id, f.name, str(f.field_type), f.required) for f in metadata.schema().fields
        ] == [
            (7, "b", "decimal(9, 2)", True),
            (2, "a", "binary", False),
        ]
        assert metadata.last_column_id == 7

    def test_the_first_commit_can_create_and_append(self, flights):
        flights.commit(flights.files([row(1)]))
        assert flights.rows() == [row(1)]
        assert [s.sequence_number for s in metadata_of(flights).snapshots] == [1]

    def test_partition_fields_are_named_and_numbered_as_iceberg_does(self, make_table):
        table = make_table(partition_by=("origin", "year(departure)", "hour(departure)"))
        table.commit()
        fields = metadata_of(table).spec().fields
        assert [(f.field_id, f.name, f.source_id, str(f.transform)) for f in fields] == [
            (1000, "origin", 2, "identity"),
            (1001, "departure_year", 1, "year"),
            (1002, "departure_hour", 1, "hour"),
        ]

    def test_old_metadata_is_never_deleted_and_its_log_is_bounded(self, flights):
        for _ in range(25):
            flights.commit(flights.files([row(1)]))
        metadata = metadata_of(flights)
        assert metadata.properties["write.metadata.delete-after-commit.enabled"] == "false"
        assert len(metadata.metadata_log) == 20


class TestOneSnapshot:
    def test_an_append_is_one_snapshot_that_names_its_plan(self, flights):
        flights.commit()
        flights.commit(
            flights.files([row(1), row(2)]), properties={"tallystick.plan": "plans/x/y.json"}
        )
        (snapshot,) = metadata_of(flights).snapshots
        assert snapshot.summary.operation is Operation.APPEND
        assert snapshot.summary["tallystick.plan"] == "plans/x/y.json"
        assert (snapshot.summary["added-data-files"], snapshot.summary["total-records"]) == (
            "2",
            "2",
        )

    def test_a_replacement_is_one_snapshot(self, flights):
        first = flights.files([row(1), row(2)])
        other = flights.files([row(1, "LGA")])
        flights.commit(first + other)
        flights.commit(flights.files([row(1, "EWR")]), [f.key for f in first])
        snapshots = metadata_of(flights).snapshots
        assert [s.summary.operation for s in snapshots] == [Operation.APPEND, Operation.OVERWRITE]
        assert flights.rows() == sorted([row(1, "EWR"), row(1, "LGA")], key=repr)
        summary = snapshots[-1].summary
        assert (
            summary["total-data-files"],
            summary["total-records"],
            summary["deleted-records"],
        ) == ("2", "2", "2")

    def test_dropping_all_files_leaves_an_empty_table(self, flights):
        files = flights.files([row(1), row(2)])
        flights.commit(files)
        before = flights.state.metadata
        flights.commit(drop=[f.key for f in files])
        assert flights.rows() == []
        assert metadata_of(flights).current_snapshot().summary.operation is Operation.DELETE
        assert len(flights.rows(before)) == 2, "the previous snapshot can still be read"

    def test_an_emptied_table_can_be_appended_to(self, flights):
        files = flights.files([row(1)])
        flights.commit(files)
        flights.commit(drop=[f.key for f in files])
        flights.commit(flights.files([row(3)]))
        assert flights.rows() == [row(3)]
        table = static_table(flights.store, flights.state.metadata)
        manifests = table.current_snapshot().manifests(table.io)
        assert [m.existing_files_count + m.added_files_count for m in manifests] == [1], (
            "no empty manifest is kept"
        )

    def test_a_stage_without_changes_writes_nothing(self, flights):
        key = flights.commit(flights.files([row(1)]))
        flights.store.requests.clear()
        assert flights.commit() == key
        assert [verb for verb, _ in flights.store.requests] == ["get"]

    def test_live_files_are_read_from_manifests_only(self, flights):
        files = flights.files([row(1), row(2), {**row(1), "origin": None}])
        flights.commit(files)
        flights.store.requests.clear()
        found = list(live_files(flights.store, flights.state.metadata))
        assert sorted(found, key=lambda f: f.key) == sorted(
            (
                LiveFile(key=f.key, size_bytes=f.size_bytes, rows=f.rows, partition=f.partition)
                for f in files
            ),
            key=lambda f: f.key,
        )
        assert not [key for _, key in flights.store.requests if "/data/" in key]

    def test_commits_read_no_data_file(self, flights):
        files = [flights.files([row(i % 28 + 1)]) for i in range(6)]
        flights.store.requests.clear()
        for added in files:
            flights.commit(added)
        flights.commit(flights.files([row(1, "EWR")]), [f.key for f in files[0]])
        assert not [r for r in flights.store.requests if r[0] == "get" and "/data/" in r[1]]

    def test_statistics_prune_files_and_partitions(self, flights):
        flights.commit(
            flights.files([row(1, "AAA", 5), row(2, "ZZZ", 50)])
            + flights.files([row(2, "BBB", 500)])
        )
        table = static_table(flights.store, flights.state.metadata)
        for row_filter, files in (
            ("departure < '2013-01-02T00:00:00+00:00'", 1),
            ("origin = 'BBB'", 1),
            ("delay > 20", 2),
            ("delay > 500", 0),
            ("origin is null", 0),
        ):
            assert len(list(table.scan(row_filter=row_filter).plan_files())) == files, row_filter


class TestRebase:
    def test_staging_twice_gives_two_independent_states(self, flights):
        flights.commit(flights.files([row(1)]))
        before = flights.state.metadata
        left, right = flights.stage(flights.files([row(2)])), flights.stage(flights.files([row(3)]))
        assert left != right
        assert flights.rows(before) == [row(1)]
        assert flights.rows(left) == [row(1), row(2)]
        assert flights.rows(right) == [row(1), row(3)]

    def test_the_same_files_can_be_staged_on_a_newer_state(self, flights):
        flights.commit()
        mine = flights.files([row(1)])
        lost = flights.stage(mine)
        flights.commit(flights.files([row(2)]))
        flights.commit(mine)
        assert flights.rows() == [row(1), row(2)]
        assert flights.rows(lost) == [row(1)]

    def test_seeded_names_in_two_stores_do_not_mix(self, make_table):
        """PyIceberg caches manifests by path for the whole process, and an explorer with seeds repeats paths."""
        tables = []
        for day in (1, 2):
            numbers = itertools.count(1)
            table = make_table(new_uuid=lambda numbers=numbers: f"{next(numbers):032x}")
            first = table.files([row(day)] * day)
            table.commit(first)
            table.commit(table.files([row(day, "EWR")]))
            table.commit(drop=[f.key for f in first])
            tables.append(table)
            assert table.rows() == [row(day, "EWR")]
            assert [f.partition for f in live_files(table.store, table.state.metadata)] == [
                (15705 + day,)
            ]
            filtered = static_table(table.store, table.state.metadata).scan(
                row_filter=f"departure >= '2013-01-0{day}T00:00:00+00:00'"
            )
            assert filtered.to_arrow().num_rows == 1, "not pruned by the other store's partitions"
        assert tables[0].state.metadata == tables[1].state.metadata

    def test_tables_of_one_lake_do_not_mix(self, make_table, flights):
        other = make_table(name="hourly", store=flights.store, partition_by=())
        flights.commit(flights.files([row(1)]))
        other.commit(other.files([row(2)]))
        assert (flights.rows(), other.rows()) == ([row(1)], [row(2)])
        assert metadata_uri(other.store, other.state.metadata).startswith(
            "memory://lake/tables/hourly/metadata/"
        )


class TestTime:
    def test_all_times_come_from_the_argument(self, flights):
        flights.commit()
        flights.commit(flights.files([row(1)]), now=NOW + timedelta(minutes=1))
        flights.with_columns(
            *flights.state.columns, TableColumn(id=9, name="extra", type="long", required=False)
        )
        flights.commit(now=NOW + timedelta(minutes=2))
        metadata = metadata_of(flights)
        assert [s.timestamp_ms for s in metadata.snapshots] == [NOW_MS + 60_000]
        assert [e.timestamp_ms for e in metadata.snapshot_log] == [NOW_MS + 60_000]
        assert [e.timestamp_ms for e in metadata.metadata_log] == [NOW_MS, NOW_MS + 60_000]
        assert metadata.last_updated_ms == NOW_MS + 120_000

    def test_snapshot_times_always_increase(self, flights):
        for now in (NOW, NOW, NOW - timedelta(days=1)):
            flights.commit(flights.files([row(1)]), now=now)
        assert [s.timestamp_ms for s in metadata_of(flights).snapshots] == [
            NOW_MS,
            NOW_MS + 1,
            NOW_MS + 2,
        ]

    def test_names_and_snapshot_ids_come_from_the_argument(self, make_table):
        def names(seed):
            numbers = itertools.count(seed)
            table = make_table(new_uuid=lambda: f"{next(numbers):032x}")
            table.commit()
            table.commit(table.files([row(1)]))
            snapshot = metadata_of(table).current_snapshot()
            return table.state.metadata, snapshot.snapshot_id, snapshot.manifest_list

        assert names(1) == names(1)
        assert names(1) != names(100)


class TestEvolution:
    EXTRA = TableColumn(id=9, name="tail", type="string", required=True)

    def test_a_new_column_gets_the_roots_id_and_is_optional(self, flights):
        old = flights.files([row(1)])
        flights.commit(old)
        flights.with_columns(*flights.state.columns, self.EXTRA)
        flights.commit(flights.files([{**row(2), "tail": "N1"}]))
        metadata = metadata_of(flights)
        field = metadata.schema().find_field("tail")
        assert (field.field_id, field.required, metadata.last_column_id) == (9, False, 9)
        assert flights.rows() == [{**row(1), "tail": None}, {**row(2), "tail": "N1"}]
        assert len(metadata.snapshots) == 2

    def test_columns_are_added_without_a_file(self, flights):
        flights.commit(flights.files([row(1)]))
        flights.with_columns(*flights.state.columns, self.EXTRA)
        key = flights.commit()
        assert flights.rows() == [{**row(1), "tail": None}]
        assert flights.commit() == key, "the second stage has nothing to change"

    def test_a_plan_from_before_a_new_column_can_commit_after_it(self, flights):
        late = flights.files([row(1)])
        flights.commit()
        flights.with_columns(*flights.state.columns, self.EXTRA)
        flights.commit(flights.files([{**row(2), "tail": "N1"}]))
        flights.commit(late)
        assert flights.rows() == [{**row(1), "tail": None}, {**row(2), "tail": "N1"}]

    def test_a_required_column_can_become_optional_and_never_required_again(self, flights):
        flights.commit(flights.files([row(1)]))
        before = flights.state.columns
        flights.with_columns(*before[:2], replace(before[2], required=False))
        flights.commit(flights.files([row(2, delay=None)]))
        assert flights.rows() == [row(1), row(2, delay=None)]
        flights.with_columns(*before)
        flights.commit(flights.files([row(3)]))
        assert not metadata_of(flights).schema().find_field("delay").required

    @pytest.mark.parametrize("written", [True, False], ids=["table written", "table new"])
    def test_a_required_column_that_a_file_lacks_becomes_optional(self, flights, written):
        """Two plans of a table without rows: the newer adds a required column, the older commits after it."""
        early = flights.files([row(1)])
        flights.with_columns(*flights.state.columns, self.EXTRA)
        if written:
            flights.commit(flights.files([{**row(2), "tail": "N1"}]))
            assert metadata_of(flights).schema().find_field("tail").required
        flights.commit(early)
        assert not metadata_of(flights).schema().find_field("tail").required
        assert flights.rows()[0] == {**row(1), "tail": None}

    @pytest.mark.parametrize(
        ("columns", "message"),
        [
            (
                [(1, "departure", "timestamptz"), (3, "origin", "string"), (2, "delay", "int")],
                "column id 2: expected",
            ),
            (
                [(1, "departure", "timestamptz"), (2, "origin", "string"), (3, "delay", "string")],
                "delay \\(int\\)",
            ),
            ([(1, "departure", "timestamptz"), (2, "origin", "string")], "expected no column"),
        ],
        ids=["swapped", "retyped", "missing"],
    )
    def test_an_id_has_one_name_and_type_for_ever(self, flights, columns, message):
        flights.commit(flights.files([row(1)]))
        flights.with_columns(
            *(TableColumn(id=i, name=n, type=t, required=False) for i, n, t in columns)
        )
        with pytest.raises(SchemaChanged, match=message):
            flights.stage()

    def test_partition_rules_can_change_for_new_files(self, flights):
        first = flights.files([row(1), row(2)])
        flights.commit(first)
        flights.state = replace(flights.state, partition_by=("month(departure)", "day(departure)"))
        flights.commit(flights.files([row(1, "EWR")]))
        specs = metadata_of(flights).partition_specs
        assert [[(f.field_id, f.name) for f in s.fields] for s in specs] == [
            [(1000, "departure_day")],
            [(1001, "departure_month"), (1000, "departure_day")],
        ]
        flights.state = replace(flights.state, partition_by=("day(departure)",))
        flights.commit(flights.files([row(3)]), [first[0].key])
        assert len(metadata_of(flights).partition_specs) == 2, "the first spec is reused"
        assert flights.rows() == sorted([row(2), row(1, "EWR"), row(3)], key=repr)
        assert sorted(f.partition for f in live_files(flights.store, flights.state.metadata)) == [
            (516, 15706),
            (15707,),
            (15708,),
        ]


class TestRefused:
    def test_a_file_that_is_no_longer_live_is_not_dropped(self, flights):
        files = flights.files([row(1)])
        flights.commit(files)
        flights.commit(flights.files([row(1, "EWR")]), [files[0].key])
        before = len(flights.store.requests)
        with pytest.raises(
            Corrupt,
            match=f"{files[0].key}: expected the dropped file once in the table, found it missing",
        ):
            flights.stage(flights.files([row(1, "LGA")]), [files[0].key])
        created = [
            key
            for verb, key in flights.store.requests[before:]
            if verb == "create" and "/metadata/" in key
        ]
        assert created == [], "refused before anything was written"

    def test_a_drop_from_a_table_that_is_not_written_yet_is_refused(self, flights):
        (file,) = flights.files([row(1)])
        with pytest.raises(Corrupt, match="found it missing"):
            flights.stage(drop=[file.key])

    def test_files_that_do_not_match_are_refused(self, flights, make_table):
        (file,) = flights.files([row(1)])
        (of_another_table,) = make_table(name="hourly").files([row(1)])
        (unpartitioned,) = make_table(partition_by=()).files([row(1)])
        flights.commit()
        for add, drop, message in (
            ([file, file], (), "already added"),
            ([file], (file.key,), "already dropped"),
            ([of_another_table], (), "found table hourly"),
            ([unpartitioned], (), "expected a partition of"),
            ([replace(file, partition=("2013-01-01",))], (), "expected a partition of"),
            ([replace(file, columns=(replace(file.columns[0], id=77),))], (), "found 77"),
        ):
            with pytest.raises(ReportRejected, match=message):
                flights.stage(add, drop)

    def test_metadata_of_another_table_is_refused(self, flights):
        flights.commit()
        flights.state = replace(flights.state, uuid="0" * 32)
        with pytest.raises(IdentityChanged, match="expected table 00000000"):
            flights.stage()

    def test_metadata_with_another_location_is_refused(self, flights, make_table):
        flights.commit(flights.files([row(1)]))
        elsewhere = make_table(store=type(flights.store)("copy"))
        elsewhere.store.create(
            flights.state.metadata, flights.store.get(flights.state.metadata).body
        )
        elsewhere.state = flights.state
        with pytest.raises(IdentityChanged, match="memory://lake/tables/flights"):
            elsewhere.stage()
        with pytest.raises(Corrupt, match="expected a location inside the tables of memory://copy"):
            list(live_files(elsewhere.store, flights.state.metadata))

    @pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"format-version":2}', b"\xff"])
    def test_metadata_that_is_invalid_is_refused(self, flights, body):
        key = "tables/flights/metadata/00007-broken.metadata.json"
        flights.store.create(key, body)
        flights.state = replace(flights.state, metadata=key)
        with pytest.raises(
            Corrupt, match=r"00007-broken\.metadata\.json: expected Iceberg metadata"
        ):
            flights.stage()

    def test_metadata_that_is_gone_is_an_error(self, flights):
        flights.state = replace(
            flights.state, metadata="tables/flights/metadata/00007-gone.metadata.json"
        )
        with pytest.raises(Corrupt, match=r"00007-gone\.metadata\.json, which does not exist"):
            flights.stage()

    @pytest.mark.parametrize("body", [None, b"", b"Obj\x01nonsense"])
    def test_a_manifest_that_is_gone_or_broken_is_an_error(self, flights, make_table, body):
        files = flights.files([row(1)])
        flights.commit(files)
        damaged = make_table()
        damaged.state = flights.state
        snapshot = metadata_of(flights).current_snapshot()
        manifest = flights.store.requests[-1][1]
        for key in {k for verb, k in flights.store.requests if verb == "create"}:
            manifest_key = key.endswith("-m0.avro")
            if manifest_key:
                manifest = key
            if not manifest_key or body is not None:
                damaged.store.create(key, body if manifest_key else flights.store.get(key).body)
        assert snapshot is not None
        with pytest.raises(Corrupt, match=manifest):
            damaged.stage(drop=[files[0].key])
        with pytest.raises(Corrupt, match=manifest):
            list(live_files(damaged.store, damaged.state.metadata))

    @pytest.mark.parametrize("damaged", ["-m0.avro", "snap-"])
    def test_a_truncated_manifest_or_list_is_not_read_as_a_shorter_one(self, flights, damaged):
        """An Avro file has no end mark: truncated after a block it is valid, with fewer entries, and rows are lost."""
        flights.commit(flights.files([row(1)]))
        flights.commit(flights.files([row(2), row(3)]))
        key = next(
            k for verb, k in reversed(flights.store.requests) if verb == "create" and damaged in k
        )
        body = flights.store.get(key).body
        # Each entry is a block, and each block ends with the sync marker of the file.
        marker = body[-16:]
        shorter = body[: body.rindex(marker, 0, -16) + 16]
        assert len(shorter) < len(body)
        truncated = type(flights.store)()
        for other in {k for verb, k in flights.store.requests if verb == "create"}:
            truncated.create(other, shorter if other == key else flights.store.get(other).body)
        with pytest.raises(Corrupt, match=key):
            list(live_files(truncated, flights.state.metadata))

    @pytest.mark.parametrize(
        ("partition_by", "message"),
        [
            (("day(nowhere)",), "expected partition_by one of"),
            (("day(departure)", "day(departure)"), "expected each partition rule once"),
            (("day(departure)",), "'departure_day' of partition_by .* has the name of a column"),
        ],
    )
    def test_invalid_partition_rules_are_refused(self, make_table, partition_by, message):
        columns = (
            TableColumn(id=1, name="departure", type="timestamptz", required=True),
            *(
                [TableColumn(id=2, name="departure_day", type="int", required=True)]
                if "column" in message
                else []
            ),
        )
        with pytest.raises(InvalidPipeline, match=message):
            make_table(columns=columns, partition_by=partition_by).stage()

    def test_a_state_with_metadata_of_another_table_is_refused(self):
        with pytest.raises(ValueError, match="expected metadata of table"):
            TableState(
                name="flights", uuid="0" * 32, metadata="tables/other/metadata/x.json", columns=()
            )


class TestWritesOnly:
    def test_nothing_can_be_deleted(self, flights):
        key = flights.commit()
        files = StoreFileIO(flights.store)
        with pytest.raises(PermissionError, match="writers delete nothing"):
            files.delete(files.location(key))
        assert files.new_input(files.location(key)).exists()

    def test_a_stream_that_ends_in_an_error_writes_nothing(self, flights):
        output = StoreFileIO(flights.store).new_output(
            "memory://lake/tables/flights/metadata/x.avro"
        )
        with pytest.raises(TypeError), output.create() as stream:
            stream.write("partial")
        output.create().write(b"never closed")
        gc.collect()
        assert not output.exists()

    @pytest.mark.parametrize(
        "location",
        [
            "memory://lake/root.json",
            "memory://lake2/tables/x",
            "memory://lake/tables/../root.json",
            "/tables/x",
        ],
    )
    def test_locations_outside_the_tables_are_refused(self, flights, location):
        files = StoreFileIO(flights.store)
        for open_file in (files.new_input, files.new_output):
            with pytest.raises(Corrupt, match="inside the tables of memory://lake"):
                open_file(location)


class TestUnknownOutcomes:
    @pytest.mark.parametrize("is_applied", [True, False])
    def test_after_a_lost_reply_the_same_bytes_are_written_again(self, flights, is_applied):
        tries = Counter()

        def lose_the_first_reply(key):
            tries[key] += 1
            return is_applied if "/metadata/" in key and tries[key] == 1 else None

        flights.store.lost = lose_the_first_reply
        flights.commit(flights.files([row(1)]))
        assert flights.rows() == [row(1)]
        assert {count for key, count in tries.items() if "/metadata/" in key} == {2}
        assert len(flights.pauses) == 3, "manifest, manifest list, metadata"

    def test_a_store_that_never_answers_leaves_an_unknown_outcome(self, flights):
        flights.commit()
        file = flights.files([row(1)])
        flights.store.lost = lambda key: False
        with pytest.raises(OutcomeUnknown, match=r"is unknown after .* tries .reply lost"):
            flights.stage(file)
        assert flights.pauses[:7] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0]
        assert UNKNOWN_S <= sum(flights.pauses) < UNKNOWN_S + 2

    def test_a_name_that_another_writer_has_taken_is_an_error(self, make_table):
        table = make_table(new_uuid=lambda: "f" * 32)
        taken = "tables/flights/metadata/00000-ffffffff-ffff-ffff-ffff-ffffffffffff.metadata.json"
        table.store.create(taken, b"of another writer")
        with pytest.raises(Corrupt, match="expected a new object"):
            table.stage()


class TestFlatForLife:
    def test_two_hundred_appends_cost_the_same_as_the_first_sixty(self, flights):
        flights.commit()
        ready = [flights.files([row(i % 28 + 1, delay=i)]) for i in range(200)]
        sizes, requests, manifests = [], [], []
        for files in ready:
            flights.store.requests.clear()
            flights.commit(files)
            requests.append(len(flights.store.requests))
            body = flights.store.get(flights.state.metadata).body
            metadata = json.loads(body)
            sizes.append(len(body))
            table = static_table(flights.store, flights.state.metadata)
            manifests.append(len(table.current_snapshot().manifests(table.io)))
            assert len(metadata["snapshots"]) <= 50
            assert len(metadata["snapshot-log"]) <= 50
        assert max(manifests) <= 50
        assert Counter(requests).most_common(1)[0][0] == 5, (
            "metadata, list; manifest, list, metadata"
        )
        assert sum(r > 5 for r in requests) <= 5, "only merges cost more"
        assert max(sizes[60:]) <= 1.02 * sizes[60]
        assert len(flights.rows()) == 200

    def test_replacements_do_not_accumulate_manifests(self, flights):
        unchanged = flights.files([row(28, "STAY")])
        flights.commit(unchanged)
        last = []
        for i in range(60):
            files = flights.files([row(i % 27 + 1, delay=i)])
            flights.commit(files, [f.key for f in last])
            last = files
        table = static_table(flights.store, flights.state.metadata)
        assert len(table.current_snapshot().manifests(table.io)) <= 4
        assert len(table.metadata.snapshots) == 50
        assert sorted(f.key for f in live_files(flights.store, flights.state.metadata)) == sorted(
            f.key for f in [*unchanged, *last]
        )
