"""The job of the contender dlt: a resource over confluent-kafka, as dlt's own Kafka source, and one run of a pipeline.

    python -P dlt_job.py ORDER

ORDER is a JSON file: topic, ends, bootstrap, output, pipelines (dlt's folder), dataset, and form: `dicts`, a list of
dicts per batch, or `arrow`, a table per batch. It runs in an environment of its own, with dlt.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dlt  # type: ignore[import-not-found]  # it is in an environment of its own
import orjson  # type: ignore[import-not-found]
import pyarrow as pa
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

DICTS_AT_ONCE, ROWS_AT_ONCE = 3_000, 50_000
POLL_S = 1.0
POLLS_MAX = 60
TYPES: dict[str, type] = {
    "event_id": str,
    "event_type": str,
    "user_id": int,
    "session": str,
    "ts": int,
    "page": str,
    "referrer": str,
    "price": float,
    "qty": int,
}
ARROW = {str: pa.string(), int: pa.int64(), float: pa.float64()}
TIMESTAMP = pa.timestamp("ms", tz="UTC")


def main(path: Path) -> None:
    """Do the job of an order."""
    order = json.loads(path.read_text())
    pipeline = dlt.pipeline(
        "clicks",
        pipelines_dir=order["pipelines"],
        destination=dlt.destinations.filesystem(f"file://{order['output']}"),
        dataset_name=order["dataset"],
    )
    form = dicts if order["form"] == "dicts" else tables
    resource = dlt.resource(form(order), name="events", write_disposition="append")
    print(pipeline.run(resource, loader_file_format="parquet"))


def dicts(order: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    """Yield the valid events of each batch as dicts."""
    for messages in consumed(order, DICTS_AT_ONCE):
        rows = []
        for message in messages:
            if (event := valid(message)) is not None:
                event["partition"] = message.partition()
                event["offset"] = message.offset()
                event["timestamp"] = datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC)
                rows.append(event)
        yield rows


def tables(order: dict[str, Any]) -> Iterator[pa.Table]:
    """Yield the valid events of each batch as an Arrow table."""
    for messages in consumed(order, ROWS_AT_ONCE):
        pairs = [(event, m) for m in messages if (event := valid(m)) is not None]
        columns = {
            name: pa.array([event[name] for event, _ in pairs], ARROW[kind])
            for name, kind in TYPES.items()
        }
        devices = [event["device"] for event, _ in pairs]
        columns["device__os"] = pa.array([device["os"] for device in devices], pa.string())
        columns["device__ver"] = pa.array([device["ver"] for device in devices], pa.string())
        columns["partition"] = pa.array([m.partition() for _, m in pairs], pa.int64())
        columns["offset"] = pa.array([m.offset() for _, m in pairs], pa.int64())
        times = pa.array([m.timestamp()[1] for _, m in pairs], pa.int64())
        columns["timestamp"] = times.cast(TIMESTAMP)
        yield pa.table(columns)


def valid(message: Message) -> dict[str, Any] | None:
    """Return the event, or None if the value is no JSON or a field has not its type."""
    try:
        event: dict[str, Any] = orjson.loads(message.value())
        for name, kind in TYPES.items():
            if type(event[name]) is not kind:
                return None
    except (orjson.JSONDecodeError, KeyError):
        return None
    return event


def consumed(order: dict[str, Any], at_once: int) -> Iterator[list[Message]]:
    """Yield the messages of all partitions up to their ordered ends; raises TimeoutError if none come for a minute."""
    consumer = Consumer(
        {
            "bootstrap.servers": order["bootstrap"],
            "group.id": "bench-dlt",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
        }
    )
    topic, ends = order["topic"], order["ends"]
    consumer.assign([TopicPartition(topic, p, 0) for p in range(len(ends))])
    left, polls = sum(ends), 0
    try:
        while left:
            messages = consumer.consume(min(at_once, left), POLL_S)
            for message in messages:
                if (error := message.error()) is not None:
                    raise KafkaException(error)
            polls = 0 if messages else polls + 1
            if polls > POLLS_MAX:
                raise TimeoutError(f"{topic}: {left} messages did not arrive")
            left -= len(messages)
            if messages:
                yield messages
    finally:
        consumer.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
