"""Options of Spark's Kafka source and of consumers that decide what is read: each is refused by its name.

This reader takes explicit offsets from the plan, reads committed records only, and belongs to no group: there is nothing
to set. If an option was ignored silently, the pipeline would not do what its owner expects.
"""

from __future__ import annotations

import itertools

import pytest

from tallystick.connections.kafka import KafkaSettings
from tallystick.errors import SettingsError

GOOD = {"bootstrap_servers": "a:1"}
# Spark has a table of precedence for these (KafkaSourceProvider.getKafkaOffsetRangeLimit).
OFFSET_OPTIONS = (
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingTimestamp",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "auto_offset_reset",
)
OTHER_OPTIONS = (
    "failOnDataLoss",
    "kafka.isolation.level",
    "isolation_level",
    "kafka.group.id",
    "group_id",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "includeHeaders",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "subscribe",
    "subscribePattern",
    "assign",
    "enable_auto_commit",
    "max_poll_records",
    "max_partition_fetch_bytes",
    "fetch_max_bytes",
    "check_crcs",
    "allow_auto_create_topics",
    "value_deserializer",
    "sasl_jaas_config",
    "sasl.jaas.config",
    "sasl_oauth_token_provider",
    "api_version",
)


def refused(options: dict[str, object], name: str) -> None:
    with pytest.raises(SettingsError, match=f"main: {name!r} is not a setting") as caught:
        KafkaSettings.from_mapping(GOOD | options, source="main")
    assert caught.value.hint.startswith("use only ")


@pytest.mark.parametrize("name", [*OFFSET_OPTIONS, *OTHER_OPTIONS])
@pytest.mark.parametrize("value", ["earliest", False, -1], ids=str)
def test_an_option_of_another_reader_is_refused_by_name(name: str, value: object) -> None:
    refused({name: value}, name)


@pytest.mark.parametrize(
    ("first", "second"), list(itertools.permutations(OFFSET_OPTIONS, 2)), ids=str
)
def test_two_options_are_refused_without_a_precedence(first: str, second: str) -> None:
    refused({first: "earliest", second: "latest"}, first)
