"""Settings of all tests: Hypothesis has no deadline (tests never assert a time), failing examples are replayable.

With pytest-xdist, the tests of a unit share a worker: a unit is a file, or a folder whose tests share servers. The
longest units start first, so that no worker runs them alone at the end. The servers of a folder stop with its last test.
"""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from support import run_end
from support.folder_servers import pytest_fixture_setup, pytest_runtest_teardown
from support.slow_tests import SlowTests
from support.units import rank_of

if TYPE_CHECKING:
    from xdist.scheduler import LoadFileScheduling

__all__ = ["pytest_fixture_setup", "pytest_runtest_teardown"]

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
    items.sort(key=lambda item: rank_of(item.nodeid))


def pytest_collection_finish() -> None:
    """Leave the collected tests out of Python's garbage collections, and let these be rarer: they take CPU time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadFileScheduling | None:
    """Return `--dist loadfile` with the units of support/units.py, in the order of collection; None for other --dist."""
    if config.getoption("dist") != "loadfile":
        return None
    from support.in_order import InOrder  # not without pytest-xdist

    config.option.loadscopereorder = False  # it would sort by how many tests a file has
    return InOrder(config, log)
