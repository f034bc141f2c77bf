"""Empty answers to fetches. They prove nothing about the log, so the fetch is repeated, up to a time limit.

A broker may answer a fetch below the last stable offset with no records and no error although there are records:

- Tiered storage (KIP-405): if the remote read does not finish within `remote.fetch.max.wait.ms` (500 ms by default), the
  broker sends the local result, which is empty (DelayedRemoteFetch.onComplete in Kafka's source).
- A leader that has only the number of its high watermark, and not yet its position in a segment, sends nothing
  (LocalLog.read, "message-offset-only").
- A replica lags, a quota applies, or a proxy intervenes.

Only a batch proves that offsets before it are absent. Brokers read a log in order, from the fetch offset on, and the
first batch of an answer is the first one that reaches beyond that offset (LocalLog.read and RemoteLogManager.read go from
segment to segment until one has records; KIP-74: the first batch comes whole). If that batch begins at or after some
offset, the log has no records between the fetch offset and that offset. Nothing weaker is a proof. The end of the log
(ListOffsets) proves nothing about the offsets before it. Nor do the records of a fetch at a later offset: they may be on
another tier.

The proof also exists at the end of a compacted log. The cleaner does not touch the active segment or offsets beyond the
last stable offset (LogCleanerManager.cleanableOffsets). When it cleans, it keeps the last batch, emptied, "so that last
offset information is not lost" (LogCleaner.cleanInto). So a log of Apache Kafka has a batch that reaches to its end,
regardless of compaction.
"""

from __future__ import annotations

import logging
from typing import Final

from tallystick.errors import KafkaUnavailable
from tallystick.kafka.client import KafkaClient
from tallystick.kafka.wire import Fetched

_log = logging.getLogger(__name__)
_LOGGED_EVERY_S: Final = 30.0


class Silence:
    """The consecutive empty answers to the read of one partition: their number, their duration and the time limit.

    Durations are on the client's clock, which does not run while a broker throttles.
    """

    def __init__(self, client: KafkaClient, place: str) -> None:
        self._client = client
        self._place = place
        self._since = self._logged_at = 0.0
        self._high_watermark = 0
        # The number of empty answers since the last one that had records. After the first, callers fetch only one
        # batch, which takes a broker the least time.
        self.answers = 0

    def ended(self) -> None:
        """Reset the count after an answer with records."""
        self.answers = 0

    def add(self, fetched: Fetched) -> None:
        """Count an empty answer."""
        if not self.answers:
            self._since = self._logged_at = self._client.clock()
        self.answers += 1
        self._high_watermark = fetched.high_watermark

    def wait(self, offset: int) -> None:
        """Pause before the next fetch from `offset`; the pause grows with the number of empty answers.

        Raises KafkaUnavailable, which is retried, when the answers have been empty for `empty_fetch_timeout_ms`.
        """
        now = self._client.clock()
        waited_s = now - self._since
        if waited_s >= self._client.silence_s:
            raise self._unavailable(offset, waited_s)
        if now - self._logged_at >= _LOGGED_EVERY_S:
            self._logged_at = now
            _log.warning(
                "%s from offset %d: %d empty answers in %.0f s, which do not prove that there are no records; "
                "fetching again",
                self._place,
                offset,
                self.answers,
                waited_s,
            )
        self._client.pause(self.answers - 1)

    def _unavailable(self, offset: int, waited_s: float) -> KafkaUnavailable:
        return KafkaUnavailable(
            f"Kafka at {self._client.endpoint} did not return {self._place} from offset {offset}: {self.answers} answers "
            f"in {waited_s:.0f} s were empty, without an error, below the high watermark {self._high_watermark}. "
            "That does not prove that there are no records.",
            hint="try again. If it persists: with tiered storage, raise remote.fetch.max.wait.ms on the brokers (500 "
            "ms by "
            "default), or empty_fetch_timeout_ms of the connection; else check the leader's log. At the end of a "
            "compacted partition, the next record that is written to it is the proof.",
        )
