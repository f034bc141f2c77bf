"""The spark-submit that a stage starts: its command, its environment, its end. Small scripts replace the program."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowNotFoundException

from tallystick.airflow.spark_submit import ScrubbedSparkSubmit
from tallystick.connections.kafka import KafkaSettings
from tallystick.errors import SettingsError

KAFKA = KafkaSettings(
    bootstrap_servers=("broker:9092",),
    security_protocol="SASL_SSL",
    sasl_mechanism="PLAIN",
    sasl_plain_username="reader",
    sasl_plain_password="canary-password",
)
DEADLINE_S = 120.0  # a process that imports Airflow took 27 s on a loaded machine


def connection(monkeypatch: pytest.MonkeyPatch, **words: Any) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", **words}))


def hook(tmp_path: Path, **options: Any) -> ScrubbedSparkSubmit:
    return ScrubbedSparkSubmit(
        kafka_name="default",
        kafka=KAFKA,
        result_file=tmp_path / "result.json",
        **{
            "conf": {"spark.executor.memory": "1g"},
            "conn_id": "spark_default",
            "application_args": ["--attempt", "a"],
            "name": "tallystick-small",
            **options,
        },
    )


def program(tmp_path: Path, body: str) -> str:
    path = tmp_path / "spark-submit"
    path.write_text(f"#!{sys.executable}\n{body}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def until(check: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if found := check():
            return found
        time.sleep(0.02)
    raise AssertionError("not within the deadline")


def running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


@pytest.mark.parametrize(
    "master",
    [
        "local",
        "local[2]",
        "local[*,3]",
        "spark://host:7077",
        "k8s://https://kubernetes.default.svc",
        "yarn",
    ],
)
def test_known_masters_are_accepted(
    master: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    connection(monkeypatch, host=master)
    assert hook(tmp_path)._connection["master"] == master


@pytest.mark.parametrize(
    "master", ["local-cluster[1,1,1]", "mesos://host:5050", "http://host", "local[2] --jars=x", ""]
)
def test_unknown_masters_are_refused(
    master: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    connection(monkeypatch, host=master)
    with pytest.raises(SettingsError, match="is not supported"):
        hook(tmp_path)


def test_unknown_connection_is_an_error_and_not_yarn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def missing(_: str) -> None:
        raise AirflowNotFoundException("not there")

    monkeypatch.setattr(ScrubbedSparkSubmit, "get_connection", staticmethod(missing))
    with pytest.raises(SettingsError, match="'nowhere' is not defined"):
        hook(tmp_path, conn_id="nowhere")


def test_connection_that_vanishes_between_two_reads_is_retried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    connection(monkeypatch, host="local[2]")
    reads: list[str] = []
    real = ScrubbedSparkSubmit.get_connection

    def flaky(name: str) -> Any:
        reads.append(name)
        if len(reads) > 1:
            raise AirflowException("the server did not answer")
        return real(name)

    monkeypatch.setattr(ScrubbedSparkSubmit, "get_connection", staticmethod(flaky))
    with pytest.raises(AirflowException, match="could not be read"):
        hook(tmp_path)


def test_cluster_mode_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    connection(monkeypatch, host="spark://host:7077", extra={"deploy-mode": "cluster"})
    with pytest.raises(SettingsError, match="'cluster'"):
        hook(tmp_path)


def test_own_spark_submit_is_used_if_none_is_configured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    connection(monkeypatch, host="local[2]")
    assert hook(tmp_path)._connection["spark_binary"] == str(
        Path(sys.executable).with_name("spark-submit")
    )
    connection(monkeypatch, host="local[2]", extra={"spark-binary": "spark3-submit"})
    assert hook(tmp_path)._connection["spark_binary"] == "spark3-submit"
    assert hook(tmp_path, spark_binary="/opt/x")._connection["spark_binary"] == "/opt/x"


def test_argv_and_log_hold_no_secret(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    connection(monkeypatch, host="local[2]", extra={"deploy-mode": "client"})
    monkeypatch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "canary-jwt")
    body = (
        "import json, os, sys\n"
        "with open(sys.argv[0] + '.seen', 'w') as seen:\n    json.dump([sys.argv[1:], dict(os.environ)], seen)\n"
    )
    submit_hook = hook(tmp_path, spark_binary=program(tmp_path, body))
    submit_hook.submit("job.py")
    logged = capfd.readouterr()
    argv, environ = json.loads((tmp_path / "spark-submit.seen").read_text())
    assert "canary" not in " ".join(argv)
    assert "Spark-Submit cmd" in logged.out
    assert "canary" not in logged.out + logged.err
    assert argv[-3:] == ["job.py", "--attempt", "a"]
    assert argv[:2] == ["--master", "local[2]"]
    assert "spark.ui.enabled=false" in argv
    assert "canary-password" in environ["TALLYSTICK_KAFKA_DEFAULT"]
    assert "AIRFLOW__API_AUTH__JWT_SECRET" not in environ


@pytest.mark.parametrize(
    ("conf", "namespace"),
    [({}, "of-the-connection"), ({"spark.kubernetes.namespace": "of-the-dag"}, "of-the-dag")],
)
def test_on_kubernetes_the_program_runs_without_airflows_kubernetes_provider(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, conf: dict[str, str], namespace: str
) -> None:
    """Airflow's hook needs it to watch a driver's pod: here the driver is the program, and its exit code counts."""
    extra = {"deploy-mode": "client", "namespace": "of-the-connection"}
    connection(monkeypatch, host="k8s://https://kubernetes.default.svc", extra=extra)
    body = "import json, sys\nwith open(sys.argv[0] + '.seen', 'w') as seen:\n    json.dump(sys.argv, seen)\n"
    hook(tmp_path, conf=conf, spark_binary=program(tmp_path, body)).submit("job.py")
    argv = json.loads((tmp_path / "spark-submit.seen").read_text())
    assert argv[1:3] == ["--master", "k8s://https://kubernetes.default.svc"]
    namespaces = [word for word in argv if word.startswith("spark.kubernetes.namespace=")]
    assert namespaces == [f"spark.kubernetes.namespace={namespace}"]
    with pytest.raises(AirflowException, match="ended with exit code 3"):
        hook(tmp_path, spark_binary=program(tmp_path, "raise SystemExit(3)\n")).submit("job.py")


def test_failure_shows_the_last_lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    connection(monkeypatch, host="local[2]")
    submit_hook = hook(
        tmp_path, spark_binary=program(tmp_path, "import sys\nprint('no java here')\nsys.exit(3)\n")
    )
    with pytest.raises(AirflowException, match="no java here"):
        submit_hook.submit("job.py")


def test_missing_program_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    connection(monkeypatch, host="local[2]")
    with pytest.raises(SettingsError, match=r"cannot be started.*spark_binary"):
        hook(tmp_path, spark_binary=str(tmp_path / "nothing")).submit("job.py")


FAMILY = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
with open(sys.argv[0] + ".part", "w") as file:
    file.write(f"{os.getpid()} {child.pid}")
os.rename(sys.argv[0] + ".part", sys.argv[0] + ".pids")
time.sleep(600)
"""


def family(tmp_path: Path) -> list[int]:
    pids = tmp_path / "spark-submit.pids"
    until(pids.exists)
    return [int(pid) for pid in pids.read_text().split()]


def test_kill_that_comes_before_the_program_runs_is_not_lost(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    connection(monkeypatch, host="local[2]")
    submit_hook = hook(tmp_path, spark_binary=program(tmp_path, FAMILY))
    submit_hook.on_kill()
    with pytest.raises(AirflowException):
        submit_hook.submit("job.py")


def test_kill_reaches_what_the_program_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    connection(monkeypatch, host="local[2]")
    submit_hook = hook(tmp_path, spark_binary=program(tmp_path, FAMILY))
    failed: list[BaseException] = []

    def work() -> None:
        try:
            submit_hook.submit("job.py")
        except AirflowException as error:
            failed.append(error)

    task = threading.Thread(target=work)
    task.start()
    both = family(tmp_path)
    submit_hook.on_kill()
    task.join(DEADLINE_S)
    assert failed
    until(lambda: not any(running(pid) for pid in both))


# The kernel's signal reaches one process only. Its child ends like a driver whose JVM is gone: its
# connection breaks. So no other process may hold that connection open.
CONNECTED = FAMILY.replace("import time; time.sleep(600)", "import sys; sys.stdin.read()").replace(
    '"])', '"], stdin=subprocess.PIPE)'
)


PARENT = """
import sys
from pathlib import Path
from tallystick.airflow.spark_submit import ScrubbedSparkSubmit
from tallystick.runtime.parent import die_with_parent
from tallystick.connections.kafka import KafkaSettings
die_with_parent()
ScrubbedSparkSubmit(conf={}, kafka_name="default", kafka=KafkaSettings(bootstrap_servers=("b:1",)),
    result_file=Path("r"), conn_id="spark_default", spark_binary=sys.argv[1]).submit("job.py")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a parent-death signal")
def test_program_dies_with_a_task_that_is_killed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    connection(monkeypatch, host="local[2]")
    task = subprocess.Popen(
        [sys.executable, "-c", PARENT, program(tmp_path, CONNECTED)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=dict(os.environ),
    )
    try:
        both = family(tmp_path)
        task.send_signal(signal.SIGKILL)
        task.wait(DEADLINE_S)
        until(lambda: not any(running(pid) for pid in both))
    finally:
        task.kill()
        task.wait()
        for pid in family(tmp_path):
            if running(pid):
                os.kill(pid, signal.SIGKILL)
