"""The run's note, its XComs and the Asset event: counts, and the error with its next step."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa
from airflow.models import import_all_models
from airflow.models.base import Base
from airflow.models.dagrun import DagRun, DagRunNote
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.sdk import timezone
from airflow.sdk.exceptions import AirflowFailException
from airflow.utils.sqlalchemy import prohibit_commit
from sqlalchemy.orm import Session

from support.small_lake import day, days
from tallystick.airflow import listener
from tallystick.airflow.assets import asset_of
from tallystick.airflow.dag import replay_dag
from tallystick.airflow.lines import WIDTH_MAX, fit
from tallystick.airflow.note_text import NOTE, NOTE_MAX, OFF, merged
from tallystick.airflow.notes import leave_error
from tallystick.airflow.plugin import TallystickPlugin
from tallystick.errors import SchemaChanged
from tallystick.format.interval import Interval
from unit.airflow.bench import Bench, bench
from unit.airflow.runs import FakeRun

__all__ = ["bench"]

# kafka-python reads its schemas in a way that Python 3.11 (not 3.13) calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")

NO_TOTALS = dict.fromkeys(
    ("records", "dead_letters", "aborted", "control", "absent", "lost", "offsets"), 0
)
ONE_DAY = NO_TOTALS | {"records": 5, "dead_letters": 2, "offsets": 7}


def run_of(interval: Interval | None = None, **options: Any) -> FakeRun:
    interval = interval or days(1, 2)
    return FakeRun(interval=interval, run_after=interval.end, **options)


# ---------------------------------------------------------------- counts


def test_xcom_and_asset_event_of_a_commit_hold_its_counts(bench: Bench) -> None:
    run = run_of()
    event = bench.run_all(run)
    assert event["totals"] == ONE_DAY
    assert event["generation"] == 1
    committed = event["committed"]
    assert committed["rows"] == {
        "dead_letters": 2,
        "events": 5,
        "per_kind": committed["rows"]["per_kind"],
    }
    assert committed["bytes"] == sum(
        f.size_bytes for f in reported(bench, run.returned["stage"][0]["report"])
    )
    assert {k: committed[k] for k in ("intervals", "already", "totals")} == {
        "intervals": 1,
        "already": 0,
        "totals": ONE_DAY,
    }
    assert run.events[asset_of(bench.pipeline).name].extra == event
    assert run.pushed["commit", NOTE] == f"5 records, 2 dead letters, version {event['version']}"


def reported(bench: Bench, key: str) -> Any:
    report = bench.lake.report(key)
    assert report is not None
    return report.files


def test_a_clear_of_commit_counts_what_the_previous_try_committed(bench: Bench) -> None:
    run = run_of()
    first = bench.run_all(run)
    again = run.execute(bench.task("commit"))
    assert again == first | {"committed": first["committed"] | {"already": 1}}
    note = f"5 records, 2 dead letters, committed before, version {first['version']}"
    assert run.pushed["commit", NOTE] == note


def test_without_its_reports_a_commit_has_counts_but_no_rows(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of()
    bench.run_all(run)
    bench.lake.store.delete([staged["report"] for staged in run.returned["stage"]])
    committed = run.execute(bench.task("commit"))["committed"]
    assert (committed["totals"], committed["rows"], committed["bytes"]) == (ONE_DAY, None, None)


def test_the_note_of_a_run_without_work_states_that_nothing_was_left(bench: Bench) -> None:
    run = run_of()
    version = bench.run_all(run)["version"]
    run.clear_number = 1
    event = bench.run_all(run)
    assert event["totals"] == ONE_DAY
    assert event["committed"] == {
        "intervals": 0,
        "already": 0,
        "totals": NO_TOTALS,
        "rows": {},
        "bytes": 0,
    }
    assert run.pushed["commit", NOTE] == f"nothing was left to do, version {version}"


def test_a_run_whose_interval_others_committed_names_them(bench: Bench) -> None:
    version = bench.run_all(run_of(run_id="first"))["version"]
    second = run_of(run_id="second")
    event = bench.run_all(second)
    assert event["totals"] == ONE_DAY
    assert second.pushed["commit", NOTE] == f"covered by run first, version {version}"


def test_a_run_that_skips_what_another_run_holds_names_that_run(bench: Bench) -> None:
    run_of(run_id="first").execute(bench.task("plan"))
    second = run_of(run_id="second")
    event = bench.run_all(second)
    assert (event["totals"], event["generation"]) == (NO_TOTALS, None)
    note = f"nothing was committed; 1 interval held by run first, version {event['version']}"
    assert second.pushed["commit", NOTE] == note


def test_the_note_of_a_run_over_nothing_new_states_it(bench: Bench) -> None:
    version = bench.run_all(run_of())["version"]
    run = FakeRun(interval=None, run_after=days(1, 2).end, run_id="manual")
    event = bench.run_all(run)
    assert event["interval"] is None
    assert event["totals"] == NO_TOTALS
    assert run.pushed["commit", NOTE] == f"nothing is new, version {version}"


def test_several_intervals_are_summed(bench: Bench) -> None:
    bench.run_all(run_of())
    bench.run_all(run_of(days(2, 3), run_id="second"))
    params = {"mode": "replace", "from": "2013-01-01", "to": "2013-01-03"}
    run = run_of(days(1, 3), run_id="third", params=params)
    event = bench.run_all(run)
    assert event["generation"] == 2
    assert event["committed"]["intervals"] == 2
    assert event["committed"]["totals"] == event["totals"]
    records = event["totals"]["records"]
    note = f"{records} records, 4 dead letters in 2 intervals, version {event['version']}"
    assert run.pushed["commit", NOTE] == note


# ---------------------------------------------------------------- errors


def test_an_error_is_raised_even_if_its_note_cannot_be_stored(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    context = run_of(params={"form": 1}).context("plan")

    def refuse(**_: Any) -> None:
        raise OSError("no supervisor")

    context["ti"].xcom_push = refuse
    with pytest.raises(AirflowFailException, match="'form' is not allowed"):
        bench.task("plan").execute(context)
    assert "XCom 'error' of the run could not be written: OSError" in caplog.text


def test_the_stored_error_contains_no_password() -> None:
    run = run_of()
    error = SchemaChanged("http://me:s3cret@host is old.", hint="ask http://me:s3cret@host.")
    leave_error(run.context("plan")["ti"], error)
    assert len(run.pushed) == 2
    assert "s3cret" not in str(run.pushed)


def test_the_callback_of_the_alerts_page_prints_the_error_and_the_next_step(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "alerts.md").read_text("utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    named: dict[str, Any] = {
        "replay_dag": partial(replay_dag, job_root=bench.folder),
        "pipeline": bench.pipeline,
        "start": day(1),
    }
    exec(code, named)
    plan = named["dag"].task_dict["plan"]
    assert plan.on_failure_callback == [named["on_failure"]]
    run = run_of(params={"form": 1})
    context = run.context("plan")
    with pytest.raises(AirflowFailException):
        plan.execute(context)
    pulled = SimpleNamespace(
        dag_id="small",
        run_id=run.run_id,
        task_id="plan",
        xcom_pull=lambda task_ids, key: run.pushed[task_ids, key],
    )
    capsys.readouterr()
    plan.on_failure_callback[0]({"ti": pulled})
    shown = capsys.readouterr().out
    assert "plan: invalid_request: parameter 'form' is not allowed" in shown
    assert " Next: " in shown


# ---------------------------------------------------------------- lines


@pytest.mark.parametrize(
    "line",
    [
        "short",
        "  indented " + "word " * 60,
        f"committed {days(1, 2)} as version 15, generation 1: 766 records, 2 dead letters, 3 aborted",
        f"plan plans/{'x' * 120}.json: {days(1, 2)}, generation 1, fills a gap",
    ],
)
def test_lines_fit_and_lose_no_word(line: str) -> None:
    parts = list(fit(line))
    assert " ".join(parts).split() == line.split()
    assert [p for p in parts if len(p) > WIDTH_MAX and len(p.split()) > 1] == []
    # An interval is never broken, so that it can be copied.
    if str(days(1, 2)) in line:
        assert any(str(days(1, 2)) in part for part in parts)
    indent = line[: len(line) - len(line.lstrip())]
    assert all(part.startswith(indent) for part in parts)


def test_every_line_of_a_run_fits(bench: Bench, capfd: pytest.CaptureFixture[str]) -> None:
    bench.run_all(run_of(run_id="scheduled__2013-01-02T00:00:00+00:00"))
    bench.run_all(run_of(run_id="manual__2013-01-02T00:00:00.123456+00:00_abcdefgh"))
    lines = [
        line.split("] ", 1)[1].rsplit(" [airflow.task", 1)[0].rstrip()
        for line in capfd.readouterr().out.splitlines()
        if " [airflow.task.operators.tallystick" in line
    ]
    assert len(lines) > 10
    assert [line for line in lines if len(line) > WIDTH_MAX and " " in line.strip()] == []


# ---------------------------------------------------------------- the note on the run


@pytest.mark.parametrize(
    ("present", "notes", "note"),
    [
        (None, ["5 records"], "tallystick: 5 records"),
        ("", ["5 records"], "tallystick: 5 records"),
        ("mine", ["5 records"], "mine\n\ntallystick: 5 records"),
        ("tallystick: old", ["new"], "tallystick: new"),
        ("a\n\ntallystick: old\nb", ["new"], "a\n\nb\n\ntallystick: new"),
        ("see tallystick: issue", ["new"], "see tallystick: issue\n\ntallystick: new"),
        (None, ["one", "two"], "tallystick: one\n\ntallystick: two"),
        (None, ["a\nb\x00\x1b[31m [x](http://h)"], "tallystick: a b[31m [x] (http://h)"),
        ("p" * 990, ["new"], "p" * 990),
    ],
)
def test_a_note_keeps_what_a_person_wrote(present: str | None, notes: list[str], note: str) -> None:
    assert merged(present, notes) == note
    assert merged(note, notes) == note


@pytest.mark.parametrize("present", [None, "p" * 500, "p" * 999])
def test_a_note_fits_airflows_column(present: str | None) -> None:
    found = merged(present, ["x" * 2000, "y" * 2000])
    assert len(found) <= NOTE_MAX
    assert found.startswith(present or "tallystick: ")


@pytest.fixture
def session() -> Iterator[Session]:
    engine = sa.create_engine("sqlite://")

    @sa.event.listens_for(engine, "connect")
    def no_own_transactions(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # SQLAlchemy's own advice for savepoints in SQLite

    @sa.event.listens_for(engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN")

    import_all_models()
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        yield session
    engine.dispose()


def ended(session: Session, state: str = "success") -> DagRun:
    """Return a run in the scheduler's session, whose last change is not written yet."""
    run = DagRun(dag_id="small", run_id="r", run_type="manual", state="running")
    run.start_date = timezone.utcnow()
    session.add(run)
    session.commit()
    run.set_state(state)
    return run


def left(
    session: Session,
    run: DagRun,
    task: str,
    value: Any,
    key: str = NOTE,
    state: str | None = "success",
) -> None:
    table = TaskInstance.__table__
    with session.no_autoflush:
        here = {"dag_id": "small", "run_id": "r", "task_id": task, "map_index": -1}
        session.connection().execute(sa.delete(table).where(table.c.task_id == task))
        session.connection().execute(
            sa.insert(table).values(
                **here,
                id=uuid4(),
                pool="default_pool",
                pool_slots=1,
                executor_config={},
                state=state,
            )
        )
        session.connection().execute(
            sa.insert(XComModel.__table__).values(
                dag_run_id=run.id,
                task_id=task,
                map_index=-1,
                key=key,
                dag_id="small",
                run_id="r",
                value=value,
                timestamp=timezone.utcnow(),
            )
        )


def note_of(session: Session, run: DagRun) -> str | None:
    found: str | None = session.scalar(
        sa.select(DagRunNote.content).where(DagRunNote.dag_run_id == run.id)
    )
    return found


def test_the_scheduler_copies_a_runs_notes_inside_its_own_transaction(session: Session) -> None:
    run = ended(session)
    left(session, run, "commit", "5 records, 2 dead letters, version 15")
    left(session, run, "commit", {"rows": 1}, key="return_value")
    with prohibit_commit(session) as guard:
        for _ in range(2):
            listener.on_dag_run_success(dag_run=run, msg="success")
        guard.commit()
    assert note_of(session, run) == "tallystick: 5 records, 2 dead letters, version 15"
    assert run.note == "tallystick: 5 records, 2 dead letters, version 15"


def test_a_failed_run_shows_the_error_and_a_later_success_replaces_it(session: Session) -> None:
    run = ended(session, "failed")
    run.note = "look at this one"
    session.commit()
    left(session, run, "plan", "plan: invalid_request: no. Next: yes.")
    listener.on_dag_run_failed(dag_run=run, msg="task_failure")
    session.commit()
    error = "look at this one\n\ntallystick: plan: invalid_request: no. Next: yes."
    assert note_of(session, run) == error
    session.execute(sa.delete(XComModel.__table__))
    left(session, run, "commit", "5 records")
    listener.on_dag_run_success(dag_run=run, msg="success")
    session.commit()
    assert note_of(session, run) == "look at this one\n\ntallystick: 5 records"


def test_a_task_that_was_cleared_and_did_not_run_again_adds_nothing(session: Session) -> None:
    """Its error may belong to another declaration, and its next step could do harm now."""
    run = ended(session, "failed")
    left(session, run, "commit", "commit: report_rejected: no.", state="upstream_failed")
    left(session, run, "plan", "plan: invalid_request: no.", state="failed")
    listener.on_dag_run_failed(dag_run=run, msg="task_failure")
    session.commit()
    assert note_of(session, run) == "tallystick: plan: invalid_request: no."


def test_runs_of_other_dags_get_no_note(session: Session) -> None:
    run = ended(session)
    left(session, run, "task", "a note of its own", key="note")
    left(session, run, "other", ["not", "a text"])
    listener.on_dag_run_success(dag_run=run, msg="success")
    session.commit()
    assert note_of(session, run) is None


@pytest.mark.parametrize("how", ["by hand", "switched off"])
def test_no_note_is_written_by_the_api_server_nor_if_switched_off(
    session: Session, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ended(session)
    left(session, run, "commit", "5 records")
    message = "success"
    if how == "by hand":
        message = "Dag Run's state was manually set to `success`."
    else:
        monkeypatch.setenv(OFF, "0")
    listener.on_dag_run_success(dag_run=run, msg=message)
    session.commit()
    assert note_of(session, run) is None


@pytest.mark.parametrize("at", ["_left", "_write"])
def test_a_note_that_fails_leaves_the_schedulers_transaction_whole(
    session: Session, at: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = ended(session)
    left(session, run, "commit", "5 records")

    def broken(connection: Any, *_: Any) -> None:
        # The database refuses this row: in PostgreSQL, the transaction would be lost without a savepoint.
        connection.execute(
            sa.insert(DagRunNote.__table__).values(dag_run_id=run.id, content="half")
        )
        connection.execute(sa.insert(DagRunNote.__table__).values(dag_run_id=run.id, content="b"))

    monkeypatch.setattr(listener, at, broken)
    with prohibit_commit(session) as guard:
        listener.on_dag_run_success(dag_run=run, msg="success")
        guard.commit()
    assert "run r: the note could not be written" in caplog.text
    assert note_of(session, run) is None
    session.expire_all()
    assert run.state == "success"


def test_a_run_without_a_session_gets_no_note() -> None:
    listener.on_dag_run_success(dag_run=SimpleNamespace(id=1, run_id="r"), msg="success")


def test_the_plugin_registers_the_listener() -> None:
    assert TallystickPlugin.listeners == [listener]
