"""A publisher of five rows that kills itself at a step."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from tallystick.connections.kafka import KafkaSettings
from tallystick.kafka import transactions
from tallystick.outputs.kafka import KafkaOutput
from tallystick.outputs.kafka.topic import KafkaTopic
from unit.outputs.publications import SCOPE, publication

ROWS = [{"k": f"k{n}", "n": n} for n in range(5)]
PER_TRANSACTION = 2


def output(bootstrap: str, topic: str, **how: Any) -> KafkaTopic:
    """Return the output for a topic."""
    settings = KafkaSettings(
        bootstrap_servers=(bootstrap,), bootstrap_timeout_ms=5_000, request_timeout_ms=5_000
    )
    declared = KafkaOutput(
        name="feed", table="events", topic=topic, key=["k"], transaction_rows=PER_TRANSACTION
    )
    return KafkaTopic(
        KafkaOutput(**{**{f: getattr(declared, f) for f in declared.__slots__}, **how}),
        lambda: settings,
    )


STEPS = ("begin_transaction", "send", "the offset", "the commit")


def before(feed: KafkaTopic, step: str, nth: int, then: Callable[[], None]) -> None:
    """Call `then` right after the nth call of a step: `send` of one message, or one wait for an answer."""
    left = nth

    def passed() -> None:
        nonlocal left
        left -= 1
        if not left:
            then()

    if step in ("begin_transaction", "send"):
        producer = feed._producer._producer
        real = getattr(producer, step)

        def call(*of: Any, **more: Any) -> Any:
            result = real(*of, **more)
            passed()
            return result

        setattr(producer, step, call)
        return
    wait = transactions._wait

    def waited(result: Any, what: str) -> None:
        if what == step:
            passed()
        wait(result, what)

    transactions._wait = waited


def die() -> None:
    """Kill this process with SIGKILL."""
    os.kill(os.getpid(), signal.SIGKILL)


def main(bootstrap: str, topic: str, step: str, nth: int) -> None:
    """Publish, and die."""
    feed = output(bootstrap, topic)
    feed.begin(SCOPE)

    def in_the_log() -> None:
        if step == "send":
            feed._producer._producer.flush(5)  # and its transaction has not ended
        die()

    if step.startswith("after "):
        wait = transactions._wait
        left = [nth]

        def waited(result: Any, what: str) -> None:
            wait(result, what)
            left[0] -= f"after {what}" == step
            if not left[0]:
                die()

        transactions._wait = waited
    else:
        before(feed, step, nth, in_the_log)
    feed.publish(publication(ROWS), resumed=False)
