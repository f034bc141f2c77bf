"""A table is declared without its driver, and its connection is found by name. No test here connects to a server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tallystick.connections.postgres import PostgresSettings
from tallystick.connections.resolve import env_name, resolve
from tallystick.connections.settings import Settings
from tallystick.errors import InvalidPipeline, SettingsError
from tallystick.outputs.opening import open_output
from tallystick.outputs.postgres import PostgresOutput
from tallystick.outputs.postgres.session import error_of
from tallystick.outputs.postgres.table import PostgresTable, history_of, owner_of
from tallystick.pipeline.outputs import planned
from tallystick.store.memory import MemoryStore
from unit.outputs.publications import SCOPE, publication

CANARY = "canary/of+a/secret"
SETTINGS = '{"host": "db", "dbname": "flights", "user": "replay", "password": "canary/of+a/secret"}'


def declared(**options: Any) -> PostgresOutput:
    """Return an output with these options."""
    defaults = {"name": "feed", "table": "events", "into": "public.Events", "key": ["k"]}
    return PostgresOutput(**{**defaults, **options})


def test_a_declaration_names_its_target_without_secrets() -> None:
    output = declared(postgres="main", key=["a", "b"])
    assert output.target == "postgres:main/public.Events"
    assert planned(output).target == output.target
    assert (output.key, output.schema_and_table, output.replaced) == (
        ("a", "b"),
        ("public", "Events"),
        "compensate",
    )
    assert declared(replaced="refuse").replaced == "refuse"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"into": "events"}, "output feed: expected into='schema.table', found 'events'"),
        ({"into": 'public."a"'}, "expected into='schema.table'"),
        ({"into": "a.b.c"}, "expected into='schema.table'"),
        ({"into": "public." + "a" * 64}, "expected into='schema.table'"),
        ({"key": []}, r"output feed: expected a key of at least one column, each once, found none"),
        (
            {"key": ["k", "k"]},
            r"output feed: expected a key of at least one column, each once, found \(k, k\)",
        ),
        ({"key": "k"}, "the key of output feed: expected a list, found the string 'k'"),
        ({"key": ['k"; --']}, "output feed: key: column name"),
        ({"postgres": "Main"}, "connection name 'Main' is not allowed"),
        ({"replaced": "correct"}, "unsupported replaced='correct' for a table"),
    ],
)
def test_an_invalid_declaration_is_refused_with_the_reason(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidPipeline, match=message):
        declared(**options)


def test_a_dag_file_loads_no_driver() -> None:
    code = (
        "import sys, tallystick.outputs.postgres.declared, tallystick.outputs.opening; "
        "print(sorted({'psycopg', 'pyarrow', 'kafka'} & sys.modules.keys()))"
    )
    plugins = Path(__file__).parents[3] / "plugins"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(plugins)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert run.stdout.strip() == "[]"


def test_an_output_without_its_driver_fails_with_a_hint_and_the_commit_is_not_harmed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "tallystick.outputs.postgres.table", None)
    output = opened()
    assert not isinstance(output, PostgresTable)
    for call in (
        lambda: output.begin(SCOPE),
        lambda: output.prepare(publication([])),
        lambda: output.publish(publication([]), resumed=False),
    ):
        with pytest.raises(SettingsError, match=r"output feed: .*cannot be loaded") as caught:
            call()
        assert "tallystick[postgres]" in caught.value.hint
    output.abort(publication([]))
    output.close()


def opened() -> Any:
    """Return the output, opened as a task opens it."""

    def never(kind: type[Settings], name: str) -> Any:
        pytest.fail(f"{kind.KIND} {name} was requested before anything connects")

    return open_output(declared(), settings=never, store=MemoryStore())


def test_opening_connects_nothing() -> None:
    output = opened()
    assert isinstance(output, PostgresTable)
    output.abort(publication([]))
    output.close()


def test_names_in_the_database_differ_by_lake_pipeline_and_output() -> None:
    owner = owner_of(SCOPE, "feed")
    other = owner_of(type(SCOPE)(lake="memory://other", pipeline="small"), "feed")
    assert owner == "small.feed.bec12341221a"
    assert len({history_of(owner), history_of(other), history_of("small.feed2")}) == 3
    assert len(history_of("a" * 200)) < 64


# ---------------------------------------------------------------- connections


def test_a_connection_is_read_from_environment_then_secrets_folder_then_fallback(
    tmp_path: Path,
) -> None:
    assert env_name(PostgresSettings, "my-main_2") == "TALLYSTICK_POSTGRES_MY_MAIN_2"
    fallback = {"host": "c", "dbname": "d", "user": "u"}
    folder = {"TALLYSTICK_SECRETS_DIR": str(tmp_path)}
    assert resolve(PostgresSettings, "main", environ=folder, fallback=fallback).host == "c"
    # The file of a Kafka connection with the same name is not read.
    (tmp_path / "main.json").write_text('{"bootstrap_servers": "a:1"}')
    file = tmp_path / "postgres.main.json"
    file.write_text(SETTINGS.replace('"db"', '"file"'))
    file.chmod(0o600)
    assert resolve(PostgresSettings, "main", environ=folder, fallback=fallback).host == "file"
    environ = folder | {"TALLYSTICK_POSTGRES_MAIN": SETTINGS}
    settings = resolve(PostgresSettings, "main", environ=environ, fallback=fallback)
    assert (settings.host, settings.endpoint, settings.secrets()) == (
        "db",
        "flights on db:5432",
        (CANARY,),
    )


def test_an_undefined_connection_is_refused_with_the_places_that_were_read() -> None:
    with pytest.raises(SettingsError) as caught:
        resolve(PostgresSettings, "main", environ={})
    assert caught.value.message == (
        "PostgreSQL connection 'main' is not defined: the environment variable TALLYSTICK_POSTGRES_MAIN is not set and "
        "TALLYSTICK_SECRETS_DIR is not set."
    )
    assert "postgres.main.json" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "the value is not a JSON object"),
        ('{"host": "a", "host": "b"}', "with each key once"),
        ('{"dbname": "d", "user": "u"}', "host is missing or empty"),
        (SETTINGS.replace('"db"', f'"postgres://u:{CANARY}@db"'), "host is not a host name"),
        (SETTINGS.replace("password", "options"), "'options' is not a setting"),
        (
            SETTINGS.replace('"host"', '"port": "5432", "host"'),
            "port: expected an integer, found a string",
        ),
        (
            SETTINGS.replace('"host"', '"port": 70000, "host"'),
            "port: expected 1 to 65535, found 70000",
        ),
        (SETTINGS.replace('"host"', '"sslmode": "yes", "host"'), "unknown sslmode 'yes'"),
        (SETTINGS.replace('"host"', '"sslkey": "k", "host"'), "set without sslcert"),
        (
            SETTINGS.replace('"host"', '"lock_timeout_s": 0, "host"'),
            "lock_timeout_s: expected 1 to",
        ),
    ],
)
def test_invalid_settings_are_refused_without_the_secret_in_the_message(
    text: str, reason: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        resolve(PostgresSettings, "main", environ={"TALLYSTICK_POSTGRES_MAIN": text})
    assert caught.value.message.startswith("environment variable TALLYSTICK_POSTGRES_MAIN: ")
    assert reason in caught.value.message
    assert "canary" not in f"{caught.value}{caught.value.__cause__}{caught.value.__context__}"


def test_neither_settings_nor_messages_show_a_password() -> None:
    settings = PostgresSettings(host="h", dbname="d", user="u", password=CANARY)
    assert "canary" not in repr(settings)
    error = psycopg.OperationalError(f"server error {CANARY}\nin two lines")
    shown = error_of("output feed", "table", error, settings.secrets())
    assert shown.message == "output feed: table: server error *** in two lines."
