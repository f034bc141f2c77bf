"""tallystick on a record set: its plan, stage and commit, with a declaration of that set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from bench.whole_job.contender import (
    BenchJob,
    BenchPlace,
    BenchStep,
    BenchWorkspace,
    Case,
    ResultTable,
)
from bench.whole_job.contenders.tallystick import Tallystick
from bench.whole_job.formats import tallystick_tasks
from bench.whole_job.formats.record_sets import RecordSet
from bench.whole_job.formats.tallystick_tasks import FormatOrder

DECODES = {
    "documents": "Json, with columns of type struct and list; the other fields are passed over",
    "flights": "Json, with the declaration of the demo",
    "avro": "Avro(registry=): the schema is read from the registry when the run is planned",
}


@dataclass(slots=True)
class FormatTallystick:
    """The contender with Spark and its best settings, or without Spark."""

    record_set: RecordSet
    variant: Literal["best", "without-spark"]
    _tallystick: Tallystick = field(init=False)

    def __post_init__(self) -> None:
        self._tallystick = Tallystick(self.variant)

    @property
    def name(self) -> str:
        """Its name."""
        return self._tallystick.name

    @property
    def what(self) -> str:
        """What it is."""
        return self._tallystick.what

    @property
    def settings(self) -> Mapping[str, str]:
        """Its settings in words."""
        return {**self._tallystick.settings, "decode": DECODES[self.record_set.name]}

    @property
    def cases(self) -> frozenset[Case]:
        """One table."""
        return frozenset({"one"})

    def versions(self) -> Mapping[str, str]:
        """Return its version."""
        return self._tallystick.versions()

    def prepare(self, workspace: BenchWorkspace) -> None:
        """Prepare tallystick. Safe to repeat: what exists is kept."""
        self._tallystick.prepare(workspace)

    def steps(self, job: BenchJob, place: BenchPlace) -> Iterator[BenchStep]:
        """Yield plan, stage and commit. Safe to repeat: each place is a lake of its own."""
        order = FormatOrder(
            case="one",
            topic=job.topic,
            warehouse=self._tallystick.warehouse(place),
            from_ms=job.from_ms,
            to_ms=job.to_ms,
            record_set=self.record_set.name,
        )
        order.write(place.folder)
        yield from self._tallystick.tasks_of(place, module=tallystick_tasks.__name__)

    def results(self, job: BenchJob, place: BenchPlace) -> Sequence[ResultTable]:
        """Return the data files that PyIceberg finds in the tables of root.json."""
        columns = self.record_set.columns(partition="_kafka_partition", offset="_offset")
        found = self._tallystick.results(job, place)
        return [replace(table, columns=columns) for table in found]
