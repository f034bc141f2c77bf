"""The README's pipeline works as printed: the DAG can be built, and the job's transform returns the declared tables."""

from __future__ import annotations

import re
import runpy
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

README = Path(__file__).parents[3] / "README.md"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Write the README's two files to the paths that it names."""
    blocks = re.findall(
        r"```python\n# (\S+)\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL
    )
    assert [name for name, _ in blocks] == ["dags/clicks.py", "spark_jobs/clicks.py"]
    for name, text in blocks:
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_the_dag_has_the_three_tasks(project: Path) -> None:
    module: dict[str, Any] = runpy.run_path(str(project / "dags/clicks.py"))
    assert sorted(module["dag"].task_ids) == ["commit", "plan", "stage"]
    assert [t.name for t in module["pipeline"].tables] == ["clicks", "per_page"]


def test_the_transform_returns_the_declared_tables(project: Path) -> None:
    job: dict[str, Any] = runpy.run_path(str(project / "spark_jobs/clicks.py"))
    records = pa.table(
        {
            "user_id": [1, 2, 1],
            "page": ["a", "b", "a"],
            "at": [datetime(2026, 1, 1, tzinfo=UTC)] * 3,
            "price": [Decimal("1.50"), None, None],
        }
    )
    tables = job["transform"](records)
    assert tables["clicks"].equals(records)
    assert sorted(tables["per_page"].to_pylist(), key=lambda row: row["page"]) == [
        {"page": "a", "clicks": 2},
        {"page": "b", "clicks": 1},
    ]
