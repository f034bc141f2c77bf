"""Joins the results of an attempt's tasks into its report, in the driver, and writes the combined tables."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tallystick.engine.combine import combined, from_ipc
from tallystick.engine.input_splits import InputSplit
from tallystick.engine.parquet import TableWriter
from tallystick.engine.reasons import dead_warning, joined, limit_error
from tallystick.engine.room import require_room
from tallystick.engine.task import Attempt, TaskResult
from tallystick.errors import ReportRejected
from tallystick.format import keys
from tallystick.format.lookback import LookbackUsed
from tallystick.format.offsets import OffsetRange, tile
from tallystick.format.page import Totals
from tallystick.format.plan import Plan, PlannedRange
from tallystick.format.report import FileReport, RangeAccount, Report, account_totals
from tallystick.protocol.invariants import account_problem
from tallystick.runtime.version import VERSION

log = logging.getLogger(__name__)
DRIVER = "driver"


def assemble(
    work: Attempt,
    splits: Sequence[InputSplit],
    results: Iterable[TaskResult],
    *,
    outputs: Sequence[FileReport] | None = None,
    lookback: LookbackUsed | None = None,
    scratch: Path | None = None,
) -> Report:
    """Join exactly one result per input split into the report of this attempt; do not write the report.

    Partial rows of aggregating tables are combined to one row per key and uploaded under the attempt's prefix. If the
    job made its tables itself, `outputs` are their files instead. `lookback`: the earlier intervals that the job read.
    Safe to repeat: uploads go under fresh keys. Raises ReportRejected, naming the split or range, if results are missing
    or duplicate or do not add up. Raises InvalidPipeline if the files are too many for a report, TooManyDeadLetters if
    the pipeline does not allow so many and the plan does not accept them.
    """
    by_split = _one_per_split(splits, results)
    files = [file for result in by_split.values() for file in result.files]
    require_room([*files, *(outputs or ())], tasks=len(splits), plan=work.plan)
    if outputs is not None:
        files.extend(outputs)
    else:
        with TemporaryDirectory(prefix="tallystick-", dir=scratch) as folder:
            files.extend(_combined_files(work, list(by_split.values()), Path(folder)))
    accounts = _accounts(work.plan, by_split)
    if (problem := account_problem(work.plan, accounts)) is not None:
        raise _rejected(problem)
    interval = work.plan.interval
    totals = Totals(**account_totals(accounts))
    reasons = joined(result.reasons for result in by_split.values())
    too_many = limit_error(work.plan, work.pipeline.max_dead_letters, totals, reasons)
    if too_many is not None:
        raise too_many
    if (warning := dead_warning(totals.records, totals.dead_letters, reasons)) is not None:
        log.warning("%s: %s", interval, warning)
    return Report(
        key=keys.report(interval.start, interval.end, work.attempt, work.runtime.uuid()),
        plan=work.plan.key,
        plan_sha256=work.plan.sha256,
        fingerprint=work.plan.fingerprint,
        attempt=work.attempt,
        library=VERSION,
        files=tuple(sorted(files, key=lambda f: f.key)),
        accounts=accounts,
        lookback=lookback,
    )


def _one_per_split(
    splits: Sequence[InputSplit], results: Iterable[TaskResult]
) -> dict[InputSplit, TaskResult]:
    """Return the results in the order of their splits. Refuse a duplicate: its rows would be written twice."""
    wanted = set(splits)
    found: dict[InputSplit, TaskResult] = {}
    for result in results:
        if result.split not in wanted:
            raise _rejected(f"{result.split} was read, but is not an input split of this plan")
        if result.split in found:
            raise _rejected(f"{result.split} has two results")
        found[result.split] = result
    missing = [p for p in splits if p not in found]
    if missing:
        raise _rejected(f"{missing[0]} has no result")
    return {p: found[p] for p in splits}


def _combined_files(work: Attempt, results: Sequence[TaskResult], folder: Path) -> list[FileReport]:
    files: list[FileReport] = []
    for table in work.pipeline.tables:
        if not table.aggregates:
            continue
        partials = [r.partials[table.name] for r in results]
        rows = combined(table, [from_ipc(one) for one in partials if one])
        if not rows.num_rows:
            continue
        with TableWriter(
            work.planned(table.name),
            partition_by=table.partition_by,
            upload=work.upload(DRIVER),
            folder=folder,
            limits=work.limits,
            room=work.room(DRIVER),
        ) as writer:
            writer.write(rows)
            files.extend(writer.close())
    return files


def _accounts(plan: Plan, results: Mapping[InputSplit, TaskResult]) -> tuple[RangeAccount, ...]:
    by_place: dict[tuple[str, int], list[RangeAccount]] = {}
    for split, result in results.items():
        by_place.setdefault((split.topic, split.partition), []).append(result.account)
    return tuple(
        _account(topic.name, number, planned, by_place.get((topic.name, number), []))
        for topic in plan.topics
        for number, planned in enumerate(topic.ranges)
    )


def _account(
    topic: str, partition: int, planned: PlannedRange, parts: Sequence[RangeAccount]
) -> RangeAccount:
    """Add up the accounts of a range's splits; RangeAccount refuses a sum that is not the range's length."""
    names = ("records", "dead_letters", "aborted", "control", "absent")
    try:
        if parts and tile(OffsetRange(start=p.start, end=p.end) for p in parts) != planned.readable:
            message = f"expected input splits that cover {planned.readable}, found {len(parts)} that do not"
            raise ValueError(message)
        return RangeAccount(
            topic=topic,
            partition=partition,
            start=planned.start,
            end=planned.end,
            lost=planned.lost,
            **{name: sum(getattr(p, name) for p in parts) for name in names},
        )
    except ValueError as error:
        raise _rejected(f"{topic}[{partition}]: {error}") from error


def _rejected(problem: str) -> ReportRejected:
    return ReportRejected(
        f"the results of this attempt do not add up: {problem}.",
        hint="clear task `stage`; if it repeats, report a defect with the driver's log. Nothing was committed.",
    )
