"""`tally status` for monitoring: --ok, the last commit, the lag, the share of dead letters."""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from support.small_lake import TOPIC, SmallLake, day, days
from tallystick.cli import lag
from tallystick.errors import KafkaUnavailable
from tallystick.kafka.wire import PartitionEnds, TopicEnds
from tallystick.operations.lag import read_lag
from tallystick.operations.release import release
from tallystick.operations.status import PROBLEMS, read_status
from unit.cli.invoke import LAKE, tally, tally_json, too_wide

# 2024-04-30 23:00: one hour before the time of the lake's clock.
NEXT_AT_MS = 1_714_518_000_000


def output_of(*argv: str, code: int = 0) -> str:
    """Return the output, in one line, of a command that must exit with `code`."""
    result = tally(*argv)
    assert result.exit_code == code, (result.stdout, result.stderr)
    assert too_wide(result.stdout) == []
    return " ".join(result.stdout.split())


def make_healthy(lake: SmallLake) -> None:
    """Fill the good lake's gap and end its grant, so that no problem is left."""
    lake.run(days(4, 5))
    release(lake.lake, days(6, 7))
    lake.run(days(6, 7))


# ---------------------------------------------------------------- --ok


def test_ok_exits_with_0_without_problems(lake: SmallLake) -> None:
    make_healthy(lake)
    assert output_of("status", LAKE, "--ok").endswith(" OK.")
    assert "No gaps from 2013-01-01 to 2013-01-07." in output_of("status", LAKE)
    answer = tally_json("status", LAKE, "--ok")
    assert (answer["ok"], answer["problems"]) == (True, {})


def test_without_ok_status_exits_with_0_despite_problems(lake: SmallLake) -> None:
    assert "OK" not in output_of("status", LAKE)
    answer = tally_json("status", LAKE)
    assert (answer["ok"], answer["problems"]) == (False, {"gaps": 1, "stuck": 1})


def test_ok_exits_with_1_and_names_the_problems(lake: SmallLake) -> None:
    assert output_of("status", LAKE, "--ok", code=1).endswith("NOT OK: 1 gaps, 1 stuck.")
    result = tally("status", LAKE, "--ok", "--json")
    assert result.exit_code == 1
    assert '"ok": false' in result.stdout


def test_allow_excludes_a_problem(lake: SmallLake) -> None:
    allowed = ("--allow", "gaps", "--allow", "stuck")
    assert output_of("status", LAKE, "--ok", *allowed).endswith("OK.")
    assert output_of("status", LAKE, "--ok", *allowed[:2], code=1).endswith("NOT OK: 1 stuck.")


def test_an_unknown_problem_is_refused_with_the_known_ones(lake: SmallLake) -> None:
    result = tally("status", LAKE, "--ok", "--allow", "gap")
    assert result.exit_code == 77
    message = " ".join(result.stderr.split())
    assert "--allow: expected a problem, found gap." in message
    assert ", ".join(PROBLEMS) in message


def test_a_loss_is_a_problem_until_it_is_allowed(lake: SmallLake) -> None:
    make_healthy(lake)
    lake.log.expire(TOPIC, 0, before=9)
    lake.run(days(3, 4), run="manual__loss", accept_loss=True, mode="replace")
    assert "NOT OK: 1 lost." in output_of("status", LAKE, "--ok", code=1)
    assert output_of("status", LAKE, "--ok", "--allow", "lost").endswith("OK.")


def test_a_lake_that_cannot_be_read_is_not_ok_either(lake: SmallLake) -> None:
    lake.lake.store.delete(["root.json"])
    assert tally("status", LAKE, "--ok").exit_code == 77


# ---------------------------------------------------------------- dead letters, generations, the last commit


def all_dead(lake: SmallLake) -> None:
    """Commit a day of which every record is a dead letter."""
    for hour in range(4):
        lake.log.append(TOPIC, 0, day(7) + timedelta(hours=hour), "dead")
    lake.run(days(7, 8))


def test_each_interval_shows_its_share_of_dead_letters(lake: SmallLake) -> None:
    output = output_of("status", LAKE)
    assert "2013-01-02 01-03 committed 2 5 2 (28%) scheduled__" in output
    shares = [interval["dead_share"] for interval in tally_json("status", LAKE)["intervals"]]
    assert shares == [2 / 7, 2 / 7, 2 / 7, None, None]
    assert tally_json("status", LAKE)["dead_share"] == 6 / 21


def test_an_interval_of_dead_letters_alone_is_a_problem(lake: SmallLake) -> None:
    make_healthy(lake)
    all_dead(lake)
    output = output_of("status", LAKE, "--ok", code=1)
    assert "committed 1 0 4 (all) scheduled__" in output
    assert "ALL DEAD: 1 interval with dead letters and no record:" in output
    assert "2013-01-07 to 2013-01-08: 4 dead letters" in output
    assert output.endswith("NOT OK: 1 dead.")
    assert tally_json("status", LAKE)["intervals"][-1]["dead_share"] == 1.0


def test_the_last_commits_time_and_the_generations_are_shown(lake: SmallLake) -> None:
    output = output_of("status", LAKE)
    assert "last commit at 2024-05-01 00:00:00 (UTC)" in output
    assert "3 intervals of generation 1, 1 interval of generation 2." in output
    answer = tally_json("status", LAKE)
    assert answer["committed_at"] == "2024-05-01T00:00:00.000Z"
    assert answer["generations"] == {"1": 3, "2": 1}


def test_a_damaged_record_hides_nothing_else(lake: SmallLake) -> None:
    record = read_status(lake.lake).record
    assert record is not None
    lake.lake.store.delete([record])
    lake.lake.store.create(record, b"{}")
    assert tally_json("status", LAKE)["committed_at"] is None
    assert "4 intervals committed" in output_of("status", LAKE)


# ---------------------------------------------------------------- lag


def ends_of(lake: SmallLake) -> TopicEnds:
    topic = lake.log.topics[TOPIC]
    return TopicEnds(
        topic_id=topic.topic_id,
        cluster_id=topic.cluster_id,
        partitions=tuple(
            PartitionEnds(start=p.log_start, end=p.end, next_at_ms=NEXT_AT_MS)
            for p in topic.partitions
        ),
        kept_ms=86_400_000,
    )


def grown(lake: SmallLake) -> TopicEnds:
    """Return the topic's ends with a third partition, of which 5 offsets are gone."""
    seen = ends_of(lake)
    return replace(seen, partitions=(*seen.partitions, PartitionEnds(start=5, end=12)))


def end_of(seen: TopicEnds) -> int:
    return sum(one.end for one in seen.partitions)


@pytest.fixture
def kafka(lake: SmallLake, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace Kafka by the lake's log; the value is the list of the connections that were used."""
    connections: list[str] = []

    def answer(connection: str, offsets: Mapping[str, Sequence[int]]) -> Mapping[str, TopicEnds]:
        connections.append(connection)
        return {topic: ends_of(lake) for topic in offsets}

    monkeypatch.setattr(lag, "read_ends", answer)
    return connections


def test_lag_is_what_comes_after_the_latest_committed_interval(
    lake: SmallLake, kafka: list[str]
) -> None:
    status = read_status(lake.lake)
    assert status.committed_to == day(6)
    behind = end_of(ends_of(lake)) - sum(status.read_to[TOPIC])
    assert behind > 0
    age = datetime.now(UTC) - datetime.fromtimestamp(NEXT_AT_MS / 1000, tz=UTC)
    output = output_of("status", LAKE)
    shown = (
        f"lag of topic events: {behind} offsets after 2013-01-06, the oldest is {age.days} d old"
    )
    assert shown in output
    assert tally_json("status", LAKE)["lag"] == {
        "connection": "default",
        "topics": {
            "events": {
                "end": end_of(ends_of(lake)),
                "read_to": sum(status.read_to[TOPIC]),
                "lag": behind,
                "gone": 0,
                "before": 0,
                "after": 0,
                "age_s": pytest.approx(age.total_seconds(), abs=600),
                "kept_s": 86_400,
                "partitions": [
                    {
                        "end": one.end,
                        "read_to": read_to,
                        "lag": one.end - read_to,
                        "gone": 0,
                        "next_at": "2024-04-30T23:00:00.000Z",
                    }
                    for one, read_to in zip(
                        ends_of(lake).partitions, status.read_to[TOPIC], strict=True
                    )
                ],
            }
        },
        "error": None,
    }
    assert kafka == ["default", "default"]


def test_lag_falls_to_0_when_all_is_committed(lake: SmallLake, kafka: list[str]) -> None:
    make_healthy(lake)
    assert tally_json("status", LAKE)["lag"]["topics"]["events"]["lag"] == 0
    lake.log.append(TOPIC, 1, day(9), n=1)
    assert tally_json("status", LAKE)["lag"]["topics"]["events"]["lag"] == 1


# ---------------------------------------------------------------- before and after the ledger


def test_offsets_before_and_after_the_ledger_are_counted_although_there_are_no_gaps(
    lake: SmallLake, kafka: list[str]
) -> None:
    """The ledger begins on day 3, so the records of two days are in no interval; two more arrive after its end."""
    lake.store.delete(lake.keys(""))
    for first in (3, 4, 5, 6):
        lake.run(days(first, first + 1))
    output = output_of("status", LAKE)
    assert "No gaps from 2013-01-03 to 2013-01-07." in output
    assert "In no interval, because the ledger does not reach that far:" in output
    assert "before 2013-01-03: 18 offsets of events" in output
    assert "after 2013-01-07:" not in output
    assert "trigger the DAG with from, and with to=2013-01-03." in output
    lake.log.append(TOPIC, 0, day(8), n=1)
    lake.log.append(TOPIC, 1, day(9), n=2)
    assert "after 2013-01-07: 2 offsets of events" in output_of("status", LAKE)
    topic = tally_json("status", LAKE)["lag"]["topics"]["events"]
    assert (topic["before"], topic["after"], topic["lag"]) == (18, 2, 2)
    lake.log.expire(TOPIC, 0, before=1)
    assert tally_json("status", LAKE)["lag"]["topics"]["events"]["before"] == 17
    lake.run(
        days(1, 3), run="manual__1", **{"from": "2013-01-01", "to": "2013-01-03"}, accept_loss=True
    )
    assert tally_json("status", LAKE)["lag"]["topics"]["events"]["before"] == 0


def test_without_offsets_before_and_after_status_reports_none(
    lake: SmallLake, kafka: list[str]
) -> None:
    assert "No offsets before 2013-01-01 or after 2013-01-07." in output_of("status", LAKE)


def test_without_kafka_nothing_is_claimed_about_before_and_after(lake: SmallLake) -> None:
    claim = "Offsets before 2013-01-01 and after 2013-01-07: not known"
    assert f"{claim} (Kafka was not asked)." in output_of("status", LAKE, "--no-kafka")
    assert f"{claim} (settings)." in output_of("status", LAKE)


def test_a_new_partition_is_after_the_ledger_and_not_before_it(lake: SmallLake) -> None:
    found = read_lag(
        lake.lake,
        read_status(lake.lake),
        connection=None,
        read_ends=lambda *_: {TOPIC: grown(lake)},
    )
    assert (found.topics[TOPIC].before, found.topics[TOPIC].after) == (0, 7)


def test_a_lake_without_intervals_has_nothing_before_or_after(
    lake: SmallLake, kafka: list[str]
) -> None:
    lake.store.delete(lake.keys(""))
    lake.lake.open("small")
    output = output_of("status", LAKE)
    assert output.endswith("The ledger has no interval yet.")
    assert tally_json("status", LAKE)["from"] is None


def test_lag_includes_what_the_log_has_lost(lake: SmallLake, kafka: list[str]) -> None:
    status = read_status(lake.lake)
    read = status.read_to[TOPIC][0]
    lake.log.expire(TOPIC, 0, before=read + 2)
    assert "the log has lost 2 of them" in output_of("status", LAKE)
    assert tally_json("status", LAKE)["lag"]["topics"]["events"]["gone"] == 2


def test_lag_counts_a_new_partition_from_its_beginning(lake: SmallLake) -> None:
    status = read_status(lake.lake)
    before, after = (
        read_lag(lake.lake, status, connection=None, read_ends=partial(lambda e, *_: {TOPIC: e}, e))
        for e in (ends_of(lake), grown(lake))
    )
    assert after.topics[TOPIC].lag == before.topics[TOPIC].lag + 7


def test_the_connection_is_the_plans_unless_one_is_named(lake: SmallLake, kafka: list[str]) -> None:
    tally_json("status", LAKE, "--kafka", "other")
    assert kafka == ["other"]


def test_kafka_is_not_contacted_with_no_kafka(lake: SmallLake, kafka: list[str]) -> None:
    assert "lag not requested" in output_of("status", LAKE, "--no-kafka")
    assert tally_json("status", LAKE, "--no-kafka")["lag"] is None
    assert kafka == []


def test_without_a_connection_status_states_it_and_succeeds(lake: SmallLake) -> None:
    output = output_of("status", LAKE)
    assert "lag unknown (settings): Kafka connection 'default' is not defined" in output
    error = tally_json("status", LAKE)["lag"]["error"]
    assert (error["kind"], tally_json("status", LAKE)["lag"]["topics"]) == ("settings", {})


def test_another_incarnation_gives_no_lag(lake: SmallLake, kafka: list[str]) -> None:
    lake.log.create(TOPIC, partitions=2)
    output = output_of("status", LAKE)
    assert "lag unknown (identity_changed): topic events: expected id" in output


def test_unreachable_or_silent_brokers_give_no_lag(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts connections and never answers
        port = silent.getsockname()[1]
        settings = f'{{"bootstrap_servers": "127.0.0.1:{port}"}}'
        monkeypatch.setenv("TALLYSTICK_KAFKA_DEFAULT", settings)
        monkeypatch.setattr(lag, "_ANSWER_MS", 200)
        assert "lag unknown (kafka_unavailable)" in output_of("status", LAKE)
    assert "lag unknown (kafka_unavailable)" in output_of("status", LAKE)


def test_a_lag_request_that_hangs_ends_at_its_limit(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()

    def hang(*_: Any) -> Mapping[str, TopicEnds]:
        released.wait(60)
        return {}

    status = read_status(lake.lake)
    monkeypatch.setattr(lag, "read_ends", hang)
    monkeypatch.setattr(lag, "LIMIT_S", 0.05)
    try:
        found = read_lag(lake.lake, status, connection=None, read_ends=lag.ends_within_limit)
        assert not released.is_set()
    finally:
        released.set()
    assert isinstance(found.error, KafkaUnavailable)
    assert "did not answer within 0.05 s" in str(found.error)


def test_a_defect_in_the_lag_request_is_raised(lake: SmallLake) -> None:
    def broken(*_: Any) -> Mapping[str, TopicEnds]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        read_lag(lake.lake, read_status(lake.lake), connection=None, read_ends=broken)
