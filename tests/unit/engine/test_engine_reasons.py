"""Dead letters are logged with their most frequent reasons; if there are too many, the attempt has no report."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from tallystick.engine.attempt import assemble
from tallystick.engine.input_splits import split_plan
from tallystick.engine.landing import LandedSplit, land_split
from tallystick.engine.reasons import KINDS_MAX, OTHERS, ReasonCount, counted, dead_warning, joined
from tallystick.engine.task import TaskResult, Work, run_split
from tallystick.errors import InvalidPipeline, TooManyDeadLetters
from tallystick.pipeline import pipeline_from_spec

MakeWork = Callable[..., Work]
GOOD, BROKEN, TYPE, TYPE_2 = b'{"n":1}', b"{", b'{"n":"x: 1"}', b'{"n":"y"}'


def test_reasons_are_counted_by_kind_and_field() -> None:
    letters = [
        ("type", "n", "type: field n: a string is not an integer"),
        ("json", None, "json: Expecting value at character 0"),
        ("json", None, "json: Expecting value at character 77"),
        ("type", "n", "type: field n: another"),
        ("type", "m: x", "type: field m: x: a string"),
    ]
    rows = pa.table(dict(zip(("kind", "field", "reason"), zip(*letters, strict=True), strict=True)))
    found = counted(rows, {"json": ReasonCount(count=40, example="first")})
    assert found == {
        "json": ReasonCount(count=42, example="first"),
        "type: field n": ReasonCount(count=2, example="type: field n: a string is not an integer"),
        "type: field m: x": ReasonCount(count=1, example="type: field m: x: a string"),
    }


def test_a_table_is_counted_as_if_each_of_its_rows_were_counted_by_itself() -> None:
    letters = [(f"k{i * 7 % 260}", (None, "n")[i % 2], f"{i}" * 100) for i in range(2_000)]
    before = {f"b{i}": ReasonCount(count=1, example="first") for i in range(KINDS_MAX - 100)}
    expected = dict(before)
    for kind, field, text in letters:
        row = pa.table({"kind": [kind], "field": pa.array([field], pa.string()), "reason": [text]})
        expected = counted(row, expected)
    columns = dict(zip(("kind", "field", "reason"), zip(*letters, strict=True), strict=True))
    found = counted(pa.table(columns), before)
    assert list(found.items()) == list(expected.items())
    assert len(found) == KINDS_MAX + 1
    assert counted(pa.table(columns).schema.empty_table(), before) == before


def test_the_number_of_kinds_is_limited_and_no_reason_is_lost() -> None:
    many = [{f"k{i}": ReasonCount(count=2, example="e" * 500)} for i in range(KINDS_MAX + 50)]
    found = joined(many)
    assert len(found) == KINDS_MAX + 1
    assert found[OTHERS].count == 100
    assert max(len(reason.example) for reason in found.values()) == 160


@pytest.mark.parametrize(
    ("records", "dead", "share", "advises"),
    [
        (3, 2, "2 of 5 records are dead letters (40%)", False),
        (2, 2, "2 of 4 records are dead letters (50%)", True),
        (0, 1, "1 of 1 records are dead letters (100%)", True),
        (1, 999, "999 of 1,000 records are dead letters (99%)", True),
        (9_999_999, 1, "1 of 10,000,000 records are dead letters (0.01%)", False),
        (996, 4, "4 of 1,000 records are dead letters (0.4%)", False),
    ],
)
def test_the_warning_has_the_most_frequent_reasons_and_advice_from_half_of_the_records_on(
    records: int, dead: int, share: str, advises: bool
) -> None:
    reasons = {f"kind {i}": ReasonCount(count=i, example=f"example {i}") for i in range(1, 6)}
    text = dead_warning(records, dead, reasons)
    assert text is not None
    assert text.startswith(f"{share}: ")
    assert "5 kind 5, e.g. example 5; 4 kind 4, e.g. example 4; 3 kind 3" in text
    assert "and 2 more kinds" in text
    assert ("Check that the declaration fits the topic" in text) is advises


def test_without_dead_letters_there_is_no_warning() -> None:
    assert dead_warning(0, 0, {}) is None
    assert dead_warning(7, 0, {}) is None


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


def test_a_few_dead_letters_log_a_warning_without_advice(
    make_work: MakeWork, kit: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    work = make_work(kit.planned(0, 3))
    [split] = split_plan(work.plan, records_per_task=3)
    result = run_split(work, split, kit.FakeReading([kit.raw_batch(0, [GOOD, BROKEN, GOOD])]))
    with caplog.at_level(logging.WARNING, logger="tallystick"):
        assemble(work, [split], [result])
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "1 of 3 records are dead letters (33%): 1 json, e.g. json: " in warning
    assert "declaration" not in warning


@pytest.mark.parametrize(
    ("limit", "values", "expected"),
    [
        (None, [BROKEN] * 10, "at least one record that is no dead letter"),
        (None, [BROKEN] * 9, None),
        (None, [BROKEN] * 10 + [GOOD], None),
        (0, [BROKEN, GOOD], "at most 0 dead letters"),
        (2, [BROKEN] * 3, "at most 2 dead letters"),
        (2, [BROKEN] * 2, None),
        (0.1, [BROKEN] * 3 + [GOOD] * 26, "at most 0.1 of the records as dead letters"),
        (0.1, [BROKEN] * 3 + [GOOD] * 27, None),
        (0.1, [BROKEN] * 9, None),
        (1.0, [BROKEN] * 20, None),
    ],
)
def test_an_attempt_with_more_dead_letters_than_its_pipeline_allows_has_no_report(
    make_work: MakeWork, kit: SimpleNamespace, limit: Any, values: list[bytes], expected: str | None
) -> None:
    work = make_work(kit.planned(0, len(values)))
    # As a plan stores it: a share must be the same number again.
    declared = replace(work.pipeline, max_dead_letters=limit)
    work = replace(work, pipeline=pipeline_from_spec(declared.to_spec(), where="spec"))
    [split] = split_plan(work.plan, records_per_task=100)
    result = run_split(work, split, kit.FakeReading([kit.raw_batch(0, values)]))
    if expected is None:
        assert assemble(work, [split], [result]).accounts[0].records == values.count(GOOD)
        return
    with pytest.raises(TooManyDeadLetters) as caught:
        assemble(work, [split], [result])
    assert f"expected {expected}, found that {values.count(BROKEN)} of {len(values)}" in str(
        caught.value
    )
    assert "json, e.g. json: " in caught.value.message
    assert "accept_dead_letters=true" in caught.value.hint
    accepted = replace(work, plan=replace(work.plan, accept_dead_letters=True))
    assert assemble(accepted, [split], [result]).accounts[0].dead_letters == values.count(BROKEN)


@pytest.mark.parametrize("limit", [-1, 0.0, -0.5, 1.5, float("nan"), True, "5%"])
def test_a_limit_that_is_neither_a_count_nor_a_share_is_refused(
    make_work: MakeWork, limit: Any
) -> None:
    with pytest.raises(InvalidPipeline, match="max_dead_letters: expected a count"):
        replace(make_work().pipeline, max_dead_letters=limit)


def test_the_limit_does_not_change_the_fingerprint(make_work: MakeWork) -> None:
    declared = make_work().pipeline
    assert replace(declared, max_dead_letters=7).fingerprint(b"") == declared.fingerprint(b"")
