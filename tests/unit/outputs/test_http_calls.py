"""HTTP calls: the requests, the meaning of each answer, and the values that are never shown."""

from __future__ import annotations

import socket
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.call_publisher import ROWS, http
from support.call_receiver import Endpoint, receiver
from support.fake_output import Killed
from tallystick.errors import (
    Corrupt,
    InvalidPipeline,
    OutcomeUnknown,
    OutputBusy,
    OutputRefused,
    OutputUnavailable,
    TallystickError,
)
from tallystick.format import keys
from tallystick.outputs.calls import HttpOutput
from tallystick.outputs.calls.calling import Pace
from tallystick.outputs.calls.effects import effects
from tallystick.outputs.port import Scope
from tallystick.store import NotApplied, Outcome, Unknown
from tallystick.store.memory import MemoryStore
from tallystick_devstack.process import free_port
from unit.outputs.claims_on_calls import BY_KEY, acted, publish
from unit.outputs.publications import IN_THE_YEAR_10000, SCOPE, in_the_year_10000, publication

OLD = [{"k": "a", "n": 1}, {"k": "b", "n": 2}, {"k": "c", "n": 3}]
NEW = [{"k": "a", "n": 1}, {"k": "b", "n": 20}, {"k": "d", "n": 4}]
GOLDEN_KEYS = [
    "ts1-b01437d342fab0dfe125248da718407a15dc1ae3",
    "ts1-011bbb2318a89dddb98d6ee44eaeed4ec3ec7af8",
    "ts1-1afb61a5ef4fa54fd90395661b2463fc56c3fcc1",
    "ts1-ab31f723e421f3cbf160e88996d59e1b10357c80",
    "ts1-76db572351f026a28c5b3f60bf2d89ec8f04ea1d",
]


def store() -> MemoryStore:
    """Return the empty store of a lake."""
    return MemoryStore("small")


def error_of(endpoint: Endpoint, **options: Any) -> TallystickError:
    """Return the error of a publish."""
    with receiver(endpoint) as url, pytest.raises(TallystickError) as caught:
        publish(http(url, store(), patience_s=0.0, **options), publication(ROWS))
    return caught.value


# ---------------------------------------------------------------- requests


def test_a_call_has_the_row_and_headers_of_its_origin() -> None:
    endpoint = Endpoint()
    with receiver(endpoint) as url:
        publish(http(f"{url}/v1/rows?kind=a", store(), method="PUT"), publication(OLD))
    call = endpoint.calls[1]
    assert (call.method, call.path, call.row) == ("PUT", "/v1/rows?kind=a", OLD[1])
    headers = {
        n: v for n, v in call.headers.items() if n.startswith(("tallystick", "idem", "content-t"))
    }
    assert headers == {
        "content-type": "application/json",
        "idempotency-key": f'"{call.key}"',
        "tallystick-row-key": call.key,
        "tallystick-operation": "row",
        "tallystick-interval": "20130101T000000000Z-20130102T000000000Z",
        "tallystick-generation": "1",
        "tallystick-plan": f"{1:032x}",
    }


def test_keys_never_change() -> None:
    """Golden: receivers remember these keys. If their derivation changed, every row would be called for a second time."""
    by_row = effects(publication(OLD[:1]), SCOPE, key=(), once=False)
    by_key = effects(publication(OLD[:1]), SCOPE, key=("k",), once=True)
    again = publication(NEW, plan=2, generation=2, instead_of=1, before=OLD)
    found = [e.key for e in (*by_row, *by_key, *effects(again, SCOPE, key=(), once=False))]
    assert found == GOLDEN_KEYS
    assert all(len(key) == 44 and key.isascii() and key.isprintable() for key in found)


def test_two_lakes_two_pipelines_and_two_outputs_have_no_key_in_common() -> None:
    scopes = [
        SCOPE,
        Scope(lake="memory://other", pipeline="small"),
        Scope(lake=SCOPE.lake, pipeline="b"),
    ]
    found = [
        effect.key
        for scope in scopes
        for output in ("feed", "other")
        for first in (1, 2)
        for effect in effects(
            publication(OLD, output=output, first=first), scope, key=(), once=False
        )
    ]
    assert len(set(found)) == len(found) == 3 * 2 * 2 * len(OLD)


def test_a_correction_has_its_own_key_and_names_the_generation_it_corrects() -> None:
    endpoint, notes = Endpoint(), store()
    new = publication(NEW, plan=2, generation=2, instead_of=1, before=OLD)
    with receiver(endpoint) as url:
        publish(http(url, notes), publication(OLD), new)
        publish(http(url, notes), new, resumed=True)
    firsts, corrections = endpoint.calls[:3], endpoint.calls[3:]
    changes = [
        (
            c.headers["tallystick-operation"],
            c.headers.get("tallystick-corrects"),
            c.row["k"],
            c.row["n"],
        )
        for c in corrections
    ]
    assert changes == [
        ("correction", "1", "b", 20),
        ("row", None, "d", 4),
        ("retraction", "1", "c", 3),
    ]
    rows = [c.headers["tallystick-row-key"] for c in endpoint.calls]
    assert rows[3] == firsts[1].key
    assert rows[5] == firsts[2].key
    assert len(set(endpoint.keys)) == 6


def test_a_note_contains_no_value_of_a_row() -> None:
    notes = store()
    with receiver(Endpoint()) as url:
        publish(http(url, notes, **BY_KEY), publication([{"k": "ann@example.org", "n": 1}]))
        publish(http(url, notes), publication([{"k": "ann@example.org", "n": 1}], plan=2, first=2))
    bodies = b"".join(notes.get(note.key).body for note in notes.list(""))  # type: ignore[union-attr]
    assert b"tallystick.call/1" in bodies
    assert b"tallystick.calls/1" in bodies
    assert b"ann" not in bodies


# ---------------------------------------------------------------- answers

MEANINGS = [
    ("400", OutputRefused, "answered 400"),
    ("404", OutputRefused, "answered 404"),
    ("401", OutputRefused, "check the rights of connection default at the receiver"),
    ("422", OutputRefused, "with another body"),
    ("302", OutputRefused, "redirects are not followed"),
    ("304", OutputRefused, "redirects are not followed"),
    ("409", OutputBusy, "another call with this key is in progress"),
    ("408", OutputUnavailable, "answered 408"),
    ("429", OutputUnavailable, "answered 429"),
    ("500", OutputUnavailable, "answered 500"),
    ("503", OutputUnavailable, "answered 503"),
    ("drop", OutputUnavailable, "ended before the answer; the call may have taken effect"),
    ("garbage", OutputUnavailable, "ended before the answer; the call may have taken effect"),
]


@pytest.mark.parametrize("options", [{}, BY_KEY, {"concurrency": 3}])
@pytest.mark.parametrize(("fault", "kind", "message"), MEANINGS)
def test_each_answer_has_its_error_and_its_message(
    fault: str, kind: type, message: str, options: dict[str, Any]
) -> None:
    error = error_of(Endpoint(faults=dict.fromkeys(range(99), fault)), **options)
    assert type(error) is kind
    assert message in str(error)
    for part in ("output feed of [2013-01-01", "generation 1", "(k='k0')", "key ts1-"):
        assert part in error.message


def test_a_refused_row_can_be_skipped_by_the_note_that_the_error_names() -> None:
    for options in ({}, BY_KEY):
        endpoint, notes = Endpoint(faults={2: "400"}), store()
        with receiver(endpoint) as url:
            with pytest.raises(OutputRefused) as caught:
                publish(http(url, notes, **options), publication(ROWS))
            rest = caught.value.hint.partition("write an object memory://small/")[2]
            key, _, holds = rest.partition(" with the content ")
            key, body = (
                (key, holds.removesuffix(" first.")) if holds else (key.partition(" with ")[0], "?")
            )
            notes.create(key, body.encode())
            publish(http(url, notes, **options), publication(ROWS), resumed=True)
        assert acted(endpoint) == ["k0", "k1", "k3", "k4"], options


def test_a_call_is_retried_after_temporary_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tallystick.outputs.calls.http.PAUSE_S", 0.01)
    endpoint = Endpoint(faults={0: "500", 1: "429", 2: "act then drop", 3: "409"})
    with receiver(endpoint) as url:
        publish(http(url, store(), patience_s=60.0), publication(ROWS))
    assert acted(endpoint) == sorted(row["k"] for row in ROWS)
    assert len(endpoint.calls) == len(ROWS) + 4


@pytest.mark.parametrize(
    "header",
    [
        "soon",
        "-1",
        "Mon, 01 Jan 99999999999999999999 00:00:00 GMT",
        "Mon, 01 Jan 2024 00:00:00 +99999999999999",
    ],
)
def test_an_impossible_retry_after_is_replaced_by_the_usual_pause(
    monkeypatch: pytest.MonkeyPatch, header: str
) -> None:
    monkeypatch.setattr("tallystick.outputs.calls.http.PAUSE_S", 0.01)
    endpoint = Endpoint(faults={0: "429"}, extra={"Retry-After": header})
    with receiver(endpoint) as url:
        publish(http(url, store(), patience_s=60.0), publication(ROWS))
    assert acted(endpoint) == sorted(row["k"] for row in ROWS)


@pytest.mark.parametrize(
    "header",
    ["7200", format_datetime(datetime.now(UTC) + timedelta(hours=2), usegmt=True)],
    ids=["seconds", "date"],  # a name with the time of day differs from worker to worker
)
def test_a_retry_after_of_hours_is_left_to_the_retry_of_the_task(header: str) -> None:
    endpoint = Endpoint(faults={0: "429"}, extra={"Retry-After": header})
    with receiver(endpoint) as url, pytest.raises(OutputUnavailable, match="answered 429"):
        publish(http(url, store(), patience_s=60.0), publication(ROWS))
    assert len(endpoint.calls) == 1


def test_a_short_retry_after_is_waited_for() -> None:
    endpoint = Endpoint(faults={0: "503"}, extra={"Retry-After": "1"})
    with receiver(endpoint) as url:
        publish(http(url, store(), patience_s=60.0), publication(ROWS[:1]))
    assert len(endpoint.calls) == 2
    endpoint = Endpoint(faults={0: "503"}, extra={"Retry-After": "1"})
    with receiver(endpoint) as url, pytest.raises(OutputUnavailable):
        publish(http(url, store(), patience_s=0.9), publication(ROWS[:1]))
    assert len(endpoint.calls) == 1


def test_an_unreachable_or_silent_receiver_is_retried_later() -> None:
    output = http(f"http://127.0.0.1:{free_port()}", store(), patience_s=0.0)
    with pytest.raises(OutputUnavailable, match="no connection: Connection refused"):
        publish(output, publication(ROWS))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        output = http(
            f"http://127.0.0.1:{silent.getsockname()[1]}", store(), timeout_s=1, patience_s=0.0
        )
        with pytest.raises(
            OutputUnavailable, match="no answer within 1 s; the call may have taken effect"
        ):
            publish(output, publication(ROWS))


@pytest.mark.parametrize("threads", [1, 3])
def test_a_task_that_is_ended_notes_the_acknowledged_calls(threads: int) -> None:
    """Airflow ends a task by raising an error of its own, at any line."""
    endpoint, notes = Endpoint(), store()
    with receiver(endpoint) as url:
        output = http(url, notes, concurrency=threads)
        real = output._send

        def ended(pub: Any, effect: Any) -> Any:
            if effect.number == 3:
                raise Killed
            return real(pub, effect)

        output._send = ended  # type: ignore[method-assign]
        with pytest.raises(Killed):
            publish(output, publication(ROWS))
        before = len(endpoint.calls)
        assert before == 3
        publish(http(url, notes), publication(ROWS), resumed=True)
    assert not set(endpoint.keys[:before]) & set(endpoint.keys[before:])
    assert acted(endpoint) == sorted(row["k"] for row in ROWS)


def test_a_zombie_that_repeats_an_acknowledged_call_changes_nothing() -> None:
    """Its key and body are the same as in the acknowledged call, so the receiver does not act again."""
    for options in ({}, BY_KEY):
        endpoint, notes = Endpoint(), store()
        with receiver(endpoint) as url:
            zombie = http(url, notes, **options)
            real = zombie._send
            slept: list[str] = []

            def sleeps(
                pub: Any,
                effect: Any,
                *,
                real=real,
                url=url,
                notes=notes,
                options=options,
                slept=slept,
            ) -> Any:  # type: ignore[no-untyped-def]
                if not slept:
                    slept.append(effect.key)
                    publish(http(url, notes, **options), publication(ROWS), resumed=True)
                return real(pub, effect)

            zombie._send = sleeps  # type: ignore[method-assign]
            publish(zombie, publication(ROWS))
        assert acted(endpoint) == sorted(row["k"] for row in ROWS)
        assert endpoint.keys.count(slept[0]) == 2


def test_an_answer_that_arrives_twice_is_not_taken_for_another_call() -> None:
    endpoint = Endpoint(faults={0: "twice", 1: "drop"})
    with receiver(endpoint) as url:
        with pytest.raises(OutputUnavailable):
            publish(http(url, notes := store(), patience_s=0.0), publication(ROWS))
        publish(http(url, notes), publication(ROWS), resumed=True)
    assert acted(endpoint) == sorted(row["k"] for row in ROWS)


def test_calls_are_concurrent_and_end_in_any_order() -> None:
    together = threading.Barrier(3)
    endpoint = Endpoint(step=lambda what, _: together.wait(30) and None if what == "call" else None)
    with receiver(endpoint) as url:
        output = http(url, store(), concurrency=3)
        output.batch = 6
        publish(output, publication([*ROWS, {"k": "k5", "to": "", "n": 5}]))
    assert endpoint.most_at_once == 3
    assert len(endpoint.acted) == 6


def test_calls_per_s_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tallystick.outputs.calls.calling.time", SimpleNamespace(monotonic=lambda: 100.0)
    )
    waited: list[float] = []

    class Stopping(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waited.append(timeout or 0.0)
            return False

    for pace in (Pace(10.0), Pace(None)):
        for _ in range(4):
            pace.wait(Stopping())
    assert waited == pytest.approx([0.0, 0.1, 0.2, 0.3])
    endpoint = Endpoint()
    with receiver(endpoint) as url:
        publish(http(url, store(), calls_per_s=1000.0), publication(ROWS))
    assert len(endpoint.calls) == len(ROWS)


# ---------------------------------------------------------------- before anything is sent


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [{"k": "a", "n": 1}, {"k": None, "n": 2}],
            "row 1: expected a value in key column 'k', found null",
        ),
        (
            [{"k": "a", "n": 1}, {"k": "b", "n": 2}, {"k": "a", "n": 3}],
            "found rows 0 and 2 with the key (k='a')",
        ),
        ([{"n": 1}], "key column 'k' is not a column of the table"),
    ],
)
def test_a_key_that_is_null_or_doubled_is_refused_before_anything_is_sent(
    rows: list[dict[str, Any]], message: str
) -> None:
    endpoint, notes = Endpoint(), store()
    with receiver(endpoint) as url, pytest.raises(OutputRefused) as caught:
        publish(http(url, notes, **BY_KEY), publication(rows, identity=("n",)))
    assert message in str(caught.value)
    assert "output feed of [2013-01-01T00:00:00.000Z" in str(caught.value)
    assert endpoint.calls == []
    assert list(notes.list("")) == []


def test_a_time_that_no_receiver_can_read_is_refused_before_anything_is_sent() -> None:
    endpoint, notes = Endpoint(), store()
    with receiver(endpoint) as url, pytest.raises(OutputRefused) as caught:
        publish(http(url, notes), in_the_year_10000())
    assert caught.value.message == IN_THE_YEAR_10000
    assert endpoint.calls == []
    assert list(notes.list("")) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "ftp://a/b"}, "expected a url of http"),
        ({"url": "https://me:word@a/b"}, "expected a url of http"),
        ({"url": "https://a/b\n"}, "expected a url of http"),
        ({"url": "//a/b"}, "expected a url of http"),
        ({"url": "https://a:x/b"}, "expected a url of http"),
        ({"method": "GET"}, "method='GET'"),
        ({"replaced": "compensate"}, "replaced='compensate'"),
        ({"key": ["k"]}, "expected replaced='once' or 'refuse'"),
        ({"key": "k"}, "expected a list of columns, each once, as key, found 'k'"),
        ({"concurrency": 0}, "found 0"),
        ({"calls_per_s": 0}, "found 0"),
        ({"http": "A"}, "connection name 'A'"),
    ],
)
def test_an_invalid_http_declaration_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidPipeline) as caught:
        HttpOutput(**{"name": "feed", "table": "events", "url": "https://a/b"} | options)
    assert message in str(caught.value)
    assert "word" not in str(caught.value)


def test_a_target_names_the_receiver_and_the_key() -> None:
    plain = HttpOutput(name="feed", table="events", url="https://a/b")
    keyed = HttpOutput(name="feed", table="events", url="https://a/b", key=["k"], replaced="once")
    assert plain.target == "http:default/https://a/b"
    assert keyed.target == "http:default/https://a/b once per k"
    assert replace(keyed, key=()).target == "http:default/https://a/b once per row"


# ---------------------------------------------------------------- invalid notes


def test_a_note_of_another_version_is_refused_before_anything_is_sent() -> None:
    endpoint = Endpoint()
    for options, key in (
        ({}, keys.calls("feed", publication(ROWS).interval.part, f"{1:032x}", 0, 2)),
        (
            BY_KEY,
            keys.call_try(
                "feed", next(effects(publication(ROWS), SCOPE, key=("k",), once=True)).digits, 1
            ),
        ),
    ):
        notes = store()
        notes.create(key, b'{"format":"tallystick.calls/9"}')
        with receiver(endpoint) as url, pytest.raises(Corrupt, match="calls/9"):
            publish(http(url, notes, **options), publication(ROWS), resumed=True)
    assert endpoint.calls == []


class Doubtful(MemoryStore):
    """A store that applies each write and loses the answer, so that the next try finds the object; or applies none."""

    applies = True

    def create(self, key: str, body: bytes | Path) -> Outcome:
        outcome = super().create(key, body) if self.applies else None
        return outcome if isinstance(outcome, NotApplied) else Unknown(because="timeout")


def test_a_note_with_an_unknown_outcome_is_read_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tallystick.outputs.calls.call_log.UNKNOWN_S", 0.2)
    endpoint, notes = Endpoint(), Doubtful("small")
    with receiver(endpoint) as url:
        publish(http(url, notes, **BY_KEY), publication(ROWS))
        notes.applies = False
        with pytest.raises(OutcomeUnknown, match="is unknown after"):
            publish(http(url, notes, **BY_KEY), publication([{"k": "x"}], plan=2, first=2))
    assert acted(endpoint) == sorted(row["k"] for row in ROWS)
