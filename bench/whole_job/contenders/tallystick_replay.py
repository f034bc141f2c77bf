"""tallystick in one process: `tally replay` plans, stages and commits the hour of a DAG file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from bench.whole_job.contender import BenchJob, BenchPlace, BenchStep, BenchWorkspace
from bench.whole_job.contenders.prepared import engine_python
from bench.whole_job.contenders.tallystick import REPO, SETTINGS, Tallystick
from bench.whole_job.contenders.tallystick_tasks import CLICK_TYPES, TOTAL_TYPES, ReplayOrder
from tallystick.connections.kafka import KafkaSettings
from tallystick.connections.resolve import env_name
from tallystick_devstack.process import base_environment

_DAG = '''"""Clicks by the hour."""

from datetime import UTC, datetime

from tallystick import Column, Json, Pipeline, Table, Topic, Upkeep
from tallystick.airflow import replay_dag

CLICK = [
{click}
]
TOTAL = [
{total}
]
EVENTS = Table("events", columns=CLICK)
TOTALS = Table(
    "totals",
    columns=TOTAL,
    keys=["event_type", "hour"],
    combine={{"events": "sum", "revenue": "sum"}},
)
pipeline = Pipeline(
    name="clicks",
    topics=[Topic({topic!r}, decode=Json(CLICK))],
    warehouse={warehouse!r},
    job="job.py",
    tables=[{tables}],
    upkeep=Upkeep(parquet_version=2),
)
dag = replay_dag(pipeline, schedule="@hourly", start_date=datetime(2026, 1, 1, tzinfo=UTC))
'''
# The command `tally` of an environment in which tallystick is not installed itself.
_TALLY = "from tallystick.cli import main; main()"


@dataclass(slots=True)
class TallystickReplay(Tallystick):
    """The contender: the declaration and the job of the other variants, in a DAG file."""

    variant: Literal["default", "best", "without-spark"] = "without-spark"
    _python: Path | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return "tallystick-replay"

    @property
    def what(self) -> str:
        """What it is."""
        return "tallystick: exactly-once replay into Iceberg tables on S3, by one command"

    @property
    def settings(self) -> Mapping[str, str]:
        """Its settings in words."""
        return {
            **SETTINGS["without-spark"],
            "tables": "Iceberg v2 on S3, Parquet zstd; `Upkeep(parquet_version=2)`, the encodings that spark-best and "
            "native use, too; both cases have `dead_letters`",
            "steps": "`tally replay` plans, stages and commits in one plain Python process, without Airflow",
            "environment": "what `pip install 'tallystick[engine]'` installs: no PySpark, Airflow and pandas",
        }

    def prepare(self, workspace: BenchWorkspace) -> None:
        """Install the environment. Safe to repeat: an existing one is kept."""
        Tallystick.prepare(self, workspace)
        self._python = engine_python()

    def steps(self, job: BenchJob, place: BenchPlace) -> Iterator[BenchStep]:
        """Yield the one command. Safe to repeat: each place is a lake of its own."""
        order = ReplayOrder(
            case=job.case,
            topic=job.topic,
            warehouse=self.warehouse(place),
            from_ms=job.from_ms,
            to_ms=job.to_ms,
        )
        order.write(place.folder)
        dag_file = place.folder / "dags" / "clicks.py"
        dag_file.parent.mkdir()
        dag_file.write_text(dag_text(order))
        span = (job.from_ms, job.to_ms)
        start, end = (datetime.fromtimestamp(ms / 1000, UTC).isoformat() for ms in span)
        assert self._python is not None, "prepare() comes first"
        words: list[str | Path] = [self._python, "-c", _TALLY, "replay", dag_file]
        words += ["--from", start, "--to", end]
        # As in a user's shell: the command sets by itself what Airflow's operator sets for a driver.
        env = base_environment() | self._space.endpoints.aws_environment()
        kafka = KafkaSettings(bootstrap_servers=(self._space.endpoints.bootstrap,))
        env[env_name(KafkaSettings, "default")] = kafka.as_env_json()
        env["PYTHONPATH"] = str(REPO / "plugins")
        yield BenchStep(name="replay", argv=words, env=env, cwd=place.folder)


def dag_text(order: ReplayOrder) -> str:
    """Return the text of the DAG file of an order, as a user writes it."""
    return _DAG.format(
        click=_columns(CLICK_TYPES),
        total=_columns(TOTAL_TYPES),
        topic=order.topic,
        warehouse=order.warehouse,
        tables="EVENTS, TOTALS" if order.case == "three" else "EVENTS",
    )


def _columns(types: Mapping[str, str]) -> str:
    return "\n".join(f'    Column("{name}", "{kind}"),' for name, kind in types.items())
