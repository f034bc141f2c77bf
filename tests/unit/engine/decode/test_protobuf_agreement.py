"""The Protobuf reader and Protobuf's own runtime: the same values, and the same records refused, for any bytes."""

from __future__ import annotations

import math
from functools import cache
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, note, settings
from hypothesis import strategies as st

from tallystick.engine.decode.decoder import Reason
from tallystick.engine.decode.protobuf.descriptors import message_type
from tallystick.engine.decode.protobuf.reader import ProtobufReader
from tallystick.engine.decode.source import Wanted
from unit.engine.decode.protobuf_oracle import (
    Oracle,
    compiled,
    edited,
    everything,
    random_bytes,
    runtime_class,
    unchecked_text,
    without,
)

# The runtime also refuses a record for a broken message that no column reads, so the messages here end at some depth.
RECURSIVE = (
    *("Lists.lists", "Choices.choices", "Everything.everything"),
    *("Value.struct_value", "Value.list_value"),
)
MESSAGES = {
    "tests.Everything": ("everything.proto", RECURSIVE),
    "tests.old.Old": ("old.proto", ()),
    "tests.edition.Edition": ("edition.proto", ()),
}
BROKEN = {"truncated", "varint", "tag", "depth", "size"}
SEEDS = st.integers(0, 2**32 - 1)


class Pair:
    """One message's reader, and the runtime with what it finds."""

    def __init__(self, name: str) -> None:
        file, fields = MESSAGES[name]
        self.descriptors = descriptors = without(compiled(file), *fields)
        self.types = message_type(descriptors, name)
        wanted = everything(self.types, 9)
        self.reader = ProtobufReader(descriptors, name, wanted)
        self.message = runtime_class(unchecked_text(descriptors), name)
        self.oracle = Oracle(self.types, wanted)

    def check(self, values: list[bytes]) -> list[str]:
        """Read the values both ways; return what each was: `row`, `refused`, or the kind of its reason."""
        found = self.reader.read(pa.array(values, pa.binary()))
        found.rows.validate(full=True)
        assert found.rows.type == self.reader.schema
        rows = found.rows.to_pylist()
        return [
            self._check(value, row, found.dead.get(position))
            for position, (value, row) in enumerate(zip(values, rows, strict=True))
        ]

    def _check(self, value: bytes, row: Any, reason: Reason | None) -> str:
        where = f"{value.hex()}: {reason}"
        try:
            message = self.message.FromString(value)
        except DecodeError:
            assert reason is not None, where
            assert reason.kind in BROKEN, where
            return "refused"
        expected = self.oracle.row(message)
        if self.oracle.has_left_out:
            return "left out"
        if reason is not None and reason.detail.startswith("byte") and "number 0" in reason.detail:
            return "field number 0"  # which the runtime accepts inside of unknown groups
        if self.oracle.problems:
            assert reason is not None, f"{where}: {self.oracle.problems}"
            assert reason.kind in self.oracle.problems, where
            return reason.kind
        assert reason is None, where
        assert comparable(as_dicts(row, self.reader.schema)) == comparable(expected), where
        return "row"


def as_dicts(value: Any, kind: pa.DataType) -> Any:
    """Return a value of `to_pylist` with its maps as dicts."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        keys = [key for key, _ in value]
        assert len(set(keys)) == len(keys), keys
        return {key: as_dicts(item, kind.item_type) for key, item in value}
    if pa.types.is_list(kind):
        return [as_dicts(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return {f.name: as_dicts(value[f.name], f.type) for f in fields}
    return value


def comparable(value: Any) -> Any:
    """Return a value in a form in which NaN equals NaN, and 0.0 does not equal -0.0."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else (value, math.copysign(1, value))
    if isinstance(value, dict):
        return {comparable(key): comparable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [comparable(item) for item in value]
    return value


pair = cache(Pair)


@pytest.mark.parametrize("name", MESSAGES)
@given(seed=SEEDS, rows=st.integers(1, 20))
@settings(deadline=None, max_examples=100)
def test_messages_of_any_fields_in_any_order_have_the_values_of_the_runtime(
    name: str, seed: int, rows: int
) -> None:
    """Fields repeated, packed or not, in unknown groups, with other wire types: what a writer may send."""
    random, both = Random(seed), pair(name)
    note(f"seed {seed}")
    both.check([random_bytes(random, both.types, depth=5) for _ in range(rows)])


@pytest.mark.parametrize("name", MESSAGES)
@given(seed=SEEDS, rows=st.integers(1, 20), edits=st.integers(1, 6))
@settings(deadline=None, max_examples=100)
def test_changed_bytes_are_refused_if_and_only_if_the_runtime_refuses_them(
    name: str, seed: int, rows: int, edits: int
) -> None:
    random, both = Random(seed), pair(name)
    note(f"seed {seed}")
    values = [random_bytes(random, both.types, depth=5) for _ in range(rows)]
    both.check([edited(random, value, edits) for value in values])


@pytest.mark.parametrize("name", MESSAGES)
@given(values=st.lists(st.binary(max_size=60), min_size=1, max_size=20))
@settings(deadline=None, max_examples=100)
def test_any_bytes_are_read_or_refused_as_the_runtime_does(name: str, values: list[bytes]) -> None:
    pair(name).check(values)


@pytest.mark.parametrize("name", MESSAGES)
@given(seed=SEEDS)
@settings(deadline=None, max_examples=50)
def test_two_serialized_messages_in_sequence_are_merged(name: str, seed: int) -> None:
    """Two messages that the runtime wrote, one after another, are one message (documentation of the encoding)."""
    random, both = Random(seed), pair(name)
    note(f"seed {seed}")
    written = []
    while len(written) < 2:
        try:
            message = both.message.FromString(random_bytes(random, both.types, depth=4))
        except DecodeError:
            continue
        written.append(message.SerializePartialToString())
    both.check([*written, b"".join(written), b"".join(reversed(written))])


@pytest.mark.parametrize("name", MESSAGES)
def test_the_random_messages_are_rows_and_reasons_of_all_kinds(name: str) -> None:
    """Otherwise the other tests of this module could compare nothing."""
    random, both = Random(7), pair(name)
    values = [random_bytes(random, both.types, depth=5) for _ in range(1500)]
    values += [edited(random, value, 2) for value in values]
    found = both.check(values)
    assert found.count("row") > 300
    assert found.count("refused") > 300
    expected = {
        "tests.Everything": {"utf8", "enum", "range", "inexact", "left out"},
        "tests.old.Old": {"utf8", "missing", "left out"},
        "tests.edition.Edition": {"enum", "missing"},
    }
    assert expected[name] <= set(found)


@given(seed=SEEDS, cut=st.integers(0, 9))
@settings(deadline=None, max_examples=100)
def test_fields_that_are_not_read_change_nothing(seed: int, cut: int) -> None:
    """Reading some fields of a record gives the same values of them as reading all."""
    random, both = Random(seed), pair("tests.Everything")
    all_fields, some = everything(both.types, 9), Wanted()
    for name, part in all_fields.fields.items():
        if random.random() < 0.5:
            some.field(name).add(part)
            for inner in list(some.field(name).fields)[: cut if part.fields else 0]:
                if len(some.field(name).fields) > 1:
                    del some.field(name).fields[inner]
    if not some.fields:
        some.field("id").whole = True
    reader = ProtobufReader(both.descriptors, "tests.Everything", some)
    values = pa.array([random_bytes(random, both.types, depth=5) for _ in range(8)], pa.binary())
    less, more = reader.read(values), both.reader.read(values)
    assert set(less.dead) <= set(more.dead)
    for position in set(range(8)) - set(more.dead):
        row = as_dicts(less.rows[position].as_py(), reader.schema)
        other = as_dicts(more.rows[position].as_py(), both.reader.schema)
        assert comparable(row) == comparable(parts_of(other, row))


def parts_of(value: Any, like: Any) -> Any:
    """Return the fields of nested structs that `like` has."""
    if isinstance(value, dict) and isinstance(like, dict):
        return {name: parts_of(value[name], like[name]) for name in like}
    return value
