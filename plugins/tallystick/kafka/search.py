"""Finds the record at which an instant splits one partition's log, by batch headers, and by records only if necessary."""

from __future__ import annotations

import logging
from typing import Final

import kafka.errors as kerrors

from tallystick.format.offsets import Position
from tallystick.kafka.batches import Batch, Scratch, damaged, each_record, walk
from tallystick.kafka.client import KafkaClient
from tallystick.kafka.connection import RetriableError
from tallystick.kafka.silence import Silence
from tallystick.kafka.wire import NO_EPOCH, Fetched, FetchOrder, TopicLayout

_log = logging.getLogger(__name__)
# Most scans are short: the first fetch is small, and each one is twice as large as the one before.
_SCAN_BYTES: Final = 1 << 20
_SCAN_BYTES_MAX: Final = 4 << 20
_LOGGED_EVERY_S: Final = 30.0
# The first batch of an answer comes whole, however few bytes are requested (KIP-74).
_ONE_BATCH_BYTES: Final = 1
_WAIT_MS: Final = 100
_ATTEMPTS_MAX: Final = 10
# A log provably begins before an instant if 10 batches lie before its split, or 2 that are a day older.
_BATCHES_PROVE: Final = 10
_OLD_BATCHES_PROVE: Final = 2
_OLD_MS: Final = 86_400_000
_OTHER_TOPIC: Final = (kerrors.UnknownTopicIdError.errno, kerrors.InconsistentTopicIdError.errno)


class Search:
    """The search through one partition's log, by batch headers, for the record at which `at_ms` splits it."""

    def __init__(
        self,
        client: KafkaClient,
        layout: TopicLayout,
        partition: int,
        at_ms: int,
        *,
        latest_ms: int | None = None,
        end: int = 0,
    ) -> None:
        self._client = client
        self._layout = layout
        self._partition = partition
        self._at_ms = at_ms
        self._latest_ms = latest_ms
        # A high watermark that was reported before: a leader that reports less has just been elected.
        self._end = end
        self._scratch = Scratch()
        self._passed: Batch | None = None  # the last batch before the split
        self.place = f"topic {layout.name!r} partition {partition}"

    def first(self, start: int) -> int:
        """Return the offset of the first data record from `start` on that is late enough, or the high watermark.

        Returns the high watermark only if every offset before it was read. Raises KafkaUnavailable if answers below it
        are empty for too long, LogDamaged if the bytes are not a log.

        A scan reads whole batches, because brokers send no less, and checks their headers. It decodes records only in a
        batch whose latest timestamp is late enough. `start` is before the split only if the index of timestamps gave an
        earlier record: a record from the future, for every instant up to its timestamp. A bisection would not help then:
        nothing limits the timestamps of the offsets that it would skip.
        """
        logged_at = self._client.clock()
        bytes_max = _ONE_BATCH_BYTES  # ListOffsets is nearly always right: check one batch before fetching more
        while True:
            fetched = self._fetch(start, bytes_max)
            before = start
            for batch in walk(fetched.records, place=self.place):
                if (found := self._late_record(batch, start)) is not None:
                    return found
                self._passed = batch
                start = max(start, batch.end_offset)
            if fetched.records and start == before:
                raise damaged(self.place, f"expected offset {start} or later, found an earlier one")
            if start >= fetched.high_watermark:
                return start
            bytes_max = max(_SCAN_BYTES, min(2 * bytes_max, _SCAN_BYTES_MAX))
            logged_at = self._log_progress(start, fetched.high_watermark, logged_at)

    def _log_progress(self, offset: int, end: int, logged_at: float) -> float:
        now = self._client.clock()
        if now - logged_at < _LOGGED_EVERY_S:
            return logged_at
        _log.info(
            "%s: searching for the first record of %d ms or later, at offset %d of at most %d. A record with a later "
            "timestamp precedes the interval, so each batch is checked.",
            self.place,
            self._at_ms,
            offset,
            end,
        )
        return now

    def begins_before(self, start: int, split: int) -> bool:
        """Return True if the log from `start` on proves that it begins before the instant of `split`.

        A single record that arrived late proves nothing: the records that retention deleted before it may belong after
        the instant. So ten batches with records must lie between the start and the split, or two that are a day older
        than the instant.
        """
        batches = old = 0
        while start < split:
            fetched = self._fetch(start, _SCAN_BYTES)
            before = start
            for batch in walk(fetched.records, place=self.place):
                if batch.end_offset > split:
                    return False
                if batch.count and not batch.control:
                    batches += 1
                    old += batch.max_timestamp <= self._at_ms - _OLD_MS
                if batches == _BATCHES_PROVE or old == _OLD_BATCHES_PROVE:
                    return True
                start = max(start, batch.end_offset)
            if start == before:
                return False
        return False

    def position(self, offset: int, log_start: int) -> Position:
        """Return the split with the leader epoch of the record before it, -1 if the log does not hold that record."""
        return Position(offset=offset, leader_epoch=self._epoch_before(offset, log_start))

    def _late_record(self, batch: Batch, start: int) -> int | None:
        if batch.control or batch.end_offset <= start or batch.max_timestamp < self._at_ms:
            return None
        before: int | None = None
        for offset, timestamp, _ in each_record(batch, self._scratch.records(batch)):
            late = self._latest_ms is None or timestamp <= self._latest_ms
            if offset >= start and timestamp >= self._at_ms and late:
                if before is not None:
                    self._passed = batch
                return offset
            before = offset
        return None

    def _epoch_before(self, offset: int, log_start: int) -> int:
        if offset <= log_start:
            return NO_EPOCH
        passed = self._passed
        if passed is None or not passed.base_offset < offset <= passed.end_offset:
            fetched = self._fetch(offset - 1, _ONE_BATCH_BYTES)
            passed = next(walk(fetched.records, place=self.place), None)
        if passed is None or passed.base_offset >= offset:
            return NO_EPOCH  # compaction has removed the record
        return passed.leader_epoch

    def _fetch(self, offset: int, bytes_max: int) -> Fetched:
        """Return an answer that has records, or any answer if the offset is at the high watermark.

        Raises KafkaUnavailable if the broker sends neither records nor a proof that there are none (`kafka.silence`).
        """
        silence = Silence(self._client, self.place)
        failures = 0
        while True:
            try:
                fetched = self._once(offset, _ONE_BATCH_BYTES if silence.answers else bytes_max)
            except RetriableError as error:
                failures += 1
                if failures == _ATTEMPTS_MAX:
                    raise self._client.unavailable(
                        f"{self.place} from offset {offset}", error
                    ) from error
                self._layout = self._client.layout(
                    self._layout.name, topic_id=self._layout.topic_id
                )
                self._client.pause(failures - 1)
                continue
            if fetched.records or offset >= fetched.high_watermark:
                return fetched
            silence.add(fetched)
            silence.wait(offset)

    def _once(self, offset: int, bytes_max: int) -> Fetched:
        order = FetchOrder(
            layout=self._layout,
            partition=self._partition,
            offset=offset,
            bytes_max=bytes_max,
            wait_ms=_WAIT_MS,
            committed=False,
        )
        fetched = self._client.fetch(order).result()
        if fetched.error_code in _OTHER_TOPIC:
            self._client.layout(self._layout.name, topic_id=self._layout.topic_id)
            raise RetriableError("a broker does not have the topic's id yet")
        if fetched.error_code == kerrors.CorruptRecordError.errno:
            raise damaged(
                self.place, f"its leader reports that the log is corrupt at offset {offset}"
            )
        if fetched.error_code == kerrors.OffsetOutOfRangeError.errno:
            raise RetriableError(
                f"offset {offset} is out of the leader's range: its log just moved"
            )
        self._client.check_fetched(fetched.error_code, self.place)
        if fetched.high_watermark < self._end:
            raise RetriableError(
                f"expected a high watermark of at least {self._end}, found {fetched.high_watermark} on another leader"
            )
        return fetched
