"""Settings of the environment: names, values, connections and the folder of secrets."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from tallystick.connections.kafka import KafkaSettings
from tallystick.connections.postgres import PostgresSettings
from tallystick.connections.smtp import SmtpSettings
from tallystick.operations.doctor.check import DoctorCheck, State
from tallystick.operations.doctor.connections import (
    connection_check,
    defined_connections,
    is_defined,
    secrets_of,
)
from tallystick.operations.doctor.settings import (
    NAMES,
    OTHERS,
    folder_checks,
    name_checks,
    settings_checks,
    value_checks,
)

PROJECT = Path(__file__).parents[4]
KAFKA = '{"bootstrap_servers": "kafka:9092"}'
PASSWORD = "not-to-be-seen"
SASL = json.dumps(
    {
        "bootstrap_servers": "kafka:9092",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "me",
        "sasl_plain_password": PASSWORD,
    }
)


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("TALLYSTICK_LAKES", "TALLYSTICK_LAKE"),
        ("TALLYSTICK_SECRET_DIR", "TALLYSTICK_SECRETS_DIR"),
        ("TALLYSTICK_KAKFA_DEFAULT", "TALLYSTICK_KAFKA_DEFAULT"),
        ("TALLYSTICK_POSTGRE_MY_DB", "TALLYSTICK_POSTGRES_MY_DB"),
        ("TALLYSTICK_S3_KMS_KEY", "TALLYSTICK_S3_KMS_KEY_ID"),
        ("TALLYSTICK_XYZZY", None),
    ],
)
def test_a_misspelled_name_is_a_warning_with_the_nearest_known_name(
    name: str, nearest: str | None
) -> None:
    (check,) = name_checks({name: "a value", "TALLYSTICK_LAKE": "s3://a/b", "PATH": "/bin"})
    assert (check.state, check.name) == ("warning", name)
    assert check.fix == (f"rename it to {nearest}, or remove it." if nearest else "remove it.")
    assert "a value" not in check.found + check.fix


def test_known_names_are_ok() -> None:
    environ = dict.fromkeys(
        [*NAMES, *(f"{prefix}X" for prefix in OTHERS), "TALLYSTICK_KAFKA_A", "TALLYSTICK_SMTP_B"],
        "1",
    )
    (check,) = name_checks(environ)
    assert check.state == "ok"


def test_every_variable_that_the_code_reads_is_known() -> None:
    """A new variable must be added to NAMES: otherwise its users are warned of it."""
    found: set[str] = set()
    for folder in ("plugins", "devstack", "examples", "dags"):
        for path in (PROJECT / folder).rglob("*.py"):
            if "doctor" not in path.parts:
                found |= set(re.findall(r'"(TALLYSTICK_[A-Z0-9_]*[A-Z0-9])"', path.read_text()))
    assert {"TALLYSTICK_LAKE", "TALLYSTICK_RUN_NOTES", "TALLYSTICK_STATE_DIR"} <= found
    unknown = [
        check.name for check in name_checks(dict.fromkeys(found, "1")) if check.state != "ok"
    ]
    assert unknown == []


# ---------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("environ", "state"),
    [
        ({"TALLYSTICK_LAKE": "s3://lake/flights"}, "ok"),
        ({"TALLYSTICK_LAKE": "memory://lake"}, "ok"),
        ({"TALLYSTICK_LAKE": "s3://lake"}, "error"),
        ({"TALLYSTICK_LAKE": "/srv/lake"}, "error"),
        ({"TALLYSTICK_LAKE": f"s3://me:{PASSWORD}@lake/a"}, "error"),
        ({"TALLYSTICK_S3_CHECKSUMS": "on"}, "ok"),
        ({"TALLYSTICK_S3_CHECKSUMS": "yes"}, "error"),
        ({"TALLYSTICK_S3_BUCKET_OWNER": "12"}, "error"),
        ({"TALLYSTICK_RUN_NOTES": "0"}, "ok"),
        ({"TALLYSTICK_RUN_NOTES": "false"}, "warning"),
        ({"TALLYSTICK_PAGES_SAMPLES": "1"}, "ok"),
        ({"TALLYSTICK_PAGES_SAMPLES": "off"}, "warning"),
        ({"TALLYSTICK_AIRFLOW_URL": "https://airflow.example.com/x"}, "ok"),
        ({"TALLYSTICK_AIRFLOW_URL": "airflow.example.com"}, "warning"),
        ({"TALLYSTICK_AIRFLOW_URL": "http://["}, "warning"),
        ({"TALLYSTICK_AIRFLOW_URL": f"https://me:{PASSWORD}@airflow"}, "warning"),
    ],
)
def test_a_value_can_be_used(environ: dict[str, str], state: State) -> None:
    (check,) = value_checks(environ)
    assert check.state == state
    assert PASSWORD not in check.found + check.fix
    assert bool(check.fix) is (state != "ok")


def test_nothing_set_is_nothing_to_check() -> None:
    assert list(value_checks({"PATH": "/bin", "TALLYSTICK_LAKE": ""})) == []


# ---------------------------------------------------------------- connections


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of secrets: connections of three kinds, and two files that are never read."""
    made = tmp_path / "secrets"
    made.mkdir(mode=0o700)
    texts = {
        "orders.json": SASL,
        "postgres.bills.json": '{"host": "db", "dbname": "d", "user": "u", "password": "p4ssw0rd"}',
        "smtp.main.json": '{"host": "mail"}',
        "kafka.orders.json": KAFKA,
        "Wrong.json": "{}",
        "notes.txt": "",
    }
    for name, text in texts.items():
        (made / name).write_text(text)
        (made / name).chmod(0o600)
    return made


def test_connections_are_found_in_the_environment_and_in_the_folder(folder: Path) -> None:
    environ = {
        "TALLYSTICK_KAFKA_MY_MAIN": KAFKA,
        "TALLYSTICK_SMTP_EMPTY": "",
        "TALLYSTICK_KAFKA_bad": KAFKA,
        "TALLYSTICK_SECRETS_DIR": str(folder),
    }
    found, unusable = defined_connections(environ)
    assert {(one.kind, one.name) for one in found} == {
        (KafkaSettings, "my_main"),
        (KafkaSettings, "orders"),
        (PostgresSettings, "bills"),
        (SmtpSettings, "main"),
    }
    assert {(one.name, one.state) for one in unusable} == {
        ("TALLYSTICK_KAFKA_bad", "warning"),
        ("Wrong.json", "warning"),
        ("kafka.orders.json", "warning"),
    }
    assert all(connection_check(one, environ).state == "ok" for one in found)


def test_a_file_that_a_variable_hides_is_named(folder: Path) -> None:
    environ = {"TALLYSTICK_KAFKA_ORDERS": KAFKA, "TALLYSTICK_SECRETS_DIR": str(folder)}
    _, unusable = defined_connections(environ)
    (check,) = [one for one in unusable if one.state == "info"]
    assert check.found == "TALLYSTICK_KAFKA_ORDERS is used, and the file orders.json is not"


@pytest.mark.parametrize(
    ("text", "state"),
    [
        (SASL, "ok"),
        ("{", "error"),
        ('{"bootstrap_servers": "kafka"}', "error"),
        (f'{{"bootstrap_servers": "me:{PASSWORD}@kafka:9092"}}', "error"),
        (SASL.replace("SASL_PLAINTEXT", "PLAINTEXT"), "error"),
    ],
)
def test_a_connection_can_be_used_and_no_text_has_its_secret(text: str, state: State) -> None:
    environ = {"TALLYSTICK_KAFKA_A": text}
    (one,) = defined_connections(environ)[0]
    check = connection_check(one, environ)
    assert (check.name, check.state) == ("kafka a", state)
    assert PASSWORD not in repr(check)


def test_a_file_that_others_can_read_is_an_error(folder: Path) -> None:
    (folder / "orders.json").chmod(0o644)
    environ = {"TALLYSTICK_SECRETS_DIR": str(folder)}
    checks = {check.name: check for check in settings_checks(environ)}
    assert checks["kafka orders"].state == "error"
    assert "0644" in checks["kafka orders"].found
    assert checks["postgres bills"].state == "ok"
    assert checks["TALLYSTICK_SECRETS_DIR"].state == "ok"


@pytest.mark.parametrize(
    ("kind", "name", "is_there"),
    [
        (KafkaSettings, "orders", True),
        (KafkaSettings, "a-b", True),
        (KafkaSettings, "default", False),
        (PostgresSettings, "bills", True),
        (PostgresSettings, "orders", False),
    ],
)
def test_a_connection_is_defined_in_either_place(
    kind: type, name: str, is_there: bool, folder: Path
) -> None:
    environ = {"TALLYSTICK_SECRETS_DIR": str(folder), "TALLYSTICK_KAFKA_A_B": "{}"}
    assert is_defined(kind, name, environ) is is_there
    assert not is_defined(PostgresSettings, "bills", {})


def test_secrets_are_those_of_connections_and_of_variables_that_hold_secrets(folder: Path) -> None:
    environ = {
        "TALLYSTICK_SECRETS_DIR": str(folder),
        "TALLYSTICK_KAFKA_BROKEN": "{",
        "AWS_SECRET_ACCESS_KEY": "aws-secret",
        "AIRFLOW__API_AUTH__JWT_SECRET": "jwt",
        "AIRFLOW__API_AUTH__JWT_SECRET_CMD": "/bin/jwt",
        "AIRFLOW_CONN_SPARK_DEFAULT": "spark://master",
        "PATH": "/bin",
    }
    assert secrets_of(environ) == {PASSWORD, "p4ssw0rd", "aws-secret", "jwt", "spark://master"}


# ---------------------------------------------------------------- the folder of secrets


def only(checks: object) -> DoctorCheck:
    (check,) = checks  # type: ignore[misc, attr-defined]
    assert isinstance(check, DoctorCheck)
    return check


@pytest.mark.parametrize(
    ("mode", "state"),
    [(0o700, "ok"), (0o500, "ok"), (0o750, "warning"), (0o701, "warning"), (0o777, "warning")],
)
def test_the_folder_is_of_this_user_alone(mode: int, state: State, tmp_path: Path) -> None:
    made = tmp_path / "secrets"
    made.mkdir()
    made.chmod(mode)
    check = only(folder_checks(made, access=lambda *_: True))
    assert check.state == state
    if state == "warning":
        assert (f"mode {mode:04o}" in check.found, check.fix) == (True, f"chmod 0700 {made}")


def test_a_folder_that_kubernetes_mounts_read_only_is_ok(tmp_path: Path) -> None:
    made = tmp_path / "secrets"
    made.mkdir()
    made.chmod(0o777)

    def read_only(_: Path, mode: int) -> bool:
        return not mode & os.W_OK

    assert only(folder_checks(made, access=read_only)).state == "ok"
    assert os.geteuid() == made.stat().st_uid
    other = os.geteuid() + 1
    if made.stat().st_uid == 0:  # of root, and this process is not root
        assert only(folder_checks(made, uid=other, access=read_only)).state == "ok"
    assert only(folder_checks(made, uid=other, access=lambda *_: True)).state == "warning"


def test_a_folder_that_is_missing_closed_or_a_file_is_an_error(tmp_path: Path) -> None:
    assert only(folder_checks(tmp_path / "none")).state == "error"
    (tmp_path / "file").touch()
    assert only(folder_checks(tmp_path / "file")).state == "error"
    assert only(folder_checks(tmp_path, access=lambda *_: False)).state == "error"
