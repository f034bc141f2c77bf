"""What a topic keeps, by its configuration values as brokers return them."""

from __future__ import annotations

import pytest

from tallystick.kafka.planning import FOREVER_MS, retention_of
from tallystick.kafka.wire import TopicRetention


@pytest.mark.parametrize(
    ("policy", "age", "size", "expected"),
    [
        ("delete", "604800000", "-1", TopicRetention(kept_ms=604_800_000)),
        ("delete", "0", "-1", TopicRetention(kept_ms=0)),
        ("delete", "-1", "-1", TopicRetention()),
        ("delete", "-1", "1000", TopicRetention(kept_bytes=1000)),
        ("compact", "604800000", "1000", TopicRetention()),
        ("compact,delete", "5000", "1000", TopicRetention(kept_ms=5000, kept_bytes=1000)),
        ("delete", str(FOREVER_MS - 1), "-1", TopicRetention(kept_ms=FOREVER_MS - 1)),
        ("delete", str(FOREVER_MS), "-1", TopicRetention()),
        ("delete", str(2**63 - 1), "0", TopicRetention()),
        ("delete", "None", "", TopicRetention()),
    ],
)
def test_a_topic_keeps_records_by_age_and_size_if_it_deletes(
    policy: str, age: str, size: str, expected: TopicRetention
) -> None:
    configs = {"cleanup.policy": policy, "retention.ms": age, "retention.bytes": size}
    assert retention_of(configs) == expected
