"""Iceberg's own REST server over its JdbcCatalog: the Java that reads a SQL catalog, and the API of REST catalogs."""

from __future__ import annotations

import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from tallystick_devstack.ivy import cache_folder, fetch_once, retrieve
from tallystick_devstack.java import find_java
from tallystick_devstack.process import wait_until
from tallystick_devstack.testing.servers import free_port

ICEBERG, JETTY, AWS = "1.11.0", "12.1.4", "2.29.52"
_ICEBERG, _AWS = "org.apache.iceberg", "software.amazon.awssdk"
_MODULES = (
    *((_ICEBERG, name, ICEBERG) for name in ("iceberg-core", "iceberg-aws")),
    ("org.eclipse.jetty.ee10", "jetty-ee10-servlet", JETTY),
    *(
        ("org.eclipse.jetty.compression", name, JETTY)
        for name in ("jetty-compression-server", "jetty-compression-gzip")
    ),
    # S3FileIO loads the classes of all these services.
    *(
        (_AWS, name, AWS)
        for name in ("s3", "sts", "kms", "glue", "dynamodb", "url-connection-client")
    ),
    ("org.postgresql", "postgresql", "42.7.8"),
    ("org.xerial", "sqlite-jdbc", "3.50.3.0"),
    ("org.slf4j", "slf4j-simple", "2.0.17"),
    ("org.junit.jupiter", "junit-jupiter-api", "5.14.1"),
)
_FIXTURES = (("iceberg-open-api", "test-fixtures"), ("iceberg-core", "tests"))
DEADLINE_S = 60.0


def jars() -> Path:
    """Return the folder of the server's jars; download them once per machine."""

    def download(scratch: Path, log: Path) -> Path:
        modules = "".join(
            f'<dependency org="{org}" name="{name}" rev="{rev}" conf="*->default"/>'
            for org, name, rev in _MODULES
        )
        folder = scratch / "jars"
        retrieve(modules, folder, types=("jar", "bundle"), what="Iceberg's catalog", log_path=log)
        fixtures = "".join(
            f'<dependency org="{_ICEBERG}" name="{name}" rev="{ICEBERG}" transitive="false">'
            f'<artifact name="{name}" type="jar" ext="jar" m:classifier="{classifier}"/></dependency>'
            for name, classifier in _FIXTURES
        )
        retrieve(fixtures, folder, types=("jar",), what="Iceberg's REST server", log_path=log)
        return folder

    return fetch_once(cache_folder() / f"iceberg-rest-{ICEBERG}-{JETTY}", download)


@contextmanager
def iceberg_server(log: Path, *, s3_url: str, **properties: str) -> Iterator[str]:
    """Run the server with these properties of its catalog; yield its address, without /v1.

    A `.` of a property's name is `_`, and a `-` is `__`.
    """
    port = free_port()
    environment = {
        **{n: v for n, v in os.environ.items() if not n.startswith(("AWS_", "CATALOG_"))},
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test-secret",
        "CATALOG_REST_PORT": str(port),
        "CATALOG_WAREHOUSE": "s3://any/warehouse",
        "CATALOG_IO__IMPL": "org.apache.iceberg.aws.s3.S3FileIO",
        "CATALOG_S3_ENDPOINT": s3_url,
        "CATALOG_S3_PATH__STYLE__ACCESS": "true",
        **{f"CATALOG_{name.upper()}": value for name, value in properties.items()},
    }
    classes = [str(jars() / "*"), *_hadoop()]
    program = "org.apache.iceberg.rest.RESTCatalogServer"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [find_java(), "-Xmx256m", "-cp", os.pathsep.join(classes), program],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert process.poll() is None, log.read_text()[-2000:]
        try:
            with urllib.request.urlopen(f"{url}/v1/config", timeout=10) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    try:
        wait_until(answers, deadline_s=DEADLINE_S, what="Iceberg's REST server")
        yield url
    finally:
        process.kill()
        process.wait()


def _hadoop() -> list[str]:
    """Return the jars of Hadoop's client inside pyspark: Iceberg's catalogs load its class Configuration."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return [str(p) for p in sorted((Path(spec.origin).parent / "jars").glob("hadoop-client-*.jar"))]
