"""Records landed once for a DataFrame job: written, read back, or refused."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from tallystick.engine import landing
from tallystick.engine.attempt import assemble
from tallystick.engine.input_splits import split_plan
from tallystick.engine.landing import (
    Landed,
    LandedSplit,
    land_split,
    landed_of,
    read_landed,
    read_records,
    records_schema,
)
from tallystick.engine.task import Work
from tallystick.errors import Corrupt
from tallystick.format import keys
from tallystick.format.report import FileReport
from tallystick.store.memory import MemoryStore

MakeWork = Callable[..., Work]
VALUES = [b'{"n":1,"kind":"a"}', b'{"n":2}', b"{", b'{"n":3,"kind":"a"}', b'{"n":4}', b"}"]


@pytest.fixture
def landed(make_work: MakeWork, kit: SimpleNamespace) -> SimpleNamespace:
    """Land six offsets in two splits; the second split twice, as by a retry whose first result was lost."""
    store = MemoryStore("landing")
    work = make_work(kit.planned(0, 6), store=store)
    splits = split_plan(work.plan, records_per_task=3)

    def land(split: Any) -> Any:
        batch = kit.raw_batch(split.span.start, VALUES[split.span.start : split.span.end])
        return land_split(work, split, kit.FakeReading([batch]))

    results = [land(p) for p in splits]
    land(splits[1])
    return SimpleNamespace(store=store, work=work, splits=splits, results=results)


def rows_of(landed: SimpleNamespace, found: Landed) -> list[dict[str, Any]]:
    batches = [
        batch
        for file in found.of_topic("events")
        for batch in read_records(landed.store, file, landed.work.pipeline)
    ]
    return list(pa.Table.from_batches(batches).to_pylist())


def test_landed_records_can_be_read_any_number_of_times(landed: SimpleNamespace) -> None:
    # The results of the tasks are in any order: the list has the order of the splits.
    results = [LandedSplit.from_text(r.to_text(), "here") for r in reversed(landed.results)]
    assert results == list(reversed(landed.results))
    found = landed_of(landed.work, results)
    assert [f.key.split("/")[-1][:5] for f in found.files] == ["00000", "00001"]
    for _ in range(2):
        rows = rows_of(landed, found)
        assert [(r["_offset"], r["n"], r["kind"]) for r in rows] == [
            (0, 1, "a"),
            (1, 2, None),
            (3, 3, "a"),
            (4, 4, None),
        ]
        assert {(r["_topic"], r["_kafka_partition"], r["_key"]) for r in rows} == {
            ("events", 0, b"k")
        }
    schema = records_schema(landed.work.pipeline, "events")
    assert not schema.field("n").nullable
    assert schema.field("kind").nullable


def test_the_account_and_the_dead_letters_come_from_a_single_read(
    landed: SimpleNamespace,
) -> None:
    results = [r.result for r in landed.results]
    key = keys.data_file("events", landed.work.plan.key, "try-1", "00000", "e" * 32)
    output = FileReport(table="events", key=key, etag="e", size_bytes=1, rows=4)
    report = assemble(landed.work, landed.splits, results, outputs=[output])
    [account] = report.accounts
    assert (account.records, account.dead_letters) == (4, 2)
    assert report.rows("dead_letters") == 2
    assert {f.table for f in report.files} == {"dead_letters", "events"}
    assert output in report.files
    # The files of the retry exist, and nothing names them.
    scratch = keys.scratch_prefix(landed.work.plan.key, "try-1")
    assert len(list(landed.store.list(scratch))) == 3
    assert len(landed_of(landed.work, landed.results).files) == 2


def test_a_full_file_is_uploaded_and_the_next_one_begins(
    make_work: MakeWork, kit: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landing, "FILE_BYTES", 1)
    store = MemoryStore("landing")
    work = make_work(kit.planned(0, 4), store=store)
    [split] = split_plan(work.plan, records_per_task=100)
    monkeypatch.setattr("tallystick.engine.task.coalesce", iter)
    batches = [kit.raw_batch(0, VALUES[:2]), kit.raw_batch(2, VALUES[2:4])]
    done = land_split(work, split, kit.FakeReading(batches))
    assert [f.rows for f in done.files] == [2, 1]
    found = landed_of(work, [done])
    rows = rows_of(SimpleNamespace(store=store, work=work), found)
    assert [r["n"] for r in rows] == [1, 2, 3]


def test_the_list_is_accepted_only_with_its_digest(landed: SimpleNamespace) -> None:
    found = landed_of(landed.work, landed.results)
    body = found.encode()
    landed.store.create(found.key, body)
    digest = hashlib.sha256(body).hexdigest()
    assert read_landed(landed.store, found.key, sha256=digest) == found
    with pytest.raises(Corrupt, match="expected digest 00"):
        read_landed(landed.store, found.key, sha256="0" * 64)
    other = keys.scratch_list(landed.work.plan.key, "try-2", "f" * 32)
    with pytest.raises(Corrupt, match="found no object"):
        read_landed(landed.store, other, sha256=digest)


def test_a_landed_file_that_is_changed_or_gone_is_refused(landed: SimpleNamespace) -> None:
    file = landed_of(landed.work, landed.results).files[0]
    stored = landed.store.get(file.key)
    landed.store.replace(file.key, stored.body, expected=stored.etag)
    with pytest.raises(Corrupt, match="expected ETag"):
        list(read_records(landed.store, file, landed.work.pipeline))
    landed.store.delete([file.key])
    with pytest.raises(Corrupt, match="found no object") as caught:
        list(read_records(landed.store, file, landed.work.pipeline))
    assert "clear task `stage`" in caught.value.hint
