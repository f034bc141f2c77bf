"""Runs the embedded S3 server: ministack's S3 service on the loopback interface, with objects on disk and a key check."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tallystick.errors import StoreUnavailable
from tallystick_devstack.process import (
    ChildProcess,
    base_environment,
    free_port,
    port_accepts,
    wait_for_port,
    wait_until,
)

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

ACCESS_KEY = "tallystick"
REGION = "us-east-1"
# The folder of this package, installed or not.
_PATH = Path(__file__).resolve().parents[1]
_START_S = 120.0
_META = ".meta.json"


class S3Server:
    """An S3 server with its objects in `state_dir`. They survive a stop, a kill and a change of port.

    It accepts only requests that are signed with `secret_key` (see s3_guard.py). If it is None, a random key is created.
    """

    def __init__(
        self, state_dir: Path, port: int | None = None, *, secret_key: str | None = None
    ) -> None:
        self.state_dir = state_dir.resolve()
        self.port = port or free_port()
        self.secret_key = secret_key or secrets.token_hex(24)
        self.process: ChildProcess | None = None

    @property
    def endpoint(self) -> str:
        """URL of the server."""
        return f"http://127.0.0.1:{self.port}"

    def environment(self) -> dict[str, str]:
        """Return the variables with which boto3, DuckDB and PyArrow use this server."""
        return {
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
        }

    def start(self) -> None:
        """Start the server and wait until it accepts connections.

        Raises SettingsError with its last log lines if it does not, or if another process holds its port.
        Safe to repeat: a running server is not touched.
        """
        if self.alive:
            return
        wait_for_port(self.port, "the S3 server")
        objects, scratch = self.state_dir / "objects", self.state_dir / "tmp"
        for folder in (objects, scratch):
            folder.mkdir(parents=True, exist_ok=True)
        repair_torn_objects(objects)
        settings = {
            "BIND_HOST": "127.0.0.1",
            "GATEWAY_PORT": str(self.port),
            "SERVICES": "s3",
            "S3_PERSIST": "1",
            "S3_DATA_DIR": str(objects),
            "PERSIST_STATE": "1",
            "STATE_DIR": str(self.state_dir / "state"),
            "TMPDIR": str(scratch),
            # By default ministack listens on more ports and removes containers of other ministacks.
            "SFTP_ENABLED": "0",
            "IOT_MTLS_ENABLED": "0",
            "DOCKER_HOST": "unix:///nonexistent",
            # The keys are in the environment, which other users cannot read. The server also checks presigned URLs.
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
        }
        self.process = ChildProcess(
            [sys.executable, "-m", "tallystick_devstack.s3_guard"],
            name="the S3 server",
            log_path=self.state_dir / "s3.log",
            env=base_environment() | settings | {"PYTHONPATH": str(_PATH)},
        )
        wait_until(
            lambda: port_accepts(self.port),
            deadline_s=_START_S,
            what="the S3 server's answer",
            process=self.process,
        )

    @property
    def alive(self) -> bool:
        """True if the server runs."""
        return self.process is not None and self.process.alive

    def stop(self) -> None:
        """Stop the server. Safe to repeat: a stopped server is not touched."""
        if self.process is not None:
            self.process.stop()

    def client(self) -> S3Client:
        """Return a boto3 client of this server."""
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=self.secret_key,
            region_name=REGION,
        )

    def create_bucket(self, name: str) -> None:
        """Create the bucket. Raises StoreUnavailable if the server does not create it.

        Safe to repeat: if the owner creates the bucket again, S3 returns success.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            self.client().create_bucket(Bucket=name)
        except (BotoCoreError, ClientError) as error:
            raise StoreUnavailable(
                f"the S3 server at {self.endpoint} did not create the bucket {name}: {error}.",
                hint=f"read {self.state_dir / 's3.log'}, then try again.",
            ) from error


def repair_torn_objects(objects: Path) -> None:
    """Repair the folder of a killed server: delete half-written files, and metadata files that do not fit their body.

    The server writes an object's body, then a metadata file next to it with the ETag. If it is killed between the two,
    the new body has the old ETag, and a conditional write that must fail would succeed. If there is no metadata file, the
    server computes the ETag from the body. Safe to repeat: complete objects are not touched.
    """
    for folder, _, names in os.walk(objects):
        present = set(names)
        for name in names:
            path = Path(folder, name)
            if name.endswith(".tmp") and name + _META not in present:
                path.unlink()
            elif name.endswith(_META):
                body = path.with_name(name.removesuffix(_META))
                if not body.exists() or body.stat().st_mtime_ns > path.stat().st_mtime_ns:
                    path.unlink()
