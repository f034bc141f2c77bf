"""`tally status` warns of spans that are not committed and whose records a topic drops soon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from support.small_lake import TOPIC, SmallLake
from tallystick.cli import lag, retention_text
from tallystick.kafka.wire import PartitionEnds, TopicEnds
from unit.cli.invoke import LAKE, tally, tally_json, too_wide

GAP = datetime(2013, 1, 4, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def kept(lake: SmallLake, monkeypatch: pytest.MonkeyPatch) -> dict[str, int | None]:
    """Replace Kafka by the lake's log; the value is what the topic keeps. By default, the gap has 5 hours left."""
    wanted: dict[str, int | None] = {
        "kept_ms": round((datetime.now(UTC) - GAP + 5.5 * HOUR) / timedelta(milliseconds=1)),
        "kept_bytes": None,
    }

    def answer(connection: str, offsets: Mapping[str, Sequence[int]]) -> Mapping[str, TopicEnds]:
        topic = lake.log.topics[TOPIC]
        seen = TopicEnds(
            topic_id=topic.topic_id,
            cluster_id=topic.cluster_id,
            partitions=tuple(PartitionEnds(start=p.log_start, end=p.end) for p in topic.partitions),
            **wanted,
        )
        return dict.fromkeys(offsets, seen)

    monkeypatch.setattr(lag, "read_ends", answer)
    return wanted


def output() -> str:
    result = tally("status", LAKE)
    assert result.exit_code == 0, result.stderr
    assert too_wide(result.stdout) == []
    return " ".join(result.stdout.split())


def test_a_gap_with_little_time_is_shown_with_its_time(kept: dict[str, int | None]) -> None:
    shown = output()
    assert "RETENTION: topics may soon drop records that are not committed" in shown
    assert "gap 2013-01-04 to 2013-01-05: topic events may drop its first record from " in shown
    assert "UTC on (in 5 h" in shown
    assert "retention.bytes" not in shown
    rows = tally_json("status", LAKE)["retention"]
    (row, granted) = rows
    assert {k: row[k] for k in ("from", "to", "granted", "topic", "gone", "endangered")} == {
        "from": "2013-01-04T00:00:00.000Z",
        "to": "2013-01-05T00:00:00.000Z",
        "granted": False,
        "topic": "events",
        "gone": 0,
        "endangered": True,
    }
    assert 4 * 3600 < row["left_s"] < 6 * 3600
    assert (row["offsets"], granted["granted"], granted["from"]) == (
        7,
        True,
        "2013-01-06T00:00:00.000Z",
    )


def test_a_topic_that_keeps_everything_has_no_section(kept: dict[str, int | None]) -> None:
    kept["kept_ms"] = None
    assert "RETENTION" not in output()
    rows = tally_json("status", LAKE)["retention"]
    assert [(row["left_s"], row["endangered"]) for row in rows] == [(None, False)] * 2


def test_a_limit_by_size_is_named(kept: dict[str, int | None]) -> None:
    kept["kept_bytes"] = 1 << 30
    assert "or earlier by retention.bytes" in output()
    assert tally_json("status", LAKE)["retention"][0]["by_size"] is True


def test_what_is_gone_is_counted(kept: dict[str, int | None], lake: SmallLake) -> None:
    kept["kept_ms"] = None
    lake.log.expire(TOPIC, 0, before=12)
    shown = output()
    assert "gap 2013-01-04 to 2013-01-05: topic events has dropped 1 of its 7 offsets" in shown
    assert "granted, not committed" not in shown.partition("RETENTION")[2]


def test_a_long_list_is_cut(kept: dict[str, int | None], monkeypatch: pytest.MonkeyPatch) -> None:
    kept["kept_ms"] = 3_600_000
    assert "more" not in output().partition("RETENTION")[2]
    monkeypatch.setattr(retention_text, "SHOWN", 1)
    assert "and 1 more" in output().partition("RETENTION")[2]


def test_without_kafka_nothing_is_claimed(lake: SmallLake) -> None:
    assert "RETENTION" not in output()
    assert tally_json("status", LAKE)["retention"] is None
    assert tally_json("status", LAKE, "--no-kafka")["retention"] is None
