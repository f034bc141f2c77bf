"""One stack for all doors, the stories that are told on it, and the story of a test that failed.

The stack starts once per session: conftest.py above keeps this folder's tests on one of pytest-xdist's workers.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from support.canaries import SURROUNDINGS
from support.door_desk import DEADLINE_S, POLL_S, DoorStack
from support.door_project import KAFKA_PASSWORD, S3_SECRET, Produced, write_project
from support.door_stories import Stories, stories_of
from support.s3_hold import HoldingProxy
from tallystick_devstack.airflow_api import AirflowApi
from tallystick_devstack.kafka_login import confluent_words
from tallystick_devstack.parts import LocalStack
from tallystick_devstack.private_file import write_private

DAGS = (
    "doors",
    "paused",
    "beside",
    "beside_twin",
    "stranger",
    "before",
    "during",
    "running",
    "buttons",
)
STORIES = pytest.StashKey[Stories]()
RUNNING = pytest.StashKey[ExitStack]()
HERE = Path(__file__).parent


def make_canaries_the_logins(state: Path) -> None:
    """Choose the passwords of a stack that is not made yet: the test of the secrets looks for them everywhere."""
    logins = {
        "s3_secret_key": S3_SECRET,
        "kafka_password": KAFKA_PASSWORD,
        "kafka_broker_password": "canary-of-the-broker",
    }
    write_private(state / "secrets.json", json.dumps(logins))


@contextmanager
def running_doors() -> Iterator[DoorStack]:
    """The whole stack, with a project whose DAGs Airflow has seen and whose topics are full."""
    # Not below pytest's own folder: PostgreSQL runs as another user, who must reach it, and socket paths are short.
    base = Path(tempfile.mkdtemp(prefix="tally-doors-"))
    base.chmod(0o711)
    project, state = base / "project", base / "state"
    write_project(project)
    state.mkdir(mode=0o711)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tallystick_devstack.airflow_api._POLL_S", POLL_S)
        # On a loaded machine an answer may take long; only a deadline of a story's own says that it is too long.
        patch.setattr("tallystick_devstack.airflow_api._TIMEOUT_S", DEADLINE_S)
        make_canaries_the_logins(state)
        stack = LocalStack(state, project_dir=project)
        for name, setting in stack.environment().items():
            patch.setenv(name, setting)
        stack.airflow._env = {
            **SURROUNDINGS,
            **stack.airflow._env,
        }
        with HoldingProxy(stack.s3.endpoint) as proxy:
            # Tasks and jobs go through the proxy, and run this tree's code, whatever is installed beside their Python.
            stack.airflow._env |= {
                "AWS_ENDPOINT_URL_S3": proxy.url,
                "PYTHONPATH": str(project / "plugins"),
            }
            stack.airflow._spark_master = "local[1,4]"
            try:
                stack.start(print)
                produced = Produced()
                produced.produce(confluent_words(stack.kafka.client_settings()))
                seen(stack.airflow.api())
                yield DoorStack(
                    stack=stack, project=project, base=base, proxy=proxy, produced=produced
                )
            finally:
                stack.stop(print)
                shutil.rmtree(base, ignore_errors=True)


@pytest.fixture(scope="session")
def door_stack(request: pytest.FixtureRequest) -> Iterator[DoorStack]:
    """The stack, until the last test of this folder is over: an idle one would slow down all that follows."""
    with ExitStack() as until_then:
        request.config.stash[RUNNING] = until_then
        yield until_then.enter_context(running_doors())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, None, None]:
    """Stop the stack once no test of this folder follows."""
    yield
    running = item.config.stash.get(RUNNING, None)
    if running is not None and (nextitem is None or HERE not in nextitem.path.parents):
        running.close()


def seen(api: AirflowApi) -> None:
    """Wait until Airflow has read every DAG file."""
    for dag in (*DAGS, "by_hand", "declared"):
        api.wait_for_dag(dag, deadline_s=DEADLINE_S)


@pytest.fixture(scope="session")
def stories(door_stack: DoorStack, request: pytest.FixtureRequest) -> Iterator[Stories]:
    """The stories of every collected test, all begun."""
    told = Stories(door_stack)
    request.config.stash[STORIES] = told
    told.begin(dict.fromkeys(name for item in request.session.items for name in stories_of(item)))
    yield told
    print(told.timetable())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the story to the report of a test that failed."""
    report = yield
    told, names = item.config.stash.get(STORIES, None), stories_of(item)
    if report.failed and told is not None and names:
        try:
            report.sections.append(("the story", told.of(names)))
        except Exception as error:  # noqa: BLE001 - the test's own failure must be seen, whatever the stack says
            report.sections.append(("the story", f"could not be told: {error!r}"))
    return report
