"""An interval that is replaced more often than CHAIN_MAX while an output still needs an old generation's rows."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from support.fake_output import Declared, FakeOutput, Killed, Wire
from support.small_lake import SmallLake, days, pipeline
from tallystick.errors import Corrupt
from tallystick.format import keys
from tallystick.operations.gc import collect
from tallystick.operations.publish import publish
from tallystick.pipeline import Pipeline
from tallystick.tables.reach import IcebergReach
from tallystick.tables.rows import StoredRows

DAY_1, DAY_2 = days(1, 2), days(2, 3)


def _declared(warehouse: str) -> Pipeline:
    return replace(pipeline(warehouse), outputs=(Declared(),))


def _half_published_lake(wire: Wire) -> SmallLake:
    """Return a lake whose first interval is half published: the publisher died after one message."""
    small = SmallLake(declared=_declared)
    small.run(DAY_1)
    sent: list[str] = []

    def dies_at_the_second(step: str) -> None:
        sent.append(step)
        if sent.count("send") == 2:
            raise Killed

    with pytest.raises(Killed):
        publish(
            small.lake,
            {"feed": lambda: FakeOutput(wire, step=dies_at_the_second)},
            rows_of=StoredRows,
        )
    return small


def _replace(small: SmallLake, times: int) -> None:
    for clear in range(1, times + 1):
        small.job = f"version {clear}".encode()
        small.run(DAY_1, clear=clear)


def test_a_publication_in_progress_is_completed_after_any_number_of_replacements(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # 64 in the product. It must not limit the outputs that need an old generation.
    monkeypatch.setattr("tallystick.lake.lake.CHAIN_MAX", 3)
    wire = Wire()
    small = _half_published_lake(wire)
    _replace(small, 5)
    collect(
        small.lake, IcebergReach(small.store), delete=True, reader_grace=timedelta(0), threads=0
    )
    assert publish(small.lake, {"feed": lambda: FakeOutput(wire)}, rows_of=StoredRows) == ()
    small.run(DAY_2)
    assert publish(small.lake, {"feed": lambda: FakeOutput(wire)}, rows_of=StoredRows) == ()


def test_a_chain_of_commits_that_does_not_go_back_is_refused() -> None:
    small = SmallLake(declared=_declared)
    small.run(DAY_1)
    _replace(small, 1)
    record = small.lake.load_existing().root.record
    assert record is not None

    def names_itself(body: dict[str, object]) -> None:
        (done,) = body["intervals"]  # type: ignore[misc]
        done["replaces"] = record

    small.change(record, names_itself)
    snapshot = small.lake.load_existing()
    (entry,) = snapshot.ledger(DAY_1.start, DAY_1.end).entries
    with pytest.raises(Corrupt, match="expected `replaces` to be an older record"):
        list(small.lake.commits_of(entry))
    assert keys.record_version(record) == snapshot.root.version
