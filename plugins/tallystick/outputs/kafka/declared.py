"""The declaration of a topic that gets each committed row once.

DAG files import this module, so it has light imports only; `topic` does the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tallystick.format import keys
from tallystick.pipeline import Replaced
from tallystick.pipeline.columns import refuse, several

TRANSACTION_ROWS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOutput:
    """The declaration of a topic that gets the rows of a table as JSON, each once for read_committed consumers.

    `key`: the columns of the message's key. If it is one text column, the key is this text; if there are several
    columns or another type, it is a JSON list; if there are none, a message has no key. If one of them is null, the
    interval is refused. `kafka` names the connection. `replaced`: with `correct`, the changes are sent; with
    `refuse`, an interval that was sent cannot be replaced. `transaction_rows` is the number of messages per
    transaction.
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
                f"output {self.name}: unsupported replaced={self.replaced!r} for a topic.",
                "use correct or refuse.",
            )

    @property
    def target(self) -> str:
        """The target that the output's name refers to."""
        return f"kafka:{self.kafka}/{self.topic}"
