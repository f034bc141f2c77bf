"""The records of the benchmark, and what its check accepts: only exactly the expected rows."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.whole_job.check import TableCheck, check_table, check_tables
from bench.whole_job.contender import CANONICAL, DEAD_LETTERS, EVENTS, TOTALS, ResultTable
from bench.whole_job.places import PARTITIONS, RecordPlaces, even, only_first, skewed
from bench.whole_job.records import KINDS, ExpectedTables, broken, clicks

RECORDS = 3_000
FOLDER = Path(__file__).parents[3] / "bench" / "whole_job"


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("expected")
    with ExpectedTables(folder) as tables:
        for batch in clicks(7, RECORDS):
            tables.add(batch)
    return folder


def checked(expected: Path, name: str, table: pa.Table, folder: Path) -> TableCheck:
    path = folder / "table.parquet"
    pq.write_table(table, path)
    columns = {column: f'"{column}"' for column in CANONICAL[name]}
    result = ResultTable(name=name, files=[str(path)], columns=columns)
    return check_table(result, [path], expected / f"{name}.parquet")


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    first, again, other = (
        [value for batch in clicks(seed, 500) for value in batch.values] for seed in (1, 1, 2)
    )
    assert first == again
    assert set(first).isdisjoint(other)


def test_the_expected_rows_are_what_json_reads_from_the_values_that_are_not_broken() -> None:
    (batch,) = clicks(3, RECORDS)
    rows = iter(batch.rows.to_pylist())
    for index, (value, kind) in enumerate(zip(batch.values, batch.kinds.tolist(), strict=True)):
        if kind >= 0:
            continue
        event = json.loads(value)
        row = next(rows)
        place = {"partition": index % PARTITIONS, "offset": index // PARTITIONS}
        device = event.pop("device")
        assert row == event | device | place
    assert next(rows, None) is None


@pytest.mark.parametrize("records", [1, 7, 100, 1_003])
@pytest.mark.parametrize(
    "places", [even(), even(1), even(100), skewed(7), skewed(63), only_first()]
)
def test_each_partition_has_all_its_offsets_in_order(places: RecordPlaces, records: int) -> None:
    cut = records // 3
    found: list[list[int]] = [[] for _ in range(places.partitions)]
    for first, count in ((0, cut), (cut, records - cut)):
        for partition, offset in zip(*places.of(first, count), strict=True):
            found[partition].append(int(offset))
    assert found == [list(range(end)) for end in places.ends(records)]
    assert sum(places.ends(records)) == records


def test_a_skewed_topic_has_the_stated_share_in_its_first_partition() -> None:
    assert skewed(7).ends(1_400) == (700,) + (100,) * 7
    assert skewed(63).ends(700) == (630,) + (10,) * 7
    assert only_first().ends(700) == (700,) + (0,) * 7


@pytest.mark.parametrize("cycle", [(), (2,), (0, -1)])
def test_places_outside_of_the_topic_are_refused(cycle: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="expected partitions below 2"):
        RecordPlaces(partitions=2, cycle=cycle)


@pytest.mark.parametrize("kind", KINDS)
def test_a_broken_value_is_no_event(kind: str) -> None:
    value = clicks(3, 1).__next__().values[0]
    try:
        event = json.loads(broken(value, kind))
    except ValueError:
        return
    assert isinstance(event["user_id"], str), "the only fault that is JSON is the wrong type"


def test_about_one_record_in_200_is_broken_and_all_kinds_occur() -> None:
    kinds = np.concatenate([batch.kinds for batch in clicks(1, 40_000)])
    assert 150 < (kinds >= 0).sum() < 250
    assert set(kinds.tolist()) == {-1, 0, 1, 2}


def test_a_record_has_about_268_bytes() -> None:
    values = [value for batch in clicks(1, 2_000) for value in batch.values]
    assert 264 < sum(map(len, values)) / len(values) < 272


def test_the_totals_are_those_of_the_events(expected: Path) -> None:
    events = pq.read_table(expected / f"{EVENTS}.parquet").to_pylist()
    for total in pq.read_table(expected / f"{TOTALS}.parquet").to_pylist():
        own = [
            e
            for e in events
            if e["event_type"] == total["event_type"] and e["ts"] // 3_600_000 == total["hour"]
        ]
        assert total["events"] == len(own)
        assert total["revenue"] == pytest.approx(sum(e["price"] * e["qty"] for e in own))


@pytest.mark.parametrize("name", [EVENTS, DEAD_LETTERS, TOTALS])
def test_the_expected_rows_in_another_order_are_accepted(
    expected: Path, tmp_path: Path, name: str
) -> None:
    table = pq.read_table(expected / f"{name}.parquet")
    backwards = table.take(list(range(table.num_rows))[::-1])
    found = checked(expected, name, backwards, tmp_path)
    assert found.is_equal
    assert found.rows == table.num_rows


def _changed(table: pa.Table) -> pa.Table:
    rows = table.to_pylist()
    name = "qty" if "qty" in rows[0] else "value" if "value" in rows[0] else "revenue"
    rows[1][name] = b"other" if name == "value" else rows[1][name] + 1
    return pa.Table.from_pylist(rows, schema=table.schema)


FAULTS: dict[str, Callable[[pa.Table], pa.Table]] = {
    "a row is missing": lambda table: table.slice(1),
    "a row is there twice": lambda table: pa.concat_tables([table, table.slice(0, 1)]),
    "a row in place of another": lambda table: pa.concat_tables(
        [table.slice(1), table.slice(1, 1)]
    ),
    "a value differs": _changed,
}


@pytest.mark.parametrize("name", [EVENTS, DEAD_LETTERS, TOTALS])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_table_with_a_fault_is_not_accepted(
    expected: Path, tmp_path: Path, name: str, fault: str
) -> None:
    table = FAULTS[fault](pq.read_table(expected / f"{name}.parquet"))
    assert checked(expected, name, table, tmp_path).problems


def test_a_revenue_that_differs_by_the_order_of_its_sum_is_accepted(
    expected: Path, tmp_path: Path
) -> None:
    rows = pq.read_table(expected / f"{TOTALS}.parquet").to_pylist()
    rows[0]["revenue"] += 1e-6
    assert checked(expected, TOTALS, pa.Table.from_pylist(rows), tmp_path).is_equal


def test_a_table_without_a_file_is_a_problem(expected: Path) -> None:
    (found,) = check_tables([], [EVENTS], expected, Path)
    assert not found.is_equal


def test_a_missing_column_is_a_problem_but_the_places_of_events_may_be_left_out(
    expected: Path,
) -> None:
    path = expected / f"{EVENTS}.parquet"
    all_columns = {column: f'"{column}"' for column in CANONICAL[EVENTS]}
    without = {c: sql for c, sql in all_columns.items() if c not in ("partition", "offset")}
    assert check_table(ResultTable(name=EVENTS, files=[""], columns=without), [path], path).is_equal
    del without["page"]
    found = check_table(ResultTable(name=EVENTS, files=[""], columns=without), [path], path)
    assert found.problems == ("column page is missing",)


CHECKING = ("check", "contender", "places", "records")


@pytest.mark.parametrize("module", CHECKING)
def test_the_check_shares_no_code_with_what_it_checks(module: str) -> None:
    allowed = {f"bench.whole_job.{name}" for name in CHECKING}
    imported = set()
    for node in ast.walk(ast.parse((FOLDER / f"{module}.py").read_text())):
        if isinstance(node, ast.ImportFrom):
            imported.add(node.module or "")
        elif isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
    own = {name for name in imported if name.split(".")[0] in ("bench", "examples", "tallystick")}
    assert imported
    assert own <= allowed


def test_codecs_and_rows_come_from_the_footers(expected: Path, tmp_path: Path) -> None:
    table = pq.read_table(expected / f"{EVENTS}.parquet")
    found = checked(expected, EVENTS, table, tmp_path)
    assert (found.codecs, found.rows, found.files) == (("SNAPPY",), table.num_rows, 1)
