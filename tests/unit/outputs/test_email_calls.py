"""E-mails: their text, refusals before any is sent, the meaning of each answer, and values that are never shown."""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.call_publisher import ROWS, mail
from support.certificates import self_signed
from support.mail_server import Post, mail_server
from tallystick.connections.resolve import resolve
from tallystick.connections.smtp import SmtpSettings
from tallystick.errors import InvalidPipeline, OutputRefused, OutputUnavailable, SettingsError
from tallystick.format import keys
from tallystick.outputs.calls.declared import EmailOutput, is_address
from tallystick.outputs.calls.effects import effects
from tallystick.outputs.calls.email import TRIES_MAX, Mailbox
from tallystick.store.memory import MemoryStore
from tallystick_devstack.process import free_port
from unit.outputs.claims_on_calls import publish
from unit.outputs.publications import IN_THE_YEAR_10000, SCOPE, in_the_year_10000, publication

SECRET = "s3cr3t-w0rd"
ANN = {"k": "a", "to": "ann@example.org", "n": 1}


def store() -> MemoryStore:
    """Return the empty store of a lake."""
    return MemoryStore("small")


def written(row: dict[str, Any], **options: Any) -> Any:
    """Return the e-mail of a row."""
    post = Post()
    with mail_server(post) as port:
        publish(mail(port, store(), **options), publication([row]))
    (message,) = post.taken
    return message


def test_an_e_mail_has_the_values_of_its_row_and_an_id_that_never_changes() -> None:
    post = Post()
    with mail_server(post) as port:
        publish(mail(port, store()), publication([ANN]))
    (message,) = post.taken
    (effect,) = effects(publication([ANN]), SCOPE, key=("k",), once=True)
    assert post.envelopes == [("shop@example.com", "ann@example.org")]
    assert message["Message-ID"] == f"<{effect.key}@example.com>"
    assert message["X-Idempotency-Key"] == effect.key
    assert message["X-Tallystick-Interval"] == "20130101T000000000Z-20130102T000000000Z"
    assert (message["From"], message["To"]) == ("shop@example.com", "ann@example.org")
    assert message["Subject"] == "News of a"
    assert message.get_content().splitlines() == ["It is 1."]
    assert message["Auto-Submitted"] == "auto-generated"
    assert message["Date"]


def test_texts_in_any_script_and_any_length_arrive_unchanged() -> None:
    row = {"k": "Zoë ☕", "to": "z@example.org", "n": "." + "ä" * 3000 + "\n.\n..two\n"}
    message = written(row, body="{n}", subject="{{{k}}}")
    assert message["Subject"] == "{Zoë ☕}"
    assert message.get_content().splitlines() == row["n"].splitlines()


def test_a_null_is_an_empty_text() -> None:
    rows = [{"k": "a", "to": "a@example.org", "n": None}]
    assert written(rows[0], body="n={n}!").get_content().strip() == "n=!"


@pytest.mark.parametrize(
    ("row", "options", "message"),
    [
        (
            ANN | {"to": None},
            {},
            "row 1 (k='a'): expected one plain ASCII address in column 'to', found null",
        ),
        (ANN | {"to": "ann"}, {}, "expected one plain ASCII address"),
        (ANN | {"to": "a@x.org, b@x.org"}, {}, "expected one plain ASCII address"),
        (ANN | {"to": "a@x.org\r\nBcc: b@x.org"}, {}, "expected one plain ASCII address"),
        (ANN | {"to": "Ann <a@x.org>"}, {}, "expected one plain ASCII address"),
        (ANN | {"k": "a\r\nBcc: b@x.org"}, {}, "expected a subject of at most"),
        (ANN | {"k": "a\nb"}, {}, "expected a subject of at most"),
        (ANN | {"k": "a\x85b"}, {}, "expected a subject of at most"),
        (ANN | {"k": "a" * 2000}, {}, "at most 900 characters"),
        (ANN, {"body": "{name}"}, "expected column 'name' for the body, found none"),
        (ANN | {"k": None}, {}, "row 1: expected a value in key column 'k', found null"),
        (ANN | {"k": "first"}, {}, "found rows 0 and 1 with the key (k='first')"),
    ],
)
def test_a_row_without_a_valid_e_mail_is_refused_before_any_is_sent(
    row: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    post, notes = Post(), store()
    first = {"k": "first", "to": "first@example.org", "n": 0}
    with mail_server(post) as port, pytest.raises(OutputRefused) as caught:
        publish(mail(port, notes, **options), publication([first, row], identity=("n",)))
    assert message in str(caught.value)
    assert "output feed of [2013-01-01T00:00:00.000Z" in str(caught.value)
    assert post.connections == 0
    assert list(notes.list("")) == []


def test_a_time_that_no_reader_can_read_is_refused_before_any_is_sent() -> None:
    post = Post()
    late = in_the_year_10000(to=["a@example.org", "b@example.org"])
    with mail_server(post) as port, pytest.raises(OutputRefused) as caught:
        publish(mail(port, store()), late)
    assert caught.value.message == IN_THE_YEAR_10000
    assert post.connections == 0


@pytest.mark.parametrize("text", ["a@b", "a.b+c@d-e.org", "o'neil@example.org", "a!#$%@x.org"])
def test_a_plain_address_is_accepted(text: str) -> None:
    assert is_address(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "@",
        "a@",
        "@b",
        "a@b@c",
        "a b@c",
        "a@b,c@d",
        "<a@b>",
        "a@b\n",
        "ä@b",
        "a@b..c",
        "a@-b",
        '"a"@b',
    ],
)
def test_any_other_address_is_refused(text: str) -> None:
    assert not is_address(text)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subject": "a\nb"}, "expected a subject of one line"),
        ({"subject": "{k"}, "cannot be parsed"),
        ({"body": "{k.__class__}"}, "found 'k.__class__'"),
        ({"body": "{k!r}"}, "found 'k'"),
        ({"body": "{}"}, "found ''"),
        ({"sender": "Shop <a@b>"}, "expected an e-mail address as sender"),
        ({"replaced": "correct"}, "replaced='correct'"),
        ({"in_doubt": "ask"}, "in_doubt='ask'"),
        ({"key": ["k", "k"]}, "expected a list of columns, each once, as key"),
    ],
)
def test_an_invalid_e_mail_declaration_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidPipeline) as caught:
        mail(1, store(), **options)
    assert message in str(caught.value)


def test_a_target_names_the_server_the_column_and_the_key() -> None:
    assert mail(1, store()).declared.target == "smtp:default/to once per k"


# ---------------------------------------------------------------- answers


def test_an_unknown_address_is_an_error_and_can_be_skipped() -> None:
    post, notes = Post(refuses={"k2@example.org": "550 no such user"}), store()
    with mail_server(post) as port:
        with pytest.raises(
            OutputRefused, match="the mail server answered 550: no such user"
        ) as caught:
            publish(mail(port, notes), publication(ROWS))
        key = caught.value.hint.partition("memory://small/")[2].partition(" ")[0]
        notes.create(key, b"by hand")
        publish(mail(port, notes, in_doubt="hold"), publication(ROWS), resumed=True)
    assert post.to == [row["to"] for row in ROWS if row["k"] != "k2"]


def test_an_e_mail_to_a_refused_address_is_not_in_doubt() -> None:
    """The try is noted only after the server has accepted the address."""
    post, notes = Post(refuses={"k2@example.org": "450 later"}), store()
    with mail_server(post) as port:
        for _ in range(3):
            with pytest.raises(OutputUnavailable, match="answered 450: later"):
                publish(mail(port, notes, in_doubt="hold"), publication(ROWS), resumed=True)
        post.refuses = {}
        publish(mail(port, notes, in_doubt="hold"), publication(ROWS), resumed=True)
    assert post.to == [row["to"] for row in ROWS]


def test_a_server_that_hangs_up_between_two_e_mails_is_reconnected() -> None:
    post = Post(hangs_up_after=2)
    with mail_server(post) as port:
        publish(mail(port, store()), publication(ROWS))
    assert post.to == [row["to"] for row in ROWS]
    assert post.connections == 3


def test_a_text_that_is_never_accepted_is_not_retried_for_ever() -> None:
    post, notes = Post(faults=dict.fromkeys(range(99), "451")), store()
    with mail_server(post) as port:
        for _ in range(TRIES_MAX):
            with pytest.raises(OutputUnavailable, match="answered 451: not this one"):
                publish(mail(port, notes), publication(ROWS), resumed=True)
        with pytest.raises(OutputRefused, match=f"acknowledged none of {TRIES_MAX} tries"):
            publish(mail(port, notes), publication(ROWS), resumed=True)
    assert post.texts == TRIES_MAX


def test_a_text_that_the_server_refuses_is_an_error() -> None:
    with (
        mail_server(Post(faults={0: "554"})) as port,
        pytest.raises(OutputRefused, match="the mail server answered 554: not this one"),
    ):
        publish(mail(port, store()), publication(ROWS))


def test_an_unreachable_server_is_retried_later() -> None:
    with pytest.raises(
        OutputUnavailable, match=r"127\.0\.0\.1:\d+\) did not .*: Connection refused"
    ):
        publish(mail(free_port(), store()), publication(ROWS))


def test_a_server_that_never_answers_leaves_the_e_mail_in_doubt() -> None:
    silence = threading.Event()
    post, notes = Post(step=lambda _: silence.wait(60) and None), store()
    with mail_server(post) as port:
        with pytest.raises(OutputRefused, match="the server's answer was not noted"):
            publish(mail(port, notes, in_doubt="hold", timeout_s=1), publication(ROWS))
        silence.set()
    assert len(list(notes.list(""))) == 1


def test_nothing_is_sent_if_the_note_took_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other publishers wait for a try from its note on, so a late try must not be made."""
    moments = iter([0.0, 0.0, 100.0])
    # The clock of this module only: the threads of the mail server and others continue to read the real one.
    clock = SimpleNamespace(monotonic=lambda: next(moments, 200.0))
    monkeypatch.setattr("tallystick.outputs.calls.email.time", clock)
    post, notes = Post(), store()
    with (
        mail_server(post) as port,
        pytest.raises(OutputUnavailable, match="its note took more than"),
    ):
        publish(mail(port, notes), publication(ROWS[:1]))
    assert post.taken == []
    assert [keys.call_parts(note.key) for note in notes.list("")] == [("no", 1), ("try", 1)]


# ---------------------------------------------------------------- connections


def connected(settings: SmtpSettings) -> Mailbox:
    """Return an output with this connection."""
    declared = EmailOutput(
        name="feed", table="events", to="to", subject="s", body="b", sender="shop@example.com"
    )
    return Mailbox(declared, lambda: settings, store(), doubt_s=0.0)


def test_starttls_and_login_come_before_any_e_mail(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    certificate = self_signed(tmp_path / "own.pem")
    post = Post(certificate=certificate, password=SECRET)
    with mail_server(post) as port:
        trusted = SmtpSettings(
            host="127.0.0.1", port=port, username="me", password=SECRET, cafile=str(certificate)
        )
        publish(connected(trusted), publication([ANN]))
        untrusted = SmtpSettings(host="127.0.0.1", port=port, username="me", password=SECRET)
        with pytest.raises(SettingsError, match="is not trusted: self-signed certificate"):
            publish(connected(untrusted), publication([ANN]))
        wrong = SmtpSettings(
            host="127.0.0.1",
            port=port,
            username="me",
            password=f"{SECRET}2",
            cafile=str(certificate),
        )
        with pytest.raises(SettingsError, match="answered 535: ") as caught:
            publish(connected(wrong), publication([ANN]))
    assert post.to == ["ann@example.org"]
    assert SECRET not in f"{caught.value} {caught.value.__context__} {trusted} {caplog.text}"


def test_a_server_without_tls_gets_nothing_if_tls_is_required() -> None:
    post = Post()
    with (
        mail_server(post) as port,
        pytest.raises(SettingsError, match="does not support security='starttls'"),
    ):
        publish(connected(SmtpSettings(host="127.0.0.1", port=port)), publication([ANN]))
    assert post.taken == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "host is not a host name"),
        ({"host": f"me:{SECRET}@a"}, "host is not a host name"),
        ({"host": "a", "security": "ssl"}, "unknown security 'ssl'"),
        ({"host": "a", "port": 70000}, "found 70000"),
        ({"host": "a", "username": "me"}, "one of username and password"),
        (
            {"host": "a", "username": "me", "password": SECRET, "security": "none"},
            "send the password unencrypted",
        ),
        ({"host": "a", "disable_tls": True}, "'disable_tls' is not a setting"),
    ],
)
def test_an_invalid_smtp_connection_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        resolve(SmtpSettings, "main", environ={"TALLYSTICK_SMTP_MAIN": json.dumps(settings)})
    assert message in str(caught.value)
    assert SECRET not in f"{caught.value} {caught.value.__context__}"


def test_the_default_port_follows_from_security() -> None:
    ports = [SmtpSettings(host="a", security=s).port for s in ("starttls", "tls", "none")]
    assert ports == [587, 465, 25]
    with pytest.raises(SettingsError, match="SMTP connection 'default' is not defined"):
        resolve(SmtpSettings, "default", environ={})
