"""Runs the embedded Kafka: one real broker (KRaft, one process) on the loopback interface, without Docker or Maven.

The Ivy inside pyspark downloads its jars, once per machine. The log is in a folder that the caller chooses. It survives
restarts, also if the port changes.
"""

from __future__ import annotations

import base64
import sys
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tallystick.connections.kafka import KafkaSettings
from tallystick.errors import SettingsError, TallystickError
from tallystick.kafka.client import KafkaClient
from tallystick_devstack.class_archive import ClassArchive
from tallystick_devstack.ivy import cache_folder, fetch_once, retrieve
from tallystick_devstack.java import COMPILES_LITTLE, find_java
from tallystick_devstack.kafka_login import CLIENTS, KafkaLogin, jaas
from tallystick_devstack.private_file import write_private
from tallystick_devstack.process import (
    ChildProcess,
    free_port,
    port_accepts,
    port_is_free,
    run_to_end,
    wait_for_port,
    wait_until,
)

KAFKA_VERSION = "4.1.0"
_SCALA = "2.13"
# The Kafka release contains this binding, but the module on Maven Central does not. Without it, nothing is logged.
_LOGGING = ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3")
_FORMAT_S = 60.0
_START_S = 60.0


def default_jar_folder() -> Path:
    """Return the folder that keeps the jars between runs, below XDG_CACHE_HOME or ~/.cache."""
    return cache_folder() / f"kafka-{KAFKA_VERSION}-with-tools"


def fetch_jars(folder: Path) -> Path:
    """Download Kafka's jars (about 43 MB) to `folder` if it does not exist; return it. Raises SettingsError if it fails.

    Safe to repeat: a folder that exists is complete, because it appears by one rename after the download. If another
    process was faster, this one deletes its own copy.
    """
    return fetch_once(folder, _retrieve)


def class_archive(jars: Path) -> ClassArchive:
    """Return the archive of the broker's classes, which is next to the folder of its jars."""
    return ClassArchive(program=jars.name, jars=jars, folder=jars.parent)


def make_class_archive(jars: Path) -> None:
    """Archive the classes that a broker loads, by starting and stopping one; see `ClassArchive.make`."""

    def run(flags: list[str]) -> None:
        with tempfile.TemporaryDirectory(prefix="tally-kafka-") as name:
            KafkaBroker(Path(name), jars, java_flags=flags).start().stop()

    class_archive(jars).make(run)


def _retrieve(scratch: Path, log_path: Path) -> Path:
    kafka = "org.apache.kafka"
    modules = [
        (kafka, f"kafka_{_SCALA}", KAFKA_VERSION),
        (
            kafka,
            "kafka-tools",
            KAFKA_VERSION,
        ),  # the console programs, to read a log and to write to it
        _LOGGING,
    ]
    dependencies = "".join(
        f'<dependency org="{org}" name="{name}" rev="{version}" conf="*->default"/>'
        for org, name, version in modules
    )
    jars, what = scratch / "jars", f"Kafka {KAFKA_VERSION}"
    retrieve(dependencies, jars, types=("jar", "bundle"), what=what, log_path=log_path)
    if not list(jars.glob(f"kafka_{_SCALA}-*.jar")):
        raise SettingsError(
            f"the download of {what} ended without its jars.",
            hint="check access to Maven Central.",
        )
    return jars


class KafkaBroker:
    """A broker with its log in `state_dir`. It can be started again over the same log.

    `login`: if it is set, the listeners of clients and of the controller require a user and a password (SASL PLAIN). If
    not, the broker accepts every client, for tests. `settings` are added to the broker's properties, and `users` (name:
    password) open a second listener that requires them, both for tests. `java_flags` replace the flags that use the
    class archive. Nothing is created or downloaded before `start`.
    """

    def __init__(
        self,
        state_dir: Path,
        ivy_dir: Path | None = None,
        port: int | None = None,
        *,
        login: KafkaLogin | None = None,
        settings: Mapping[str, str] | None = None,
        users: Mapping[str, str] | None = None,
        heap_mb: int = 384,
        java_flags: Sequence[str] | None = None,
    ) -> None:
        self._state_dir = state_dir
        self._jar_dir = ivy_dir if ivy_dir is not None else default_jar_folder()
        self._fixed_port = port
        self._login = login
        self._extra = dict(settings or {})
        self._users = dict(users or {})
        self._users_port: int | None = None
        self._heap_mb = heap_mb
        self._port: int | None = None
        self._process: ChildProcess | None = None
        self._java_flags = java_flags

    @property
    def bootstrap(self) -> str:
        """host:port of the running broker."""
        if self._port is None:
            raise RuntimeError("the broker has not been started")
        return f"127.0.0.1:{self._port}"

    def client_settings(self) -> dict[str, Any]:
        """Return the connection settings of a client, with the names of KafkaSettings."""
        if self._login is None:
            return {"bootstrap_servers": self.bootstrap}
        return self._login.settings(self.bootstrap)

    @property
    def users_bootstrap(self) -> str:
        """host:port of the listener that requires a user (SASL_PLAINTEXT, PLAIN)."""
        if self._users_port is None:
            raise RuntimeError("the broker has not been started with users")
        return f"127.0.0.1:{self._users_port}"

    @property
    def jars_missing(self) -> bool:
        """True if `start` must download Kafka first, which can take minutes."""
        return not self._jar_dir.is_dir()

    @property
    def log_path(self) -> Path:
        """The path of the broker's own log file."""
        return self._state_dir / "broker.log"

    @property
    def alive(self) -> bool:
        """True if the broker's process runs."""
        return self._process is not None and self._process.alive

    @property
    def process(self) -> ChildProcess:
        """The running process, for tests that pause or kill it."""
        if self._process is None:
            raise RuntimeError("the broker has not been started")
        return self._process

    def start(self) -> KafkaBroker:
        """Start the broker and wait until it serves clients. Raises SettingsError with the last log lines if it does not.

        Safe to repeat: a running broker is not touched, and a formatted log is not formatted again.
        """
        if self.alive:
            return self
        fetch_jars(self._jar_dir)
        self._state_dir.mkdir(parents=True, exist_ok=True)
        self._port = self._choose_port()
        properties = self._write_properties(self._port, free_port())
        self._format_once(properties)
        self._process = ChildProcess(
            [*self._java(self._heap_mb), "kafka.Kafka", properties],
            name="kafka",
            log_path=self.log_path,
        )
        try:
            wait_until(
                self._answers,
                deadline_s=_START_S,
                what=f"Kafka answering at {self.bootstrap}",
                process=self._process,
            )
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop the broker and keep its log. Safe to repeat: if it does not run, nothing is done."""
        if self._process is not None:
            self._process.stop(grace_s=20.0)
            self._process = None

    def __enter__(self) -> KafkaBroker:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _choose_port(self) -> int:
        if self._fixed_port is None:
            return (
                self._port if self._port is not None and port_is_free(self._port) else free_port()
            )
        wait_for_port(self._fixed_port, "Kafka")
        return self._fixed_port

    def _answers(self) -> bool:
        if self._port is None or not port_accepts(self._port):
            return False
        settings = KafkaSettings.from_mapping(
            self.client_settings() | {"bootstrap_timeout_ms": 5_000, "request_timeout_ms": 5_000},
            source="the embedded Kafka",
        )
        try:
            with KafkaClient(settings) as client:
                return client.cluster_id() == self._cluster_id()
        except TallystickError:
            return False

    def _java(self, heap_mb: int) -> list[str | Path]:
        logging = self._state_dir / "log4j2.properties"
        logging.write_text(
            "status=error\nrootLogger.level=warn\nrootLogger.appenderRef.out.ref=out\n"
            "appender.out.type=Console\nappender.out.name=out\nappender.out.layout.type=PatternLayout\n"
            "appender.out.layout.pattern=%d %p %c{1}: %m%n\n"
        )
        # The flags keep CPU and memory low: on a laptop, the broker shares two cores with Spark, Airflow and the tests.
        own = self._java_flags
        flags = [
            *(class_archive(self._jar_dir).flags if own is None else own),
            f"-Xmx{heap_mb}m",
            "-Xms64m",
            *COMPILES_LITTLE.split(),
            "-Djava.awt.headless=true",
            "-Dfile.encoding=UTF-8",
        ]
        return [
            find_java(),
            *flags,
            f"-Dlog4j2.configurationFile={logging}",
            "-cp",
            f"{self._jar_dir}/*",
        ]

    def _cluster_id(self) -> str:
        """Return the id of the cluster in the state folder. It is created at the first call."""
        path = self._state_dir / "cluster.id"
        if not path.exists():
            # This is Kafka's form of a UUID. It must not begin with '-', because its tool would read that as an option.
            cluster_id = "t" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
            fresh = path.with_suffix(".new")
            fresh.write_text(cluster_id)
            fresh.replace(path)
        return path.read_text().strip()

    def _format_once(self, properties: Path) -> None:
        done = self._state_dir / "formatted"
        if done.exists():
            return
        # --ignore-formatted: if an earlier format was interrupted before `done` was written, it is completed.
        words: list[str | Path] = [
            *self._java(128),
            "kafka.tools.StorageTool",
            "format",
            "--ignore-formatted",
        ]
        words += ["-t", self._cluster_id(), "-c", properties]
        run_to_end(
            words,
            name=f"formatting Kafka's folder {self._state_dir}",
            log_path=self._state_dir / "format.log",
            deadline_s=_FORMAT_S,
        )
        done.touch()

    def _write_properties(self, port: int, controller_port: int) -> Path:
        name = "PLAINTEXT" if self._login is None else CLIENTS
        clients, controllers = (
            f"{name}://127.0.0.1:{port}",
            f"CONTROLLER://127.0.0.1:{controller_port}",
        )
        words = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{clients},{controllers}",
            "advertised.listeners": clients,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self._state_dir / "log"),
            "auto.create.topics.enable": "false",
            # Records of replayed history have old timestamps. Retention by time would delete them within minutes.
            "log.retention.ms": "-1",
            "log.message.timestamp.before.max.ms": str(2**63 - 1),
            "log.cleaner.dedupe.buffer.size": str(8 << 20),
            "log.cleaner.backoff.ms": "200",
            "log.segment.delete.delay.ms": "1000",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
            "group.initial.rebalance.delay.ms": "0",
            # If the broker is killed, it can register again only after its old session has expired: 9 s by default.
            "broker.heartbeat.interval.ms": "500",
            "broker.session.timeout.ms": "3000",
            "message.max.bytes": str(128 << 20),
            "num.network.threads": "2",
            "num.io.threads": "4",
        }
        if self._login is not None:
            words |= self._login.properties()
        if self._users:
            words |= self._users_listener(words)
        words |= self._extra
        path = self._state_dir / "broker.properties"
        write_private(path, "".join(f"{key}={value}\n" for key, value in words.items()))
        return path

    def _users_listener(self, words: Mapping[str, str]) -> dict[str, str]:
        if self._users_port is None or not port_is_free(self._users_port):
            self._users_port = free_port()
        address = f"USERS://{self.users_bootstrap}"
        protocols = "listener.security.protocol.map"
        return {
            "listeners": f"{words['listeners']},{address}",
            "advertised.listeners": f"{words['advertised.listeners']},{address}",
            protocols: f"{words[protocols]},USERS:SASL_PLAINTEXT",
            "listener.name.users.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.users.plain.sasl.jaas.config": jaas(self._users),
        }


def _main() -> None:
    """Download the jars in advance: python -m tallystick_devstack.kafka [folder]."""
    print(fetch_jars(Path(sys.argv[1]) if len(sys.argv) > 1 else default_jar_folder()))


if __name__ == "__main__":
    _main()
