"""Topics as a user declares them, with the format of their values."""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.format import keys
from tallystick.pipeline.columns import refuse
from tallystick.pipeline.formats import JSON, Format, Json, Raw, Text


@dataclass(frozen=True, slots=True)
class Topic:
    """A Kafka topic and the format of its values. `decode=None`: JSON with the columns of the pipeline's first table."""

    name: str
    decode: Json | Text | Raw | Format | None = None

    def __post_init__(self) -> None:
        keys.check_topic(self.name)
        if isinstance(self.decode, Format) and self.decode.name == JSON:
            Json.of(self.decode)  # its options are checked here, the others' by their decoder
        if self.decode is not None and not isinstance(self.decode, Json | Text | Raw | Format):
            raise refuse(
                f"topic {self.name}: unknown decode={self.decode!r}.",
                "use Json([Column(...), ...]) for JSON objects, or omit decode for JSON with the columns of the first "
                "table; Text() or Raw() for whole values. Avro, Protobuf and other formats need a decoder that is "
                "installed: Format(name, [Column(...)]).",
            )
