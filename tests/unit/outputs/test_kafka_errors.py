"""Errors of a broker have a hint that helps. No test here connects to one."""

from __future__ import annotations

import kafka.errors as kerrors
import pytest

from tallystick.connections.kafka import KafkaSettings
from tallystick.errors import OutputRefused, SettingsError, TallystickError
from tallystick.outputs.kafka import KafkaOutput
from tallystick.outputs.kafka.topic import KafkaTopic

RIGHTS = (
    "allow Write and Read on the topic, Write on the transactional id, and Read on the group; "
    "docs/reference/outputs.md has the names of the last two."
)


@pytest.mark.parametrize(
    ("error", "kind", "hint"),
    [
        (
            # A publication in progress is completed first, unchanged: a change of columns is too late for it.
            kerrors.MessageSizeTooLargeError(),
            OutputRefused,
            "raise the topic's max.message.bytes, then clear `publish`.",
        ),
        (kerrors.TopicAuthorizationFailedError(), SettingsError, RIGHTS),
        (kerrors.GroupAuthorizationFailedError(), SettingsError, RIGHTS),
    ],
)
def test_an_error_of_the_broker_has_a_hint_with_the_fix(
    error: kerrors.KafkaError, kind: type[TallystickError], hint: str
) -> None:
    settings = KafkaSettings(bootstrap_servers=("a:1",))
    feed = KafkaTopic(KafkaOutput(name="feed", table="events", topic="feed"), lambda: settings)
    with pytest.raises(kind) as caught, feed._translated("output feed"):
        raise error
    assert caught.value.message.startswith("output feed: topic feed of connection default")
    assert caught.value.hint == hint
