"""The answer of `tally local produce`, as text and as JSON."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from tallystick.cli.text import grid, many, paragraph
from tallystick.errors import InvalidPipeline
from tallystick.format import keys
from tallystick_devstack.commands.topic import moment
from tallystick_devstack.json_lines import LineReader
from tallystick_devstack.line_records import LineRecords
from tallystick_devstack.producing import Delivered
from tallystick_devstack.topics import TopicState
from tallystick_devstack.which_stack import Chosen


def text(state: TopicState, records: LineRecords, lines: LineReader, delivered: Delivered) -> str:
    """Return the answer as text: the records by partition, the timestamps, what was left out, and the next step."""

    head = f"Sent {many(delivered.records, 'record')} to topic {state.name}; each is confirmed."
    if not delivered.records:
        return "\n".join((f"Sent no records to topic {state.name}.", *_remarks(records, lines)))
    headings = ("partition", "records", "first offset", "last offset")
    rows = [
        (str(number), f"{one.records:,}", f"{one.first_offset:,}", f"{one.last_offset:,}")
        for number, one in sorted(delivered.partitions.items())
    ]
    fields = records.fields
    if fields.time is None:
        origin = "the time of sending. --time FIELD takes them from a field"
    else:
        origin = f"from the field {fields.time}, read as {fields.unit}"
    return "\n".join(
        (
            head,
            grid(headings, rows, right=headings),
            paragraph(
                f"Timestamps: {moment(delivered.first_ms)} to {moment(delivered.last_ms)} (UTC), {origin}."
            ),
            *(paragraph(one) for one in _remarks(records, lines)),
            f"Next: {_next(state)}",
        )
    )


def _next(state: TopicState) -> str:
    """Return the next command: for the first records of a topic `tally init`, with the stack's variables."""
    if state.offsets:
        return f"tally local topic describe {state.name}"
    try:
        command = f"tally init {keys.check_name(state.name, 'pipeline')}"
    except InvalidPipeline:
        command = f"tally init NAME --topic {state.name}"
    prepared = "TALLYSTICK_KAFKA_DEFAULT" in os.environ
    return command if prepared else f'eval "$(tally local env)"; {command}'


def _remarks(records: LineRecords, lines: LineReader) -> Iterator[str]:
    if records.bad:
        how = {
            "skip": "left out",
            "send": "sent with the time of the line before, and without a key",
        }[records.bad_lines]
        yield f"{many(records.bad, 'bad line')} {how}. The first is {records.first_bad}."
    if records.without_key:
        yield f"{many(records.without_key, 'record')} without a key: no value in field {records.fields.key}."
    if lines.blank_lines:
        yield f"{many(lines.blank_lines, 'blank line')} left out."
    if lines.byte_order_mark:
        yield "The byte order mark at the beginning was left out."


def form(
    chosen: Chosen,
    state: TopicState,
    file: str,
    records: LineRecords,
    lines: LineReader,
    delivered: Delivered,
) -> dict[str, Any]:
    """Return the answer as JSON."""
    fields = records.fields
    return {
        "state_dir": str(chosen.folder),
        "topic": state.name,
        "file": file,
        "records": delivered.records,
        "partitions": [
            {
                "partition": number,
                "records": one.records,
                "first_offset": one.first_offset,
                "last_offset": one.last_offset,
            }
            for number, one in sorted(delivered.partitions.items())
        ],
        "time_field": fields.time,
        "time_format": fields.rule if fields.time is not None else None,
        "first_timestamp_ms": delivered.first_ms,
        "last_timestamp_ms": delivered.last_ms,
        "key_field": fields.key,
        "without_key": records.without_key,
        "bad_lines": records.bad,
        "bad_lines_action": records.bad_lines,
        "blank_lines": lines.blank_lines,
        "byte_order_mark": lines.byte_order_mark,
        "offsets_before": state.offsets,
    }
