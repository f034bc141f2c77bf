"""The task `publish`, and `commit` with outputs: files in a folder, unavailable receivers, and reruns."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from support.fake_output import Declared, FakeOutput, Wire
from support.small_lake import day, days
from tallystick.errors import InvalidPipeline, OutputUnavailable
from tallystick.outputs.files import HIDDEN, FileOutput
from tallystick.outputs.opening import open_output
from tallystick.outputs.port import Publication, Scope
from tallystick.store.memory import MemoryStore
from unit.airflow.bench import Bench, bench
from unit.airflow.runs import FakeRun

__all__ = ["bench"]

pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")


@pytest.fixture
def folder(tmp_path: Path, bench: Bench) -> Path:
    """Return the folder to which the pipeline's table `events` is published."""
    path = tmp_path / "out"
    outputs = [FileOutput(name="files", table="events", folder=str(path))]
    bench.pipeline = replace(bench.pipeline, outputs=outputs)
    return path


def run_of(first: int, **options: Any) -> FakeRun:
    """Return the scheduled run of a day."""
    return FakeRun(
        interval=days(first, first + 1),
        run_after=day(first + 1),
        run_id=f"scheduled__{day(first).isoformat()}",
        **options,
    )


def seen(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of the files that readers list, by the first day of each file."""
    return {
        path.name[:8]: [json.loads(line) for line in path.read_text().splitlines()]
        for path in sorted(folder.glob("*.jsonl"))
    }


def test_a_dag_with_outputs_has_the_task_publish(bench: Bench, folder: Path) -> None:
    assert [t.task_id for t in bench.dag.topological_sort()] == [
        "plan",
        "stage",
        "commit",
        "publish",
    ]
    assert bench.task("publish").max_active_tis_per_dag == 1


def test_commit_leaves_outputs_alone_and_publish_publishes(bench: Bench, folder: Path) -> None:
    run = run_of(1)
    bench.run_all(run)
    assert not folder.exists()
    assert run.execute(bench.task("publish")) == {"published": {"files": 1}}
    rows = seen(folder)["20130101"]
    assert len(rows) == 5
    assert {row["_topic"] for row in rows} == {"events"}
    assert list((folder / HIDDEN).glob("*.prepared")) == []


def test_publish_again_does_nothing_and_logs_it(
    bench: Bench, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of(1)
    bench.run_all(run)
    run.execute(bench.task("publish"))
    before = {path: path.stat().st_mtime_ns for path in folder.glob("*.jsonl")}
    assert run.execute(bench.task("publish")) == {"published": {"files": 0}}
    assert "output files has nothing pending" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in folder.glob("*.jsonl")} == before


def test_any_later_run_publishes_what_a_previous_run_left(bench: Bench, folder: Path) -> None:
    bench.run_all(run_of(1))  # and its publish task never ran
    later = run_of(2)
    bench.run_all(later)
    assert later.execute(bench.task("publish")) == {"published": {"files": 2}}
    assert seen(folder).keys() == {"20130101", "20130102"}


def test_a_clear_after_a_change_of_the_job_publishes_the_new_rows(
    bench: Bench, folder: Path
) -> None:
    run = run_of(1)
    bench.run_all(run)
    run.execute(bench.task("publish"))
    before = next(folder.glob("*.jsonl")).stat().st_ino
    bench.deploy("version 2")
    again = run_of(1, clear_number=1)
    bench.run_all(again)
    assert again.execute(bench.task("publish")) == {"published": {"files": 1}}
    assert next(folder.glob("*.jsonl")).stat().st_ino != before
    assert len(seen(folder)["20130101"]) == 5


def test_an_unavailable_output_delays_no_commit_and_is_tried_again(
    bench: Bench, folder: Path
) -> None:
    folder.write_text("a file where the folder belongs")
    run = run_of(1)
    bench.run_all(run)
    assert run.returned["commit"]["covered"]
    with pytest.raises(AirflowFailException, match=r"output files: .* cannot be created"):
        run.execute(bench.task("publish"))
    folder.unlink()
    assert run.execute(bench.task("publish")) == {"published": {"files": 1}}


@dataclass(frozen=True, kw_only=True)
class OwnKind(Declared):
    """A kind of the user's own, over a wire."""

    wire: Wire
    away: bool = False

    def open(self) -> FakeOutput:
        """Open the output, as docs/reference/outputs.md describes."""
        return Away(self.wire) if self.away else FakeOutput(self.wire)


class Odd(FakeOutput):
    """An output that raises an error that is not tallystick's."""

    def prepare(self, publication: Publication) -> None:
        raise ZeroDivisionError(str(publication))


@dataclass(frozen=True, kw_only=True)
class OddKind(Declared):
    """A kind of the user's own that is broken."""

    def open(self) -> FakeOutput:
        return Odd(Wire())


class Hanging(FakeOutput):
    """An output whose calls never return: a commit that made a call would not end."""

    def _hang(self, *_: object, **__: object) -> None:
        pytest.fail("the commit waits for an output")

    begin = prepare = publish = abort = close = _hang  # type: ignore[assignment]


@dataclass(frozen=True, kw_only=True)
class HangingKind(Declared):
    """A kind of the user's own that hangs when it is opened, or later."""

    opens: bool

    def open(self) -> FakeOutput:
        if not self.opens:
            pytest.fail("the commit waits for an output to open")
        return Hanging(Wire())


@pytest.mark.parametrize("opens", [False, True])
@pytest.mark.parametrize("lost", [False, True])
def test_an_output_that_hangs_delays_no_commit(bench: Bench, opens: bool, lost: bool) -> None:
    """Neither a commit that succeeds nor a commit whose interval was taken over meanwhile is delayed."""
    bench.pipeline = replace(bench.pipeline, outputs=[HangingKind(opens=opens)])
    run = run_of(1)
    run.execute(bench.task("plan"))
    bench.stage(run)
    if lost:
        taker = run_of(1, params={"take_over": True})
        taker.run_id = "manual"
        taker.execute(bench.task("plan"))
        with pytest.raises(AirflowFailException, match="is now held by"):
            run.execute(bench.task("commit"))
    else:
        assert run.execute(bench.task("commit"))["covered"]


def test_an_output_that_raises_anything_harms_no_commit_and_no_other_output(
    bench: Bench, folder: Path
) -> None:
    (files,) = bench.pipeline.outputs
    bench.pipeline = replace(bench.pipeline, outputs=[OddKind(), files])
    run = run_of(1)
    bench.run_all(run)
    with pytest.raises(AirflowException, match="output feed: ZeroDivisionError"):
        run.execute(bench.task("publish"))
    assert seen(folder).keys() == {"20130101"}


class Unclosable(FakeOutput):
    """An output that raises when it is closed."""

    def close(self) -> None:
        raise ZeroDivisionError("close")


@dataclass(frozen=True, kw_only=True)
class RaisingKind(Declared):
    """A kind of the user's own that cannot be opened, or cannot be closed."""

    wire: Wire
    opens: bool = True

    def open(self) -> FakeOutput:
        if not self.opens:
            raise ZeroDivisionError("open")
        return Unclosable(self.wire)


@pytest.mark.parametrize("opens", [False, True])
def test_an_output_that_cannot_be_opened_or_closed_harms_no_commit_and_no_other_output(
    bench: Bench, folder: Path, caplog: pytest.LogCaptureFixture, opens: bool
) -> None:
    (files,) = bench.pipeline.outputs
    bench.pipeline = replace(bench.pipeline, outputs=[RaisingKind(wire=Wire(), opens=opens), files])
    run = run_of(1)
    bench.run_all(run)
    assert run.returned["commit"]["covered"]
    if opens:
        assert run.execute(bench.task("publish")) == {"published": {"feed": 1, "files": 1}}
        assert "output feed was not closed: ZeroDivisionError: close" in caplog.text
    else:
        with pytest.raises(AirflowException, match="output feed: ZeroDivisionError: open"):
            run.execute(bench.task("publish"))
    assert seen(folder).keys() == {"20130101"}


class Away(FakeOutput):
    """A receiver that does not answer."""

    def begin(self, scope: Scope) -> None:
        raise OutputUnavailable("the receiver of feed is away.", hint="nothing.")


def test_a_kind_of_the_users_own_is_opened_by_its_own_method(bench: Bench) -> None:
    wire = Wire()
    bench.pipeline = replace(bench.pipeline, outputs=[OwnKind(wire=wire)])
    run = run_of(1)
    bench.run_all(run)
    assert wire.messages == []
    assert run.execute(bench.task("publish")) == {"published": {"feed": 1}}
    assert len(wire.rows()) == 5


def test_an_output_that_fails_stops_no_other_and_fails_the_task(
    bench: Bench, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (files,) = bench.pipeline.outputs
    away = OwnKind(wire=Wire(), away=True)
    other = OwnKind(name="other", target="memory:other", wire=Wire(), away=True)
    bench.pipeline = replace(bench.pipeline, outputs=[away, files, other])
    run = run_of(1)
    bench.run_all(run)
    with pytest.raises(AirflowException, match="feed is away"):
        run.execute(bench.task("publish"))
    assert "not published: to output other: output_unavailable" in capsys.readouterr().out
    assert seen(folder).keys() == {"20130101"}


def test_an_output_that_cannot_be_opened_is_named(bench: Bench) -> None:
    def never(kind: Any, _: str) -> Any:
        pytest.fail(f"{kind} is not needed")

    with pytest.raises(
        InvalidPipeline, match=r"output feed: expected a known kind of output .*, found Declared"
    ):
        open_output(Declared(), settings=never, store=MemoryStore())
