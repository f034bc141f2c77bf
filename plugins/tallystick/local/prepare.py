"""The last step of `make setup`: what cannot be a wheel. Fetches the Kafka broker and compiles the decoders.

Safe to repeat: both keep what is there; an interrupted download is not taken for a whole one.
"""

from __future__ import annotations

import sys

from tallystick.errors import TallystickError


def main() -> int:
    """Prepare this machine; the exit code is 0, or 1 with a sentence that says what is missing."""
    from tallystick.kafka import decode
    from tallystick.local.kafka import default_jar_folder, fetch_jars

    try:
        print(f"Kafka broker: {fetch_jars(default_jar_folder())}", file=sys.stderr)
    except TallystickError as error:
        print(error, file=sys.stderr)
        return 1
    decode.warm()
    _warm_json()
    print("decoders: compiled", file=sys.stderr)
    return 0


def _warm_json() -> None:
    import pyarrow as pa

    from tallystick.engine.json_rows import JsonDecoder
    from tallystick.pipeline import Column, Json

    every_type = [
        Column(f"c{i}", kind, required=False)
        for i, kind in enumerate(
            ("boolean", "int", "long", "float", "double", "string", "date", "timestamptz")
        )
    ]
    JsonDecoder(Json(every_type)).decode(pa.array([b"{}"], pa.binary()))


if __name__ == "__main__":
    sys.exit(main())
