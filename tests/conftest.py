"""Settings of all tests: Hypothesis has no deadline (tests never assert a time), failing examples are replayable.

With pytest-xdist, the tests of a file share a worker. All tests of tests/airflow/user_actions share one stack, and so
one worker. The longest tests start first, so that no worker runs them alone at the end. The tests of a folder follow each
other: its servers stop with its last test.
"""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from support import run_end
from support.slow_tests import SlowTests

if TYPE_CHECKING:
    from xdist.scheduler import LoadFileScheduling

ONE_WORKER = "tests/airflow/user_actions/"
# Its tests share nothing, and each takes a minute.
EACH_ANYWHERE = "tests/simulation/test_explorer.py"
# In the order of their measured cost. The user actions alone use two cores (nine pipelines on one Airflow): only tests
# that compute may run concurrently with them, or Airflow's answers take longer than its clients wait.
LONGEST = (
    ONE_WORKER,
    EACH_ANYWHERE,
    "tests/simulation/",
    "tests/unit/operations/",
    "tests/spark/test_spark_frames.py",
    "tests/spark/test_spark_cluster.py",
    "tests/spark/",
    "tests/contract/test_store_contract_versitygw.py",
    "tests/airflow/test_local_stack.py",
    "tests/contract/test_concurrent_commits.py",
    "tests/kafka/",
    "tests/postgres/",
)

settings.register_profile(
    "tallystick",
    deadline=None,
    print_blob=True,
    # A loaded machine generates examples slowly; that does not concern the claim.
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("tallystick")


def pytest_configure(config: pytest.Config) -> None:
    """End all processes with the run, however it ends. A worker of pytest-xdist belongs to its main process."""
    if hasattr(config, "workerinput"):
        return
    if sys.platform == "linux":
        run_end.watch()
    config.pluginmanager.register(SlowTests(_write_to_stderr))


def _write_to_stderr(text: str) -> None:
    # The main process of pytest-xdist captures nothing; without workers, pytest shows this with `-s` alone.
    assert sys.__stderr__ is not None
    print(text, file=sys.__stderr__, flush=True)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the longest tests first; the order inside a file is unchanged."""
    items.sort(key=lambda item: _rank(item.nodeid))


def pytest_collection_finish() -> None:
    """Leave the collected tests out of Python's garbage collections, which otherwise take 4 % of the CPU time."""
    gc.collect()
    gc.freeze()


def _rank(nodeid: str) -> int:
    return next((i for i, start in enumerate(LONGEST) if nodeid.startswith(start)), len(LONGEST))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadFileScheduling | None:
    """Return `--dist loadfile` with ONE_WORKER and EACH_ANYWHERE, in the order of collection; None for another --dist."""
    from xdist.scheduler import LoadFileScheduling

    class InOrder(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith(EACH_ANYWHERE):
                return nodeid
            return ONE_WORKER if nodeid.startswith(ONE_WORKER) else super()._split_scope(nodeid)

    if config.getoption("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False  # it would sort by how many tests a file has
    return InOrder(config, log)
