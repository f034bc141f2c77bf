"""The texts of warehouses and prefixes: each selection has one text, and any other text is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.catalog.versions import (
    LAKES_MAX,
    LATEST,
    VERSION_MAX,
    ExactCommit,
    LakeAt,
    Selection,
    SelectionError,
    parse_prefix,
    parse_warehouse,
    selection_text,
)
from tallystick.format import keys

EPOCH = datetime(1, 1, 1, tzinfo=UTC)
NAMES = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,62}", fullmatch=True).filter(lambda n: n != LATEST)
COMMITS = st.builds(
    ExactCommit,
    version=st.integers(1, VERSION_MAX),
    mark=st.from_regex(r"[0-9a-f]{8}", fullmatch=True),
)
INSTANTS = st.integers(0, 9998 * 365 * 86_400_000).map(
    lambda ms: EPOCH + timedelta(milliseconds=ms)
)
AT = st.one_of(
    st.integers(0, VERSION_MAX), COMMITS, INSTANTS, st.sampled_from(["newest", "latest"])
)
SELECTIONS = st.one_of(
    st.sampled_from([Selection(every="newest"), Selection(every="latest")]),
    st.lists(st.builds(LakeAt, lake=NAMES, at=AT), min_size=1, unique_by=lambda one: one.lake).map(
        lambda lakes: Selection(lakes=tuple(lakes))
    ),
)


@given(SELECTIONS)
def test_each_selection_is_read_from_its_own_text(selection: Selection) -> None:
    assert parse_warehouse(selection_text(selection)) == selection


@given(SELECTIONS)
def test_a_prefix_is_a_selection_that_means_the_same_for_a_whole_session(
    selection: Selection,
) -> None:
    moving = {"newest"} | {one.at for one in selection.lakes if isinstance(one.at, datetime)}
    fixed = selection.every != "newest" and not {one.at for one in selection.lakes} & moving
    assert selection.is_prefix is fixed
    if fixed:
        assert parse_prefix(selection_text(selection)) == selection
    else:
        with pytest.raises(SelectionError, match="such as flights@412"):
            parse_prefix(selection_text(selection))


@given(SELECTIONS.filter(lambda selection: selection.is_prefix))
def test_a_prefix_needs_no_escape_in_a_path(selection: Selection) -> None:
    text = selection_text(selection)
    assert quote(text, safe="@,.") == text


@given(st.one_of(st.text(), st.text(alphabet="abz019@,.-:TZ_/ \x1f%")))
def test_any_text_is_a_selection_or_refused(text: str) -> None:
    for parse in (parse_warehouse, parse_prefix):
        try:
            found = parse(text)
        except SelectionError:
            continue
        # An instant may be written with fewer digits than its own text.
        assert parse_warehouse(selection_text(found)) == found


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("flights", "newest"),
        ("flights@latest", "latest"),
        ("flights@0", 0),
        ("flights@412", 412),
        ("flights@412.3f2a9c1d", ExactCommit(version=412, mark="3f2a9c1d")),
        ("flights@2026-11-26T10:00:00Z", datetime(2026, 11, 26, 10, tzinfo=UTC)),
        ("flights@2026-11-26T10:00:00.25Z", datetime(2026, 11, 26, 10, 0, 0, 250_000, tzinfo=UTC)),
    ],
)
def test_a_lake_and_what_of_it_is_read(text: str, at: object) -> None:
    assert parse_warehouse(text).lakes == (LakeAt(lake="flights", at=at),)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "Flights",
        "flights@",
        "flights@-1",
        "flights@007",
        "flights@\u0661",  # a digit that is not ASCII
        "flights@1000000000000",
        "flights@0.3f2a9c1d",
        "flights@412.3f2a9c1",
        "flights@2026-02-30T00:00:00Z",
        "flights@2026-11-26T10:00:00+01:00",
        "flights@0000-01-01T00:00:00Z",
        "flights@latest@latest",
        "flights,flights@3",
        "flights,",
        ",",
        "latest,flights",
        "s3://lake/flights",
        "../v1",
        "a\x1fb",
        ",".join(f"lake{i}" for i in range(LAKES_MAX + 1)),
        "x" * 100_000,
    ],
)
def test_a_text_of_another_form_is_refused_with_a_short_error(text: str) -> None:
    with pytest.raises(SelectionError, match="expected") as caught:
        parse_warehouse(text)
    assert len(str(caught.value)) < 400


def test_the_mark_of_a_commit_is_of_its_record() -> None:
    key = keys.record(412, "3f2a9c1d" + "0" * 24)
    assert ExactCommit.of(key) == ExactCommit(version=412, mark="3f2a9c1d")
