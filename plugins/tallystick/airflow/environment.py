"""Builds the environment and the configuration of a Spark driver from allow-lists.

A worker's environment contains Airflow's own secrets (the database URL, the key that signs tokens), and a driver runs
users' code. So the driver gets only the allowed variables, and of the Kafka secrets only the one that it needs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from tallystick.connections.http import HttpSettings
from tallystick.connections.kafka import KafkaSettings
from tallystick.connections.postgres import PostgresSettings
from tallystick.connections.registry import RegistrySettings
from tallystick.connections.resolve import env_name, env_prefix
from tallystick.connections.smtp import SmtpSettings
from tallystick.errors import InvalidPipeline, without_user_info
from tallystick.runtime.memory import MEMORY_ENVIRONMENT

RESULT_FILE_ENV = "TALLYSTICK_RESULT_FILE"
LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")

_NAMES = frozenset({"PATH", "HOME", "LANG", "TZ", "JAVA_HOME"})
# Paths to the configuration of YARN and Kubernetes and to temporary files, and the locale and user. No secrets.
_PLACES = frozenset({"HADOOP_CONF_DIR", "YARN_CONF_DIR", "KUBECONFIG", "TMPDIR", "LC_ALL", "USER"})
_PREFIXES = ("PYSPARK_", "SPARK_", "AWS_", "TALLYSTICK_")

_CONF_ALLOWED = re.compile(
    r"spark\.("
    # The addresses and ports at which executors reach the driver, also through a firewall.
    r"driver\.(host|bindAddress|port)|(driver\.)?blockManager\.port|port\.maxRetries"
    # The executors' Python and packages, if they are in an archive.
    r"|archives|pyspark\.python|"
    r"(driver|executor)\.(memory|memoryOverhead|memoryOverheadFactor|cores|maxResultSize)"
    r"|executor\.(instances|pyspark\.memory)"
    r"|(cores\.max|default\.parallelism|local\.dir|log\.level|eventLog\.(enabled|dir)|task\.(cpus|maxFailures)|speculation)"
    r"|python\.worker\.(memory|reuse)"
    r"|(dynamicAllocation|sql|memory|network|rpc|shuffle|excludeOnFailure|decommission|storage|speculation)\.[A-Za-z0-9.]+"
    r"|kubernetes\.(namespace|container\.image|container\.image\.pullPolicy|file\.upload\.path)"
    r"|kubernetes\.(driver|executor)\.(request|limit)\.cores"
    r"|kubernetes\.driver\.pod\.name|kubernetes\.executor\.podTemplateFile"
    r"|kubernetes\.authenticate\.((driver|executor)\.)?serviceAccountName"
    r"|kubernetes\.(driver|executor)\.(label|annotation)\.[A-Za-z0-9./_-]+"
    r"|yarn\.(queue|tags|maxAppAttempts|dist\.archives)"
    r"|(authenticate|io\.encryption\.enabled)"
    r")"
)
# Spark instantiates the class that these options name, or loads code from their value (Spark 4.2, SQLConf and config/).
_LOADS_CODE = re.compile(
    r"spark\.sql\.(catalog\..+|extensions|sources\.default|cache\.serializer|hive\.metastore\..+)"
    r"|spark\.shuffle\.(manager|.*plugin.*)"
    r"|spark\.storage\.replication\.(policy|topologyMapper)"
    r"|.*(Listeners|Extensions|[Cc]lass|Classes|Impl)"
)
_SECRET = re.compile(r"secret|password|token|access\.?key|credential", re.IGNORECASE)
# A variable of a pod that is set from a Kubernetes secret: the value names the secret and its key.
_SECRET_REFERENCE = re.compile(r"spark\.kubernetes\.executor\.secretKeyRef\.[A-Za-z_][A-Za-z0-9_]*")
_SECRET_NAME_AND_KEY = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?:[A-Za-z0-9._-]+")
# Addresses, names and paths that boto3 and tallystick read on executors. No secrets: the values are visible in argv.
_EXECUTOR_ENVIRONMENT = re.compile(
    r"spark\.executorEnv\.(TALLYSTICK_(SECRETS_DIR|S3_(BUCKET_OWNER|ENCRYPTION|KMS_KEY_ID|CHECKSUMS))|NUMBA_CACHE_DIR"
    r"|AWS_(ENDPOINT_URL(_S3)?|REGION|DEFAULT_REGION|PROFILE|CONFIG_FILE|SHARED_CREDENTIALS_FILE|CA_BUNDLE))"
)
# Only outputs use those after the second, and only planning reads a schema registry: a plan contains the schemas. So the
# Spark driver gets none of them.
_CONNECTIONS = tuple(
    map(env_prefix, (KafkaSettings, RegistrySettings, PostgresSettings, HttpSettings, SmtpSettings))
)


def driver_environment(
    worker: Mapping[str, str],
    *,
    kafka_name: str,
    kafka: KafkaSettings | None,
    result_file: Path,
    master: str,
) -> dict[str, str]:
    """Return the complete environment of spark-submit: the allowed variables of `worker`, and those of this job.

    Of TALLYSTICK_KAFKA_* it contains only the pipeline's own connection, none if `kafka` is None, and no connection of
    outputs or registries. If
    the master is local, Spark binds the loopback interface, and by default its Python workers run on this process's
    Python.
    """
    names = _NAMES | _PLACES
    kept = {
        name: value
        for name, value in worker.items()
        if (name in names or name.startswith(_PREFIXES)) and not name.startswith(_CONNECTIONS)
    }
    if kafka is not None:
        kept[env_name(KafkaSettings, kafka_name)] = kafka.as_env_json()
    kept[RESULT_FILE_ENV] = str(result_file)
    # The driver's output appears in the task's log when it is written, not when the driver ends.
    kept["PYTHONUNBUFFERED"] = "1"
    kept |= {name: worker.get(name, value) for name, value in MEMORY_ENVIRONMENT.items()}
    # The driver runs on this task's machine (client mode), so on its Python. The Python workers do only if they run here.
    workers = kept.get("PYSPARK_PYTHON", sys.executable)
    # A relative path such as ./environment/bin/python is in an archive that is unpacked for executors, and not here.
    unpacked = "/" in workers and not workers.startswith("/")
    kept.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable if unpacked else workers)
    if is_local(master):
        kept.setdefault("PYSPARK_PYTHON", sys.executable)
        kept.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return kept


def driver_conf(requested: Mapping[str, str], *, master: str, driver_python: str) -> dict[str, str]:
    """Return the options for --conf: those of the DAG (`requested`), overridden by those that tallystick sets.

    spark.ui.enabled=false: Spark's UI listens on every interface and has no login.
    spark.pyspark.driver.python: if only spark.pyspark.python is set, Spark also starts the driver with it.
    """
    ours = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}",
        "spark.pyspark.driver.python": driver_python,
    }
    if is_local(master):
        ours |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return {**requested, **ours}


def check_conf(conf: Mapping[str, str]) -> dict[str, str]:
    """Return the Spark options of a DAG. Raises InvalidPipeline that names an option if it is not on the allow-list.

    The options are in argv, which every user of the machine can read, so an option is refused if its name looks like a
    secret. Options that are known to name a class are refused, too. This catches mistakes. It is no protection against
    authors of DAGs, who can run any code.
    """
    for key, value in conf.items():
        reference = _SECRET_REFERENCE.fullmatch(key) is not None
        if not reference and not _may_be_set(key):
            raise InvalidPipeline(
                f"spark_conf has {key!r}, which is not on the allow-list.",
                hint="set only sizes, counts, timeouts, most of spark.sql.* and spark.dynamicAllocation.*; put "
                "libraries and classes into the image, credentials into the environment.",
            )
        if not isinstance(value, str):
            raise InvalidPipeline(
                f"spark_conf {key!r}: expected a string, found {value!r}.",
                hint=f"write it as Spark does: '{str(value).lower()}'.",
            )
        if without_user_info(value) != value:
            raise InvalidPipeline(
                f"spark_conf {key!r} contains a URL with a user or a password.",
                hint="remove them: every user of the machine can read the arguments of spark-submit.",
            )
        if reference and not _SECRET_NAME_AND_KEY.fullmatch(value):
            # The value may be the secret itself, so the message does not repeat it.
            raise InvalidPipeline(
                f"spark_conf {key!r} is not a reference to a Kubernetes secret.",
                hint="write the secret's name and the key in it as name:key; the value stays in the secret.",
            )
    return dict(conf)


def _may_be_set(key: str) -> bool:
    if _EXECUTOR_ENVIRONMENT.fullmatch(key):
        return True
    allowed = _CONF_ALLOWED.fullmatch(key) and not _LOADS_CODE.fullmatch(key)
    return bool(allowed) and not _SECRET.search(key)


def is_local(master: str) -> bool:
    """Return True if executors are threads of the driver."""
    return master == "local" or master.startswith("local[")


def own_spark_submit() -> str | None:
    """Return the spark-submit in the folder of this Python, which starts the same pyspark; None if there is none."""
    installed = Path(sys.executable).with_name("spark-submit")
    return str(installed) if installed.exists() else None
