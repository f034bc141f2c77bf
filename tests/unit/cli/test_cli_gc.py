"""`tally gc`: dry by default, its report in text and JSON, its options."""

from __future__ import annotations

import pytest

from support.small_lake import SmallLake
from unit.cli.invoke import LAKE, tally, tally_json, too_wide


def objects(lake: SmallLake) -> set[str]:
    return set(lake.keys(""))


def test_without_delete_it_reports_and_changes_nothing(lake: SmallLake) -> None:
    before = objects(lake)
    result = tally("gc", LAKE, "--reader-grace", "0s")
    assert result.exit_code == 0
    assert objects(lake) == before
    assert "dry run: nothing was changed" in " ".join(result.stdout.split())
    assert "would be deleted with --delete" in result.stdout
    assert "ledger pages" in result.stdout
    assert too_wide(result.stdout) == []


def test_with_delete_it_reports_what_it_deleted_and_a_repeat_finds_nothing(lake: SmallLake) -> None:
    before = objects(lake)
    report = tally_json("gc", LAKE, "--delete", "--reader-grace", "0s", "--cancel-after", "never")
    gone = before - objects(lake)
    assert report["deleted"] is True
    assert sum(heap["objects"] for heap in report["garbage"].values()) == len(gone) > 0
    assert report["cancelled"] == []
    again = tally("gc", LAKE, "--delete", "--reader-grace", "0s", "--cancel-after", "never")
    assert "There is nothing to collect." in again.stdout
    assert tally("verify", LAKE, "--deep").exit_code == 0


def test_cancelled_grants_are_reported_with_their_owner(lake: SmallLake) -> None:
    result = tally(
        "gc", LAKE
    )  # it was planned more than seven days ago, the default of --cancel-after
    assert "2013-01-06 to 2013-01-07 to small / scheduled" in " ".join(result.stdout.split())
    assert "would be cancelled; a gap remains" in " ".join(result.stdout.split())
    report = tally_json("gc", LAKE, "--delete")
    assert [(c["from"], c["committed"]) for c in report["cancelled"]] == [
        ("2013-01-06T00:00:00.000Z", False)
    ]
    assert tally_json("status", LAKE)["grants"] == []


@pytest.mark.parametrize("text", ["1w", "-1h", "", "h", "1.5h", "12", "999999d", "٣d"])
def test_an_invalid_duration_is_refused_by_name(lake: SmallLake, text: str) -> None:
    result = tally("gc", LAKE, f"--reader-grace={text}")
    assert result.exit_code == 77
    assert f"--reader-grace: expected a duration, found {text!r}." in result.stderr
    assert "24h or 7d" in result.stderr
