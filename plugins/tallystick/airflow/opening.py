"""Opens the lake of a task."""

from __future__ import annotations

import logging

from tallystick.airflow.metrics import counted
from tallystick.lake import Lake
from tallystick.pipeline import Pipeline
from tallystick.runtime import system_runtime
from tallystick.store.open import open_store


def open_lake(pipeline: Pipeline) -> Lake:
    """Open the pipeline's lake with this machine's clock, and set the loggers of libraries to WARNING."""
    return open_warehouse(pipeline.warehouse)


def open_warehouse(uri: str) -> Lake:
    """Open the lake at `uri` with this machine's clock, and set the loggers of libraries to WARNING."""
    for name in ("botocore", "boto3", "urllib3", "pyiceberg"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # It logs each try to connect as an error; the error that ends them all names the server and the cause.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    return Lake(counted(open_store(uri)), system_runtime())
