"""Fills a Kafka and an S3 server that others have started: python -m examples.demo.fill --bootstrap HOST:PORT.

Makes the lake's bucket where it is missing (S3 by boto3's own settings), and the topic with the year of flights.
Safe to repeat: a whole topic is left as it is, and one that is not whole is refused, never filled up.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

import boto3
from botocore.exceptions import BotoCoreError, ClientError
from confluent_kafka import Consumer, KafkaException, TopicPartition

from examples.demo.flights import Batch, break_some, in_batches, read_flights
from examples.demo.ground import TOPIC
from examples.demo.produce import TIMEOUT_S, create_topic, produce
from tallystick.errors import KafkaUnavailable, SettingsError, StoreUnavailable, TallystickError
from tallystick_devstack.info import LAKE_BUCKET


def main(words: Sequence[str] | None = None) -> int:
    """Make the bucket and fill the topic; the exit code is 0, or 1 with a sentence that says what went wrong."""
    parser = argparse.ArgumentParser(prog="python -m examples.demo.fill", description=__doc__)
    parser.add_argument("--bootstrap", required=True, help="a broker, as host:port")
    bootstrap = parser.parse_args(words).bootstrap
    try:
        create_bucket(LAKE_BUCKET)
        batches = in_batches(break_some(read_flights()))
        sent = fill_topic({"bootstrap.servers": bootstrap}, TOPIC, batches)
    except TallystickError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"topic {TOPIC}: {f'{sent:,} records sent' if sent else 'is whole already'}")
    return 0


def create_bucket(name: str) -> None:
    """Make sure that we have the bucket; raises StoreUnavailable where the server does not make it.

    Safe to repeat: that it is ours already is what was wanted.
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
    """Create the topic and send everything; return the number of records, 0 where it was whole already.

    Raises SettingsError for a topic that holds something else, KafkaUnavailable where a broker does not answer. Safe to
    repeat: an earlier call that was interrupted is found by the number of offsets.
    """
    found, wanted = offsets_in(kafka, topic), offsets_of(batches)
    if found == wanted:
        return 0
    if found is not None:
        raise SettingsError(
            f"topic {topic} holds {found:,} offsets; the year of flights has {wanted:,}.",
            hint="a fill was interrupted, or others write to it: delete the topic and the lake, fill again.",
        )
    create_topic(kafka, topic)
    return produce(kafka, topic, batches, sent=None)


def offsets_of(batches: Sequence[Batch]) -> int:
    """How many offsets the batches take: one a record, and one for each partition at a transaction's end."""
    return sum(
        len(b.flights)
        + (0 if b.end == "plain" else len({flight.partition for flight in b.flights}))
        for b in batches
    )


def offsets_in(kafka: Mapping[str, str], topic: str) -> int | None:
    """How many offsets the topic's log ends hold, None where there is no such topic; raises KafkaUnavailable."""
    # A consumer must name a group; without a subscription it joins none.
    consumer = Consumer({**kafka, "group.id": topic, "log_level": 0})
    try:
        # All topics are listed: to ask for one by name would create it on brokers that do so.
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
        f"looking into topic {topic} at {kafka['bootstrap.servers']}: {what}.",
        hint="look into the broker's log, then try again.",
    )


if __name__ == "__main__":
    sys.exit(main())
