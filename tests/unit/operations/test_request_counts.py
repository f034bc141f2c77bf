"""The numbers of requests and bytes of plans and commits: a change that adds a request to each of them fails here.

The number of commits grows the ledger, the history of snapshots and the number of manifests. None of them adds a request,
except at the commit that merges manifests, and at one that divides the newest ledger page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from bench.parts.commits import CostedStore, append_hour, interval
from support.fakes import FakeLog, stage
from support.small_lake import TOPIC, SmallLake, pipeline
from tallystick.format import keys
from tallystick.operations.commit import commit
from tallystick.pipeline import Column, Pipeline, Table
from tallystick.store import Outcome
from tallystick.store.memory import MemoryStore
from tallystick.tables.reading import live_files
from tallystick.tables.snapshots import MANIFESTS_MERGED_FROM

T = TypeVar("T")
# Commits by number of declared tables; the dead letters are one table more. Only one lake is long, to save time: what
# grows with the number of commits grows for any number of tables.
COMMITS = {1: 5, 3: 60, 10: 5}
# The metadata lists up to 50 snapshots, and the newest ledger page is written again until it has 32 KiB.
COMMIT_GROWTH_MAX = 6.5
PLAN_GROWTH_MAX = 8.0


class DataBytesStore(CostedStore):
    """A costed store that also counts the bytes of data files."""

    data_bytes = 0

    def create(self, key: str, body: bytes | Path) -> Outcome:
        """Create an object. Safe to repeat: the wrapped store's `create` is."""
        if keys.kind(key) == "data file":
            self.data_bytes += len(body) if isinstance(body, bytes) else body.stat().st_size
        return super().create(key, body)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedRequests:
    """The requests of one plan or commit by verb, and the bytes that it wrote."""

    get: int
    put: int
    list: int
    delete: int = 0
    written: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedLake:
    """A lake after some commits of one hour each, and the requests of each plan and each commit, in order.

    `tables`: the number of its tables, with that of dead letters.
    """

    tables: int
    small: SmallLake
    store: DataBytesStore
    plans: list[CountedRequests] = field(default_factory=list)
    commits: list[CountedRequests] = field(default_factory=list)

    def count(self, action: Callable[[], T], into: list[CountedRequests]) -> T:
        """Return the result of an action, and append its requests to a list."""
        self.store.requests, self.store.bytes = Counter(), Counter()
        result = action()
        done = self.store.requests
        into.append(
            CountedRequests(
                get=done["GET"],
                put=done["PUT"],
                list=done["LIST"],
                delete=done["DELETE"],
                written=self.store.bytes["written"],
            )
        )
        return result


@pytest.fixture(scope="module", params=sorted(COMMITS), ids=lambda count: f"{count} tables")
def lake(request: pytest.FixtureRequest) -> CountedLake:
    """Commit hours, each with records and a dead letter, so that each table gets files."""
    declared: int = request.param

    def several(warehouse: str) -> Pipeline:
        columns = [Column("n", "long"), Column("kind", "string", required=False)]
        tables = [Table(f"events_{number}", columns=columns) for number in range(declared)]
        return replace(pipeline(warehouse), tables=tables)

    log, store = FakeLog(), DataBytesStore(MemoryStore())
    log.create(TOPIC)
    small = SmallLake(store=store, log=log, declared=several)
    made = CountedLake(tables=declared + 1, small=small, store=store)
    for number in range(COMMITS[declared]):
        append_hour(log, number)
        (planned,) = made.count(partial(small.plan, interval(number)), made.plans).intervals
        report = keys.check_report(stage(small.lake, log, planned.plan))
        step = partial(commit, small.lake, small.tables, plan_key=planned.plan, report_key=report)
        made.count(step, made.commits)
    return made


def test_requests_of_the_first_commit(lake: CountedLake) -> None:
    """Read plan, report and root; write page, record, root, and three objects per table."""
    t = lake.tables
    assert lake.commits[0] == CountedRequests(get=3, put=3 + 3 * t, list=t)


def test_requests_of_later_commits(lake: CountedLake) -> None:
    """Read also the metadata and the manifest list of each table; the 50th commit merges the manifests of each.

    The 52nd one divides the newest ledger page, which has 32 KiB then: it writes two pages.
    """
    t = lake.tables
    others = {
        50: CountedRequests(get=3 + 2 * t + MANIFESTS_MERGED_FROM * t, put=3 + 4 * t, list=t),
        52: CountedRequests(get=3 + 2 * t, put=4 + 3 * t, list=t),
    }
    usual = CountedRequests(get=3 + 2 * t, put=3 + 3 * t, list=t)
    expected = {number: others.get(number, usual) for number in range(2, len(lake.commits) + 1)}
    assert dict(enumerate(lake.commits[1:], 2)) == expected


def test_requests_of_a_plan(lake: CountedLake) -> None:
    """Read root and page, and write plan, page and root; the first plan also creates the root."""
    assert lake.plans[0] == CountedRequests(get=3, put=4, list=3)
    assert set(lake.plans[1:]) == {CountedRequests(get=2, put=3, list=0)}


def test_bytes_written_by_the_last_commit(lake: CountedLake) -> None:
    for done, growth_max in (
        (lake.plans, PLAN_GROWTH_MAX),
        (lake.commits, COMMIT_GROWTH_MAX),
    ):
        assert done[-1].written <= growth_max * done[0].written


def test_each_data_file_is_written_once_and_stays(lake: CountedLake) -> None:
    root = lake.small.lake.load_existing().root
    at_rest = sum(
        file.size_bytes
        for table in root.tables.values()
        for file in live_files(lake.store, table.metadata or "")
    )
    assert at_rest == lake.store.data_bytes > 0
