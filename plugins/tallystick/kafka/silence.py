"""Empty answers to fetches: they prove nothing about the log, so they are asked again, with patience, and then an error.

A broker may answer a fetch below the last stable offset with no records and no error although records are there:

- tiered storage (KIP-405): when the remote read is not done within `remote.fetch.max.wait.ms` (500 ms by default), the
  broker sends the local result, which is empty (DelayedRemoteFetch.onComplete in Kafka's source);
- a leader that knows only the number of its high watermark, and not yet its place in a segment, sends nothing
  (LocalLog.read, "message-offset-only");
- a replica that lags, a quota, a proxy between.

So only a batch proves what lies before it: brokers read a log in order, from the fetch offset on, and the first batch of
an answer is the first one that reaches beyond that offset (LocalLog.read and RemoteLogManager.read go from segment to
segment until one gives records; KIP-74: the first batch comes whole). When it begins at or after some offset, nothing is
left between the fetch offset and that one. Nothing weaker is a proof: that the log ends somewhere (ListOffsets), or that
a fetch at a later offset brings records, which may lie on another tier, says nothing of the offsets before.

The proof comes also at the end of a compacted log: the cleaner leaves the active segment and what is beyond the last
stable offset alone (LogCleanerManager.cleanableOffsets), and of what it cleans it keeps the last batch, emptied, "so
that last offset information is not lost" (LogCleaner.cleanInto). A log of Apache Kafka holds a batch that reaches to its
end, whatever was compacted.
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
    """Consecutive empty answers to one reading of a partition: how long they have lasted, and when to give up.

    The time is the client's clock, which does not run while a broker throttles.
    """

    def __init__(self, client: KafkaClient, place: str) -> None:
        self._client = client
        self._place = place
        self._since = self._logged_at = 0.0
        self._high_watermark = 0
        # Empty answers since the last one that held records. After the first, ask for one batch only: that takes a
        # broker the least time.
        self.answers = 0

    def ended(self) -> None:
        """Note an answer that held records: the next empty one begins a new silence."""
        self.answers = 0

    def heard(self, fetched: Fetched) -> None:
        """Count an empty answer."""
        if not self.answers:
            self._since = self._logged_at = self._client.clock()
        self.answers += 1
        self._high_watermark = fetched.high_watermark

    def wait(self, offset: int) -> None:
        """Pause before the next fetch from `offset`, longer the more empty answers there were.

        Raises KafkaUnavailable, which is retried, when they have lasted for the setting `empty_fetch_timeout_ms`.
        """
        now = self._client.clock()
        waited_s = now - self._since
        if waited_s >= self._client.silence_s:
            raise self._unavailable(offset, waited_s)
        if now - self._logged_at >= _LOGGED_EVERY_S:
            self._logged_at = now
            _log.warning(
                "%s from offset %d: %d empty answers in %.0f s, and no proof that nothing is there; asking again",
                self._place,
                offset,
                self.answers,
                waited_s,
            )
        self._client.pause(self.answers - 1)

    def _unavailable(self, offset: int, waited_s: float) -> KafkaUnavailable:
        return KafkaUnavailable(
            f"Kafka at {self._client.endpoint} did not give {self._place} from offset {offset}: {self.answers} answers "
            f"in {waited_s:.0f} s were empty, without an error, below the high watermark {self._high_watermark}. "
            "That does not prove that nothing is there.",
            hint="retry. If it stays: with tiered storage, raise remote.fetch.max.wait.ms on the brokers (500 ms by "
            "default), or empty_fetch_timeout_ms of the connection; else look into the leader's log. At the end of a "
            "compacted partition, the next record that is written to it is the proof.",
        )
