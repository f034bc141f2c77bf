"""HTTP calls: what is sent, what each answer means, and what is never shown."""

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
from unit.outputs.sendings import IN_THE_YEAR_10000, SCOPE, in_the_year_10000, publication

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
    """A lake's store, empty."""
    return MemoryStore("small")


def error_of(endpoint: Endpoint, **how: Any) -> TallystickError:
    """What publishing says."""
    with receiver(endpoint) as url, pytest.raises(TallystickError) as caught:
        publish(http(url, store(), patience_s=0.0, **how), publication(ROWS))
    return caught.value


# ---------------------------------------------------------------- what is sent


def test_a_call_is_the_row_and_says_where_it_comes_from() -> None:
    endpoint = Endpoint()
    with receiver(endpoint) as url:
        publish(http(f"{url}/v1/rows?kind=a", store(), method="PUT"), publication(OLD))
    call = endpoint.calls[1]
    assert (call.method, call.path, call.row) == ("PUT", "/v1/rows?kind=a", OLD[1])
    told = {
        n: v for n, v in call.headers.items() if n.startswith(("tallystick", "idem", "content-t"))
    }
    assert told == {
        "content-type": "application/json",
        "idempotency-key": f'"{call.key}"',
        "tallystick-row-key": call.key,
        "tallystick-operation": "row",
        "tallystick-interval": "20130101T000000000Z-20130102T000000000Z",
        "tallystick-generation": "1",
        "tallystick-plan": f"{1:032x}",
    }


def test_a_key_is_the_same_for_ever() -> None:
    """Golden: a receiver remembers these. A change of how they are made would be a second call for every row."""
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


def test_a_correction_has_a_key_of_its_own_and_names_what_it_corrects() -> None:
    endpoint, notes = Endpoint(), store()
    new = publication(NEW, plan=2, generation=2, instead_of=1, before=OLD)
    with receiver(endpoint) as url:
        publish(http(url, notes), publication(OLD), new)
        publish(http(url, notes), new, resumed=True)
    firsts, corrections = endpoint.calls[:3], endpoint.calls[3:]
    told = [
        (
            c.headers["tallystick-operation"],
            c.headers.get("tallystick-corrects"),
            c.row["k"],
            c.row["n"],
        )
        for c in corrections
    ]
    assert told == [
        ("correction", "1", "b", 20),
        ("row", None, "d", 4),
        ("retraction", "1", "c", 3),
    ]
    rows = [c.headers["tallystick-row-key"] for c in endpoint.calls]
    assert rows[3] == firsts[1].key
    assert rows[5] == firsts[2].key
    assert len(set(endpoint.keys)) == 6


def test_a_note_holds_no_value_of_a_row() -> None:
    notes = store()
    with receiver(Endpoint()) as url:
        publish(http(url, notes, **BY_KEY), publication([{"k": "ann@example.org", "n": 1}]))
        publish(http(url, notes), publication([{"k": "ann@example.org", "n": 1}], plan=2, first=2))
    bodies = b"".join(notes.get(one.key).body for one in notes.list(""))  # type: ignore[union-attr]
    assert b"tallystick.call/1" in bodies
    assert b"tallystick.calls/1" in bodies
    assert b"ann" not in bodies


# ---------------------------------------------------------------- what answers mean

MEANINGS = [
    ("400", OutputRefused, "answered 400"),
    ("404", OutputRefused, "answered 404"),
    ("401", OutputRefused, "check what connection default may do there"),
    ("422", OutputRefused, "with another body"),
    ("302", OutputRefused, "redirects are not followed"),
    ("304", OutputRefused, "redirects are not followed"),
    ("409", OutputBusy, "another call with this key is under way"),
    ("408", OutputUnavailable, "answered 408"),
    ("429", OutputUnavailable, "answered 429"),
    ("500", OutputUnavailable, "answered 500"),
    ("503", OutputUnavailable, "answered 503"),
    ("drop", OutputUnavailable, "ended before its answer; it may have acted"),
    ("garbage", OutputUnavailable, "ended before its answer; it may have acted"),
]


@pytest.mark.parametrize("how", [{}, BY_KEY, {"concurrency": 3}])
@pytest.mark.parametrize(("fault", "kind", "told"), MEANINGS)
def test_what_an_answer_means(fault: str, kind: type, told: str, how: dict[str, Any]) -> None:
    error = error_of(Endpoint(faults=dict.fromkeys(range(99), fault)), **how)
    assert type(error) is kind
    assert told in str(error)
    for part in ("output feed of [2013-01-01", "generation 1", "(k='k0')", "key ts1-"):
        assert part in error.message


def test_a_refused_row_can_be_left_out_by_the_note_that_the_error_names() -> None:
    for how in ({}, BY_KEY):
        endpoint, notes = Endpoint(faults={2: "400"}), store()
        with receiver(endpoint) as url:
            with pytest.raises(OutputRefused) as caught:
                publish(http(url, notes, **how), publication(ROWS))
            rest = caught.value.hint.partition("write an object memory://small/")[2]
            key, _, holds = rest.partition(" that holds ")
            key, body = (
                (key, holds.removesuffix(" first.")) if holds else (key.partition(",")[0], "?")
            )
            notes.create(key, body.encode())
            publish(http(url, notes, **how), publication(ROWS), resumed=True)
        assert acted(endpoint) == ["k0", "k1", "k3", "k4"], how


def test_one_call_waits_for_what_passes_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_a_pause_that_no_receiver_can_mean_is_the_usual_pause(
    monkeypatch: pytest.MonkeyPatch, header: str
) -> None:
    monkeypatch.setattr("tallystick.outputs.calls.http.PAUSE_S", 0.01)
    endpoint = Endpoint(faults={0: "429"}, extra={"Retry-After": header})
    with receiver(endpoint) as url:
        publish(http(url, store(), patience_s=60.0), publication(ROWS))
    assert acted(endpoint) == sorted(row["k"] for row in ROWS)


@pytest.mark.parametrize(
    "said",
    ["7200", format_datetime(datetime.now(UTC) + timedelta(hours=2), usegmt=True)],
    ids=["seconds", "date"],  # a name with the time of day differs from worker to worker
)
def test_a_receiver_that_wants_hours_gets_them_from_the_tasks_retry(said: str) -> None:
    endpoint = Endpoint(faults={0: "429"}, extra={"Retry-After": said})
    with receiver(endpoint) as url, pytest.raises(OutputUnavailable, match="answered 429"):
        publish(http(url, store(), patience_s=60.0), publication(ROWS))
    assert len(endpoint.calls) == 1


def test_a_short_wish_is_waited_for() -> None:
    endpoint = Endpoint(faults={0: "503"}, extra={"Retry-After": "1"})
    with receiver(endpoint) as url:
        publish(http(url, store(), patience_s=60.0), publication(ROWS[:1]))
    assert len(endpoint.calls) == 2
    endpoint = Endpoint(faults={0: "503"}, extra={"Retry-After": "1"})
    with receiver(endpoint) as url, pytest.raises(OutputUnavailable):
        publish(http(url, store(), patience_s=0.9), publication(ROWS[:1]))
    assert len(endpoint.calls) == 1


def test_a_receiver_that_is_away_or_silent_is_tried_again_later() -> None:
    output = http(f"http://127.0.0.1:{free_port()}", store(), patience_s=0.0)
    with pytest.raises(OutputUnavailable, match="no connection: Connection refused"):
        publish(output, publication(ROWS))
    with socket.create_server(("127.0.0.1", 0)) as mute:
        output = http(
            f"http://127.0.0.1:{mute.getsockname()[1]}", store(), timeout_s=1, patience_s=0.0
        )
        with pytest.raises(OutputUnavailable, match="nothing came within 1 s; it may have acted"):
            publish(output, publication(ROWS))


@pytest.mark.parametrize("threads", [1, 3])
def test_a_task_that_is_ended_notes_what_was_acknowledged(threads: int) -> None:
    """Airflow ends a task by an error of its own kind, wherever it stands."""
    endpoint, notes = Endpoint(), store()
    with receiver(endpoint) as url:
        output = http(url, notes, concurrency=threads)
        real = output._ask

        def ended(one: Any, effect: Any) -> Any:
            if effect.number == 3:
                raise Killed
            return real(one, effect)

        output._ask = ended  # type: ignore[method-assign]
        with pytest.raises(Killed):
            publish(output, publication(ROWS))
        before = len(endpoint.calls)
        assert before == 3
        publish(http(url, notes), publication(ROWS), resumed=True)
    assert not set(endpoint.keys[:before]) & set(endpoint.keys[before:])
    assert acted(endpoint) == sorted(row["k"] for row in ROWS)


def test_a_zombie_wakes_with_a_call_that_others_have_had_acknowledged() -> None:
    """It calls under the key and with the body that the receiver knows: nothing happens."""
    for how in ({}, BY_KEY):
        endpoint, notes = Endpoint(), store()
        with receiver(endpoint) as url:
            zombie = http(url, notes, **how)
            real = zombie._ask
            slept: list[str] = []

            def sleeps(
                one: Any, effect: Any, *, real=real, url=url, notes=notes, how=how, slept=slept
            ) -> Any:  # type: ignore[no-untyped-def]
                if not slept:
                    slept.append(effect.key)
                    publish(http(url, notes, **how), publication(ROWS), resumed=True)
                return real(one, effect)

            zombie._ask = sleeps  # type: ignore[method-assign]
            publish(zombie, publication(ROWS))
        assert acted(endpoint) == sorted(row["k"] for row in ROWS)
        assert endpoint.keys.count(slept[0]) == 2


def test_an_answer_that_comes_twice_is_nobody_elses() -> None:
    endpoint = Endpoint(faults={0: "twice", 1: "drop"})
    with receiver(endpoint) as url:
        with pytest.raises(OutputUnavailable):
            publish(http(url, notes := store(), patience_s=0.0), publication(ROWS))
        publish(http(url, notes), publication(ROWS), resumed=True)
    assert acted(endpoint) == sorted(row["k"] for row in ROWS)


def test_calls_are_made_side_by_side_and_end_in_any_order() -> None:
    together = threading.Barrier(3)
    endpoint = Endpoint(step=lambda what, _: together.wait(30) and None if what == "call" else None)
    with receiver(endpoint) as url:
        output = http(url, store(), concurrency=3)
        output.batch = 6
        publish(output, publication([*ROWS, {"k": "k5", "to": "", "n": 5}]))
    assert endpoint.most_at_once == 3
    assert len(endpoint.acted) == 6


def test_a_rate_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
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
    ("rows", "told"),
    [
        ([{"k": "a", "n": 1}, {"k": None, "n": 2}], "row 1 has no value in its key column 'k'"),
        (
            [{"k": "a", "n": 1}, {"k": "b", "n": 2}, {"k": "a", "n": 3}],
            "rows 0 and 2 have one key (k='a')",
        ),
        ([{"n": 1}], "its key column 'k' is no column of the table"),
    ],
)
def test_a_key_that_is_null_or_doubled_is_refused_before_anything_is_sent(
    rows: list[dict[str, Any]], told: str
) -> None:
    endpoint, notes = Endpoint(), store()
    with receiver(endpoint) as url, pytest.raises(OutputRefused) as caught:
        publish(http(url, notes, **BY_KEY), publication(rows, identity=("n",)))
    assert told in str(caught.value)
    assert "output feed of [2013-01-01T00:00:00.000Z" in str(caught.value)
    assert endpoint.calls == []
    assert list(notes.list("")) == []


def test_a_time_that_no_receiver_understands_is_refused_before_anything_is_sent() -> None:
    endpoint, notes = Endpoint(), store()
    with receiver(endpoint) as url, pytest.raises(OutputRefused) as caught:
        publish(http(url, notes), in_the_year_10000())
    assert caught.value.message == IN_THE_YEAR_10000
    assert endpoint.calls == []
    assert list(notes.list("")) == []


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"url": "ftp://a/b"}, "neither http"),
        ({"url": "https://me:word@a/b"}, "neither http"),
        ({"url": "https://a/b\n"}, "neither http"),
        ({"url": "//a/b"}, "neither http"),
        ({"url": "https://a:x/b"}, "neither http"),
        ({"method": "GET"}, "method='GET'"),
        ({"replaced": "compensate"}, "replaced='compensate'"),
        ({"key": ["k"]}, "replaced='correct' would call again"),
        ({"key": "k"}, "the key of output feed is 'k'"),
        ({"concurrency": 0}, "concurrency 0"),
        ({"calls_per_s": 0}, "calls_per_s 0"),
        ({"http": "A"}, "connection name 'A'"),
    ],
)
def test_a_declaration_that_cannot_be_meant_is_refused(how: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidPipeline) as caught:
        HttpOutput(**{"name": "feed", "table": "events", "url": "https://a/b"} | how)
    assert told in str(caught.value)
    assert "word" not in str(caught.value)


def test_a_name_stands_for_one_receiver_and_one_key() -> None:
    plain = HttpOutput(name="feed", table="events", url="https://a/b")
    keyed = HttpOutput(name="feed", table="events", url="https://a/b", key=["k"], replaced="once")
    assert plain.target == "http:default/https://a/b"
    assert keyed.target == "http:default/https://a/b once per k"
    assert replace(keyed, key=()).target == "http:default/https://a/b once per row"


# ---------------------------------------------------------------- notes that are not as they must be


def test_a_note_of_another_version_stops_before_anything_is_sent() -> None:
    endpoint = Endpoint()
    for how, key in (
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
            publish(http(url, notes, **how), publication(ROWS), resumed=True)
    assert endpoint.calls == []


class Doubtful(MemoryStore):
    """Each write lands and its answer is lost, so that the next try finds it; or none lands."""

    lands = True

    def create(self, key: str, body: bytes | Path) -> Outcome:
        outcome = super().create(key, body) if self.lands else None
        return outcome if isinstance(outcome, NotApplied) else Unknown(because="timeout")


def test_a_note_of_which_nobody_knows_whether_it_landed_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tallystick.outputs.calls.call_log.UNKNOWN_S", 0.2)
    endpoint, notes = Endpoint(), Doubtful("small")
    with receiver(endpoint) as url:
        publish(http(url, notes, **BY_KEY), publication(ROWS))
        notes.lands = False
        with pytest.raises(OutcomeUnknown, match="has no certain outcome after"):
            publish(http(url, notes, **BY_KEY), publication([{"k": "x"}], plan=2, first=2))
    assert acted(endpoint) == sorted(row["k"] for row in ROWS)
