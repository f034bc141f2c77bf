"""A table is declared without its driver, and its connection is found by name: nothing here speaks to a server."""

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
from tallystick.outputs.postgres.session import in_words
from tallystick.outputs.postgres.table import PostgresTable, history_of, owner_of
from tallystick.pipeline.outputs import planned
from tallystick.store.memory import MemoryStore
from unit.outputs.sendings import SCOPE, publication

CANARY = "canary/of+a/secret"
WORDS = '{"host": "db", "dbname": "flights", "user": "replay", "password": "canary/of+a/secret"}'


def declared(**how: Any) -> PostgresOutput:
    """An output of the test's own."""
    words = {"name": "feed", "table": "events", "into": "public.Events", "key": ["k"]}
    return PostgresOutput(**{**words, **how})


def test_a_declaration_names_its_target_without_secrets() -> None:
    one = declared(postgres="main", key=["a", "b"])
    assert one.target == "postgres:main/public.Events"
    assert planned(one).target == one.target
    assert (one.key, one.schema_and_table, one.replaced) == (
        ("a", "b"),
        ("public", "Events"),
        "compensate",
    )
    assert declared(replaced="refuse").replaced == "refuse"


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"into": "events"}, "output feed: into='events' is no schema and table"),
        ({"into": 'public."a"'}, "is no schema and table"),
        ({"into": "a.b.c"}, "is no schema and table"),
        ({"into": "public." + "a" * 64}, "is no schema and table"),
        ({"key": []}, r"output feed: its key \(\) names no column"),
        ({"key": ["k", "k"]}, r"output feed: its key \(k, k\) names a column twice"),
        ({"key": "k"}, "the key of output feed is the text 'k', where a list belongs"),
        ({"key": ['k"; --']}, "output feed: key: column name"),
        ({"postgres": "Main"}, "connection name 'Main' is not allowed"),
        ({"replaced": "correct"}, "replaced='correct' is not what a table can do"),
    ],
)
def test_what_is_not_allowed_is_told_with_the_declaration(how: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidPipeline, match=told):
        declared(**how)


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


def test_where_the_driver_is_not_installed_the_output_says_so_and_the_commit_is_not_harmed(
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
    """The output, as a task opens it."""

    def never(kind: type[Settings], name: str) -> Any:
        pytest.fail(f"nothing is connected yet, and {kind.KIND} {name} was asked for")

    return open_output(declared(), settings=never, store=MemoryStore())


def test_opening_connects_nothing() -> None:
    output = opened()
    assert isinstance(output, PostgresTable)
    output.abort(publication([]))
    output.close()


def test_names_in_the_database_are_one_per_lake_pipeline_and_output() -> None:
    owner = owner_of(SCOPE, "feed")
    other = owner_of(type(SCOPE)(lake="memory://other", pipeline="small"), "feed")
    assert owner == "small.feed.bec12341221a"
    assert len({history_of(owner), history_of(other), history_of("small.feed2")}) == 3
    assert len(history_of("a" * 200)) < 64


# ---------------------------------------------------------------- connections


def test_a_connection_is_found_in_the_environment_then_in_the_secrets_folder_then_otherwise(
    tmp_path: Path,
) -> None:
    assert env_name(PostgresSettings, "my-main_2") == "TALLYSTICK_POSTGRES_MY_MAIN_2"
    otherwise = {"host": "c", "dbname": "d", "user": "u"}
    folder = {"TALLYSTICK_SECRETS_DIR": str(tmp_path)}
    assert resolve(PostgresSettings, "main", environ=folder, fallback=otherwise).host == "c"
    # A Kafka connection's file of the same name is another one.
    (tmp_path / "main.json").write_text('{"bootstrap_servers": "a:1"}')
    file = tmp_path / "postgres.main.json"
    file.write_text(WORDS.replace('"db"', '"file"'))
    file.chmod(0o600)
    assert resolve(PostgresSettings, "main", environ=folder, fallback=otherwise).host == "file"
    environ = folder | {"TALLYSTICK_POSTGRES_MAIN": WORDS}
    found = resolve(PostgresSettings, "main", environ=environ, fallback=otherwise)
    assert (found.host, found.endpoint, found.secrets()) == ("db", "flights on db:5432", (CANARY,))


def test_one_that_is_nowhere_is_told_with_the_places() -> None:
    with pytest.raises(SettingsError) as caught:
        resolve(PostgresSettings, "main", environ={})
    assert caught.value.message == (
        "PostgreSQL connection 'main' is not defined: the environment variable TALLYSTICK_POSTGRES_MAIN is not set and "
        "TALLYSTICK_SECRETS_DIR is not set."
    )
    assert "postgres.main.json" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "the value is not a JSON object"),
        ('{"host": "a", "host": "b"}', "with each key once"),
        ('{"dbname": "d", "user": "u"}', "host is missing or empty"),
        (WORDS.replace('"db"', f'"postgres://u:{CANARY}@db"'), "host is not a host's name"),
        (WORDS.replace("password", "options"), "'options' is not a setting"),
        (
            WORDS.replace('"host"', '"port": "5432", "host"'),
            "port: expected an integer, found a string",
        ),
        (WORDS.replace('"host"', '"port": 70000, "host"'), "port 70000 is out of bounds"),
        (WORDS.replace('"host"', '"sslmode": "yes", "host"'), "sslmode 'yes' is unknown"),
        (WORDS.replace('"host"', '"sslkey": "k", "host"'), "given without sslcert"),
        (
            WORDS.replace('"host"', '"lock_timeout_s": 0, "host"'),
            "lock_timeout_s 0 is out of bounds",
        ),
    ],
)
def test_settings_that_do_not_fit_are_told_without_the_secret(text: str, told: str) -> None:
    with pytest.raises(SettingsError) as caught:
        resolve(PostgresSettings, "main", environ={"TALLYSTICK_POSTGRES_MAIN": text})
    assert caught.value.message.startswith("environment variable TALLYSTICK_POSTGRES_MAIN: ")
    assert told in caught.value.message
    assert "canary" not in f"{caught.value}{caught.value.__cause__}{caught.value.__context__}"


def test_neither_settings_nor_messages_show_a_password() -> None:
    settings = PostgresSettings(host="h", dbname="d", user="u", password=CANARY)
    assert "canary" not in repr(settings)
    error = psycopg.OperationalError(f"server said {CANARY}\nin two lines")
    said = in_words("output feed", "table", error, settings.secrets())
    assert said.message == "output feed: table: server said *** in two lines."
