"""The how-to pages for operators: their commands run, in their order, on a lake in the state that the page describes.

`tally` runs unchanged. Airflow's own parser parses `airflow`. The real plan and commit process what it would start:
for a clear, the run that has the date; for a backfill, the intervals of Airflow's own calendar.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.cli.cli_parser import get_parser
from airflow.sdk.exceptions import AirflowFailException

from support.airflow_calendar import Calendar
from support.small_lake import TOPIC, SmallLake, day, days, good_lake, pipeline
from tallystick import errors
from tallystick.airflow.outcome import airflow_errors
from tallystick.errors import TallystickError
from tallystick.format.interval import Interval
from tallystick.operations.status import read_status
from tallystick.pipeline import Column, Pipeline, Table
from tallystick.store.memory import MemoryStore
from tallystick.store.open import open_store
from unit.cli.invoke import tally

DOCS = Path(__file__).parents[3] / "docs"
LAKE = "memory://how-to-lake"
PAGES = {
    *("rerun", "replace", "recover-from-lost-retention", "move-to-a-new-cluster"),
    *("change-the-schedule", "add-a-table"),
}


@cache
def airflow_parser() -> Any:
    return get_parser()


def page(name: str) -> str:
    return (DOCS / "how-to" / f"{name}.md").read_text(encoding="utf-8")


def fenced(name: str, language: str) -> list[str]:
    return re.findall(rf"^ *```{language}\n(.*?)^ *```$", page(name), re.DOTALL | re.MULTILINE)


class Operator:
    """A person who follows a page on a lake; `printed` is the output of the `tally` commands, in order."""

    def __init__(self, small: SmallLake, *, schedule: str = "@daily") -> None:
        self.small = small
        self.calendar = Calendar(schedule, datetime(2013, 1, 1, tzinfo=UTC))
        self.runs: dict[datetime, tuple[str, Interval, int]] = {}
        for entry in read_status(small.lake).intervals:
            self.runs.setdefault(
                entry.interval.start, (entry.owner.run, entry.interval, entry.owner.clear)
            )
        self.printed: list[str] = []
        self._manual = itertools.count(1)

    def follow(self, name: str, blocks: slice = slice(None)) -> list[str]:
        for block in fenced(name, "sh")[blocks]:
            for line in block.splitlines():
                words = shlex.split(line)
                if words[0] == "tally":
                    result = tally(*words[1:])
                    assert result.exit_code == 0, (line, result.output, result.stderr)
                    self.printed.append(result.stdout)
                else:
                    assert words[0] == "airflow", line
                    self._airflow(airflow_parser().parse_args(words[1:]))
        return self.printed

    def _airflow(self, args: Any) -> None:
        assert getattr(args, "dag_id", None) == self.small.dag
        if args.subcommand == "trigger":
            conf = json.loads(args.conf)
            # Its dates are in its conf; without them the run has no data interval here.
            self.small.run(days(1, 2), run=f"manual__{next(self._manual)}", **conf)
        elif args.subcommand == "clear":
            assert (args.task_regex, args.downstream, args.yes) == ("plan", True, True)
            found = [at for at in self.runs if args.start_date <= at <= args.end_date]
            assert found, "a clear of nothing"
            for at in sorted(found):
                self._again(at, {})
        elif args.subcommand == "create":
            assert args.reprocess_behavior == "completed"
            created = self.calendar.backfill(args.from_date, args.to_date)
            assert created, "No runs to create"
            for interval in created:
                self.runs.setdefault(
                    interval.start, (f"backfill__{interval.end.isoformat()}", interval, -1)
                )
                self._again(interval.start, json.loads(args.dag_run_conf or "{}"))
        else:
            assert args.subcommand in ("pause", "unpause")

    def _again(self, at: datetime, conf: dict[str, Any]) -> None:
        run, interval, clear = self.runs[at]
        self.runs[at] = (run, interval, clear + 1)
        self.small.run(interval, run=run, clear=clear + 1, **conf)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryStore]:
    monkeypatch.setenv("TALLYSTICK_LAKE", LAKE)
    found = open_store(LAKE)
    assert isinstance(found, MemoryStore)
    yield found
    found.delete([listed.key for listed in found.list("")])


def flights(small: SmallLake) -> SmallLake:
    small.dag = "flights"
    return small


def generations(small: SmallLake) -> dict[Interval, int]:
    return {entry.interval: entry.generation for entry in read_status(small.lake).committed}


# ---------------------------------------------------------------- following the pages


def test_rerun(store: MemoryStore) -> None:
    """The days are out of order, day 4 is a gap, the run of day 6 died, and the job changed since."""
    small = good_lake(store, dag="flights")
    small.job = b"version 3"
    before = generations(small)
    printed = Operator(small).follow("rerun")
    after = generations(small)
    # Cleared for the changed job, and once more with force; the others are unchanged.
    assert after[days(2, 3)] == before[days(2, 3)] + 2
    assert after[days(1, 2)] == before[days(1, 2)]
    assert "1 gap:" in printed[1]
    assert "No gaps from " in printed[2]
    assert "it is a gap now" in printed[3]
    assert "Proven: " in printed[4]
    assert [grant.interval for grant in read_status(small.lake).grants] == []


def test_replace(store: MemoryStore) -> None:
    small = flights(SmallLake(store=store))
    for number in (1, 2, 3):
        small.run(days(number, number + 1))
    printed = Operator(small).follow("replace")
    preview = " ".join(printed[0].split())
    assert preview.count("would be replaced; committed by flights / scheduled__") == 2
    assert printed[1].count("generation 2, replaces version") == 2
    assert "Proven: " in printed[2]
    # Days 2 and 3 by the Trigger, then all three by the backfill.
    assert generations(small) == {days(1, 2): 2, days(2, 3): 3, days(3, 4): 3}


def test_recover_from_lost_retention(store: MemoryStore) -> None:
    small = flights(SmallLake(store=store))
    small.run(days(1, 2))
    small.log.expire(TOPIC, 1, before=6)
    with pytest.raises(AirflowFailException) as ended, airflow_errors(str(days(2, 3))):
        small.plan(days(2, 3))
    assert fenced("recover-from-lost-retention", "text") == [f"outside_retention: {ended.value}\n"]
    printed = Operator(small).follow("recover-from-lost-retention")
    assert "LOST: 2 offsets, deleted before they were read" in printed[0]
    assert "Proven: " in printed[1]
    # The run that failed finds the interval committed.
    assert small.plan(days(2, 3)).intervals == ()


def test_the_very_first_interval_is_refused_as_documented() -> None:
    small = SmallLake()
    small.log.expire(TOPIC, 0, before=1)
    with pytest.raises(errors.OutsideRetention) as refused:
        small.plan(days(1, 2))
    assert "begins at offset 1, and has no record before" in refused.value.message
    assert "`begins at offset 1, and has no record before ...`" in page(
        "recover-from-lost-retention"
    )


def test_move_to_a_new_cluster(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    small = flights(SmallLake(store=store))
    small.run(days(1, 2))
    operator = Operator(small)
    printed = operator.follow("move-to-a-new-cluster", slice(1))
    assert "No gaps from " in printed[0]
    assert "grant" not in printed[0]
    old = small.log.topics[TOPIC]
    small.log.create(TOPIC, partitions=2)
    small.log.append(TOPIC, 1, day(2), n=7, kind="moved")
    before = small.lake.load_existing().root.version
    with pytest.raises(AirflowFailException) as ended, airflow_errors(str(days(2, 3))):
        small.plan(days(2, 3))
    assert fenced("move-to-a-new-cluster", "text") == [f"identity_changed: {ended.value}\n"]
    assert small.lake.load_existing().root.version == before

    def described(connection: str, name: str, **_: Any) -> Any:
        found = {"old": old, "default": small.log.topics[name]}[connection]
        ends = [
            SimpleNamespace(log_start=p.log_start, high_watermark=p.end) for p in found.partitions
        ]
        return SimpleNamespace(
            topic_id=found.topic_id, cluster_id=found.cluster_id, partitions=ends
        )

    monkeypatch.setattr("tallystick.cli.topic.described", described)
    dry, done, status = operator.follow("move-to-a-new-cluster", slice(1, None))[2:]
    assert "--confirm topic-id-2" in dry
    lost = sum(p.end for p in old.partitions) - 7  # all but day 1
    wanted = f"LOST: {lost} offsets of events, recorded in the interval that begins at 2013-01-02."
    for output in (dry, done):
        assert wanted in " ".join(output.split())
    assert "topic events@2: 2 partitions" in status
    (committed,) = small.run(days(2, 3))
    assert (committed.totals.records, committed.totals.lost) == (1, lost)


def test_change_the_schedule(store: MemoryStore) -> None:
    """Every six hours for a day, then daily: day 4 is left over, and status shows it."""
    small = flights(SmallLake(store=store))
    for hour in (0, 6, 12, 18):
        at = day(3).replace(hour=hour)
        small.run(Interval(start=at, end=at + (day(2) - day(1)) / 4))
    small.run(days(5, 6))
    printed = Operator(small).follow("change-the-schedule")
    status = " ".join(printed[0].split())
    [line] = [w for w in fenced("change-the-schedule", "sh")[0].splitlines() if "trigger" in w]
    assert " ".join(line.split()) in status.replace("\\ ", "")
    assert "No gaps from " in printed[1]


def with_carriers(warehouse: str) -> Pipeline:
    made = pipeline(warehouse)
    columns = [Column("n", "long"), Column("kind", "string", required=False)]
    return replace(made, tables=[*made.tables, Table("per_carrier", columns=columns)])


def test_add_a_table(store: MemoryStore) -> None:
    small = flights(SmallLake(store=store))
    for number in (1, 2, 3):
        small.run(days(number, number + 1))
    small.declared = with_carriers
    demanded = ("verify", "--deep", "--every-record", "per_carrier")
    small.run(days(4, 5))
    assert tally(*demanded).exit_code == 1, "the past is not filled yet"
    printed = Operator(small).follow("add-a-table")
    assert "per_carrier" in printed[0]
    assert "Proven: " in printed[1]
    # A table that is no longer declared remains; a replaced interval loses its rows there.
    small.declared = pipeline
    rows = {t["name"]: t["rows"] for t in json.loads(tally("tables", "--json").stdout)["tables"]}
    small.run(days(1, 2), clear=2)
    now = {t["name"]: t["rows"] for t in json.loads(tally("tables", "--json").stdout)["tables"]}
    assert (now["events"], now["per_carrier"]) == (rows["events"], rows["per_carrier"] - 5)


def test_every_operators_page_is_followed_and_linked() -> None:
    followed = {
        name.removeprefix("test_").replace("_", "-")
        for name in globals()
        if name.startswith("test_")
    }
    assert followed >= PAGES
    index = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
    assert [
        name for name in (*PAGES, "when-a-task-fails") if f"docs/how-to/{name}.md" not in index
    ] == []


# ---------------------------------------------------------------- when a task fails


def kinds() -> dict[str, type[TallystickError]]:
    """Return every kind that a task can end with, except the groups."""
    groups = (TallystickError, errors.RetryLater, errors.ActionRequired)
    found = (value for value in vars(errors).values() if isinstance(value, type))
    return {c.kind: c for c in found if issubclass(c, TallystickError) and c not in groups}


def entries() -> dict[str, str]:
    parts = re.split(r"^### ", page("when-a-task-fails"), flags=re.MULTILINE)[1:]
    found = {re.match(r"`(\w+)`\n", part): part for part in parts}
    assert None not in found, "an entry is a kind"
    assert len(found) == len(parts)
    return {match[1]: part for match, part in found.items() if match is not None}


def test_every_kind_has_an_entry_and_every_entry_a_kind() -> None:
    assert entries().keys() == kinds().keys()


def test_each_entry_has_what_to_look_at_what_to_press_and_a_link_to_the_reference() -> None:
    reference = (DOCS / "reference" / "errors.md").read_text(encoding="utf-8")
    for name, entry in entries().items():
        class_name = kinds()[name].__name__
        assert f"### `{name}` ({class_name})\n" in reference
        assert f"(../reference/errors.md#{name}-{class_name.lower()})" in entry
        assert entry.count("**Look at:** ") == entry.count("**Press:** ") == 1
    assert "(../how-to/when-a-task-fails.md)" in reference


def test_the_pages_example_is_the_error_of_a_task() -> None:
    small = SmallLake()
    small.run(days(1, 2))
    small.declared = narrower
    with pytest.raises(AirflowFailException) as ended, airflow_errors(str(days(2, 3))):
        small.plan(days(2, 3))
    assert fenced("when-a-task-fails", "text") == [f"schema_changed: {ended.value}\n"]


def narrower(warehouse: str) -> Pipeline:
    made = pipeline(warehouse)
    columns = [Column("n", "int"), Column("kind", "string", required=False)]
    return replace(made, tables=[replace(made.tables[0], columns=columns), made.tables[1]])


def test_links_between_pages_resolve() -> None:
    for name in (*PAGES, "when-a-task-fails"):
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page(name)):
            assert (DOCS / "how-to" / target).resolve().is_file(), (name, target)
