"""`tally doctor`: which examinations it makes, its text, its JSON and its exit code."""

from __future__ import annotations

import json
import os
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from support.small_lake import SmallLake, days
from tallystick.cli import doctor, doctor_run
from tallystick.cli.doctor_run import airflow_is_configured
from tallystick.connections.http import HttpSettings
from tallystick.connections.kafka import KafkaSettings
from tallystick.connections.postgres import PostgresSettings
from tallystick.connections.registry import RegistrySettings
from tallystick.errors import KafkaUnavailable
from tallystick.operations.doctor import kafka, servers, versions
from tallystick.operations.doctor.check import Area, DoctorCheck, State
from tallystick.operations.doctor.lake import LedgerReading
from tallystick.operations.doctor.run import Examination
from tallystick.operations.release import release
from tallystick.operations.retention_guard import KeptTopic
from unit.cli.invoke import LAKE, tally, too_wide

PASSWORD = "not-to-be-seen"
KAFKA = json.dumps(
    {
        "bootstrap_servers": "kafka:9092",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "me",
        "sasl_plain_password": PASSWORD,
    }
)


@pytest.fixture(autouse=True)
def _this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Set an environment without settings, on a machine with a good Java and Spark."""
    for name in list(os.environ):
        if name.startswith(("TALLYSTICK_", "AIRFLOW_")) and name != "TALLYSTICK_STATE_DIR":
            monkeypatch.delenv(name)
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "airflow"))
    java = Area("versions").ok("java", "Java 17")
    monkeypatch.setattr(versions, "java_check", lambda *_, **__: java)
    spark = Area("versions").ok("spark-submit", "Spark 4.2.0")
    monkeypatch.setattr(versions, "spark_check", lambda *_: spark)


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """Replace Kafka; the value is the list of the connections and topics that were examined."""
    seen: list[tuple[str, list[str]]] = []

    def checks(name: str, named: Any, topics: Any, **_: object) -> Iterator[DoctorCheck]:
        named(KafkaSettings, name)
        seen.append((name, [topic.name for topic in topics]))
        for topic in topics:
            topic.reading.kept[topic.name] = KeptTopic(kept=None)
        yield kafka.area_of(name).ok("login", "cluster c")

    monkeypatch.setattr(kafka, "kafka_checks", checks)
    return seen


def answer(*argv: str, code: int = 0) -> Any:
    result = tally("doctor", *argv, "--json")
    assert result.exit_code == code, (result.stdout, result.stderr)
    assert PASSWORD not in result.stdout
    return json.loads(result.stdout)


def checks_of(found: Any) -> dict[tuple[str, str], State]:
    return {(check["area"], check["name"]): check["state"] for check in found["checks"]}


# ---------------------------------------------------------------- what is examined


def test_a_machine_without_settings_has_no_error(brokers: list[Any]) -> None:
    found = answer()
    assert found["ok"] is True
    assert (found["errors"], found["warnings"]) == (0, 0)
    states = checks_of(found)
    assert states["versions", "python"] == "ok"
    assert states["versions", "spark-submit"] == "ok"
    assert states["airflow", "configuration"] == "info"
    assert states["store", "lake"] == "info"
    assert states["kafka default", "login"] == "info"
    assert brokers == []


def test_a_lake_is_examined_with_its_topics_and_its_ledger(
    lake: SmallLake, brokers: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLYSTICK_KAFKA_DEFAULT", KAFKA)
    found = answer(LAKE)
    states = checks_of(found)
    assert states[f"store {LAKE}", "conditional writes"] == "info"
    assert states["settings", "kafka default"] == "ok"
    assert states["kafka default", "login"] == "ok"
    assert states[f"ledger {LAKE}", "gaps"] == "warning"
    assert states[f"ledger {LAKE}", "retention"] == "ok"
    assert brokers == [("default", ["events"])]
    (gap,) = [check for check in found["checks"] if check["name"] == "gaps"]
    assert gap["command"][:3] == ["airflow", "backfill", "create"]


def test_the_lake_of_the_environment_is_the_default(
    lake: SmallLake, brokers: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLYSTICK_LAKE", LAKE)
    assert (f"ledger {LAKE}", "root") in checks_of(answer(code=1))


def test_nothing_is_written_without_write(lake: SmallLake, brokers: list[Any]) -> None:
    before = dict(lake.store._objects), lake.store._writes  # type: ignore[attr-defined]
    answer(LAKE, code=1)  # the connection of its plans is not defined
    assert (dict(lake.store._objects), lake.store._writes) == before  # type: ignore[attr-defined]
    states = checks_of(answer(LAKE, "--write", code=1))
    assert states[f"store {LAKE}", "conditional writes"] == "ok"
    assert [key for key in lake.keys("") if "probe" in key] == []


def test_the_connection_of_a_plan_must_be_defined(lake: SmallLake, brokers: list[Any]) -> None:
    found = answer(LAKE, code=1)
    states = checks_of(found)
    assert states["kafka default", "login"] == "error"
    assert states[f"ledger {LAKE}", "retention"] == "unknown"
    assert (found["ok"], found["errors"]) == (False, 1)


def test_a_connection_that_cannot_be_used_is_one_error(
    brokers: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLYSTICK_KAFKA_DEFAULT", "{")
    monkeypatch.setenv("TALLYSTICK_REGISTRY_DEFAULT", "{}")
    found = answer(code=1)
    assert [c["name"] for c in found["checks"] if c["state"] == "error"] == [
        "kafka default",
        "registry default",
    ]
    assert brokers == []


def test_a_server_that_fails_hides_no_other(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLYSTICK_KAFKA_DEFAULT", KAFKA)
    monkeypatch.setenv("TALLYSTICK_REGISTRY_MAIN", '{"urls": "http://registry"}')
    monkeypatch.setenv("TALLYSTICK_POSTGRES_BILLS", '{"host": "db", "dbname": "d", "user": "u"}')

    def unreachable(*_: object, **__: object) -> Iterator[DoctorCheck]:
        raise KafkaUnavailable(f"no broker for {PASSWORD}.", hint="start one.")

    def good(area: str) -> Any:
        return lambda name, _: iter([Area(area).ok(name, "fine")])

    monkeypatch.setattr(kafka, "kafka_checks", unreachable)
    monkeypatch.setattr(
        doctor_run,
        "_SERVERS",
        {RegistrySettings: good("registry"), PostgresSettings: good("outputs")},
    )
    states = checks_of(answer(LAKE, code=1))
    assert states["kafka default", "login"] == "error"
    assert states["registry", "main"] == "ok"
    assert states["outputs", "bills"] == "ok"
    assert states[f"ledger {LAKE}", "root"] == "ok"


def test_servers_that_plans_need_are_examined_although_they_are_not_defined(
    lake: SmallLake, brokers: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = frozenset(
        {(RegistrySettings, "main"), (PostgresSettings, "bills"), (HttpSettings, "hooks")}
    )

    def ledger(_: Any, reading: LedgerReading) -> Iterator[DoctorCheck]:
        reading.needed = needed
        yield Area(f"ledger {LAKE}").ok("root", "fine")

    monkeypatch.setattr(doctor_run.lake, "ledger_checks", ledger)
    monkeypatch.setenv("TALLYSTICK_HTTP_HOOKS", "{}")
    states = checks_of(answer(LAKE, code=1))
    assert states["registry", "main"] == "error"
    assert states["outputs", "postgres bills"] == "error"
    assert ("outputs", "http hooks") not in states  # defined, and checked with the settings
    monkeypatch.delenv("TALLYSTICK_HTTP_HOOKS")
    assert checks_of(answer(LAKE, code=1))["outputs", "http hooks"] == "error"


@pytest.mark.parametrize("uri", ["s3://bucket", "ftp://x/y"])
def test_a_lake_uri_that_is_not_allowed_is_an_error(uri: str, brokers: list[Any]) -> None:
    states = checks_of(answer(uri, code=1))
    assert states[f"store {uri}", "conditional writes"] == "error"


def test_a_lake_is_examined_once(lake: SmallLake, brokers: list[Any]) -> None:
    found = answer(LAKE, LAKE, code=1)
    keys = [(c["area"], c["name"]) for c in found["checks"]]
    assert len(keys) == len(set(keys))


# ---------------------------------------------------------------- Airflow


def test_airflow_is_configured_by_variables_or_by_its_file(tmp_path: Path) -> None:
    home = {"AIRFLOW_HOME": str(tmp_path)}
    assert not airflow_is_configured(home)
    assert airflow_is_configured({**home, "AIRFLOW__CORE__EXECUTOR": "LocalExecutor"})
    assert not airflow_is_configured({"AIRFLOW_CONFIG": str(tmp_path / "other.cfg")})
    (tmp_path / "airflow.cfg").touch()
    assert airflow_is_configured(home)
    assert airflow_is_configured({"AIRFLOW_CONFIG": str(tmp_path / "airflow.cfg")})


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Replace the examinations of Airflow; the value is what they were asked for, and what they find."""
    words: dict[str, Any] = {"checks": [Area("airflow").ok("database", "answers")]}

    def examinations(**asked: Any) -> list[Examination]:
        words.update(asked)
        if "error" in words:
            raise words["error"]
        name = f"connection {asked['spark_conn_id']}"
        return [Examination(area="airflow", name=name, steps=lambda: words["checks"])]

    module = types.ModuleType("tallystick.airflow.doctor")
    module.examinations = examinations  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tallystick.airflow.doctor", module)
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "LocalExecutor")
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")
    monkeypatch.setitem(sys.modules, "airflow.configuration", types.ModuleType("c"))
    return words


def test_airflow_is_examined_with_the_named_spark_connection(
    airflow: dict[str, Any], brokers: list[Any]
) -> None:
    airflow["checks"] = [Area("airflow").ok("executor", "LocalExecutor")]
    states = checks_of(answer("--spark", "mine"))
    assert airflow["spark_conn_id"] == "mine"
    assert states["airflow", "executor"] == "ok"
    # Its own check of spark-submit takes the program of the connection.
    assert ("versions", "spark-submit") not in states


def test_an_airflow_that_cannot_be_imported_is_an_error(
    airflow: dict[str, Any], brokers: list[Any]
) -> None:
    airflow["error"] = ValueError("unable to parse the port")
    found = answer(code=1)
    assert checks_of(found)["airflow", "configuration"] == "error"
    assert checks_of(found)["versions", "spark-submit"] == "ok"


@pytest.mark.parametrize(("state", "asked"), [("ok", ["default"]), ("error", [])])
def test_airflows_connections_are_read_if_its_database_answers(
    state: State,
    asked: list[str],
    airflow: dict[str, Any],
    brokers: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[str] = []

    def settings_named(kind: Any, name: str) -> Any:
        read.append(name)
        return KafkaSettings(bootstrap_servers=("kafka:9092",))

    module = types.ModuleType("tallystick.airflow.connections")
    module.settings_named = settings_named  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tallystick.airflow.connections", module)
    airflow["checks"] = [DoctorCheck(area="airflow", name="database", state=state, found="f")]
    tally("doctor", "--json")
    assert sorted(set(read)) == asked
    assert brokers == [(name, []) for name in asked]
    # A connection of the environment comes first.
    read.clear()
    monkeypatch.setenv("TALLYSTICK_KAFKA_DEFAULT", KAFKA)
    tally("doctor", "--json")
    assert read == []


# ---------------------------------------------------------------- text and exit code


def given(*checks: DoctorCheck) -> Any:
    return lambda *_, **__: checks


GOOD = tuple(Area("versions").ok(name, f"the {name}") for name in "abcdefgh")
LONG = "s3://bucket/" + "x" * 120


@pytest.mark.parametrize(
    ("checks", "argv", "code"),
    [
        (GOOD, [], 0),
        ([*GOOD, Area("kafka a").info("n", "f", "x.")], ["--strict"], 0),
        ([*GOOD, Area("kafka a").unknown("n", "f", "x.")], ["--strict"], 0),
        ([*GOOD, Area("kafka a").warning("n", "f", "x.")], [], 0),
        ([*GOOD, Area("kafka a").warning("n", "f", "x.")], ["--strict"], 1),
        ([*GOOD, Area("kafka a").error("n", "f", "x.")], [], 1),
    ],
)
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_the_exit_code_is_1_with_an_error_or_strictly_with_a_warning(
    checks: list[DoctorCheck],
    argv: list[str],
    code: int,
    form: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor_run, "diagnose", given(*checks))
    result = tally("doctor", *argv, *form)
    assert result.exit_code == code
    if form:
        assert json.loads(result.stdout)["ok"] is (code == 0)


def shown(*checks: DoctorCheck, verbose: bool = False) -> str:
    text = doctor.text(checks, verbose=verbose)
    assert too_wide(text) == []
    return text


def test_checks_that_are_ok_are_one_line_per_area_unless_verbose() -> None:
    folded = shown(*GOOD, Area("settings").ok("names", "all known"))
    assert folded == (
        "versions\n  ok       a, b, c, d, e, f and 2 more\n\n"
        "settings\n  ok       names\n\n"
        "0 errors, 0 warnings; 9 checks ok."
    )
    assert "  ok       h: the h" in shown(*GOOD, verbose=True)


def test_a_problem_has_what_was_found_what_to_do_and_the_command() -> None:
    gap = Area("ledger s3://lake/a").warning(
        "gaps", "3 gaps " + "and more " * 20, "fill them.", ("airflow", "backfill", "create")
    )
    text = shown(gap, Area("kafka a").error("login", f"no access to {LONG}", "grant it."))
    assert "  warning  gaps: 3 gaps and more" in text
    assert "\n           Next: fill them.\n  airflow backfill create" in text
    assert "  error    login: no access to" in text
    assert LONG in text.splitlines()[-4] + text.splitlines()[-5]
    assert text.endswith("1 error, 1 warning; 0 checks ok.")


def test_what_a_server_sends_cannot_move_the_cursor() -> None:
    assert "\\x1b[2J" in shown(Area("kafka a").error("login", "found \x1b[2J", "x."))


def test_unknown_results_are_counted() -> None:
    text = shown(Area("kafka a").unknown("n", "f", "x."))
    assert text.endswith("0 errors, 0 warnings, 1 unknown; 0 checks ok.")


def test_the_document_has_every_field() -> None:
    found = [*GOOD[:1], Area("kafka a").error("n", "f", "x.", ("a", "b"))]
    document: Mapping[str, Any] = doctor.form(found, ok=False)
    assert document == {
        "ok": False,
        "errors": 1,
        "warnings": 0,
        "unknown": 0,
        "checks": [
            {
                "area": "versions",
                "name": "a",
                "state": "ok",
                "found": "the a",
                "fix": "",
                "command": [],
            },
            {
                "area": "kafka a",
                "name": "n",
                "state": "error",
                "found": "f",
                "fix": "x.",
                "command": ["a", "b"],
            },
        ],
    }


def test_areas_come_in_the_order_in_which_they_depend_on_each_other(
    lake: SmallLake, brokers: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.run(days(4, 5))
    release(lake.lake, days(6, 7))
    monkeypatch.setenv("TALLYSTICK_KAFKA_DEFAULT", KAFKA)
    monkeypatch.setenv("TALLYSTICK_REGISTRY_MAIN", '{"urls": "http://127.0.0.1:1"}')
    areas = list(dict.fromkeys(c["area"] for c in answer(LAKE, code=1)["checks"]))
    assert areas == [
        *("versions", "settings", "airflow", f"store {LAKE}", "kafka default", "registry"),
        f"ledger {LAKE}",
    ]


def test_servers_are_those_of_their_module() -> None:
    assert set(doctor_run._SERVERS.values()) == {servers.registry_checks, servers.postgres_checks}
