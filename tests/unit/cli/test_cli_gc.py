"""`tally gc`: dry by default, its report in text and JSON, its options."""

from __future__ import annotations

import pytest

from support.small_lake import SmallLake
from unit.cli.asking import LAKE, ask, tally, too_wide


def objects(lake: SmallLake) -> set[str]:
    return set(lake.keys(""))


def test_without_delete_it_tells_and_changes_nothing(lake: SmallLake) -> None:
    before = objects(lake)
    told = tally("gc", LAKE, "--reader-grace", "0s")
    assert told.exit_code == 0
    assert objects(lake) == before
    assert "a dry run: nothing was changed" in " ".join(told.stdout.split())
    assert "would go with --delete" in told.stdout
    assert "ledger pages" in told.stdout
    assert too_wide(told.stdout) == []


def test_with_delete_it_says_what_went_and_a_repeat_finds_nothing(lake: SmallLake) -> None:
    before = objects(lake)
    form = ask("gc", LAKE, "--delete", "--reader-grace", "0s", "--cancel-after", "never")
    gone = before - objects(lake)
    assert form["deleted"] is True
    assert sum(heap["objects"] for heap in form["garbage"].values()) == len(gone) > 0
    assert form["cancelled"] == []
    again = tally("gc", LAKE, "--delete", "--reader-grace", "0s", "--cancel-after", "never")
    assert "There is nothing to collect." in again.stdout
    assert tally("verify", LAKE, "--deep").exit_code == 0


def test_grants_that_are_given_up_are_told_with_their_owner(lake: SmallLake) -> None:
    told = tally("gc", LAKE)  # it was planned longer ago than the seven days of the default
    assert "2013-01-06 to 2013-01-07 to small / scheduled" in " ".join(told.stdout.split())
    assert "would be given up; a gap is left" in " ".join(told.stdout.split())
    form = ask("gc", LAKE, "--delete")
    assert [(c["from"], c["committed"]) for c in form["cancelled"]] == [
        ("2013-01-06T00:00:00.000Z", False)
    ]
    assert ask("status", LAKE)["grants"] == []


@pytest.mark.parametrize("text", ["1w", "-1h", "", "h", "1.5h", "12", "999999d", "٣d"])
def test_a_time_that_is_none_is_refused_by_name(lake: SmallLake, text: str) -> None:
    result = tally("gc", LAKE, f"--reader-grace={text}")
    assert result.exit_code == 77
    assert "--reader-grace is" in result.stderr
    assert "24h or 7d" in result.stderr
