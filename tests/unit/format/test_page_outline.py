"""The outline of a page is the same from its bytes as from the page, and bytes that are no page are refused by both."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.errors import Corrupt
from tallystick.format import canonical, keys
from tallystick.format.interval import Interval, Request
from tallystick.format.offsets import Position
from tallystick.format.page import Boundary, Committed, Entry, Granted, Page, Totals
from tallystick.format.page_outline import PageOutline
from unit.format.samples import HOUR, at
from unit.format.samples import pages as sample_pages

# Names of topics that are also names of fields, or have what ends a list in JSON.
TOPICS = st.sampled_from(["a", "entries", "at", "positions", "boundaries", 'x"}],"entries":[', "ü"])


def entry(hour: int, kind: str) -> Entry:
    interval = Interval(start=at(0) + hour * HOUR, end=at(0) + (hour + 1) * HOUR)
    plan = keys.plan(interval.start, interval.end, f"{hour:032x}")
    request = Request(dag="d", run='}],"entries":[', clear=0)
    granted = Granted(plan=plan, request=request, generation=1)
    committed = Committed(
        plan=plan,
        request=request,
        generation=1,
        fingerprint="f" * 64,
        record=keys.record(hour + 1, f"{hour:032x}"),
        totals=Totals(records=hour),
    )
    return Entry(
        interval=interval,
        generation=1,
        granted=granted if kind == "granted" else None,
        committed=None if kind == "granted" else committed,
    )


@st.composite
def pages(draw: st.DrawFn) -> Page:
    kinds = draw(st.lists(st.sampled_from(["granted", "committed", "gap"]), max_size=8))
    topics = draw(st.lists(TOPICS, unique=True, max_size=3))
    boundaries = [
        Boundary(
            at=at(0) + hour * HOUR,
            positions={
                t: (Position(offset=hour), Position(offset=7, leader_epoch=2)) for t in topics
            },
        )
        for hour in range(len(kinds) + 1)
    ]
    entries = [entry(hour, kind) for hour, kind in enumerate(kinds) if kind != "gap"]
    return Page(entries=tuple(entries), boundaries=tuple(boundaries))


@given(pages() | sample_pages())
def test_the_outline_of_the_bytes_is_the_outline_of_the_page(page: Page) -> None:
    outline = PageOutline._found(page.encode(), "page")
    assert outline == PageOutline.of(page)
    assert PageOutline.decode(page.encode(), where="page") == outline


def changed(change: Any) -> bytes:
    page = Page(
        entries=(entry(0, "committed"), entry(2, "granted")),
        boundaries=tuple(
            Boundary(at=at(0) + hour * HOUR, positions={"a": (Position(offset=hour),)})
            for hour in range(4)
        ),
    )
    form = json.loads(page.encode())
    change(form)
    return canonical.dumps(form)


@pytest.mark.parametrize(
    "change",
    [
        lambda form: form.update(format="tallystick.page/2"),
        lambda form: form.update(another=1),
        lambda form: form.pop("boundaries"),
        lambda form: form.update(boundaries=[]),
        lambda form: form.update(boundaries=[], entries=[]),
        lambda form: form["boundaries"].reverse(),
        lambda form: form["entries"].reverse(),
        lambda form: form["boundaries"].pop(2),
        lambda form: form["boundaries"][0].update(at="2013-01-01"),
        lambda form: form["boundaries"][0].update(at="2013-01-01T00:00:00.000é"),
        lambda form: form["boundaries"][0].update(at="2013-13-01T00:00:00.000Z"),
        lambda form: form["boundaries"][0]["positions"].update(a=[["x", 0]]),
        lambda form: form["entries"][0].update(generation=-1),
        lambda form: form["entries"][0].pop("served"),
    ],
)
def test_bytes_that_are_no_page_are_refused_as_a_page_is(change: Any) -> None:
    body = changed(change)
    with pytest.raises(Corrupt):
        Page.decode(body, where="page")
    with pytest.raises(Corrupt):
        PageOutline.decode(body, where="page")


def test_broken_json_in_a_boundary_that_is_needed_is_refused() -> None:
    body = changed(lambda form: None).replace(b'"positions":{"a":[[0', b'"positions":{"a":[[0[', 1)
    with pytest.raises(Corrupt):
        PageOutline.decode(body, where="page")


def test_another_spelling_of_an_entry_is_refused() -> None:
    body = changed(lambda form: None).replace(b'"entries":[{', b'"entries":[ {', 1)
    with pytest.raises(Corrupt):
        PageOutline.decode(body, where="page")


def test_a_boundary_that_is_not_needed_is_not_read() -> None:
    page = changed(
        lambda form: form["boundaries"].insert(
            1, {"at": "2013-01-01T00:30:00.000Z", "positions": {"a": [["x"]]}}
        )
    )
    assert len(PageOutline.decode(page, where="page").edges) == 4
    with pytest.raises(Corrupt):
        Page.decode(page, where="page")


def test_an_outline_of_a_page_has_its_first_and_last_boundary() -> None:
    page = Page(boundaries=tuple(Boundary(at=at(0) + n * HOUR, positions={}) for n in range(5)))
    assert list(PageOutline.decode(page.encode(), where="page").edges) == [at(0), at(0) + 4 * HOUR]
