"""If most records become dead letters, a warning is logged with the most frequent reasons."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from tallystick.engine.attempt import assemble
from tallystick.engine.input_splits import split_plan
from tallystick.engine.landing import LandedSplit, land_split
from tallystick.engine.reasons import KINDS_MAX, OTHERS, Reason, counted, dead_warning, joined
from tallystick.engine.task import TaskResult, Work, run_split

MakeWork = Callable[..., Work]
GOOD, BROKEN, TYPE, TYPE_2 = b'{"n":1}', b"{", b'{"n":"x: 1"}', b'{"n":"y"}'


def test_reasons_are_counted_by_kind_and_field() -> None:
    rows = pa.table(
        {
            "reason": [
                "type: field n: a string is not an integer",
                "json: Expecting value at character 0",
                "json: Expecting value at character 77",
                "type: field n: another",
                "type: field m: a string",
                "!",
            ]
        }
    )
    found = counted(rows, {"json": Reason(count=40, example="first")})
    assert found == {
        "json": Reason(count=42, example="first"),
        "type: field n": Reason(count=2, example="type: field n: a string is not an integer"),
        "type: field m": Reason(count=1, example="type: field m: a string"),
        OTHERS: Reason(count=1, example="!"),
    }


def test_the_number_of_kinds_is_limited_and_no_reason_is_lost() -> None:
    many = [{f"k{i}": Reason(count=2, example="e" * 500)} for i in range(KINDS_MAX + 50)]
    found = joined(many)
    assert len(found) == KINDS_MAX + 1
    assert found[OTHERS].count == 100
    assert max(len(reason.example) for reason in found.values()) == 160


@pytest.mark.parametrize(
    ("records", "dead", "warns"), [(0, 0, False), (3, 2, False), (2, 2, True), (0, 1, True)]
)
def test_the_warning_is_logged_from_half_of_the_records_on(
    records: int, dead: int, warns: bool
) -> None:
    reasons = {f"kind {i}": Reason(count=i, example=f"example {i}") for i in range(1, 6)}
    text = dead_warning(records, dead, reasons)
    assert (text is not None) is warns
    if text is not None:
        assert f"{dead} of {records + dead} records are dead letters" in text
        assert "5 kind 5, e.g. example 5; 4 kind 4, e.g. example 4; 3 kind 3" in text
        assert "and 2 more kinds" in text


@pytest.mark.parametrize("landed", [False, True])
def test_both_kinds_of_job_warn_with_the_reasons_of_all_their_tasks(
    make_work: MakeWork,
    kit: SimpleNamespace,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    landed: bool,
) -> None:
    work = make_work(kit.planned(0, 6))
    splits = split_plan(work.plan, records_per_task=3)
    values = [[TYPE, BROKEN, GOOD], [TYPE_2, TYPE, GOOD]]
    results = []
    for split, found in zip(splits, values, strict=True):
        reading = kit.FakeReading([kit.raw_batch(split.span.start, found)])
        if landed:
            text = land_split(work, split, reading, scratch=tmp_path).to_text()
            results.append(LandedSplit.from_text(text, "task").result)
        else:
            result = run_split(work, split, reading, scratch=tmp_path)
            results.append(
                replace(TaskResult.from_text(result.to_text(), "task"), partials=result.partials)
            )
    with caplog.at_level(logging.WARNING, logger="tallystick"):
        assemble(work, splits, results, outputs=() if landed else None)
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "4 of 6 records are dead letters (67%): 3 type: field n, e.g. type: field n: " in warning
    assert "1 json, e.g. json: " in warning
    assert "Check that the declaration fits the topic" in warning


def test_a_few_dead_letters_log_no_warning(
    make_work: MakeWork, kit: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    work = make_work(kit.planned(0, 3))
    [split] = split_plan(work.plan, records_per_task=3)
    result = run_split(work, split, kit.FakeReading([kit.raw_batch(0, [GOOD, BROKEN, GOOD])]))
    with caplog.at_level(logging.WARNING, logger="tallystick"):
        assemble(work, [split], [result])
    assert not caplog.records
