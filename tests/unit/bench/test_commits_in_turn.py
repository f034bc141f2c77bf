"""The benchmark of commits: what one commit took, and a lake of many intervals compared with one of few."""

from __future__ import annotations

import gc

from bench.parts.commits import GrowingLake, compared, line


def test_a_commit_has_its_own_requests_and_the_collector_gets_all_objects_back() -> None:
    lake = GrowingLake(partitions=2)
    first, second = lake.commit_next(), lake.commit_next()
    assert (lake.committed, gc.get_freeze_count()) == (2, 0)
    assert first.cpu_s > 0
    assert (first.requests["GET"], second.requests["GET"]) == (3, 9)
    assert first.bytes["written"] < second.bytes["written"]
    assert line(2, [second]).split()[2:5] == ["9", "12", "3"]


def test_both_lakes_get_as_many_further_commits() -> None:
    young, grown = GrowingLake(partitions=1), GrowingLake(partitions=1)
    for lake, commits in ((young, 1), (grown, 3)):
        for _ in range(commits):
            lake.commit_next()
    text = compared(young, grown, 2)
    assert (young.committed, grown.committed) == (3, 5)
    assert text.startswith("after 1 and after 3 intervals, 2 commits each in turn: median ")
