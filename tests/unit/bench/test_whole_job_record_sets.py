"""The record sets of the benchmark of formats, and what its check accepts: only exactly the expected rows."""

from __future__ import annotations

import ast
import io
import json
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.whole_job.check import TableCheck, check_table
from bench.whole_job.contender import EVENTS, ResultTable
from bench.whole_job.formats.avro_clicks import SCHEMA
from bench.whole_job.formats.documents import FAULTS, broken_document
from bench.whole_job.formats.record_sets import SETS
from bench.whole_job.places import even
from bench.whole_job.records import ExpectedEvents, MadeBatch, clicks
from examples.demo.flights import Flight, read_flights

FOLDER = Path(__file__).parents[3] / "bench" / "whole_job" / "formats"
RECORDS, SCHEMA_ID = 2_000, 7
NAMES = list(SETS)


def made(name: str, *, seed: int = 3, records: int = RECORDS) -> list[MadeBatch]:
    return list(SETS[name].batches(seed, records, places=even(), schema_id=SCHEMA_ID))


@pytest.fixture(scope="module")
def january() -> Iterator[list[Flight]]:
    """Read the flights of two days instead of a year."""
    few = read_flights(until=date(2013, 1, 3))
    assert 1_000 < len(few) < RECORDS
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bench.whole_job.formats.flights.read_flights", lambda: few)
        yield few


@pytest.fixture(scope="module")
def batches(january: list[Flight]) -> dict[str, list[MadeBatch]]:
    return {name: made(name) for name in NAMES}


def sound(batches: list[MadeBatch]) -> list[bytes]:
    return [
        value
        for batch in batches
        for value, kind in zip(batch.values, batch.kinds.tolist(), strict=True)
        if kind < 0
    ]


def rows(batches: list[MadeBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.rows.to_pylist()]


@pytest.mark.parametrize("name", ["documents", "avro"])
def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(name: str) -> None:
    first, again, other = (
        [value for batch in made(name, seed=seed, records=300) for value in batch.values]
        for seed in (1, 1, 2)
    )
    assert first == again
    assert set(first).isdisjoint(other)


@pytest.mark.parametrize("name", NAMES)
def test_a_set_has_a_row_for_each_sound_record_with_its_place(
    name: str, batches: dict[str, list[MadeBatch]]
) -> None:
    expected = {
        (index % 8, index // 8)
        for batch in batches[name]
        for index, kind in enumerate(batch.kinds.tolist(), batch.first)
        if kind < 0
    }
    places = [(row["partition"], row["offset"]) for row in rows(batches[name])]
    assert set(places) == expected
    assert len(places) == len(expected)
    broken = RECORDS - len(places)
    assert 2 <= broken <= 25 if name != "flights" else broken == 0


def selected(value: Any, kind: pa.DataType) -> Any:
    """Return a value of JSON with the fields of a type, and null for those that it does not have."""
    if pa.types.is_struct(kind):
        return {field.name: selected(value.get(field.name), field.type) for field in kind}
    if pa.types.is_list(kind):
        return [selected(one, kind.value_type) for one in value]
    return value


def test_the_rows_of_documents_are_what_json_reads(batches: dict[str, list[MadeBatch]]) -> None:
    schema = batches["documents"][0].rows.schema
    for value, row in zip(sound(batches["documents"]), rows(batches["documents"]), strict=True):
        document = json.loads(value)
        time, total = row.pop("placed_at"), row.pop("total")
        for name in ("partition", "offset"):
            del row[name]
        assert row == {name: selected(document.get(name), schema.field(name).type) for name in row}
        assert float(total) == document["total"]
        moment = pa.array([document["placed_at"]]).cast(pa.timestamp("us", "UTC"))
        assert moment.cast(pa.int64())[0].as_py() == time


def test_documents_have_what_makes_json_hard_to_read(
    batches: dict[str, list[MadeBatch]],
) -> None:
    values = sound(batches["documents"])
    assert 1_150 < sum(map(len, values)) / len(values) < 1_300
    assert any(rb"\ud83d\ude00" in value for value in values), "escaped characters"
    assert any("😀".encode() in value for value in values), "the same as UTF-8"
    assert any(rb"\"" in value and rb"\n" in value for value in values)
    found = rows(batches["documents"])
    assert {len(row["items"]) for row in found} == set(range(3, 9))
    assert {type(row["note"]) for row in found} == {str, type(None)}
    assert {item["discount"] is None for row in found for item in row["items"]} == {True, False}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_document_is_no_document(fault: str, batches: dict[str, list[MadeBatch]]) -> None:
    document = json.loads(sound(batches["documents"])[0])
    try:
        found = json.loads(broken_document(document, fault))
    except ValueError:
        return
    wrong = [found["attempts"], found["items"][0]["quantity"]]
    assert sum(isinstance(one, str) for one in wrong) == 1


def test_all_faults_of_documents_occur() -> None:
    kinds = {kind for batch in made("documents", records=4_000) for kind in batch.kinds.tolist()}
    assert kinds == {-1, *range(len(FAULTS))}


def test_flights_are_those_of_the_demo_and_begin_again_after_the_last_one(
    january: list[Flight], batches: dict[str, list[MadeBatch]]
) -> None:
    again = january[: RECORDS - len(january)]
    assert sound(batches["flights"]) == [flight.value for flight in [*january, *again]]
    for row, value in zip(rows(batches["flights"]), sound(batches["flights"]), strict=True):
        document = json.loads(value)
        for name in ("time_hour", "departure"):
            moment = pa.array([document.pop(name)]).cast(pa.timestamp("us", "UTC"))
            assert moment.cast(pa.int64())[0].as_py() == row.pop(name)
        assert document == {name: row[name] for name in document}


def test_avro_values_are_the_clicks_in_the_wire_format(
    batches: dict[str, list[MadeBatch]],
) -> None:
    schema = fastavro.parse_schema(SCHEMA)
    for value, row in zip(sound(batches["avro"]), rows(batches["avro"]), strict=True):
        assert value[:5] == b"\0" + SCHEMA_ID.to_bytes(4, "big")
        content = io.BytesIO(value[5:])
        click: Any = fastavro.schemaless_reader(content, schema, None)
        assert not content.read()
        assert {**click, **click.pop("device")} | {"device": None} == {
            **{name: one for name, one in row.items() if name not in ("partition", "offset")},
            "device": None,
        }
    (own,) = clicks(3, RECORDS)
    assert rows(batches["avro"]) == own.rows.to_pylist()


@pytest.fixture(scope="module")
def expected(
    batches: dict[str, list[MadeBatch]], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    found = {}
    for name in NAMES:
        folder = tmp_path_factory.mktemp(name)
        with ExpectedEvents(folder) as tables:
            for batch in batches[name]:
                tables.add(batch)
        found[name] = folder / f"{EVENTS}.parquet"
    return found


def as_result(name: str, table: pa.Table) -> pa.Table:
    """Return the rows as a contender writes them: instants as timestamps, the device as a struct."""
    for column in SETS[name].found:
        at = table.schema.get_field_index(column)
        if name == "avro":
            continue
        moments = table[column].cast(pa.timestamp("us", "UTC"))
        table = table.set_column(at, column, moments)
    if name == "avro":
        device = pa.StructArray.from_arrays(
            [table[one].combine_chunks() for one in ("os", "ver")], ["os", "ver"]
        )
        table = table.drop_columns(["os", "ver"]).append_column("device", device)
    return table


def checked(name: str, table: pa.Table, expected: dict[str, Path], folder: Path) -> TableCheck:
    path = folder / "table.parquet"
    pq.write_table(as_result(name, table), path)
    columns = SETS[name].columns(partition="partition", offset="offset")
    result = ResultTable(name=EVENTS, files=[str(path)], columns=columns)
    return check_table(result, [path], expected[name], SETS[name].types)


@pytest.mark.parametrize("name", NAMES)
def test_the_expected_rows_in_another_order_are_accepted(
    name: str, expected: dict[str, Path], tmp_path: Path
) -> None:
    table = pq.read_table(expected[name])
    found = checked(name, table.take(list(range(table.num_rows))[::-1]), expected, tmp_path)
    assert found.is_equal
    assert found.rows == table.num_rows


def _total(row: dict[str, Any]) -> None:
    row["total"] += 1


def _geo(row: dict[str, Any]) -> None:
    row["shipping"]["geo"]["lat"] += 1e-5


def _swapped(row: dict[str, Any]) -> None:
    row["customer"]["name"], row["customer"]["email"] = (
        row["customer"]["email"],
        row["customer"]["name"],
    )


def _text_null(row: dict[str, Any]) -> None:
    row["customer"]["referrer"] = "null" if row["customer"]["referrer"] is None else None


def _price(row: dict[str, Any]) -> None:
    row["items"][-1]["price"] += 0.01


def _order(row: dict[str, Any]) -> None:
    row["items"] = row["items"][::-1]


def _item_missing(row: dict[str, Any]) -> None:
    row["items"] = row["items"][1:]


def _discount(row: dict[str, Any]) -> None:
    row["items"][0]["discount"] = 0.0 if row["items"][0]["discount"] is None else None


def _tags(row: dict[str, Any]) -> None:
    row["tags"] = [] if row["tags"] else [""]


def _note(row: dict[str, Any]) -> None:
    row["note"] = "" if row["note"] is None else row["note"].replace("\t", " ") + " "


def _later(row: dict[str, Any]) -> None:
    row["departure"] += 1


def _delay(row: dict[str, Any]) -> None:
    row["dep_delay"] = None


def _system(row: dict[str, Any]) -> None:
    row["os"], row["ver"] = row["ver"], row["os"]


CHANGES: list[tuple[str, Callable[[dict[str, Any]], None]]] = [
    *(("documents", _total), ("documents", _geo), ("documents", _swapped)),
    *(("documents", _text_null), ("documents", _price), ("documents", _order)),
    *(("documents", _item_missing), ("documents", _discount), ("documents", _tags)),
    *(("documents", _note), ("flights", _later), ("flights", _delay), ("avro", _system)),
]


@pytest.mark.parametrize(
    ("name", "change"), CHANGES, ids=[f"{name}{change.__name__}" for name, change in CHANGES]
)
def test_a_table_with_a_changed_value_is_not_accepted(
    name: str, change: Callable[[dict[str, Any]], None], expected: dict[str, Path], tmp_path: Path
) -> None:
    table = pq.read_table(expected[name])
    changed = table.to_pylist()
    change(changed[1])
    found = checked(name, pa.Table.from_pylist(changed, table.schema), expected, tmp_path)
    assert [problem.partition(":")[0] for problem in found.problems] == ["missing", "not expected"]


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_row_is_found(name: str, expected: dict[str, Path], tmp_path: Path) -> None:
    table = pq.read_table(expected[name])
    assert checked(name, table.slice(1), expected, tmp_path).problems


@pytest.mark.parametrize("module", ["avro_clicks", "documents", "flights", "record_sets"])
def test_the_expected_rows_share_no_code_with_what_is_checked(module: str) -> None:
    tree = ast.parse((FOLDER / f"{module}.py").read_text())
    found = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    found |= {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    own = {name for name in found if name.split(".")[0] in ("bench", "examples", "tallystick")}
    allowed = {f"bench.whole_job.{name}" for name in ("contender", "places", "records")}
    allowed |= {
        f"bench.whole_job.formats.{name}" for name in ("avro_clicks", "documents", "flights")
    }
    assert own
    # The flights of the demo are read from the CSV file of a package.
    assert own <= allowed | {"examples.demo.flights"}
