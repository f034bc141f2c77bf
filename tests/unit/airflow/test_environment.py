"""The environment of a driver, and the settings that its command line may contain."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tallystick.airflow.environment import check_conf, driver_conf, driver_environment
from tallystick.connections.kafka import KafkaSettings
from tallystick.errors import InvalidPipeline

KAFKA = KafkaSettings(bootstrap_servers=("broker:9092",))
CANARIES = {
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "postgresql://airflow:canary-1@db/airflow",
    "AIRFLOW__API_AUTH__JWT_SECRET": "canary-2",
    "AIRFLOW_CONN_OTHER": '{"password": "canary-3"}',
    "AIRFLOW_CONN_KAFKA_DEFAULT": '{"password": "canary-4"}',
    "FERNET_KEY": "canary-5",
    "TALLYSTICK_KAFKA_OTHER": '{"sasl_plain_password": "canary-6"}',
    "DATABASE_URL": "canary-7",
    "GITHUB_TOKEN": "canary-8",
    "GOOGLE_APPLICATION_CREDENTIALS": "canary-9",
    "HTTPS_PROXY": "http://user:canary-10@proxy",
    "PYTHONPATH": "canary-11",
    "LD_PRELOAD": "canary-12",
}
ALLOWED = {
    "PATH": "/usr/bin",
    "HOME": "/home/airflow",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "JAVA_HOME": "/opt/java",
    "SPARK_HOME": "/opt/spark",
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9000",
    "TALLYSTICK_SECRETS_DIR": "/run/secrets",
}


def environment(worker: dict[str, str], master: str = "local[2]") -> dict[str, str]:
    return driver_environment(
        worker,
        kafka_name="default",
        kafka=KAFKA,
        result_file=Path("/tmp/x/result.json"),
        master=master,
    )


def test_driver_gets_no_secret_but_its_own() -> None:
    seen = environment({**CANARIES, **ALLOWED})
    assert not [value for value in seen.values() if "canary" in value]


def test_driver_gets_what_it_needs() -> None:
    seen = environment(ALLOWED)
    assert ALLOWED.items() <= seen.items()
    assert seen["TALLYSTICK_KAFKA_DEFAULT"] == KAFKA.as_env_json()
    assert seen["TALLYSTICK_RESULT_FILE"] == "/tmp/x/result.json"


def test_freed_memory_stays_with_the_driver_unless_the_worker_sets_it_otherwise() -> None:
    """The names and units are those of glibc's mallopt(3), in bytes, and of mimalloc, in milliseconds."""
    assert {name: value for name, value in environment({}).items() if "MALLOC" in name} == {
        "MALLOC_MMAP_THRESHOLD_": "33554432",
        "MALLOC_TRIM_THRESHOLD_": "268435456",
        "MIMALLOC_PURGE_DELAY": "20000",
    }
    assert environment({"MIMALLOC_PURGE_DELAY": "10"})["MIMALLOC_PURGE_DELAY"] == "10"


def test_numpy_starts_no_threads_in_the_driver_unless_the_worker_sets_it_otherwise() -> None:
    assert environment({})["OPENBLAS_NUM_THREADS"] == "1"
    assert environment({"OPENBLAS_NUM_THREADS": "4"})["OPENBLAS_NUM_THREADS"] == "4"


def test_connection_of_the_environment_is_replaced_by_the_resolved_one() -> None:
    seen = environment({"TALLYSTICK_KAFKA_DEFAULT": "stale"})
    assert seen["TALLYSTICK_KAFKA_DEFAULT"] == KAFKA.as_env_json()


def test_local_master_uses_this_python_and_the_loopback_interface() -> None:
    seen = environment({})
    assert (seen["PYSPARK_PYTHON"], seen["SPARK_LOCAL_IP"]) == (sys.executable, "127.0.0.1")
    conf = driver_conf({"spark.driver.host": "10.0.0.7"}, master="local[2]", driver_python="p")
    assert conf["spark.driver.bindAddress"] == conf["spark.driver.host"] == "127.0.0.1"


def test_cluster_master_leaves_the_workers_python_to_the_cluster() -> None:
    seen = environment({}, master="spark://master:7077")
    assert "PYSPARK_PYTHON" not in seen
    assert "SPARK_LOCAL_IP" not in seen
    assert seen["PYSPARK_DRIVER_PYTHON"] == sys.executable
    conf = driver_conf({}, master="spark://master:7077", driver_python="p")
    assert "spark.driver.bindAddress" not in conf


def test_configured_python_is_used() -> None:
    assert environment({"PYSPARK_PYTHON": "/opt/python"})["PYSPARK_PYTHON"] == "/opt/python"


@pytest.mark.parametrize(
    ("workers", "drivers"),
    [
        ("/opt/python", "/opt/python"),
        ("python3.11", "python3.11"),
        ("./environment/bin/python", sys.executable),
        ("environment/bin/python", sys.executable),
    ],
)
def test_a_python_from_an_archive_is_used_by_executors_only(workers: str, drivers: str) -> None:
    seen = environment({"PYSPARK_PYTHON": workers}, master="yarn")
    assert (seen["PYSPARK_PYTHON"], seen["PYSPARK_DRIVER_PYTHON"]) == (workers, drivers)


def test_executors_python_of_a_dag_does_not_become_the_drivers() -> None:
    """Spark starts the driver with spark.pyspark.python, too, unless spark.pyspark.driver.python is set."""
    requested = {"spark.pyspark.python": "./environment/bin/python"}
    conf = driver_conf(requested, master="yarn", driver_python="/opt/python")
    assert conf["spark.pyspark.python"] == "./environment/bin/python"
    assert conf["spark.pyspark.driver.python"] == "/opt/python"


@pytest.mark.parametrize("master", ["local[2]", "spark://master:7077"])
def test_spark_ui_is_always_off(master: str) -> None:
    conf = driver_conf({"spark.ui.enabled": "true"}, master=master, driver_python="p")
    assert conf["spark.ui.enabled"] == "false"


@pytest.mark.parametrize(
    "key",
    [
        "spark.executor.memory",
        "spark.sql.shuffle.partitions",
        "spark.sql.catalogImplementation",
        "spark.shuffle.compress",
        "spark.dynamicAllocation.enabled",
        "spark.kubernetes.container.image",
        "spark.task.maxFailures",
        "spark.speculation",
        "spark.speculation.quantile",
        "spark.authenticate",
        "spark.archives",
        "spark.pyspark.python",
        "spark.driver.host",
        "spark.driver.port",
        "spark.driver.blockManager.port",
        "spark.blockManager.port",
        "spark.kubernetes.driver.pod.name",
        "spark.kubernetes.executor.podTemplateFile",
        "spark.kubernetes.authenticate.executor.serviceAccountName",
        "spark.executorEnv.TALLYSTICK_SECRETS_DIR",
        "spark.executorEnv.TALLYSTICK_S3_KMS_KEY_ID",
        "spark.executorEnv.AWS_ENDPOINT_URL_S3",
        "spark.executorEnv.AWS_SHARED_CREDENTIALS_FILE",
    ],
)
def test_sizes_and_counts_may_be_set(key: str) -> None:
    assert check_conf({key: "1"}) == {key: "1"}


@pytest.mark.parametrize(
    "key",
    [
        "spark.jars",
        "spark.jars.packages",
        "spark.driver.extraJavaOptions",
        "spark.executor.extraClassPath",
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.s3a.access.key",
        "spark.authenticate.secret",
        "spark.sql.hive.metastore.jdo.password",
        "spark.ssl.keyStorePassword",
        "spark.sql.extensions",
        "spark.sql.catalog.lake",
        "spark.sql.catalog.lake.type",
        "spark.sql.queryExecutionListeners",
        "spark.sql.streaming.streamingQueryListeners",
        "spark.sql.sources.commitProtocolClass",
        "spark.sql.sources.default",
        "spark.sql.parquet.output.committer.class",
        "spark.sql.cache.serializer",
        "spark.sql.hive.metastore.jars",
        "spark.sql.function.protobufExtensions",
        "spark.shuffle.manager",
        "spark.shuffle.sort.io.plugin.class",
        "spark.shuffle.push.server.mergedShuffleFileManagerImpl",
        "spark.storage.replication.policy",
        "spark.ui.enabled",
        "spark.submit.deployMode",
        "spark.master",
        "spark.executorEnv.AWS_SECRET_ACCESS_KEY",
        "spark.executorEnv.TALLYSTICK_S3_SECRET_KEY",
        "spark.executorEnv.AWS_ACCESS_KEY_ID",
        "spark.executorEnv.AWS_SESSION_TOKEN",
        "spark.executorEnv.TALLYSTICK_KAFKA_DEFAULT",
        "spark.executorEnv.PYTHONPATH",
        "spark.executorEnv.LD_PRELOAD",
        "spark.pyspark.driver.python",
        "spark.kubernetes.authenticate.oauthToken",
        "spark.kubernetes.executor.secretKeyRef.",
        # Spark mounts it with mode 0644, which a secrets folder may not have; a pod template can set another mode.
        "spark.kubernetes.executor.secrets.kafka",
        "spark.kubernetes.driver.secretKeyRef.AWS_ACCESS_KEY_ID",
        "spark.kubernetes.driver.podTemplateFile",
        "executor.memory",
        "spark.executor.memory\n--jars=x",
    ],
)
def test_settings_that_load_code_or_hold_secrets_are_refused(key: str) -> None:
    with pytest.raises(InvalidPipeline, match="not on the allow-list"):
        check_conf({key: "1"})


def test_value_that_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidPipeline, match=r"cores': expected a string, found 2\..*'2'"):
        check_conf({"spark.executor.cores": 2})  # type: ignore[dict-item]


def test_a_reference_to_a_kubernetes_secret_may_be_set() -> None:
    conf = {"spark.kubernetes.executor.secretKeyRef.AWS_SECRET_ACCESS_KEY": "s3:secret-access-key"}
    assert check_conf(conf) == conf


@pytest.mark.parametrize(
    "value", ["canary/w+J=", "canary", "Canary:key", "canary:", ":canary", "ca nary:key"]
)
def test_a_value_that_is_no_secret_reference_is_refused_and_not_shown(value: str) -> None:
    conf = {"spark.kubernetes.executor.secretKeyRef.AWS_SECRET_ACCESS_KEY": value}
    with pytest.raises(
        InvalidPipeline, match="is not a reference to a Kubernetes secret"
    ) as refused:
        check_conf(conf)
    assert value not in str(refused.value)


@pytest.mark.parametrize("key", ["spark.executorEnv.AWS_ENDPOINT_URL_S3", "spark.archives"])
def test_a_url_with_a_password_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(
        InvalidPipeline, match="contains a URL with a user or a password"
    ) as refused:
        check_conf({key: "https://me:canary@host/e.tgz#e"})
    assert "canary" not in str(refused.value)
