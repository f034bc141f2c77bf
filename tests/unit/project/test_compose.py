"""docker-compose.yml and its related files name only what exists; each check must detect its mutants."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from base64 import urlsafe_b64decode
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from support import compose_code, compose_files
from support.compose_files import ROOT, Files

Check = Callable[[Files], list[str]]
CHECKS: tuple[Check, ...] = (
    *(compose_files.shape, compose_files.ports, compose_files.watched, compose_files.paths),
    *(compose_files.example, compose_files.secrets, compose_files.addresses),
    *(compose_code.commands, compose_code.variables, compose_code.settings),
    *(compose_code.health, compose_code.versions, compose_code.image),
)

ENDS = "fill-flights:\n        condition: service_completed_successfully"
# check, file, original text, text of the mutant
MUTANTS: tuple[tuple[Check, str, str, str], ...] = (
    (compose_files.shape, "compose", "    restart: unless-stopped\n    stop", "    restart: always\n    stop"),
    (compose_files.shape, "compose", "    stop_grace_period: 30s", "    stop_grace: 30s"),
    (compose_files.shape, "compose", 'PARALLELISM: "4"', "PARALLELISM: 4"),
    (compose_files.shape, "compose", '"--workers", "1"]', '"--workers", 1]'),
    (compose_files.shape, "compose", "start_interval: 5s", "start_intervall: 5s"),
    (compose_files.shape, "compose", "\nvolumes:\n", "\nnetwork: {}\nvolumes:\n"),
    (compose_files.ports, "compose", '"127.0.0.1:${S3_PORT', '"${S3_PORT'),
    (compose_files.ports, "compose", '"127.0.0.1:${KAFKA_PORT', '"0.0.0.0:${KAFKA_PORT'),
    (compose_files.watched, "compose", '      test: ["CMD", "pg_isready"', '      tests: ["CMD", "pg_isready"'),
    (compose_files.watched, "compose", f"      {ENDS}", "      fill-flights:\n        condition: service_healthy"),
    (compose_files.watched, "compose", f"      {ENDS}\n", ""),
    (compose_files.watched, "compose", "      postgres:\n", "      postgresql:\n"),
    (compose_files.paths, "compose", "./dags:", "./dag:"),
    (compose_files.paths, "compose", "/spark_jobs:ro", "/spark_jobs"),
    (compose_files.paths, "compose", "  airflow-logs:\n", ""),
    (compose_files.paths, "dockerfile", "README.md LICENSE", "README.md LICENCE"),
    (compose_files.paths, "ignore", "!uv.lock\n", ""),
    (compose_files.paths, "ignore", "!entrypoint.sh\n", ""),
    (compose_files.paths, "ignore", "*\n!", "!"),
    (compose_files.shape, "compose", "{max-size: 10m, ", "{"),
    (compose_files.shape, "compose", "image: postgres:17.9\n    logging: *logging", "image: postgres:17.9"),
    (compose_files.example, "example", "S3_PORT=7070\n", ""),
    (compose_files.example, "example", "S3_PORT=7070", "S3_PORT=7071"),
    (compose_files.example, "example", "POSTGRES_PASSWORD=\n", "POSTGRES_PASSWORD=change-me\n"),
    (compose_files.example, "example", "S3_PORT=7070\n", "S3_PORT=7070\nS3_BUCKET=lake\n"),
    (compose_files.example, "example", "# Name of the S3 server's one user.\n", ""),
    (compose_files.example, "compose", "${S3_ACCESS_KEY:-tallystick}", "${S3_ACCESS_KEY}"),
    (compose_files.secrets, "compose", "ROOT_SECRET_KEY: ${S3_SECRET_KEY:?", "ROOT_SECRET_KEY: hunter2 # ${"),
    (compose_files.secrets, "compose", "${AIRFLOW_JWT_SECRET:?", "${AIRFLOW_JWT_SECRET:-"),
    (compose_files.secrets, "compose", 'os.environ["AIRFLOW_ADMIN_PASSWORD"]', '"${AIRFLOW_ADMIN_PASSWORD:?}"'),
    (compose_files.secrets, "dockerfile", "    CONNECTION_CHECK", "    ADMIN_PASSWORD=x CONNECTION_CHECK"),
    (compose_files.addresses, "compose", '"kafka:9092"}', '"kafka:29092"}'),
    (compose_files.addresses, "compose", "http://s3:7070", "http://minio:7070"),
    (compose_files.addresses, "compose", "@postgres:5432", "@postgres:5433"),
    (compose_files.addresses, "compose", "--port 7077", "--port 7078"),
    (compose_code.commands, "compose", "examples.demo.fill", "examples.demo.full"),
    (compose_code.commands, "compose", '"--bootstrap", "kafka', '"--broker", "kafka'),
    (compose_code.commands, "compose", "deploy.worker.Worker", "deploy.worker.Slave"),
    (compose_code.commands, "compose", '"api-server"', '"webserver"'),
    (compose_code.commands, "compose", "airflow db migrate", "airflow db upgrade"),
    (compose_code.commands, "compose", "DagProcessorJob", "DagParserJob"),
    (compose_code.commands, "dockerfile", "tallystick.spark.precompile", "tallystick.spark.precompile --decoders"),
    (compose_code.commands, "page", "tally status", "tally state"),
    (compose_code.commands, "page", "airflow backfill create", "airflow dags backfill"),
    (compose_code.commands, "page", "exec airflow-scheduler tally verify", "exec airflow-worker tally verify"),
    (compose_code.commands, "page", "make .env ", "make env "),
    (compose_code.variables, "compose", "AIRFLOW__API_AUTH__JWT_SECRET", "AIRFLOW__API__JWT_SECRET"),
    (compose_code.variables, "compose", "AIRFLOW_CONN_SPARK_DEFAULT", "AIRFLOW_CONN_SPARK"),
    (compose_code.variables, "compose", '"spark://spark-master', '"http://spark-master'),
    (compose_code.variables, "compose", '"bootstrap_servers"', '"bootstrap.servers"'),
    (compose_code.variables, "compose", "TALLYSTICK_LAKE", "TALLYSTICK_ROOT"),
    (compose_code.variables, "compose", "AWS_ENDPOINT_URL_S3", "AWS_S3_ENDPOINT"),
    (compose_code.variables, "compose", "SPARK_WORKER_DIR", "SPARK_WORKER_FOLDER"),
    (compose_code.settings, "compose", 'HEARTBEAT_TIMEOUT: "180"', 'HEARTBEAT_TIMEOUT: "300"'),
    (compose_code.settings, "compose", 'KAFKA_LOG_RETENTION_MS: "-1"', 'KAFKA_LOG_RETENTION_MS: "1"'),
    (compose_code.settings, "compose", '      KAFKA_NUM_IO_THREADS: "4"\n', ""),
    (compose_code.health, "compose", "localhost:8974", "localhost:8973"),
    (compose_code.health, "compose", "localhost:8081", "localhost:8080"),
    (compose_code.health, "compose", "/monitor/health", "/health"),
    (compose_code.health, "compose", "VGW_HEALTH: /health", "VGW_HEALTH: /healthy"),
    (compose_code.commands, "readme", "airflow-scheduler airflow dags unpause", "airflow airflow dags unpause"),
    (compose_code.versions, "compose", "apache/kafka:4.1.0", "apache/kafka:4.1.1"),
    (compose_code.versions, "compose", "postgres:17.9", "postgres:17"),
    (compose_code.versions, "compose", "versitygw:v1.8.0", "versitygw:v1.8.1"),
    (compose_code.versions, "compose", "tallystick:0.1.0", "tallystick:0.2.0"),
    (compose_code.versions, "dockerfile", "slim-3.3.2", "slim-3.3.1"),
    (compose_code.versions, "dockerfile", '"uv>=0.9,<1"', '"uv>=0.9"'),
    (compose_code.image, "dockerfile", "uv sync --frozen", "uv sync"),
    (compose_code.image, "dockerfile", "--package tallystick-devstack", "--package tallystick-docker"),
    (compose_code.image, "dockerfile", "PYSPARK_PYTHON=/home/airflow/tallystick", "PYSPARK_PYTHON=/usr/python"),
    (compose_code.image, "dockerfile", '"--", "/home/airflow/entrypoint.sh"]', '"--", "/entrypoint"]'),
    (compose_code.image, "dockerfile", "CONNECTION_CHECK_MAX_COUNT=0", "CONNECTION_CHECKS=0"),
    (compose_code.image, "dockerfile", "USER airflow", "USER root"),
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _airflow_home(tmp_path_factory: pytest.TempPathFactory) -> None:
    # Airflow reads it upon import, and the checks import it; it remains set for later imports.
    os.environ.setdefault("AIRFLOW_HOME", str(tmp_path_factory.mktemp("airflow")))


@pytest.fixture(scope="module")
def files() -> Files:
    return Files.read()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_files_pass_every_check(check: Check, files: Files) -> None:
    assert check(files) == []


@pytest.mark.parametrize(
    ("check", "file", "old", "new"),
    MUTANTS,
    ids=[f"{c.__name__}-{n[:30]!r}" for c, _, _, n in MUTANTS],
)
def test_each_mutant_is_detected(check: Check, file: str, old: str, new: str, files: Files) -> None:
    text = getattr(files, file)
    assert old in text
    assert check(replace(files, **{file: text.replace(old, new)})) != []


def test_each_check_has_a_mutant() -> None:
    assert {check for check, _, _, _ in MUTANTS} == set(CHECKS)


def test_a_duplicate_key_is_an_error(files: Files) -> None:
    duplicated = files.compose.replace("    restart:", "    restart: always\n    restart:", 1)
    with pytest.raises(yaml.YAMLError, match="restart"):
        _ = replace(files, compose=duplicated).document


def test_make_fills_in_every_secret_for_its_owner_alone_and_never_twice(
    tmp_path: Path, files: Files
) -> None:
    for name in ("Makefile", ".env.example"):
        shutil.copy(ROOT / name, tmp_path)
    subprocess.run(["make", ".env"], cwd=tmp_path, check=True, capture_output=True)
    env_file = tmp_path / ".env"
    first = env_file.read_text()
    values = replace(files, example=first).example_values()
    defaults = {name: value for name, value in files.example_values().items() if value}
    assert {name: values[name] for name in defaults} == defaults
    secrets = {name: value for name, value in values.items() if name not in defaults}
    assert set(secrets) == files.example_values().keys() - defaults.keys()
    assert len(set(secrets.values())) == len(secrets)
    assert len(urlsafe_b64decode(secrets.pop("AIRFLOW_FERNET_KEY"))) == 32
    # HS512 needs a key of 64 bytes; hexadecimal needs no quoting in a URL.
    assert all(len(value) >= 64 and bytes.fromhex(value) for value in secrets.values())
    assert stat.S_IMODE(env_file.stat().st_mode) == 0o600
    subprocess.run(["make", ".env"], cwd=tmp_path, check=True, capture_output=True)
    assert env_file.read_text() == first


def test_git_never_takes_the_secrets() -> None:
    ignored = subprocess.run(["git", "check-ignore", "-q", ".env"], cwd=ROOT, check=False)
    assert ignored.returncode == 0


def test_the_login_is_written_as_airflow_reads_it(tmp_path: Path, files: Files) -> None:
    """The script of airflow-init writes SimpleAuthManager's file for its owner only; a script replaces `airflow`."""
    (tmp_path / "airflow").write_text('#!/bin/sh\nprintf "%s" "$*" > "$0.called"\n')
    (tmp_path / "airflow").chmod(0o700)
    command = files.services["airflow-init"]["command"]
    passwords = tmp_path / "passwords.json"
    environment = {
        "PATH": os.pathsep.join([str(tmp_path), str(Path(sys.executable).parent), os.defpath]),
        "AIRFLOW_ADMIN_PASSWORD": "quote \"it\" with ${quotes} and 'more'",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
    }
    subprocess.run([*command[:-1], command[-1].replace("$$", "$")], env=environment, check=True)
    assert (tmp_path / "airflow.called").read_text() == "db migrate"
    [(user, password)] = json.loads(passwords.read_text()).items()
    assert password == environment["AIRFLOW_ADMIN_PASSWORD"]
    users = files.environment("airflow-api-server")["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"]
    assert users == f"{user}:admin"
    assert stat.S_IMODE(passwords.stat().st_mode) == 0o600
