"""What is loaded is exempt from garbage collection, and collection afterwards is what it was before."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator
from threading import Event

import pytest

from tallystick.runtime import loading as module
from tallystick.runtime.loading import COLLECTED_AFTER, first_work, loading


class Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module, "_worked", Event())
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


@pytest.mark.parametrize(
    ("before", "inside"),
    [
        (700, COLLECTED_AFTER),
        (2 * COLLECTED_AFTER, 2 * COLLECTED_AFTER),
        (0, 0),  # collection is switched off
    ],
)
@pytest.mark.parametrize("fails", [False, True])
def test_the_threshold_is_higher_while_it_loads_and_the_same_afterwards(
    before: int, inside: int, fails: bool
) -> None:
    gc.set_threshold(before, 11, 12)
    try:
        with loading():
            assert gc.get_threshold() == (inside, 11, 12)
            if fails:
                raise ImportError
    except ImportError:
        assert fails
    assert gc.get_threshold() == (before, 11, 12)


def test_what_exists_at_the_end_is_exempt_and_what_comes_later_is_collected() -> None:
    with loading():
        loaded = Cycle()
    assert gc.get_freeze_count() > 0
    assert all(one is not loaded for one in gc.get_objects())
    later = Cycle()
    gone = weakref.ref(later)
    del later
    gc.collect()
    assert gone() is None


def test_only_the_first_work_of_a_process_is_exempt() -> None:
    with first_work():
        assert gc.get_threshold()[0] >= COLLECTED_AFTER
    frozen = gc.get_freeze_count()
    before = gc.get_threshold()
    with first_work():
        second = Cycle()
        assert gc.get_threshold() == before
    assert gc.get_freeze_count() <= frozen
    assert any(one is second for one in gc.get_objects())


def test_a_first_work_that_fails_was_not_the_first() -> None:
    with pytest.raises(OSError, match="full"), first_work():
        raise OSError("full")
    with first_work():
        assert gc.get_threshold()[0] >= COLLECTED_AFTER


def test_a_job_file_loads_its_driver_with_few_collections() -> None:
    """A job whose arguments are wrong ends after its driver is loaded; the count is of collections, not of time."""
    job = (
        "import gc, sys, atexit\n"
        "count = [0]\n"
        "gc.callbacks.append(lambda phase, info: count.__setitem__(0, count[0] + (phase == 'start')))\n"
        "from tallystick.spark import run\n"
        "before = count[0]\n"
        "atexit.register(lambda: print(count[0] - before, gc.get_freeze_count()))\n"
        "sys.argv[1:] = ['--help']\n"
        "run(lambda records: {})\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", job], capture_output=True, text=True, check=False, timeout=120
    )
    collections, frozen = map(int, ended.stdout.split()[-2:])
    assert collections < 30, ended.stderr
    assert frozen > 20_000
