"""From the batches of an input split to files, and from the results of an attempt to its report."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tallystick.engine.attempt import assemble
from tallystick.engine.input_splits import split_plan
from tallystick.engine.parquet import WriteLimits
from tallystick.engine.records import BATCH_ROWS, coalesce
from tallystick.engine.task import TaskResult, Work, run_split
from tallystick.errors import InvalidPipeline, ReportRejected, StoreUnavailable
from tallystick.format import keys
from tallystick.format.report import Lineage, Report
from tallystick.store import NotApplied, Outcome, Unknown
from tallystick.store.create_once import TRIES_MAX
from tallystick.store.memory import MemoryStore
from tallystick.tables.schema import FIELD_ID

MakeWork = Callable[..., Work]
VALUES = [b'{"n":1,"kind":"a"}', b'{"n":2}', b"{", b'{"n":3,"kind":"a"}']


def stored(store: MemoryStore, key: str) -> pa.Table:
    found = store.get(key)
    assert found is not None
    return pq.ParquetFile(io.BytesIO(found.body)).read()


def whole_run(work: Work, kit: SimpleNamespace, *, per_task: int = 100) -> Report:
    """Stage all splits of the plan, each with the values of its offsets."""
    splits = split_plan(work.plan, records_per_task=per_task)
    results = []
    for split in splits:
        values = VALUES[split.span.start : split.span.end]
        results.append(
            run_split(work, split, kit.FakeReading([kit.raw_batch(split.span.start, values)]))
        )
    return assemble(work, splits, results)


def test_a_split_becomes_files_dead_letters_partials_and_an_account(
    make_work: MakeWork, kit: SimpleNamespace, tmp_path: Path
) -> None:
    store = MemoryStore("small")
    work = make_work(kit.planned(0, 9), store=store)
    [split] = split_plan(work.plan, records_per_task=100)
    headers = [[], [], [{"key": "h", "value": b"\x00"}, {"key": "h", "value": None}], []]
    reading = kit.FakeReading(
        [kit.raw_batch(0, VALUES, headers=headers)], aborted=3, control=1, absent=1
    )
    result = run_split(work, split, reading, scratch=tmp_path)

    account = result.account
    assert (
        account.records,
        account.dead_letters,
        account.aborted,
        account.control,
        account.absent,
    ) == (
        3,
        1,
        3,
        1,
        1,
    )
    by_partition = {f.partition: f for f in result.files if f.table == "events"}
    assert by_partition.keys() == {("a",), (None,)}
    assert by_partition[("a",)].lineage == (Lineage(topic="events", partition=0, first=0, last=3),)
    file = stored(store, by_partition[("a",)].key)
    assert file.column("n").to_pylist() == [1, 3]
    assert file.schema.field("n").metadata[FIELD_ID] == b"1"
    assert not file.schema.field("n").nullable
    assert by_partition[("a",)].split_offsets == (4,)
    assert {c.id: c.nulls for c in by_partition[(None,)].columns}[2] == 1

    [dead] = [f for f in result.files if f.table == "dead_letters"]
    [letter] = stored(store, dead.key).to_pylist()
    assert (letter["_offset"], letter["key"], letter["value"]) == (2, b"k", b"{")
    assert letter["reason"].startswith("json: ")
    assert json.loads(letter["headers"]) == [["h", base64.b64encode(b"\0").decode()], ["h", None]]
    assert list(tmp_path.iterdir()) == []
    assert (
        replace(TaskResult.from_text(result.to_text(), "here"), partials=result.partials) == result
    )


@pytest.mark.parametrize(
    ("millis", "clamped"),
    [
        (1_700_000_000_000_000_000, "9999-12-31T23:59:59.999000+00:00"),
        (2**63 - 1, "9999-12-31T23:59:59.999000+00:00"),
        (253_402_300_800_000, "9999-12-31T23:59:59.999000+00:00"),
        (-(2**63), "0001-01-01T00:00:00+00:00"),
        (-62_135_596_800_001, "0001-01-01T00:00:00+00:00"),
    ],
)
def test_a_record_with_a_time_outside_the_calendar_is_a_dead_letter(
    make_work: MakeWork, kit: SimpleNamespace, millis: int, clamped: str
) -> None:
    store = MemoryStore("small")
    work = make_work(kit.planned(0, 4), store=store)
    [split] = split_plan(work.plan, records_per_task=100)
    batch = kit.raw_batch(0, VALUES)
    at = batch.column("timestamp").cast(pa.int64()).to_pylist()
    # One good value and the broken one.
    at[1] = at[2] = millis
    changed = batch.set_column(1, "timestamp", pa.array(at, pa.int64()).cast(batch.column(1).type))
    result = run_split(work, split, kit.FakeReading([changed]))

    assert (result.account.records, result.account.dead_letters) == (2, 2)
    good = [stored(store, f.key) for f in result.files if f.table == "events"]
    assert sorted(o for rows in good for o in rows.column("_offset").to_pylist()) == [0, 3]
    [dead] = [f for f in result.files if f.table == "dead_letters"]
    letters = stored(store, dead.key).to_pylist()
    assert [(r["_offset"], r["value"]) for r in letters] == [(1, VALUES[1]), (2, VALUES[2])]
    assert {r["_timestamp"].isoformat() for r in letters} == {clamped}
    assert {r["reason"] for r in letters} == {
        f"timestamp: {millis} ms, the record's own time, lies outside the years 1 to 9999"
    }


@pytest.mark.parametrize("millis", [253_402_300_799_999, -62_135_596_800_000, -1])
def test_the_first_and_the_last_time_of_the_calendar_are_rows(
    make_work: MakeWork, kit: SimpleNamespace, millis: int
) -> None:
    store = MemoryStore("small")
    work = make_work(kit.planned(0, 1), store=store)
    [split] = split_plan(work.plan, records_per_task=100)
    batch = kit.raw_batch(0, VALUES[:1])
    edge = batch.set_column(
        1, "timestamp", pa.array([millis], pa.int64()).cast(batch.column(1).type)
    )
    result = run_split(work, split, kit.FakeReading([edge]))
    [file] = [f for f in result.files if f.table == "events"]
    assert stored(store, file.key).column("_timestamp").cast(pa.int64()).to_pylist() == [
        millis * 1_000
    ]


def test_results_become_a_report_that_accounts_for_every_offset(
    make_work: MakeWork, kit: SimpleNamespace
) -> None:
    store = MemoryStore("small")
    work = make_work(kit.planned(0, 4), store=store)
    report = whole_run(work, kit, per_task=2)
    assert Report.decode(report.encode(), where="here") == report
    assert (report.plan, report.attempt, report.plan_sha256) == (
        work.plan.key,
        "try-1",
        work.plan.sha256,
    )
    [account] = report.accounts
    assert (account.records, account.dead_letters, account.end) == (3, 1, 4)
    [sums] = [f for f in report.files if f.table == "per_kind"]
    assert stored(store, sums.key).to_pylist() == [{"kind": "a", "n": 4}, {"kind": None, "n": 2}]
    assert sums.lineage == ()
    # Only the caller writes the report, after everything else.
    assert {f.key for f in report.files} == {listed.key for listed in store.list("")}


def test_lost_offsets_and_empty_ranges_are_accounted(
    make_work: MakeWork, kit: SimpleNamespace
) -> None:
    work = make_work(kit.planned(0, 4, readable_from=3), kit.planned(9, 9))
    report = whole_run(work, kit)
    assert [(a.partition, a.records, a.lost) for a in report.accounts] == [(0, 1, 3), (1, 0, 0)]


def test_a_plan_without_offsets_has_a_report_without_files(
    make_work: MakeWork, kit: SimpleNamespace
) -> None:
    report = assemble(make_work(kit.planned(5, 5)), (), ())
    assert report.files == ()
    assert [a.records for a in report.accounts] == [0]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda results: results[:1], "[2, 4) has no result"),
        (lambda results: [*results, results[0]], "events[0] [0, 2) has two results"),
        (
            lambda results: [*results, "foreign"],
            "[0, 4) was read, but is not an input split of this plan",
        ),
    ],
    ids=["missing", "doubled by speculation", "of another split"],
)
def test_exactly_one_result_per_split_is_accepted(
    make_work: MakeWork, kit: SimpleNamespace, change: Callable[..., Any], problem: str
) -> None:
    work = make_work(kit.planned(0, 4))
    splits = split_plan(work.plan, records_per_task=2)
    results = [
        run_split(
            work,
            p,
            kit.FakeReading([kit.raw_batch(p.span.start, VALUES[p.span.start : p.span.end])]),
        )
        for p in splits
    ]
    [whole] = split_plan(work.plan, records_per_task=4)
    foreign = run_split(work, whole, kit.FakeReading([kit.raw_batch(0, VALUES)]))
    changed = [foreign if r == "foreign" else r for r in change(results)]
    with pytest.raises(ReportRejected) as caught:
        assemble(work, splits, changed)
    assert problem in caught.value.message


def test_a_task_that_ran_twice_leaves_files_and_is_counted_once(
    make_work: MakeWork, kit: SimpleNamespace
) -> None:
    store = MemoryStore("small")
    work = make_work(kit.planned(0, 4), store=store)
    [split] = split_plan(work.plan, records_per_task=4)
    results = [
        run_split(work, split, kit.FakeReading([kit.raw_batch(0, VALUES)])) for _ in range(2)
    ]
    report = assemble(work, [split], results[1:])
    assert report.rows("events") == 3
    named = {f.key for f in report.files}
    assert len({listed.key for listed in store.list("")} - named) == len(results[0].files)


def test_a_reader_whose_account_does_not_add_up_is_refused(
    make_work: MakeWork, kit: SimpleNamespace
) -> None:
    work = make_work(kit.planned(0, 4))
    [split] = split_plan(work.plan, records_per_task=4)
    with pytest.raises(ReportRejected, match="expected an account of 4 offsets, found 5"):
        run_split(work, split, kit.FakeReading([kit.raw_batch(0, VALUES)], aborted=1))
    with pytest.raises(
        ReportRejected, match="the reader returned 9 records, 3 became rows and 1 dead letters"
    ):
        run_split(work, split, kit.FakeReading([kit.raw_batch(0, VALUES)], records=9))


def test_local_files_are_removed_after_a_failure(
    make_work: MakeWork, kit: SimpleNamespace, tmp_path: Path
) -> None:
    def transform(records: pa.Table) -> Any:
        if records.column("_offset")[0].as_py() == 0:
            return kit.identity_and_sums(records)
        message = "later"
        raise ValueError(message)

    work = make_work(
        kit.planned(0, 4), transform=transform, limits=WriteLimits(group_rows=BATCH_ROWS)
    )
    [split] = split_plan(work.plan, records_per_task=4)
    # The first batch is full, so that it reaches a file before the second one fails.
    batches = [kit.raw_batch(0, [b'{"n":1}'] * BATCH_ROWS), kit.raw_batch(BATCH_ROWS, [b'{"n":1}'])]
    with pytest.raises(InvalidPipeline, match="ValueError: later"):
        run_split(work, split, kit.FakeReading(batches), scratch=tmp_path)
    assert list(tmp_path.iterdir()) == []


class LosesReplies(MemoryStore):
    """A store that applies every write and loses the first replies."""

    def __init__(self, lost: int) -> None:
        super().__init__("small")
        self.lost = lost

    def create(self, key: str, body: bytes | Path) -> Outcome:
        """Safe to repeat: as MemoryStore's."""
        outcome = super().create(key, body)
        self.lost -= 1
        return Unknown(because="timeout") if self.lost >= 0 else outcome


def test_an_upload_of_unknown_outcome_is_retried_with_another_key(
    make_work: MakeWork, kit: SimpleNamespace
) -> None:
    store = LosesReplies(lost=2)
    work = make_work(kit.planned(0, 4), store=store)
    report = whole_run(work, kit)
    orphans = {listed.key for listed in store.list("")} - {f.key for f in report.files}
    assert len(orphans) == 2
    assert all(keys.data_file_parts(k)[3] == "try-1" for k in orphans)


def test_a_store_that_never_answers_is_an_error_to_retry(
    make_work: MakeWork, kit: SimpleNamespace
) -> None:
    store = LosesReplies(lost=TRIES_MAX)
    with pytest.raises(StoreUnavailable, match=r"did not succeed in 6 tries \(timeout\)"):
        whole_run(make_work(kit.planned(0, 4), store=store), kit)


def test_files_roll_at_their_size_and_few_are_open(
    make_work: MakeWork, kit: SimpleNamespace
) -> None:
    store = MemoryStore("small")
    limits = WriteLimits(group_rows=10, file_bytes=1, files_open=2)
    work = make_work(kit.planned(0, 90), store=store, limits=limits)
    [split] = split_plan(work.plan, records_per_task=100)
    values = [b'{"n":%d,"kind":"%d"}' % (i, i % 3) for i in range(90)]
    result = run_split(work, split, kit.FakeReading([kit.raw_batch(0, values)]))
    assert sum(f.rows for f in result.files) == 90
    assert {f.partition for f in result.files} == {("0",), ("1",), ("2",)}
    found = [n for f in result.files for n in stored(store, f.key).column("n").to_pylist()]
    assert sorted(found) == list(range(90))
    assert all(isinstance(store.create(f.key, b""), NotApplied) for f in result.files)


def test_batches_are_joined_without_change(kit: SimpleNamespace) -> None:
    batches = [kit.raw_batch(i * 3, [b"x"] * 3) for i in range(7)] + [kit.raw_batch(21, [])]
    joined = list(coalesce(batches, rows=6))
    assert [b.num_rows for b in joined] == [6, 6, 6, 3]
    assert [o for b in joined for o in b.column("offset").to_pylist()] == list(range(21))
    assert [b.num_rows for b in coalesce(batches, bytes_max=1)] == [3] * 7


def test_an_unknown_table_in_the_plan_is_refused(make_work: MakeWork) -> None:
    with pytest.raises(ReportRejected, match="expected table 'other' of pipeline"):
        make_work().planned("other")


def test_a_value_that_is_too_large_is_a_whole_dead_letter_with_its_300_headers(
    make_work: MakeWork, kit: SimpleNamespace
) -> None:
    store = MemoryStore("small")
    work = make_work(kit.planned(0, 3), store=store)
    [split] = split_plan(work.plan, records_per_task=100)
    large = b'{"n":1,"kind":"' + b"a" * (64 << 20) + b'"}'
    many = [{"key": f"h{n}", "value": b"%d" % n} for n in range(300)]
    batch = kit.raw_batch(0, [VALUES[0], large, VALUES[1]], headers=[many, many, []])
    result = run_split(work, split, kit.FakeReading([batch]))

    assert (result.account.records, result.account.dead_letters) == (2, 1)
    [dead] = [f for f in result.files if f.table == "dead_letters"]
    [letter] = stored(store, dead.key).to_pylist()
    assert letter["value"] == large
    assert letter["reason"].startswith(f"size: the value has {len(large)} bytes, more than ")
    headers = [[name, base64.b64decode(value)] for name, value in json.loads(letter["headers"])]
    assert headers == [[header["key"], header["value"]] for header in many]


def test_a_job_reads_kafkas_name_of_an_adopted_topic_and_files_have_the_ledgers_name(
    make_work: MakeWork, kit: SimpleNamespace
) -> None:
    store = MemoryStore("small")
    names: list[str] = []

    def transform(records: pa.Table) -> dict[str, pa.Table]:
        names.extend(records.column("_topic").to_pylist())
        return kit.identity_and_sums(records)

    work = make_work(kit.planned(0, 9), store=store, transform=transform)
    adopted = replace(work, plan=kit.plan_of(work.pipeline, ("events@2", (kit.planned(0, 4),))))
    [split] = split_plan(adopted.plan, records_per_task=100)
    assert (split.topic, split.source) == ("events@2", "events")
    result = run_split(adopted, split, kit.FakeReading([kit.raw_batch(0, VALUES)]))
    assert set(names) == {"events"}
    for file in result.files:
        assert {line.topic for line in file.lineage} == {"events@2"}
        assert set(stored(store, file.key).column("_topic").to_pylist()) == {"events@2"}
    assert {file.table for file in result.files} == {"events", "dead_letters"}
    assert result.account.topic == "events@2"
