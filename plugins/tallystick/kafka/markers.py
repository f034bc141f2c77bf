"""Checks the broker's list of aborted transactions against the transaction markers in the log.

The records that a committed read returns depend on that list. The markers contain the same information in the log
(KIP-98), and the reader passes them anyway. Brokers have had defects in both: in KAFKA-13727 the cleaner removed an ABORT
marker too early. So if a range holds data of a transaction and its marker, the list must give the same verdict (aborted
or committed) on all of the data, and the marker must match it.

The checks and their limits:

- A transaction is all data that one producer id wrote to the partition between two of its markers. A broker writes the
  marker of a transaction before the same id, with the same or a later epoch, begins the next one.
- A transaction without data in the range is not checked. An ABORT marker alone is valid, because a broker does not list
  empty transactions (ProducerAppendInfo.appendEndTxnMarker).
- If a transaction begins before the range, its data inside the range are checked, in each range separately.
- If the marker lies beyond the range, the transaction is checked as far as the last answer reaches. Beyond that, only
  the list counts.
- Compaction removes a marker only after all data of its transaction (LogCleaner.shouldDiscardBatch). It may leave empty
  batches of data and of markers: an empty data batch does not count as data, an empty marker has no verdict.
- Between two answers, compaction may remove the rest of one transaction, so that the next one of the same id looks like
  its continuation. On a compacted topic a contradiction between two answers proves nothing, and the range is read again.
"""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.errors import KafkaUnavailable, LogDamaged
from tallystick.kafka.batches import Batch


@dataclass(frozen=True, slots=True)
class _OpenTransaction:
    """A transaction with data read and no marker read yet: the list's verdict, and the batch of the first verdict."""

    aborted: bool
    offset: int
    answer: int


class MarkerCheck:
    """The open transactions of a range in progress, by producer id. Batches must come in order."""

    def __init__(self, place: str, *, compacted: bool = False) -> None:
        self._place = place
        self._compacted = compacted
        self._open: dict[int, _OpenTransaction] = {}
        self._answer = 0

    @property
    def undecided(self) -> bool:
        """True if a transaction is open: the check has its data and not yet its marker."""
        return bool(self._open)

    def next_answer(self) -> None:
        """Record that the next batches come from another fetch answer."""
        self._answer += 1

    def data(self, batch: Batch, *, aborted: bool) -> None:
        """Record the list's verdict on a data batch.

        Raises LogDamaged if it differs from the verdict on an earlier batch of the same transaction, or
        KafkaUnavailable if compaction may be the reason.
        """
        if not batch.transactional or not batch.count:
            return
        known = self._open.get(batch.producer_id)
        if known is None:
            self._open[batch.producer_id] = _OpenTransaction(
                aborted, batch.base_offset, self._answer
            )
        elif known.aborted is not aborted:
            raise self._contradiction(
                known,
                batch,
                f"the broker lists its records at offset {known.offset} as {_verdict(known.aborted)}, those at offset "
                f"{batch.base_offset} as {_verdict(aborted)}",
            )

    def marker(self, batch: Batch, *, abort: bool | None) -> None:
        """Compare a marker with the list's verdict on the transaction that it ends; `abort` is None if it is empty.

        Raises LogDamaged if they differ, or KafkaUnavailable if compaction may be the reason.
        """
        known = self._open.pop(batch.producer_id, None)
        if known is None or abort is None or known.aborted is abort:
            return
        raise self._contradiction(
            known,
            batch,
            f"the broker lists its records from offset {known.offset} on as {_verdict(known.aborted)}, the marker at "
            f"offset {batch.base_offset} is {'ABORT' if abort else 'COMMIT'}",
        )

    def _contradiction(
        self, known: _OpenTransaction, batch: Batch, what: str
    ) -> LogDamaged | KafkaUnavailable:
        if self._compacted and known.answer != self._answer:
            return KafkaUnavailable(
                f"{self._place}, a transaction of producer id {batch.producer_id}: {what}. The topic is compacted: "
                "it may have been cleaned between two answers of the broker.",
                hint="run again. If the same offsets are reported again, the broker has a defect, or its index of "
                "transactions is damaged. Nothing was committed from this read.",
            )
        return LogDamaged(
            f"{self._place}, a transaction of producer id {batch.producer_id}: {what}.",
            hint="check the partition's .log and .txnindex files with kafka-dump-log.sh on its leader. A broker with a "
            "defect (such as KAFKA-13727) or a damaged index of transactions returns aborted records to every "
            "consumer, or "
            "withholds committed ones. If another leader or an upgraded broker gives an answer without the "
            "contradiction, "
            "run again. Nothing was committed from this read.",
        )


def _verdict(aborted: bool) -> str:
    return "aborted" if aborted else "committed"
