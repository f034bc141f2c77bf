"""The copies of an example's files, and the moments at which a task that writes to the lake is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.runner.copies import copy_files, module_of
from examples.runner.writer_kill import (
    AFTER_SWAP,
    BEFORE_REPORT,
    BEFORE_SWAP,
    Moment,
    WriterKill,
)
from tallystick.errors import SettingsError

INTERVAL = "20130101T000000000Z-20130102T000000000Z"


def project(folder: Path, *modules: str) -> Path:
    """Return a project with the DAG and job files of examples."""
    for kind in ("dags", "spark_jobs"):
        (folder / kind / "examples").mkdir(parents=True)
        for module in modules:
            (folder / kind / "examples" / f"{module}.py").write_text(f"# {kind} {module}\n")
    return folder


def test_only_the_files_of_the_named_examples_are_copied(tmp_path: Path) -> None:
    source = project(tmp_path / "source", "files", "orders_avro", "counts")
    for _ in range(2):
        copy_files(source, tmp_path / "copy", ["files", "orders-avro"])
    found = sorted(str(p.relative_to(tmp_path / "copy")) for p in tmp_path.glob("copy/**/*.py"))
    assert found == [
        f"{kind}/examples/{module}.py"
        for kind in ("dags", "spark_jobs")
        for module in ("files", "orders_avro")
    ]
    copied = tmp_path / "copy" / "dags" / "examples" / f"{module_of('orders-avro')}.py"
    assert copied.read_text() == "# dags orders_avro\n"


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    source = project(tmp_path / "source", "files")
    with pytest.raises(SettingsError, match=r"dags/examples/orders_avro\.py does not exist"):
        copy_files(source, tmp_path / "copy", ["orders-avro"])


@pytest.mark.parametrize(
    ("moment", "key"),
    [
        (BEFORE_REPORT, f"attempts/{INTERVAL}/1-{'0' * 32}.json"),
        (BEFORE_SWAP, "root.json"),
        (AFTER_SWAP, "root.json"),
    ],
)
def test_a_moment_is_one_kind_of_write_and_no_other(moment: Moment, key: str) -> None:
    keys = [
        "root.json",
        f"attempts/{INTERVAL}/1-{'0' * 32}.json",
        f"plans/{INTERVAL}/{'0' * 32}.json",
        f"commits/000000000001-{'0' * 32}.json",
        f"ledger/{'0' * 32}.json",
        f"tables/orders/data/{INTERVAL}/{'0' * 32}/1-{'0' * 32}/0-{'0' * 32}.parquet",
    ]
    found = [k for k in keys if moment.rule.path.search(f"/lake/examples/orders-avro/{k}")]
    assert found == [key]


def test_a_kill_is_described_by_its_moment() -> None:
    kill = WriterKill(pid=1, command="python", moment=AFTER_SWAP)
    assert str(kill) == "kill -9 of commit between swap and reply"
    texts = {str(WriterKill(pid=1, command="", moment=m)) for m in (BEFORE_REPORT, BEFORE_SWAP)}
    assert len(texts | {str(kill)}) == 3
    assert all(len(text) <= 52 for text in texts)  # the width of the column in the table at the end
