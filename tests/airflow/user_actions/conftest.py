"""One stack for all user actions, the scenarios that run on it, and the history of a failed test.

The stack starts once per session: tests/conftest.py keeps this folder's tests on one worker of pytest-xdist.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from support.canaries import ENVIRONMENT
from support.s3_hold import HoldingProxy
from support.user_action_driver import DEADLINE_S, POLL_S, ActionStack
from support.user_action_project import (
    KAFKA_PASSWORD,
    PER_INTERVAL,
    S3_SECRET,
    Produced,
    python_path,
    write_project,
)
from support.user_action_scenarios import Scenarios, scenarios_of
from tallystick_devstack.airflow_api import AirflowApi
from tallystick_devstack.kafka_login import confluent_words
from tallystick_devstack.parts import LocalStack
from tallystick_devstack.private_file import write_private

DAGS = (
    "january",
    "paused",
    "shared",
    "shared_twin",
    "stranger",
    "before",
    "during",
    "running",
    "buttons",
    "pages",
    "together",
    "at_once",
)
SCENARIOS = pytest.StashKey[Scenarios]()
RUNNING = pytest.StashKey[ExitStack]()
HERE = Path(__file__).parent
# A dozen scenarios share two cores: Airflow's scheduler and its heartbeats run less often than on the local stack, each
# task is forked from a process that has imported what tasks import, and only changed DAG files are parsed again.
CHEAPER = {
    "AIRFLOW__CORE__EXECUTOR": "support.preloaded_executor.PreloadedExecutor",
    "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "1",
    "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "5",
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
}


def use_canaries_as_logins(state: Path) -> None:
    """Choose the passwords of a stack before it is created: the test of the secrets searches for them everywhere."""
    logins = {
        "s3_secret_key": S3_SECRET,
        "kafka_password": KAFKA_PASSWORD,
        "kafka_broker_password": "canary-of-the-broker",
    }
    write_private(state / "secrets.json", json.dumps(logins))


@contextmanager
def running_action_stack() -> Iterator[ActionStack]:
    """Run the whole stack, with a project whose DAGs Airflow has parsed and whose topics have their records."""
    # Not below pytest's folder: PostgreSQL runs as another user, who must reach it, and socket paths must be short.
    base = Path(tempfile.mkdtemp(prefix="tally-actions-"))
    base.chmod(0o711)
    project, state = base / "project", base / "state"
    write_project(project)
    state.mkdir(mode=0o711)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tallystick_devstack.airflow_api._POLL_S", POLL_S)
        # On a loaded machine an answer may take long; only the deadline of a scenario ends the wait.
        patch.setattr("tallystick_devstack.airflow_api._TIMEOUT_S", DEADLINE_S)
        use_canaries_as_logins(state)
        stack = LocalStack(state, project_dir=project)
        for name, setting in stack.environment().items():
            patch.setenv(name, setting)
        stack.airflow._env = {
            **ENVIRONMENT,
            **stack.airflow._env,
        }
        with HoldingProxy(stack.s3.endpoint) as proxy:
            # Tasks and jobs use the proxy, and run this tree's code, not an installed one.
            stack.airflow._env |= {
                "AWS_ENDPOINT_URL_S3": proxy.url,
                "PYTHONPATH": python_path(project),
            }
            stack.airflow._spark_master = "local[1,4]"
            settings = stack.airflow._settings()
            patch.setattr(stack.airflow, "_settings", lambda: settings | CHEAPER)
            try:
                stack.start(print)
                produced = Produced()
                produced.produce(confluent_words(stack.kafka.client_settings()))
                wait_for_dags(stack.airflow.api())
                yield ActionStack(
                    local=stack, project=project, base=base, proxy=proxy, produced=produced
                )
            finally:
                stack.stop(print)
                shutil.rmtree(base, ignore_errors=True)


@pytest.fixture(scope="session")
def action_stack(request: pytest.FixtureRequest) -> Iterator[ActionStack]:
    """Run the stack until the end of this folder's last test: an idle stack would slow down all later tests."""
    with ExitStack() as running:
        request.config.stash[RUNNING] = running
        yield running.enter_context(running_action_stack())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, None, None]:
    """Stop the stack if no test of this folder follows."""
    yield
    running = item.config.stash.get(RUNNING, None)
    if running is not None and (nextitem is None or HERE not in nextitem.path.parents):
        running.close()


def wait_for_dags(api: AirflowApi) -> None:
    """Wait until Airflow has parsed every DAG file."""
    for dag in (*DAGS, "by_hand", "declared", PER_INTERVAL):
        api.wait_for_dag(dag, deadline_s=DEADLINE_S)


@pytest.fixture(scope="session")
def scenarios(action_stack: ActionStack, request: pytest.FixtureRequest) -> Iterator[Scenarios]:
    """Start the scenarios of every collected test."""
    started = Scenarios(action_stack)
    request.config.stash[SCENARIOS] = started
    started.start(
        dict.fromkeys(name for item in request.session.items for name in scenarios_of(item))
    )
    yield started
    print(started.durations())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the history of its scenarios to the report of a failed test."""
    report = yield
    started, names = item.config.stash.get(SCENARIOS, None), scenarios_of(item)
    if report.failed and started is not None and names:
        try:
            report.sections.append(("history", started.history(names)))
        except Exception as error:  # noqa: BLE001 - the test's own failure must be shown, even if the stack does not answer
            report.sections.append(("history", f"could not be read: {error!r}"))
    return report
