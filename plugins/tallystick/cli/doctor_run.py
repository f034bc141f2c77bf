"""Collects the examinations of `tally doctor`: those of this machine and of the lakes first, then those of servers."""

from __future__ import annotations

import importlib.metadata
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from tallystick.cli.lake_argument import LAKE_ENV
from tallystick.cli.loading import airflow_is_installed
from tallystick.connections.kafka import KafkaSettings
from tallystick.connections.postgres import PostgresSettings
from tallystick.connections.registry import RegistrySettings
from tallystick.connections.resolve import resolve
from tallystick.connections.settings import S, Settings, SettingsNamed
from tallystick.errors import SettingsError
from tallystick.lake import Lake
from tallystick.operations.doctor import kafka, lake, servers, settings, store, versions
from tallystick.operations.doctor.check import Area, DoctorCheck, without_secrets_of
from tallystick.operations.doctor.connections import (
    connection_check,
    defined_connections,
    is_defined,
    secrets_of,
)
from tallystick.operations.doctor.lake import LedgerReading, Needed
from tallystick.operations.doctor.run import Examination, Watch, examine
from tallystick.operations.lag import DEFAULT_CONNECTION
from tallystick.runtime import system_runtime
from tallystick.store.open import open_store

READ_S = 18.0
"""The limit for one read of the store over all its tries, such that a listing ends within an examination's limit."""
AREAS = ("versions", "settings", "airflow", "store", "kafka", "registry", "outputs", "ledger")
_SERVERS: Mapping[type[Settings], Callable[[str, SettingsNamed], Iterator[DoctorCheck]]] = {
    RegistrySettings: servers.registry_checks,
    PostgresSettings: servers.postgres_checks,
}
# Kept open: Airflow reads this file when it is imported, and otherwise writes one.
_EMPTY: list[IO[bytes]] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorOptions:
    """What is examined. `write`: also conditional writes, on scratch objects. `spark`: Airflow's connection of Spark."""

    lakes: Sequence[str]
    write: bool = False
    spark: str = "spark_default"


def diagnose(
    options: DoctorOptions, environ: Mapping[str, str], *, watch: Watch | None = None
) -> tuple[DoctorCheck, ...]:
    """Return all checks, by area. Nothing is written without `write`.

    Safe to repeat: it reads, and scratch objects have fresh keys.
    """
    uris = list(dict.fromkeys(options.lakes or filter(None, [environ.get(LAKE_ENV)])))
    readings = [LedgerReading(uri=uri) for uri in uris]
    now = system_runtime().now()
    with _quiet():
        airflow = _airflow_examinations(options, environ)
        of_spark = not any(one.name.startswith("connection ") for one in airflow)
        first = [
            *_version_examinations(environ, of_spark=of_spark),
            Examination(
                area="settings",
                name="settings",
                steps=partial(settings.settings_checks, environ),
            ),
            *airflow,
            *(one for reading in readings for one in _lake_examinations(reading, options)),
        ]
        found = list(examine(first, what="this machine and lakes", watch=watch))
        if not uris:
            found.append(
                Area("store").info(
                    "lake", "no lake is named", "name lakes as arguments, or set TALLYSTICK_LAKE."
                )
            )
        ready = any((c.area, c.name, c.state) == ("airflow", "database", "ok") for c in found)
        named = _SettingsOf(environ, airflow=ready)
        second = [*_kafka_examinations(readings, named), *_server_examinations(readings, named)]
        found += examine(second, what="servers", watch=watch)
    for reading in readings:
        found += lake.guard_checks(reading, now=now)
    found.sort(key=_rank)
    return without_secrets_of(found, secrets_of(environ))


def _rank(check: DoctorCheck) -> tuple[int, str]:
    kind = check.area.partition(" ")[0]
    return AREAS.index(kind), check.area


# ---------------------------------------------------------------- this machine


def _version_examinations(environ: Mapping[str, str], *, of_spark: bool) -> list[Examination]:
    pyspark = versions.installed("pyspark")

    def packages() -> Iterator[DoctorCheck]:
        yield versions.python_check(sys.version_info[:3])
        yield versions.tallystick_check(versions.installed("tallystick"))
        yield from versions.packages_check(_requirements(), versions.installed)
        yield from versions.airflow_checks(versions.installed)
        yield versions.pyspark_check(pyspark, versions.installed("pyspark-client"))
        folders = versions.decoder_folders(environ)
        yield versions.cache_check(folders, environ, versions.installed("numba"))

    def java() -> Iterator[DoctorCheck]:
        program = versions.java_program(environ)
        yield versions.java_check(program, needed=pyspark is not None)

    def spark() -> Iterator[DoctorCheck]:
        yield versions.spark_check(versions.spark_program(environ), pyspark)

    found = [
        Examination(area="versions", name="packages", steps=packages),
        Examination(area="versions", name="java", steps=java, limit_s=versions.PROGRAM_S),
    ]
    if of_spark:
        limit_s = versions.PROGRAM_S
        found.append(
            Examination(area="versions", name="spark-submit", steps=spark, limit_s=limit_s)
        )
    return found


def _requirements() -> list[str] | None:
    try:
        return importlib.metadata.requires("tallystick")
    except importlib.metadata.PackageNotFoundError:
        return None


def _airflow_examinations(options: DoctorOptions, environ: Mapping[str, str]) -> list[Examination]:
    """Return the examinations of Airflow, or one that states why there are none."""
    if not airflow_is_installed():
        return []  # the versions have it
    area = Area("airflow")
    if not airflow_is_configured(environ):
        check = area.info(
            "configuration",
            "Airflow is installed, and not configured on this machine",
            "set AIRFLOW_HOME and AIRFLOW__* as Airflow's tasks have them, to check it.",
        )
        return [Examination(area=area.name, name="configuration", steps=lambda: [check])]
    _leave_no_config_file(environ)
    # Connections in the metadata database are read as Airflow's own processes read them.
    os.environ.setdefault("_AIRFLOW_PROCESS_CONTEXT", "server")
    try:
        from tallystick.airflow.doctor import examinations

        return examinations(
            spark_conn_id=options.spark,
            pyspark=versions.installed("pyspark"),
            environ=environ,
        )
    except Exception as error:  # noqa: BLE001 - Airflow raises many kinds for a wrong configuration
        check = area.error(
            "configuration",
            f"Airflow cannot be imported: {type(error).__name__}: {error}",
            "correct its configuration; `airflow version` shows the same error.",
        )
        return [Examination(area=area.name, name="configuration", steps=lambda: [check])]


def airflow_is_configured(environ: Mapping[str, str]) -> bool:
    """Return True if the environment or a file configures Airflow."""
    if any(name.startswith("AIRFLOW__") for name in environ):
        return True
    return _config_file(environ).is_file()


def _config_file(environ: Mapping[str, str]) -> Path:
    if file := environ.get("AIRFLOW_CONFIG"):
        return Path(file)
    home = environ.get("AIRFLOW_HOME") or "~/airflow"
    return Path(home).expanduser() / "airflow.cfg"


def _leave_no_config_file(environ: Mapping[str, str]) -> None:
    """Let Airflow read an empty file if it has none: upon import, it would write one with new secrets."""
    if "airflow.configuration" in sys.modules or _config_file(environ).exists():
        return
    _EMPTY.append(tempfile.NamedTemporaryFile(prefix="tally-", suffix=".cfg"))  # noqa: SIM115
    os.environ["AIRFLOW_CONFIG"] = _EMPTY[-1].name


# ---------------------------------------------------------------- lakes


def _lake_examinations(reading: LedgerReading, options: DoctorOptions) -> list[Examination]:
    runtime = system_runtime()

    def of_store() -> Iterator[DoctorCheck]:
        if reading.uri.startswith("s3://"):
            from tallystick.store.bucket import S3Bucket
            from tallystick.store.s3 import S3Settings

            limits = S3Settings.from_environ(os.environ).answering_within(READ_S)
            yield from store.bucket_checks(S3Bucket(reading.uri, settings=limits), runtime.now)

    def of_writes() -> Iterator[DoctorCheck]:
        opened = open_store(reading.uri, reads_within_s=READ_S)
        yield store.writes_check(opened, write=options.write, new_id=runtime.uuid)

    def of_ledger() -> Iterator[DoctorCheck]:
        opened = open_store(reading.uri, reads_within_s=READ_S)
        # A new store: a lake must not be used by two threads.
        yield from lake.ledger_checks(Lake(opened, runtime, proven=True, begun=False), reading)

    area = store.area_of(reading.uri).name
    return [
        Examination(area=area, name="access", steps=of_store),
        Examination(area=area, name="conditional writes", steps=of_writes, limit_s=60),
        Examination(area=lake.area_of(reading.uri).name, name="root", steps=of_ledger, limit_s=60),
    ]


# ---------------------------------------------------------------- servers


@dataclass(frozen=True, slots=True)
class _SettingsOf:
    """Returns settings from the environment and the folder of secrets; if `airflow`, also those that Airflow has."""

    environ: Mapping[str, str]
    airflow: bool

    def __call__(self, kind: type[S], connection: str, /) -> S:
        if is_defined(kind, connection, self.environ) or not self.airflow:
            return resolve(kind, connection, environ=self.environ)
        from tallystick.airflow.connections import settings_named

        return settings_named(kind, connection)


def _needed(readings: Sequence[LedgerReading]) -> set[Needed]:
    return {one for reading in readings for one in reading.needed}


def _kafka_examinations(readings: Sequence[LedgerReading], named: _SettingsOf) -> list[Examination]:
    needed = {name for kind, name in _needed(readings) if kind is KafkaSettings}
    return [
        Examination(
            area=kafka.area_of(name).name,
            name="login",
            steps=partial(_kafka_steps, name, readings, named, optional=name not in needed),
        )
        for name in sorted(needed | {DEFAULT_CONNECTION})
    ]


def _kafka_steps(
    name: str, readings: Sequence[LedgerReading], named: _SettingsOf, *, optional: bool
) -> Iterator[DoctorCheck]:
    if optional:
        try:
            named(KafkaSettings, name)
        except SettingsError:
            if is_defined(KafkaSettings, name, named.environ):
                return  # the settings have it
            yield kafka.area_of(name).info(
                "login",
                "the connection is not defined, and no plan of these lakes names it",
                "define it if pipelines use it: docs/how-to/connect-to-kafka.md.",
            )
            return
    topics = kafka.topics_of(readings, name)
    yield from kafka.kafka_checks(name, named, topics, now=system_runtime().now())


def _server_examinations(
    readings: Sequence[LedgerReading], named: _SettingsOf
) -> list[Examination]:
    """Return the examinations of registries and databases that are defined and can be used, or that plans need."""
    defined = [
        (one.kind, one.name)
        for one in defined_connections(named.environ)[0]
        if connection_check(one, named.environ).state == "ok"
    ]
    known = {(kind, name.replace("-", "_")) for kind, name in defined}
    missing = [
        (kind, name)
        for kind, name in sorted(_needed(readings), key=lambda one: (one[0].KIND, one[1]))
        if kind is not KafkaSettings and (kind, name.replace("-", "_")) not in known
    ]
    return [
        Examination(
            area="registry" if kind is RegistrySettings else "outputs",
            name=name if kind is RegistrySettings else f"{kind.KIND} {name}",
            steps=partial(_server_steps, kind, name, named),
        )
        for kind, name in [*(one for one in defined if one[0] in _SERVERS), *missing]
    ]


def _server_steps(kind: type[Settings], name: str, named: _SettingsOf) -> Iterator[DoctorCheck]:
    if (checks := _SERVERS.get(kind)) is not None:
        yield from checks(name, named)
    else:
        named(kind, name)  # raises if it is not defined, or cannot be used
        yield Area("outputs").ok(f"{kind.KIND} {name}", "defined")


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the loggers and warnings of libraries: a check has what they log."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
