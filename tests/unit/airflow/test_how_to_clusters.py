"""The pages on clusters name only what exists: settings, variables, secrets, accounts, paths, commands."""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import stat
import subprocess
import tomllib
import zipfile
from datetime import UTC, datetime
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from support import compose_code
from support.compose_files import ROOT, Files
from tallystick.airflow import replay_dag
from tallystick.airflow.environment import check_conf, driver_environment
from tallystick.airflow.spark_submit import ScrubbedSparkSubmit
from tallystick.connections.kafka import KafkaSettings
from tallystick.connections.resolve import _check_private

PAGES = ("run-on-a-spark-cluster", "run-on-kubernetes", "run-on-yarn")
KAFKA = KafkaSettings(bootstrap_servers=("broker:9092",))
README = (ROOT / "README.md").read_text(encoding="utf-8")


def page(name: str) -> str:
    return (ROOT / "docs" / "how-to" / f"{name}.md").read_text(encoding="utf-8")


def blocks(name: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page(name), re.DOTALL)


def commands(name: str) -> list[list[str]]:
    lines = re.findall(r"^    (\S.*)$", re.sub(r"```.*?```", "", page(name), flags=re.DOTALL), re.M)
    return [shlex.split(line) for line in lines]


@pytest.fixture(scope="module")
def clicks(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the pipeline of the README, which the pages' DAGs use."""
    [text] = re.findall(r"```python\n# dags/clicks\.py\n(.*?)```", README, re.DOTALL)
    file = tmp_path_factory.mktemp("project") / "clicks.py"
    file.write_text(text, encoding="utf-8")
    return runpy.run_path(str(file))["pipeline"]


def settings_of(name: str, pipeline: Any = None) -> dict[str, str]:
    """Return the Spark settings of the page's DAG; with a pipeline, build the DAG, too."""
    [text] = blocks(name, "python")
    built: list[Any] = []

    def build(*words: Any, **named: Any) -> None:
        built.append(replay_dag(*words, job_root=ROOT, **named) if pipeline else None)

    found = {"pipeline": pipeline, "replay_dag": build, "datetime": datetime, "UTC": UTC}
    exec(compile(text, name, "exec"), found)
    assert len(built) == 1
    executors: dict[str, str] = found["EXECUTORS"]
    return executors


@cache
def texts_of_spark() -> bytes:
    """Return every text in those classes of Spark's JARs that read settings and environments."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    found = []
    for kind in ("core", "kubernetes", "yarn", "network-common", "common-utils"):
        for jar in (Path(spec.origin).parent / "jars").glob(f"spark-{kind}_*.jar"):
            with zipfile.ZipFile(jar) as archive:
                wanted = re.compile(
                    r"/(config|k8s|yarn|network|internal|submit)/|SparkConf|Security|Launcher"
                )
                found += [archive.read(n) for n in archive.namelist() if wanted.search(n)]
    return b"\n".join(found)


def exists_in_spark(word: str) -> bool:
    # Spark builds this setting's name when it starts: its parts are in the JARs.
    last = ".serviceAccountName"
    parts = [word.removesuffix(last), last] if word.endswith(last) else [word]
    return all(part.encode() in texts_of_spark() for part in parts)


@pytest.mark.parametrize("name", PAGES)
def test_the_dag_of_a_page_is_accepted(name: str, clicks: Any) -> None:
    conf = settings_of(name, clicks)
    assert check_conf(conf) == conf


@pytest.mark.parametrize("name", PAGES)
def test_each_setting_of_a_page_exists_in_spark(name: str) -> None:
    settings = {*settings_of(name), *re.findall(r"`(spark\.[A-Za-z0-9.]+)", page(name))}
    for block in blocks(name, "properties"):
        settings |= set(re.findall(r"^(spark\.\S+) ", block, re.MULTILINE))
    # Spark's part of a setting ends before a name of ours: spark.executorEnv.<variable>.
    words = {re.sub(r"(executorEnv\.|secretKeyRef\.).+", r"\1", key) for key in settings}
    assert [word for word in sorted(words) if not exists_in_spark(word)] == []


@pytest.mark.parametrize("name", PAGES)
def test_the_connection_of_a_page_is_accepted(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    [value] = re.findall(
        r"^(?:    AIRFLOW_CONN_SPARK_DEFAULT=|  value: )'(\{.*\})'$", page(name), re.MULTILINE
    )
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", value)
    hook = ScrubbedSparkSubmit(
        conf={},
        kafka_name="default",
        kafka=KAFKA,
        result_file=tmp_path / "r",
        conn_id="spark_default",
    )
    assert hook._connection["master"] == json.loads(value)["host"]
    assert hook._connection["deploy_mode"] == "client"


@pytest.mark.parametrize("name", PAGES)
def test_each_variable_of_a_page_is_read(name: str) -> None:
    named = set(re.findall(r"\b(?:TALLYSTICK|SPARK|PYSPARK)_[A-Z0-9_]+", page(name)))
    code = "\n".join(p.read_text() for p in (ROOT / "plugins").rglob("*.py"))
    known = {*compose_code._spark_variables(), "SPARK_CONF_DIR"}
    # Variables of the page alone: it sets them on the pod, and its settings read them there.
    known |= set(re.findall(r"\$\{env:(\w+)\}", page(name)))
    unknown = {v for v in named - known if v not in code}
    assert unknown == set()


def test_the_driver_gets_the_variables_that_a_page_sets_on_its_pod() -> None:
    [text] = [b for b in blocks("run-on-kubernetes", "yaml") if b.startswith("# environment of")]
    environment = {variable["name"]: "x" for variable in yaml.safe_load(text)}
    connection = environment.pop("AIRFLOW_CONN_SPARK_DEFAULT")
    assert connection
    seen = driver_environment(
        environment,
        kafka_name="default",
        kafka=KAFKA,
        result_file=Path("r"),
        master="k8s://https://host",
    )
    assert environment.items() <= seen.items()
    referred = re.findall(r"\$\{env:(\w+)\}", " ".join(settings_of("run-on-kubernetes").values()))
    assert referred
    assert set(referred) <= environment.keys()


def test_secrets_and_accounts_of_the_kubernetes_page_fit_together() -> None:
    accounts, template = (
        list(yaml.safe_load_all(text))
        for text in blocks("run-on-kubernetes", "yaml")
        if "apiVersion" in text
    )
    conf = settings_of("run-on-kubernetes")
    named = {(account["kind"], account["metadata"]["name"]) for account in accounts}
    assert (
        "ServiceAccount",
        conf["spark.kubernetes.authenticate.executor.serviceAccountName"],
    ) in named
    [binding] = [account for account in accounts if account["kind"] == "RoleBinding"]
    assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) in named
    assert {account["metadata"]["namespace"] for account in accounts} == {"airflow"}
    created: dict[str, set[str]] = {}
    for words in commands("run-on-kubernetes"):
        if words[0] == "kubectl":
            assert words[1:6] == ["--namespace", "airflow", "create", "secret", "generic"]
            created[words[6]] = {w.split("=")[1] for w in words[7:]}
    for key, value in conf.items():
        if ".secretKeyRef." in key:
            secret, _, entry = value.partition(":")
            assert entry in created[secret], key
    [pod] = template
    [volume] = pod["spec"]["volumes"]
    assert created[volume["secret"]["secretName"]] == {"default.json"}
    [container] = pod["spec"]["containers"]
    assert container["volumeMounts"][0]["name"] == volume["name"]
    assert container["volumeMounts"][0]["mountPath"] == container["env"][0]["value"]


def test_a_secret_that_is_mounted_as_on_the_page_is_accepted() -> None:
    """For a pod with fsGroup the kubelet adds 0440, and root remains the owner of the file (its SetVolumeOwnership)."""
    [pod] = [yaml.safe_load(b) for b in blocks("run-on-kubernetes", "yaml") if "kind: Pod" in b]
    assert pod["spec"]["securityContext"]["fsGroup"]
    mode = stat.S_IFREG | pod["spec"]["volumes"][0]["secret"]["defaultMode"] | 0o440
    _check_private(Path("default.json"), os.stat_result((mode, 0, 0, 1, 0, 50000, 9, 0, 0, 0)))


@pytest.mark.parametrize("name", PAGES)
def test_each_command_of_a_page_exists(name: str) -> None:
    files = Files.read()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for words in commands(name):
        text = " ".join(words)
        if words[0].endswith("/python"):
            assert compose_code._wrong(["python", *words[1:]], files) is None, text
        if words[0] == "make":
            assert compose_code._wrong(words, files) is None, text
        for wheel in (word for word in words if word.endswith(".whl")):
            assert f"--wheel --out-dir {Path(wheel).parent} ." in (ROOT / "Makefile").read_text()
        if "--extra" in words:
            assert words[words.index("--extra") + 1] in project["optional-dependencies"], text
        for version in re.findall(r"tallystick[:-](\d[\d.]*\d)|environment-(\d[\d.]*\d)", text):
            assert "".join(version) == project["version"], text
    [spark] = [d for d in project["optional-dependencies"]["spark"] if d.startswith("pyspark==")]
    for version in re.findall(r"spark-(\d[\d.]*\d)-jars", page(name)):
        assert spark == f"pyspark=={version}"


def test_links_between_the_pages_resolve() -> None:
    for name in PAGES:
        for target in re.findall(r"\]\(([\w./-]+\.md)", page(name)):
            assert (ROOT / "docs" / "how-to" / target).is_file(), target
        assert f"docs/how-to/{name}.md" in README


POD_ENVIRONMENT = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.7:7079",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1024m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.8",
    "SPARK_EXECUTOR_POD_NAME": "exec-3",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_CONF_DIR": "/opt/spark/conf",
}


def test_the_entrypoint_starts_an_executor_for_kubernetes(tmp_path: Path) -> None:
    for name, body in {
        "java": 'printf "%s\\n" "$SPARK_HOME" "$@"',
        "find_spark_home.py": "echo /spark",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    options = {f"SPARK_JAVA_OPT_{i}": f"-Doption={i} a=b" for i in range(12)}
    path = os.pathsep.join([str(tmp_path), os.defpath])
    command = [str(ROOT / "entrypoint.sh"), "executor"]
    environment = {"PATH": path, **options, **POD_ENVIRONMENT}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    home, *words = done.stdout.splitlines()
    assert home == "/spark"
    assert words[:12] == list(options.values())  # in the order of their numbers
    assert words[12:16] == ["-Xms1024m", "-Xmx1024m", "-cp", "/opt/spark/conf:/spark/jars/*"]
    assert dict(zip(words[17::2], words[18::2], strict=True)) == {
        "--driver-url": POD_ENVIRONMENT["SPARK_DRIVER_URL"],
        "--executor-id": "3",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.8",
        "--resourceProfileId": "0",
        "--podName": "exec-3",
    }
    # This Spark has the class, the variables and the options.
    for word in (words[16].replace(".", "/"), *POD_ENVIRONMENT, "SPARK_JAVA_OPT_", *words[17::2]):
        assert word.encode() in texts_of_spark(), word


def test_the_entrypoint_passes_every_other_command_to_airflow(tmp_path: Path) -> None:
    script = (ROOT / "entrypoint.sh").read_text()
    assert script.count("exec /entrypoint ") == 1
    airflow = tmp_path / "airflow-entrypoint"
    airflow.write_text('#!/bin/sh\necho "$#"\nprintf "%s\\n" "$@"\n')
    airflow.chmod(0o755)
    ours = tmp_path / "entrypoint.sh"
    ours.write_text(script.replace("exec /entrypoint ", f"exec {airflow} "))
    ours.chmod(0o755)
    for words in (["bash", "-c", "echo a  b"], ["airflow", "scheduler"], []):
        done = subprocess.run([ours, *words], capture_output=True, text=True, check=True)
        assert done.stdout.rstrip("\n").splitlines() == [str(len(words)), *words]
