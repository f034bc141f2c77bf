"""The paged ledger: after edits in any order it answers like one page that contains everything."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.format import keys
from tallystick.format.codec import StoredObject
from tallystick.format.offsets import Position
from tallystick.format.outputs import OutputSlot
from tallystick.format.page import PAGE_BYTES_MAX, Boundary, Entry, Page, PageRef
from tallystick.format.root import Root
from tallystick.protocol.ledger import (
    Ledger,
    before_newest,
    divide_newest,
    newest_bytes_max,
    pages_between,
    split,
    without_grant,
)
from unit.format.samples import (
    SAMPLE_ROOT,
    at,
    boundary,
    committed,
    entry,
    granted,
    interval,
    uuid,
)

TINY = 600  # bytes: a page of one or two entries is full


class Stored:
    """A ledger and its stored pages."""

    def __init__(self, bytes_max: int = TINY) -> None:
        self.index: tuple[PageRef, ...] = ()
        self.pages: dict[str, Page] = {}
        self.bytes_max = bytes_max
        self.numbers = itertools.count(1)

    def window(self, start: Any, end: Any) -> Ledger:
        """Return a window with only the pages that `pages_between` names."""
        refs = pages_between(self.index, start, end)
        return Ledger(self.index, {r.key: self.pages[r.key] for r in refs})

    def pages_of(self, *refs: PageRef) -> dict[keys.PageKey, Page]:
        return {ref.key: self.pages[ref.key] for ref in refs}

    def whole(self) -> Ledger:
        return Ledger(self.index, self.pages)

    def save(self, ledger: Ledger) -> None:
        self.index, fresh = ledger.flush((uuid(n) for n in self.numbers), bytes_max=self.bytes_max)
        for key, page in fresh.items():
            assert key not in self.pages
            assert Page.decode(page.encode(), where=key) == page
            self.pages[key] = page


hours = st.lists(st.integers(0, 24), min_size=2, max_size=14, unique=True)


@given(hours, st.randoms(use_true_random=False))
def test_pages_answer_like_one_page_for_every_order_of_edits(cuts: list[int], rnd: Any) -> None:
    cuts.sort()
    spans = list(itertools.pairwise(cuts))
    rnd.shuffle(spans)
    stored = Stored()
    entries: dict[tuple[int, int], Entry] = {}
    boundaries: dict[int, Boundary] = {}
    for first, last in spans:
        ledger = stored.window(at(first), at(last))
        for hour in (first, last):
            assert ledger.boundary(at(hour)) == boundaries.get(hour)
            if hour not in boundaries:
                boundaries[hour] = boundary(hour, hour)
                ledger.set_boundary(boundaries[hour])
        entries[first, last] = entry(first, last, commit=committed(first, last))
        ledger.put(entries[first, last])
        stored.save(ledger)
        _assert_same_as_one_page(stored, entries, boundaries)


def _assert_same_as_one_page(
    stored: Stored, entries: dict[tuple[int, int], Entry], boundaries: dict[int, Boundary]
) -> None:
    assert list(stored.whole().entries) == [entries[k] for k in sorted(entries)]
    assert list(stored.whole().boundaries) == [boundaries[h] for h in sorted(boundaries)]
    assert [r.since for r in stored.index] == sorted(r.since for r in stored.index)
    for hour in range(25):
        window = stored.window(at(hour), at(hour + 1))
        left, right = window.neighbours(at(hour))
        lower, upper = [h for h in boundaries if h < hour], [h for h in boundaries if h > hour]
        assert left == (boundaries[max(lower)] if lower else None)
        assert right == (boundaries[min(upper)] if upper else None)
        overlapping = [e for e in entries.values() if e.interval.overlaps(interval(hour, hour + 1))]
        assert list(window.overlapping(interval(hour, hour + 1))) == overlapping


@given(hours)
def test_pages_respect_the_size_limit_and_untouched_pages_keep_their_keys(
    cuts: list[int],
) -> None:
    stored = Stored()
    for first, last in itertools.pairwise(sorted(cuts)):
        before = {r.key for r in stored.index}
        ledger = stored.window(at(first), at(last))
        for hour in (first, last):
            if ledger.boundary(at(hour)) is None:
                ledger.set_boundary(boundary(hour, hour))
        ledger.put(entry(first, last, commit=committed(first, last)))
        stored.save(ledger)
        unchanged = before & {r.key for r in stored.index}
        assert len(before) - len(unchanged) <= 2  # the pages of the two ends
    for page in stored.pages.values():
        assert len(page.boundaries) == 1 or len(page.encode()) <= TINY


def test_dropping_an_entry_leaves_its_boundaries() -> None:
    stored = Stored()
    ledger = stored.whole()
    ledger.set_boundary(boundary(0, 0))
    ledger.set_boundary(boundary(1, 1))
    ledger.put(entry(0, 1, grant=granted(0, 1)))
    stored.save(ledger)
    again = stored.whole()
    again.drop(interval(0, 1))
    assert again.entries == ()
    assert again.original().entries == stored.whole().entries
    stored.save(again)
    assert stored.whole().entries == ()
    assert [b.at for b in stored.whole().boundaries] == [at(0), at(1)]


def test_edits_stay_in_their_window() -> None:
    ledger = Ledger((), {})
    ledger.set_boundary(boundary(0, 0))
    copy = ledger.copy()
    copy.set_boundary(boundary(1, 0))
    copy.put(entry(0, 1, grant=granted(0, 1)))
    assert [b.at for b in ledger.boundaries] == [at(0)]
    assert ledger.entries == ()
    assert copy.entry(interval(0, 1)) is not None
    assert copy.entry(interval(0, 2)) is None
    assert ledger.flush(iter(["0" * 32]))[0][0].since == at(0)


def test_a_flush_without_edits_writes_nothing() -> None:
    assert Ledger((), {}).flush([]) == ((), {})


def test_a_boundary_is_set_once_and_an_entry_needs_both_of_its_boundaries() -> None:
    ledger = Ledger((), {})
    ledger.set_boundary(boundary(0, 0))
    with pytest.raises(ValueError, match="is already set"):
        ledger.set_boundary(boundary(0, 5))
    with pytest.raises(ValueError, match="expected a boundary at"):
        ledger.put(entry(0, 1, grant=granted(0, 1)))


def test_reading_a_page_that_is_not_loaded_is_an_error() -> None:
    ledger = Ledger((PageRef(since=at(0), until=at(1), key=keys.page(uuid(1))),), {})
    with pytest.raises(KeyError, match="is needed but not loaded"):
        ledger.overlapping(interval(0, 1))


def test_a_long_entry_is_found_by_a_window_far_after_its_start() -> None:
    stored = Stored()
    for hour in range(12):
        ledger = stored.whole()
        ledger.set_boundary(boundary(hour, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0))
        stored.save(ledger)
    ledger = stored.whole()
    ledger.put(entry(0, 11, commit=committed(0, 11)))
    stored.save(ledger)
    assert len(stored.index) >= 4
    assert [e.interval for e in stored.window(at(9), at(10)).overlapping(interval(9, 10))] == [
        interval(0, 11)
    ]


def test_cancelling_a_grant_leaves_the_committed_rows() -> None:
    pending = entry(0, 1, grant=granted(0, 1, generation=2), commit=committed(0, 1))
    left = without_grant(pending)
    assert left is not None
    assert left.granted is None
    assert left.committed == pending.committed
    assert without_grant(entry(0, 1, grant=granted(0, 1))) is None


@pytest.mark.parametrize("edits", [(0,), (19,), (10,), ()])
def test_a_page_is_split_near_its_edits(edits: tuple[int, ...]) -> None:
    page = Page(boundaries=tuple(boundary(hour, hour) for hour in range(20)))
    parts = split(page, [at(e) for e in edits], bytes_max=len(page.encode()) - 1)
    sizes = [len(p.boundaries) for p in parts]
    assert sizes == {(0,): [2, 18], (19,): [18, 2]}.get(edits, [10, 10])
    assert [b for p in parts for b in p.boundaries] == list(page.boundaries)


def _commit(stored: Stored, hour: int, *, waits: bool = False) -> set[str]:
    """Commit an hour, as a plan and a commit do; return the keys of the pages that were written.

    `waits`: leave the grant, so that the entry waits for its commit.
    """
    ledger = stored.window(at(hour), at(hour + 1))
    extra = before_newest(stored.index, ledger.loaded, bytes_max=stored.bytes_max)
    loaded = {**ledger.loaded, **{ref.key: stored.pages[ref.key] for ref in extra}}
    ledger = Ledger(stored.index, loaded)
    for one in (hour, hour + 1):
        if ledger.boundary(at(one)) is None:
            ledger.set_boundary(boundary(one, one))
    grant = granted(hour, hour + 1) if waits else None
    ledger.put(entry(hour, hour + 1, grant=grant, commit=committed(hour, hour + 1)))
    before = set(stored.pages)
    stored.save(ledger)
    return set(stored.pages) - before


def test_the_newest_page_stays_small_and_the_others_fill_up() -> None:
    """What commits in order write does not grow with the ledger."""
    stored = Stored(bytes_max=32_000)
    sizes = []
    for hour in range(400):
        keys_ = _commit(stored, hour)
        sizes.append(sum(len(stored.pages[key].encode()) for key in keys_))
        assert len(stored.pages[stored.index[-1].key].encode()) <= newest_bytes_max(32_000) + 1_000
    assert [e.interval.start for e in stored.whole().entries] == [at(h) for h in range(400)]
    entry_bytes = len(stored.pages[stored.index[0].key].encode()) / len(
        stored.pages[stored.index[0].key].entries
    )
    # One page in about seven commits is a large one, which has 16,000 bytes on average.
    assert sum(sizes[200:]) / 200 < 32_000 / 5
    assert sum(size > newest_bytes_max(32_000) + 1_000 for size in sizes) < 400 / 5
    assert len(stored.index) <= 400 * entry_bytes / 32_000 + 3


def test_entries_that_wait_stay_in_the_newest_page() -> None:
    stored = Stored(bytes_max=32_000)
    _commit(stored, 0, waits=True)
    for hour in range(1, 20):
        _commit(stored, hour)
    (only,) = stored.index
    assert len(stored.pages[only.key].encode()) > newest_bytes_max(32_000)
    # Once it is committed, all but the newest boundaries are complete.
    _commit(stored, 0)
    first, newest = (stored.pages[ref.key] for ref in stored.index)
    assert (len(first.boundaries), len(newest.boundaries)) == (19, 2)
    _commit(stored, 20, waits=True)
    for hour in range(21, 28):
        _commit(stored, hour)
    assert [len(stored.pages[ref.key].boundaries) for ref in stored.index] == [19, 10]


def test_entries_of_pending_outputs_stay_in_the_newest_page() -> None:
    page = Page(
        entries=tuple(entry(h, h + 1, commit=committed(h, h + 1)) for h in range(19)),
        boundaries=tuple(boundary(h, h) for h in range(20)),
    )
    full = 8 * len(page.encode()) - 8
    counts = []
    for pending in (3, 15, None):
        slots = {"feed": OutputSlot(wanted=uuid(1))}
        entries = tuple(
            replace(e, outputs=slots) if hour == pending else e
            for hour, e in enumerate(page.entries)
        )
        parts = divide_newest(replace(page, entries=entries), bytes_max=full)
        counts.append([len(part.boundaries) for part in parts])
    assert counts == [[20], [15, 5], [18, 2]]


def test_the_newest_page_is_not_divided_while_the_page_before_it_is_not_loaded() -> None:
    stored = Stored(bytes_max=32_000)
    for hour in range(60):
        _commit(stored, hour)
    newest = stored.index[-1]
    hour = 60
    while not before_newest(stored.index, stored.pages_of(newest), bytes_max=stored.bytes_max):
        window = Ledger(stored.index, stored.pages_of(newest))
        window.set_boundary(boundary(hour + 1, hour))
        window.put(entry(hour, hour + 1, commit=committed(hour, hour + 1)))
        stored.save(window)
        newest, hour = stored.index[-1], hour + 1
    count = len(stored.index)
    assert len(stored.pages[newest.key].encode()) > newest_bytes_max(32_000)
    window = Ledger(stored.index, stored.pages_of(newest))
    window.set_boundary(boundary(hour + 1, hour))
    stored.save(window)
    assert len(stored.index) == count
    large = stored.pages[stored.index[-1].key]
    _commit(stored, hour + 1)
    assert len(stored.pages[stored.index[-1].key].boundaries) < len(large.boundaries)


@pytest.mark.parametrize(
    ("index", "loaded", "bytes_max", "expected"),
    [
        ("", "", 8, ""),
        ("a", "a", 8, ""),
        ("ab", "a", 8, ""),
        ("ab", "ab", 8, ""),
        ("ab", "b", 8, "a"),
        ("abc", "c", 8, "b"),
        ("ab", "b", PAGE_BYTES_MAX, ""),
    ],
)
def test_the_page_before_the_newest_is_loaded_only_if_it_is_needed(
    index: str, loaded: str, bytes_max: int, expected: str
) -> None:
    refs = {
        name: PageRef(since=at(i), until=at(i), key=keys.page(uuid(i)))
        for i, name in enumerate(index)
    }
    pages = {refs[name].key: Page(boundaries=(boundary(0, 0),)) for name in loaded}
    found = before_newest(refs.values(), pages, bytes_max=bytes_max)
    assert found == tuple(refs[name] for name in expected)


def test_a_page_that_was_measured_is_not_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Encoding a full page is the largest part of a commit's own CPU time."""
    encoded: list[StoredObject] = []
    encode = StoredObject.encode

    def counted(self: StoredObject) -> bytes:
        encoded.append(self)
        return encode(self)

    monkeypatch.setattr(StoredObject, "encode", counted)
    stored = Stored(bytes_max=PAGE_BYTES_MAX)
    ledger = stored.whole()
    for hour in (0, 1):
        ledger.set_boundary(boundary(hour))
    ledger.put(entry(0, 1, grant=granted(0, 1)))
    _, fresh = ledger.flush(uuid(n) for n in stored.numbers)
    (page,) = fresh.values()
    assert page.encode() == encode(page)
    assert encoded == [page]
    # A changed page has other bytes.
    assert replace(page, entries=()).encode() != page.encode()


@pytest.mark.parametrize("forwards", [True, False])
def test_ten_years_of_hours_on_64_partitions_fit_a_root_of_100_kb(forwards: bool) -> None:
    stored = Stored(bytes_max=PAGE_BYTES_MAX)
    count, together = 400, 10
    days = range(0, count, together) if forwards else range(count - together, -1, -together)
    for first in days:
        ledger = stored.window(at(first), at(first + together))
        for hour in range(first, first + together + 1):
            if ledger.boundary(at(hour)) is None:
                positions = tuple(
                    Position(offset=10**9 + hour * 10**6 + p, leader_epoch=3) for p in range(64)
                )
                ledger.set_boundary(Boundary(at=at(hour), positions={"orders": positions}))
        for hour in range(first, first + together):
            ledger.put(entry(hour, hour + 1, commit=committed(hour, hour + 1, records=10**6)))
        stored.index, fresh = ledger.flush(uuid(n) for n in stored.numbers)
        stored.pages.update(fresh)
    assert all(len(stored.pages[r.key].encode()) <= PAGE_BYTES_MAX for r in stored.index)
    full = max(len(stored.pages[r.key].entries) for r in stored.index)
    # The count must show how pages fill up over time: most intervals are in full pages.
    assert len(stored.index) <= count / full + 3
    pages = -(-10 * 365 * 24 // full)
    index = tuple(
        PageRef(since=at(i * full), until=at((i + 1) * full), key=keys.page(uuid(i)))
        for i in range(pages)
    )
    root = Root(
        pipeline="orders",
        version=10**6,
        id=uuid(1),
        record=SAMPLE_ROOT.record,
        tables=SAMPLE_ROOT.tables,
        topics=SAMPLE_ROOT.topics,
        pages=index,
    )
    assert len(root.encode()) < 100_000, f"{pages} pages of {full} intervals"
