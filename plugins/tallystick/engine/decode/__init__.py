"""Decoders, which turn the bytes of records into typed columns. Each format has its own module or folder.

A decoder of another package imports what it needs from here: docs/how-to/write-a-decoder.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystick.runtime.lazy import lazy

if TYPE_CHECKING:
    from tallystick.engine.decode.decoder import Decoded as Decoded
    from tallystick.engine.decode.decoder import Decoder as Decoder
    from tallystick.engine.decode.decoder import Reason as Reason
    from tallystick.engine.decode.decoder import schema_of as schema_of

__all__ = ["Decoded", "Decoder", "Reason", "schema_of"]

__getattr__ = lazy(__name__, {name: "tallystick.engine.decode.decoder" for name in __all__})


def __dir__() -> list[str]:
    return sorted(__all__)
