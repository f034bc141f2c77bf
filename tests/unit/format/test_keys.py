"""Keys are built and parsed in one place, and invalid parts are refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.errors import InvalidPipeline
from tallystick.format import keys
from unit.format.samples import FILE_KEY, SAMPLE_CALLS, SAMPLE_CLAIM, at, plan_key, uuid

instants = st.datetimes(
    # Hypothesis takes naive limits; the zone is added below.
    min_value=datetime(1970, 1, 1),  # noqa: DTZ001
    max_value=datetime(2199, 1, 1),  # noqa: DTZ001
).map(lambda d: d.replace(tzinfo=UTC, microsecond=d.microsecond // 1000 * 1000))


@given(instants)
def test_an_instant_round_trips(instant: datetime) -> None:
    assert keys.parse_instant(keys.instant(instant)) == instant


@given(instants, instants)
def test_a_plans_key_contains_its_interval(start: datetime, end: datetime) -> None:
    assert keys.plan_interval(keys.plan(start, end, "0" * 32)) == (start, end)


@given(instants, instants)
def test_spellings_sort_as_instants_do(a: datetime, b: datetime) -> None:
    assert (keys.instant(a) < keys.instant(b)) == (a < b)


@pytest.mark.parametrize(
    "invalid",
    [
        datetime(2013, 1, 1),  # noqa: DTZ001 - the missing zone is the case
        datetime(2013, 1, 1, tzinfo=timezone(timedelta(hours=1))),
        datetime(2013, 1, 1, microsecond=1, tzinfo=UTC),
    ],
)
def test_only_utc_in_whole_milliseconds_is_an_instant(invalid: datetime) -> None:
    with pytest.raises(ValueError, match=r"UTC|millisecond"):
        keys.instant(invalid)


@pytest.mark.parametrize(
    "text", ["2013-01-01", "2013-01-01T00:00:00Z", "2013-13-01T00:00:00.000Z", ""]
)
def test_other_spellings_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected an instant|does not match|unconverted|month"):
        keys.parse_instant(text)


@pytest.mark.parametrize(
    "name",
    ["", "A", "-a", "_a", "a" * 64, "a/b", "a..b", "a.b", "a%2f", "a b", "ä", "a\n", "\u0430"],
)
def test_invalid_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidPipeline, match="not allowed") as caught:
        keys.check_name(name, "table")
    assert "a-z, 0-9" in caught.value.hint


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "a" * 250, "ä"])
def test_invalid_topics_are_refused(name: str) -> None:
    with pytest.raises(InvalidPipeline, match="not allowed"):
        keys.check_topic(name)


def test_plain_names_pass() -> None:
    assert keys.check_name("flights_2-x", "table") == "flights_2-x"
    assert keys.check_topic("Flights.v1_x-y") == "Flights.v1_x-y"


def test_a_data_files_key_names_its_plan_and_attempt() -> None:
    table, part, plan_uuid, attempt = keys.data_file_parts(FILE_KEY)
    assert (table, attempt) == ("flights", "attempt-1")
    assert (part, plan_uuid) == keys.plan_parts(plan_key(0, 1))
    assert FILE_KEY.startswith(keys.attempt_prefix("flights", plan_key(0, 1), "attempt-1"))
    assert keys.check_data_file(FILE_KEY, "flights") == FILE_KEY


def test_scratch_keys_are_outside_every_table() -> None:
    prefix = keys.scratch_prefix(plan_key(0, 1), "attempt-1")
    file = keys.scratch_file(plan_key(0, 1), "attempt-1", "00003", uuid(1))
    listed = keys.scratch_list(plan_key(0, 1), "attempt-1", uuid(1))
    assert prefix == f"scratch/{'/'.join(keys.plan_parts(plan_key(0, 1)))}/attempt-1/"
    assert file == f"{prefix}00003-{uuid(1)}.parquet"
    assert listed == f"{prefix}{uuid(1)}.json"
    assert keys.check_scratch(file) == file


def test_keys_of_every_kind_pass_their_checks() -> None:
    assert keys.metadata_prefix("flights") == "tables/flights/metadata/"
    assert keys.check_metadata("tables/flights/metadata/00001-a.metadata.json", "flights")
    assert keys.record_version(keys.record(12, uuid(1))) == 12
    assert keys.check_record(keys.record(12, uuid(1))) == f"commits/000000000012-{uuid(1)}.json"
    assert keys.check_page(keys.page(uuid(1))) == f"ledger/{uuid(1)}.json"
    assert keys.check_plan(plan_key(0, 1)) == plan_key(0, 1)
    report = keys.report(at(0), at(1), "a", uuid(1))
    assert keys.check_report(report) == report
    assert keys.check_uuid(uuid(3)) == uuid(3)


@pytest.mark.parametrize(
    ("check", "key"),
    [
        (keys.check_page, "ledger/x.json"),
        (keys.check_record, "commits/1-x.json"),
        (keys.check_plan, "plans/x/y.json"),
        (keys.check_report, f"attempts/x/y-{uuid(1)}.json"),
        (keys.check_uuid, "XYZ"),
        (keys.claim, "root.json"),
        (lambda a: keys.claimed_report(plan_key(0, 1), a), "../a"),
        (keys.check_attempt, "a/b"),
        (keys.data_file_parts, "tables/a/data/x.parquet"),
        (lambda k: keys.check_metadata(k, "flights"), "tables/other/metadata/a.metadata.json"),
        (lambda k: keys.check_metadata(k, "flights"), "tables/flights/metadata/../../x"),
        (lambda k: keys.check_metadata(k, "flights"), "tables/flights/metadata/a..b"),
        (lambda k: keys.check_data_file(k, "other"), FILE_KEY),
        (lambda k: keys.check_data_file(k, "flights"), "root.json"),
        (keys.check_scratch, FILE_KEY),
        (lambda t: keys.scratch_file(plan_key(0, 1), "a", t, uuid(1)), "T/.."),
        (lambda a: keys.scratch_prefix(plan_key(0, 1), a), "../a"),
        (lambda k: keys.record(-1, k), uuid(1)),
        (lambda k: keys.record(10**12, k), uuid(1)),
        (lambda t: keys.data_file("flights", plan_key(0, 1), "a", t, uuid(1)), "T/.."),
    ],
)
def test_a_key_of_another_shape_is_refused(check: Any, key: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        check(key)


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("root.json", "root"),
        (keys.page(uuid(1)), "page"),
        (keys.record(3, uuid(1)), "record"),
        (plan_key(0, 1), "plan"),
        (keys.claim(plan_key(0, 1)), "claim"),
        (keys.claimed_report(plan_key(0, 1), "a1"), "report"),
        ("claims/x/y.json", "foreign"),
        (keys.report(at(0), at(1), "a1", uuid(1)), "report"),
        (f"tables/flights/metadata/snap-1-0-{UUID(int=1)}.avro", "metadata"),
        # As DuckDB names it; the first group of its UUID is a number by chance.
        (f"tables/flights/metadata/snap-1-{UUID(int=1)}.avro", "foreign"),
        ("tables/flights/metadata/snap-1-0-by-hand.avro", "foreign"),
        (FILE_KEY, "data file"),
        (keys.scratch_list(plan_key(0, 1), "a1", uuid(1)), "scratch"),
        (keys.calls("feed", keys.plan_parts(plan_key(0, 1))[0], uuid(1), 0, 500), "call"),
        (keys.call_try("feed", 40 * "a", 1), "call"),
        (keys.call_no("feed", 40 * "a", 20), "call"),
        (keys.call_sent("feed", 40 * "a"), "call"),
        ("calls/feed/keys/ab/" + 40 * "a" + ".sent.json", "foreign"),
        ("calls/feed/keys/aa/" + 40 * "a" + ".001.sent.json", "foreign"),
        ("calls/Feed/keys/aa/" + 40 * "a" + ".sent.json", "foreign"),
        (keys.compaction("flights", uuid(1)), "compaction"),
        (keys.shared_file("flights", uuid(1), "0", uuid(2)), "shared file"),
        (keys.row_order("flights", uuid(1), "0", uuid(2)), "row order"),
        (keys.deletes("flights", uuid(1)), "deletes"),
        ("tables/flights/shared/by-hand.parquet", "foreign"),
        ("tables/flights/deletes/by-hand.parquet", "foreign"),
        ("compactions/flights/by-hand.json", "foreign"),
        (f"compactions/flights/{uuid(1)}/by-hand.parquet", "foreign"),
        (keys.probe(uuid(1)), "probe"),
        (keys.probe(uuid(1)) + "-absent", "probe"),
        (keys.room(uuid(1)), "probe"),
        ("root.json.bak", "foreign"),
        ("ledger/notes.txt", "foreign"),
        (f"tables/flights/metadata/00001-{UUID(int=1)}.metadata.json", "metadata"),
        (f"tables/flights/metadata/{UUID(int=1)}-m0.avro", "metadata"),
        ("tables/flights/metadata/by-hand-m0.avro", "foreign"),
        ("tables/flights/metadata/00001-by-hand.metadata.json", "foreign"),
        ("tables/flights/metadata/version-hint.text", "foreign"),
        ("tables/flights/metadata/v1.metadata.json", "foreign"),
        ("tables/flights/metadata/by-hand.puffin", "foreign"),
        (FILE_KEY + ".crc", "foreign"),
        ("tables/Flights/metadata/x.avro", "foreign"),
        ("", "foreign"),
    ],
)
def test_a_key_determines_the_kind_of_its_object(key: str, kind: str) -> None:
    assert keys.kind(key) == kind


def test_the_key_of_a_call_note_contains_its_kind_and_number() -> None:
    digits = 40 * "a"
    assert keys.call_parts(keys.call_try("feed", digits, 1)) == ("try", 1)
    assert keys.call_parts(keys.call_no("feed", digits, 12)) == ("no", 12)
    assert keys.call_parts(keys.call_sent("feed", digits)) == ("sent", 0)
    assert keys.call_sent("feed", digits).startswith(keys.call_prefix("feed", digits))
    part = keys.plan_parts(plan_key(0, 1))[0]
    for wrong in (
        lambda: keys.call_parts("calls/feed/keys/aa/x.json"),
        lambda: keys.call_prefix("feed", "a"),
        lambda: keys.call_try("feed", digits, 0),
        lambda: keys.call_try("feed", digits, 1000),
        lambda: keys.calls("feed", part, uuid(1), 5, 5),
        lambda: keys.calls("feed", "today", uuid(1), 0, 5),
    ):
        with pytest.raises(ValueError, match="expected"):
            wrong()


def test_keys_of_an_interval_contain_the_interval_and_the_plan() -> None:
    part = keys.plan_parts(plan_key(0, 1))[0]
    scratch = keys.scratch_list(plan_key(0, 1), "a1", uuid(1))
    for key in (plan_key(0, 1), keys.claim(plan_key(0, 1)), FILE_KEY, scratch):
        assert keys.interval_of(key) == (part, uuid(1))
    assert keys.interval_of(keys.report(at(0), at(1), "a1", uuid(2))) == (part, None)
    with pytest.raises(ValueError, match="an interval's object"):
        keys.interval_of("root.json")


def test_the_key_of_a_calls_note_follows_from_its_fields() -> None:
    calls = SAMPLE_CALLS
    key = keys.calls(calls.output, calls.interval, calls.plan, calls.first, calls.end)
    assert calls.key == key
    assert key.startswith(f"calls/{calls.output}/")


def test_the_key_of_an_outcome_is_scratch_and_follows_from_the_plan_and_the_attempt() -> None:
    key = keys.outcome(plan_key(0, 1), "a1")
    part, plan = keys.plan_parts(plan_key(0, 1))
    assert key == f"scratch/{part}/{plan}/a1/{plan}.json"
    assert keys.kind(key) == "scratch"


def test_the_keys_of_a_compaction_contain_its_table_and_its_id() -> None:
    shared = keys.shared_file("flights", uuid(1), "0", uuid(2))
    assert keys.shared_file_parts(shared) == ("flights", uuid(1))
    assert keys.compaction_parts(keys.compaction("flights", uuid(1))) == ("flights", uuid(1))
    order = keys.row_order("flights", uuid(1), "0", uuid(2))
    assert keys.row_order_parts(order) == ("flights", uuid(1))
    assert keys.check_table_file(shared, "flights") == shared
    assert keys.check_table_file(FILE_KEY, "flights") == FILE_KEY
    assert keys.plan_of_data_file(FILE_KEY) == plan_key(0, 1)
    for wrong in (
        lambda: keys.check_table_file(shared, "delays"),
        lambda: keys.check_shared_file(shared, "flights", uuid(2)),
        lambda: keys.shared_file_parts(FILE_KEY),
        lambda: keys.check_row_order(order, "flights", uuid(2)),
        lambda: keys.row_order_parts(shared),
        lambda: keys.check_compaction(plan_key(0, 1)),
    ):
        with pytest.raises(ValueError, match="expected"):
            wrong()


def test_the_keys_of_a_claim_and_of_its_report_follow_from_the_plan_and_the_attempt() -> None:
    claim = SAMPLE_CLAIM
    part, plan = keys.plan_parts(claim.plan)
    assert claim.key == f"claims/{part}/{plan}.json"
    assert claim.report == f"attempts/{part}/{claim.attempt}-{plan}.json"
    assert keys.check_report(claim.report) == claim.report
