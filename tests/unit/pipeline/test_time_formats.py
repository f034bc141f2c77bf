"""A parse rule that no text can match is refused at the declaration of the column."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.engine.decode.json.rows import JsonDecoder
from tallystick.errors import InvalidPipeline
from tallystick.pipeline import Column, Json
from tallystick.pipeline.time_formats import DIRECTIVES, rule_problem

VALID = [
    ("date", "%d.%m.%Y", "25.11.2013"),
    ("date", "%G-W%V-%u", "2013-W48-1"),
    ("date", "%Y-%j", "2013-329"),
    ("date", "%Y", "2013"),
    ("timestamp", "%d %b %y %I:%M %p", "25 Nov 13 05:43 PM"),
    ("timestamp", "%Y%m%d%H%M%S.%f %%", "20131125174321.123456 %"),
    ("timestamptz", "%Y-%m-%dT%H:%M:%S%z", "2013-11-25T17:43:21+01:00"),
    ("timestamptz", "%Y%m%d %H%MZ", "20131125 1743Z"),
]


@pytest.mark.parametrize(("kind", "rule", "text"), VALID)
def test_a_valid_rule_is_accepted_and_parses_its_text(kind: str, rule: str, text: str) -> None:
    decoder = JsonDecoder(Json([Column("x", kind, parse=rule)]))
    decoded = decoder.decode_values(pa.array([json.dumps({"x": text}).encode()], pa.binary()))
    assert decoded.reasons == ()


@pytest.mark.parametrize("rule", [None, "iso8601", "epoch_s", "epoch_ms", "epoch_us"])
def test_the_named_rules_are_accepted(rule: str | None) -> None:
    for kind in ("date", "timestamp", "timestamptz"):
        assert Column("x", kind, parse=rule).parse == rule


def test_days_are_a_rule_of_dates_alone() -> None:
    assert Column("x", "date", parse="epoch_days").parse == "epoch_days"
    assert Column("x", "list<date>", parse="epoch_days").fields[0].parse == "epoch_days"


@pytest.mark.parametrize(
    ("kind", "rule", "problem"),
    [
        ("timestamp", "%Y-%m-%dT%H:%M:%S.%L", "has %L"),
        ("timestamp", "%s", "has %s"),
        ("timestamp", "%Y-%q", "has %q"),
        ("timestamp", "%Y%m%d%H%M%S%N", "has %N"),
        ("date", "%-d.%m.%Y", "has %-"),
        ("date", "%c", "has %c"),
        ("timestamptz", "%Y %Z", "has %Z"),
        ("date", "%Y%", "ends in a %"),
        ("date", "%Y %Y", "has %Y twice"),
        ("timestamp", "%H:%M", "has no year"),
        ("date", "%d.%m.", "has no year"),
        ("date", "100%%", "has no year"),
        ("date", "%G-%V", "cannot be read back"),
        ("timestamp", "epoch", "is neither iso8601"),
        ("timestamp", "epoch_days", "has no time of day, which a timestamp has"),
        ("timestamptz", "epoch_days", "has no time of day, which a timestamptz has"),
        ("timestamptz", "", "is neither iso8601"),
        ("timestamptz", "ISO8601", "is neither iso8601"),
        ("timestamptz", "%Y%m%d %H%M", "has no offset"),
        ("timestamp", "%Y%m%d%z", "has an offset from UTC (%z), which a timestamp"),
        ("date", "%Y%m%d%z", "has an offset from UTC (%z), which a date"),
    ],
)
def test_a_rule_that_no_text_can_match_is_refused_with_column_and_rule(
    kind: str, rule: str, problem: str
) -> None:
    with pytest.raises(InvalidPipeline) as caught:
        Column("x", kind, parse=rule)
    assert f"column 'x' of type {kind}: the parse rule {rule!r} {problem}" in caught.value.message
    assert "strptime" in caught.value.hint


parts = st.one_of(
    st.sampled_from([f"%{name}" for name in (*DIRECTIVES, "%", "L", "s", "c", "Z", "")]),
    st.sampled_from(["-", ":", "T", " ", "Z", ".", "(", "[", "\\d", "é"]),
)


@settings(max_examples=400, deadline=None)
@given(
    rule=st.lists(parts, max_size=9).map("".join),
    kind=st.sampled_from(["date", "timestamp", "timestamptz"]),
)
def test_any_rule_is_accepted_or_refused_without_another_error(rule: str, kind: str) -> None:
    problem = rule_problem(rule, kind)
    if problem is None:
        decoder = JsonDecoder(Json([Column("x", kind, parse=rule)]))
        assert decoder.decode_values(
            pa.array([b'{"x":"nonsense"}'], pa.binary())
        ).dead.tolist() == [0]
    else:
        with pytest.raises(InvalidPipeline):
            Column("x", kind, parse=rule)
