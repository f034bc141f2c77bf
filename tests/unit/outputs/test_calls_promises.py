"""Calls: a receiver that honours the key acts on each row once, and sends one e-mail per key. A mutant per guard."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support import call_publisher
from support.call_publisher import ROWS, http, mail
from support.call_receiver import Endpoint, receiver
from support.folder_store import FolderStore
from support.killed import killed
from support.mail_server import Post, mail_server
from tallystick.errors import OutputRefused, StoreUnavailable
from tallystick.outputs.calls import call_log
from tallystick.outputs.calls import effects as effects_module
from tallystick.outputs.calls import email as email_calls
from tallystick.outputs.calls import http as http_calls
from unit.outputs import claims_on_calls as claims
from unit.outputs.claims_on_calls import BY_KEY, publish
from unit.outputs.publications import publication

ONCE = {"replaced": "once"}
OPTIONS = [
    pytest.param({}, id="by-number"),
    pytest.param({"concurrency": 3}, id="three-at-once"),
    pytest.param(BY_KEY, id="by-key"),
    pytest.param(ONCE, id="once-by-lineage"),
]
ORDERS = list(itertools.permutations(range(2)))


@pytest.mark.parametrize("options", OPTIONS)
def test_each_row_is_acted_on_once_although_answers_are_lost(options: dict[str, Any]) -> None:
    claims.each_once(options)


@pytest.mark.parametrize("options", [OPTIONS[0], OPTIONS[2], OPTIONS[3]])
def test_calls_acknowledged_before_a_refusal_are_not_repeated(
    options: dict[str, Any],
) -> None:
    claims.refused_halfway(options)


@pytest.mark.parametrize("options", [{}, BY_KEY, ONCE])
def test_two_publishers_at_once_make_the_receiver_act_once(options: dict[str, Any]) -> None:
    claims.two_at_once(options)


@pytest.mark.parametrize("order", ORDERS)
def test_a_declared_key_is_called_for_once_over_all_intervals(order: tuple[int, int]) -> None:
    claims.a_key_in_two_intervals(order)


def test_the_first_claim_of_a_key_decides_which_publisher_calls() -> None:
    claims.a_zombie_of_another_interval_does_not_act()


@pytest.mark.parametrize("options", [BY_KEY, ONCE])
def test_replaced_once_never_repeats_a_call_for_a_key(options: dict[str, Any]) -> None:
    claims.a_replacement_with_once(options)


FAULTS = [{}, {0: "451"}, {1: "drop"}, {2: "451", 3: "452", 4: "451"}]


@pytest.mark.parametrize("faults", [FAULTS[0], FAULTS[1], FAULTS[2], FAULTS[3]])
def test_each_person_gets_one_e_mail(faults: dict[int, str]) -> None:
    claims.each_person_gets_one(faults)


def test_two_live_publishers_send_no_e_mail_twice() -> None:
    claims.two_mailers_at_once()


def test_a_short_store_outage_leaves_no_e_mail_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_log, "PAUSE_S", 0.001)
    claims.a_store_outage_leaves_no_doubt()


@pytest.mark.parametrize("decision", ["sent", "no"])
def test_an_e_mail_in_doubt_is_held_until_a_person_decides(decision: str) -> None:
    claims.held_until_a_person_decides(decision)


def test_an_e_mail_in_doubt_is_sent_again_under_its_message_id() -> None:
    claims.an_e_mail_in_doubt_is_sent_again_with_its_id()


@pytest.mark.parametrize("order", ORDERS)
def test_one_e_mail_per_key_over_intervals_and_replacements(order: tuple[int, int]) -> None:
    claims.mailed_once_over_intervals_and_replacements(order)


# ---------------------------------------------------------------- kill -9


def kill(kind: str, address: Any, folder: Path, step: str, nth: int) -> None:
    """Publish in a process that is killed at that step."""
    killed(call_publisher.main, kind, str(address), str(folder), step, nth)


HTTP_STEPS = [
    ("before the call", 1),
    ("after the call", 1),
    ("before the call", 2),
    ("after the call", 4),
    ("before the note", 1),
    ("after the note", 1),
    ("before the note", 2),
    ("after the note", 3),
]


@pytest.mark.parametrize(("step", "nth"), HTTP_STEPS)
@pytest.mark.parametrize("kind", ["by number", "by key"])
def test_the_publisher_after_one_killed_at_any_step_completes_its_work(
    tmp_path: Path, kind: str, step: str, nth: int
) -> None:
    endpoint = Endpoint()
    options = BY_KEY if kind == "by key" else {}
    with receiver(endpoint) as url:
        kill(kind, url, tmp_path, step, nth)
        before = len(endpoint.calls)
        noted = set(noted_in(tmp_path, endpoint))
        publish(http(url, FolderStore(tmp_path), **options), publication(ROWS), resumed=True)
    assert claims.acted(endpoint) == claims.ALL
    assert not noted & set(endpoint.keys[before:]), "a call that is noted is repeated"


def noted_in(folder: Path, endpoint: Endpoint) -> list[str]:
    """Return the keys that are acknowledged according to the notes in a folder. Calls are in the order of the rows."""
    by_number = [
        key
        for path in folder.rglob("*-*.json")
        for first, end in [path.stem.split("-")]
        for key in endpoint.keys[int(first) : int(end)]
    ]
    return by_number + [f"ts1-{path.name[:40]}" for path in folder.rglob("*.sent.json")]


MAIL_STEPS = [
    ("before the note", 1),  # nothing was sent
    ("after the note", 1),  # the try is noted, and nothing was sent
    ("before the call", 2),  # the same
    ("after the call", 2),  # accepted, and not noted: the only step that can double an e-mail
    ("before the note", 2),  # the same: this note is that of the 250
    ("after the note", 2),
    ("after the note", 5),  # the third try
]
IN_DOUBT = {*MAIL_STEPS[1:5], MAIL_STEPS[6]}
DOUBLED = {("after the call", 2), ("before the note", 2)}


@pytest.mark.parametrize(("step", "nth"), MAIL_STEPS)
def test_a_mailer_killed_at_any_step_doubles_at_most_the_e_mail_in_doubt(
    tmp_path: Path, step: str, nth: int
) -> None:
    post, in_doubt = Post(), False
    with mail_server(post) as port:
        kill("mail", port, tmp_path, step, nth)
        try:
            output = mail(port, FolderStore(tmp_path), in_doubt="hold")
            publish(output, publication(ROWS), resumed=True)
        except OutputRefused as error:
            in_doubt = "the server's answer was not noted" in error.message
        assert len(post.to) == len(set(post.to)), "an e-mail that is held is never sent twice"
        assert in_doubt == ((step, nth) in IN_DOUBT)
        publish(mail(port, FolderStore(tmp_path)), publication(ROWS), resumed=True)
    assert set(post.to) == {row["to"] for row in ROWS}
    assert len(post.to) == len(ROWS) + ((step, nth) in DOUBLED)


# ---------------------------------------------------------------- each guard has a mutant that must fail

Mutant = Callable[[pytest.MonkeyPatch], None]


def always(answer: Any) -> Callable[..., Any]:
    """Return a method that always returns `answer`."""
    return lambda *of, **more: answer


def chance(*_: Any, **more: Any) -> str:
    """Return a different key each time."""
    return "ts1-" + (uuid.uuid4().hex + uuid.uuid4().hex)[:40]


def by_plan(scope: Any, output: Any, change: Any, *, interval: Any, of: bool = False) -> str:
    """Return a different key in each generation."""
    return REAL(scope, output, change, interval=interval, of=True)


REAL = effects_module._derived
REAL_EFFECTS = effects_module.effects
MUTANTS: dict[str, tuple[Any, str, Any, Callable[[], None]]] = {
    "keys by chance": (effects_module, "_derived", chance, lambda: claims.each_once({})),
    "keys by plan": (
        effects_module,
        "_derived",
        by_plan,
        lambda: claims.a_replacement_with_once(ONCE),
    ),
    "keys by interval": (
        effects_module,
        "_derived",
        lambda s, o, c, interval, of=False: REAL(s, o, c, interval=o.interval.part, of=of),
        lambda: claims.a_key_in_two_intervals((0, 1)),
    ),
    "notes are not read": (
        call_log.Acknowledged,
        "__contains__",
        always(False),
        lambda: claims.each_once({}),
    ),
    "notes are not written": (
        call_log.Acknowledged,
        "note",
        always(None),
        lambda: claims.refused_halfway({}),
    ),
    "keys are not claimed": (
        call_log.Tries,
        "begin",
        always(True),
        lambda: claims.a_key_in_two_intervals((0, 1)),
    ),
    "the claim of another interval is ignored": (
        call_log.Tries,
        "taken_by_another",
        always(False),
        claims.a_zombie_of_another_interval_does_not_act,
    ),
    "acknowledgements are not noted": (
        call_log.Tries,
        "acknowledge",
        always(None),
        lambda: claims.each_once(BY_KEY),
    ),
    "refusals are not noted": (
        call_log.Tries,
        "deny",
        always(None),
        claims.a_refusal_is_no_doubt,
    ),
    "changes are sent although replaced is once": (
        http_calls,
        "effects",
        lambda *of, once, **more: REAL_EFFECTS(*of, once=False, **more),
        lambda: claims.a_replacement_with_once(BY_KEY),
    ),
    "the try of another publisher is not waited for": (
        email_calls.Mailbox,
        "_wait_s",
        property(always(0.0)),
        claims.two_mailers_at_once,
    ),
    "an e-mail in doubt counts as clear": (
        call_log.Known,
        "in_doubt",
        property(always(False)),
        lambda: claims.held_until_a_person_decides("sent"),
    ),
    "a failed note is not retried": (
        call_log,
        "_create_with_retry",
        call_log._create,
        claims.a_store_outage_leaves_no_doubt,
    ),
    "tries are noted too late": (
        call_log.Tries,
        "begin",
        always(True),
        claims.two_mailers_at_once,
    ),
}


def test_an_e_mail_that_the_server_refused_is_not_in_doubt() -> None:
    claims.a_refusal_is_no_doubt()


@pytest.mark.parametrize("name", MUTANTS)
def test_a_promise_breaks_without_its_guard(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, mutant, claim = MUTANTS[name]
    monkeypatch.setattr(owner, attribute, mutant)
    with pytest.raises((AssertionError, pytest.fail.Exception, OutputRefused, StoreUnavailable)):
        claim()
