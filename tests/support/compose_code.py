"""Checks of what docker-compose.yml and its companions name: against code, lock file and installed packages."""

from __future__ import annotations

import argparse
import importlib
import json
import re
import shlex
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

from support.compose_files import ROOT, Files
from tallystick.connections.kafka import KafkaSettings
from tallystick.errors import TallystickError
from tallystick_devstack.kafka import KAFKA_VERSION, KafkaBroker
from tallystick_devstack.s3 import S3Server

# Settings in which the two stacks must differ: addresses, secrets, folders, and those that only a container needs.
_AIRFLOW_OWN = {
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN",
    "AIRFLOW__CORE__FERNET_KEY",
    "AIRFLOW__CORE__EXECUTION_API_SERVER_URL",
    "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE",
    "AIRFLOW__API__BASE_URL",
    "AIRFLOW__API__SECRET_KEY",
    "AIRFLOW__API_AUTH__JWT_SECRET",
    "AIRFLOW__SCHEDULER__ENABLE_HEALTH_CHECK",
}
_KAFKA_OWN = {
    *("KAFKA_HEAP_OPTS", "KAFKA_CONTROLLER_QUORUM_VOTERS", "KAFKA_INTER_BROKER_LISTENER_NAME"),
    *("KAFKA_LISTENERS", "KAFKA_ADVERTISED_LISTENERS", "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"),
    "KAFKA_LOG_DIRS",
}


def commands(files: Files) -> list[str]:
    """Check that every program that a container or the page starts exists and accepts its arguments."""
    problems = []
    for place, words in _all_commands(files):
        try:
            wrong = _wrong(words, files)
        except SystemExit:  # argparse refuses so
            wrong = "these arguments are not accepted"
        problems += [f"{place}: {shlex.join(words)}: {wrong}"] if wrong else []
    return problems


def _all_commands(files: Files) -> Iterator[tuple[str, list[str]]]:
    for name, service in files.services.items():
        own = str(service["image"]).startswith("tallystick:")
        if own:
            yield from ((name, words) for words in _simple(service["command"]))
            test = service.get("healthcheck", {}).get("test", ["CMD", "true"])
            yield name, test[1:]
    yield from (("documented", words) for words in files.documented_commands())
    for instruction, text in files.instructions():
        for found in re.findall(r"python -m .*", text) if instruction == "RUN" else ():
            yield "Dockerfile", shlex.split(found)


def _simple(command: list[str]) -> Iterator[list[str]]:
    """Yield the simple commands of a container's command, also those of a shell script."""
    if command[0] != "bash":
        yield command
        return
    script = command[-1].replace("\\\n", " ").replace("$$", "$")
    for line in script.strip().splitlines():
        yield shlex.split(line.removeprefix("exec ").partition(" > ")[0])


def _wrong(words: list[str], files: Files) -> str | None:
    match words:
        case ["airflow", *rest]:
            from airflow.cli.cli_parser import get_parser

            get_parser().parse_args(rest)
        case ["python", "-m", module, *rest]:
            if find_spec(module) is None:
                return "no such module"
            return _refused_by(module, rest)
        case ["tally", *rest]:
            import typer

            from tallystick.cli import app as cli

            known: Any = typer.main.get_command(cli.app)
            return None if rest[:1] and rest[0] in known.commands else "no such command"
        case ["spark-class", name, *_]:
            return None if name in _spark_classes() else "pyspark has no such class"
        case ["docker", "compose", "exec", service, *rest]:
            return _wrong(rest, files) if service in files.services else "no such service"
        case ["docker", "compose", "logs" | "down" | "up", *rest]:
            known = {"--detach", "--build", "--wait", "--follow", "--volumes", *files.services}
            return ", ".join(set(rest) - known) or None
        case ["make", target]:
            rule = re.search(
                rf"^{re.escape(target)}:", (ROOT / "Makefile").read_text(), re.MULTILINE
            )
            return None if rule else "no such target"
        case [("curl" | "umask" | "true"), *_] | ["python", "-c", _]:
            return None
        case _:
            return "a program without a check"
    return None


class _AcceptedError(Exception):
    """The arguments were parsed; the program does not run here."""


def _refused_by(module: str, words: list[str]) -> str | None:
    """Parse the arguments with the module's own parser, and stop after that."""
    parse = argparse.ArgumentParser.parse_args

    def only_parse(self: argparse.ArgumentParser, args: Any = None, namespace: Any = None) -> None:
        parse(self, args, namespace)
        raise _AcceptedError

    with patch.object(argparse.ArgumentParser, "parse_args", only_parse):
        try:
            importlib.import_module(module).main(words)
        except _AcceptedError:
            return None
    return "it parses no arguments"


@cache
def _spark_classes() -> frozenset[str]:
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    [jar] = (Path(spec.origin).parent / "jars").glob("spark-core_*.jar")
    with zipfile.ZipFile(jar) as archive:
        return frozenset(
            name.removesuffix(".class").replace("/", ".") for name in archive.namelist()
        )


@cache
def _spark_variables() -> frozenset[str]:
    """Return the variables that Spark's master, worker and launcher read: names in their compiled classes."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    found: set[bytes] = set()
    for kind in ("core", "launcher", "common-utils"):
        for jar in (Path(spec.origin).parent / "jars").glob(f"spark-{kind}*.jar"):
            with zipfile.ZipFile(jar) as archive:
                for name in archive.namelist():
                    if re.search(r"/(launcher|util|deploy/(master|worker))/\w+\$?\.class$", name):
                        found.update(re.findall(rb"\bSPARK_[A-Z_]+", archive.read(name)))
    return frozenset(name.decode() for name in found)


def variables(files: Files) -> list[str]:
    """Check that tallystick, Airflow, boto3 and Spark read each variable that is set for them, and accept its value."""
    problems = []
    for service, name, value in files.variables():
        wrong = _unknown(name, value)
        problems += [f"{service}: {name}: {wrong}"] if wrong else []
    return problems


def _unknown(name: str, value: str) -> str | None:
    if name.startswith("AIRFLOW__"):
        from airflow.configuration import conf

        section, _, option = name.removeprefix("AIRFLOW__").lower().partition("__")
        options = conf.configuration_description.get(section, {}).get("options", {})
        return None if option in options else "Airflow has no such setting"
    if name.startswith("AIRFLOW_CONN_"):
        return _wrong_connection(name.removeprefix("AIRFLOW_CONN_").lower(), value)
    if name.startswith("TALLYSTICK_KAFKA_"):
        try:
            KafkaSettings.from_json(value, source=name)
        except TallystickError as error:
            return str(error)
        return None
    if name.startswith("TALLYSTICK_"):
        sources = (*ROOT.glob("plugins/tallystick/**/*.py"), *ROOT.glob("dags/*.py"))
        return None if any(f'"{name}"' in s.read_text() for s in sources) else "no code reads it"
    if name.startswith("AWS_"):
        known = S3Server(Path(tempfile.gettempdir()), port=1).environment()
        return None if name in known else "the embedded stack does not set it"
    if name.startswith("SPARK_"):
        # SPARK_SUBMIT_OPTS is read by the shell script that submits, and not by a class.
        return (
            None if name in {*_spark_variables(), "SPARK_SUBMIT_OPTS"} else "Spark does not read it"
        )
    return None


def _wrong_connection(name: str, value: str) -> str | None:
    from inspect import signature

    from tallystick.airflow import replay_dag
    from tallystick.airflow.spark_submit import _MASTER

    connection = json.loads(value)
    if signature(replay_dag).parameters["spark_conn_id"].default != name:
        return "no DAG uses this connection"
    if not _MASTER.fullmatch(connection["host"]) or connection["extra"]["deploy-mode"] != "client":
        return "tallystick's operator refuses it"
    return None


def settings(files: Files) -> list[str]:
    """Check that Airflow's and Kafka's settings equal those of the embedded stack, except those that must differ."""
    from tallystick_devstack.airflow import AirflowStack

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stack = AirflowStack(folder, dags_dir=folder, plugins_dir=folder, database="", port=1)
        airflow = stack.environment()
        lines = KafkaBroker(folder)._write_properties(1, 2).read_text().splitlines()
    properties = (line.split("=", 1) for line in lines)
    kafka = {f"KAFKA_{key.upper().replace('.', '_')}": value for key, value in properties}
    problems = []
    for service, variable, value in files.variables():
        if variable.startswith("AIRFLOW__") and variable not in _AIRFLOW_OWN:
            same = airflow.get(variable) == value
        elif variable.startswith("KAFKA_") and variable not in _KAFKA_OWN:
            same = kafka.get(variable) == value
        else:
            continue
        problems += (
            []
            if same
            else [f"{service}: {variable} is {value!r}, and another value in the embedded stack"]
        )
    missing = kafka.keys() - files.environment("kafka").keys()
    return problems + [f"kafka lacks {name}" for name in missing]


def health(files: Files) -> list[str]:
    """Check that the parts serve the pages that the health checks request."""
    from airflow.configuration import conf

    known = conf.configuration_description["scheduler"]["options"]
    api = (ROOT / "devstack/tallystick_devstack/airflow_api.py").read_text()
    problems = []
    for name, port in (
        ("airflow-api-server", 8080),
        ("airflow-scheduler", known["scheduler_health_check_server_port"]["default"]),
        ("spark-master", _words_after(files, "spark-master", "--webui-port")),
        ("spark-worker", _words_after(files, "spark-worker", "--webui-port")),
        ("s3", files.environment("s3")["VGW_PORT"].removeprefix(":")),
    ):
        requested = files.services[name]["healthcheck"]["test"][-1]
        if not re.fullmatch(rf"http://(localhost|127\.0\.0\.1):{port}/\S+", requested):
            problems.append(f"{name} serves port {port}, its health check requests {requested}")
        path = requested.partition(f":{port}")[2]
        if name == "airflow-api-server" and f'"{path}"' not in api:
            problems.append(f"the embedded stack does not request {path}")
        if name == "s3" and path != files.environment("s3")["VGW_HEALTH"]:
            problems.append(f"s3 does not serve {path}")
    return problems


def _words_after(files: Files, service: str, option: str) -> str:
    words = shlex.split(files.services[service]["command"][-1])
    return words[words.index(option) + 1]


def versions(files: Files) -> list[str]:
    """Check that images are pinned to the versions of the lock file and of the embedded stack, and listed on the page."""
    lock = tomllib.loads((ROOT / "uv.lock").read_text())
    locked = {package["name"]: package["version"] for package in lock["package"]}
    bases = [w.split()[0] for i, w in files.instructions() if i == "FROM"]
    images = {s["image"] for s in files.services.values()}
    expected = {
        f"tallystick:{locked['tallystick']}",
        f"apache/kafka:{KAFKA_VERSION}",
        *(image for image in images if image.startswith(("versity/versitygw:v", "postgres:"))),
    }
    problems = [f"image {image}" for image in images ^ expected]
    problems += [f"{i} is not pinned" for i in images if not re.search(r":v?\d+\.\d+(\.\d+)?$", i)]
    airflow = f"apache/airflow:slim-{locked['apache-airflow']}-python3.11"
    problems += [f"base {base}" for base in bases if base not in (airflow, "base")]
    outside = {image for image in images if not image.startswith("tallystick:")} | {airflow}
    problems += [
        f"the page does not list {image}" for image in outside if f"`{image}`" not in files.page
    ]
    uv = set(re.findall(r'"uv[^"]*"', files.dockerfile + (ROOT / "Makefile").read_text()))
    return problems + ([f"uv: {sorted(uv)}"] if len(uv) != 1 else [])


def image(files: Files) -> list[str]:
    """Check that the image is built from the lock file, and configured for its containers."""
    members = {
        tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]["name"]
        for folder in (".", "devstack")
    }
    runs = [words for instruction, words in files.instructions() if instruction == "RUN"]
    text = " ".join(words for _, words in files.instructions())
    problems = []
    for sync in (words for words in runs if "uv sync" in words):
        words = shlex.split(sync)
        problems += [f"not as locked: {sync}"] if "--frozen" not in words else []
        packages = {words[at + 1] for at, word in enumerate(words) if word == "--package"}
        problems += [f"package {package}" for package in packages - members]
        problems += [] if packages else ["no package"]
    folder = re.search(r"UV_PROJECT_ENVIRONMENT=(\S+)", text)
    home = folder.group(1) if folder else "nowhere"
    for expected in (
        f"PYSPARK_PYTHON={home}/bin/python",
        f'PATH="{home}/bin:${{PATH}}"',
        f"--from=packages {home} {home}",
        "CONNECTION_CHECK_MAX_COUNT=0",
        '["/usr/bin/dumb-init", "--", "/home/airflow/entrypoint.sh"]',
        "entrypoint.sh /home/airflow/entrypoint.sh",
        "mkdir -p /opt/airflow/auth",
        "openjdk-17-jre-headless",
    ):
        problems += [] if expected in text else [f"the Dockerfile lacks {expected}"]
    users = [words for instruction, words in files.instructions() if instruction == "USER"]
    return problems + ([] if users and users[-1] == "airflow" else ["it runs as root"])
