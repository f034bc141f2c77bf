"""The axis of `bench.parts.scale` that reads: the status of a lake of many hours."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from bench.parts.commits import CostedStore
from bench.parts.scale_cost import Figures, measured, named
from tallystick.cli import status_text
from tallystick.format import keys
from tallystick.format.interval import Interval, Request
from tallystick.format.offsets import Position
from tallystick.format.page import PAGE_BYTES_MAX, Boundary, Committed, Entry, Page, PageRef, Totals
from tallystick.format.root import Root, RootTopic
from tallystick.lake import Lake
from tallystick.operations.status import problems, read_status
from tallystick.runtime import system_runtime
from tallystick.store.memory import MemoryStore

START = datetime(2013, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
TOPIC = "events"
PARTITIONS = 3
RECORDS = 100
SHOWN = 50
FINGERPRINT = "f" * 64


def status(size: int) -> list[Figures]:
    """Read the status of a lake of `size` committed hours as `tally status` does, and print it into a string.

    `all`: the same with every interval, as for `--limit 0` and `--json`.
    """
    store = CostedStore(MemoryStore())
    lake = make_lake(store, size)
    answer, read = measured(store, lambda: read_status(lake, newest=SHOWN))
    whole, read_all = measured(store, lambda: read_status(lake))
    assert answer.committed_count == len(whole.committed) == size
    assert answer.totals == whole.totals
    assert not answer.gaps

    def text() -> str:
        return status_text.status(answer, limit=SHOWN, problems=problems(answer))

    _, printed = measured(store, text)
    return [{**named("read", read), **named("text", printed), **named("all", read_all)}]


def make_lake(store: CostedStore, size: int) -> Lake:
    """Write a root and the pages of `size` committed hours of one topic. There are no plans, records or tables.

    Safe to repeat: a second call on the same store changes nothing.
    """
    uuids = (f"{number:032x}" for number in itertools.count(1))
    row = entries(uuids, size)
    at_once = hours_per_page(list(entries(uuids, 100)))
    refs: list[PageRef] = []
    for first in range(0, size, at_once):
        part = tuple(itertools.islice(row, at_once))
        # The last page also has the boundary at which the last interval ends.
        stop = first + len(part) + (first + len(part) == size)
        page = Page(entries=part, boundaries=tuple(boundary(n) for n in range(first, stop)))
        key = keys.page(next(uuids))
        store.create(key, page.encode())
        refs.append(PageRef(since=page.since, until=page.until, key=key))
    root = Root(
        pipeline="hours",
        version=size + 1,
        id=next(uuids),
        record=None,
        tables={},
        pages=tuple(refs),
        topics={
            TOPIC: RootTopic(topic_id="id", cluster_id="cluster", origins=(0,) * PARTITIONS),
        },
        outputs={},
        pending=(),
        uri=store.uri,
    )
    store.create(keys.ROOT, root.encode())
    return Lake(store, system_runtime(), proven=True)


def hours_per_page(some: list[Entry]) -> int:
    """Return the hours in a page that was filled hour by hour: nine tenths of the bytes at which a page is split."""
    page = Page(entries=tuple(some), boundaries=tuple(boundary(n) for n in range(len(some) + 1)))
    return max(1, round(0.9 * PAGE_BYTES_MAX / (len(page.encode()) / len(some))))


def boundary(number: int) -> Boundary:
    """Return the boundary at which an hour begins."""
    here = Position(offset=number * RECORDS, leader_epoch=0)
    return Boundary(at=START + number * HOUR, positions={TOPIC: (here,) * PARTITIONS})


def entries(uuids: Iterator[str], size: int) -> Iterator[Entry]:
    """Yield the entries of committed hours."""
    for number in range(size):
        start = START + number * HOUR
        request = Request(dag="hours", run=f"scheduled__{start.isoformat()}", clear=0)
        committed = Committed(
            plan=keys.plan(start, start + HOUR, next(uuids)),
            request=request,
            generation=1,
            fingerprint=FINGERPRINT,
            record=keys.record(number + 2, next(uuids)),
            totals=Totals(records=RECORDS * PARTITIONS),
        )
        yield Entry(
            interval=Interval(start=start, end=start + HOUR),
            generation=1,
            granted=None,
            committed=committed,
        )
