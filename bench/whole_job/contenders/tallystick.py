"""tallystick: plan, stage, commit, as its Airflow operators run them. The lake is on the S3 server."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from bench.whole_job.contender import (
    DEAD_LETTERS,
    EVENTS,
    TOTALS,
    BenchJob,
    BenchPlace,
    BenchStep,
    BenchWorkspace,
    Case,
    ResultTable,
)
from bench.whole_job.contenders.tallystick_tasks import ReplayOrder
from examples.checks.lake import Lake
from tallystick.airflow.environment import driver_conf, driver_environment
from tallystick.connections.kafka import KafkaSettings
from tallystick.connections.registry import RegistrySettings
from tallystick.connections.resolve import env_name
from tallystick.runtime.version import VERSION
from tallystick_devstack.class_archive import make_spark_archive, submit_options
from tallystick_devstack.java import compiled_spark_home
from tallystick_devstack.process import base_environment

REPO = Path(__file__).resolve().parents[3]
TASKS = "bench.whole_job.contenders.tallystick_tasks"
_EVENT = ("event_id", "event_type", "user_id", "session", "ts", "page", "referrer", "price", "qty")
COLUMNS: Mapping[str, Mapping[str, str]] = {
    EVENTS: {
        **{name: name for name in _EVENT},
        "os": "device.os",
        "ver": "device.ver",
        "partition": "_kafka_partition",
        "offset": "_offset",
    },
    DEAD_LETTERS: {"partition": "_kafka_partition", "offset": "_offset", "value": "value"},
    TOTALS: {name: name for name in ("event_type", "hour", "events", "revenue")},
}
SETTINGS = {
    "default": {
        "driver": "spark-submit --master local[2] with the environment and the options of Airflow's operator; the JVM "
        "has the flags that Java chooses",
    },
    "best": {
        "driver": "the same, and as `make setup` prepares a machine: an archive of the JVM's classes, "
        "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC, a Spark home without zipped modules",
    },
    "without-spark": {
        "driver": "a plain Python process, which reads on one core and uploads meanwhile, as "
        "`replay_dag(without_spark_offsets_max=)` starts it for a small run; no Spark and no JVM",
    },
}


@dataclass(slots=True)
class Tallystick:
    """The contender with one of two settings of the JVM, or without one; the code and the declaration are the same.

    `tasks`: Spark's tasks at once; without it, one per core.
    """

    variant: Literal["default", "best", "without-spark"]
    tasks: int | None = None
    _workspace: BenchWorkspace | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return f"tallystick-{self.variant}" + (f"-{self.tasks}-tasks" if self.tasks else "")

    @property
    def what(self) -> str:
        """What it is."""
        return (
            "tallystick: exactly-once replay into Iceberg tables on S3, by plan, stage and commit"
        )

    @property
    def settings(self) -> Mapping[str, str]:
        """Its settings in words."""
        return {
            **SETTINGS[self.variant],
            "tables": "Iceberg v2 on S3, Parquet zstd, the defaults of the declaration; both cases have `dead_letters`",
            "steps": "plan and commit run without Airflow: the start of an Airflow task is not in the figures",
        }

    @property
    def cases(self) -> frozenset[Case]:
        """Both cases."""
        return frozenset({"one", "three"})

    def versions(self) -> Mapping[str, str]:
        """Return its version."""
        return {"tallystick": VERSION}

    def prepare(self, workspace: BenchWorkspace) -> None:
        """Archive the classes of Spark's drivers. Safe to repeat: an existing archive is kept."""
        self._workspace = workspace
        if self.variant == "best":
            make_spark_archive()

    def steps(self, job: BenchJob, place: BenchPlace) -> Iterator[BenchStep]:
        """Yield plan, stage and commit. Safe to repeat: each place is a lake of its own."""
        order = ReplayOrder(
            case=job.case,
            topic=job.topic,
            warehouse=self.warehouse(place),
            from_ms=job.from_ms,
            to_ms=job.to_ms,
        )
        order.write(place.folder)
        yield from self.tasks_of(place)

    def tasks_of(self, place: BenchPlace, *, module: str = TASKS) -> Iterator[BenchStep]:
        """Yield plan, stage and commit of the order in the place's folder. `module` is the program of plan and commit."""
        env = self.environment(place)
        task = partial(_task, module=module, folder=place.folder)
        yield task("plan", env={**env, **self._registry()})
        plans = json.loads((place.folder / "plans.json").read_text())
        yield self.stage(plans, place, job=place.folder / "job.py")
        yield task("commit", env=env)

    def results(self, job: BenchJob, place: BenchPlace) -> Sequence[ResultTable]:
        """Return the data files that PyIceberg finds in the tables of root.json."""
        ends = self._space.endpoints
        lake = Lake(
            endpoint_url=ends.s3_url,
            bucket=ends.bucket,
            prefix=place.prefix,
            access_key_id=ends.s3_access_key,
            secret_access_key=ends.s3_secret_key,
            region=ends.s3_region,
        )
        root = lake.json("root.json")["tables"]
        found = []
        for name in job.tables:
            tasks = lake.table(root[name]["metadata"]).scan().plan_files()
            paths = sorted(task.file.file_path for task in tasks)
            found.append(ResultTable(name=name, files=paths, columns=COLUMNS[name]))
        return found

    def warehouse(self, place: BenchPlace) -> str:
        """Return the lake URI of a place."""
        return f"s3://{self._space.endpoints.bucket}/{place.prefix}"

    @property
    def _space(self) -> BenchWorkspace:
        assert self._workspace is not None, "prepare() comes first"
        return self._workspace

    def _registry(self) -> dict[str, str]:
        """Return the environment of the connection of the schema registry, which only planning uses."""
        found = self._space.endpoints.registry
        return {} if found is None else {env_name(RegistrySettings, "default"): found}

    def _master(self) -> str:
        return f"local[{self.tasks or self._space.cores}]"

    def environment(self, place: BenchPlace) -> dict[str, str]:
        """Return the environment of all steps, which the operator passes on to spark-submit."""
        worker = base_environment() | self._space.endpoints.aws_environment()
        if self.variant == "best":
            worker |= {
                "SPARK_HOME": str(compiled_spark_home()),
                "SPARK_SUBMIT_OPTS": submit_options(worker),
            }
        return driver_environment(
            worker,
            kafka_name="default",
            kafka=KafkaSettings(bootstrap_servers=(self._space.endpoints.bootstrap,)),
            result_file=place.folder / "result.json",
            master=self._master(),
        )

    def stage(
        self, plans: Sequence[str], place: BenchPlace, *, job: Path, name: str = "stage"
    ) -> BenchStep:
        """Return the driver that stages the plans. Its result is the file `result.json` of the place."""
        env = self.environment(place)
        words: list[str | Path] = [*self.program(env), job]
        for plan in plans:
            words += ["--plan", plan]
        words += ["--attempt", "bench"]
        if self.variant == "without-spark":
            words.append("--without-spark")
        return BenchStep(name=name, argv=words, env=env, cwd=place.folder)

    def program(self, env: Mapping[str, str]) -> list[str | Path]:
        """Return the command of a driver, up to the job file."""
        python = env["PYSPARK_DRIVER_PYTHON"]
        if self.variant == "without-spark":
            return [python]
        words: list[str | Path] = [Path(sys.executable).with_name("spark-submit")]
        words += ["--master", self._master()]
        conf = driver_conf({}, master=self._master(), driver_python=python)
        for name, value in conf.items():
            words += ["--conf", f"{name}={value}"]
        return [*words, "--name", "tallystick-clicks"]


def _task(name: str, *, module: str, env: Mapping[str, str], folder: Path) -> BenchStep:
    argv: list[str | Path] = [sys.executable, "-m", module, name, folder]
    return BenchStep(name=name, argv=argv, env=env, main=False, cwd=REPO)
