"""The broker's list of aborted transactions, checked against the markers that the log itself holds.

What a committed reader hands out rests on that list. The markers say the same thing in the log (KIP-98), the reader
passes them anyway, and brokers have had errors in either: in KAFKA-13727 the cleaner removed an ABORT marker too early.
So each transaction of which a range holds both data and the end must have one verdict.

What can be checked, and what cannot:

- A transaction is what one producer id wrote to the partition between two of its markers: a broker ends it with a marker
  before the same id, of the same or a later epoch, begins the next one.
- A transaction without data in the range is not checked: an ABORT marker alone is in order, because a broker lists no
  empty transaction (ProducerAppendInfo.appendEndTxnMarker).
- One that begins before the range is checked by its data inside, in each range for itself.
- One whose marker lies beyond the range is checked as far as the last answer reaches; beyond that the list alone counts.
- Compaction removes a marker only after all data of its transaction (LogCleaner.shouldDiscardBatch), and may leave
  batches without records, of data and of markers: an emptied data batch is no data, an emptied marker has no verdict.
- Between two answers it may remove the rest of one transaction, so that the next one of the same id seems to be the same:
  on a compacted topic a contradiction across answers proves nothing, and the range is read again.
"""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.errors import KafkaUnavailable, LogDamaged
from tallystick.kafka.batches import Batch


@dataclass(frozen=True, slots=True)
class _OpenTransaction:
    """A transaction whose data were seen and whose marker was not: the list's verdict, and where it was first given."""

    aborted: bool
    offset: int
    answer: int


class MarkerCheck:
    """The transactions of one range under way, by producer id. Batches must come in order."""

    def __init__(self, place: str, *, compacted: bool = False) -> None:
        self._place = place
        self._compacted = compacted
        self._open: dict[int, _OpenTransaction] = {}
        self._answer = 0

    @property
    def undecided(self) -> bool:
        """Whether a transaction is under way whose marker was not seen yet."""
        return bool(self._open)

    def next_answer(self) -> None:
        """Note that the batches from here on come from another answer."""
        self._answer += 1

    def data(self, batch: Batch, *, aborted: bool) -> None:
        """Note the list's verdict on a data batch.

        Raises LogDamaged when it differs from the one before, and KafkaUnavailable when compaction may be the reason.
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
        """Compare a marker with the list's verdict on the transaction that it ends; `abort` None: it was emptied.

        Raises LogDamaged when they differ, and KafkaUnavailable when compaction may be the reason.
        """
        known = self._open.pop(batch.producer_id, None)
        if known is None or abort is None or known.aborted is abort:
            return
        raise self._contradiction(
            known,
            batch,
            f"the broker lists its records from offset {known.offset} on as {_verdict(known.aborted)}, the marker at "
            f"offset {batch.base_offset} says {'ABORT' if abort else 'COMMIT'}",
        )

    def _contradiction(
        self, known: _OpenTransaction, batch: Batch, what: str
    ) -> LogDamaged | KafkaUnavailable:
        if self._compacted and known.answer != self._answer:
            return KafkaUnavailable(
                f"{self._place}, a transaction of producer id {batch.producer_id}: {what}. The topic is compacted: "
                "it may have been cleaned between the broker's two answers.",
                hint="nothing was committed from this read; run again. If the same offsets are named again, the "
                "broker has a defect, or its index of transactions is damaged.",
            )
        return LogDamaged(
            f"{self._place}, a transaction of producer id {batch.producer_id}: {what}.",
            hint="nothing was committed from this read. A broker with a defect (KAFKA-13727 was one) or a damaged "
            "index of transactions gives records that were aborted, or withholds committed ones, from every consumer. "
            "Look at the partition's .log and .txnindex files with kafka-dump-log.sh on its leader. If another leader or "
            "an upgraded broker, gives an answer without the contradiction, run again.",
        )


def _verdict(aborted: bool) -> str:
    return "aborted" if aborted else "committed"
