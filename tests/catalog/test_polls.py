"""Polls of two tables while commits, a compaction and gc run: `make bench-polls` in small; and its checks can fail."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyiceberg.exceptions import RESTError

from bench.parts.polls import PollsOptions, run
from bench.parts.polls_client import (
    CatalogPlaces,
    PollFailure,
    connected,
    counts_of,
    http_answer,
    pair_of,
    session_version,
)
from bench.parts.polls_client import session as client_session
from bench.parts.polls_history import (
    TABLES,
    Client,
    History,
    HistoryVersion,
    Poll,
    SeenVersion,
    is_overtaken,
    problems,
)
from bench.parts.polls_lake import PairsWriter, read_history, steps
from catalog.conftest import BUCKET, lake_through, serving, session

URI = f"s3://{BUCKET}/polls/pairs"
AT = datetime(2026, 11, 26, 10, tzinfo=UTC)


def test_no_poll_sees_two_versions_while_commits_a_compaction_and_gc_run(
    s3: str, tmp_path: Path
) -> None:
    wanted = PollsOptions(uri=URI, polls=120, commits=15, base=5, pollers=2, every=12)
    result = run(wanted, s3, tmp_path)
    found = (result.reasons(wanted), result.problems[:3], result.failures[:3])
    assert found == ([], [], [])


def test_tables_of_two_sessions_with_a_commit_between_them_are_found(s3: str) -> None:
    """What a catalog without pinned sessions would answer."""
    uri = f"{URI}-mixed"
    writer = PairsWriter(uri=uri, steps=steps(5))
    seen = [writer.commit_next() for _ in range(4)]
    with serving({"pairs": lake_through("pairs", uri, s3)}, s3) as url:
        before = session(url)
        first = before.load_table(("pairs", TABLES[0]))
        same = before.load_table(("pairs", TABLES[1]))
        began_s = time.time()
        seen.append(writer.commit_next())
        second = session(url).load_table(("pairs", TABLES[1]))
        history = read_history(writer.small.lake, seen)
        poll = Poll(
            number=0,
            client="pyiceberg",
            mode="newest",
            began_s=began_s,
            ended_s=time.time(),
            steps_s=(),
            first=0,
            session=session_version(before),
            pair=pair_of(first, same),
            counts=(counts_of(first), counts_of(same)),
        )
        mixed = replace(poll, pair=pair_of(first, second), counts=None)
        rows = replace(
            poll, client="duckdb", pair=None, counts=(counts_of(first), counts_of(second))
        )
    assert list(problems(history, poll)) == []
    assert is_overtaken(history, poll)
    assert list(history.record_problems(seen)) == []
    assert kinds(history, mixed) == ["mixed"]
    assert kinds(history, rows) == ["mixed"]
    with_root = replace(seen[-1], pair=mixed.pair)
    assert [one.kind for one in history.record_problems([with_root])] == ["record"]


# ---------------------------------------------------------------- the checks, without servers


def version(number: int, pair: tuple[str, str], **counts: int) -> HistoryVersion:
    """Return a version that was committed as many minutes after AT as its number."""
    return HistoryVersion(
        version=number,
        committed_at=AT + timedelta(minutes=number),
        pair=pair,
        counts={int(name[1:]): rows for name, rows in counts.items()},
    )


def kinds(history: History, poll: Poll) -> Sequence[str]:
    return [one.kind for one in problems(history, poll)]


HISTORY = History(
    [
        version(2, ("a2", "b2"), i0=1),
        version(4, ("a4", "b4"), i0=1, i1=5),
        version(7, ("a7", "b4"), i0=1, i1=5),  # a compaction of one table
        version(9, ("a9", "b9"), i0=4, i1=5),
    ],
    [SeenVersion(version=4, at_s=40.0), SeenVersion(version=9, at_s=90.0)],
)
TWO, FOUR, NINE = ({0: 1}, {0: 1, 1: 5}, {0: 4, 1: 5})
SEEN = Poll(
    number=0, client="pyiceberg", mode="newest", began_s=50.0, ended_s=51.0, steps_s=(), first=0
)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"session": 4, "pair": ("a4", "b4")}, []),
        ({"session": 7, "pair": ("a7", "b4")}, []),
        ({"session": 9, "pair": ("a9", "b9"), "counts": (NINE, NINE)}, []),
        ({"session": 4, "pair": ("a4", "b9")}, ["mixed"]),
        ({"session": 9, "pair": ("a7", "b9")}, ["mixed"]),
        ({"session": 4, "pair": ("a4", "unknown")}, ["mixed"]),
        ({"session": 4, "pair": ("a7", "b4")}, ["wrong version"]),
        ({"session": None, "pair": ("a4", "b4")}, ["wrong version"]),
        ({"session": 2, "pair": ("a2", "b2")}, ["stale"]),
        ({"session": 4, "pair": ("a4", "b4"), "counts": (FOUR, NINE)}, ["wrong rows"]),
        # A version that the warehouse names.
        ({"session": 2, "asked": 2, "pair": ("a2", "b2")}, []),
        ({"session": 4, "asked": 2, "pair": ("a4", "b4")}, ["wrong version"]),
        # An instant.
        ({"session": 2, "asked": AT + timedelta(minutes=3), "pair": ("a2", "b2")}, []),
        ({"session": 4, "asked": AT + timedelta(minutes=8), "pair": ("a4", "b4")}, []),
        (
            {"session": 4, "asked": AT + timedelta(minutes=3), "pair": ("a4", "b4")},
            ["wrong version"],
        ),
        ({"session": 2, "asked": AT + timedelta(minutes=4), "pair": ("a2", "b2")}, ["stale"]),
        # The newest version at each request.
        ({"mode": "latest", "pair": ("a4", "b9")}, []),
        ({"mode": "latest", "pair": ("a9", "b4"), "first": 1}, []),
        ({"mode": "latest", "pair": ("a9", "b4")}, ["stale"]),
        ({"mode": "latest", "pair": ("a2", "b4")}, ["stale"]),
        ({"mode": "latest", "pair": ("a4", "unknown")}, ["unknown"]),
        ({"mode": "latest", "pair": ("a4", "b9"), "counts": (FOUR, NINE)}, []),
        ({"mode": "latest", "pair": ("a4", "b9"), "counts": (FOUR, FOUR)}, ["wrong rows"]),
        # Rows alone.
        ({"client": "duckdb", "counts": (FOUR, FOUR)}, []),
        ({"client": "duckdb", "counts": (FOUR, NINE)}, ["mixed"]),
        ({"client": "duckdb", "counts": ({0: 3}, {0: 3})}, ["wrong rows"]),
        ({"client": "duckdb", "counts": (TWO, TWO)}, ["stale"]),
        ({"client": "duckdb", "asked": 7, "counts": (NINE, NINE)}, ["wrong version"]),
    ],
)
def test_each_broken_promise_is_found(changed: dict[str, Any], expected: list[str]) -> None:
    assert kinds(HISTORY, replace(SEEN, **changed)) == expected


@pytest.mark.parametrize(
    ("client", "status", "retry_after", "is_retryable"),
    [
        ("pyiceberg", 503, "5", True),
        ("pyiceberg", 503, None, False),
        ("pyiceberg", 404, "5", False),
        ("pyiceberg", None, None, False),
        ("duckdb", 503, None, True),
        ("duckdb", 404, None, False),
    ],
)
def test_only_a_503_with_retry_after_is_retryable(
    client: Client, status: int | None, retry_after: str | None, is_retryable: bool
) -> None:
    failure = PollFailure(
        number=0,
        client=client,
        mode="newest",
        step="table",
        kind="Error",
        status=status,
        retry_after=retry_after,
        message="",
        after_s=0.0,
    )
    assert failure.is_retryable is is_retryable


def test_the_status_of_an_answer_is_found_in_the_errors_of_both_clients(
    catalog: str, s3: str
) -> None:
    """The lake of flights has no version 99."""
    places = CatalogPlaces(free=catalog, guarded=catalog, token="", lake="flights", s3=s3)
    with pytest.raises(RESTError) as of_pyiceberg:
        client_session(places, "version", "flights@99")
    attach = f"ATTACH 'flights@99' AS lakes (TYPE iceberg, ENDPOINT '{catalog}', AUTHORIZATION_TYPE 'none')"
    with connected(s3) as connection, pytest.raises(duckdb.Error) as of_duckdb:
        connection.execute(attach)
    assert [http_answer(one.value) for one in (of_pyiceberg, of_duckdb)] == [(404, None)] * 2
