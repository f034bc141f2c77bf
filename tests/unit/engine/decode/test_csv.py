"""CSV: each line is a row equal to what Python's csv module reads, or a dead letter with its reason."""

from __future__ import annotations

import csv
import io
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.engine.decode.decoder import Decoded, decoder_of
from tallystick.errors import InvalidPipeline
from tallystick.pipeline import Column
from tallystick.pipeline.formats import Csv

TWO = [Column("a", "string", required=False), Column("b", "string", required=False)]


def decode(columns: list[Column], *lines: bytes | None, **options: Any) -> Decoded:
    batch = pa.RecordBatch.from_arrays([pa.array(lines, pa.binary())], ["value"])
    return decoder_of(Csv(columns, **options).planned(())).decode(batch)


def line(*fields: str, **options: Any) -> bytes:
    out = io.StringIO()
    csv.writer(out, **options).writerow(fields)
    return out.getvalue().removesuffix("\r\n").encode()


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.text(st.characters(exclude_categories=["Cs"])), st.text('a",;\n\r', max_size=6)
        )
    )
)
def test_fields_that_a_writer_wrote_are_read_unchanged(
    quoting: Any, rows: list[tuple[str, str]]
) -> None:
    lines = [line(*row, quoting=quoting) for row in rows]
    decoded = decode(TWO, *lines, null=None)
    assert not decoded.reasons
    assert [tuple(row.values()) for row in decoded.rows.to_pylist()] == rows


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text('ab",\n\r\x00é', max_size=9), max_size=6))
def test_any_line_is_a_row_as_the_csv_module_reads_it_or_a_dead_letter(lines: list[str]) -> None:
    decoded = decode(TWO, *(one.encode() for one in lines), null=None)
    assert sorted([*decoded.kept.tolist(), *decoded.dead.tolist()]) == list(range(len(lines)))
    for at, row in zip(decoded.kept.tolist(), decoded.rows.to_pylist(), strict=True):
        source = io.StringIO(lines[at], newline="")
        assert list(csv.reader(source, strict=True)) == [list(row.values())]


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("int", "-12", -12),
        ("long", "9223372036854775807", 2**63 - 1),
        ("double", "1e-3", 0.001),
        ("float", "1.5", 1.5),
        ("decimal(9,2)", "12.30", Decimal("12.30")),
        ("boolean", "true", True),
        ("boolean", "false", False),
        ("string", "007", "007"),
        ("binary", "AAE=", b"\x00\x01"),
    ],
)
def test_each_type_is_read_from_its_text(kind: str, text: str, expected: Any) -> None:
    for quoted in (text, f'"{text}"'):
        decoded = decode([Column("v", kind)], quoted.encode())
        assert decoded.rows.column("v").to_pylist() == [expected], decoded.reasons


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("epoch_ms", "1577934245123"),
        ("iso8601", "2020-01-02T03:04:05.123Z"),
        ("%d.%m.%Y %H:%M:%S.%f %z", "02.01.2020 03:04:05.123 +0000"),
    ],
)
def test_times_are_read_by_their_rule(rule: str, text: str) -> None:
    decoded = decode([Column("v", "timestamptz", parse=rule)], text.encode())
    assert [cell.value for cell in decoded.rows.column("v")] == [1_577_934_245_123_000], (
        decoded.reasons
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"1", "fields: expected 2 fields, found 1"),
        (b"", "fields: expected 2 fields, found 1"),
        (b"1,2,3", "fields: expected 2 fields, found 3"),
        (b'1,"x', "csv: the last quote is not closed"),
        (b'1,"x"y', "csv: expected a separator after the closing quote"),
        (b'1,x"y', "csv: a quote in a field that does not begin with one"),
        (b"1,x\n2,y", "csv: expected one line, found a line end inside of it"),
        (b"1,\xff", "utf8: byte 2 is not UTF-8"),
        (b"x,y", 'type: field n: "x" is not a long'),
        (b"1.5,y", "inexact: field n: 1.5 is not a whole number"),
        (b"9223372036854775808,y", 'range: field n: "9223372036854775808" does not fit a long'),
        (b"+1,y", 'type: field n: "+1" is not a long'),
        (b"NaN,y", 'type: field n: "NaN" is not a long'),
        (b",y", "null: field n: required and null"),
        (b'"",y', 'type: field n: "" is not a long'),
        (
            b"1" * (16 << 20) + b",y",
            f"size: the value has {(16 << 20) + 2} bytes, more than {16 << 20}",
        ),
        (None, "tombstone: the value is null"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_line_that_does_not_fit_is_a_dead_letter_with_its_reason(
    text: bytes | None, reason: str
) -> None:
    columns = [Column("n", "long"), Column("s", "string", required=False)]
    decoded = decode(columns, b"1,first", text, b'2,"last"\r\n')
    assert [str(r) for r in decoded.reasons] == [reason]
    assert decoded.rows.to_pylist() == [{"n": 1, "s": "first"}, {"n": 2, "s": "last"}]


def test_null_is_a_text_without_quotes() -> None:
    lines = (b",", b'"",""', b"\\N,x", b'"\\N",x')
    assert decode(TWO, *lines).rows.column("a").to_pylist() == [None, "", "\\N", "\\N"]
    assert decode(TWO, *lines, null="\\N").rows.column("a").to_pylist() == ["", "", None, "\\N"]
    assert decode(TWO, *lines, null=None).rows.column("a").to_pylist() == ["", "", "\\N", "\\N"]


def test_tsv_without_quotes_and_fields_that_no_column_reads() -> None:
    columns = [Column("last", "string", source="c"), Column("first", "long", source="a")]
    decoded = decode(columns, b'1\t"\tx', fields=["a", "b", "c"], separator="\t", quote=None)
    assert decoded.rows.to_pylist() == [{"last": "x", "first": 1}]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"separator": ",,"}, "separator: expected one ASCII character, found ',,'"),
        ({"quote": "é"}, "quote: expected one ASCII character, found 'é'"),
        ({"separator": '"'}, "expected a separator that is not the quote"),
        ({"fields": ["a", "a"]}, "expected different names, found a, a"),
        ({"fields": ["a"]}, "column 'b': expected one of the fields a, found 'b'"),
        ({"tombstones": "keep"}, "expected only columns with required=False"),
    ],
)
def test_a_declaration_that_cannot_be_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidPipeline) as refused:
        decode([Column("a", "string"), Column("b", "string")], b"", **options)
    assert problem in refused.value.message


@pytest.mark.parametrize("required", [True, False])
def test_a_column_whose_source_is_no_declared_field_is_refused(*, required: bool) -> None:
    """An optional column would be null in every row."""
    with pytest.raises(
        InvalidPipeline, match="column 'n': expected one of the fields n, found 'name'"
    ):
        Csv([Column("n", "string", required=required, source="name")]).planned(())


def test_kept_tombstones_need_optional_columns_of_the_table_too() -> None:
    with pytest.raises(InvalidPipeline, match="expected only columns with required=False"):
        Csv(tombstones="keep").planned([Column("a", "string")])
