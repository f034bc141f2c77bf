"""`tally topic adopt`: shown before it is done, done only for the topic that was shown, and told afterwards."""

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
from unit.cli.asking import LAKE, ask, tally, too_wide


@pytest.fixture
def recreated(lake: SmallLake, monkeypatch: pytest.MonkeyPatch) -> SmallLake:
    """A good lake whose topic was created anew; the connection `old` still leads to the old one."""
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
    """As the planner describes a topic: with the high watermark of each partition."""
    return SimpleNamespace(
        topic_id=topic.topic_id,
        cluster_id=topic.cluster_id,
        compacted=topic.compacted,
        partitions=[
            SimpleNamespace(log_start=p.log_start, high_watermark=p.end) for p in topic.partitions
        ],
    )


def said(*argv: str) -> str:
    """What a command that must succeed says, in one line."""
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


def test_it_says_what_would_be_done_and_changes_nothing(recreated: SmallLake) -> None:
    before = recreated.root()
    told = said(*ADOPT)
    assert (
        "topic events with id topic-id-2 in cluster fake-cluster would follow the one with" in told
    )
    assert "id topic-id-1 in cluster fake-cluster, from 2013-01-07 (UTC) on." in told
    assert "name it events@2." in told
    assert "Granted and not committed: staged plans can still be committed" in told
    assert "2013-01-06 to 2013-01-07" in told
    assert "Nothing was changed. Say where the old topic ended (--old-kafka, --old-end)" in told
    assert told.endswith("To do it, for good: --confirm topic-id-2")
    assert recreated.root() == before


def test_it_is_done_once_and_status_tells_it(recreated: SmallLake) -> None:
    for _ in range(2):
        told = said(*ADOPT, "--old-end", "0=18", "--old-end", "1=22", *CONFIRM)
        assert "topic events with id topic-id-2 in cluster fake-cluster follows the one" in told
        assert (
            "LOST: 1 offset of events, recorded in the interval that begins at 2013-01-07." in told
        )
        assert "--confirm" not in told
    status = said("status", LAKE)
    assert (
        "topic events: 2 partitions, id topic-id-1, cluster fake-cluster; closed at 2013-01-07"
        in status
    )
    assert "topic events@2: 1 partition, id topic-id-2, cluster fake-cluster" in status
    assert ask("status", LAKE)["topics"]["events"]["closed_since"] == "2013-01-07T00:00:00.000Z"
    recreated.run(days(7, 9))
    assert "LOST: 1 offset, gone before they were read; an operator accepted that:" in said(
        "status", LAKE
    )
    assert tally("verify", "--deep", LAKE).exit_code == 0
    metadata = recreated.lake.load_existing().root.tables["events"].metadata
    assert metadata is not None
    rows = static_table(recreated.store, metadata).scan().to_arrow()
    assert set(rows.column("_topic").to_pylist()) == {"events", "events@2"}


def test_the_old_cluster_is_asked_where_the_old_topic_ends(recreated: SmallLake) -> None:
    form = ask(*ADOPT, "--old-kafka", "old")
    assert form["done"] is False
    assert form["closed"]["lost"] == [0, 0]
    assert form["closed"]["read_to"] == [17, 22]
    assert form["adopted"] == {
        "name": "events@2",
        "id": "topic-id-2",
        "cluster": "fake-cluster",
        "origins": [0],
    }
    told = refused(*ADOPT, "--old-kafka", "default")
    assert "connection default leads to topic events with id topic-id-2" in told
    assert "the ledger reads id topic-id-1" in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (CONFIRM, "nobody has said where the old topic events ended"),
        (("--old-end", "unknown", "--confirm", "topic-id-1"), "topic-id-1 was confirmed"),
        (("--old-end", "0=1", *CONFIRM), "is said to end at offset 1"),
        (("--old-end", "0=x"), "--old-end is 0=x"),
        (("--old-end", "0=1", "--old-end", "unknown"), "--old-end is 0=1 unknown"),
        (("--old-end", "0=1", "--old-end", "0=2"), "--old-end is 0=1 0=2"),
        (("--old-end", f"0={2**63}"), f"--old-end is 0={2**63}"),
        (("--old-end", "0=1", "--old-kafka", "old"), "both say where the old topic ended"),
    ],
)
def test_what_is_not_said_clearly_is_not_done(
    recreated: SmallLake, words: tuple[str, ...], told: str
) -> None:
    before = recreated.root()
    assert told in refused(*ADOPT, *words)
    assert recreated.root() == before


def test_the_same_command_again_says_what_it_did(recreated: SmallLake) -> None:
    """Its answer may have been lost; the old connection leads to what is closed by then."""
    first, second = (said(*ADOPT, "--old-kafka", "old", *CONFIRM) for _ in range(2))
    assert first.startswith(second)
    assert first.endswith("2013-01-06 to 2013-01-07")  # what still waits is said once
    assert "follows the one" in second


def test_an_unknown_end_is_said_in_so_many_words(recreated: SmallLake) -> None:
    told = said(*ADOPT, "--old-end", "unknown", *CONFIRM)
    assert "LOST" not in told
    with_json = ask(*ADOPT, "--old-end", "unknown", *CONFIRM)
    assert (with_json["done"], with_json["closed"]["lost"]) == (True, [0, 0])


def test_a_topic_that_kafka_would_not_have_is_refused(lake: SmallLake) -> None:
    assert "topic name 'events@2' is not allowed" in refused("topic", "adopt", "events@2", LAKE)


def test_without_a_connection_the_error_names_the_variable(lake: SmallLake) -> None:
    told = refused(*ADOPT)
    assert "TALLYSTICK_KAFKA_DEFAULT is not set" in told
