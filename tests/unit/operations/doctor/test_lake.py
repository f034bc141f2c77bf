"""The checks of a ledger: each problem in one line with the command that fixes it, its retention, its connections."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from support.small_lake import NOW, TOPIC, SmallLake, day, days, good_lake
from tallystick.connections.http import HttpSettings
from tallystick.connections.kafka import KafkaSettings
from tallystick.connections.postgres import PostgresSettings
from tallystick.connections.smtp import SmtpSettings
from tallystick.format.interval import Interval
from tallystick.lake import Lake
from tallystick.operations.doctor.check import DoctorCheck
from tallystick.operations.doctor.lake import (
    LedgerReading,
    guard_checks,
    ledger_checks,
    needed_connections,
    problem_checks,
)
from tallystick.operations.release import release
from tallystick.operations.retention_guard import KeptTopic
from tallystick.operations.status import Status, read_status
from tallystick.operations.status.read import PendingOutput, PendingRegistration, StaleStatus

HOUR = timedelta(hours=1)


def examined(small: SmallLake) -> tuple[LedgerReading, dict[str, DoctorCheck]]:
    reading = LedgerReading(uri=small.store.uri)
    found = list(ledger_checks(Lake(small.store, small.runtime, begun=False), reading))
    assert all(check.fix for check in found if check.state != "ok")
    return reading, {check.name: check for check in found}


def healthy() -> SmallLake:
    small = good_lake()
    small.run(days(4, 5))
    release(small.lake, days(6, 7))
    small.run(days(6, 7))
    return small


def test_a_healthy_ledger_has_no_problem() -> None:
    small = healthy()
    reading, found = examined(small)
    assert {name: check.state for name, check in found.items()} == {"root": "ok", "problems": "ok"}
    assert reading.status is not None
    assert (reading.kafka, reading.needed) == ("default", {(KafkaSettings, "default")})


def test_each_problem_has_the_command_that_fixes_it() -> None:
    small = good_lake()
    # The clock of the test's lake does not move: make the plan of the grant older.
    status = read_status(small.lake)
    old = tuple(replace(grant, age=timedelta(days=2)) for grant in status.grants)
    found = {check.name: check for check in problem_checks(replace(status, grants=old))}
    assert {name: check.state for name, check in found.items()} == {
        "gaps": "warning",
        "stuck grants": "warning",
    }
    assert found["gaps"].found == (
        "1 gap, the first 2013-01-04 00:00 to 2013-01-05 00:00, 7 offsets"
    )
    assert found["gaps"].command == status.gaps[0].command
    assert found["stuck grants"].command[:3] == ("tally", "release", small.store.uri)


def with_more(status: Status) -> Status:
    pending = PendingOutput(output="bills", interval=days(1, 2), generation=1, in_progress=False)
    stale = StaleStatus(interval=days(2, 3), changed=days(1, 2))
    return replace(status, pending=(pending,), stale=(stale,))


def test_pending_and_stale_intervals_are_problems() -> None:
    small = healthy()
    found = {check.name: check for check in problem_checks(with_more(read_status(small.lake)))}
    assert {name: check.state for name, check in found.items()} == {
        "pending outputs": "warning",
        "stale intervals": "warning",
    }
    assert found["pending outputs"].found == "1 interval to publish to bills"
    assert found["pending outputs"].command[:2] == ("tally", "publish")
    assert found["stale intervals"].command[:4] == ("airflow", "dags", "trigger", "small")


def test_a_pending_registration_is_a_problem() -> None:
    small = healthy()
    pending = PendingRegistration(
        registration="company", target="sql:default/company/small", registered=3, version=7
    )
    status = replace(read_status(small.lake), unregistered=(pending,))
    (found,) = problem_checks(status)
    assert (found.name, found.state) == ("pending registrations", "warning")
    assert found.found == "version 7 to register in company"
    assert found.command[:2] == ("tally", "publish")


def test_dead_intervals_are_a_warning_and_losses_an_info() -> None:
    small = healthy()
    for hour in range(4):
        small.log.append(TOPIC, 0, day(7) + hour * HOUR, "dead")
    small.run(days(7, 8))
    small.log.expire(TOPIC, 0, before=9)
    small.run(days(3, 4), run="manual__loss", accept_loss=True, mode="replace")
    _, found = examined(small)
    assert {name: check.state for name, check in found.items()} == {
        "root": "ok",
        "dead letters": "warning",
        "lost offsets": "info",
    }


def test_a_lake_of_which_nothing_is_planned_is_an_info() -> None:
    small = SmallLake()
    reading, found = examined(small)
    assert {name: check.state for name, check in found.items()} == {"root": "info"}
    assert reading.status is None


@pytest.mark.parametrize("damage", ["gone", "damaged"])
def test_a_root_that_is_gone_or_damaged_is_an_error(damage: str) -> None:
    small = good_lake()
    small.store.delete(["root.json"])
    if damage == "damaged":
        small.store.create("root.json", b"{}")
    _, found = examined(small)
    assert {name: check.state for name, check in found.items()} == {"root": "error"}


def test_the_connections_are_those_of_the_plan_and_of_the_outputs() -> None:
    status = read_status(good_lake().lake)
    outputs = {
        "a": "postgres:main/public.bills",
        "b": "http:hooks//v1 by id",
        "c": "smtp:mail/to@",
        "d": "kafka:other/topic",
        "e": "file:/srv/x",
        "f": "own:thing/x",
        "g": "no colon",
    }
    assert needed_connections(replace(status, outputs=outputs), None) == {
        (PostgresSettings, "main"),
        (HttpSettings, "hooks"),
        (SmtpSettings, "mail"),
        (KafkaSettings, "other"),
    }


# ---------------------------------------------------------------- retention


def reading_of(small: SmallLake, kept: KeptTopic | None) -> LedgerReading:
    reading = LedgerReading(uri=small.store.uri, status=read_status(small.lake))
    if kept is not None:
        reading.kept[TOPIC] = kept
    return reading


def keeps(small: SmallLake, left: timedelta | None) -> KeptTopic:
    """Return what the topic keeps, such that the gap of day 4 has this time left."""
    partitions = small.log.topics[TOPIC].partitions
    return KeptTopic(
        kept=None if left is None else NOW - day(4) + left,
        starts=tuple(p.log_start for p in partitions),
        ends=tuple(p.end for p in partitions),
    )


def guarded(small: SmallLake, left: timedelta | None) -> list[DoctorCheck]:
    return list(guard_checks(reading_of(small, keeps(small, left)), now=NOW))


def test_a_gap_with_time_is_ok() -> None:
    (check,) = guarded(good_lake(), timedelta(days=5000))
    assert (check.state, check.found) == (
        "ok",
        "120,000 h are left, at least, before records are dropped",
    )
    (check,) = guarded(good_lake(), None)
    assert (check.state, check.found) == (
        "ok",
        "nothing that is not committed is deleted by its age",
    )


def test_a_gap_with_little_time_is_a_warning_with_its_command() -> None:
    small = good_lake()
    found = guarded(small, 5 * HOUR)
    assert [check.state for check in found] == ["warning", "warning"]
    assert found[0].found.startswith("gap 2013-01-04 to 2013-01-05: topic events may drop")
    assert found[0].command == read_status(small.lake).gaps[0].command
    assert found[1].found.startswith("granted, not committed: 2013-01-06 to 2013-01-07")
    assert found[1].command == ()


def test_a_gap_of_which_records_are_gone_is_an_error() -> None:
    small = good_lake()
    small.log.expire(TOPIC, 0, before=12)
    (check,) = guarded(small, None)
    assert check.state == "error"
    assert "has dropped 1 of its 7 offsets" in check.found
    assert "accept_loss=true" in check.fix


def test_the_end_of_the_ledger_is_guarded_too() -> None:
    small = healthy()
    small.log.append(TOPIC, 0, day(7), n=1)
    kept = replace(keeps(small, None), kept=NOW - day(7) + HOUR)
    (check,) = guard_checks(reading_of(small, kept), now=NOW)
    assert check.state == "warning"
    assert check.found.startswith("after the ledger, from 2013-01-07 on: topic events may drop")


def test_without_kafka_the_retention_is_not_known() -> None:
    (check,) = guard_checks(reading_of(good_lake(), None), now=NOW)
    assert check.state == "unknown"
    assert list(guard_checks(LedgerReading(uri="memory://none"), now=NOW)) == []


def test_more_than_five_spans_are_counted() -> None:
    small = SmallLake()
    for hour in range(24):
        small.log.append(TOPIC, 0, day(7) + hour * HOUR, n=hour)
    for hour in range(0, 16, 2):
        start = day(7) + hour * HOUR
        small.run(Interval(start=start, end=start + HOUR))
    found = guarded(small, HOUR)
    assert len(found) == 6
    assert found[-1].found == "3 more spans"
    assert found[-1].command == ("tally", "status", small.store.uri)
