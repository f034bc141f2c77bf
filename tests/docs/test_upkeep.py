"""docs/how-to/keep-tables-tidy.md: its pipeline is what the text states, and its table has each field and property."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from tallystick import Upkeep
from tallystick.tables.upkeep import upkeep_properties

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "keep-tables-tidy.md").read_text()


def test_the_pipeline_of_the_page_has_the_upkeep_that_the_text_states() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    found: dict[str, Any] = {}
    exec(block, found)
    pipeline = found["pipeline"]
    assert pipeline.upkeep_of("dead_letters") == Upkeep(snapshots_kept=10)
    own = pipeline.upkeep_of("visits")
    assert (own.snapshots_kept, own.snapshots_kept_for) == (50, timedelta(days=7))
    (logged,) = re.findall(r"^table visits: (.*)$", PAGE, re.MULTILINE)
    assert logged in own.changes(Upkeep())


def test_the_table_of_the_page_has_each_field_with_its_property() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", PAGE, re.MULTILINE))
    assert list(rows) == [field.name for field in fields(Upkeep)]
    named = {name: set(re.findall(r"`([\w.-]+)`", text)) for name, text in rows.items()}
    plain = upkeep_properties(Upkeep())
    for name, value in (
        ("snapshots_kept", 5),
        ("snapshots_kept_for", timedelta(days=7)),
        ("metadata_kept", 5),
        ("file_size_bytes", 1 << 20),
        ("compression", "gzip"),
        ("parquet_version", 2),
    ):
        changed = upkeep_properties(replace(Upkeep(), **{name: value}))  # type: ignore[arg-type]
        assert {key for key, one in changed.items() if plain.get(key) != one} == named[name]
