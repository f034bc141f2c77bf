"""The process from which Spark forks Python workers in local mode: it loads once what each task would load for itself.

A task needs PyArrow, pandas, the compiled loops and the clients of Kafka and S3. If Spark starts this module instead of
its own daemon (`spark.python.daemon.module`), each worker is a copy of a process that has them.
"""

from __future__ import annotations

from pyspark.daemon import manager

from tallystick.runtime.loading import first_work


def load() -> None:
    """Load what the tasks of most jobs use. Safe to repeat: what is loaded stays."""
    import pyspark.worker

    import tallystick.engine.kafka_splits
    import tallystick.engine.task
    import tallystick.spark.order
    import tallystick.store.s3

    del pyspark, tallystick
    warm()


def warm() -> None:
    """Load the compiled loops of a read and of JSON, the most common format."""
    import pyarrow as pa

    from tallystick.engine.decode.json.rows import JsonDecoder
    from tallystick.kafka import decode
    from tallystick.pipeline import Column, Json

    decode.warm()
    columns = [Column("s", "string", required=False), Column("n", "long", required=False)]
    JsonDecoder(Json(columns)).decode_values(pa.array([b"{}"], pa.binary()))


if __name__ == "__main__":
    # The workers are copies of this process, so no work of theirs is the first.
    with first_work():
        load()
    manager()
