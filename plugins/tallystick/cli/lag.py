"""Reads the lag of a ledger behind its topics from Kafka, within a few seconds."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tallystick.cli.waiting import kafka_within
from tallystick.connections.kafka import KafkaSettings
from tallystick.kafka.wire import TopicEnds

LIMIT_S = 5.0
_ANSWER_MS = 3_000


def ends_within_limit(
    connection: str, offsets: Mapping[str, Sequence[int]]
) -> Mapping[str, TopicEnds]:
    """Read the ends of topics with a connection from the environment; raises KafkaUnavailable after `LIMIT_S` seconds.

    It also raises SettingsError, and what the client raises.
    """
    return kafka_within(
        LIMIT_S,
        connection,
        lambda: read_ends(connection, offsets),
        hint="check that this machine reaches the brokers; or skip the lag with --no-kafka.",
    )


def read_ends(connection: str, offsets: Mapping[str, Sequence[int]]) -> Mapping[str, TopicEnds]:
    """Read the ends of topics with a connection from the environment; raises SettingsError, and what the client does."""
    from tallystick.connections.resolve import resolve
    from tallystick.kafka.log_ends import read_topic_ends

    settings = resolve(KafkaSettings, connection, environ=os.environ)
    quick = replace(
        settings,
        request_timeout_ms=min(settings.request_timeout_ms, _ANSWER_MS),
        bootstrap_timeout_ms=min(settings.bootstrap_timeout_ms, _ANSWER_MS),
    )
    return read_topic_ends(quick, offsets)
