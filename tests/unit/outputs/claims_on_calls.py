"""The promises of calls, as functions that raise AssertionError if a promise is broken: for tests and their mutants."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support.call_publisher import ROWS, http, mail
from support.call_receiver import Endpoint, receiver
from support.mail_server import Post, mail_server
from tallystick.errors import OutputRefused, OutputUnavailable, RetryLater, StoreUnavailable
from tallystick.outputs.port import Output, Publication
from tallystick.store import Outcome, Unknown
from tallystick.store.memory import MemoryStore
from unit.outputs.publications import SCOPE, publication

BY_KEY = {"key": ["k"], "replaced": "once"}
ALL = [row["k"] for row in ROWS]


@dataclass
class Events:
    """The events at the receiver and in the ledger, in order."""

    entries: list[tuple[str, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, what: str, key: str) -> None:
        with self.lock:
            self.entries.append((what, key))


class Noting(MemoryStore):
    """A store that reports every object after it is created."""

    def __init__(self, events: Events) -> None:
        super().__init__("small")
        self.events = events

    def create(self, key: str, body: bytes | Path) -> Outcome:
        """Create the object, then report it."""
        done = super().create(key, body)
        self.events("note", key)
        return done


def publish(output: Output, *publications: Publication, resumed: bool = False) -> None:
    """Publish them as `tallystick.operations.publish` does."""
    output.begin(SCOPE)
    for each in publications:
        if not resumed:
            output.prepare(each)
        output.publish(each, resumed=resumed)
    output.close()


def until_published(output: Output, publication: Publication, *, tries: int = 12) -> None:
    """Publish as Airflow does: retry after each error that passes with time."""
    for number in range(tries):
        try:
            publish(output, publication, resumed=number > 0)
        except RetryLater:
            continue
        return
    raise AssertionError(f"not published after {tries} tries")


def acted(endpoint: Endpoint) -> list[str]:
    """Return the rows that the receiver acted on."""
    return sorted(row["k"] for row in endpoint.rows)


def each_once(options: dict[str, Any]) -> None:
    """Lose answers and fail every second call. Each row is acted on once, and none after its note."""
    events = Events()
    faults = dict(enumerate(["act then drop", "", "500", "act then 500", "", "drop", "garbage"]))
    endpoint = Endpoint(faults=faults, step=events)
    store = Noting(events)
    with receiver(endpoint) as url:
        until_published(http(url, store, patience_s=0.0, **options), publication(ROWS))
        calls = len(endpoint.calls)
        publish(http(url, store, **options), publication(ROWS), resumed=True)
    assert acted(endpoint) == ALL
    assert len(endpoint.calls) == calls, "a call that is noted is repeated"


def refused_halfway(options: dict[str, Any]) -> None:
    """Refuse the fourth call. Calls acknowledged before are noted, and not repeated after the fix."""
    endpoint, store = Endpoint(faults={3: "400"}), MemoryStore("small")
    with receiver(endpoint) as url:
        with pytest.raises(OutputRefused):
            publish(http(url, store, **options), publication(ROWS))
        publish(http(url, store, **options), publication(ROWS), resumed=True)
    assert Counter(endpoint.keys) == {
        key: 2 if n == 3 else 1 for n, key in enumerate(endpoint.keys[:4])
    } | {endpoint.keys[-1]: 1}
    assert acted(endpoint) == ALL


def two_at_once(options: dict[str, Any]) -> None:
    """Publish the same rows twice at once. The receiver acts once per row."""
    endpoint, store = Endpoint(), MemoryStore("small")
    ready = threading.Barrier(2)
    errors: list[BaseException] = []

    def run(url: str) -> None:
        try:
            ready.wait(30)
            publish(http(url, store, concurrency=2, **options), publication(ROWS))
        except Exception as error:  # noqa: BLE001 - checked by the thread that waits for this one
            errors.append(error)

    with receiver(endpoint) as url:
        threads = [threading.Thread(target=run, args=(url,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert not errors, errors
    assert acted(endpoint) == ALL


def a_key_in_two_intervals(order: tuple[int, int]) -> None:
    """Publish one key in two intervals, in any order and twice: one call."""
    endpoint, store = Endpoint(), MemoryStore("small")
    first, second = (
        ({"k": "a", "n": 1}, {"k": "b", "n": 1}),
        ({"k": "a", "n": 2}, {"k": "c", "n": 2}),
    )
    both = [publication(first, plan=1, first=1), publication(second, plan=2, first=2)]
    with receiver(endpoint) as url:
        for _ in range(2):
            publish(http(url, store, **BY_KEY), *(both[n] for n in order))
    assert acted(endpoint) == ["a", "b", "c"]
    assert len(endpoint.calls) == 3
    assert endpoint.rows[0]["n"] == order[0] + 1


def a_zombie_of_another_interval_does_not_act() -> None:
    """Pause one publisher between its claim and its call. The other has the same key in another interval."""
    endpoint, store = Endpoint(), MemoryStore("small")
    with receiver(endpoint) as url:
        slow = http(url, store, **BY_KEY)
        real = slow._call

        def overtaken(paused: Publication, effect: Any) -> None:
            publish(http(url, store, **BY_KEY), publication([{"k": "a", "n": 2}], plan=2, first=2))
            real(paused, effect)

        slow._call = overtaken  # type: ignore[method-assign]
        publish(slow, publication([{"k": "a", "n": 1}]))
    assert [row["n"] for row in endpoint.rows] == [1], "two rows were sent for one key"


def a_replacement_with_once(options: dict[str, Any]) -> None:
    """Replace rows. Changed and removed rows remain as they were sent, new ones are sent, also if a row returns later."""
    endpoint, store = Endpoint(), MemoryStore("small")
    first = [{"k": "a", "n": 1}, {"k": "b", "n": 1}]
    second = [{"k": "a", "n": 2}, {"k": "c", "n": 1}]
    third = [{"k": "b", "n": 3}, {"k": "c", "n": 1}]
    with receiver(endpoint) as url:
        publish(
            http(url, store, **options),
            publication(first),
            publication(second, plan=2, generation=2, instead_of=1, before=first),
            publication(third, plan=3, generation=3, instead_of=2, before=second),
        )
    assert [(row["k"], row["n"]) for row in endpoint.rows] == [("a", 1), ("b", 1), ("c", 1)]
    assert len(endpoint.calls) == 3


def each_person_gets_one(faults: dict[int, str]) -> None:
    """Send e-mails with certain errors, retries and replays: one each."""
    post, store = Post(faults=faults), MemoryStore("small")
    with mail_server(post) as port:
        until_published(mail(port, store), publication(ROWS))
        publish(mail(port, store), publication(ROWS), resumed=True)
    assert sorted(post.to) == [row["to"] for row in ROWS]


class Away(MemoryStore):
    """A store that fails every second write, before or after it applies."""

    writes = 0

    def create(self, key: str, body: bytes | Path) -> Outcome:
        """Write, fail before the write, or lose the answer."""
        self.writes += 1
        if key.endswith(".sent.json") and self.writes % 2 == 0:
            raise StoreUnavailable("the store is away.", hint="wait.")
        done = super().create(key, body)
        return Unknown(because="timeout") if self.writes % 3 == 0 else done


def a_store_outage_leaves_no_doubt() -> None:
    """Fail the store. The note of an acknowledgement is retried: no e-mail is in doubt because of the store."""
    post, store = Post(), Away("small")
    with mail_server(post) as port:
        publish(mail(port, store, in_doubt="hold"), publication(ROWS))
        publish(mail(port, store, in_doubt="hold"), publication(ROWS), resumed=True)
    assert post.to == [row["to"] for row in ROWS]
    assert len([found for found in store.list("") if found.key.endswith(".sent.json")]) == len(ROWS)


def two_mailers_at_once() -> None:
    """Send with two live publishers and a slow server: each address gets one e-mail."""
    slow = threading.Event()
    post, store = Post(), MemoryStore("small")

    def wait_once(_: str) -> None:
        if len(post.taken) == 1:
            slow.wait(1.0)

    post.step = wait_once
    errors: list[BaseException] = []

    def run(port: int) -> None:
        try:
            publish(mail(port, store, doubt_s=30.0), publication(ROWS))
        except Exception as error:  # noqa: BLE001 - checked by the thread that waits for this one
            errors.append(error)

    with mail_server(post) as port:
        threads = [threading.Thread(target=run, args=(port,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert not errors, errors
    assert sorted(post.to) == [row["to"] for row in ROWS]


def held_until_a_person_decides(decision: str) -> None:
    """Lose the 250. With `hold`, nothing is sent until a person copies the note; then it continues as decided."""
    post, store = Post(faults={1: "take then drop"}), MemoryStore("small")
    with mail_server(post) as port:
        output = mail(port, store, in_doubt="hold")
        for resumed in (False, True):
            with pytest.raises(OutputRefused) as caught:
                publish(output, publication(ROWS), resumed=resumed)
            assert post.to == ["k0@example.org", "k1@example.org"]
        words = (word.rstrip(".;,") for word in caught.value.hint.split())
        attempt, sent, no = (
            word.removeprefix("memory://small/") for word in words if "://" in word
        )
        body = store.get(attempt)
        assert body is not None
        store.create(sent if decision == "sent" else no, body.body)
        publish(output, publication(ROWS), resumed=True)
    again = ["k1@example.org"] if decision == "no" else []
    assert sorted(post.to) == sorted([row["to"] for row in ROWS] + again)


def an_e_mail_in_doubt_is_sent_again_with_its_id() -> None:
    """Lose the 250. With `send`, the e-mail is sent again with the same Message-ID."""
    post, store = Post(faults={1: "take then drop"}), MemoryStore("small")
    with mail_server(post) as port:
        output = mail(port, store)
        with pytest.raises(OutputUnavailable, match="in doubt"):
            publish(output, publication(ROWS))
        publish(output, publication(ROWS), resumed=True)
    assert Counter(post.to) == {row["to"]: 2 if row["k"] == "k1" else 1 for row in ROWS}
    ids = Counter(str(message["Message-ID"]) for message in post.taken)
    assert sorted(ids.values()) == [1, 1, 1, 1, 2]


def mailed_once_over_intervals_and_replacements(order: tuple[int, int]) -> None:
    """Publish one key in two intervals in any order, and replace both: one e-mail, with the text of the first."""
    post, store = Post(), MemoryStore("small")
    a, b = [{"k": "a", "to": "a@x.org", "n": 1}], [{"k": "a", "to": "a@x.org", "n": 2}]
    c = [{"k": "a", "to": "other@x.org", "n": 3}]
    both = [publication(a, plan=1, first=1), publication(b, plan=2, first=2)]
    with mail_server(post) as port:
        publish(mail(port, store), *(both[n] for n in order))
        for number, rows in enumerate((a, b)):
            again = publication(
                c,
                plan=3 + number,
                generation=2,
                instead_of=1 + number,
                before=rows,
                first=1 + number,
            )
            publish(mail(port, store), again)
            publish(mail(port, store), again, resumed=True)
    assert post.to == ["a@x.org"]
    assert post.taken[0].get_content().strip() == f"It is {order[0] + 1}."


def a_refusal_is_no_doubt() -> None:
    """Refuse an e-mail temporarily. With `hold`, the next try sends it without a decision by a person."""
    post, store = Post(faults={0: "451"}), MemoryStore("small")
    with mail_server(post) as port:
        output = mail(port, store, in_doubt="hold")
        try:
            until_published(output, publication(ROWS))
        except OutputRefused as error:
            raise AssertionError("a certain refusal was treated as a doubt") from error
    assert sorted(post.to) == [row["to"] for row in ROWS]
