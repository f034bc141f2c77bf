"""The check of `fanout` reports a table, row, dead letter or commit that is missing, unexpected or has other values."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from examples.checks import CheckResult
from examples.checks.values import plain
from examples.fanout.check import DEAD_LETTERS, Found, compare
from examples.fanout.shapes import SHAPES, framed, schema_of, table_of, topic_of, value_of

AT_MS = 1_356_998_400_000
AT = datetime(2013, 1, 1, tzinfo=UTC)


def line(topic: str, offset: int, interval: int = 1, **more: Any) -> dict[str, Any]:
    """Return the line of one record."""
    return {
        "topic": topic,
        "offset": offset,
        "at_ms": AT_MS,
        "end": "committed",
        "table": topic,
        "interval": interval,
        "document": None,
        "kind": None,
        "value": base64.b64encode(b"x").decode(),
        **more,
    }


SENT = [
    line("a", 0, document={"n": 1, "amount": "1.50"}),
    line("a", 1, document={"n": 2, "amount": "0.00"}, end="aborted"),
    line("a", 2, kind="magic"),
    line("b", 0, document={"tags": {"k": "v"}, "list": []}),
    line("a", 3, 2, document={"n": 3, "amount": "2.00", "new": "x"}),
    line("late", 0, 2, document={"at": AT.isoformat()}),
    line("internal", 0, table=None),
    line("a", 4, 3, document={"n": 4, "amount": "1.00", "new": None}),  # its day was not run
]


def row(topic: str, offset: int, **columns: Any) -> dict[str, Any]:
    """Return a row of the lake."""
    return {"_topic": topic, "_offset": offset, "_timestamp": AT, "_kafka_partition": 0, **columns}


GOOD = Found(
    rows={
        "a": [
            row("a", 0, n=1, amount=Decimal("1.50"), new=None),
            row("a", 3, n=3, amount=Decimal("2.00"), new="x"),
        ],
        "b": [row("b", 0, tags=[("k", "v")], list=[])],
        "late": [row("late", 0, at=AT)],
        DEAD_LETTERS: [row("a", 2, kind="magic", value=b"x")],
    },
    commits=[{"a": 1, "b": 1, DEAD_LETTERS: 1}, {"a": 1, "b": 0, "late": 1}],
    version=5,
)


def checked(folder: Path, found: Found) -> CheckResult:
    """Return the result of the check for this lake, after two days."""
    sent = folder / "sent"
    sent.write_text("".join(json.dumps(one) + "\n" for one in SENT), encoding="utf-8")
    return compare(lambda: found, sent, days=[1, 2])


def bad(result: CheckResult) -> set[str]:
    """Return the checks that do not hold."""
    return {one.check for one in result.findings if not one.holds}


def test_a_lake_with_exactly_what_was_sent_passes(tmp_path: Path) -> None:
    result = checked(tmp_path, GOOD)
    assert result.passed, list(result.lines())
    assert result.rows == 5


def tables(**changed: list[dict[str, Any]]) -> Callable[[Found], Found]:
    """Return a damage: other rows of some tables."""
    return lambda found: replace(found, rows={**found.rows, **changed})


@pytest.mark.parametrize(
    ("damage", "check"),
    [
        (
            lambda found: replace(found, rows={n: r for n, r in found.rows.items() if n != "b"}),
            "tables",
        ),
        (tables(internal=[]), "tables"),
        (tables(late=[]), "rows"),
        (tables(late=[row("late", 0, at=AT)] * 2), "rows"),
        (tables(late=[row("late", 0, at=AT), row("late", 1, at=AT)]), "rows"),
        (tables(late=[row("late", 0, at=AT.replace(microsecond=1))]), "rows"),
        (tables(late=[row("b", 0, at=AT)]), "rows"),
        (tables(late=[row("late", 0, at=AT) | {"_timestamp": AT.replace(hour=1)}]), "rows"),
        (tables(late=[row("late", 0)]), "rows"),
        (tables(b=[row("b", 0, tags=[("k", "w")], list=[])]), "rows"),
        (tables(b=[row("b", 0, tags=[("k", "v")], list=None)]), "rows"),
        (tables(a=[row("a", 0, n=1, amount=Decimal("1.5"), new="x"), GOOD.rows["a"][1]]), "rows"),
        (tables(a=[*GOOD.rows["a"], row("a", 1, n=2, amount=Decimal(0), new=None)]), "rows"),
        (tables(**{DEAD_LETTERS: []}), "dead letters"),
        (tables(**{DEAD_LETTERS: [row("a", 2, kind="magic", value=b"y")]}), "dead letters"),
        (tables(**{DEAD_LETTERS: [row("a", 2, kind="schema", value=b"x")]}), "dead letters"),
        (tables(**{DEAD_LETTERS: [row("a", 2, kind="magic", value=b"x")] * 2}), "dead letters"),
        (lambda found: replace(found, commits=found.commits[:1]), "one commit"),
        (lambda found: replace(found, commits=[*found.commits, {"a": 1}]), "one commit"),
        (
            lambda found: replace(found, commits=[{"a": 1, DEAD_LETTERS: 1}, found.commits[1]]),
            "one commit",
        ),
        (lambda found: replace(found, version=6), "one commit"),
    ],
)
def test_the_check_names_the_damage(
    tmp_path: Path, damage: Callable[[Found], Found], check: str
) -> None:
    assert check in bad(checked(tmp_path, damage(GOOD)))


def test_each_topic_has_values_of_its_own() -> None:
    found = [framed(1, schema_of(n), value_of(n, serial)) for n in range(10) for serial in range(4)]
    assert len(set(found)) == len(found)
    assert all(value[:5] == b"\0\0\0\0\x01" for value in found)
    assert [topic_of(7), table_of(7)] == ["fanout.clicks.007", "clicks_007"]
    assert table_of(5) == "orders_005"
    assert len(SHAPES) == 5


def test_values_are_compared_in_one_form() -> None:
    assert plain([("k", Decimal("1.50"))]) == {"k": "1.50"}
    assert plain({"at": AT, "parts": [b"\xff", AT.date()]}) == {
        "at": "2013-01-01T00:00:00+00:00",
        "parts": ["/w==", "2013-01-01"],
    }
    assert plain([]) == plain({}) == []
