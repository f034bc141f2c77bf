"""Texts and bytes: each value is one column as a whole; what is no text is a dead letter."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tallystick.engine.decode.decoder import Decoded, decoder_of
from tallystick.errors import InvalidPipeline
from tallystick.pipeline import Column, Format, Raw, Text

VALUES = [b"a", None, b"", "\u00fc\n".encode(), b"\xff\xfe", b"\x00", b"ab\xe2\x82"]


def decode(declared: Text | Raw | Format, values: list[bytes | None] = VALUES) -> Decoded:
    found = declared if isinstance(declared, Format) else declared.format
    batch = pa.RecordBatch.from_pydict({"value": pa.array([b"before", *values], pa.binary())})
    return decoder_of(found).decode(batch.slice(1))


@pytest.mark.parametrize(
    ("declared", "kept", "reasons"),
    [
        (Text(), [0, 2, 3, 5], ["tombstone", "utf8", "utf8"]),
        (Text(tombstones="keep"), [0, 1, 2, 3, 5], ["utf8", "utf8"]),
        (Raw("body"), [0, 2, 3, 4, 5, 6], ["tombstone"]),
        (Raw("body", tombstones="keep"), [0, 1, 2, 3, 4, 5, 6], []),
    ],
)
def test_each_value_is_a_row_or_a_dead_letter(
    declared: Text | Raw, kept: list[int], reasons: list[str]
) -> None:
    decoded = decode(declared)
    assert decoded.kept.tolist() == kept
    assert [reason.kind for reason in decoded.reasons] == reasons
    assert decoded.dead.tolist() == [i for i in range(7) if i not in kept]
    (column,) = decoded.rows.columns
    expected = [VALUES[i] for i in kept]
    texts = (
        [None if v is None else v.decode() for v in expected]
        if type(declared) is Text
        else expected
    )
    assert column.to_pylist() == texts
    assert decoded.rows.schema.field(0).nullable is (declared.tombstones == "keep")
    assert decoded.rows.column_names == [declared.column]


def test_the_detail_of_an_invalid_text_is_the_place_of_its_first_wrong_byte() -> None:
    assert [r.detail for r in decode(Text()).reasons[1:]] == [
        "byte 0 is not UTF-8",
        "byte 2 is not UTF-8",
    ]


def test_valid_texts_are_not_copied() -> None:
    values = pa.array([b"abc", b"def"], pa.binary())
    decoded = decoder_of(Text().format).decode(pa.RecordBatch.from_pydict({"value": values}))
    assert decoded.rows.column(0).chunk(0).buffers()[2].address == values.buffers()[2].address


@pytest.mark.parametrize(
    "declared",
    [
        Format("text", [Column("a", "binary")]),
        Format("raw", [Column("a", "binary"), Column("b", "binary")]),
        Format("text", [Column("a", "string")], {"x": 1}),
    ],
)
def test_other_columns_and_options_are_refused(declared: Format) -> None:
    with pytest.raises(InvalidPipeline, match=f"format {declared.name}: expected one column"):
        decode(declared)


@pytest.mark.parametrize("make", [Text, Raw])
def test_a_wrong_declaration_is_refused_at_once(make: type[Text | Raw]) -> None:
    with pytest.raises(InvalidPipeline, match="tombstones: expected 'dead' or 'keep', found 'no'"):
        make(tombstones="no")  # type: ignore[arg-type]
    with pytest.raises(InvalidPipeline, match="leading underscore"):
        make("_value")
