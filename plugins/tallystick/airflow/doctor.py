"""Checks Airflow on this machine for `tally doctor`: its database, processes, secrets, and the Spark connection.

It only reads. No text contains the value of a secret.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from airflow.configuration import conf
from airflow.jobs.job import most_recent_job
from airflow.models.trigger import Trigger
from airflow.utils.session import create_session

from tallystick.airflow.spark_submit import ScrubbedSparkSubmit
from tallystick.connections.kafka import KafkaSettings
from tallystick.errors import TallystickError
from tallystick.operations.doctor.check import Area, DoctorCheck
from tallystick.operations.doctor.run import Examination
from tallystick.operations.doctor.versions import (
    PROGRAM_S,
    Run,
    run_spark,
    spark_check,
    spark_program,
)

AREA = Area("airflow")
JWT_BYTES_MIN = 64
# Secrets of examples in the documentation and in compose files.
_WELL_KNOWN = frozenset(
    {"airflow", "airflow_jwt_secret", "changeme", "change-me", "secret", "temporary_key", "test"}
)
_LOCAL_BUNDLE = "airflow.dag_processing.bundles.local.LocalDagBundle"
_JOBS = {"scheduler": "SchedulerJob", "dag-processor": "DagProcessorJob"}
SessionMaker = Callable[[], AbstractContextManager[Any]]


def examinations(
    *, spark_conn_id: str, pyspark: str | None, environ: Mapping[str, str]
) -> list[Examination]:
    """Return the examinations of this machine's Airflow."""
    return [
        Examination(area=AREA.name, name="configuration", steps=configuration_checks),
        Examination(area=AREA.name, name="database", steps=database_checks),
        Examination(area=AREA.name, name="plugin", steps=plugin_checks, limit_s=PROGRAM_S),
        Examination(
            area=AREA.name,
            name=f"connection {spark_conn_id}",
            steps=lambda: spark_checks(spark_conn_id, pyspark, environ),
            limit_s=PROGRAM_S,
        ),
    ]


# ---------------------------------------------------------------- configuration


def configuration_checks() -> Iterator[DoctorCheck]:
    """Yield the checks of the configuration: executor, parallelism, DAG folder, secrets, logins."""
    yield executor_check(conf.get("core", "executor"))
    yield parallelism_check(conf.getint("core", "parallelism"))
    yield folder_check(conf.get("core", "dags_folder"), _bundles())
    yield fernet_check(conf.get("core", "fernet_key", fallback=""))
    keyed = bool(conf.get("api_auth", "jwt_private_key_path", fallback=""))
    yield jwt_check(conf.get("api_auth", "jwt_secret", fallback=""), has_private_key=keyed)
    everyone = conf.getboolean("core", "simple_auth_manager_all_admins", fallback=False)
    yield auth_check(conf.get("core", "auth_manager"), everyone=everyone)


def _bundles() -> list[str]:
    found = conf.getjson("dag_processor", "dag_bundle_config_list", fallback=[])
    bundles = found if isinstance(found, list) else []
    return [str(one.get("classpath")) for one in bundles if isinstance(one, dict)]


def executor_check(executor: str) -> DoctorCheck:
    """Check that the executor is one of Airflow 3."""
    if executor.rpartition(".")[2] == "SequentialExecutor":
        return AREA.error(
            "executor",
            "expected an executor of Airflow 3, found SequentialExecutor",
            "set [core] executor to LocalExecutor, or to one that runs tasks on other machines.",
        )
    return AREA.ok("executor", executor)


def parallelism_check(parallelism: int) -> DoctorCheck:
    """Check that more than one task can run: a stage task takes minutes, and plans and commits must go on."""
    if parallelism == 1:
        return AREA.warning(
            "parallelism",
            "[core] parallelism=1: a stage task blocks all plans and commits",
            "set it to 4 or more.",
        )
    return AREA.ok("parallelism", "no limit" if parallelism < 1 else str(parallelism))


def folder_check(folder: str, bundles: list[str]) -> DoctorCheck:
    """Check that the folder of DAG files can be read, if DAG files come from a folder."""
    name = "DAG folder"
    if bundles and _LOCAL_BUNDLE not in bundles:
        return AREA.ok(name, f"DAG files come from {', '.join(bundles)}")
    path = Path(folder)
    if not path.is_dir():
        return AREA.error(
            name, f"{folder} is no folder", "create it, or correct [core] dags_folder."
        )
    if not os.access(path, os.R_OK | os.X_OK):
        return AREA.error(
            name,
            f"{folder} is not readable for user {os.geteuid()}",
            "make it readable for the user who runs Airflow.",
        )
    return AREA.ok(name, folder)


def fernet_check(key: str) -> DoctorCheck:
    """Check the key that encrypts the passwords of connections in the metadata database."""
    name = "fernet key"
    make = "generate one with cryptography.fernet.Fernet.generate_key(), and set it for all components."
    if not key:
        return AREA.warning(
            name, "[core] fernet_key is empty: passwords of connections are not encrypted", make
        )
    from cryptography.fernet import Fernet

    try:
        for one in key.split(","):
            Fernet(one.strip().encode())
    except ValueError:
        # The message must not contain the key.
        return AREA.error(name, "[core] fernet_key is no Fernet key", make)
    return AREA.ok(name, "set")


def jwt_check(secret: str, *, has_private_key: bool) -> DoctorCheck:
    """Check the secret that signs the tokens of tasks and users: it is the same in all components, and long."""
    name = "jwt secret"
    make = "set [api_auth] jwt_secret to 64 random bytes or more, the same for all components."
    if has_private_key:
        return AREA.ok(name, "a private key signs tokens")
    if not secret:
        return AREA.warning(
            name,
            "[api_auth] jwt_secret is empty: an API server or scheduler that runs here makes one of its own, and other "
            "components refuse its tokens",
            make,
        )
    if secret.lower() in _WELL_KNOWN:
        return AREA.error(name, "[api_auth] jwt_secret is one of a public example", make)
    if len(secret.encode()) < JWT_BYTES_MIN:
        return AREA.warning(
            name, f"[api_auth] jwt_secret: expected 64 bytes or more, found {len(secret)}", make
        )
    return AREA.ok(name, "set")


def auth_check(manager: str, *, everyone: bool) -> DoctorCheck:
    """Check how users log in."""
    name, short = "logins", manager.rpartition(".")[2]
    fix = "use an auth manager with users of its own, such as those of the FAB and Keycloak providers."
    if short != "SimpleAuthManager":
        return AREA.ok(name, short)
    if everyone:
        return AREA.error(
            name, "[core] simple_auth_manager_all_admins: everyone is an administrator", fix
        )
    return AREA.warning(name, "SimpleAuthManager is for development", fix)


# ---------------------------------------------------------------- database and processes


def database_checks(sessions: SessionMaker = create_session) -> Iterator[DoctorCheck]:
    """Yield the checks of the metadata database, and of the processes that send heartbeats to it."""
    url = conf.get("database", "sql_alchemy_conn")
    yield scheme_check(url)
    file = url.removeprefix("sqlite:///")
    if url.startswith("sqlite:///") and not Path(file).exists():
        # The driver would create it.
        yield AREA.error("database", "its file does not exist", "run `airflow db migrate`.")
        return
    try:
        with sessions() as session:
            if not sa.inspect(session.connection()).has_table("dag_run"):
                yield AREA.error(
                    "database", "it has no tables of Airflow", "run `airflow db migrate`."
                )
                return
            yield AREA.ok("database", "answers, and has Airflow's tables")
            for name, job_type in _JOBS.items():
                yield _alive(session, name, job_type)
            yield triggerer_check(
                waiting=session.scalar(sa.select(sa.func.count()).select_from(Trigger)) or 0,
                alive=_is_alive(session, "TriggererJob"),
            )
    except sa.exc.SQLAlchemyError as error:
        # Its text may contain the URL.
        yield AREA.error(
            "database",
            f"it does not answer: {type(error).__name__}",
            "start it, or correct [database] sql_alchemy_conn.",
        )


def scheme_check(url: str) -> DoctorCheck:
    """Check the kind of the metadata database: concurrent backfills fail on SQLite."""
    kind = url.partition(":")[0].partition("+")[0]
    if kind == "sqlite":
        return AREA.error(
            "database kind",
            "expected PostgreSQL or MySQL, found SQLite: backfills fail on its lock",
            "set [database] sql_alchemy_conn to a PostgreSQL database, and run `airflow db migrate`.",
        )
    return AREA.ok("database kind", kind)


def _alive(session: Any, name: str, job_type: str) -> DoctorCheck:
    if _is_alive(session, job_type):
        return AREA.ok(name, "alive")
    return AREA.error(
        name, f"no {name} has sent a heartbeat lately", f"start it: `airflow {name}`."
    )


def _is_alive(session: Any, job_type: str) -> bool:
    job = most_recent_job(job_type, session=session)
    return job is not None and job.is_alive()


def triggerer_check(*, waiting: int, alive: bool) -> DoctorCheck:
    """Check that a triggerer is alive if tasks or assets wait for one."""
    if alive:
        return AREA.ok("triggerer", "alive")
    if waiting:
        return AREA.error(
            "triggerer",
            f"no triggerer has sent a heartbeat lately, and {waiting:,} triggers wait for one",
            "start it: `airflow triggerer`.",
        )
    return AREA.ok("triggerer", "none is alive, and nothing waits for one")


# ---------------------------------------------------------------- plugin and Spark


def plugin_checks(group: str = "airflow.plugins") -> Iterator[DoctorCheck]:
    """Yield the check of tallystick's plugin: Airflow finds it by its entry point, and it can be loaded."""
    install = "install tallystick as a distribution in the Python of each component of Airflow."
    found = next((one for one in entry_points(group=group) if one.name == "tallystick"), None)
    if found is None:
        yield AREA.error("plugin", "expected an entry point `tallystick`, found none", install)
        return
    try:
        plugin = found.load()
    except Exception as error:  # noqa: BLE001 - any error keeps Airflow from loading the plugin, too
        yield AREA.error("plugin", f"it cannot be loaded: {type(error).__name__}: {error}", install)
        return
    yield AREA.ok("plugin", f"{plugin.name}, at {found.value}")


def spark_checks(
    conn_id: str,
    pyspark: str | None,
    environ: Mapping[str, str],
    run: Run = run_spark,
) -> Iterator[DoctorCheck]:
    """Yield the checks of the Spark connection, as a stage task resolves it, and of the spark-submit that it starts."""
    name = f"connection {conn_id}"
    try:
        hook = ScrubbedSparkSubmit(
            conf={},
            # Nothing is started: a driver would get the connection of its pipeline here.
            kafka_name="default",
            kafka=KafkaSettings(bootstrap_servers=("localhost:9092",)),
            result_file=Path(os.devnull),
            conn_id=conn_id,
        )
    except TallystickError as error:
        yield AREA.of_error(name, error)
        return
    yield AREA.ok(name, f"master {hook._connection['master']}")
    binary = hook._connection["spark_binary"]
    yield spark_check(spark_program(environ, binary), pyspark, run)
