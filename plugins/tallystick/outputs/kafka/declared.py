"""Declares a topic that gets each committed row once. Light: DAG files import it; `kafka_topic` does the work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tallystick.format import keys
from tallystick.pipeline import Replaced
from tallystick.pipeline.columns import refuse, several

TRANSACTION_ROWS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOutput:
    """Declares a topic that gets the rows of a table as JSON, each once for consumers that read committed ones.

    `key`: columns of the message's key: one text column as it is, several, or another type, as a JSON list; none: no key.
    A null in one of them is refused. `kafka` names the connection. `replaced`: `correct` sends what changed, `refuse`
    keeps an interval that was sent from being replaced. `transaction_rows`: messages per transaction.
    """

    name: str
    table: str
    topic: str
    key: Sequence[str] = ()
    kafka: str = "default"
    replaced: Replaced = "correct"
    transaction_rows: int = TRANSACTION_ROWS

    def __post_init__(self) -> None:
        keys.check_topic(self.topic)
        keys.check_name(self.kafka, "connection")
        object.__setattr__(self, "key", several(self.key, f"the key of output {self.name}"))
        if self.replaced not in ("correct", "refuse"):
            raise refuse(
                f"output {self.name}: replaced={self.replaced!r} is not what a topic can do.",
                "use correct or refuse.",
            )

    @property
    def target(self) -> str:
        """What the name stands for."""
        return f"kafka:{self.kafka}/{self.topic}"
