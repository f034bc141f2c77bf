"""The check of the example `counts`: the topic as a plain consumer of committed messages reads it, against DuckDB.

The consumer is librdkafka, which tallystick uses neither to read nor to write.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from examples.checks import CheckResult, finding
from examples.checks.sent import by_day, part, read_sent

_TIMEOUT_S = 30.0
_HEADERS = "tallystick."


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message with the headers that docs/reference/outputs.md describes."""

    key: str
    value: dict[str, Any]
    interval: str
    generation: int
    plan: str
    number: int
    identity: str
    operation: str
    corrects: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRow:
    """One row of one interval as a consumer has stored it."""

    generation: int
    hour: str
    origin: str
    flights: int


def consume(kafka: Mapping[str, str], topic: str) -> list[Message]:
    """Return all committed messages of a topic, each partition in order; raises TimeoutError without an answer.

    `kafka`: librdkafka's settings for the broker, with user and password if it requires them.
    """
    consumer = Consumer(
        {
            **kafka,
            "group.id": f"check-of-{topic}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions])
        messages: list[Message] = []
        ended: set[int] = set()
        while len(ended) < len(partitions):
            polled = consumer.poll(_TIMEOUT_S)
            if polled is None:
                raise TimeoutError(f"no message of {topic} within {_TIMEOUT_S:g} s")
            partition = polled.partition()
            assert partition is not None
            if polled.error() is not None:
                ended.add(partition)  # the end of the partition: the only error that is requested
            else:
                messages.append(_message(polled))
        return messages
    finally:
        consumer.close()


def _message(polled: Any) -> Message:
    headers = {name: value.decode() for name, value in polled.headers()}
    corrects = headers.get(f"{_HEADERS}corrects")
    return Message(
        key=polled.key().decode(),
        value=json.loads(polled.value()),
        interval=headers[f"{_HEADERS}interval"],
        generation=int(headers[f"{_HEADERS}generation"]),
        plan=headers[f"{_HEADERS}plan"],
        number=int(headers[f"{_HEADERS}message"]),
        identity=headers[f"{_HEADERS}identity"],
        operation=headers[f"{_HEADERS}operation"],
        corrects=None if corrects is None else int(corrects),
    )


def compare(
    read: Callable[[], Sequence[Message]],
    sent: Path,
    *,
    cancelled_count: Mapping[datetime, bool],
    unchanged: Collection[tuple[datetime, int]],
    corrected: Collection[datetime],
) -> CheckResult:
    """Compare what a consumer has stored with counts of what was sent.

    `cancelled_count`: for each day that was run, True if its job counts cancelled flights. `unchanged`: days and
    generations for which no message may exist, because nothing changed; `corrected`: days that need a correction.
    """
    messages = read()
    stored, mismatch = apply(messages)
    totals: Counter[tuple[str, str]] = Counter()
    for row in stored.values():
        totals[row.hour, row.origin] += row.flights
    expected = _counts(sent, cancelled_count)
    places = Counter((m.plan, m.number) for m in messages)
    published = {(m.interval, m.generation) for m in messages}
    changed = {m.interval for m in messages if m.operation != "row"}
    kinds = Counter(m.operation for m in messages)
    flights = sum(expected.values())
    return CheckResult(
        rows=len(messages),
        findings=[
            finding(
                "once",
                f"{len(messages):,} messages, each number of each plan once",
                next(
                    (
                        f"message {n} of plan {p} was sent {c} times"
                        for (p, n), c in places.items()
                        if c > 1
                    ),
                    None,
                ),
            ),
            finding(
                "corrections",
                ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
                + ": each names an existing message",
                mismatch
                or next(
                    (f"nothing was corrected on {d}" for d in corrected if part(d) not in changed),
                    None,
                ),
            ),
            finding(
                "replays",
                f"{len(unchanged)} replay without a change sent nothing",
                next(
                    (
                        f"day {d}, generation {g} was sent again"
                        for d, g in unchanged
                        if (part(d), g) in published
                    ),
                    None,
                ),
            ),
            finding(
                "counts",
                f"{len(expected):,} windows with {flights:,} flights equal a GROUP BY of what was sent",
                _difference(expected, totals),
            ),
            finding(
                "keys",
                "the key of each message is the hour and origin of its window",
                next(
                    (
                        f"{m.key} of {m.value}"
                        for m in messages
                        if json.loads(m.key) != [m.value["hour"], m.value["origin"]]
                    ),
                    None,
                ),
            ),
        ],
    )


def apply(messages: Sequence[Message]) -> tuple[dict[tuple[str, str], StoredRow], str | None]:
    """Apply the messages by their headers; return the rows by interval and identity, and the first mismatch."""
    stored: dict[tuple[str, str], StoredRow] = {}
    problem: str | None = None
    for message in messages:
        place = (message.interval, message.identity)
        existing = stored.get(place)
        if message.operation == "row":
            fits = existing is None
        else:
            # A generation in between may have changed only other rows, and sent nothing for this row.
            fits = (
                existing is not None
                and message.corrects is not None
                and existing.generation <= message.corrects < message.generation
            )
        if not fits:
            problem = (
                problem
                or f"a {message.operation} of {place}: {message.value}; stored is {existing}"
            )
        if message.operation == "retraction":
            stored.pop(place, None)
        else:
            stored[place] = StoredRow(
                generation=message.generation,
                hour=message.value["hour"],
                origin=message.value["origin"],
                flights=message.value["flights"],
            )
    return stored, problem


def _counts(sent: Path, cancelled_count: Mapping[datetime, bool]) -> dict[tuple[str, str], int]:
    """Count flights per hour and origin in DuckDB, from the values that were sent and committed."""
    days = by_day(read_sent(sent))
    values = [
        (record.value, counted)
        for day, counted in cancelled_count.items()
        for record in days[day]
        if record.visible
    ]
    table = pa.table(
        {"value": [v for v, _ in values], "cancelled_count": [c for _, c in values]},
        schema=pa.schema([("value", pa.string()), ("cancelled_count", pa.bool_())]),
    )
    with duckdb.connect(":memory:", config={"autoinstall_known_extensions": False}) as db:
        db.register("sent", table)
        rows = db.execute(
            "SELECT left(value->>'departure', 13) || ':00:00Z' AS hour, value->>'origin' AS origin, count(*) "
            "FROM (SELECT value::JSON AS value, cancelled_count FROM sent) "
            "WHERE cancelled_count OR (value->>'dep_time') IS NOT NULL GROUP BY 1, 2"
        ).fetchall()
    return {(hour, origin): int(count) for hour, origin, count in rows}


def _difference(
    expected: Mapping[tuple[str, str], int], totals: Mapping[tuple[str, str], int]
) -> str | None:
    for window in sorted({*expected, *totals}):
        if expected.get(window, 0) != totals.get(window, 0):
            return f"{window}: expected {expected.get(window, 0)} flights, found {totals.get(window, 0)}"
    return None
