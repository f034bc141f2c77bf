"""The decoder port: an external package decodes a topic, found by the name of the format."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tallystick.engine.decode import decoder as port
from tallystick.engine.decode.decoder import Decoded, Reason, decoder_of
from tallystick.engine.input_splits import split_plan
from tallystick.engine.task import run_split
from tallystick.errors import InvalidPipeline
from tallystick.format.codec import StoredValue
from tallystick.pipeline import Column, Format, Json, Pipeline, Table, Topic, pipeline_from_spec
from tallystick.store.memory import MemoryStore

COLUMNS = [Column("n", "long"), Column("kind", "string", required=False)]
PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "write-a-decoder.md"
SOURCE = PAGE.read_text().split("```python\n")[1].split("```")[0]


@pytest.fixture
def external_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put a package on the path, as pip installs it: a module and its entry points."""
    (tmp_path / "company_formats.py").write_text(SOURCE)
    info = tmp_path / "company_formats-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: company-formats\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        dedent("""
            [tallystick.decoders]
            lines = company_formats:SemicolonsDecoder
        """)
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("company_formats", None)


def declared(options: dict[str, Any] | None = None) -> Pipeline:
    return Pipeline(
        name="small",
        topics=[Topic("events", decode=Format("lines", COLUMNS, options or {}))],
        warehouse="memory://small",
        job="jobs/small.py",
        tables=[Table("events", columns=COLUMNS)],
    )


@pytest.mark.usefixtures("external_package")
def test_a_decoder_of_another_package_is_used_by_name(
    make_work: Any, kit: Any, tmp_path: Path
) -> None:
    """From the declaration through the spec of the plan to rows, dead letters and the account."""
    store = MemoryStore("small")
    pipeline = pipeline_from_spec(declared({"separator": ";"}).to_spec(), where="spec")
    work = make_work(store=store, pipeline=pipeline, transform=lambda records: {"events": records})
    [split] = split_plan(work.plan, records_per_task=100)
    reading = kit.FakeReading([kit.raw_batch(0, [b"1;a", b"x", None, b"2;b"])])
    result = run_split(work, split, reading, scratch=tmp_path)

    assert (result.account.records, result.account.dead_letters) == (2, 2)
    by_table = {file.table: file for file in result.files}
    rows, letters = (_rows(store, by_table[table].key) for table in ("events", "dead_letters"))
    assert [(r["n"], r["kind"], r["_offset"]) for r in rows] == [(1, "a", 0), (2, "b", 3)]
    assert {(d["kind"], d["field"], d["detail"]) for d in letters} == {
        ("fields", None, "expected 2 fields, found 1")
    }
    assert [(d["value"], d["reason"]) for d in letters] == [
        (b"x", "fields: expected 2 fields, found 1"),
        (None, "fields: expected 2 fields, found 1"),
    ]


def _rows(store: MemoryStore, key: str) -> list[dict[str, Any]]:
    found = store.get(key)
    assert found is not None
    rows: list[dict[str, Any]] = pq.read_table(pa.BufferReader(found.body)).to_pylist()
    return rows


@pytest.mark.usefixtures("external_package")
def test_a_decoder_can_refuse_its_options() -> None:
    with pytest.raises(InvalidPipeline, match="separator: expected one character"):
        decoder_of(Format("lines", COLUMNS, {"separator": "::"}))


@pytest.mark.usefixtures("external_package")
def test_a_format_without_a_decoder_is_refused_with_the_installed_ones() -> None:
    with pytest.raises(InvalidPipeline) as caught:
        decoder_of(Format("xml", COLUMNS))
    assert "format 'xml'" in caught.value.message
    assert "one of avro, csv, debezium, json, lines" in caught.value.message
    assert "'tallystick.decoders' on every machine that runs Spark tasks" in caught.value.hint


def test_the_format_is_part_of_the_fingerprint() -> None:
    prints = {
        declared().fingerprint(b""),
        declared({"separator": ";"}).fingerprint(b""),
        Pipeline(
            name="small",
            topics=["events"],
            warehouse="memory://small",
            job="jobs/small.py",
            tables=[Table("events", columns=COLUMNS)],
        ).fingerprint(b""),
    }
    assert len(prints) == 3


def test_format_json_has_the_options_of_json() -> None:
    optional = [Column("n", "long", required=False)]
    batch = pa.record_batch({"value": pa.array([b'{"n":1}', None, b"{"], pa.binary())})
    for value_format in (
        Json(optional, tombstones="keep").format,
        Format("json", optional, {"tombstones": "keep"}),
    ):
        assert isinstance(value_format, StoredValue)
        decoded = decoder_of(value_format).decode(batch)
        assert decoded.rows.column("n").to_pylist() == [1, None]
        assert decoded.dead.tolist() == [2]
    with pytest.raises(
        InvalidPipeline, match="format json: expected no other options, found 'separator'"
    ):
        decoder_of(Format("json", optional, {"separator": ","}))
    with pytest.raises(InvalidPipeline, match="expected 'dead' or 'keep', found 'drop'"):
        decoder_of(Format("json", optional, {"tombstones": "drop"}))


@pytest.mark.parametrize("name", ["", "JSON", "a b", "../x", None])
def test_an_invalid_format_name_is_refused(name: Any) -> None:
    with pytest.raises(InvalidPipeline, match="format name"):
        Format(name, COLUMNS)


@pytest.mark.parametrize("options", [{"ratio": 0.5}, {"mark": b";"}, {1: "a"}, {"big": 2**63}])
def test_options_that_a_plan_cannot_contain_are_refused_with_the_declaration(options: Any) -> None:
    with pytest.raises(InvalidPipeline, match="format lines: options: "):
        Format("lines", COLUMNS, options)


def test_an_option_that_json_does_not_have_is_refused_with_the_declaration() -> None:
    with pytest.raises(
        InvalidPipeline, match="format json: expected no other options, found 'separator'"
    ):
        Topic("events", decode=Format("json", COLUMNS, {"separator": ","}))


@pytest.mark.parametrize(
    ("kind", "detail"), [("", "x"), ("Type", "x"), ("a b", "x"), ("a" * 41, "x"), ("type", "")]
)
def test_a_reason_needs_a_kind_to_group_by_and_a_detail(kind: str, detail: str) -> None:
    with pytest.raises(ValueError, match="expected a lower-case name and a detail"):
        Reason(kind=kind, detail=detail)


BAD = Reason(kind="csv", detail="bad")
GOOD = {"rows": [1, 2], "kept": [0, 2], "dead": [1], "reasons": (BAD,)}


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({}, None),
        ({"kept": [0, 1]}, "expected each of 3 positions once"),
        ({"dead": [], "reasons": ()}, "expected each of 3 positions once, kept or dead, found 2"),
        ({"dead": [1, 2], "reasons": (BAD, BAD)}, "expected each of 3 positions once"),
        ({"dead": [3]}, "expected each of 3 positions once"),
        ({"kept": [2, 0]}, "expected ascending positions"),
        ({"rows": [1]}, "expected 2 rows and 1 reasons, found 1 and 1"),
        ({"reasons": ()}, "expected 2 rows and 1 reasons, found 2 and 0"),
        ({"reasons": ("bad",)}, "expected a Reason for each dead letter, found 'bad'"),
        ({"rows": [1, None]}, "expected no null in the required column 'n'"),
        ({"rows": ["a", "b"]}, "expected the columns n: int64 not null, found n: string"),
    ],
)
def test_a_decoder_that_violates_the_port_fails_the_task(
    monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any], problem: str | None
) -> None:
    fields = GOOD | wrong

    class Broken:
        def __init__(self, _: Format) -> None: ...

        def decode(self, _: pa.RecordBatch) -> Decoded:
            rows: Sequence[Any] = fields["rows"]  # type: ignore[assignment]
            return Decoded(
                rows=pa.table({"n": rows}),
                kept=np.array(fields["kept"], np.int64),
                dead=np.array(fields["dead"], np.int64),
                reasons=fields["reasons"],  # type: ignore[arg-type]
            )

    class Point:
        name = "broken"

        def load(self) -> type[Broken]:
            return Broken

    monkeypatch.setattr(port, "entry_points", lambda group: [Point()])
    decoder = decoder_of(Format("broken", [Column("n", "long")]))
    batch = pa.record_batch({"value": pa.array([b"1", b"x", b"2"], pa.binary())})
    if problem is None:
        assert decoder.decode(batch).rows.num_rows == 2
        return
    with pytest.raises(InvalidPipeline) as caught:
        decoder.decode(batch)
    assert f"decoder 'broken': {problem}" in caught.value.message
    assert "fix the decoder" in caught.value.hint


def test_a_reason_is_a_text_that_can_be_stored() -> None:
    reason = Reason(kind="json", field="a\udc00", detail="é\ud800")
    assert (reason.field, reason.detail) == ("a\\udc00", "é\\ud800")
    str(reason).encode()
