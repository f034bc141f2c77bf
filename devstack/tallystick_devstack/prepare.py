"""The last step of `make setup`: what cannot be a wheel. The Kafka broker, compiled decoders, archives of Java classes.

Safe to repeat: each keeps what is there; what was interrupted is not taken for a whole.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tallystick.errors import TallystickError
from tallystick.spark.precompile import compile_decoders


def main() -> int:
    """Prepare this machine; the exit code is 0, or 1 with a sentence that names what is missing."""
    with ThreadPoolExecutor(1) as executor:
        # Half a minute of one core, while the broker is fetched.
        spark = executor.submit(_archived, "Spark", _archive_spark)
        try:
            _fetch_broker()
        except TallystickError as error:
            print(error, file=sys.stderr)
            return 1
        compile_decoders()
        print("decoders: compiled", file=sys.stderr)
        print(_archived("Kafka", _archive_kafka), file=sys.stderr)
        print(spark.result(), file=sys.stderr)
    return 0


def _archived(program: str, archive: Callable[[], None]) -> str:
    """Archive a program's classes, and return how that ended: without an archive all works as well, and starts later."""
    try:
        archive()
    except (OSError, TallystickError) as error:
        return f"{program}'s classes: not archived, it will start more slowly: {error}"
    return f"{program}'s classes: archived"


def _archive_kafka() -> None:
    from tallystick_devstack.kafka import default_jar_folder, make_class_archive

    make_class_archive(default_jar_folder())


def _archive_spark() -> None:
    from tallystick_devstack.class_archive import make_spark_archive

    make_spark_archive()


def _fetch_broker() -> None:
    from tallystick_devstack.kafka import default_jar_folder, fetch_jars

    print(f"Kafka broker: {fetch_jars(default_jar_folder())}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
