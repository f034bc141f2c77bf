"""The examples' DataFrame transforms on a real Spark, without a stack, so that `make test` detects a broken transform.

`make example` runs the whole examples, `make test-long` two of them. files and counts have Arrow transforms, which
tests/unit/airflow/test_examples.py calls. The job of `make demo EXAMPLE=ontime` is in test_spark_frames.py.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from examples.ads.attribution import Event, Truth, instant, per_hour, true_rows
from tallystick_devstack.class_archive import submit_options
from tallystick_devstack.java import compiled_spark_home

Row = dict[str, Any]
Result = list[dict[str, list[Row]]]  # per day, the rows of each table
DAY = datetime(2013, 1, 1, tzinfo=UTC)
IMPRESSIONS, CLICKS = "examples-impressions", "examples-clicks"
SEED = 20130101


def record(offset: int, at: datetime, topic: str = "t", **columns: Any) -> Row:
    """Return a decoded record, as a job gets it."""
    timestamp = at.isoformat()
    place = {"_topic": topic, "_kafka_partition": 0, "_offset": offset}
    return columns | place | {"_timestamp": timestamp, "_log_time": timestamp}


def at(day: int, time: str) -> datetime:
    """Return a time of a day of January 2013."""
    return datetime.fromisoformat(f"2013-01-{day:02}T{time}:00+00:00")


def case(
    job: str, columns: str, *days: dict[str, list[Row]], back: timedelta | None = None, **state: str
) -> Row:
    """Return a job with its records by topic, for each of the first days of January."""
    spans = [(DAY + timedelta(days=n), DAY + timedelta(days=n + 1)) for n in range(len(days))]
    return {
        "job": job,
        "records": columns,
        "state": state,
        "back_s": None if back is None else back.total_seconds(),
        "days": [
            {"start": start.isoformat(), "end": end.isoformat(), "topics": topics}
            for (start, end), topics in zip(spans, days, strict=True)
        ],
    }


def dedup() -> Row:
    alarms = [
        [(1, "22:00", "a"), (1, "22:59", "a"), (1, "23:58", "a"), (1, "23:59", "b")],
        [(2, "00:30", "a"), (2, "00:58", "b"), (2, "01:58", "b")],
    ]
    days = [
        {
            "t": [
                record(o, at(d, t), device=x, owner=f"{x}@example.org", what="hot")
                for o, (d, t, x) in enumerate(day)
            ]
        }
        for day in alarms
    ]
    return case(
        "dedup",
        "device string, owner string, what string",
        *days,
        back=timedelta(hours=1),
        seen="device string, last_seen timestamp",
    )


def average() -> Row:
    days = [
        [("s1", "1.00"), ("s1", "2.00"), ("s2", "-0.50")],
        [("s1", "2.00")],
    ]
    return case(
        "average",
        "sensor string, celsius decimal(5,2)",
        *[
            {"t": [record(o, at(n, "05:00"), sensor=s, celsius=c) for o, (s, c) in enumerate(day)]}
            for n, day in enumerate(days, 1)
        ],
        sensor_parts="sensor string, as_of timestamp, readings bigint, total decimal(38,2)",
    )


def upsert() -> Row:
    payments = [
        ("p1", 100, "new"),
        ("p2", 50, "new"),
        ("p1", 120, "cancelled"),
        ("p1", 110, "paid"),
    ]
    happened = at(1, "04:00").isoformat()
    # Later records have earlier timestamps: the order of the log decides, not the clocks.
    rows = [
        record(
            o, at(1, f"0{9 - o}:00"), txn_id=x, account="A", cents=c, status=s, happened=happened
        )
        for o, (x, c, s) in enumerate(payments)
    ]
    return case(
        "upsert",
        "txn_id string, account string, cents bigint, status string, happened timestamp",
        {"t": rows},
    )


def cleanup() -> Row:
    flights = [("UA", 1, "23:59"), ("UA", 1, "00:00"), ("B6", 1, "23:00"), ("UA", 2, "00:00")]
    rows = [
        record(o, at(1, "05:00"), carrier=c, departure=at(d, t).isoformat())
        for o, (c, d, t) in enumerate(flights)
    ]
    return case("cleanup", "carrier string, departure timestamp", {"t": rows})


def ads_events(topic: str) -> list[Event]:
    """Return events of two days in log order, dense around midnight; a third of them repeat earlier events.

    Edge cases: clicks a chosen time after an impression of their user and ad, and repeats after exactly six hours.
    """
    chance = random.Random(f"{SEED} {topic}")
    rows = [
        (chance.randrange(low, high), f"u{chance.randrange(6)}", f"a{chance.randrange(5, 8)}", "")
        for low, high in ((0, 2850), (1415, 1450))
        for _ in range(60)
    ]
    if topic == CLICKS:
        for shown in ads_events(IMPRESSIONS)[::2]:
            minute = (shown.log_ms - round(DAY.timestamp() * 1000)) // 60_000
            rows.append((minute + chance.choice((0, 29, 30)), shown.user, shown.ad, ""))
    else:
        twins = [(minute, user, ad, f"twin{minute}") for minute, user, ad, _ in rows[::10]]
        rows += twins + [(minute + 360, user, ad, name) for minute, user, ad, name in twins]
    events: list[Event] = []
    for offset, (minute, user, ad, name) in enumerate(sorted(rows)):
        log_at = DAY + timedelta(minutes=minute)
        new = {"id": name or f"{topic}{offset}", "user": user, "ad": ad}
        if events and not name and chance.random() < 0.3:
            earlier = chance.choice(events[-20:])
            new = {"id": earlier.id, "user": earlier.user, "ad": earlier.ad}
        events.append(
            Event(
                place=(topic, 0, offset),
                day=log_at.replace(hour=0, minute=0),
                log_ms=round(log_at.timestamp() * 1000),
                **new,
            )
        )
    return [e for e in events if e.log_ms < (DAY + timedelta(days=2)).timestamp() * 1000]


def ads() -> Row:
    days = [
        {
            topic: [
                record(e.place[2], instant(e.log_ms), topic, id=e.id, user=e.user, ad=e.ad)
                for e in ads_events(topic)
                if e.day == DAY + timedelta(days=n)
            ]
            for topic in (IMPRESSIONS, CLICKS)
        }
        for n in range(2)
    ]
    lineage = "_topic string, _kafka_partition int, _offset bigint, _timestamp timestamp"
    return case(
        "ads",
        "id string, user string, ad string",
        *days,
        back=timedelta(hours=6, minutes=30),
        recent_impressions=f"id string, user string, ad string, log_time timestamp, {lineage}",
        seen_clicks="id string, last_seen timestamp",
    )


def billing() -> Row:
    usage = [
        [
            (1, "01:10", "A", "compute", 2, (1, "01:05")),
            (1, "02:05", "A", "archive", 1, (1, "01:59")),  # the hour is open until 02:15
            (1, "02:20", "B", "traffic", 3, (1, "01:50")),  # after that, it is late
            (1, "03:00", "A", "compute", 9, (3, "01:00")),  # from the future
            (1, "23:50", "A", "compute", 1, (1, "23:40")),
        ],
        [(2, "00:05", "A", "traffic", 4, (1, "23:55"))],
    ]
    days = [
        {
            "t": [
                record(o, at(d, t), customer=c, service=s, units=n, used_at=at(*used).isoformat())
                for o, (d, t, c, s, n, used) in enumerate(day)
            ]
        }
        for day in usage
    ]
    return case(
        "billing",
        "customer string, service string, units int, used_at timestamp",
        *days,
        back=timedelta(minutes=75),
        parts="window_start timestamp, customer string, events bigint, cents bigint",
    )


CASES = {
    "dedup": dedup,
    "average": average,
    "upsert": upsert,
    "cleanup": cleanup,
    "billing": billing,
    "ads": ads,
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    """Return the result of every transform, by its example."""
    folder = tmp_path_factory.mktemp("transforms")
    cases, answer = folder / "cases.json", folder / "results.json"
    cases.write_text(json.dumps([make_case() for make_case in CASES.values()]))
    environ = os.environ | {
        "TZ": "UTC",
        "SPARK_HOME": str(compiled_spark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": submit_options({}),
        "PYSPARK_PYTHON": sys.executable,
    }
    script = Path(__file__).with_name("example_transforms.py")
    ended = subprocess.run(
        [sys.executable, str(script), str(cases), str(answer)],
        env=environ,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert ended.returncode == 0, ended.stderr[-5000:]
    return dict(zip(CASES, json.loads(answer.read_text()), strict=True))


def of(rows: Sequence[Row], *names: str) -> list[tuple[Any, ...]]:
    """Return some columns of the rows, sorted."""
    return sorted(tuple(row[name] for name in names) for row in rows)


def test_dedup_keeps_the_first_alarm_within_an_hour_also_over_midnight(
    results: dict[str, Result],
) -> None:
    first, second = results["dedup"]
    # 22:59 is within the hour of 22:00. At 23:58 that repeat is 59 minutes old: any alarm counts, not only kept ones.
    assert of(first["alarms"], "device", "_offset") == [("a", 0), ("b", 3)]
    # b at 00:58 is 59 minutes after 23:59; at 01:58 exactly an hour after that repeat, and the horizon is half open.
    assert of(second["alarms"], "device", "_offset") == [("b", 2)]
    assert of(first["notices"], "device") == [("a",), ("b",)]
    assert of(second["notices"], "device") == [("b",)]


def test_averages_include_all_records_up_to_the_end_of_the_interval(
    results: dict[str, Result],
) -> None:
    first, second = results["average"]
    assert of(first["averages"], "sensor", "readings", "average") == [
        ("s1", 2, "1.500000"),
        ("s2", 1, "-0.500000"),
    ]
    assert of(second["averages"], "sensor", "readings", "average") == [
        ("s1", 3, "1.666667"),
        ("s2", 1, "-0.500000"),
    ]
    assert of(second["sensor_parts"], "sensor", "readings", "total") == [("s1", 1, "2.00")]


def test_upsert_keeps_the_last_record_by_offset(results: dict[str, Result]) -> None:
    (day,) = results["upsert"]
    assert of(day["payments"], "txn_id", "cents", "status") == [
        ("p1", 110, "paid"),
        ("p2", 50, "new"),
    ]


def test_cleanup_counts_by_airline_and_day(results: dict[str, Result]) -> None:
    (day,) = results["cleanup"]
    assert of(day["per_airline"], "carrier", "day", "flights") == [
        ("B6", "2013-01-01", 1),
        ("UA", "2013-01-01", 2),
        ("UA", "2013-01-02", 1),
    ]


def test_billing_invoices_closed_hours_also_over_midnight_and_corrects_late_ones(
    results: dict[str, Result],
) -> None:
    first, second = results["billing"]
    line = ("window_start", "customer", "events", "cents")
    assert of(first["invoices"], *line) == [("2013-01-01T01:00:00", "A", 2, 12)]
    assert of(first["corrections"], *line) == [("2013-01-01T01:00:00", "B", 1, 3)]
    assert of(first["outside"], "_offset", "units") == [(3, 9)]
    # The hour from 23:00 is closed at 00:15 with what both days have of it.
    assert of(second["invoices"], *line) == [("2013-01-01T23:00:00", "A", 2, 9)]
    assert of(second["corrections"], *line) == []


def test_ads_equal_one_pass_over_both_logs(results: dict[str, Result]) -> None:
    """The reference has no days; the check of `make example NAME=ads` uses the same."""
    truth: Truth = true_rows(ads_events(IMPRESSIONS), ads_events(CLICKS))
    days = results["ads"]

    def rows(table: str) -> list[Row]:
        return [row for day in days for row in day[table]]

    def places(events: Sequence[Event]) -> list[tuple[Any, ...]]:
        return sorted(e.place for e in events)

    lineage = ("_topic", "_kafka_partition", "_offset")
    assert of(rows("impressions"), *lineage) == places(truth.impressions)
    assert of(rows("duplicates"), *lineage) == places(list(truth.duplicates))
    attributed = {click: shown for click, shown in truth.clicks.items() if shown is not None}
    assert of(rows("clicks"), *lineage, "impression", "campaign") == sorted(
        (*click.place, shown.id, click.campaign) for click, shown in attributed.items()
    )
    assert of(rows("unattributed"), *lineage) == places(
        [click for click, shown in truth.clicks.items() if shown is None]
    )
    counts = ("impressions", "clicks", "attributed")
    assert {(r["hour"], r["campaign"]): [r[c] for c in counts] for r in rows("per_hour")} == {
        (f"{hour:%Y-%m-%dT%H:%M:%S}", campaign): [counted[c] for c in counts]
        for (hour, campaign), counted in per_hour(truth).items()
    }
    # The case is not trivial: there are clicks on impressions of the day before, and repeats over midnight.
    over_midnight = [c for c, shown in attributed.items() if c.day != shown.day]
    repeats = [e for e, before in truth.duplicates.items() if e.day != before.day]
    assert len(over_midnight) > 2, f"seed {SEED}"
    assert len(repeats) > 2, f"seed {SEED}"
