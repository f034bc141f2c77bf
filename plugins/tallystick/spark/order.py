"""What a driver hands to its tasks: the lake, the plan and the attempt, the input splits, and Kafka's settings.

Imports no pyspark: a driver without Spark uses it, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from tallystick.connections.kafka import KafkaSettings
from tallystick.connections.resolve import resolve
from tallystick.engine.clock import LogSpan
from tallystick.engine.input_splits import InputSplit, grouped
from tallystick.engine.task import Attempt, Reading, Work
from tallystick.engine.transform import JobTransform, Transform
from tallystick.format.plan import Plan, PlannedTopic
from tallystick.pipeline import Pipeline, pipeline_from_spec
from tallystick.runtime import system_runtime
from tallystick.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The lake, plan and attempt for which a task writes. The task gets it in its closure."""

    lake_uri: str
    plan: Plan
    attempt: str

    def attempt_at(self, store: Store) -> Attempt:
        """Return the engine's `Attempt` of this target."""
        return Attempt(
            plan=self.plan,
            pipeline=pipeline_of(self.plan),
            attempt=self.attempt,
            store=store,
            runtime=system_runtime(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """All that a reading task gets in its closure. It contains secrets, so it is never written anywhere."""

    target: Target
    splits: tuple[InputSplit, ...]
    kafka: Mapping[str, Any]
    # The planned ranges that the input splits belong to: None means the plan's, else those of uncommitted earlier time.
    topics: tuple[PlannedTopic, ...] | None = None
    # The log span that the input splits belong to. If it is set, the records get their log time.
    log_span: LogSpan | None = None

    def __repr__(self) -> str:
        return f"Order({self.target.plan.key}, {self.target.attempt}, {len(self.splits)} splits)"

    @property
    def groups(self) -> tuple[tuple[InputSplit, ...], ...]:
        """The input splits of each Spark task: small splits share a task."""
        per_task = pipeline_of(self.target.plan).records_per_task
        return grouped(self.splits, records_per_task=per_task)

    @contextmanager
    def readings(self) -> Iterator[Callable[[InputSplit], Reading]]:
        """Return a function that returns the reader of an input split. Read one split after another, in one thread.

        The readers share a client of Kafka, which the end of the context closes. The function raises SettingsError if
        the connection is not usable.
        """
        # These imports load numpy and kafka-python. The driver reads nothing and does not need them.
        from tallystick.engine.kafka_splits import KafkaReading
        from tallystick.kafka.shared import SharedClient

        topics = self.target.plan.topics if self.topics is None else self.topics
        by_name = {topic.name: topic for topic in topics}
        with ExitStack() as clients:

            @cache
            def connected() -> tuple[KafkaSettings, SharedClient]:
                # The executor's own environment or mounted secret has precedence over the driver's settings.
                name = self.target.plan.spec["kafka"]
                settings = resolve(KafkaSettings, name, environ=os.environ, fallback=self.kafka)
                return settings, clients.enter_context(SharedClient(settings))

            def reading(split: InputSplit) -> Reading:
                settings, client = connected()
                return KafkaReading(
                    settings,
                    by_name[split.topic],
                    split,
                    collect_aborted=self.log_span is not None,
                    shared=client,
                )

            yield reading

    def work(self, store: Store, transform: Transform) -> Work:
        """Return the engine's `Work` for an Arrow job; raises InvalidPipeline if it cannot write one of the tables."""
        attempt = self.target.attempt_at(store)
        return Work(
            plan=attempt.plan,
            pipeline=attempt.pipeline,
            attempt=attempt.attempt,
            transform=JobTransform(transform, attempt.pipeline),
            store=store,
            runtime=attempt.runtime,
        )


# A worker runs many tasks of few plans, and parsing takes milliseconds per topic, which is seconds for many topics.
_PARSED_MAX = 16
_parsed: list[tuple[Plan, Pipeline]] = []


def pipeline_of(plan: Plan) -> Pipeline:
    """Return the pipeline as it is frozen in the plan; the last ones are kept in this process."""
    for known, pipeline in _parsed:
        if known.key == plan.key and known.spec == plan.spec:
            return pipeline
    found = pipeline_from_spec(plan.spec, where=f"{plan.key} spec")
    _parsed[:] = [(plan, found), *_parsed][:_PARSED_MAX]
    return found
