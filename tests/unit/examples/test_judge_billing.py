"""The judge of `billing` is awake: a line too many, too few, of another sum or that corrects nothing is named."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from examples.billing.check import Posting, Tables, judge
from examples.billing.play import TARIFF, usage
from examples.checks import Ruling
from examples.checks.sent import span
from unit.examples.sent_lines import at, write_sent

START = datetime(2013, 1, 1, tzinfo=UTC)
EDGES = [START + timedelta(hours=3 * n) for n in range(3)]
FIRST, SECOND = span(EDGES[0], EDGES[1]), span(EDGES[1], EDGES[2])
OLD = {"compute": 5, "archive": 2}
NEW = {"compute": 5, "archive": 3}
MINUTE_MS = 60_000


def instant(minute: int) -> datetime:
    return START + timedelta(minutes=minute)


def event(
    offset: int, minute: int, used: int, service: str, units: int, end: str = "plain"
) -> dict[str, Any]:
    """What the customer `ann` used."""
    value = {"customer": "ann", "service": service, "units": units}
    return {
        "partition": 0,
        "offset": offset,
        "at_ms": at(1, 0) + minute * MINUTE_MS,
        "end": end,
        "key": "ann",
        "value": json.dumps({**value, "used_at": instant(used).isoformat()}),
    }


SENT = (
    event(0, 10, 5, "compute", 2),
    event(1, 74, 59, "compute", 1),  # its hour is closed at 75
    event(2, 75, 59, "compute", 4),  # late, in the interval that closed its hour
    event(3, 80, 80, "archive", 3, end="aborted"),
    event(4, 90, 61, "archive", 7),
    event(5, 170, 170, "compute", 1),  # closed by the second interval
    event(6, 185, 62, "archive", 1),  # late, of an hour that the first one has closed
    event(7, 186, 9_000, "compute", 9),  # from the future
    event(8, 350, 350, "compute", 1),  # still open
)


def posting(
    account: str, interval: str, minute: int, events: int, cents: int, number: int, **more: Any
) -> Posting:
    plain = Posting(
        account=account,
        key=f"ts1-{number}",
        row={
            "window_start": instant(minute).isoformat(),
            "customer": "ann",
            "events": events,
            "cents": cents,
        },
        row_key=f"ts1-{number}",
        operation="row",
        interval=interval,
        generation=1,
        corrects=None,
    )
    return replace(plain, **more)


ANEW = {"operation": "correction", "generation": 2, "corrects": 1}
LEDGER = (
    posting("invoices", FIRST, 0, 2, 15, 0),
    posting("corrections", FIRST, 0, 1, 20, 1),
    posting("invoices", FIRST, 60, 1, 14, 2),
    posting("invoices", SECOND, 120, 1, 5, 3),
    posting("corrections", SECOND, 60, 1, 2, 4),
    posting("invoices", FIRST, 60, 1, 21, 5, row_key="ts1-2", **ANEW),
    posting("corrections", SECOND, 60, 1, 3, 6, row_key="ts1-4", **ANEW),
)


def rows(*told: tuple[int, int, int]) -> list[dict[str, Any]]:
    return [
        {"window_start": instant(m), "customer": "ann", "events": events, "cents": cents}
        for m, events, cents in told
    ]


TABLES = Tables(
    invoices=rows((0, 2, 15), (60, 1, 21), (120, 1, 5)),
    corrections=rows((0, 1, 20), (60, 1, 3)),
    outside=[{"customer": "ann"}],
)


@dataclass(frozen=True)
class Found:
    """What the judge looks at."""

    ledger: Sequence[Posting] = field(default=LEDGER)
    tables: Tables = TABLES
    silent: Sequence[tuple[str, int]] = (("a replay", 0),)


def judged(path: Path, found: Found) -> Ruling:
    return judge(
        found.ledger,
        found.tables,
        write_sent(path / "sent", *SENT),
        edges=EDGES,
        tariff=NEW,
        before=OLD,
        priced_anew=2,
        silent=found.silent,
    )


def test_what_was_sent_of_closed_hours_passes(tmp_path: Path) -> None:
    found = judged(tmp_path, Found())
    assert found.passed, list(found.lines())
    assert found.rows == len(LEDGER)


def changed(
    number: int, row: Mapping[str, Any] | None = None, **more: Any
) -> Callable[[Found], Found]:
    """One line of the ledger is another one."""

    def damage(found: Found) -> Found:
        ledger = list(found.ledger)
        ledger[number] = replace(ledger[number], row={**ledger[number].row, **(row or {})}, **more)
        return replace(found, ledger=ledger)

    return damage


def without(*numbers: int) -> Callable[[Found], Found]:
    return lambda f: replace(f, ledger=[p for n, p in enumerate(f.ledger) if n not in numbers])


def tables(**more: Any) -> Callable[[Found], Found]:
    return lambda f: replace(f, tables=replace(f.tables, **more))


@pytest.mark.parametrize(
    ("damage", "check"),
    [
        pytest.param(lambda f: replace(f, ledger=[*f.ledger, f.ledger[0]]), "once", id="a key"),
        pytest.param(
            lambda f: replace(f, ledger=[*f.ledger, posting("invoices", SECOND, 0, 2, 15, 9)]),
            "billed once",
            id="an hour billed by two intervals",
        ),
        pytest.param(without(0), "invoices", id="an invoice is missing"),
        pytest.param(without(0), "the sum", id="an invoice is missing from the sum"),
        pytest.param(changed(0, row={"cents": 16}), "invoices", id="a wrong sum"),
        pytest.param(changed(3, row={"events": 2}), "invoices", id="a wrong count"),
        pytest.param(without(1), "late", id="a correction is missing"),
        pytest.param(changed(1, interval=SECOND), "late", id="a correction of another interval"),
        pytest.param(without(5), "priced anew", id="a new price that was not sent"),
        pytest.param(changed(5, row_key="ts1-9"), "priced anew", id="a correction of nothing"),
        pytest.param(
            lambda f: replace(f, ledger=[*f.ledger, replace(f.ledger[5], key="ts1-9")]),
            "priced anew",
            id="a correction too many",
        ),
        pytest.param(
            changed(5, operation="retraction"), "priced anew", id="an invoice is taken back"
        ),
        pytest.param(tables(invoices=rows((0, 2, 15))), "the tables", id="a table lacks invoices"),
        pytest.param(
            tables(corrections=rows((0, 1, 20), (60, 1, 2))), "the tables", id="an old correction"
        ),
        pytest.param(tables(outside=[]), "outside", id="an event from the future is lost"),
        pytest.param(
            lambda f: replace(f, silent=[("a replay", 1)]), "silence", id="a replay that sends"
        ),
        pytest.param(lambda f: replace(f, silent=[]), "silence", id="no replay"),
    ],
)
def test_damage_is_named(tmp_path: Path, damage: Callable[[Found], Found], check: str) -> None:
    found = judged(tmp_path, damage(Found()))
    assert not found.passed
    assert check in {one.check for one in found.findings if not one.holds}


def test_nothing_at_all_is_no_pass(tmp_path: Path) -> None:
    assert not judged(tmp_path, Found(ledger=())).passed


def test_the_usage_is_the_same_at_each_play_and_its_prices_are_known() -> None:
    assert usage() == usage()
    assert {json.loads(r.value)["service"] for some in usage() for r in some} == set(TARIFF)
