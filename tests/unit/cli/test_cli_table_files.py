"""`tally tables --files` and `--catalog`: as text for people, as JSON and rows for programs."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import pytest

from support.small_lake import SmallLake
from tallystick.catalog.app import build
from tallystick.catalog.lakes import ServedLake
from tallystick.catalog.versions import LakeAt, parse_prefix
from tallystick.cli.table_files import COLUMNS, as_text
from tallystick.operations.gc import Heap
from tallystick.operations.status import TableStatus
from tallystick.operations.status.files import WHATS, FilesOfTable, LakeFiles, StoredObjects, What
from tallystick.operations.status.kept import RULES, Rule
from unit.catalog.conftest import call
from unit.cli.invoke import LAKE, tally, tally_json, too_wide


def stored(what: What, rule: Rule, objects: int, size_bytes: int) -> StoredObjects:
    return StoredObjects(what=what, rule=rule, heap=Heap(objects=objects, size_bytes=size_bytes))


FLIGHTS = FilesOfTable(
    table=TableStatus(
        name="flights",
        metadata="s3://lake/flights/tables/flights/metadata/00042-a.metadata.json",
        columns=(),
        partition_by=(),
        rows=336_340,
        files=1_203,
        size_bytes=5_104_000_000,
    ),
    sizes=(
        Heap(objects=1_100, size_bytes=240_000_000),
        Heap(objects=70, size_bytes=500_000_000),
        Heap(),
        Heap(objects=33, size_bytes=4_364_000_000),
    ),
    deletes=1,
    snapshots=50,
    since=datetime(2026, 11, 1, 6, 30, tzinfo=UTC),
    log=20,
    log_kept=Heap(objects=3, size_bytes=123_400),
    objects=(
        stored("data file", "current", 1_203, 5_104_000_000),
        stored("data file", "history", 12, 3_000_000),
        stored("metadata file", "grace", 3, 123_400),
    ),
)
EMPTY = FilesOfTable(
    table=replace(FLIGHTS.table, name="empty", metadata=None, rows=0, files=0, size_bytes=0),
    sizes=(Heap(),) * 4,
    deletes=0,
    snapshots=0,
    since=None,
    log=0,
    log_kept=Heap(),
    objects=(),
)
ANSWER = LakeFiles(
    uri="s3://lake/flights",
    pipeline="flights",
    version=412,
    reader_grace=timedelta(hours=36),
    tables=(FLIGHTS, EMPTY),
    objects=(
        stored("root", "current", 1, 2_550),
        stored("record", "always", 206, 800_000),
        stored("page", "nothing", 8, 13_648),
    ),
)
GOLDEN = """\
flights at s3://lake/flights, version 412

flights   336,340 rows in 1,203 files, 5.1 GB, 1 delete file
  below 1 MB    1,100  ###################   240.0 MB
  1 to 16 MB       70  ##                    500.0 MB
  16 to 128 MB      0
  from 128 MB      33  #                     4.4 GB
  50 snapshots since 2026-11-01 06:30 UTC; of the 20 files in the metadata log, 3 exist (123.4 KB)
  what            objects     bytes  kept by
  data files        1,203    5.1 GB  current
  data files           12    3.0 MB  history
  metadata files        3  123.4 KB  grace

empty   0 rows in 0 files, 0 B
  no objects yet

not of a table
  what            objects     bytes  kept by
  root.json             1    2.5 KB  current
  commit records      206  800.0 KB  always
  ledger pages          8   13.6 KB  nothing

1,433 objects, 5.1 GB; of these 8 objects, 13.6 KB, that nothing needs.

kept by
  current  root.json or the current snapshot of a table needs it
  history  only older snapshots of a table list it (Iceberg's time travel)
  grace    a version within the reader grace (36 hours), or of a registration, needs it
  always   it is never deleted
  nothing  nothing needs it: `tally gc` would delete it, unless a run is about to commit it"""


# ---------------------------------------------------------------- text


def test_the_text_of_an_answer() -> None:
    assert as_text(ANSWER) == GOLDEN


def test_every_sort_and_rule_fits_the_columns_and_is_explained() -> None:
    objects = tuple(
        stored(what, rule, 1_000_000_000, 999_900_000_000_000) for what in WHATS for rule in RULES
    )
    text = as_text(replace(ANSWER, tables=(replace(FLIGHTS, objects=objects),), objects=objects))
    assert too_wide(text) == []
    legend = text.rpartition("\n\nkept by\n")[2].splitlines()
    assert [line.split()[0] for line in legend] == list(RULES)


def test_the_sums_are_those_of_the_lake(lake: SmallLake) -> None:
    count = len(lake.keys(""))
    output = tally("tables", LAKE, "--files").stdout
    assert f"\n{count:,} objects, " in output
    assert "\nevents   15 rows in 6 files, " in output


# ---------------------------------------------------------------- JSON and rows


def test_the_json_has_what_tally_tables_has_and_each_object_once(lake: SmallLake) -> None:
    plain = {one["name"]: one for one in tally_json("tables", LAKE)["tables"]}
    answer = tally_json("tables", LAKE, "--files", "--reader-grace", "30m")
    assert answer["reader_grace_s"] == 1800
    for table in answer["tables"]:
        assert {name: table[name] for name in plain[table["name"]]} == plain[table["name"]]
        assert [one["below"] for one in table["sizes"]] == [
            1_000_000,
            16_000_000,
            128_000_000,
            None,
        ]
        assert sum(one["files"] for one in table["sizes"]) == table["files"]
        assert (table["delete_files"], table["snapshots"]) == (0, 4)
        assert table["snapshots_since"] == "2024-05-01T00:00:00.000Z"
    groups = [answer["objects"], *(table["objects"] for table in answer["tables"])]
    assert sum(o["objects"] for group in groups for o in group) == len(lake.keys(""))


def test_the_rows_have_the_objects_of_the_json(lake: SmallLake) -> None:
    answer = tally_json("tables", LAKE, "--files")
    output = tally("tables", LAKE, "--files", "--format", "csv").stdout
    rows = list(csv.DictReader(io.StringIO(output)))
    assert tuple(rows[0]) == COLUMNS
    by_table = {table["name"]: table["objects"] for table in answer["tables"]}
    by_table[""] = answer["objects"]
    for name, objects in by_table.items():
        found = [(r["what"], r["kept_by"], int(r["bytes"])) for r in rows if r["table"] == name]
        assert found == [(o["what"], o["kept_by"], o["bytes"]) for o in objects]


# ---------------------------------------------------------------- names in a catalog


def test_a_table_has_the_name_by_which_engines_find_it(lake: SmallLake) -> None:
    for table in tally_json("tables", LAKE)["tables"]:
        assert (table["identifier"], table["rest"]) == (f"cli-lake.{table['name']}", None)


@pytest.mark.parametrize("options", [(), ("--files",), ("--as-of", "7")])
def test_the_address_in_a_catalog_names_the_version_of_the_answer(
    lake: SmallLake, options: tuple[str, ...]
) -> None:
    answer = tally_json("tables", LAKE, "--catalog", "http://127.0.0.1:8181/", *options)
    prefix = f"cli-lake@{answer['version']}"
    assert parse_prefix(prefix).lakes == (LakeAt(lake="cli-lake", at=answer["version"]),)
    for table in answer["tables"]:
        where = f"http://127.0.0.1:8181/v1/{prefix}/namespaces/cli-lake/tables/{table['name']}"
        assert table["rest"] == where


@pytest.mark.parametrize("options", [(), ("--as-of", "7")])
def test_the_address_loads_the_table_with_the_metadata_of_the_answer(
    lake: SmallLake, options: tuple[str, ...]
) -> None:
    served = ServedLake("cli-lake", lake.store, answer_s=60)
    catalog = build({"cli-lake": served}, tokens=None, settings={"cli-lake": {}})
    answer = tally_json("tables", LAKE, "--catalog", "http://127.0.0.1:8181", *options)
    for table in answer["tables"]:
        found = call(catalog, "GET", urlsplit(table["rest"]).path)
        assert (found.status, found.json["metadata-location"]) == (200, table["metadata"])


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--files", "--as-of", "7"), "--files shows what is kept now, and --as-of 7 an older"),
        (("--reader-grace", "1h"), "--reader-grace needs --files"),
        (("--files", "--reader-grace", "1w"), "--reader-grace: expected a duration, found '1w'"),
        (("--catalog", "http://127.0.0.1:8181"), "--catalog needs --json"),
        (("--json", "--catalog", "127.0.0.1:8181"), "expected an http or https URL, found '127.0"),
        (("--json", "--catalog", "https://a:b@c"), "without a user and a password"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    lake: SmallLake, argv: tuple[str, ...], message: str
) -> None:
    result = tally("tables", LAKE, *argv)
    assert (result.exit_code, result.stdout) == (77, "")
    assert message in " ".join(result.stderr.split())
    assert "a:b" not in result.stderr
