"""Time and bytes of the pages of a made lake: 10,000 intervals and 50 topics, on Airflow's real API server and Chromium.

python -m bench.parts.pages [--intervals 10000] [--topics 50] [--partitions 3]
"""

from __future__ import annotations

import argparse
import gzip
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.api_server import ApiServer, api_server
from support.large_lake import LargeLake
from tallystick.airflow.pages.mount import PREFIX
from tallystick.format import keys
from tallystick.lake import Lake
from tallystick.store.open import open_store
from tallystick_devstack.testing.servers import aws_environment, ministack

DAG = "large"
DRAWN = """() => {
  const drawn = performance.getEntriesByName("tallystick-draw")[0];
  const status = performance.getEntriesByType("resource").find((e) => e.name.includes("/status"));
  return drawn && {
    draw: drawn.duration,
    ready: drawn.startTime + drawn.duration,
    status: status.responseEnd - status.requestStart,
    nodes: document.querySelectorAll("*").length,
  };
}"""


@contextmanager
def serving(size: LargeLake, folder: Path) -> Iterator[tuple[ApiServer, Lake]]:
    """Write the lake to an S3 server, and run Airflow's API server over it."""
    with ministack() as url:
        env = aws_environment(url)
        os.environ.update(env)
        import boto3

        boto3.client("s3").create_bucket(Bucket="lake")
        lake = size.write(open_store(f"s3://lake/{DAG}"))
        with api_server(folder, lakes=[DAG], env=env, readers={}) as server:
            yield server, lake


def timed(server: ApiServer, path: str, **headers: str) -> tuple[float, Any]:
    """Return the milliseconds of one request, and its answer."""
    started = time.perf_counter()
    answer = server.get(f"{PREFIX}/api/dags/{DAG}/{path}", "admin", headers=headers)
    return (time.perf_counter() - started) * 1000, answer


def requests(server: ApiServer, lake: Lake) -> None:
    """Print the time and bytes of each route: the first request, and the fastest of five more."""
    entries = lake.load_existing().whole_ledger().entries
    last = [e for e in entries if e.committed is not None][-1].interval
    span = f"from={keys.instant(last.start)}&to={keys.instant(last.end)}"
    version = lake.load_existing().root.version
    routes = {
        "status": "status",
        "summary": "summary",
        "lag (Kafka is not there)": "lag",
        "50 commits": "commits?limit=50",
        "one interval": f"interval?{span}",
        "dead letters": "dead-letters",
        "comparison": f"compare?left={version - 40}&right={version}",
    }
    print(f"\n{'route':<26}{'first ms':>10}{'next ms':>9}{'bytes':>11}{'gzip':>9}")
    for name, path in routes.items():
        first, answer = timed(server, path)
        best = min(timed(server, path)[0] for _ in range(5))
        size, packed = len(answer.body), len(gzip.compress(answer.body, 6))
        print(f"{name:<26}{first:>10,.0f}{best:>9,.0f}{size:>11,}{packed:>9,}  {answer.status}")
    etag = timed(server, "status")[1].headers["etag"]
    again, answer = timed(server, "status", **{"If-None-Match": etag})
    print(
        f"{'status, not changed':<26}{'':>10}{again:>9,.0f}{len(answer.body):>11,}{'':>9}  {answer.status}"
    )


def drawing(server: ApiServer) -> None:
    """Print the time that Chromium takes to draw the page, over several loads and at two pixel ratios."""
    from playwright.sync_api import sync_playwright

    from support.airflow_pages import FLAGS, chromium

    print(
        f"\n{'pixel ratio':<12}{'load':>5}{'status ms':>11}{'drawn after it ms':>19}{'drawn after ms':>16}{'nodes':>7}"
    )
    with sync_playwright() as player:
        browser = player.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        for ratio in (1, 2):
            context = browser.new_context(
                viewport={"width": 1280, "height": 900}, device_scale_factor=ratio
            )
            cookie = {"name": "_token", "value": server.token("admin"), "url": server.url}
            context.add_cookies([cookie])  # type: ignore[list-item]
            page = context.new_page()
            sizes: list[int] = []
            page.on(
                "response",
                lambda r, sizes=sizes: sizes.append(int(r.headers.get("content-length", 0))),
            )
            for load in range(3):
                page.goto(f"{server.url}{PREFIX}/dags/{DAG}/")
                page.wait_for_function(DRAWN)
                found = page.evaluate(DRAWN)
                print(
                    f"{ratio:<12}{load + 1:>5}{found['status']:>11,.0f}{found['draw']:>19,.0f}"
                    f"{found['ready']:>16,.0f}{found['nodes']:>7,}"
                )
            context.close()
        browser.close()


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--intervals", type=int, default=10_000)
    parser.add_argument("--topics", type=int, default=50)
    parser.add_argument("--partitions", type=int, default=3)
    given = parser.parse_args()
    size = LargeLake(
        intervals=given.intervals, topics=given.topics, partitions=given.partitions, dag=DAG
    )
    with tempfile.TemporaryDirectory() as folder, serving(size, Path(folder)) as (server, lake):
        pages = lake.load_existing().root.pages
        total = sum(len(lake.store.get(ref.key).body) for ref in pages)  # type: ignore[union-attr]
        print(
            f"{given.intervals:,} intervals, {given.topics} topics of {given.partitions} partitions: "
            f"{len(pages)} ledger pages, {total / 1e6:,.1f} MB on S3"
        )
        requests(server, lake)
        drawing(server)


if __name__ == "__main__":
    main()
