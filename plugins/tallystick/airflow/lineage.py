"""OpenLineage events of the commit task: topics with offset ranges, tables with snapshots, rows and columns.

Airflow's OpenLineage provider calls the two methods of `LineageEvents` when the task has started and when it has ended,
and sends the events. It calls them in a forked process with a time limit, so they neither delay a commit nor make it
fail. They request nothing of Airflow's supervisor: the fork shares the task's connection to it. What only the task can
ask for is noted after the swaps (`note_lineage`).

The lake is read when the task has ended, and only if the provider calls. If something cannot be read, a warning is
logged, the event has less, and `isWhole` of the facet `tallystick_commit` is false. Without the provider nothing is read.
`lineage_facets` builds OpenLineage's objects; it is imported only here, in functions, because the provider is optional.
docs/how-to/lineage.md describes the events.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tallystick.airflow.connections import settings_named
from tallystick.connections.kafka import KafkaSettings
from tallystick.connections.resolve import resolve
from tallystick.errors import SettingsError, TallystickError
from tallystick.format import keys
from tallystick.lake import Lake
from tallystick.pipeline import Pipeline
from tallystick.runtime import system_runtime
from tallystick.store.open import open_store

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

    from tallystick.operations.lineage import CommitLineage

log = logging.getLogger(__name__)

# The provider ends the process after 10 seconds by default, and then sends nothing.
READING_S_MAX = 6.0
READ_S_MAX = 2.0
COMMITS_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedRun:
    """What a commit task leaves for its last event: the run's plans, and the first bootstrap server (None: unknown)."""

    plans: tuple[keys.PlanKey, ...]
    server: str | None


class LineageEvents:
    """The methods that Airflow's OpenLineage provider calls on the operator of the task `commit`."""

    pipeline: Pipeline
    noted: NotedRun | None = None

    def note_lineage(self, planned: Mapping[str, Any]) -> None:
        """Note the plans of the run, from the XCom of `plan`, and Kafka's address. Call it after the swaps.

        Does nothing if no events are sent. Raises nothing.
        """
        try:
            if is_enabled():
                plans = tuple(keys.check_plan(one["plan"]) for one in planned["plans"])
                # Set first: without Kafka's address, the event still has the tables.
                self.noted = NotedRun(plans=plans, server=None)
                settings = settings_named(KafkaSettings, self.pipeline.kafka)
                self.noted = NotedRun(plans=plans, server=settings.bootstrap_servers[0])
        except Exception as error:  # noqa: BLE001 - lineage must never make a task fail
            _warn(error)

    def get_openlineage_facets_on_start(self) -> OperatorLineage[Any, Any]:
        """Return the declared topics and tables. Reads no lake."""
        return on_start(self.pipeline)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any]:
        """Return what the run's commits read and wrote; the provider calls this also after a failure. It only reads."""
        del task_instance  # the lake states what is committed
        return on_complete(self.pipeline, self.noted)


def is_enabled() -> bool:
    """Return True if Airflow's OpenLineage provider is installed, and has a transport for its events."""
    try:
        from airflow.providers.openlineage import conf
    except ImportError:
        return False
    return not conf.is_disabled()


def on_start(pipeline: Pipeline, server: str | None = None) -> OperatorLineage[Any, Any]:
    """Return the topics and tables that a pipeline declares, without anything of a run.

    `server`: Kafka's first bootstrap server; None: that of the environment or of the secrets folder.
    """
    from tallystick.airflow.lineage_facets import declared

    return declared(pipeline, server or _server_of_environment(pipeline.kafka))


def on_complete(pipeline: Pipeline, noted: NotedRun | None) -> OperatorLineage[Any, Any]:
    """Return what the run's commits read and wrote: the same for each try, also if all was committed before.

    If nothing is committed, or nothing can be read, return the declared topics and tables. It only reads.
    """
    from tallystick.airflow.lineage_facets import committed

    plans = () if noted is None else noted.plans
    server = None if noted is None else noted.server
    try:
        store = open_store(pipeline.warehouse, reads_within_s=READ_S_MAX)
        lake = Lake(store, system_runtime(), proven=True)
        commits, is_whole = _read(lake, plans)
        if commits:
            server = server or _server_of_environment(pipeline.kafka)
            return committed(pipeline, lake.store.uri, server, commits, is_whole=is_whole)
    except Exception as error:  # noqa: BLE001 - the event then has less
        _warn(error)
    return on_start(pipeline, server)


def _read(lake: Lake, plans: Sequence[keys.PlanKey]) -> tuple[list[CommitLineage], bool]:
    """Return the commits of the plans, and True if these are all of them, each with all that it can have."""
    from tallystick.operations.lineage import read_commit

    found: list[CommitLineage] = []
    failed: list[Exception] = []

    def read_all() -> None:
        for plan in plans[:COMMITS_MAX]:
            try:
                commit = read_commit(lake, plan)
            except Exception as error:  # noqa: BLE001 - the other commits are still read
                failed.append(error)
            else:
                if commit is not None:
                    found.append(commit)

    in_time = _within(READING_S_MAX, read_all)
    if failed:
        _warn(failed[0])
    commits = list(found)
    is_whole = in_time and not failed and all(one.is_whole for one in commits)
    return commits, is_whole and len(plans) <= COMMITS_MAX


def _within(limit_s: float, act: Callable[[], None]) -> bool:
    """Call a function, and return False if it takes longer: then its thread ends with the process."""
    thread = threading.Thread(target=act, name="tallystick-lineage", daemon=True)
    thread.start()
    thread.join(limit_s)
    if thread.is_alive():
        log.warning("lineage: the lake was not read whole within %g s; the event has less", limit_s)
    return not thread.is_alive()


def _warn(error: Exception) -> None:
    # Not the text of any other error: it could quote a setting.
    shown = error.message if isinstance(error, TallystickError) else type(error).__name__
    log.warning("lineage: the OpenLineage event has less: %s", shown)


def _server_of_environment(connection: str) -> str | None:
    """Return the first bootstrap server of a connection, if the environment or the secrets folder defines it."""
    try:
        settings = resolve(KafkaSettings, connection, environ=os.environ)
    except SettingsError:
        return None
    return settings.bootstrap_servers[0]
