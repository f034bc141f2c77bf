"""The contender native: it is chosen by name only, and a missing compiler is an error that names it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.whole_job.contender import CANONICAL, DEAD_LETTERS, EVENTS, TOTALS
from bench.whole_job.contenders.by_name import contenders_of
from bench.whole_job.contenders.native import SOURCE, NativeBound
from tallystick.errors import SettingsError


def test_native_is_chosen_by_name_or_with_full_only() -> None:
    assert [one.name for one in contenders_of("native", full=False)] == ["native"]
    assert "native" not in [one.name for one in contenders_of(None, full=False)]
    assert "native" in [one.name for one in contenders_of(None, full=True)]


@pytest.mark.parametrize("missing", ["cargo", "cc"])
def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None if name == missing else name)
    workspace: Any = None  # it is not used before the error
    with pytest.raises(SettingsError, match=f"no {missing} on PATH") as raised:
        NativeBound().prepare(workspace)
    assert "Rust" in str(raised.value)


def test_its_versions_are_those_of_the_lock_file() -> None:
    versions = NativeBound().versions()
    locked = (SOURCE / "Cargo.lock").read_text()
    assert all(
        f'name = "{name}"\nversion = "{found}"' in locked for name, found in versions.items()
    )
    assert "parquet" in versions


def test_the_source_has_every_column() -> None:
    source = "".join(path.read_text() for path in sorted(Path(SOURCE, "src").glob("*.rs")))
    for table in (EVENTS, DEAD_LETTERS, TOTALS):
        assert all(f'"{name}"' in source for name in CANONICAL[table])
