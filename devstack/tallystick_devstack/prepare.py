"""The last step of `make setup`: gets the Kafka broker and the schema registry, compiles the decoders, archives classes.

Safe to repeat: each step keeps an existing result, and an interrupted step leaves no result.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tallystick.errors import TallystickError
from tallystick.spark.precompile import compile_decoders


def main() -> int:
    """Prepare this machine. Return the exit code: 0, or 1 if a server cannot be fetched; then stderr has the reason."""
    with ThreadPoolExecutor(1) as executor:
        # This takes half a minute of one core, while the servers are downloaded.
        spark = executor.submit(_archived, "Spark", _archive_spark)
        try:
            _fetch_broker()
            _fetch_registry()
        except TallystickError as error:
            print(error, file=sys.stderr)
            return 1
        compile_decoders()
        print("decoders: compiled", file=sys.stderr)
        print(_archived("Kafka", _archive_kafka), file=sys.stderr)
        print(_archived("the schema registry", _archive_registry), file=sys.stderr)
        print(spark.result(), file=sys.stderr)
    return 0


def _archived(program: str, archive: Callable[[], None]) -> str:
    """Archive the classes of a program and return the outcome as text. If it fails, the program starts more slowly."""
    try:
        archive()
    except (OSError, TallystickError) as error:
        return f"{program}'s classes: not archived, so it starts more slowly: {error}"
    return f"{program}'s classes: archived"


def _archive_kafka() -> None:
    from tallystick_devstack.kafka import default_jar_folder, make_class_archive

    make_class_archive(default_jar_folder())


def _archive_registry() -> None:
    from tallystick_devstack.registry import default_registry_folder, make_registry_class_archive

    make_registry_class_archive(default_registry_folder())


def _archive_spark() -> None:
    from tallystick_devstack.class_archive import make_spark_archive

    make_spark_archive()


def _fetch_broker() -> None:
    from tallystick_devstack.kafka import default_jar_folder, fetch_jars

    print(f"Kafka broker: {fetch_jars(default_jar_folder())}", file=sys.stderr)


def _fetch_registry() -> None:
    from tallystick_devstack.registry import default_registry_folder, fetch_registry

    print(f"schema registry: {fetch_registry(default_registry_folder())}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
