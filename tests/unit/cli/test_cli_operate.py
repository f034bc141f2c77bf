"""The commands of operators: plan, release, show, probe, and --as-of for an older version."""

from __future__ import annotations

import json

import duckdb
import pytest

from support.small_lake import SmallLake, days
from tallystick.cli import app as cli
from tallystick.format import keys
from tallystick.operations.stage_together import claim
from tallystick.store import ETag, Outcome
from tallystick.store.memory import MemoryStore
from unit.cli.invoke import LAKE, tally, tally_json, too_wide

DAY_6 = ("--from", "2013-01-06", "--to", "2013-01-07")


def test_plan_shows_what_a_run_would_do_and_why(lake: SmallLake) -> None:
    output = tally("plan", LAKE, "--from", "2013-01-03", "--to", "2013-01-08").stdout
    assert "2013-01-04 to 2013-01-05: would be planned: nothing is committed there" in output
    assert "2013-01-03 to 2013-01-04: remains as small / scheduled" in output
    assert "2013-01-06 to 2013-01-07: is granted to small / scheduled" in output
    assert "1 boundary would be looked up in Kafka and set." in output
    assert too_wide(output) == []
    answer = tally_json("plan", LAKE, "--from", "2013-01-04", "--to", "2013-01-05")
    assert answer["parts"] == [
        {
            "from": "2013-01-04T00:00:00.000Z",
            "to": "2013-01-05T00:00:00.000Z",
            "what": "plan",
            "owner": None,
        }
    ]


def test_plan_of_what_is_committed_starts_no_spark(lake: SmallLake) -> None:
    output = tally("plan", LAKE, "--from", "2013-01-01", "--to", "2013-01-04").stdout
    assert "Nothing would be staged: no Spark would be started." in output


def test_release_frees_an_interval_and_a_repeat_is_refused(
    lake: SmallLake,
) -> None:
    result = tally("release", LAKE, *DAY_6)
    assert result.exit_code == 0
    assert "Released 2013-01-06 to 2013-01-07: the grant of small / scheduled" in result.stdout
    assert "it is a gap now" in result.stdout
    assert too_wide(result.stdout) == []
    again = tally("release", LAKE, *DAY_6)
    assert again.exit_code == 77
    assert "is not granted to any run" in " ".join(again.stderr.split())
    assert tally_json("status", LAKE)["grants"] == []


def test_release_as_json(lake: SmallLake) -> None:
    answer = tally_json("release", LAKE, *DAY_6)
    assert (answer["version"], answer["generation"], answer["committed"]) == (12, 1, False)
    assert answer["owner"]["dag"] == "small"


def test_an_invalid_date_is_refused(lake: SmallLake) -> None:
    result = tally("release", LAKE, "--from", "yesterday", "--to", "2013-01-07")
    assert result.exit_code == 77
    assert "from='yesterday' is not a date" in result.stderr


@pytest.mark.parametrize(
    "prefix", ["plans/", "claims/", "attempts/", "commits/", "ledger/", "root.json"]
)
@pytest.mark.parametrize("whole", [False, True], ids=["key", "address"])
def test_show_prints_each_kind_of_object(lake: SmallLake, prefix: str, whole: bool) -> None:
    plan = lake.lake.plan(lake.keys("plans/")[0])
    assert plan is not None
    claim(lake.lake, plan, plan.request, "attempt-1")
    key = lake.keys(prefix)[0]
    words = [f"{LAKE}/{key}"] if whole else [key, LAKE]
    found = lake.store.get(key)
    assert found is not None
    assert tally_json("show", *words) == json.loads(found.body)
    result = tally("show", *words)
    assert json.loads(result.stdout) == json.loads(found.body)
    assert len(result.stdout.splitlines()) > 5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("tables/events/x", LAKE), "is not the key of an object that can be shown"),
        (
            ("s3://bucket/elsewhere/x.json",),
            "is not the address of an object that tallystick writes",
        ),
        (("plans/none.json", LAKE), "memory://cli-lake/plans/none.json does not exist"),
    ],
)
def test_show_of_an_unknown_object_is_refused(
    lake: SmallLake, words: tuple[str, ...], message: str
) -> None:
    result = tally("show", *words)
    assert result.exit_code == 77
    assert message in " ".join(result.stderr.split())


def test_show_of_a_damaged_object_is_refused(lake: SmallLake) -> None:
    key = lake.keys("plans/")[0]
    lake.change(key, lambda plan: plan.update(surprise=1))
    result = tally("show", key, LAKE)
    assert result.exit_code == 77
    assert "unknown field 'surprise'" in " ".join(result.stderr.split())


def test_probe_prints_each_step(lake: SmallLake) -> None:
    result = tally("probe", LAKE)
    assert result.exit_code == 0
    assert "ok    create an object that does not exist (If-None-Match: *)" in result.stdout
    assert "FAIL" not in result.stdout
    assert f"{LAKE} honours conditional writes." in result.stdout
    assert lake.keys(".probe/") == []
    answer = tally_json("probe", LAKE)
    assert answer["conditional_writes"] is True
    assert len(answer["steps"]) > 8


class Overwriting(MemoryStore):
    """A store that overwrites and answers 200, as stores do that ignore conditions."""

    def replace(self, key: str, body: bytes, *, expected: ETag) -> Outcome:
        del expected
        self.delete([key])
        return self.create(key, body)


def test_probe_of_an_unfit_store_names_the_step_that_failed(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.lake.store = Overwriting("cannot")
    monkeypatch.setattr(cli, "_open", lambda _: lake.lake)
    result = tally("probe")
    assert result.exit_code == 77
    assert "ok    replace it by its ETag (If-Match)" in result.stdout
    assert "FAIL  replace it by the ETag it had before (stale If-Match)" in result.stdout
    assert "found     applied" in result.stdout
    assert "does not honour conditional writes" in " ".join(result.stderr.split())


# ---------------------------------------------------------------- as of a version


def test_tables_as_of_a_version_are_those_of_its_commit(lake: SmallLake) -> None:
    log = tally_json("log", LAKE)["commits"]
    now = {t["name"]: t["rows"] for t in tally_json("tables", LAKE)["tables"]}
    seen: list[int] = []
    for commit in reversed(log):
        found = tally_json("tables", LAKE, "--as-of", str(commit["version"]))
        assert found["version"] == commit["version"]
        seen.append({t["name"]: t["rows"] for t in found["tables"]}["events"])
    assert seen == sorted(seen) != [now["events"]] * len(seen)
    assert seen[-1] == now["events"]
    # A plan's swap commits nothing: the tables are those of the previous commit.
    first = log[-1]["version"]
    assert tally_json("tables", LAKE, "--as-of", str(first + 1))["version"] == first


@pytest.mark.parametrize(
    ("version", "message"), [("1", "nothing was committed"), ("99", "has no version 99")]
)
def test_a_version_without_tables_is_refused(lake: SmallLake, version: str, message: str) -> None:
    result = tally("tables", LAKE, "--as-of", version)
    assert result.exit_code == 77
    assert message in " ".join(result.stderr.split())


def test_tables_as_of_an_instant_are_those_of_the_last_commit_at_or_before_it(
    lake: SmallLake,
) -> None:
    """All commits of this lake are of 2024-05-01T00:00Z."""
    (newest, *_) = tally_json("log", LAKE)["commits"]
    for instant in (newest["committed_at"], "2024-05-01", "2024-04-30T17:00-07:00", "2024-05-02"):
        found = tally_json("tables", LAKE, "--as-of", instant)
        assert found == tally_json("tables", LAKE, "--as-of", str(newest["version"]))


@pytest.mark.parametrize(
    ("when", "message"),
    [
        ("2024-04-30T23:59:59Z", "was committed to memory://cli-lake by 2024-04-30T23:59:59+00:00"),
        ("yesterday", "--as-of: expected a version or an instant, found 'yesterday'"),
        ("v412", "expected a version or an instant, found 'v412'"),
        ("-1", "expected a version or an instant, found '-1'"),
        ("0", "has no version 0; it is at version 11"),
        ("9" * 5000, "expected a version or an instant, found"),
        ("2024-02-30", "expected a version or an instant, found '2024-02-30'"),
    ],
)
@pytest.mark.parametrize("command", [["tables"], ["sql", "select 1"]], ids=["tables", "sql"])
def test_a_time_at_which_nothing_can_be_read_is_refused(
    lake: SmallLake, command: list[str], when: str, message: str
) -> None:
    result = tally(*command, LAKE, f"--as-of={when}")
    assert (result.exit_code, result.stdout) == (77, "")
    assert message in " ".join(result.stderr.split())
    assert "\nNext: " in result.stderr


def test_a_grant_of_a_replacement_is_released_too(lake: SmallLake) -> None:
    lake.job = b"version 3"
    lake.plan(days(2, 3), clear=2)
    output = tally("release", LAKE, "--from", "2013-01-02", "--to", "2013-01-03").stdout
    assert "its committed rows remain" in " ".join(output.split())
    assert keys.ROOT in lake.keys("root")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["plan", "--from", "yesterday", "--to", "2013-01-02"], "from='yesterday' is not a date"),
        (["release", "--from", "2013-01-02", "--to", "2013-01-01"], "is not before to=2013-01-01"),
        (["plan", "--from", "2013-01-01", "--to", "2013-01-01"], "is not before"),
        (["plan", "--from", "1969-12-31", "--to", "2013-01-01"], "before 1970"),
        (
            ["plan", "--replace", "--from", "2013-01-01T12:00", "--to", "2013-01-03"],
            "splits the committed interval [2013-01-01T00:00:00.000Z,",
        ),
        (["sql", "select nowhere from events"], "DuckDB refused the statement"),
        (["sql", "select '{"], "DuckDB cannot parse the statement"),
        (["sql", ""], "found nothing"),
        (["sql", "drop table events"], "found DROP"),
        (["tables", "--as-of", "99"], "has no version 99; it is at version"),
        (["show", "nowhere.json"], "'nowhere.json' is not the key of an object that can be shown"),
        (
            ["show", "https://example.com/x"],
            "is not the address of an object that tallystick writes",
        ),
        (["show", "commits/x.json"], "memory://cli-lake/commits/x.json does not exist"),
    ],
)
def test_an_invalid_request_is_refused_with_what_is_allowed(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch, argv: list[str], message: str
) -> None:
    monkeypatch.setenv("TALLYSTICK_LAKE", LAKE)
    # DuckDB cannot read memory://: an empty connection replaces the views.
    monkeypatch.setattr("tallystick.cli.sql.connect", lambda *_: duckdb.connect(":memory:"))
    before = {key: lake.store.get(key) for key in lake.keys("")}
    result = tally(*argv)
    assert (result.exit_code, result.stdout) == (77, "")
    assert result.stderr.startswith("invalid_request: ")
    assert message in " ".join(result.stderr.split())
    assert "\nNext: " in result.stderr
    assert too_wide(result.stderr) == []
    assert {key: lake.store.get(key) for key in lake.keys("")} == before
