"""What a benchmark does around its runs: a folder, the contenders' preparation, and their part of the bundle."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.whole_job.bundle import write_bundle
from bench.whole_job.contender import BenchWorkspace, Contender
from bench.whole_job.measured import ControlGroup
from bench.whole_job.records import FilledTopic
from bench.whole_job.rounds import note, small_job
from bench.whole_job.servers import BenchServers
from tallystick.errors import TallystickError


@contextmanager
def scratch_folder(path: Path | None, *, keep: bool) -> Iterator[Path]:
    """Create a folder below `path`, or in the system's folder for temporary files; remove it at the end unless `keep`."""
    if path is not None:
        path.mkdir(parents=True, exist_ok=True)
    base = Path(tempfile.mkdtemp(prefix="bench-whole-job-", dir=path))
    try:
        yield base
    finally:
        if keep:
            note(f"kept {base}")
        else:
            shutil.rmtree(base, ignore_errors=True)


def run_benchmark(
    measured: Callable[[Path], dict[str, Any]],
    text_report: Callable[[Mapping[str, Any]], str],
    *,
    out: Path,
    folder: Path | None,
    keep: bool = False,
) -> int:
    """Measure in a scratch folder, write the bundle to `out`, print its tables; return the exit code.

    0 only if every run took place and every check found the expected rows. Safe to repeat: the bundle is replaced.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers are stopped
    try:
        with scratch_folder(folder, keep=keep) as scratch:
            bundle = measured(scratch)
    except TallystickError as error:
        print(error, file=sys.stderr)
        return 2
    write_bundle(out, bundle)
    print(text_report(bundle))
    print(f"\nbundle: {out}, sha256 {bundle['sha256']}")
    return 0 if bundle["complete"] and all(run["ok"] for run in bundle["runs"]) else 1


@contextmanager
def running_servers(folder: Path, *, with_registry: bool = False) -> Iterator[BenchServers]:
    """Run the servers in a control group of their own, which is empty and removed at the end; see `BenchServers`."""
    group = ControlGroup(f"bench-{os.getpid()}-servers").create()
    try:
        with BenchServers(folder, group, with_registry=with_registry) as servers:
            yield servers
    finally:
        group.end_all()
        group.remove()


def prepare(
    contenders: Sequence[Contender], servers: BenchServers, folder: Path, small: FilledTopic
) -> None:
    """Let each contender make what it needs once per machine. It is not measured. Safe to repeat: see `Contender`."""
    for contender in contenders:
        note(f"preparing {contender.name}")
        own = folder / "prepared" / contender.name
        own.mkdir(parents=True)
        contender.prepare(
            BenchWorkspace(
                folder=own,
                endpoints=servers.endpoints,
                cores=os.cpu_count() or 1,
                warm_up=small_job(small),
            )
        )


def described_topics(topics: Mapping[str, FilledTopic]) -> dict[str, object]:
    """Return the records of each size for the bundle."""
    return {
        size: {"sha256": topic.sha256, "value_bytes": topic.value_bytes, "broken": topic.broken}
        for size, topic in topics.items()
    }


def described_contenders(contenders: Sequence[Contender]) -> dict[str, object]:
    """Return the contenders for the bundle."""
    return {
        one.name: {
            "what": one.what,
            "settings": dict(one.settings),
            "versions": dict(one.versions()),
        }
        for one in contenders
    }
