"""The last step of `make setup`: what cannot be a wheel. The Kafka broker, compiled decoders, archives of Java classes.

`--decoders` makes the decoders alone: an image brings its own broker. Safe to repeat: each keeps what is there; what
was interrupted is not taken for a whole.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tallystick.errors import TallystickError


def main(words: Sequence[str] | None = None) -> int:
    """Prepare this machine; the exit code is 0, or 1 with a sentence that says what is missing."""
    parser = argparse.ArgumentParser(prog="python -m tallystick.local.prepare", description=__doc__)
    parser.add_argument(
        "--decoders", action="store_true", help="compile the decoders, and nothing else"
    )
    decoders_alone = parser.parse_args(words).decoders
    with ThreadPoolExecutor(1) as beside:
        spark = None if decoders_alone else beside.submit(_archive_spark)
        if not decoders_alone:
            try:
                _fetch_broker()
            except TallystickError as error:
                print(error, file=sys.stderr)
                return 1
        _compile_decoders()
        print("decoders: compiled", file=sys.stderr)
        if spark is not None:
            _tell_archived("Kafka", _archive_kafka())
            _tell_archived("Spark", spark.result())
    return 0


def _tell_archived(program: str, done: bool) -> None:
    # Without an archive everything works as well, and starts more slowly.
    print(f"{program}'s classes: {'archived' if done else 'not archived'}", file=sys.stderr)


def _archive_kafka() -> bool:
    from tallystick.local.kafka import default_jar_folder, make_class_archive

    return make_class_archive(default_jar_folder())


def _archive_spark() -> bool:
    from tallystick.local.class_archive import make_spark_archive

    return make_spark_archive()


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
