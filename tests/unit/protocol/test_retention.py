"""The keys that gc keeps and deletes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from tallystick.format import keys
from tallystick.format.compaction import CompactionGrant
from tallystick.format.page import Page, PageRef
from tallystick.format.root import Root
from tallystick.protocol.ledger import Ledger
from tallystick.protocol.retention import mark, parent_outside_chain, set_back, to_cancel
from unit.format.samples import (
    SAMPLE_RECORD,
    SAMPLE_ROOT,
    T0,
    at,
    boundary,
    committed,
    entry,
    granted,
    interval,
    plan_key,
    uuid,
)

PART = interval(0, 1).part
OTHER = interval(5, 6).part


def data(part: str, plan: int, file: int = 9) -> str:
    return f"tables/flights/data/{part}/{uuid(plan)}/a1/0-{uuid(file)}.parquet"


def page_ref(number: int) -> PageRef:
    return PageRef(since=T0, until=at(1), key=keys.page(uuid(number)))


def metadata_file(table: str, number: int) -> str:
    return f"tables/{table}/metadata/{number:05d}-{UUID(int=number)}.metadata.json"


GRANTED = entry(0, 1, grant=granted(0, 1, generation=3), commit=committed(0, 1, generation=2))
MOVED = replace(committed(2, 3), compactions={"flights": keys.CompactionId(uuid(40))})
MARKED = mark(
    replace(
        SAMPLE_ROOT,
        pages=(page_ref(1),),
        compacting=(CompactionGrant(key=keys.compaction("flights", uuid(41)), granted_at=T0),),
    ),
    [GRANTED, entry(2, 3, commit=MOVED), entry(7, 8, grant=granted(7, 8))],
    retained=[replace(SAMPLE_RECORD, pages=(page_ref(2),))],
    reached=[
        data(OTHER, 7),
        metadata_file("flights", 1),
        keys.shared_file("flights", uuid(43), "0", uuid(1)),
        metadata_file("shared", 1),
    ],
    reports=[keys.report(at(2), at(3), "a1", uuid(5))],
    others=[keys.probe(uuid(8))],
)


@pytest.mark.parametrize(
    "key",
    [
        "root.json",
        "commits/000000000099-" + uuid(1) + ".json",
        "readme.txt",
        keys.calls("feed", PART, uuid(9), 0, 500),
        keys.call_try("feed", 40 * "a", 1),
        keys.call_sent("feed", 40 * "a"),
        "tables/flights/data/by-hand.parquet",
        page_ref(1).key,
        page_ref(2).key,
        metadata_file("flights", 1),
        data(OTHER, 7),
        plan_key(0, 1, 3),
        plan_key(0, 1, 2),
        keys.claim(plan_key(0, 1, 3)),
        data(PART, 3),
        data(interval(7, 8).part, 1),
        f"scratch/{PART}/{uuid(3)}/a1/{uuid(4)}.json",
        keys.report(at(0), at(1), "a2", uuid(6)),
        keys.report(at(2), at(3), "a1", uuid(5)),
        keys.probe(uuid(8)),
        keys.compaction("flights", uuid(40)),
        keys.compaction("flights", uuid(41)),
        keys.shared_file("flights", uuid(41), "0", uuid(1)),
        keys.row_order("flights", uuid(40), "0", uuid(1)),
        keys.row_order("flights", uuid(43), "0", uuid(1)),
        keys.row_order("flights", uuid(41), "0", uuid(1)),
    ],
)
def test_a_needed_key_is_kept(key: str) -> None:
    assert MARKED.keeps(key)


@pytest.mark.parametrize(
    "key",
    [
        page_ref(3).key,
        metadata_file("flights", 2),
        data(OTHER, 8),
        data(OTHER, 7, file=10),
        data(PART, 2),
        plan_key(0, 1, 1),
        plan_key(5, 6, 3),
        keys.claim(plan_key(0, 1, 2)),
        keys.claim(plan_key(5, 6, 3)),
        f"scratch/{PART}/{uuid(2)}/a1/{uuid(4)}.json",
        keys.report(at(2), at(3), "a2", uuid(6)),
        keys.probe(uuid(9)),
        keys.probe(uuid(9)) + "-absent",
        keys.compaction("flights", uuid(42)),
        # The tables' metadata names the files of a published compaction, if they need them.
        keys.shared_file("flights", uuid(40), "0", uuid(1)),
        keys.row_order("flights", uuid(42), "0", uuid(1)),
        keys.deletes("flights", uuid(1)),
    ],
)
def test_a_key_that_nothing_needs_is_deleted(key: str) -> None:
    assert not MARKED.keeps(key)


def test_only_grants_planned_before_the_limit_are_cancelled() -> None:
    old, new = entry(0, 1, grant=granted(0, 1)), entry(1, 2, grant=granted(1, 2))
    rows = entry(2, 3, commit=committed(2, 3))
    planned = {plan_key(0, 1): T0, plan_key(1, 2): T0 + timedelta(hours=2)}
    limit = T0 + timedelta(hours=1)
    assert to_cancel([old, new, rows], planned, older_than=limit) == (old,)
    assert to_cancel([old], planned, older_than=T0) == ()


def test_cancelling_a_grant_leaves_the_committed_rows_or_a_gap() -> None:
    page = Page(
        entries=(GRANTED, entry(1, 2, grant=granted(1, 2))),
        boundaries=tuple(boundary(hour, 0) for hour in range(3)),
    )
    ref = PageRef(since=page.since, until=page.until, key=page_ref(1).key)
    ledger = Ledger([ref], {ref.key: page})
    for with_grant in ledger.entries:
        ledger.cancel(with_grant.interval)
    assert ledger.entries == (replace(GRANTED, granted=None),)


def at_version(number: int) -> Root:
    return replace(SAMPLE_ROOT, version=number, record=None)


def test_a_record_of_a_later_root_shows_that_the_root_was_set_back() -> None:
    records = [keys.record(v, uuid(v)) for v in (3, 7, 5)]
    assert set_back(at_version(7), records) is None
    assert set_back(at_version(6), records) is None  # a commit in progress, or one that was lost
    assert set_back(at_version(5), records) == records[1]
    assert set_back(at_version(5), []) is None


def test_a_stray_record_whose_parent_is_not_in_the_chain_comes_from_another_root() -> None:
    lost = replace(SAMPLE_RECORD, parent=keys.record(1, uuid(1)))
    first = replace(SAMPLE_RECORD, parent=None)
    pairs = [(first.key, first.parent), (lost.key, lost.parent)]
    assert parent_outside_chain(frozenset({keys.record(1, uuid(1))}), pairs) is None
    assert parent_outside_chain(frozenset(), pairs) == lost.key
