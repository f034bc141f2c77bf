"""The servers of the examples: accept an e-mail, withhold a 250, write one line per key."""

from __future__ import annotations

import http.client
import json
import smtplib

import pytest

from examples.billing.receiver import Receiver
from examples.dedup.mail import MailServer
from examples.dedup.scenario import IN_DOUBT_HINT
from support.call_publisher import ROWS, mail
from tallystick.airflow.lines import log_lines
from tallystick.airflow.outcome import error_lines
from tallystick.errors import OutputRefused
from tallystick.store.memory import MemoryStore
from unit.outputs.claims_on_calls import publish
from unit.outputs.publications import publication

TEXT = "Message-ID: <one@example.org>\r\nSubject: Alarms of pump\r\n\r\n..a line with a point\r\n"


def test_an_accepted_e_mail_is_in_the_log() -> None:
    server = MailServer()
    with smtplib.SMTP("127.0.0.1", server.port, timeout=10) as client:
        client.sendmail("alarms@example.org", "pump@example.org", TEXT)
        client.sendmail("alarms@example.org", "pump@example.org", TEXT)
    assert [(m.message_id, m.to, m.device) for m in server.log] == [
        ("one@example.org", "pump@example.org", "pump")
    ] * 2


def test_a_withheld_250_never_arrives_and_the_next_one_does() -> None:
    server = MailServer()
    server.withhold(1)
    with (
        smtplib.SMTP("127.0.0.1", server.port, timeout=0.5) as client,
        pytest.raises((smtplib.SMTPServerDisconnected, TimeoutError)),
    ):
        client.sendmail("alarms@example.org", "pump@example.org", TEXT)
    assert len(server.log) == 1
    with smtplib.SMTP("127.0.0.1", server.port, timeout=10) as client:
        client.sendmail("alarms@example.org", "pump@example.org", TEXT)
    assert len(server.log) == 2


def test_the_example_can_resolve_an_e_mail_in_doubt_by_the_publishers_hint() -> None:
    server, notes = MailServer(), MemoryStore("small")
    server.withhold(1)
    with pytest.raises(OutputRefused) as caught:
        publish(mail(server.port, notes, in_doubt="hold", timeout_s=1), publication(ROWS))
    logged: list[str] = []
    log_lines(lambda _, line: logged.append(line), error_lines(caught.value))
    hint = IN_DOUBT_HINT.search("\n".join(logged))
    assert hint is not None, logged
    assert hint["id"] == server.log[0].message_id
    tried, sent = (hint[name].removeprefix("memory://small/") for name in ("try", "sent"))
    note = notes.get(tried)
    assert note is not None
    notes.create(sent, note.body)
    publish(mail(server.port, notes, in_doubt="hold"), publication(ROWS), resumed=True)
    assert [m.to for m in server.log] == [row["to"] for row in ROWS]


def call(receiver: Receiver, key: str, row: dict[str, object]) -> int:
    connection = http.client.HTTPConnection(receiver.url.removeprefix("http://"), timeout=10)
    headers = {
        "Idempotency-Key": json.dumps(key),
        "Tallystick-Row-Key": "r",
        "Tallystick-Operation": "row",
        "Tallystick-Interval": "i",
        "Tallystick-Generation": "1",
    }
    try:
        connection.request("POST", "/invoices", json.dumps(row), headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def test_a_known_key_has_no_further_effect_and_is_refused_with_another_body() -> None:
    receiver = Receiver()
    assert [call(receiver, "a", {"n": 1}), call(receiver, "a", {"n": 1})] == [201, 200]
    assert call(receiver, "a", {"n": 2}) == 422
    assert call(receiver, "b", {"n": 2}) == 201
    assert receiver.calls == 4
    assert [(p.account, p.key, p.row) for p in receiver.postings] == [
        ("invoices", "a", {"n": 1}),
        ("invoices", "b", {"n": 2}),
    ]
