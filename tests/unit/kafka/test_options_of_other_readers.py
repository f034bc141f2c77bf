"""Options of Spark's Kafka source and of consumers that decide what is read: each is refused by its name.

This reader takes explicit offsets from the plan, reads committed records only, and belongs to no group: there is nothing
to set. One that was taken in silence would be a pipeline that its owner believes to be another.
"""

from __future__ import annotations

import itertools

import pytest

from tallystick.connections.kafka import KafkaSettings
from tallystick.errors import SettingsError

GOOD = {"bootstrap_servers": "a:1"}
# Which of these beats which is a table of its own in Spark (KafkaSourceProvider.getKafkaOffsetRangeLimit).
WHERE_TO_START = (
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingTimestamp",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "auto_offset_reset",
)
OTHERS = (
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


def refused(words: dict[str, object], name: str) -> None:
    with pytest.raises(SettingsError, match=f"main: {name!r} is not a setting") as told:
        KafkaSettings.from_mapping(GOOD | words, source="main")
    assert told.value.hint.startswith("use only ")


@pytest.mark.parametrize("name", [*WHERE_TO_START, *OTHERS])
@pytest.mark.parametrize("value", ["earliest", False, -1], ids=str)
def test_an_option_that_this_reader_owns_is_refused_by_name(name: str, value: object) -> None:
    refused({name: value}, name)


@pytest.mark.parametrize(
    ("first", "second"), list(itertools.permutations(WHERE_TO_START, 2)), ids=lambda one: one
)
def test_no_option_wins_over_another(first: str, second: str) -> None:
    refused({first: "earliest", second: "latest"}, first)
