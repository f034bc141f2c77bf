"""The last step of `make setup`: what cannot be a wheel. The Kafka broker, compiled decoders, archives of Java classes.

`--decoders` makes the decoders alone: an image brings its own broker. Safe to repeat: each keeps what is there; what
was interrupted is not taken for a whole.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
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
        # Half a minute of one core, beside what waits for the network.
        spark = None if decoders_alone else beside.submit(_archived, "Spark", _archive_spark)
        if not decoders_alone:
            try:
                _fetch_broker()
            except TallystickError as error:
                print(error, file=sys.stderr)
                return 1
        _compile_decoders()
        print("decoders: compiled", file=sys.stderr)
        if spark is not None:
            print(_archived("Kafka", _archive_kafka), file=sys.stderr)
            print(spark.result(), file=sys.stderr)
    return 0


def _archived(program: str, archive: Callable[[], None]) -> str:
    """Archive a program's classes, and tell how that ended: without an archive all works as well, and starts later."""
    try:
        archive()
    except (OSError, TallystickError) as error:
        return f"{program}'s classes: not archived, it will start more slowly: {error}"
    return f"{program}'s classes: archived"


def _archive_kafka() -> None:
    from tallystick.local.kafka import default_jar_folder, make_class_archive

    make_class_archive(default_jar_folder())


def _archive_spark() -> None:
    from tallystick.local.class_archive import make_spark_archive

    make_spark_archive()


def _fetch_broker() -> None:
    from tallystick.local.kafka import default_jar_folder, fetch_jars

    print(f"Kafka broker: {fetch_jars(default_jar_folder())}", file=sys.stderr)


def _compile_decoders() -> None:
    from tallystick.kafka import decode

    decode.warm()
    _warm_json()


def _warm_json() -> None:
    import pyarrow as pa

    from tallystick.engine.decode.json.rows import JsonDecoder
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
