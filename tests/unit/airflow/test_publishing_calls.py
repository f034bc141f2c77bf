"""Outputs of calls in the task `publish`: runs, clears, replacements, gc, and the places of their connections."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk import BaseHook, Connection
from airflow.sdk.exceptions import AirflowFailException, AirflowNotFoundException

from support.call_receiver import Endpoint, receiver
from tallystick.airflow.connections import settings_named
from tallystick.connections.http import HttpSettings
from tallystick.connections.smtp import SmtpSettings
from tallystick.errors import SettingsError
from tallystick.operations.gc import collect
from tallystick.outputs.calls import EmailOutput, HttpOutput
from tallystick.tables.reach import IcebergReach
from unit.airflow.bench import Bench, bench
from unit.airflow.test_dag import HEAVY
from unit.airflow.test_publishing import run_of

__all__ = ["bench"]

pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")


@pytest.fixture
def server(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    """Start the receiver of two outputs of one table: the first gets corrections, the second gets one call per key."""
    found = Endpoint()
    monkeypatch.setenv("TALLYSTICK_HTTP_DEFAULT", '{"timeout_s": 20}')
    with receiver(found) as url:
        outputs = [
            HttpOutput(name="feed", table="events", url=f"{url}/feed"),
            HttpOutput(
                name="keyed",
                table="events",
                url=f"{url}/n",
                key=["_kafka_partition", "_offset"],
                replaced="once",
            ),
        ]
        bench.pipeline = replace(bench.pipeline, outputs=outputs)
        yield found


def paths(server: Endpoint) -> Counter[str]:
    """Return the number of calls of each output."""
    return Counter(call.path for call in server.calls)


def test_a_run_makes_one_call_per_row_and_a_rerun_makes_none(
    bench: Bench, server: Endpoint
) -> None:
    run = run_of(1)
    bench.run_all(run)
    assert server.calls == []
    assert run.execute(bench.task("publish")) == {"published": {"feed": 1, "keyed": 1}}
    assert paths(server) == {"/feed": 5, "/n": 5}
    assert run.execute(bench.task("publish")) == {"published": {"feed": 0, "keyed": 0}}
    assert len(server.calls) == 10


def test_a_replacement_with_the_same_rows_makes_no_call(bench: Bench, server: Endpoint) -> None:
    run = run_of(1)
    bench.run_all(run)
    run.execute(bench.task("publish"))
    bench.deploy("version 2")
    again = run_of(1, clear_number=1)
    bench.run_all(again)
    assert again.execute(bench.task("publish")) == {"published": {"feed": 1, "keyed": 1}}
    assert len(server.calls) == 10


def test_gc_keeps_the_notes_of_calls(bench: Bench, server: Endpoint) -> None:
    for first in (1, 2):
        run = run_of(first)
        bench.run_all(run)
        run.execute(bench.task("publish"))
    store = bench.lake.store
    notes = [listed.key for listed in store.list("calls/")]
    result = collect(
        bench.lake,
        IcebergReach(store),
        delete=True,
        reader_grace=timedelta(0),
        cancel_after=timedelta(0),
        doubt_grace=timedelta(0),
    )
    assert result.kept["call"].objects == len(notes) > 2
    assert [listed.key for listed in store.list("calls/")] == notes
    assert result.foreign == ()


def test_a_receiver_that_refuses_a_row_fails_the_task_and_not_the_other_output(
    bench: Bench, server: Endpoint
) -> None:
    server.faults = {2: "400"}
    run = run_of(1)
    bench.run_all(run)
    with pytest.raises(AirflowFailException, match=r"output feed of .* answered 400"):
        run.execute(bench.task("publish"))
    assert paths(server)["/n"] == 5
    assert run.execute(bench.task("publish")) == {"published": {"feed": 1, "keyed": 0}}
    assert len(server.acted) == 10


def test_declaring_outputs_of_calls_loads_nothing_heavy() -> None:
    heavy = (*HEAVY, "smtplib", "email.message", "urllib3", "requests")
    code = (
        "import sys; before = set(sys.modules); import tallystick.outputs.calls.declared;"
        f"print(sorted(m for m in {heavy!r} if m in sys.modules and m not in before))"
    )
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert seen.stdout.splitlines()[-1] == "[]"


def test_an_airflow_connection_becomes_our_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[str] = []
    found = Connection(
        conn_id="any", conn_type="http", host="host", port=8443, login="me", password="canary"
    )
    monkeypatch.setattr(BaseHook, "get_connection", lambda name: requested.append(name) or found)
    http, smtp = settings_named(HttpSettings, "main"), settings_named(SmtpSettings, "main")
    assert requested == ["http_main", "smtp_main"]
    assert (http.base_url, http.username, http.password) == ("https://host:8443", "me", "canary")
    assert (smtp.host, smtp.port, smtp.username, smtp.password) == ("host", 8443, "me", "canary")
    assert "canary" not in f"{http} {smtp}"


def test_the_extra_of_an_airflow_connection_is_checked_without_being_quoted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for extra, text in (
        ('{"bearer": "canary"}', "'bearer' is not a setting"),
        ('["canary"]', "extra of the Airflow connection 'http_main'"),
    ):
        found = Connection(conn_id="any", conn_type="http", host="https://host", extra=extra)
        monkeypatch.setattr(BaseHook, "get_connection", lambda _, found=found: found)
        with pytest.raises(SettingsError) as caught:
            settings_named(HttpSettings, "main")
        assert text in str(caught.value)
        assert "canary" not in str(caught.value)


def test_an_undefined_mail_server_is_reported_with_every_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_connection(_: str) -> Any:
        raise AirflowNotFoundException("not there")

    monkeypatch.setattr(BaseHook, "get_connection", no_connection)
    with pytest.raises(SettingsError) as caught:
        settings_named(SmtpSettings, "main")
    for place in ("TALLYSTICK_SMTP_MAIN", "TALLYSTICK_SECRETS_DIR", "smtp.main.json", "smtp_main"):
        assert place in str(caught.value)


def test_a_pipeline_takes_both_kinds() -> None:
    declared = EmailOutput(
        name="mail", table="events", to="kind", subject="s", body="b", sender="a@example.org"
    )
    assert declared.target == "smtp:default/kind"
