"""A real ResourceManager and NodeManager of Hadoop on the loopback interface, from Maven Central and pyspark's JARs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import escape

import httpx

from tallystick_devstack.ivy import cache_folder, fetch_once, retrieve
from tallystick_devstack.java import find_java
from tallystick_devstack.process import ChildProcess, base_environment, free_port, wait_until

HADOOP_VERSION, BOUNCY_CASTLE_VERSION = "3.5.0", "1.82"
_SERVER = "org.apache.hadoop.yarn.server."
_MANAGER = f"{_SERVER}resourcemanager.ResourceManager"
_FIFO = f"{_SERVER}resourcemanager.scheduler.fifo.FifoScheduler"
_START_S = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class YarnServers:
    """The addresses of a cluster that runs, and its settings for clients (HADOOP_CONF_DIR)."""

    url: str
    standby_url: str
    conf: Path

    def submission(self, folder: Path) -> dict[str, str]:
        """Return the Spark options that copy nothing but the job: Spark's JARs are on this machine."""
        return {
            "spark.yarn.jars": f"local:{_spark_jars()}/*",
            "spark.yarn.stagingDir": folder.as_uri(),
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
        }


@contextmanager
def yarn_cluster(folder: Path) -> Iterator[YarnServers]:
    """Run an active ResourceManager with one node, and one in standby, until the end of the block."""
    active, standby = free_port(), free_port()
    fixed = {
        "yarn.resourcemanager.webapp.address": f"127.0.0.1:{active}",
        **{f"yarn.resourcemanager.{name}": _free() for name in _ADDRESSES},
        "yarn.resourcemanager.scheduler.class": _FIFO,
    }
    node = {
        **{f"yarn.nodemanager.{name}address": _free() for name in ("", "localizer.", "webapp.")},
        "yarn.nodemanager.local-dirs": str(folder / "local"),
        "yarn.nodemanager.log-dirs": str(folder / "logs"),
        "yarn.nodemanager.vmem-check-enabled": "false",
        "yarn.nodemanager.disk-health-checker.enable": "false",
    }
    conf = _write(folder / "conf", {**fixed, **node})
    # Without automatic failover, a ResourceManager of a pair starts in standby, and remains so.
    pair = {
        "yarn.resourcemanager.ha.enabled": "true",
        "yarn.resourcemanager.ha.automatic-failover.enabled": "false",
        "yarn.resourcemanager.ha.rm-ids": "one,two",
        "yarn.resourcemanager.ha.id": "two",
        "yarn.resourcemanager.cluster-id": "pair",
        "yarn.resourcemanager.scheduler.class": _FIFO,
        "yarn.resourcemanager.webapp.address.one": f"127.0.0.1:{active}",
        "yarn.resourcemanager.webapp.address.two": f"127.0.0.1:{standby}",
        **{
            f"yarn.resourcemanager.{name}.{of}": _free()
            for name in _ADDRESSES
            for of in ("one", "two")
        },
    }
    other = _write(folder / "standby", pair)
    servers = YarnServers(
        url=f"http://127.0.0.1:{active}", standby_url=f"http://127.0.0.1:{standby}", conf=conf
    )
    with (
        _java(_MANAGER, conf, folder) as manager,
        _java(_MANAGER, other, folder) as second,
        _java(f"{_SERVER}nodemanager.NodeManager", conf, folder) as worker,
    ):
        _wait_for(servers.url, "nodes", '"state":"RUNNING"', worker)
        _wait_for(servers.standby_url, "info", '"haState":"STANDBY"', second)
        assert manager.alive
        yield servers


_ADDRESSES = ("address", "scheduler.address", "resource-tracker.address", "admin.address")


def _free() -> str:
    return f"127.0.0.1:{free_port()}"


def _spark_jars() -> Path:
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "jars"


def _java(main: str, conf: Path, folder: Path) -> ChildProcess:
    name = f"{main.rpartition('.')[2]} of {conf.name}"
    # They run for a minute: what the second compiler costs does not pay off.
    words = [str(find_java()), "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    words += ["--add-opens", "java.base/java.lang=ALL-UNNAMED"]
    path = os.pathsep.join([str(conf), f"{_jars()}/*", f"{_spark_jars()}/*"])
    log = folder / f"{name.replace(' ', '-')}.log"
    return ChildProcess(
        [*words, "-cp", path, main], name=name, log_path=log, env=base_environment(), cwd=folder
    )


def _jars() -> Path:
    def fetch(scratch: Path, log: Path) -> Path:
        wanted = {
            "org.apache.hadoop": (HADOOP_VERSION, ("hadoop-client-minicluster",)),
            "org.bouncycastle": (
                BOUNCY_CASTLE_VERSION,
                ("bcprov-jdk18on", "bcpkix-jdk18on", "bcutil-jdk18on"),
            ),
        }
        named = "".join(
            f'<dependency org="{org}" name="{name}" rev="{version}" transitive="false"/>'
            for org, (version, names) in wanted.items()
            for name in names
        )
        retrieve(
            named, scratch / "jars", types=("jar",), what=f"YARN {HADOOP_VERSION}", log_path=log
        )
        return scratch / "jars"

    return fetch_once(cache_folder() / f"yarn-{HADOOP_VERSION}", fetch)


def _write(folder: Path, settings: Mapping[str, str]) -> Path:
    folder.mkdir(parents=True)
    for file, values in (
        ("yarn-site.xml", settings),
        ("core-site.xml", {"fs.defaultFS": "file:///"}),
    ):
        text = "".join(
            f"<property><name>{name}</name><value>{escape(value)}</value></property>"
            for name, value in values.items()
        )
        (folder / file).write_text(f"<configuration>{text}</configuration>")
    return folder


def _wait_for(url: str, path: str, text: str, process: ChildProcess) -> None:
    def answers() -> bool:
        try:
            found = httpx.get(f"{url}/ws/v1/cluster/{path}", timeout=5, trust_env=False)
        except httpx.HTTPError:
            return False
        return text in found.text

    wait_until(answers, deadline_s=_START_S, what=f"{text} at {url}", process=process, poll_s=0.2)
