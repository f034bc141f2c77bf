"""`tally topic adopt`: it shows the adoption, performs it only for the topic that it showed, and reports the result."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from support.fakes import FakeTopic
from support.small_lake import SmallLake, day, days
from tallystick.cli import topic as command
from tallystick.tables.reading import static_table
from unit.cli.invoke import LAKE, tally, tally_json, too_wide


@pytest.fixture
def recreated(lake: SmallLake, monkeypatch: pytest.MonkeyPatch) -> SmallLake:
    """Create the topic of a good lake anew; the connection `old` still leads to the old topic."""
    old = lake.log.topics["events"]
    lake.log.create("events", partitions=1)
    for hour in (1, 2, 3):
        lake.log.append("events", 0, day(8) + timedelta(hours=hour), n=hour, kind="new")

    def described(connection: str, name: str, *, environ: Mapping[str, str]) -> Any:
        assert environ is not None
        found = old if connection == "old" else lake.log.topics[name]
        return seen(found)

    monkeypatch.setattr(command, "described", described)
    return lake


def seen(topic: FakeTopic) -> Any:
    """Return a topic as the planner describes it, with the high watermark of each partition."""
    return SimpleNamespace(
        topic_id=topic.topic_id,
        cluster_id=topic.cluster_id,
        compacted=topic.compacted,
        partitions=[
            SimpleNamespace(log_start=p.log_start, high_watermark=p.end) for p in topic.partitions
        ],
    )


def output_of(*argv: str) -> str:
    """Return the output, in one line, of a command that must succeed."""
    result = tally(*argv)
    assert result.exit_code == 0, result.stderr
    assert too_wide(result.stdout) == []
    return " ".join(result.stdout.split())


def refused(*argv: str, code: int = 77) -> str:
    result = tally(*argv)
    assert result.exit_code == code, result.stdout
    return " ".join(result.stderr.split())


ADOPT = ("topic", "adopt", "events", LAKE)
CONFIRM = ("--confirm", "topic-id-2")


def test_without_confirm_it_shows_the_adoption_and_changes_nothing(recreated: SmallLake) -> None:
    before = recreated.root()
    output = output_of(*ADOPT)
    assert (
        "topic events with id topic-id-2 in cluster fake-cluster would follow the topic with"
        in output
    )
    assert "id topic-id-1 in cluster fake-cluster, from 2013-01-07 (UTC) on." in output
    assert "Its name in the ledger and in the rows is events@2." in output
    assert "Granted and not committed: staged plans can still be committed" in output
    assert "2013-01-06 to 2013-01-07" in output
    assert "Nothing was changed. Set the ends of the old topic (--old-kafka, --old-end)" in output
    assert output.endswith("To adopt it permanently: --confirm topic-id-2")
    assert recreated.root() == before


def test_an_adoption_is_done_once_and_status_shows_it(recreated: SmallLake) -> None:
    for _ in range(2):
        output = output_of(*ADOPT, "--old-end", "0=18", "--old-end", "1=22", *CONFIRM)
        assert "topic events with id topic-id-2 in cluster fake-cluster follows the topic" in output
        assert (
            "LOST: 1 offset of events, recorded in the interval that begins at 2013-01-07."
            in output
        )
        assert "--confirm" not in output
    status = output_of("status", LAKE)
    assert (
        "topic events: 2 partitions, id topic-id-1, cluster fake-cluster; closed at 2013-01-07"
        in status
    )
    assert "topic events@2: 1 partition, id topic-id-2, cluster fake-cluster" in status
    assert (
        tally_json("status", LAKE)["topics"]["events"]["closed_since"] == "2013-01-07T00:00:00.000Z"
    )
    recreated.run(days(7, 9))
    assert "LOST: 1 offset, deleted before they were read; an operator accepted that:" in output_of(
        "status", LAKE
    )
    assert tally("verify", "--deep", LAKE).exit_code == 0
    metadata = recreated.lake.load_existing().root.tables["events"].metadata
    assert metadata is not None
    rows = static_table(recreated.store, metadata).scan().to_arrow()
    assert set(rows.column("_topic").to_pylist()) == {"events", "events@2"}


def test_the_end_of_the_old_topic_is_read_from_the_old_cluster(recreated: SmallLake) -> None:
    answer = tally_json(*ADOPT, "--old-kafka", "old")
    assert answer["done"] is False
    assert answer["closed"]["lost"] == [0, 0]
    assert answer["closed"]["read_to"] == [17, 22]
    assert answer["adopted"] == {
        "name": "events@2",
        "id": "topic-id-2",
        "cluster": "fake-cluster",
        "origins": [0],
    }
    message = refused(*ADOPT, "--old-kafka", "default")
    assert "topic events of connection default: expected id topic-id-1" in message
    assert "found id topic-id-2" in message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (CONFIRM, "the ends of the old topic events are not set"),
        (("--old-end", "unknown", "--confirm", "topic-id-1"), "expected id topic-id-1 (confirmed)"),
        (("--old-end", "0=1", *CONFIRM), "found 1."),
        (("--old-end", "0=x"), "--old-end: expected offsets by partition, found 0=x"),
        (
            ("--old-end", "0=1", "--old-end", "unknown"),
            "--old-end: expected offsets by partition, found 0=1 unknown",
        ),
        (
            ("--old-end", "0=1", "--old-end", "0=2"),
            "--old-end: expected offsets by partition, found 0=1 0=2",
        ),
        (("--old-end", f"0={2**63}"), f"--old-end: expected offsets by partition, found 0={2**63}"),
        (("--old-end", "0=1", "--old-kafka", "old"), "both set the ends of the old topic"),
    ],
)
def test_unclear_options_are_refused_and_change_nothing(
    recreated: SmallLake, words: tuple[str, ...], message: str
) -> None:
    before = recreated.root()
    assert message in refused(*ADOPT, *words)
    assert recreated.root() == before


def test_the_same_command_again_shows_what_it_did(recreated: SmallLake) -> None:
    """The output may have been lost; by then the old connection leads to a topic that is closed."""
    first, second = (output_of(*ADOPT, "--old-kafka", "old", *CONFIRM) for _ in range(2))
    assert first.startswith(second)
    assert first.endswith("2013-01-06 to 2013-01-07")  # what is not committed yet is shown once
    assert "follows the topic" in second


def test_an_unknown_end_is_accepted_and_records_no_loss(recreated: SmallLake) -> None:
    output = output_of(*ADOPT, "--old-end", "unknown", *CONFIRM)
    assert "LOST" not in output
    with_json = tally_json(*ADOPT, "--old-end", "unknown", *CONFIRM)
    assert (with_json["done"], with_json["closed"]["lost"]) == (True, [0, 0])


def test_an_invalid_topic_name_is_refused(lake: SmallLake) -> None:
    assert "topic name 'events@2' is not allowed" in refused("topic", "adopt", "events@2", LAKE)


def test_without_a_connection_the_error_names_the_variable(lake: SmallLake) -> None:
    message = refused(*ADOPT)
    assert "TALLYSTICK_KAFKA_DEFAULT is not set" in message
