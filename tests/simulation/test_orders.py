"""State does not depend on the order of intervals or on replays, and a dropped guard is detected.

`tests/simulation/orders.py` plays 500 orders. These tests play fewer, with other seeds,
half of them in `make test-long`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tallystick.operations.lookback
import tallystick.operations.plan.run
from simulation import orders, state_job
from tallystick.engine.clock import SplitClock
from tallystick.errors import TallystickError
from tallystick.format.lookback import LookbackUsed
from tallystick.operations.lookback import LookbackInput
from tallystick.protocol.staleness import stale
from tallystick.stateful import closed_sessions

ORDERS = 10
LONG_FROM = 5
DRAWN = 4
SEEDS_MAX = 40
# A seed that detects a mutant which few orders detect: it is tried before all others, because it is cheaper.
DETECTED_AT = {"uncommitted ranges are not read": 8}


@pytest.mark.parametrize("mode", orders.MODES)
@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(10_000 + n, marks=[pytest.mark.long] if n >= LONG_FROM else [])
        for n in range(ORDERS)
    ],
)
def test_every_order_gives_the_same_rows_as_one_pass_over_the_log(seed: int, mode: str) -> None:
    orders.play(seed, mode)


@pytest.mark.parametrize("mode", orders.MODES)
@settings(max_examples=DRAWN)
@given(seed=st.integers(0, 10**6), choices=st.randoms(use_true_random=False))
def test_every_order_that_hypothesis_draws_gives_the_same_rows(
    mode: str, seed: int, choices: random.Random
) -> None:
    """The seed fills the log. Hypothesis draws the runs and replays, so that it reduces a violation to few runs."""
    orders.play(seed, mode, choices)


def _notes_nothing(self: LookbackInput, fingerprint: str, records: Any) -> LookbackUsed:
    """Return a lookback of a report in which the job read nothing."""
    del fingerprint, records
    return LookbackUsed(since=self.since + timedelta(days=300))


def _first_seen(records: pa.Table, key: list[str]) -> pa.Table:
    """Return each key's first record in place of its last."""
    ordered = records.sort_by([("_log_time", "ascending")])
    firsts = ordered.group_by(key).aggregate([("_log_time", "min")])
    return firsts.rename_columns(["key", "last_seen"])


def _by_time_alone(records: Any, span: Any, cuts: Any) -> Any:
    """Return a log time that goes back when a record's timestamp does."""
    return {offset: datetime.fromtimestamp(record.at_ms / 1000, UTC) for offset, record in records}


def _forgotten(records: Any, span: Any, cuts: Any, whole: Any = state_job._clocks) -> Any:
    """Start the clock of each split at the start of its interval, without the time that earlier splits reached."""
    halves = (records[: len(records) // 2], records[len(records) // 2 :])
    return {
        o: at for half in halves for item in half for o, at in whole([item], span, cuts).items()
    }


def _without_rows(log: Any, schemas: Any, unread: Any) -> Any:
    records, _, _ = state_job._read(log, unread.topics, unread.span)
    return {n: schemas[n].empty_table() for n in state_job.PARTIALS}, records.num_rows


Patch = tuple[object, str, Any]
DROPPED: dict[str, tuple[str, Patch]] = {
    "a commit does not record what was read": ("stale", (LookbackInput, "used", _notes_nothing)),
    "stale intervals are not refreshed": (
        "stale",
        (
            tallystick.operations.plan.run,
            "to_refresh",
            lambda entries, code, within, can: frozenset(),
        ),
    ),
    "intervals that the refresh makes stale are not refreshed": (
        "kafka",
        (
            tallystick.operations.plan.run,
            "to_refresh",
            lambda entries, code, within, can: frozenset(stale(entries)),
        ),
    ),
    "uncommitted ranges are not read": (
        "kafka",
        (tallystick.operations.lookback._Cuts, "unread", lambda self, gap: None),
    ),
    "rows of uncommitted ranges are dropped": ("kafka", (state_job, "_through_job", _without_rows)),
    "a run does not read what it has staged": (
        "stale",
        (
            tallystick.operations.lookback,
            "_part",
            lambda lake, entry, own, *rest, part=tallystick.operations.lookback._part: part(
                lake, entry, {}, *rest
            ),
        ),
    ),
    "a key's first record is remembered, not its last": (
        "kafka",
        (state_job, "last_seen", _first_seen),
    ),
    "aborted records do not move the clock": (
        "kafka",
        (state_job, "SplitClock", lambda span, cuts, aborted: SplitClock(span, cuts, [])),
    ),
    "a split ignores the log time of earlier splits": ("kafka", (state_job, "_clocks", _forgotten)),
    "log time goes back": ("kafka", (state_job, "_clocks", _by_time_alone)),
    "the lookback is shorter than the windows": (
        "kafka",
        (orders, "BACK", timedelta(minutes=30)),
    ),
    "sessions ignore earlier rows": (
        "kafka",
        (
            state_job,
            "closed_sessions",
            lambda rows, *rest, close=closed_sessions, **span: close(
                rows.slice(0, 0), *rest, **span
            ),
        ),
    ),
    "a gap joins sessions that it must separate": (
        "kafka",
        (state_job, "SESSIONS", replace(state_job.SESSIONS, gap=timedelta(minutes=40))),
    ),
}


@contextmanager
def dropped(patch: Patch) -> Iterator[None]:
    """Replace one guard."""
    place, name, instead = patch
    guard = getattr(place, name)
    setattr(place, name, instead)
    try:
        yield
    finally:
        setattr(place, name, guard)


@pytest.mark.parametrize("name", DROPPED)
def test_a_dropped_guard_is_detected(name: str) -> None:
    mode, patch = DROPPED[name]
    with dropped(patch):
        for seed in (DETECTED_AT.get(name, 0), *range(SEEDS_MAX)):
            try:
                orders.play(seed, mode)
            except (AssertionError, TallystickError):
                return
    pytest.fail(f"{name}: not detected by {SEEDS_MAX} orders")
