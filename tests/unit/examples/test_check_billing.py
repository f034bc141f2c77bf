"""The check of `billing` reports an unexpected or missing line, a wrong sum and a correction of nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from examples.billing.check import Posting, Tables, compare
from examples.billing.scenario import TARIFF, usage
from examples.checks import CheckResult
from examples.checks.sent import span
from unit.examples.sent_lines import at, write_sent

START = datetime(2013, 1, 1, tzinfo=UTC)
BOUNDARIES = [START + timedelta(hours=3 * n) for n in range(3)]
FIRST, SECOND = span(BOUNDARIES[0], BOUNDARIES[1]), span(BOUNDARIES[1], BOUNDARIES[2])
OLD = {"compute": 5, "archive": 2}
NEW = {"compute": 5, "archive": 3}
MINUTE_MS = 60_000


def instant(minute: int) -> datetime:
    return START + timedelta(minutes=minute)


def event(
    offset: int, minute: int, used: int, service: str, units: int, end: str = "plain"
) -> dict[str, Any]:
    """Return the producer's record of one event of the customer `ann`."""
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
    event(1, 74, 59, "compute", 1),  # in time: its hour is closed at 75
    event(2, 75, 59, "compute", 4),  # late, in the interval that closed its hour
    event(3, 80, 80, "archive", 3, end="aborted"),
    event(4, 90, 61, "archive", 7),
    event(5, 170, 170, "compute", 1),  # closed by the second interval
    event(6, 185, 62, "archive", 1),  # late, of an hour that the first interval closed
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


CORRECTION = {"operation": "correction", "generation": 2, "corrects": 1}
LEDGER = (
    posting("invoices", FIRST, 0, 2, 15, 0),
    posting("corrections", FIRST, 0, 1, 20, 1),
    posting("invoices", FIRST, 60, 1, 14, 2),
    posting("invoices", SECOND, 120, 1, 5, 3),
    posting("corrections", SECOND, 60, 1, 2, 4),
    posting("invoices", FIRST, 60, 1, 21, 5, row_key="ts1-2", **CORRECTION),
    posting("corrections", SECOND, 60, 1, 3, 6, row_key="ts1-4", **CORRECTION),
)


def rows(*sums: tuple[int, int, int]) -> list[dict[str, Any]]:
    return [
        {"window_start": instant(m), "customer": "ann", "events": events, "cents": cents}
        for m, events, cents in sums
    ]


TABLES = Tables(
    invoices=rows((0, 2, 15), (60, 1, 21), (120, 1, 5)),
    corrections=rows((0, 1, 20), (60, 1, 3)),
    outside=[{"customer": "ann"}],
)


@dataclass(frozen=True)
class CheckInput:
    """The input of the check."""

    ledger: Sequence[Posting] = field(default=LEDGER)
    tables: Tables = TABLES
    replays: Sequence[tuple[str, int]] = (("a replay", 0),)


def checked(path: Path, given: CheckInput) -> CheckResult:
    return compare(
        given.ledger,
        given.tables,
        write_sent(path / "sent", *SENT),
        boundaries=BOUNDARIES,
        tariff=NEW,
        old_tariff=OLD,
        repriced=2,
        replays=given.replays,
    )


def test_a_ledger_of_all_closed_hours_passes(tmp_path: Path) -> None:
    result = checked(tmp_path, CheckInput())
    assert result.passed, list(result.lines())
    assert result.rows == len(LEDGER)


def changed(
    number: int, row: Mapping[str, Any] | None = None, **more: Any
) -> Callable[[CheckInput], CheckInput]:
    """Return a damage that changes one line of the ledger."""

    def damage(given: CheckInput) -> CheckInput:
        ledger = list(given.ledger)
        ledger[number] = replace(ledger[number], row={**ledger[number].row, **(row or {})}, **more)
        return replace(given, ledger=ledger)

    return damage


def without(*numbers: int) -> Callable[[CheckInput], CheckInput]:
    return lambda f: replace(f, ledger=[p for n, p in enumerate(f.ledger) if n not in numbers])


def tables(**more: Any) -> Callable[[CheckInput], CheckInput]:
    return lambda f: replace(f, tables=replace(f.tables, **more))


@pytest.mark.parametrize(
    ("damage", "check"),
    [
        pytest.param(
            lambda f: replace(f, ledger=[*f.ledger, f.ledger[0]]), "once", id="a key twice"
        ),
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
        pytest.param(without(5), "repriced", id="a new price is missing"),
        pytest.param(changed(5, row_key="ts1-9"), "repriced", id="a correction of nothing"),
        pytest.param(
            lambda f: replace(f, ledger=[*f.ledger, replace(f.ledger[5], key="ts1-9")]),
            "repriced",
            id="an unexpected correction",
        ),
        pytest.param(changed(5, operation="retraction"), "repriced", id="an invoice is retracted"),
        pytest.param(tables(invoices=rows((0, 2, 15))), "the tables", id="a table lacks invoices"),
        pytest.param(
            tables(corrections=rows((0, 1, 20), (60, 1, 2))), "the tables", id="an old correction"
        ),
        pytest.param(tables(outside=[]), "outside", id="an event from the future is lost"),
        pytest.param(
            lambda f: replace(f, replays=[("a replay", 1)]), "replays", id="a replay that sends"
        ),
        pytest.param(lambda f: replace(f, replays=[]), "replays", id="no replay"),
    ],
)
def test_the_check_names_the_damage(
    tmp_path: Path, damage: Callable[[CheckInput], CheckInput], check: str
) -> None:
    result = checked(tmp_path, damage(CheckInput()))
    assert not result.passed
    assert check in {f.check for f in result.findings if not f.holds}


def test_an_empty_ledger_fails(tmp_path: Path) -> None:
    assert not checked(tmp_path, CheckInput(ledger=())).passed


def test_the_usage_is_the_same_in_each_run_and_has_prices() -> None:
    assert usage() == usage()
    assert {json.loads(r.value)["service"] for records in usage() for r in records} == set(TARIFF)
