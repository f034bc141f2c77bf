"""The servers of the benchmark in a control group of their own: broker, S3 server, proxy, schema registry if needed."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from bench.whole_job.contender import BenchEndpoints
from bench.whole_job.counting_proxy import take_counts
from bench.whole_job.measured import ControlGroup
from examples.fanout.produce import register
from tallystick_devstack.kafka import KafkaBroker
from tallystick_devstack.logins import RegistryLogin
from tallystick_devstack.process import (
    ChildProcess,
    base_environment,
    free_port,
    port_accepts,
    wait_until,
)
from tallystick_devstack.registry import SchemaRegistryServer
from tallystick_devstack.s3 import ACCESS_KEY, REGION, S3Server

BUCKET = "bench"
REPO = Path(__file__).resolve().parents[2]
HEAP_MB = 1024


class BenchServers:
    """All servers, with their files in `folder`. Contenders reach the S3 server only through the proxy.

    `with_registry`: a schema registry is one of them.
    """

    def __init__(self, folder: Path, group: ControlGroup, *, with_registry: bool = False) -> None:
        self.group = group
        self._stack = ExitStack()
        self._kafka = KafkaBroker(folder / "kafka", heap_mb=HEAP_MB)
        self._s3 = S3Server(folder / "s3")
        self._registry: SchemaRegistryServer | None = None
        if with_registry:
            login = RegistryLogin(password=secrets.token_hex(16))
            self._registry = SchemaRegistryServer(folder / "registry", login=login)
        self._port, self._control = free_port(), free_port()
        self._log = folder / "proxy.log"

    def __enter__(self) -> BenchServers:
        try:
            with self.group.entered():
                self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        self._stack.callback(self._kafka.stop)
        self._kafka.start()
        self._stack.callback(self._s3.stop)
        self._s3.start()
        self._s3.create_bucket(BUCKET)
        if self._registry is not None:
            self._stack.callback(self._registry.stop)
            self._registry.start()
        words: list[str | Path] = [sys.executable, "-m", "bench.whole_job.counting_proxy"]
        words += ["--upstream", str(self._s3.port), "--port", str(self._port)]
        words += ["--control", str(self._control)]
        proxy = ChildProcess(
            words, name="the proxy", log_path=self._log, env=base_environment(), cwd=REPO
        )
        self._stack.callback(proxy.stop)
        for port in (self._port, self._control):
            wait_until(
                partial(port_accepts, port),
                deadline_s=30,
                what="the proxy's answer",
                process=proxy,
            )

    @property
    def endpoints(self) -> BenchEndpoints:
        """What a contender needs to reach the servers."""
        return BenchEndpoints(
            bootstrap=self._kafka.bootstrap,
            s3_url=f"http://127.0.0.1:{self._port}",
            s3_access_key=ACCESS_KEY,
            s3_secret_key=self._s3.secret_key,
            s3_region=REGION,
            bucket=BUCKET,
            registry=json.dumps(self._registry.client_settings()) if self._registry else None,
        )

    def register(self, topic: str, schema: Mapping[str, Any]) -> int:
        """Register an Avro schema as the subject of a topic's values; return its id. Safe to repeat: see `register`."""
        assert self._registry is not None, "the servers have no registry"
        return register(self._registry.client_settings(), [(topic, schema)])[0]

    def take_counts(self) -> dict[str, object]:
        """Return what the proxy has counted since the last call. Not safe to repeat: see `take_counts`."""
        return take_counts(self._control)

    def stored(self, prefix: str) -> dict[str, int]:
        """Return the size of every object below a prefix by its key, read without the proxy."""
        return {key: size for key, size in self._listed(prefix)}

    def fetch(self, key: str, path: Path) -> None:
        """Download an object without the proxy. Safe to repeat: the file is replaced."""
        self._s3.client().download_file(BUCKET, key, str(path))

    def clear(self, prefix: str) -> None:
        """Delete all objects below a prefix, without the proxy. Safe to repeat: none is left then."""
        client = self._s3.client()
        for key, _ in self._listed(prefix):
            client.delete_object(Bucket=BUCKET, Key=key)

    def _listed(self, prefix: str) -> Iterator[tuple[str, int]]:
        pages = self._s3.client().get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=BUCKET, Prefix=f"{prefix}/"):
            for item in page.get("Contents", []):
                yield item["Key"], item["Size"]
