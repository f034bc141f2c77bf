"""The account of a range: each offset is a record, aborted, control or absent; no offset is skipped silently."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tallystick.errors import LogDamaged
from tallystick.format.offsets import OffsetRange
from tallystick.kafka.batches import Batch
from tallystick.kafka.wire import AbortedTransaction


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAccount:
    """The number of offsets of `span` in each class; they always add up to its length.

    `records` were returned to the caller, `aborted` belong to aborted transactions, `control` are control records such
    as transaction markers, `absent` hold nothing (compacted).
    """

    span: OffsetRange
    records: int
    aborted: int
    control: int
    absent: int

    def __post_init__(self) -> None:
        total = self.records + self.aborted + self.control + self.absent
        if (
            min(self.records, self.aborted, self.control, self.absent) < 0
            or total != self.span.length
        ):
            raise ValueError(
                f"expected {self.span.length} offsets of {self.span}, found {self.records} records + {self.aborted} "
                "aborted + "
                f"{self.control} control + {self.absent} absent"
            )


class Tally:
    """The account in progress: every offset from the span's start up to `position` has a class, none beyond."""

    def __init__(self, span: OffsetRange, *, place: str, compacted: bool) -> None:
        self.span = span
        self.position = span.start
        self.records = self.aborted = self.control = self.absent = 0
        self._place = place
        self._compacted = compacted

    @property
    def done(self) -> bool:
        """True if every offset of the span has a class."""
        return self.position >= self.span.end

    def skip_to(self, offset: int) -> None:
        """Count the offsets from `position` up to `offset`, or up to the span's end, as absent.

        Raises LogDamaged if the topic is not compacted: then no offset may be absent (the log of a topic with
        cleanup.policy=delete is contiguous).
        """
        until = min(offset, self.span.end)
        if until > self.position:
            self._absent(self.position, until, until - self.position)
            self.position = until

    def pass_batch(
        self, batch: Batch, *, records: int = 0, aborted: int = 0, control: int = 0
    ) -> None:
        """Count the part of a batch that lies in the span: the given numbers of each class, and the rest as absent."""
        self.skip_to(batch.base_offset)
        until = min(batch.end_offset, self.span.end)
        rest = until - self.position - records - aborted - control
        if rest:
            self._absent(self.position, until, rest)
        self.records += records
        self.aborted += aborted
        self.control += control
        self.position = max(until, self.position)

    def account(self) -> ReadAccount:
        """Return the finished account. Raises ValueError if an offset of the span has no class yet."""
        return ReadAccount(
            span=self.span,
            records=self.records,
            aborted=self.aborted,
            control=self.control,
            absent=self.absent,
        )

    def _absent(self, start: int, end: int, count: int) -> None:
        if not self._compacted or count < 0:
            raise LogDamaged(
                f"{self._place} has no records at {count} of the offsets [{start}, {end}), and the topic "
                "is not compacted.",
                hint="leave the topic's configuration as it is: every change of its cleanup or retention may delete "
                "more. Find out why the records are missing: kafka-dump-log.sh on the leader shows the segments around "
                "the gap; was the topic compacted once, did a segment get lost in tiered storage or on disk? If they "
                "come back, run again. If not, copy the remaining records into a new topic, keeping timestamps, and "
                "replay that with a pipeline of its own. Nothing was committed.",
            )
        self.absent += count


class AbortedProducers:
    """The producers inside an aborted transaction, as the caller passes the batches of one fetch answer in order.

    The answer lists every aborted transaction that touches its bytes, so no state is kept between answers. The rule is
    that of Kafka's consumer (KIP-98): from a transaction's first offset up to its abort marker, the transactional batches
    of its producer are aborted.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._ahead = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
        self._inside: set[int] = set()

    def aborts(self, batch: Batch) -> bool:
        """Return True if a data batch is part of an aborted transaction; batches must come in order."""
        while self._ahead and self._ahead[-1].first_offset < batch.end_offset:
            self._inside.add(self._ahead.pop().producer_id)
        return batch.transactional and not batch.control and batch.producer_id in self._inside

    def abort_marker(self, batch: Batch) -> None:
        """Record the end of a producer's aborted transaction."""
        self._inside.discard(batch.producer_id)
