"""What a benchmark does around its runs: a folder, the contenders' preparation, and their part of the bundle."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.whole_job.contender import BenchWorkspace, Contender
from bench.whole_job.records import FilledTopic
from bench.whole_job.rounds import note, small_job
from bench.whole_job.servers import BenchServers


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
