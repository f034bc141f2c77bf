"""Runs Kafka Connect until all records are in the table, then ends it. This is the process that is measured.

    python connect_run.py ORDER.json

A worker of Kafka Connect never ends by itself. This script asks the broker for the committed offsets of the connector's
group; when they are the ends of all partitions, it waits for the commit of the coordinator, which makes the rows visible:
the table's current snapshot has the number of rows that is expected. If that does not happen within `patience_s`, the
worker is ended all the same, and the check of the harness finds what is missing. Imports little: it is measured too.
"""

from __future__ import annotations

import http.client
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

POLL_S = 0.25
STATUS_S = 2.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class ConnectRun:
    """One worker, from its start to its end."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        self._began = time.monotonic()
        self._process = subprocess.Popen(order["argv"], stdin=subprocess.DEVNULL)
        self._admin = AdminClient({"bootstrap.servers": order["bootstrap"]})
        self._status_at = 0.0

    def finish(self) -> int:
        """Wait until the rows are visible, end the worker, and return the exit code."""
        try:
            self._until("the tasks run", self._runs, float("inf"))
            self._until("the group's offsets are the ends", self._at_ends, float("inf"))
            patience_s = float(self.order["patience_s"])
            if not self._until("the rows are visible", self._visible, patience_s):
                print(f"the rows were not visible within {patience_s:g} s", flush=True)
        except ConnectFailed as error:
            print(error, flush=True)
            return 1
        finally:
            # The last commit is complete, so that a stop by TERM would only add seconds to its time.
            if self.order["is_killed"]:
                self._process.kill()
            else:
                self._process.terminate()
            self._process.wait()
        return 0

    def _until(self, what: str, check: Callable[[], bool], patience_s: float) -> bool:
        deadline = time.monotonic() + patience_s
        while not check():
            self._require_alive()
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        wall_s = time.monotonic() - self._began
        print(f"{what}: after {wall_s:.1f} s and {self._cpu_s():.1f} CPU-s", flush=True)
        return True

    def _require_alive(self) -> None:
        if self._process.poll() is not None:
            raise ConnectFailed(f"the worker ended with exit code {self._process.returncode}")
        if time.monotonic() > self._status_at + STATUS_S:
            self._status_at = time.monotonic()
            for task in self._tasks():
                if task["state"] == "FAILED":
                    raise ConnectFailed(f"task {task['id']} failed: {task.get('trace')}")

    def _cpu_s(self) -> float:
        stat = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / TICKS_PER_S

    def _tasks(self) -> list[dict[str, Any]]:
        with (
            suppress(OSError, ValueError, http.client.HTTPException),
            closing(http.client.HTTPConnection("127.0.0.1", self.order["port"], timeout=5)) as c,
        ):
            c.request("GET", f"/connectors/{self.order['connector']}/status")
            return list(json.loads(c.getresponse().read()).get("tasks", []))
        return []

    def _runs(self) -> bool:
        states = [task["state"] for task in self._tasks()]
        return len(states) == self.order["tasks"] and set(states) == {"RUNNING"}

    def _at_ends(self) -> bool:
        ends = self.order["ends"]
        places = [TopicPartition(self.order["topic"], p) for p in range(len(ends))]
        asked = ConsumerGroupTopicPartitions(self.order["group"], places)
        answer = self._admin.list_consumer_group_offsets([asked])[self.order["group"]].result(30)
        found = {place.partition: place.offset for place in answer.topic_partitions}
        return all(found.get(p, -1) >= end for p, end in enumerate(ends))

    def _visible(self) -> bool:
        with (
            suppress(sqlite3.OperationalError),  # the coordinator is writing
            closing(sqlite3.connect(f"file:{self.order['catalog']}?mode=ro", uri=True)) as db,
        ):
            row = db.execute("select metadata_location from iceberg_tables").fetchone()
            metadata = json.loads(Path(row[0].removeprefix("file:")).read_text())
            current = metadata.get("current-snapshot-id")
            for snapshot in metadata.get("snapshots", []):
                if snapshot["snapshot-id"] == current:
                    rows = int(snapshot["summary"]["total-records"])
                    return rows >= int(self.order["rows"])
        return False


class ConnectFailed(Exception):  # noqa: N818  (named for what happened)
    """The worker or one of its tasks has failed."""


if __name__ == "__main__":
    sys.exit(ConnectRun(json.loads(Path(sys.argv[1]).read_text())).finish())
