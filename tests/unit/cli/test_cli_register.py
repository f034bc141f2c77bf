"""Registrations in `tally publish` and `tally status`."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from support.catalogs import DeclaredCatalog, with_registrations
from support.small_lake import SmallLake, days
from unit.cli.invoke import LAKE, tally, tally_json, too_wide

FILE = """
from dataclasses import dataclass, replace
from support.catalogs import DeclaredCatalog, FakeCatalog, FakeRegistrar
from support.small_lake import pipeline

CATALOG = FakeCatalog({pointers})

@dataclass(frozen=True, kw_only=True)
class Own(DeclaredCatalog):
    def open(self):
        return FakeRegistrar(CATALOG)

pipeline = replace(pipeline({lake!r}), registrations=[Own()])
"""


@pytest.fixture
def file(lake: SmallLake, tmp_path: Path) -> Path:
    """Return the file that declares a registration, which lacks the last commit."""
    path = tmp_path / "small.py"
    path.write_text(FILE.format(lake=LAKE, pointers=""))
    lake.declared = functools.partial(with_registrations, (DeclaredCatalog(),))
    lake.log.append("events", 0, days(7, 8).start, n=1, kind="a")
    lake.run(days(7, 8))
    return path


def test_status_shows_what_is_pending_and_the_command_that_registers_it(file: Path) -> None:
    output = tally("status", LAKE).stdout
    version = tally_json("status", LAKE)["unregistered"][0]["version"]
    assert f"PENDING: version {version} to register in 1 catalog:" in output
    assert "  company (memory:company): no version yet" in output
    assert f"tally publish {LAKE} --pipeline FILE" in output
    assert too_wide(output) == []
    assert tally_json("status", LAKE)["unregistered"] == [
        {
            "registration": "company",
            "target": "memory:company",
            "registered": None,
            "version": version,
        }
    ]


def test_publish_registers_and_a_repeat_finds_nothing(file: Path) -> None:
    result = tally("publish", LAKE, "--pipeline", str(file))
    assert result.exit_code == 0, result.stderr
    assert "1 catalog registered:\n  version " in result.stdout
    assert " in company: 3 tables" in result.stdout
    assert too_wide(result.stdout) == []
    assert "Nothing is pending." in tally("publish", LAKE, "--pipeline", str(file)).stdout
    assert "PENDING" not in tally("status", LAKE).stdout
    assert tally_json("status", LAKE)["unregistered"] == []


def test_publish_as_json(file: Path) -> None:
    answer = tally_json("publish", LAKE, "--pipeline", str(file), "--output", "company")
    (only,) = answer["registered"]
    assert (only["registration"], only["tables"]) == ("company", 3)
    assert answer["failed"] == []


def test_a_foreign_table_is_reported_and_sets_the_exit_code(file: Path) -> None:
    other = "s3://finance/metadata/00001-x.metadata.json"
    file.write_text(FILE.format(lake=LAKE, pointers={"events": other}))
    result = tally("publish", LAKE, "--pipeline", str(file))
    assert result.exit_code == 77
    shown = " ".join(result.stdout.split())
    assert "NOT PUBLISHED: company: output_refused: registration company: table events" in shown
    assert other in shown
