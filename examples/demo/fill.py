"""Prepares a running Kafka and S3 server for the demo: python -m examples.demo.fill --bootstrap HOST:PORT.

Creates the lake's bucket if it is missing (S3 by boto3's own settings), and the topic with the year of flights.
Safe to repeat: a complete topic is left unchanged; an incomplete topic is refused, never completed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

import boto3
from botocore.exceptions import BotoCoreError, ClientError
from confluent_kafka import Consumer, KafkaException, TopicPartition

from examples.demo.flights import Batch, break_some, in_batches, read_flights
from examples.demo.produce import TIMEOUT_S, create_topic, produce
from examples.demo.workspace import TOPIC
from tallystick.errors import KafkaUnavailable, SettingsError, StoreUnavailable, TallystickError
from tallystick_devstack.info import LAKE_BUCKET


def main(arguments: Sequence[str] | None = None) -> int:
    """Create the bucket and fill the topic; return 0, or print the error and return 1."""
    parser = argparse.ArgumentParser(prog="python -m examples.demo.fill", description=__doc__)
    parser.add_argument("--bootstrap", required=True, help="a broker, as host:port")
    bootstrap = parser.parse_args(arguments).bootstrap
    try:
        create_bucket(LAKE_BUCKET)
        batches = in_batches(break_some(read_flights()))
        sent = fill_topic({"bootstrap.servers": bootstrap}, TOPIC, batches)
    except TallystickError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"topic {TOPIC}: {f'{sent:,} records sent' if sent else 'is complete already'}")
    return 0


def create_bucket(name: str) -> None:
    """Create the bucket unless it exists; raises StoreUnavailable if the server refuses.

    Safe to repeat: a bucket that these credentials own already is accepted.
    """
    try:
        boto3.client("s3").create_bucket(Bucket=name)
    except (BotoCoreError, ClientError) as error:
        answer = getattr(error, "response", {}).get("Error", {})
        if answer.get("Code") != "BucketAlreadyOwnedByYou":
            raise StoreUnavailable(
                f"the S3 server did not create the bucket {name}: {error}.",
                hint="check AWS_ENDPOINT_URL_S3, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and the server's log.",
            ) from error


def fill_topic(kafka: Mapping[str, str], topic: str, batches: Sequence[Batch]) -> int:
    """Create the topic and send everything; return the number of records, 0 if the topic was complete already.

    Raises SettingsError if the topic contains something else, KafkaUnavailable if a broker does not answer. Safe to
    repeat: an earlier call that was interrupted is detected by the number of offsets.
    """
    found, expected = offsets_in(kafka, topic), offsets_of(batches)
    if found == expected:
        return 0
    if found is not None:
        raise SettingsError(
            f"topic {topic}: expected {expected:,} offsets (the year of flights), found {found:,}.",
            hint="delete the topic and the lake, then run this again: an earlier run was interrupted, or another "
            "program writes to the topic.",
        )
    create_topic(kafka, topic)
    return produce(kafka, topic, batches, sent=None)


def offsets_of(batches: Sequence[Batch]) -> int:
    """Return how many offsets the batches take: one per record, and one per partition at the end of a transaction."""
    return sum(
        len(b.flights)
        + (0 if b.end == "plain" else len({flight.partition for flight in b.flights}))
        for b in batches
    )


def offsets_in(kafka: Mapping[str, str], topic: str) -> int | None:
    """Return the sum of the topic's end offsets, None if it does not exist; raises KafkaUnavailable."""
    # A consumer must name a group; without a subscription it joins none.
    consumer = Consumer({**kafka, "group.id": topic, "log_level": 0})
    try:
        # List all topics: a request for one name would create it on brokers that create topics automatically.
        described = consumer.list_topics(timeout=TIMEOUT_S).topics.get(topic)
        if described is None:
            return None
        found = 0
        for partition in described.partitions:
            ends = consumer.get_watermark_offsets(TopicPartition(topic, partition), TIMEOUT_S)
            if ends is None:
                raise _unavailable(kafka, topic, f"no answer about partition {partition}")
            found += ends[1]
        return found
    except KafkaException as error:
        raise _unavailable(kafka, topic, str(error)) from error
    finally:
        consumer.close()


def _unavailable(kafka: Mapping[str, str], topic: str, what: str) -> KafkaUnavailable:
    return KafkaUnavailable(
        f"reading topic {topic} at {kafka['bootstrap.servers']}: {what}.",
        hint="read the broker's log, then try again.",
    )


if __name__ == "__main__":
    sys.exit(main())
