"""Input splits in one process: read one after another, and written and uploaded while the next one is read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from tallystick.engine.in_turn import run_in_turn
from tallystick.engine.input_splits import InputSplit, split_plan
from tallystick.engine.task import Reading, Work
from tallystick.errors import InvalidPipeline, StoreUnavailable
from tallystick.store import NotApplied, Outcome
from tallystick.store.memory import MemoryStore

MakeWork = Callable[..., Work]
VALUES = [b'{"n":1,"kind":"a"}', b'{"n":2}', b'{"n":3,"kind":"a"}', b'{"n":4}']
DEADLINE_S = 30.0


class SlowStore(MemoryStore):
    """A store whose first upload waits until the next split is read."""

    def __init__(self) -> None:
        super().__init__("small")
        self.next_is_read = threading.Event()
        self.waited = False

    def create(self, key: str, body: bytes | Path) -> Outcome:
        self.waited = self.next_is_read.wait(DEADLINE_S)
        return super().create(key, body)


def make_splits(work: Work) -> tuple[InputSplit, ...]:
    splits = split_plan(work.plan, records_per_task=2)
    assert len(splits) == 2
    return tuple(splits)


def batch_of(kit: SimpleNamespace, split: InputSplit) -> pa.RecordBatch:
    return kit.raw_batch(split.span.start, VALUES[split.span.start : split.span.end])


def test_a_split_is_read_while_the_one_before_is_uploaded(
    make_work: MakeWork, kit: SimpleNamespace
) -> None:
    store = SlowStore()
    work = make_work(kit.planned(0, 4), store=store)
    splits = make_splits(work)

    class Announcing(kit.FakeReading):  # type: ignore[misc, name-defined]
        def batches(self) -> Iterator[pa.RecordBatch]:
            yield from super().batches()
            if self.last:
                store.next_is_read.set()

    def reading_of(split: InputSplit) -> Reading:
        reading = Announcing([batch_of(kit, split)])
        reading.last = split is splits[-1]
        return reading

    results = run_in_turn(work, [(split,) for split in splits], reading_of)

    assert store.waited, "the second split was not read before the first one's upload ended"
    assert [result.split for result in results] == list(splits)
    assert [result.account.records for result in results] == [2, 2]
    files = [file for result in results for file in result.files]
    assert sum(file.rows for file in files) == len(VALUES)
    assert all(store.get(file.key) for file in files)


@pytest.mark.parametrize("failing", [0, 1])
def test_a_failed_upload_of_any_split_fails_the_attempt(
    make_work: MakeWork,
    kit: SimpleNamespace,
    failing: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    class Refusing(MemoryStore):
        def create(self, key: str, body: bytes | Path) -> Outcome:
            if f"/{splits[failing].task}-" in key:
                return NotApplied(because="the disk of the store is full")
            return super().create(key, body)

    work = make_work(kit.planned(0, 4), store=Refusing("small"))
    splits = make_splits(work)
    with pytest.raises(StoreUnavailable, match="the disk of the store is full"):
        run_in_turn(
            work,
            [(split,) for split in splits],
            lambda split: kit.FakeReading([batch_of(kit, split)]),
        )
    assert list(tmp_path.iterdir()) == []


def test_a_failed_read_leaves_no_local_file_and_no_thread(
    make_work: MakeWork, kit: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    work = make_work(kit.planned(0, 4), store=MemoryStore("small"))
    splits = make_splits(work)

    def reading_of(split: InputSplit) -> Reading:
        if split is splits[1]:
            raise InvalidPipeline("the second split cannot be read.", hint="none.")
        return kit.FakeReading([batch_of(kit, split)])

    with pytest.raises(InvalidPipeline, match="the second split"):
        run_in_turn(work, [(split,) for split in splits], reading_of)
    assert list(tmp_path.iterdir()) == []
    assert not [one for one in threading.enumerate() if one.name.startswith("tallystick-finish")]


def test_no_split_gives_no_result(make_work: MakeWork, kit: SimpleNamespace) -> None:
    assert run_in_turn(make_work(kit.planned(0, 4)), (), kit.FakeReading) == []
