"""Decodes whole records into the columns of their topic: the value, and the key and the headers if they are declared.

Each part is decoded for the whole batch. A record is dead if its value or its key is; if both are, the value's reason is
taken. Headers make no record dead: in a batch their names are texts, in which bytes that are not UTF-8 are U+FFFD, as in
Kafka's own client.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tallystick.engine.decode.decoder import Decoded, Decoder, Reason, decoder_of
from tallystick.format.registries import PlannedRegistry
from tallystick.pipeline.planned import TopicSpec
from tallystick.pipeline.topics import headers_column
from tallystick.tables.schema import arrow_field

KEY_FIELD = "key"
"""The field of a reason that is about the whole key; a field inside of the key follows after a dot."""
_OF_VALUE = "the value "
Numbers = NDArray[np.int64]


def record_decoder(topic: TopicSpec, registries: Sequence[PlannedRegistry] = ()) -> Decoder:
    """Return the decoder of a topic's records; raises InvalidPipeline as `decoder_of` does.

    If only the values are declared, it is the decoder of the values. `registries`: the schemas of the plan.
    """
    decoder = decoder_of(topic.decode, registries)
    if topic.key is not None:
        decoder = _WithKey(decoder, decoder_of(topic.key, registries))
    return decoder if topic.headers is None else _WithHeaders(decoder, topic.headers)


class _WithKey:
    """A decoder that adds the columns of the keys."""

    def __init__(self, values: Decoder, keys: Decoder) -> None:
        self._values = values
        self._keys = keys

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        value = self._values.decode(batch)
        at = batch.schema.get_field_index("value")
        key = self._keys.decode(batch.set_column(at, "value", batch.column("key")))
        if not len(value.dead) and not len(key.dead):
            return replace(value, rows=_side_by_side(value.rows, key.rows))
        reasons = dict(zip(key.dead.tolist(), map(_of_key, key.reasons), strict=True))
        reasons.update(zip(value.dead.tolist(), value.reasons, strict=True))
        alive = np.ones(batch.num_rows, np.bool_)
        alive[value.dead] = alive[key.dead] = False
        dead = np.flatnonzero(~alive)
        return Decoded(
            rows=_side_by_side(_alive(value, alive), _alive(key, alive)),
            kept=np.flatnonzero(alive),
            dead=dead,
            reasons=tuple(reasons[position] for position in dead.tolist()),
        )


class _WithHeaders:
    """A decoder that adds the column of the headers."""

    def __init__(self, decoder: Decoder, name: str) -> None:
        self._decoder = decoder
        self._field = arrow_field(headers_column(name))

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        decoded = self._decoder.decode(batch)
        headers = batch.column("headers")
        if len(decoded.dead):
            headers = headers.take(pa.array(decoded.kept))
        maps = header_maps(headers, self._field.type)
        return replace(decoded, rows=decoded.rows.append_column(self._field, maps))


def _of_key(reason: Reason) -> Reason:
    """Return the reason of a key, which a decoder of values gave."""
    if reason.field is not None:
        return replace(reason, field=f"{KEY_FIELD}.{reason.field}")
    detail = reason.detail
    if detail.startswith(_OF_VALUE):
        detail = f"the key {detail.removeprefix(_OF_VALUE)}"
    return replace(reason, field=KEY_FIELD, detail=detail)


def _alive(decoded: Decoded, alive: NDArray[np.bool_]) -> pa.Table:
    rows = alive[decoded.kept]
    return decoded.rows if rows.all() else decoded.rows.filter(pa.array(rows))


def _side_by_side(left: pa.Table, right: pa.Table) -> pa.Table:
    for number, field in enumerate(right.schema):
        left = left.append_column(field, right.column(number))
    return left


def header_maps(headers: pa.ListArray, wanted: pa.MapType) -> pa.MapArray:
    """Return each record's headers as a map from a name to all its values, in the order in which the record has them.

    Records without headers, the usual case, get empty maps at the cost of their offsets.
    """
    found = headers.flatten()
    counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False)
    names, values = found.field("key"), found.field("value")
    lengths = np.ones(len(names), np.int64)
    if len(names):
        first, of = _grouped(names, counts)
        if len(first) < len(names):
            values = values.take(pa.array(np.argsort(of, kind="stable")))
            lengths = np.bincount(of, minlength=len(first))
            names = names.take(pa.array(first))
            counts = np.diff(np.searchsorted(first, _ends(counts)))
    lists = pa.Array.from_buffers(
        wanted.item_type, len(names), [None, _offsets(lengths)], children=[values]
    )
    entries = pa.StructArray.from_arrays(
        [names, lists], fields=[wanted.key_field, wanted.item_field]
    )
    return pa.Array.from_buffers(wanted, len(headers), [None, _offsets(counts)], children=[entries])


def _grouped(names: pa.StringArray, counts: Numbers) -> tuple[Numbers, Numbers]:
    """Return the position of the first header of each name of each record, and for each header the number of its name.

    Both are in the order of the headers.
    """
    encoded = names.dictionary_encode()
    codes = encoded.indices.to_numpy().astype(np.int64)
    records = np.repeat(np.arange(len(counts)), counts)
    _, first, of = np.unique(
        records * len(encoded.dictionary) + codes, return_index=True, return_inverse=True
    )
    # `unique` sorts by the code of a name; the record's own order is that of the first positions.
    order = np.argsort(first)
    numbers = np.empty_like(order)
    numbers[order] = np.arange(len(order))
    return first[order], numbers[of]


def _ends(lengths: Numbers) -> Numbers:
    return np.concatenate([[0], np.cumsum(lengths)])


def _offsets(lengths: Numbers) -> pa.Buffer:
    return pa.py_buffer(_ends(lengths).astype(np.int32))
