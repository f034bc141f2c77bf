"""`tally local topic` and `tally local produce` on a real broker, read back with a plain consumer."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, TopicPartition
from typer.testing import CliRunner, Result

from support.brokers import TestBroker, send
from support.local_stack import running_stack, use_stack
from tallystick.cli import app as cli
from tallystick.errors import KafkaUnavailable
from tallystick_devstack import producing
from tallystick_devstack.kafka import KafkaBroker
from tallystick_devstack.process import wait_until
from tallystick_devstack.producing import Delivered, NewRecord
from unit.cli.invoke import too_wide

NOON = 1_442_059_200_000  # 2015-09-12T12:00:00Z


@dataclass(frozen=True)
class Local:
    """The commands of `tally local` on the broker, and a folder for files."""

    broker: TestBroker
    folder: Path

    def run(self, *words: str, stdin: bytes | None = None) -> Result:
        result = CliRunner().invoke(cli.app, ["local", *words], prog_name="tally", input=stdin)
        assert not too_wide(result.stdout)
        return result

    def form(self, *words: str, stdin: bytes | None = None) -> Any:
        """Return the JSON of a command that must succeed."""
        result = self.run(*words, "--json", stdin=stdin)
        assert (result.exit_code, result.stderr) == (0, ""), result.stderr
        return json.loads(result.stdout)

    def file(self, content: bytes, name: str = "lines.json") -> str:
        path = self.folder / name
        path.write_bytes(content)
        return str(path)

    def records(self, topic: str) -> list[tuple[int, bytes | None, bytes | None, int, Any]]:
        """Return partition, key, value, timestamp and headers of every record, in the order of partition and offset."""
        return sorted(read(self.broker, topic), key=lambda one: one[0])

    def values(self, topic: str) -> list[bytes | None]:
        return [one[2] for one in self.records(topic)]


def read(broker: TestBroker, topic: str) -> Iterator[Any]:
    partitions = broker.admin.list_topics(topic, timeout=10).topics[topic].partitions
    ends = {p: broker.high_watermark(topic, p) for p in partitions}
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reads",
            "fetch.message.max.bytes": 64 << 20,
        }
    )
    consumer.assign([TopicPartition(topic, p, 0) for p in ends])
    found: list[Any] = []

    def at_the_end() -> bool:
        message = consumer.poll(0.5)
        if message is not None:
            assert message.error() is None
            _, at_ms = message.timestamp()
            found.append(
                (message.partition(), message.key(), message.value(), at_ms, message.headers())
            )
        return len(found) >= sum(ends.values())

    wait_until(at_the_end, deadline_s=60.0, what="the end of the topic", poll_s=0.0)
    consumer.close()
    yield from found


@pytest.fixture
def local(broker: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Local:
    settings = {"bootstrap_servers": broker.bootstrap}
    use_stack(monkeypatch, running_stack(tmp_path / "state", kafka=settings))
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.chdir(tmp_path)
    return Local(broker, tmp_path)


# ---------------------------------------------------------------- topics


def test_a_created_topic_keeps_old_records_and_has_one_partition(local: Local) -> None:
    created = local.run("topic", "create", "made")
    assert created.exit_code == 0, created.stderr
    assert "Created topic made with 1 partition." in created.stdout
    assert "kept for ever (retention.ms=-1)" in created.stdout
    form = local.form("topic", "describe", "made")
    assert [one["end_offset"] for one in form["partitions"]] == [0]
    assert {"name": "retention.ms", "value": "-1", "set_by": "topic"} in form["settings"]


def test_partitions_retention_and_other_settings_are_set(local: Local) -> None:
    form = local.form(
        *("topic", "create", "set", "--partitions", "3", "--retention", "7d"),
        *("--config", "cleanup.policy=compact,delete", "--config", "max.message.bytes=2000"),
    )
    assert [one["partition"] for one in form["partitions"]] == [0, 1, 2]
    of_topic = {one["name"]: one["value"] for one in form["settings"] if one["set_by"] == "topic"}
    assert of_topic == {
        "retention.ms": "604800000",
        "cleanup.policy": "compact,delete",
        "max.message.bytes": "2000",
    }
    assert form["id"]


def test_a_topic_that_exists_is_not_changed_and_both_values_are_named(local: Local) -> None:
    local.form("topic", "create", "twice", "--partitions", "3")
    result = local.run("topic", "create", "twice", "--partitions", "2")
    assert result.exit_code == 77
    error = " ".join(result.stderr.split())
    assert (
        "expected a new topic with 2 partitions, found one that exists, with 3 partitions" in error
    )
    assert len(local.form("topic", "describe", "twice")["partitions"]) == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a b"], "topic name 'a b' is not allowed"),
        (["a", "--partitions", "0"], "greater than or equal to 1"),
        (["a", "--retention", "soon"], "--retention: expected a duration"),
        (["a", "--config", "retention.ms"], "--config: expected NAME=VALUE"),
        (["a", "--config", "a=1", "--config", "a=2"], "expected each name once"),
        (["a", "--config", "retention.ms=5", "--retention", "7d"], "set the same"),
        (["a", "--config", "no.such=1"], "Unknown topic config name: no.such"),
        (["a", "--config", "retention.ms=x"], "Not a number of type LONG"),
    ],
)
def test_a_topic_that_cannot_be_created_names_the_reason(
    local: Local, words: list[str], message: str
) -> None:
    result = local.run("topic", "create", *words)
    assert result.exit_code in (2, 77)
    assert message in " ".join(result.stderr.split())
    assert "a" not in [one["topic"] for one in local.form("topic", "list")["topics"]]


def test_an_unknown_topic_gets_similar_names(local: Local) -> None:
    local.form("topic", "create", "wikiticker")
    for words in (["topic", "describe", "wikitickr"], ["produce", "WikiTicker", local.file(b"{}")]):
        result = local.run(*words)
        assert result.exit_code == 77
        assert "Next: did you mean wikiticker?" in result.stderr


def test_describe_shows_offsets_and_timestamps_of_each_partition(local: Local) -> None:
    local.form("topic", "create", "described", "--partitions", "2")
    producer = local.broker.producer()
    for at_ms in (NOON + 5000, NOON + 9000, NOON + 10_000, NOON):
        send(producer, "described", b"x", timestamp=at_ms)
    local.broker.delete_records("described", 1)
    form = local.form("topic", "describe", "described")
    assert form["partitions"] == [
        {
            "partition": 0,
            "first_offset": 1,
            "end_offset": 4,
            "offsets": 3,
            "first_timestamp_ms": NOON + 9000,
            "latest_timestamp_ms": NOON + 10_000,
        },
        {
            "partition": 1,
            "first_offset": 0,
            "end_offset": 0,
            "offsets": 0,
            "first_timestamp_ms": None,
            "latest_timestamp_ms": None,
        },
    ]
    text = local.run("topic", "describe", "described").stdout
    assert "2015-09-12 12:00:09" in text
    (line,) = [one for one in local.form("topic", "list")["topics"] if one["topic"] == "described"]
    assert line["offsets"] == 3
    listed = local.run("topic", "list").stdout
    assert "described" in listed
    assert "__" not in listed


def test_a_timestamp_after_the_year_9999_is_shown_as_it_is(local: Local) -> None:
    topic = local.broker.topic(message_timestamp_after_max_ms=2**63 - 1)
    send(local.broker.producer(), topic, b"x", timestamp=253_402_300_800_000)
    text = local.run("topic", "describe", topic).stdout
    assert "253402300800000 ms (after the year 9999)" in " ".join(text.split())


def test_a_broker_that_does_not_answer_is_an_error_for_later(
    local: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tallystick_devstack.topics.TIMEOUT_S", 1.0)
    nowhere = {"bootstrap_servers": "127.0.0.1:1"}
    use_stack(monkeypatch, running_stack(local.folder / "state", kafka=nowhere))
    for words in (["list"], ["create", "x"], ["describe", "x"]):
        result = local.run("topic", *words)
        assert (result.exit_code, result.stdout) == (75, "")
        assert "127.0.0.1:1" in result.stderr


# ---------------------------------------------------------------- produce


LINES = [
    b'{"t": "2015-09-12T12:00:00.771Z", "user": "a", "n": 1}',
    b'  {"t": "2015-09-12T13:00:00+01:00", "user": "b"}  ',
    b'{"t": "2015-09-12T12:00:02", "user": null}',
    '{"t": "2015-09-12", "user": "ü", "text": "naïve"}'.encode(),
]
TIMES = [NOON + 771, NOON, NOON + 2000, NOON - 12 * 3_600_000]
KEYS = [b"a", b"b", None, "ü".encode()]


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"\n".join(LINES) + b"\n", "lines.json"),
        (b"\n".join(LINES), "no-end.json"),
        (b"\r\n".join(LINES) + b"\r\n", "crlf.json"),
        (b"\xef\xbb\xbf" + b"\n".join(LINES), "bom.json"),
        (b"\n\n" + b"\n \n".join(LINES), "blank.json"),
        (gzip.compress(b"\n".join(LINES), mtime=0), "lines.json.gz"),
    ],
)
@pytest.mark.parametrize("way", ["file", "stdin"])
def test_each_line_is_a_record_with_its_time_its_key_and_the_headers(
    local: Local, content: bytes, name: str, way: str
) -> None:
    topic = f"{way}-{name}"
    local.form("topic", "create", topic)
    file = local.file(content, name) if way == "file" else "-"
    words = (
        "--time",
        "t",
        "--key",
        "user",
        "--header",
        "a=1=2",
        "--header",
        "b=",
        "--header",
        "a=ü",
    )
    form = local.form("produce", topic, file, *words, stdin=content if way == "stdin" else None)
    headers = [("a", b"1=2"), ("b", b""), ("a", "ü".encode())]
    assert local.records(topic) == [
        (0, key, line, at_ms, headers) for key, line, at_ms in zip(KEYS, LINES, TIMES, strict=True)
    ]
    assert (form["records"], form["without_key"], form["bad_lines"]) == (4, 1, 0)
    assert (form["first_timestamp_ms"], form["last_timestamp_ms"]) == (min(TIMES), max(TIMES))
    assert form["partitions"] == [
        {"partition": 0, "records": 4, "first_offset": 0, "last_offset": 3}
    ]
    assert form["byte_order_mark"] is (name == "bom.json")
    assert form["blank_lines"] == (5 if name == "blank.json" else 0)


def test_without_time_and_key_any_line_is_sent_byte_for_byte_with_the_time_of_sending(
    local: Local,
) -> None:
    lines = [b"{broken", b"\xff\xfe", b"text", b"[1]", b"a\rb", b"\x00"]
    local.form("topic", "create", "raw")
    before = time.time_ns() // 1_000_000
    result = local.run("produce", "raw", local.file(b"\n".join(lines)))
    assert result.exit_code == 0, result.stderr
    assert "Sent 6 records to topic raw; each is confirmed." in result.stdout
    assert "the time of sending" in " ".join(result.stdout.split())
    found = local.records("raw")
    assert [one[2] for one in found] == lines
    assert {one[1] for one in found} == {None}
    assert min(one[3] for one in found) >= before


def test_records_of_a_key_are_where_a_java_producer_puts_them(local: Local) -> None:
    local.form("topic", "create", "keyed", "--partitions", "7")
    lines = b"\n".join(b'{"k": "%d"}' % n for n in range(40))
    form = local.form("produce", "keyed", local.file(lines), "--key", "k")
    assert sum(one["records"] for one in form["partitions"]) == 40
    found = {one[1]: one[0] for one in local.records("keyed")}
    assert found == {str(n).encode(): murmur2(str(n).encode()) % 7 for n in range(40)}


def murmur2(key: bytes) -> int:
    """Return the positive hash of Kafka's partitioner (Utils.murmur2 and toPositive), written after its definition."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = 0x9747B28C ^ len(key)
    whole = len(key) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(key[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    rest = key[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return (h ^ h >> 15) & 0x7FFFFFFF


BAD = [b"{broken", b'{"t": "2015-09-12T12:00:00Z"}', b'{"u": 1}', b'{"t": "2015-09-12T12:00:05Z"}']


def test_a_bad_line_is_named_and_nothing_of_the_file_is_sent(local: Local) -> None:
    local.form("topic", "create", "refused")
    result = local.run(
        "produce", "refused", local.file(b"\n".join((BAD[1], BAD[0], BAD[2]))), "--time", "t"
    )
    assert (result.exit_code, result.stdout) == (77, "")
    error = " ".join(result.stderr.split())
    assert (
        "line 2: expected a JSON object with a field 't' for --time, found: it is not JSON" in error
    )
    assert "'{broken'. It is one of 2 such lines. Nothing was sent." in error
    assert "--bad-lines skip" in error
    assert local.values("refused") == []


def test_from_a_pipe_the_lines_before_a_bad_line_are_sent_and_counted(local: Local) -> None:
    local.form("topic", "create", "piped")
    content = b"\n".join((BAD[1], BAD[3], BAD[0], BAD[1]))
    result = local.run("produce", "piped", "-", "--time", "t", stdin=content)
    assert (result.exit_code, result.stdout) == (77, "")
    error = " ".join(result.stderr.split())
    assert "-, line 3: expected a JSON object" in error
    assert "The lines before it are sent: 2 records." in error
    assert "use a new topic" in error
    assert local.values("piped") == [BAD[1], BAD[3]]


@pytest.mark.parametrize(
    ("action", "lines", "times"),
    [
        ("skip", [BAD[1], BAD[3]], [NOON, NOON + 5000]),
        # The first line has none before it, so it gets the first time of the file.
        ("send", BAD, [NOON, NOON, NOON, NOON + 5000]),
    ],
)
def test_bad_lines_are_skipped_or_sent_with_the_time_of_the_line_before(
    local: Local, action: str, lines: list[bytes], times: list[int]
) -> None:
    topic = f"bad-{action}"
    local.form("topic", "create", topic)
    words = ("produce", topic, local.file(b"\n".join(BAD)), "--time", "t", "--bad-lines", action)
    form = local.form(*words)
    assert (form["records"], form["bad_lines"]) == (len(lines), 2)
    assert [(one[2], one[3]) for one in local.records(topic)] == list(
        zip(lines, times, strict=True)
    )
    text = local.run(*words).stdout
    assert "2 bad lines" in text


def test_a_key_that_no_line_has_is_refused_with_the_fields_that_there_are(local: Local) -> None:
    local.form("topic", "create", "keyless")
    result = local.run(
        "produce", "keyless", local.file(b'{"user": 1}\n{"user": 2}'), "--key", "usr"
    )
    assert result.exit_code == 77
    error = " ".join(result.stderr.split())
    assert "found no value of it in 2 lines. Nothing was sent." in error
    assert "use a field that the lines have: user; a.b is the field b of the object a." in error
    assert local.values("keyless") == []


@pytest.mark.parametrize(
    "content", [b"", b"\n\n", gzip.compress(b"", mtime=0)], ids=["empty", "blank", "gz"]
)
def test_an_empty_file_sends_nothing(local: Local, content: bytes) -> None:
    topic = f"empty-{len(content)}"
    local.form("topic", "create", topic)
    result = local.run("produce", topic, local.file(content), "--time", "t", "--key", "k")
    assert result.exit_code == 0, result.stderr
    assert f"Sent no records to topic {topic}." in result.stdout
    assert local.values(topic) == []


def test_a_second_call_appends_and_a_note_states_it(local: Local) -> None:
    local.form("topic", "create", "again")
    file = local.file(b"1\n2")
    first = local.run("produce", "again", file)
    assert "already holds" not in first.stderr
    assert first.stdout.endswith('Next: eval "$(tally local env)"; tally init again\n')
    second = local.run("produce", "again", file)
    assert "already holds 2 offsets" in second.stderr
    assert second.stdout.endswith("Next: tally local topic describe again\n")
    assert local.values("again") == [b"1", b"2", b"1", b"2"]
    assert local.form("produce", "again", file)["offsets_before"] == 4


def test_the_next_step_is_a_pipeline_of_the_topic(
    local: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLYSTICK_KAFKA_DEFAULT", "{}")
    for topic, step in (("next", "tally init next"), ("A.b", "tally init NAME --topic A.b")):
        local.form("topic", "create", topic)
        sent = local.run("produce", topic, local.file(b"{}"))
        assert sent.stdout.endswith(f"Next: {step}\n")


def test_an_interrupted_call_states_how_many_records_are_confirmed(
    local: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.form("topic", "create", "interrupted")

    def interrupt(*_: object) -> Iterator[NewRecord]:
        yield NewRecord(line=1, value=b"sent")
        wait_until(lambda: local.values("interrupted") == [b"sent"], deadline_s=30, what="line 1")
        raise KeyboardInterrupt

    monkeypatch.setattr("tallystick_devstack.line_records.LineRecords.of", interrupt)
    result = local.run("produce", "interrupted", "-", stdin=b"")
    assert (result.exit_code, result.stdout) == (130, "")
    assert "Interrupted. Confirmed: 1 record." in result.stderr


def test_a_very_long_line_is_one_record(local: Local) -> None:
    local.form("topic", "create", "long")
    line = b'{"text": "' + b"x" * (20 << 20) + b'"}'
    form = local.form("produce", "long", local.file(line + b"\n{}\n"))
    assert form["records"] == 2
    assert local.values("long") == [line, b"{}"]


def test_a_line_longer_than_the_topic_allows_is_refused_before_anything_is_sent(
    local: Local,
) -> None:
    local.form("topic", "create", "short", "--config", "max.message.bytes=3000")
    result = local.run("produce", "short", local.file(b"{}\n" + b"x" * 3001))
    assert result.exit_code == 77
    assert "line 2: expected at most 3,000 bytes" in " ".join(result.stderr.split())
    assert local.values("short") == []


def test_small_lines_fit_a_topic_that_allows_small_batches_only(local: Local) -> None:
    local.form("topic", "create", "small", "--config", "max.message.bytes=3000")
    lines = [f'{{"n": {n}}}'.encode() for n in range(2000)]
    assert local.form("produce", "small", local.file(b"\n".join(lines)))["records"] == 2000
    assert local.values("small") == lines


def test_a_record_that_the_broker_refuses_is_named_with_the_count_of_the_others(
    local: Local,
) -> None:
    local.form("topic", "create", "compacted", "--config", "cleanup.policy=compact")
    result = local.run(
        "produce", "compacted", local.file(b'{"k": 1}\n{"k": null}\n{"k": 2}'), "--key", "k"
    )
    assert (result.exit_code, result.stdout) == (77, "")
    error = " ".join(result.stderr.split())
    assert "topic compacted" in error
    assert "records" in error
    assert "a compacted topic takes no record without a key" in error


def test_a_time_that_the_topic_refuses_is_found_before_anything_is_sent(local: Local) -> None:
    local.form("topic", "create", "future")
    line = b'{"t": "2015-09-12T12:00:00Z"}\n{"t": "9000-01-01T00:00:00Z"}'
    result = local.run("produce", "future", local.file(line), "--time", "t")
    assert result.exit_code == 77
    assert "message.timestamp.after.max.ms" in result.stderr
    assert local.values("future") == []


def test_a_topic_with_the_brokers_time_refuses_a_time_of_the_lines(local: Local) -> None:
    local.form("topic", "create", "append", "--config", "message.timestamp.type=LogAppendTime")
    result = local.run("produce", "append", local.file(LINES[0]), "--time", "t")
    assert result.exit_code == 77
    assert "message.timestamp.type=CreateTime for --time, found LogAppendTime" in " ".join(
        result.stderr.split()
    )


def test_old_records_in_a_topic_that_deletes_them_get_a_note(local: Local) -> None:
    local.form("topic", "create", "kept-short", "--retention", "7d")
    result = local.run("produce", "kept-short", local.file(LINES[0]), "--time", "t")
    assert result.exit_code == 0
    assert (
        "retention.ms=604800000, and there are timestamps from 2015-09-12 12:00:00.771 on"
        in " ".join(result.stderr.split())
    )


def test_one_json_document_is_not_taken_for_lines(local: Local) -> None:
    local.form("topic", "create", "document")
    file = local.file(b'[\n  {"t": "2015-09-12T12:00:00Z"}\n]\n')
    refused = local.run("produce", "document", file, "--time", "t")
    assert (refused.exit_code, f"jq -c '.[]' {file}" in " ".join(refused.stderr.split())) == (
        77,
        True,
    )
    sent = local.run("produce", "document", file)
    assert (sent.exit_code, "begins like one JSON document" in sent.stderr) == (0, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--bad-lines", "drop"], "expected refuse, skip, send, found 'drop'"),
        (["--header", "a"], "--header: expected NAME=VALUE"),
        (["--time-format", "epoch_s"], "expected --time with it"),
        (["--time", "t", "--time-format", "%H"], "has no year"),
    ],
)
def test_a_wrong_option_is_refused(local: Local, words: list[str], message: str) -> None:
    result = local.run("produce", "any", local.file(b"{}"), *words)
    assert result.exit_code == 77
    assert message in " ".join(result.stderr.split())


def test_a_file_that_is_not_there_is_refused(local: Local) -> None:
    result = local.run("produce", "any", str(local.folder / "none.json"))
    assert (result.exit_code, "No such file" in result.stderr) == (77, True)


@contextmanager
def frozen(broker: TestBroker) -> Iterator[None]:
    """Stop the broker's processes without ending them, and let them run again at the end."""
    assert isinstance(broker.kafka, KafkaBroker)
    warden = psutil.Process(broker.kafka.process.pid)
    (java,) = [one for one in warden.children(recursive=True) if one.name() == "java"]
    java.suspend()
    try:
        yield
    finally:
        java.resume()


def test_records_that_are_not_confirmed_in_time_are_an_error_with_the_count_of_the_others(
    local: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.form("topic", "create", "frozen")
    monkeypatch.setattr(producing, "DELIVERY_S", 2.0)
    delivered = Delivered()

    def records() -> Iterator[NewRecord]:
        yield NewRecord(line=3, value=b"before")
        wait_until(lambda: local.values("frozen") == [b"before"], deadline_s=30, what="line 3")
        with frozen(local.broker):
            yield NewRecord(line=5, value=b"after")
            yield NewRecord(line=6, value=b"after")
            deadline = time.monotonic() + 30
            while delivered.cause is None and time.monotonic() < deadline:
                producers[0].poll(0.1)

    producers = []
    make = producing._producer

    def kept(*settings: Any) -> Any:
        producers.append(make(*settings))
        return producers[0]

    monkeypatch.setattr(producing, "_producer", kept)
    with pytest.raises(KafkaUnavailable) as caught:
        producing.produce(
            {"bootstrap.servers": local.broker.bootstrap},
            "frozen",
            records(),
            delivered,
            message_bytes_max=1 << 20,
        )
    assert caught.value.message.startswith("line 5 to topic frozen")
    assert "Confirmed: 1 record." in caught.value.message
    assert "may be in the topic, or not" in caught.value.hint
    assert delivered.unconfirmed_line == 5
