"""What all tests share: Hypothesis without a clock (tests never assert a time), failing examples replayable.

With pytest-xdist, the tests of a file share a worker; those of tests/airflow/doors share one stack, so all of them do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from xdist.scheduler import LoadFileScheduling

ONE_WORKER = "tests/airflow/doors/"

settings.register_profile(
    "tallystick",
    deadline=None,
    print_blob=True,
    # A loaded machine generates slowly; that says nothing about the claim.
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("tallystick")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadFileScheduling | None:
    """`--dist loadfile`, where the folder ONE_WORKER counts as one file; any other --dist is left alone."""
    from xdist.scheduler import LoadFileScheduling

    class ByFileOrFolder(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return ONE_WORKER if nodeid.startswith(ONE_WORKER) else super()._split_scope(nodeid)

    return ByFileOrFolder(config, log) if config.getoption("dist") == "loadfile" else None
