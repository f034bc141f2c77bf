"""The start of the embedded Spark cluster: running parts are left alone, dead parts are started again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tallystick.errors import SettingsError
from tallystick_devstack import spark
from tallystick_devstack.spark import SparkCluster


class FakeChild:
    """A master or worker that does not really run; a worker registers at once if `registers` is set."""

    registers = True

    def __init__(self, words: Any, *, name: str, log_path: Path, env: dict[str, str]) -> None:
        self.name, self.log_path, self.env, self.words = name, log_path, env, list(map(str, words))
        self.alive = True
        self.lines = ["Successfully registered with master"] if self.registers else ["retrying"]

    def tail(self, lines: int = 20) -> str:
        return "\n".join(self.lines[-lines:])


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SparkCluster:
    monkeypatch.setattr(spark, "ChildProcess", FakeChild)
    monkeypatch.setattr(spark, "port_accepts", lambda _: True)
    monkeypatch.setattr(spark, "_START_S", 0.2)
    started = SparkCluster(tmp_path, env={"AWS_REGION": "r", "SPARK_LOCAL_IP": "other"})
    started.start()
    return started


def test_a_dead_worker_is_restarted_next_to_one_with_a_long_log(
    cluster: SparkCluster,
) -> None:
    died: Any = cluster.workers[1]
    worked: Any = cluster.workers[2]
    master = cluster.master
    died.alive = False
    worked.lines += ["Executor finished"] * 1_000
    cluster.start()
    assert cluster.alive
    assert (cluster.master, cluster.workers[2]) == (master, worked)
    assert cluster.workers[1] is not died


def test_a_worker_that_does_not_register_is_an_error_with_its_last_lines(
    cluster: SparkCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeChild, "registers", False)
    died: Any = cluster.workers[1]
    died.alive = False
    with pytest.raises(SettingsError, match=r"the registration of worker 1 .*\nretrying"):
        cluster.start()


def test_every_process_listens_on_the_loopback_interface_and_reads_the_secret_from_a_file(
    cluster: SparkCluster,
) -> None:
    processes: list[Any] = list(cluster.processes)
    assert [process.env["SPARK_LOCAL_IP"] for process in processes] == [
        "127.0.0.1",
        "127.0.0.2",
        "127.0.0.3",
    ]
    conf = Path(cluster.environment()["SPARK_CONF_DIR"], "spark-defaults.conf")
    secret = dict(line.split(maxsplit=1) for line in conf.read_text().splitlines())
    assert secret["spark.authenticate"] == "true"
    assert conf.stat().st_mode & 0o777 == 0o600
    for process in processes:
        assert process.words[process.words.index("--host") + 1] == process.env["SPARK_LOCAL_IP"]
        assert secret["spark.authenticate.secret"] not in f"{process.words} {process.env}"
        assert process.env["AWS_REGION"] == "r"
