"""What is read of a lake: never a wrong version, also if the lake is collected, set back, replaced or slow."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from support.small_lake import DAY, SmallLake, days
from tallystick.catalog import lakes as module
from tallystick.catalog.errors import CatalogError
from tallystick.catalog.lakes import LakeVersion, ServedLake
from tallystick.catalog.results import TableResults, client_settings
from tallystick.catalog.versions import ExactCommit
from tallystick.errors import IdentityChanged, RootVanished, StoreUnavailable
from tallystick.format import keys
from tallystick.operations.gc import collect
from tallystick.runtime import system_runtime
from tallystick.store import Stored
from tallystick.store.memory import MemoryStore
from tallystick.tables.reach import IcebergReach

ANSWER_S = 5.0
NO_TIME = timedelta(0)
FIRST = 3
"""The version of the first commit of the good lake."""


def at_once(lake: SmallLake, *, answer_s: float = ANSWER_S) -> ServedLake:
    """Return the lake for a catalog that reads the root each time."""
    return ServedLake("small", lake.store, answer_s=answer_s, fresh_s=0)


def own_ids() -> SmallLake:
    """Return a lake whose records have random ids, as on a real store."""
    return SmallLake(store=MemoryStore("small"), runtime=system_runtime())


def commit_of(found: LakeVersion) -> ExactCommit:
    assert found.record is not None
    return ExactCommit.of(found.record)


def collected(lake: SmallLake) -> None:
    """Delete all that the current root does not need."""
    collect(
        lake.lake, IcebergReach(lake.store), delete=True, reader_grace=NO_TIME, cancel_after=None
    )


def reads(lake: SmallLake, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of the keys that are read from now on."""
    found: list[str] = []
    get = lake.store.get

    def noting(key: str) -> Stored | None:
        found.append(key)
        return get(key)

    monkeypatch.setattr(lake.store, "get", noting)
    return found


def test_each_version_has_the_tables_of_its_commit(small: SmallLake) -> None:
    served = at_once(small)
    for key in small.keys(keys.COMMITS_PREFIX):
        record = small.lake.record(key)
        assert record is not None
        found = served.at(record.version)
        assert found.record == record.key
        assert found.tables == {name: table.metadata for name, table in record.tables.items()}
        assert served.at(commit_of(found)) == found


def test_an_instant_finds_the_last_commit_before_it() -> None:
    lake = own_ids()
    lake.run(days(1, 2))
    first = at_once(lake).at("newest")
    assert first.record is not None
    record = lake.lake.record(first.record)
    assert record is not None
    lake.run(days(2, 3))
    assert at_once(lake).at(record.committed_at) == first
    with pytest.raises(CatalogError, match="Nothing was committed to small by 2013-01-01"):
        at_once(lake).at(DAY)


def test_a_commit_record_is_read_once(small: SmallLake, monkeypatch: pytest.MonkeyPatch) -> None:
    served = ServedLake("small", small.store, answer_s=ANSWER_S, fresh_s=3600)
    read = reads(small, monkeypatch)
    first = served.at(FIRST)
    chain = [key for key in read if key.startswith(keys.COMMITS_PREFIX)]
    assert len(chain) == len(set(chain)) > 2
    read.clear()
    assert served.at(FIRST) == first
    assert read == []


def test_a_version_that_another_server_named_is_found_before_the_root_is_old(
    small: SmallLake,
) -> None:
    served = ServedLake("small", small.store, answer_s=ANSWER_S, fresh_s=3600)
    served.at(10)
    small.run(days(4, 5))
    newest = at_once(small).at("newest")
    assert served.at(commit_of(newest)) == newest
    with pytest.raises(CatalogError, match="has no version 99"):
        served.at(99)


def test_a_version_that_gc_collected_is_never_answered_from_memory(small: SmallLake) -> None:
    served, results = at_once(small), TableResults({"small": {}})
    old = commit_of(served.at("newest"))
    kept = results.load(served, old, "events", "all")
    assert results.load(served, old, "events", "all") is kept
    small.run(days(4, 5))
    assert results.load(served, old, "events", "all") is kept
    collected(small)
    with pytest.raises(CatalogError, match="Begin a new session") as caught:
        results.load(served, old, "events", "all")
    assert (caught.value.status, caught.value.kind) == (404, "NotFoundException")
    with pytest.raises(CatalogError, match="gc has deleted"):
        served.check_not_collected(served.at(old))
    assert results.load(served, "latest", "events", "all") is not kept


def test_a_reader_of_the_newest_version_is_not_disturbed_by_commits_and_gc(
    small: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the root and the metadata, a commit lands and gc deletes what the root named."""
    served, results = at_once(small), TableResults({"small": {}})
    get = small.store.get
    stale = served.at("newest")
    moved: list[str] = []

    def racing(key: str) -> Stored | None:
        if key == stale.tables["events"] and not moved:
            moved.append(key)
            small.run(days(4, 5))
            collected(small)
        return get(key)

    monkeypatch.setattr(small.store, "get", racing)
    found = results.load(served, "latest", "events", "all")
    assert moved
    assert served.at("newest").metadata_key("events").encode() in found.body


def test_a_lake_that_was_set_back_does_not_answer_for_its_lost_commits() -> None:
    lake = own_ids()
    lake.run(days(1, 2))
    before = lake.store.get(keys.ROOT)
    assert before is not None
    lake.run(days(2, 3))
    served = at_once(lake)
    lost = served.at("newest")
    lake.overwrite(keys.ROOT, before.body)
    with pytest.raises(CatalogError, match=f"no longer has the version {lost.version}"):
        served.at(commit_of(lost))
    other = SmallLake(store=lake.store, log=lake.log, runtime=system_runtime(), job=b"other")
    other.run(days(2, 3))
    again = served.at("newest")
    assert again.version == lost.version
    with pytest.raises(CatalogError, match=f"no longer has the version {lost.version}"):
        served.at(commit_of(lost))


def test_a_lake_that_was_replaced_does_not_answer_for_the_one_before() -> None:
    lake = own_ids()
    lake.run(days(1, 2))
    served, results = at_once(lake), TableResults({"small": {}})
    old = commit_of(served.at("newest"))
    results.load(served, old, "events", "all")
    lake.store.delete(lake.keys(""))
    with pytest.raises(Exception, match="nothing has been planned"):
        served.at(old)
    new = SmallLake(store=lake.store, log=lake.log, runtime=system_runtime())
    new.run(days(1, 2))
    assert served.at("newest").version == old.version
    with pytest.raises(CatalogError, match="set back or replaced"):
        results.load(served, old, "events", "all")


def test_a_root_that_is_gone_or_a_copy_is_an_error_and_no_empty_lake(small: SmallLake) -> None:
    root = small.store.get(keys.ROOT)
    assert root is not None
    small.store.delete([keys.ROOT])
    with pytest.raises(RootVanished):
        at_once(small).at("newest")
    copy = MemoryStore("copy")
    copy.create(keys.ROOT, root.body)
    with pytest.raises(IdentityChanged):
        ServedLake("copy", copy, answer_s=ANSWER_S).at("newest")


def test_a_long_chain_of_commits_is_read_over_several_requests(small: SmallLake) -> None:
    """Each request has no time left after its first record, so each reads one more."""
    clock = iter(range(0, 10_000, 3))
    runtime = system_runtime()
    ticking = type(runtime)(
        now=runtime.now,
        uuid=runtime.uuid,
        monotonic_s=lambda: float(next(clock)),
        sleep=runtime.sleep,
        chance=runtime.chance,
    )
    served = ServedLake("small", small.store, answer_s=4, fresh_s=0, runtime=ticking)
    commits = len(small.keys(keys.COMMITS_PREFIX))
    for _ in range(commits - 1):
        with pytest.raises(StoreUnavailable, match="found 1 commits that are newer") as caught:
            served.at(FIRST)
        assert "continues" in caught.value.hint
    assert served.at(FIRST) == at_once(small).at(FIRST)


def test_a_store_that_hangs_takes_a_few_threads_and_not_more(
    small: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAIT_S", 0.01)
    served = at_once(small)
    let_go, hanging = threading.Event(), threading.Semaphore(0)
    get = small.store.get

    def slow(key: str) -> Stored | None:
        hanging.release()
        let_go.wait()
        return get(key)

    monkeypatch.setattr(small.store, "get", slow)
    threads = [
        threading.Thread(target=served.at, args=("newest",)) for _ in range(module.READERS_MAX)
    ]
    try:
        for thread in threads:
            thread.start()
        for _ in threads:
            assert hanging.acquire(timeout=30)
        with pytest.raises(StoreUnavailable, match="are waiting for the store"):
            served.at("newest")
    finally:
        let_go.set()
        for thread in threads:
            thread.join()
    assert served.at("newest").version == 10


@pytest.mark.parametrize(
    ("endpoint", "sent"),
    [
        (None, None),
        ("https://s3.eu-west-1.amazonaws.com", None),
        ("https://s3.cn-north-1.amazonaws.com.cn", None),
        ("http://127.0.0.1:9000", "http://127.0.0.1:9000"),
        ("https://amazonaws.com.evil.example", "https://amazonaws.com.evil.example"),
    ],
)
def test_clients_get_the_endpoint_of_another_server_than_aws(
    endpoint: str | None, sent: str | None
) -> None:
    found = client_settings(endpoint, "eu-west-1")
    assert found.get("s3.endpoint") == sent
    assert found.get("s3.region") == (None if endpoint is None else "eu-west-1")


def test_a_whole_lake_is_at_version_0_before_its_first_commit() -> None:
    lake = SmallLake(store=MemoryStore("small"))
    lake.plan(days(1, 2))
    served = at_once(lake)
    assert (served.at("newest").version, served.at("newest").names) == (0, ())
    assert served.at(0).names == ()
    with pytest.raises(CatalogError, match="Nothing was committed"):
        served.at(1)
