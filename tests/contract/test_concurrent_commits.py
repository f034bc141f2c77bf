"""200 concurrent commits of 20 plans on real S3 servers: each plan is committed once, and the ledger has no gap.

`make test` uses the server that answers several requests at once, `make test-long` also the one that answers one by one.
"""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from support.fakes import FakeLog, stage
from support.small_lake import TOPIC, SmallLake, day, days
from tallystick.format.offsets import OffsetRange, tile
from tallystick.lake import Lake
from tallystick.operations.commit import CommitResult, commit
from tallystick.operations.gc import Collection, collect
from tallystick.operations.verify import Demands, verify
from tallystick.runtime import system_runtime
from tallystick.store.s3 import S3Store
from tallystick.tables.reach import IcebergReach
from tallystick.tables.staging import IcebergTables

PLANS, COMMITS, WRITERS, PARTITIONS = 20, 200, 16, 2
COLLECTED = 4
SERVERS = [pytest.param("on_ministack", marks=pytest.mark.long), "on_versitygw"]


@pytest.mark.parametrize("server", SERVERS)
def test_200_concurrent_commits_of_20_plans_commit_each_once(
    lake_uri: str, server: str, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(server)
    log = FakeLog()
    log.create(TOPIC, partitions=PARTITIONS)
    for number in range(1, PLANS + 1):
        for partition in range(PARTITIONS):
            for n in range(3):
                log.append(TOPIC, partition, day(number), n=n, kind="k")
    small = SmallLake(store=S3Store(lake_uri), log=log, runtime=system_runtime())
    staged: list[tuple[str, str]] = []
    for number in range(1, PLANS + 1):
        (planned,) = small.plan(days(number, number + 1)).intervals
        staged.append((planned.plan, stage(small.lake, log, planned.plan)))
    own = threading.local()

    def commit_one(index: int) -> CommitResult:
        # Each thread behaves like its own process: it shares no connection, cache or table.
        if not hasattr(own, "lake"):
            own.lake = Lake(S3Store(lake_uri), system_runtime(), proven=True)
            own.tables = IcebergTables(own.lake.store, own.lake.runtime)
        plan_key, report_key = staged[index % PLANS]
        return commit(own.lake, own.tables, plan_key=plan_key, report_key=report_key)

    with ThreadPoolExecutor(WRITERS) as pool:
        results = list(pool.map(commit_one, range(COMMITS)))
    published = Counter(r.plan for r in results if not r.already)
    assert published == Counter([plan_key for plan_key, _ in staged])
    assert len(results) == COMMITS
    assert_tiles(small, log)


@pytest.mark.parametrize("server", SERVERS)
def test_collections_during_commits_delete_nothing_that_is_needed(
    lake_uri: str, server: str, request: pytest.FixtureRequest
) -> None:
    """C13: 2 writers stage, commit and replace 4 plans while gc runs repeatedly without any grace."""
    request.getfixturevalue(server)
    log = FakeLog()
    log.create(TOPIC, partitions=PARTITIONS)
    for number in range(1, COLLECTED + 1):
        for n in range(3):
            log.append(TOPIC, number % PARTITIONS, day(number), n=n, kind="k")
    small = SmallLake(store=S3Store(lake_uri), log=log, runtime=system_runtime())
    small.plan(days(1, 2))  # the root exists before gc reads it
    done = threading.Event()

    def collect_repeatedly() -> list[Collection]:
        store = S3Store(lake_uri)
        rounds: list[Collection] = []
        while not done.is_set() or len(rounds) < 3:
            lake = Lake(store, system_runtime(), proven=True)
            rounds.append(
                collect(
                    lake,
                    IcebergReach(store),
                    delete=True,
                    reader_grace=timedelta(0),
                    cancel_after=None,
                )
            )
        return rounds

    def run_twice(number: int) -> None:
        own = SmallLake(store=S3Store(lake_uri), log=log, runtime=system_runtime())
        own.run(days(number, number + 1))
        own.job = b"version 2"
        own.run(days(number, number + 1), clear=1)

    with ThreadPoolExecutor(1) as gc, ThreadPoolExecutor(2) as writers:
        collections = gc.submit(collect_repeatedly)
        try:
            list(writers.map(run_twice, range(1, COLLECTED + 1)))
        finally:
            done.set()
        rounds = collections.result()
    assert sum(r.total.objects for r in rounds) > COLLECTED
    proof = verify(small.lake, deep=True, demands=Demands(every_record=frozenset({"events"})))
    assert proof.proven, proof
    assert [e.generation for e in small.lake.load_existing().whole_ledger().entries] == [
        2
    ] * COLLECTED


def assert_tiles(small: SmallLake, log: FakeLog) -> None:
    ledger = small.lake.load_existing().whole_ledger()
    assert [e.granted for e in ledger.entries] == [None] * PLANS
    for partition in range(PARTITIONS):
        ranges = []
        for entry in ledger.entries:
            start, end = (ledger.boundary(at) for at in (entry.interval.start, entry.interval.end))
            assert start is not None
            assert end is not None
            origins = {TOPIC: (0,) * PARTITIONS}
            ranges.append(
                OffsetRange(
                    start=start.position(TOPIC, partition, origins).offset,
                    end=end.position(TOPIC, partition, origins).offset,
                )
            )
        assert tile(ranges) == OffsetRange(start=0, end=log.topics[TOPIC].partitions[partition].end)
    record_key = small.lake.load_existing().root.record
    plans: list[str] = []
    while record_key is not None:
        record = small.lake.record(record_key)
        assert record is not None
        plans += [c.plan for c in record.intervals]
        record_key = record.parent
    assert len(plans) == len(set(plans)) == PLANS
