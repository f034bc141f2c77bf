"""Reads one offset range of one partition into Arrow batches, and accounts for every offset of it.

The broker itself checks the topic id and the leader epoch of each fetch. A range is read completely or the read fails.
An offset counts as absent only if a later batch proves it (`kafka.silence`): an empty answer proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import kafka.errors as kerrors
import pyarrow as pa

from tallystick.connections.kafka import KafkaSettings
from tallystick.errors import IdentityChanged, LogDamaged, NotYet, OutsideRetention
from tallystick.format.offsets import OffsetRange, Position
from tallystick.kafka.accounting import AbortedProducers, ReadAccount, Tally
from tallystick.kafka.batches import Batch, Scratch, damaged, each_record, ends_by_abort, walk
from tallystick.kafka.client import KafkaClient, PendingFetch
from tallystick.kafka.connection import RetriableError
from tallystick.kafka.decode import INT32_MAX, Columns, columns_schema
from tallystick.kafka.identity import diverged_message, require_cluster
from tallystick.kafka.markers import MarkerCheck
from tallystick.kafka.shared import SharedClient
from tallystick.kafka.silence import Silence
from tallystick.kafka.wire import EARLIEST, LATEST, NO_EPOCH, Fetched, FetchOrder, TopicLayout

_WAIT_MS: Final = 500
# The first batch of an answer comes whole, however few bytes are requested (KIP-74).
_ONE_BATCH_BYTES: Final = 1
# Try to fetch the proof after this many empty answers: records follow most empty answers.
_PROOF_EVERY: Final = 5
_OFFSET_OUT_OF_RANGE: Final = kerrors.OffsetOutOfRangeError.errno
_OTHER_TOPIC: Final = (kerrors.UnknownTopicIdError.errno, kerrors.InconsistentTopicIdError.errno)
_CORRUPT: Final = kerrors.CorruptRecordError.errno


class RangeReader:
    """A reader for ranges of one topic incarnation. Without `shared`, each range has connections of its own.

    `fetch_bytes_max` limits a fetch, and a quarter of it the first one; `batch_rows` and `batch_bytes` limit an Arrow
    batch. A larger record batch is still read whole. `account` is the account of the last range. If `collect_aborted`,
    `aborted_times` has the offsets and timestamps of aborted data in the last range; an aborted batch at the edge of the
    range is decompressed for it.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        *,
        topic: str,
        topic_id: str,
        cluster_id: str,
        compacted: bool,
        fetch_bytes_max: int = 8 << 20,
        batch_rows: int = 1 << 16,
        batch_bytes: int = 8 << 20,
        headers: bool = False,
        collect_aborted: bool = False,
        shared: SharedClient | None = None,
    ) -> None:
        if not (
            0 < fetch_bytes_max <= INT32_MAX and batch_rows > 0 and 0 < batch_bytes <= INT32_MAX
        ):
            raise ValueError(
                f"sizes are out of bounds: {fetch_bytes_max=}, {batch_rows=}, {batch_bytes=}"
            )
        self.settings = settings
        self.topic = topic
        self.topic_id = topic_id
        self.cluster_id = cluster_id
        self.compacted = compacted
        self.fetch_bytes_max = fetch_bytes_max
        self.batch_rows = batch_rows
        self.batch_bytes = batch_bytes
        self.headers = headers
        self.schema: pa.Schema = columns_schema(headers=headers)
        # Of each aborted batch in the last range: its first offset in the range, and its latest timestamp there in ms.
        self.aborted_times: list[tuple[int, int]] = []
        self.collect_aborted = collect_aborted
        self._shared = shared
        self._account: ReadAccount | None = None

    @property
    def account(self) -> ReadAccount:
        """The account of the last range. Raises RuntimeError if no range has been read to its end."""
        if self._account is None:
            raise RuntimeError("no range was read to its end: there is no account")
        return self._account

    def read(
        self,
        partition: int,
        span: OffsetRange,
        *,
        leader_epoch: int = NO_EPOCH,
        planned_end: Position | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the committed records of `span` in order: offset, timestamp, key, value[, headers].

        `leader_epoch` is the epoch of the record before the span, as recorded in its boundary (-1: not known). Before
        the first fetch, this checks that the log still holds that record. `planned_end` is the planned end boundary, at
        the span's end or beyond it. After the last fetch, this checks that the log still holds the record before that
        boundary and the last record read, and that the topic is the same incarnation. Then the data read are the data
        planned, and `account` is set. An empty span yields nothing and opens no connection.

        Raises OutsideRetention, IdentityChanged, LogDamaged, NotYet (if the span's end is beyond the last stable
        offset), KafkaUnavailable, SettingsError. Safe to repeat: it only reads.
        """
        self._account = None
        self.aborted_times.clear()
        if not span.empty:
            with self._shared.lent() if self._shared else KafkaClient(self.settings) as client:
                reading = _Reading(self, client, partition, span, leader_epoch)
                yield from reading.batches()
                reading.require_planned_log(planned_end)
                tally = reading.tally
        else:
            tally = Tally(span, place="", compacted=False)
        self._account = tally.account()


class _Reading:
    """The read of one range in progress: its position, its columns, its account and the current leader."""

    def __init__(
        self,
        reader: RangeReader,
        client: KafkaClient,
        partition: int,
        span: OffsetRange,
        leader_epoch: int,
    ) -> None:
        self._reader = reader
        self._client = client
        self._partition = partition
        self._span = span
        self._place = f"topic {reader.topic!r} partition {partition}"
        self.tally = Tally(span, place=self._place, compacted=reader.compacted)
        self._check = MarkerCheck(self._place, compacted=reader.compacted)
        self._scratch = Scratch()
        self._columns: Columns | None = None
        self._rack = reader.settings.client_rack or ""
        self._replica: int | None = None
        self._begun = Position(offset=span.start, leader_epoch=leader_epoch)
        self._passed: Batch | None = None
        self._high_watermark = span.end
        self._layout = self._identified()
        self._require_same_log(self._reached)

    @property
    def _reached(self) -> Position:
        """The read position, with the leader epoch of the record before it: the log must still hold that record."""
        if self._passed is None:
            return self._begun
        offset = min(self._passed.end_offset, self._span.end)
        return Position(offset=offset, leader_epoch=self._passed.leader_epoch)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Fetch, decode and yield until every offset of the span has a class.

        The next fetch is in flight while an answer is decoded. A batch of columns is filled from as many answers as it
        has room for: joining small ones later would copy every value again.
        """
        # The bytes beyond the span are received for nothing, and a small span has only this fetch.
        first_bytes = max(_ONE_BATCH_BYTES, self._reader.fetch_bytes_max // 4)
        pending: PendingFetch | None = self._send(self._span.start, bytes_max=first_bytes)
        silence = Silence(self._client, self._place)
        while pending is not None:
            fetched = self._answer(pending)
            self._high_watermark = fetched.high_watermark
            found = list(walk(fetched.records, place=self._place))
            if not found:
                self._require_whole_batch(fetched)
                pending = self._after_empty(fetched, silence)
                continue
            silence.ended()
            reached = found[-1].end_offset
            if reached <= self.tally.position:
                raise damaged(
                    self._place,
                    f"expected offset {self.tally.position} or later, found an earlier one",
                )
            pending = self._send(reached) if reached < self._span.end else None
            self._check.next_answer()
            yield from self._decoded(found, AbortedProducers(fetched.aborted))
        if self._columns is not None and self._columns.rows:
            yield self._columns.take()

    def _after_empty(self, fetched: Fetched, silence: Silence) -> PendingFetch | None:
        """Return the next fetch after an empty answer, None if the rest of the span is proven to be absent.

        The span ends at the last stable offset or before it, so a committed fetch returns its next batch if there is one.
        It does not return a batch at the last stable offset, which may be the only proof. An uncommitted fetch does.
        """
        position = self.tally.position
        silence.add(fetched)
        if fetched.last_stable == self._span.end or silence.answers % _PROOF_EVERY == 0:
            proof = self._answer(self._send(position, committed=False, bytes_max=_ONE_BATCH_BYTES))
            following = next(walk(proof.records, place=self._place), None)
            if following is not None and following.base_offset >= self._span.end:
                self.tally.skip_to(self._span.end)
                return None
        silence.wait(position)
        return self._send(position, bytes_max=_ONE_BATCH_BYTES)

    # -- batches into columns

    def _decoded(self, found: list[Batch], producers: AbortedProducers) -> Iterator[pa.RecordBatch]:
        for batch in found:
            if batch.base_offset >= self._span.end:
                self.tally.skip_to(self._span.end)
                if self._check_beyond(batch):
                    continue
                break
            # Do this before skipping batches: if a marker were missed, later batches of its producer would be aborted.
            aborted = self._follow_producers(batch, producers)
            if batch.end_offset <= self.tally.position:
                continue
            if batch.control:
                self.tally.pass_batch(batch, control=self._count_inside(batch))
            elif aborted:
                if self._reader.collect_aborted:
                    self._note_aborted(batch)
                self.tally.pass_batch(batch, aborted=self._count_inside(batch))
            else:
                yield from self._add(batch)
            self._passed = batch
            if self.tally.done and not self._check.undecided:
                break

    def _follow_producers(self, batch: Batch, producers: AbortedProducers) -> bool:
        aborted = producers.aborts(batch)
        if not batch.control:
            self._check.data(batch, aborted=aborted)
        elif batch.transactional:
            by_abort = ends_by_abort(batch, self._scratch.records(batch))
            self._check.marker(batch, abort=by_abort)
            if by_abort:
                producers.abort_marker(batch)
        return aborted

    def _check_beyond(self, batch: Batch) -> bool:
        """Check a batch beyond the span, in the same answer. Returns True if the next batch has to be checked, too."""
        if batch.control and batch.transactional:
            by_abort = ends_by_abort(batch, self._scratch.records(batch))
            self._check.marker(batch, abort=by_abort)
        return self._check.undecided

    def _note_aborted(self, batch: Batch) -> None:
        """Record the latest timestamp of an aborted batch inside the span: boundaries count aborted records."""
        start, end = self.tally.position, self._span.end
        latest = batch.max_timestamp
        if batch.base_offset < start or batch.end_offset > end:
            inside = [
                at
                for offset, at, _ in each_record(batch, self._scratch.records(batch))
                if start <= offset < end
            ]
            if not inside:
                return
            latest = max(inside)
        self._reader.aborted_times.append((max(batch.base_offset, start), latest))

    def _count_inside(self, batch: Batch) -> int:
        """Return the number of a batch's records in the rest of the span, for a batch that is not decoded."""
        start, end = (
            max(batch.base_offset, self.tally.position),
            min(batch.end_offset, self._span.end),
        )
        if batch.dense:
            return end - start
        return sum(
            start <= offset < end
            for offset, _, _ in each_record(batch, self._scratch.records(batch))
        )

    def _add(self, batch: Batch) -> Iterator[pa.RecordBatch]:
        records = self._scratch.records(batch)
        columns = self._columns
        if columns is not None and not columns.fits(batch, records):
            if columns.rows:
                yield columns.take()
            columns = None
        if columns is None:
            columns = self._columns = Columns(
                rows=max(self._reader.batch_rows, batch.count),
                bytes_room=max(self._reader.batch_bytes, len(records)),
                headers=self._reader.headers,
            )
        added = columns.add(batch, records, start=self.tally.position, end=self._span.end)
        self.tally.pass_batch(batch, records=added)

    # -- fetches and their answers

    def _send(
        self, offset: int, *, committed: bool = True, bytes_max: int | None = None
    ) -> PendingFetch:
        return self._client.fetch(
            FetchOrder(
                layout=self._layout,
                partition=self._partition,
                offset=offset,
                bytes_max=bytes_max or self._reader.fetch_bytes_max,
                wait_ms=_WAIT_MS,
                committed=committed,
                rack=self._rack,
                replica=self._replica,
            )
        )

    def _answer(self, pending: PendingFetch) -> Fetched:
        """Wait for a usable answer, with retries for the client's `patience_s`; raises the error of any other answer."""
        order = pending.order
        offset = order.offset
        deadline = self._client.clock() + self._client.patience_s
        attempt = 0
        retry: PendingFetch | None = pending
        while True:
            retry = retry or self._send(
                offset, committed=order.committed, bytes_max=order.bytes_max
            )
            near = retry.order.replica is not None
            try:
                fetched = retry.result()
                if near:
                    if self._served(fetched, offset):
                        return fetched
                    raise RetriableError("a replica lags")
                if fetched.preferred is not None:
                    self._replica, retry = fetched.preferred, None
                    continue
                self._check_answer(fetched, order)
                return fetched
            except RetriableError as error:
                if near:
                    # A follower may lag, be gone, or hold a bad copy: only the leader's answer counts.
                    self._replica, self._rack, retry = None, "", None
                    continue
                if self._client.clock() >= deadline:
                    raise self._client.unavailable(
                        f"{self._place} from offset {offset}", error
                    ) from error
            self._client.pause(attempt)
            attempt += 1
            retry = None
            self._follow_leader()

    def _served(self, fetched: Fetched, offset: int) -> bool:
        """Return True if a replica returned records. If it returned none, it may lag or read from a slower tier."""
        if fetched.error_code or fetched.log_start > offset:
            return False
        return bool(fetched.records)

    def _check_answer(self, fetched: Fetched, order: FetchOrder) -> None:
        offset = order.offset
        if fetched.error_code in _OTHER_TOPIC:
            self._client.layout(self._reader.topic, topic_id=self._reader.topic_id)
            raise RetriableError("a broker does not have the topic's id yet")
        if fetched.error_code == _OFFSET_OUT_OF_RANGE:
            raise self._out_of_range(offset)
        if fetched.error_code == _CORRUPT:
            raise damaged(
                self._place, f"its leader reports that the log is corrupt at offset {offset}"
            )
        self._client.check_fetched(fetched.error_code, self._place)
        if fetched.log_start > offset:
            raise self._expired(offset, fetched.log_start)
        if order.committed and fetched.last_stable < self._span.end:
            raise self._not_stable(fetched)

    def _out_of_range(self, offset: int) -> Exception:
        lows = self._client.list_offsets(self._layout, {self._partition: EARLIEST}, committed=False)
        highs = self._client.list_offsets(self._layout, {self._partition: LATEST}, committed=False)
        low, high = lows[self._partition], highs[self._partition]
        if offset < low:
            return self._expired(offset, low)
        if offset > high:
            return LogDamaged(
                f"{self._place}: expected the planned offsets {self._span}, found the end at offset {high}: the log "
                "was truncated.",
                hint="check this cluster for unclean leader elections: acknowledged records are lost.",
            )
        return RetriableError(
            f"a leader reported offset {offset} as out of range, but has [{low}, {high})"
        )

    def _expired(self, offset: int, log_start: int) -> OutsideRetention:
        return OutsideRetention(
            f"{self._place}: expected offsets [{self._span.start}, {self._span.end}), of which those from {offset} on "
            f"are unread, found that the log begins at {log_start}.",
            hint="raise the topic's retention to keep what is not lost yet; accept what is lost "
            "(accept_loss=true).",
        )

    def _not_stable(self, fetched: Fetched) -> NotYet:
        return NotYet(
            f"{self._place}: expected a last stable offset of at least {self._span.end}, found {fetched.last_stable} "
            f"(high watermark {fetched.high_watermark}): a transaction is open before the end, or a leader has "
            "just moved.",
            hint="try again; if it persists, search for the producer with kafka-transactions.sh find-hanging.",
        )

    def _require_whole_batch(self, fetched: Fetched) -> None:
        # KIP-74: the first batch of an answer is whole, however large it is.
        if fetched.records:
            raise damaged(
                self._place,
                f"{len(fetched.records)} bytes at offset {self.tally.position} do not contain a whole batch",
            )

    # -- the leader, and the identity of the log

    def _identified(self) -> TopicLayout:
        require_cluster(self._client, self._reader.cluster_id)
        layout = self._client.last_layout(self._reader.topic, topic_id=self._reader.topic_id)
        if self._partition >= len(layout.leaders):
            raise IdentityChanged(
                f"{self._place} does not exist: the topic has {len(layout.leaders)} partitions.",
                hint="clear task `plan`; partitions only disappear if a topic is recreated.",
            )
        return layout

    def _follow_leader(self) -> None:
        layout = self._client.layout(self._reader.topic, topic_id=self._reader.topic_id)
        moved = layout.leaders[self._partition].epoch != self._layout.leaders[self._partition].epoch
        self._layout = layout
        if moved:
            self._require_same_log(self._reached)

    def require_planned_log(self, planned_end: Position | None) -> None:
        """Check, after the last fetch, that the log still holds the records read, and all records up to the planned end.

        The record before the planned end proves every record before it: a log that was truncated below that end never
        gets that epoch's records back (KIP-101). So the check also covers an input split in the middle of a planned
        range. The topic id is checked last: epochs are looked up by topic name, and a recreated topic may have the same
        epochs. Raises LogDamaged, or IdentityChanged if the topic was recreated.
        """
        self._require_same_log(self._reached, planned_end)
        if not self._same_topic():
            self._client.layout(self._reader.topic, topic_id=self._reader.topic_id)

    def _same_topic(self) -> bool:
        """Return True if the leader accepts a fetch by the topic's id (KIP-516). Any other answer proves nothing.

        The fetch goes to the broker that has just answered about the epochs, never to a nearer replica: another broker
        may still have a topic that this one has recreated. Mostly there is nothing to return at the high watermark. The
        metadata of a topic of 1,000 partitions, which has its id too, takes 5 milliseconds to decode.
        """
        probe = FetchOrder(
            layout=self._client.last_layout(self._reader.topic, topic_id=self._reader.topic_id),
            partition=self._partition,
            offset=self._high_watermark,
            bytes_max=_ONE_BATCH_BYTES,
            wait_ms=0,
            committed=True,
        )
        try:
            return self._client.fetch(probe).result().error_code == 0
        except RetriableError:
            return False

    def _require_same_log(self, *positions: Position | None) -> None:
        """Check that the log still holds the record before each position: a new leader may have lost records (KIP-320).

        Skips positions without leader epoch. Raises LogDamaged if a record is gone.
        """
        known = [one for one in positions if one is not None and one.leader_epoch != NO_EPOCH]
        for epoch in dict.fromkeys(one.leader_epoch for one in known):
            end = self._client.epoch_ends(self._layout, {self._partition: epoch})[self._partition]
            for position in known:
                if position.leader_epoch != epoch:
                    continue
                if message := diverged_message(self._place, position, end):
                    # Epochs are looked up by topic name: if the topic was recreated, raise IdentityChanged instead.
                    self._client.layout(self._reader.topic, topic_id=self._reader.topic_id)
                    raise LogDamaged(
                        message,
                        hint="check this cluster for unclean leader elections: acknowledged records are lost. "
                        "Nothing was "
                        "committed from this read, and earlier commits are unchanged. A new plan fails, too, if a "
                        "boundary of "
                        "its interval lies in the lost part; then continue in a new pipeline, with a warehouse of "
                        "its own, "
                        "from the last committed interval.",
                    )
