"""The sums of a page's bytes are those of its entries, and a page with an interval that must be reported has none."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.errors import Corrupt
from tallystick.format import canonical
from tallystick.format.interval import Request
from tallystick.format.lookback import LookbackUsed
from tallystick.format.outputs import OutputSlot
from tallystick.format.page import Boundary, Committed, Entry, Page, Totals
from tallystick.format.page_sums import PageSums
from unit.format.samples import at, boundary, committed, entry, granted, pages, uuid

PUBLISHED = OutputSlot(wanted=uuid(7), published=uuid(7))


def must_be_reported(one: Entry) -> bool:
    """Return True if a status lists the entry, as far as that depends on the entry alone."""
    commit = one.committed
    if commit is None or one.granted is not None or one.pending or commit.lookback is not None:
        return True
    totals = commit.totals
    ended_grants = one.generation != commit.generation
    only_dead = totals.dead_letters > 0 and totals.records == 0
    may_have_fewer = commit.generation > 1 and totals.absent > 0
    return ended_grants or only_dead or may_have_fewer or totals.lost > 0


def sums_of(page: Page) -> PageSums | None:
    """Return what must be found, from the values of the page."""
    entries = page.entries
    if not entries or any(map(must_be_reported, entries)):
        return None
    if any(a.interval.end != b.interval.start for a, b in itertools.pairwise(entries)):
        return None
    until = entries[-1].interval.end
    if page.boundaries[0].at != entries[0].interval.start or page.boundaries[-1].at > until:
        return None
    commits = [one.committed for one in entries if one.committed is not None]
    return PageSums(
        first=page.boundaries[0],
        until=until,
        intervals=len(entries),
        totals=Totals.sum_of(one.totals for one in commits),
        generations=Counter(one.generation for one in commits),
        dags=frozenset(one.request.dag for one in commits),
    )


COUNTS = st.integers(0, 10**12)


@st.composite
def plain_pages(draw: Any) -> Page:
    """Draw a page of committed intervals; some have what must be reported."""
    entries = []
    for hour in range(draw(st.integers(1, 5))):
        generation = draw(st.integers(1, 3))
        totals = Totals(
            records=draw(COUNTS),
            dead_letters=draw(COUNTS),
            aborted=draw(COUNTS),
            control=draw(COUNTS),
            absent=draw(st.sampled_from([0, 0, 0, 2])),
            lost=draw(st.sampled_from([0] * 9 + [1])),
        )
        request = Request(dag=draw(st.sampled_from(["d", "other"])), run="r", clear=0)
        commit = replace(
            committed(hour, hour + 1, generation=generation), totals=totals, request=request
        )
        outputs = draw(st.dictionaries(st.sampled_from(["feed", "mail"]), st.just(PUBLISHED)))
        served = tuple(draw(st.lists(st.just(request), max_size=2)))
        made = entry(hour, hour + 1, commit=commit, served=served, outputs=outputs)
        entries.append(replace(made, generation=generation))
    stop = len(entries) + draw(st.integers(0, 1))
    return Page(entries=tuple(entries), boundaries=tuple(boundary(n, n, n) for n in range(stop)))


@given(plain_pages())
def test_the_sums_of_the_bytes_are_those_of_the_entries(page: Page) -> None:
    assert PageSums.found(page.encode(), where="page") == sums_of(page)


@given(pages())
def test_any_page_has_the_sums_of_its_entries_or_none(page: Page) -> None:
    assert PageSums.found(page.encode(), where="page") in (None, sums_of(page))


# ---------------------------------------------------------------- pages that have no sums


def plain(hour: int = 0) -> Entry:
    return entry(hour, hour + 1, commit=committed(hour, hour + 1))


def page_of(*entries: Entry, hours: int = 2) -> Page:
    return Page(entries=entries, boundaries=tuple(boundary(n, n) for n in range(hours)))


def commit_of(one: Entry) -> Committed:
    assert one.committed is not None
    return one.committed


def test_a_plain_page_has_sums() -> None:
    """The pages below differ from it in one thing each."""
    found = PageSums.found(page_of(plain(0), plain(1)).encode(), where="page")
    assert found is not None
    assert (found.since, found.until, found.intervals) == (at(0), at(2), 2)
    assert (found.entries, found.edges) == ((), {at(0): boundary(0, 0)})


def with_commit(**changes: Any) -> Page:
    one = plain(0)
    return page_of(replace(one, committed=replace(commit_of(one), **changes)), plain(1))


def named(request: Request) -> Page:
    return with_commit(request=request)


@pytest.mark.parametrize(
    "page",
    [
        page_of(replace(plain(0), granted=granted(0, 1, generation=1)), plain(1)),
        page_of(entry(0, 1, grant=granted(0, 1, generation=1)), plain(1)),
        page_of(replace(plain(0), generation=2), plain(1)),
        page_of(replace(plain(0), outputs={"feed": OutputSlot(wanted=uuid(1))}), plain(1)),
        page_of(
            replace(plain(0), outputs={"feed": replace(PUBLISHED, in_progress=uuid(3))}), plain(1)
        ),
        page_of(
            replace(plain(0), outputs={"feed": OutputSlot(wanted=uuid(1), published=uuid(2))}),
            plain(1),
        ),
        with_commit(lookback=LookbackUsed(since=at(-1))),
        with_commit(totals=Totals(records=1, lost=1)),
        with_commit(totals=Totals(dead_letters=1)),
        page_of(plain(0), hours=3),
        page_of(plain(1)),
        page_of(plain(0), plain(2), hours=3),
        page_of(hours=1),
        named(Request(dag="ü", run="r", clear=0)),
        named(Request(dag='"d"', run="r", clear=0)),
        named(Request(dag="d", run="{", clear=0)),
    ],
)
def test_a_page_of_which_something_must_be_reported_or_read_has_no_sums(page: Page) -> None:
    assert PageSums.found(page.encode(), where="page") is None


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body.replace(b"tallystick.page/1", b"tallystick.page/2"),
        lambda body: body.replace(b'"entries":[{', b'"entries":[ {'),
        lambda body: body.replace(b'"generation":1,"granted"', b'"generation":-1,"granted"', 1),
        lambda body: body.replace(b',"served":[]', b"", 1),
        lambda body: body.replace(b'"entries"', b'"entry"'),
        lambda body: body[1:],
        lambda body: body[:-1],
        lambda body: body.replace(b'],"format"', b'{"committed"],"format"'),
        lambda body: body.replace(b'}],"format"', b'},],"format"'),
        lambda body: body.replace(b'"interval":["2013-01-01T00', b'"interval":["2013-01-01T02'),
        lambda body: body.replace(b"02:00:00.000Z", b"02:00:00.00?Z"),
        lambda body: body.replace(b'"positions":{', b'"positions":{{', 1),
    ],
)
def test_bytes_that_are_no_plain_page_have_no_sums(change: Callable[[bytes], bytes]) -> None:
    whole = page_of(plain(0), plain(1)).encode()
    body = change(whole)
    assert body != whole
    assert PageSums.found(body, where="page") is None


def test_a_first_boundary_that_is_invalid_is_refused() -> None:
    form = json.loads(page_of(plain(0)).encode())
    form["boundaries"][0]["positions"] = {"a": [["x", 0]]}
    with pytest.raises(Corrupt):
        PageSums.found(canonical.dumps(form), where="page")


def test_the_other_boundaries_are_not_read() -> None:
    form = json.loads(page_of(plain(0), plain(1)).encode())
    form["boundaries"][1]["positions"] = {"a": [["x", 0]]}
    assert PageSums.found(canonical.dumps(form), where="page") is not None


def test_a_page_with_one_boundary_has_sums() -> None:
    page = Page(entries=(plain(0),), boundaries=(Boundary(at=at(0), positions={}),))
    assert PageSums.found(page.encode(), where="page") == sums_of(page)
