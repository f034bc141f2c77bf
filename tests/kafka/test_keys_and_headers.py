"""Keys and headers of a real broker's records as columns: each record once, deletions with their key."""

from __future__ import annotations

from typing import Any

from support.brokers import TestBroker, send
from support.log_lake import LogLake, at, days, ms
from tallystick.pipeline import DEAD_LETTERS, Column, Json, Table, Topic

COLUMNS = [
    Column("order_id", "long"),
    Column("amount", "int", required=False),
    Column("headers", "map<string, list<optional binary>>"),
]
Headers = list[tuple[str, bytes | None]]
RECORDS: list[tuple[bytes | None, bytes | None, Headers]] = [
    (b'{"order_id": 1}', b'{"amount": 5}', [("trace", b"a"), ("origin", b"x"), ("trace", None)]),
    (b'{"order_id": 2}', b'{"amount": 6}', []),
    (b'{"order_id": 1}', None, [("deleted-by", b"\xff\x00")]),
    (None, b'{"amount": 7}', []),
    (b'{"order_id": "3"}', b'{"amount": 8}', [("trace", b"b")]),
    (b"{", b'{"amount": "nine"}', []),
]


def test_keys_and_headers_are_columns_and_a_deletion_keeps_its_key(broker: TestBroker) -> None:
    topic = broker.topic()
    lake = LogLake(
        broker,
        [
            Topic(
                topic,
                decode=Json([COLUMNS[1]], tombstones="keep"),
                key=Json([COLUMNS[0]]),
                headers="headers",
            )
        ],
        tables=[Table("events", columns=COLUMNS)],
    )
    producer = broker.producer()
    for key, value, headers in RECORDS:
        send(producer, topic, value, key=key, headers=headers, timestamp=ms(at(0.5)), flush=False)
    send(producer, topic)
    result = lake.run(days(0, 1))
    assert result is not None
    assert (result.totals.records, result.totals.dead_letters) == (3, 3)
    names = ("order_id", "amount", "headers")
    rows = {offset: [row[n] for n in names] for (_, _, offset), row in lake.rows().items()}
    assert rows == {
        0: [1, 5, [("trace", [b"a", None]), ("origin", [b"x"])]],
        1: [2, 6, []],
        2: [1, None, [("deleted-by", [b"\xff\x00"])]],
    }
    dead: dict[int, Any] = {
        offset: (row["kind"], row["field"], row["key"])
        for (_, _, offset), row in lake.rows(DEAD_LETTERS).items()
    }
    assert dead == {
        3: ("tombstone", "key", None),
        4: ("type", "key.order_id", RECORDS[4][0]),
        5: ("type", "amount", RECORDS[5][0]),
    }
    lake.assert_verified()
