"""Airflow's LocalExecutor for stacks of tests: its workers import what tasks import once, and each task is a fork of one.

Imports took most of a task's CPU time, and a stack of the tests runs hundreds of tasks. DAG files and jobs are not
imported here: each task reads them anew.
"""

from __future__ import annotations

import importlib

from airflow.executors.local_executor import LocalExecutor

MODULES = (
    "airflow.dag_processing.bundles.local",
    "airflow.dag_processing.dagbag",
    "airflow.providers.common.io.assets.file",
    "airflow.sdk.execution_time.supervisor",
    "airflow.sdk.execution_time.task_runner",
    "boto3.s3.transfer",
    "jinja2.ext",
    "tallystick.airflow.dag",
    "tallystick.airflow.operators.commit",
    "tallystick.airflow.operators.plan",
    "tallystick.airflow.operators.publish",
    "tallystick.airflow.operators.stage",
    "tallystick.airflow.plugin",
    "tallystick.kafka.planning",
    "tallystick.store.s3",
    "tallystick.tables.rows",
    "tallystick.tables.staging",
)


class PreloadedExecutor(LocalExecutor):
    """The executor of the embedded stack, with imports before its workers are forked."""

    def start(self) -> None:
        """Import the modules, and fork the workers. Safe to repeat: a module is imported once."""
        for name in MODULES:
            importlib.import_module(name)
        super().start()
