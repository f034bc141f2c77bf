"""The last step of `make setup`: what cannot be a wheel. Fetches the Kafka broker and compiles the decoders.

`--decoders` leaves the broker out: an image brings its own. Safe to repeat: both keep what is there; an interrupted
download is not taken for a whole one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tallystick.errors import TallystickError


def main(words: Sequence[str] | None = None) -> int:
    """Prepare this machine; the exit code is 0, or 1 with a sentence that says what is missing."""
    parser = argparse.ArgumentParser(prog="python -m tallystick.local.prepare", description=__doc__)
    parser.add_argument(
        "--decoders", action="store_true", help="compile the decoders, and fetch no broker"
    )
    if not parser.parse_args(words).decoders:
        try:
            _fetch_broker()
        except TallystickError as error:
            print(error, file=sys.stderr)
            return 1
    _compile_decoders()
    print("decoders: compiled", file=sys.stderr)
    return 0


def _fetch_broker() -> None:
    from tallystick.local.kafka import default_jar_folder, fetch_jars

    print(f"Kafka broker: {fetch_jars(default_jar_folder())}", file=sys.stderr)


def _compile_decoders() -> None:
    from tallystick.kafka import decode

    decode.warm()
    _warm_json()


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
