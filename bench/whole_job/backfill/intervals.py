"""The hourly intervals of a backfill, with the offsets of each."""

from __future__ import annotations

from dataclasses import dataclass

from bench.whole_job.contender import BenchJob
from bench.whole_job.records import HOUR_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillInterval:
    """The records with timestamps in [`from_ms`, `to_ms`): of partition p the offsets [`starts[p]`, `ends[p]`)."""

    number: int
    from_ms: int
    to_ms: int
    starts: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def name(self) -> str:
        """Its number with three digits."""
        return f"{self.number:03}"


def intervals_of(job: BenchJob) -> list[BackfillInterval]:
    """Return the hours of a job in order. Raises ValueError if they do not have the same number of records."""
    hours = (job.to_ms - job.from_ms) // HOUR_MS
    each, rest = divmod(job.records, hours)
    if rest:
        raise ValueError(f"expected a multiple of {hours} records, found {job.records:,}")
    partitions = len(job.ends)
    # Record n has the place (n % partitions, n // partitions), and hour h has the records [h * each, (h + 1) * each).
    cuts = [
        tuple(len(range(p, hour * each, partitions)) for p in range(partitions))
        for hour in range(hours + 1)
    ]
    return [
        BackfillInterval(
            number=hour,
            from_ms=job.from_ms + hour * HOUR_MS,
            to_ms=job.from_ms + (hour + 1) * HOUR_MS,
            starts=cuts[hour],
            ends=cuts[hour + 1],
        )
        for hour in range(hours)
    ]
