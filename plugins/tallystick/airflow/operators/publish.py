"""The task `publish`: writes committed rows to the outputs, and registers the tables. It starts no JVM."""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import Any

from airflow.sdk import BaseOperator

from tallystick.airflow.connections import settings_named
from tallystick.airflow.lines import log_lines
from tallystick.airflow.links import LakeObjectLink
from tallystick.airflow.messages import (
    not_published_line,
    published_line,
    registered_line,
)
from tallystick.airflow.metrics import measured, record_published
from tallystick.airflow.notes import leave_note
from tallystick.airflow.opening import open_lake
from tallystick.airflow.operators.context import run_span
from tallystick.airflow.outcome import airflow_errors
from tallystick.airflow.task_ids import PUBLISH
from tallystick.operations.publish import Opens, Published, publish
from tallystick.operations.register import OpensRegistrar, Registered, register
from tallystick.outputs.opening import open_output
from tallystick.outputs.port import Output
from tallystick.outputs.registrations.opening import open_registrar
from tallystick.pipeline import DeclaredOutput, Pipeline
from tallystick.store import Store

log = logging.getLogger(__name__)


def openers(pipeline: Pipeline, store: Store) -> dict[str, Opens]:
    """Return a function per output name that opens the output. `store` is the lake's."""
    return {declared.name: partial(_opened, declared, store) for declared in pipeline.outputs}


def _opened(declared: DeclaredOutput, store: Store) -> Output:
    return open_output(declared, settings=settings_named, store=store)


def registrar_openers(pipeline: Pipeline) -> dict[str, OpensRegistrar]:
    """Return a function per registration that opens its registrar."""
    return {
        declared.name: partial(open_registrar, declared, settings=settings_named)
        for declared in pipeline.registrations
    }


class PublishOperator(BaseOperator):
    """The operator that publishes all that is pending, of any run, and registers the last commit. It starts no JVM."""

    operator_extra_links = (LakeObjectLink(),)
    ui_color = "#eadcf4"

    def __init__(self, *, pipeline: Pipeline, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.linked: str | None = None

    @measured(PUBLISH)
    def execute(self, context: Any) -> dict[str, Any]:
        """Publish, register, log the result, and return the number of published intervals per output.

        The registrations come last: they wait for no output that failed, and no output waits for them.
        Safe to repeat: the ledger records what is published, and if an interval is partly published, its output has the
        record of what it already received.
        """
        # pyarrow is loaded when the task runs, never when the DAG file is parsed.
        from tallystick.tables.rows import StoredRows

        started = time.monotonic()
        registered: dict[str, int] = {}
        done: dict[str, int] = {declared.name: 0 for declared in self.pipeline.outputs}

        def watch(one: Published) -> None:
            done[one.output] += 1
            record_published(self.pipeline.name, one)
            log_lines(self.log.info, [published_line(one)])

        def registered_now(one: Registered) -> None:
            registered[one.registration] = one.version
            log_lines(self.log.info, [registered_line(one)])

        with airflow_errors(run_span(context), context["ti"]):
            lake = open_lake(self.pipeline)
            outputs = openers(self.pipeline, lake.store)
            failed = publish(lake, outputs, rows_of=StoredRows, watch=watch)
            failed += register(
                lake,
                registrar_openers(self.pipeline),
                targets=self.pipeline.targets,
                watch=registered_now,
            )
            log_lines(self.log.warning, map(not_published_line, failed[1:]))
            if failed:
                raise failed[0].error
        for name, intervals in done.items():
            if not intervals:
                self.log.info("output %s has nothing pending", name)
        for declared in self.pipeline.registrations:
            if declared.name not in registered:
                self.log.info("registration %s has the last commit already", declared.name)
        self.log.info("done in %.1f s", time.monotonic() - started)
        if any(done.values()):
            published = ", ".join(f"{n:,} to {name}" for name, n in done.items() if n)
            leave_note(context["ti"], f"intervals published: {published}")
        return {"published": done} | ({"registered": registered} if registered else {})
