"""Examinations run at the same time: one that fails or hangs hides no other, and no secret is in any text."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tallystick.errors import KafkaUnavailable, SettingsError
from tallystick.operations.doctor.check import Area, DoctorCheck, State, failed, without_secrets_of
from tallystick.operations.doctor.run import Examination, examine

AREA = Area("area")


def good(name: str) -> DoctorCheck:
    return AREA.ok(name, "fine")


def examination(name: str, *checks: DoctorCheck) -> Examination:
    return Examination(area="area", name=name, steps=lambda: checks)


def names(found: tuple[DoctorCheck, ...]) -> list[tuple[str, State]]:
    return [(check.name, check.state) for check in found]


def test_the_checks_come_in_the_order_of_the_examinations_whichever_ends_first() -> None:
    second_ended = threading.Event()

    def slow() -> Iterator[DoctorCheck]:
        assert second_ended.wait(10), "the second examination did not run at the same time"
        yield good("a")
        yield good("b")

    def fast() -> Iterator[DoctorCheck]:
        yield good("c")
        second_ended.set()

    found = examine(
        [
            Examination(area="area", name="slow", steps=slow),
            Examination(area="area", name="fast", steps=fast),
        ]
    )
    assert names(found) == [("a", "ok"), ("b", "ok"), ("c", "ok")]


@pytest.mark.parametrize(
    ("error", "state", "text", "fix"),
    [
        (SettingsError("no host.", hint="set it."), "error", "no host.", "set it."),
        (KafkaUnavailable("no broker.", hint="start one."), "error", "no broker.", "start one."),
        (
            ValueError("of a\n  library"),
            "unknown",
            "ValueError: of a library",
            "run the command again",
        ),
        (KeyError(), "unknown", "KeyError", "run the command again"),
    ],
)
def test_an_error_is_one_more_check_and_hides_no_other(
    error: Exception, state: State, text: str, fix: str
) -> None:
    def fails() -> Iterator[DoctorCheck]:
        yield good("before")
        raise error

    found = examine(
        [Examination(area="area", name="fails", steps=fails), examination("other", good("other"))]
    )
    assert names(found) == [("before", "ok"), ("fails", state), ("other", "ok")]
    assert found[1].found == text
    assert found[1].fix.startswith(fix)


def test_an_examination_that_hangs_is_given_up_and_keeps_what_it_had_found() -> None:
    released = threading.Event()

    def hangs() -> Iterator[DoctorCheck]:
        yield good("before")
        released.wait(60)
        yield good("never")

    try:
        found = examine(
            [
                Examination(area="area", name="hangs", steps=hangs, limit_s=0.05),
                examination("other", good("other")),
            ]
        )
        assert not released.is_set()
    finally:
        released.set()
    assert names(found) == [("before", "ok"), ("hangs", "error"), ("other", "ok")]
    assert found[1].found == "no answer within 0.05 s"


def test_what_arrives_after_the_limit_is_dropped() -> None:
    late, ended, go_on = threading.Event(), threading.Event(), threading.Event()

    def hangs() -> Iterator[DoctorCheck]:
        late.wait(60)
        yield good("late")
        ended.set()

    def waits() -> Iterator[DoctorCheck]:
        go_on.wait(60)
        late.set()
        ended.wait(60)
        yield good("other")

    def watch(what: str, done: int, total: int) -> None:
        if done == 1:
            go_on.set()  # the first one is given up

    found = examine(
        [
            Examination(area="area", name="hangs", steps=hangs, limit_s=0.05),
            Examination(area="area", name="waits", steps=waits),
        ],
        watch=watch,
    )
    assert names(found) == [("hangs", "error"), ("other", "ok")]


def test_progress_is_reported_up_to_the_last_examination_but_one() -> None:
    seen: list[tuple[str, int, int]] = []
    one = [examination(str(n), good(str(n))) for n in range(3)]
    examine(one, what="servers", watch=lambda *words: seen.append(words))
    assert seen[0] == ("servers", 0, 3)
    assert max(done for _, done, _ in seen) == 2
    assert examine([]) == ()


# ---------------------------------------------------------------- values


def test_secrets_and_users_in_urls_are_masked_in_every_text() -> None:
    check = AREA.error(
        "name",
        "found pa55word! at redis://me:other@host",
        "replace pa55word!",
        ("curl", "http://me:other@host", "pa55word!x"),
    )
    (masked,) = without_secrets_of([check], ["pa55word!", "pa55", "abc", ""])
    assert masked.found == "found *** at redis://***@host"
    assert masked.fix == "replace ***"
    assert masked.command == ("curl", "http://***@host", "***x")
    assert without_secrets_of([AREA.ok("a", "an abc")], ["abc"])[0].found == "an abc"


@pytest.mark.parametrize(
    ("states", "strict", "is_failed"),
    [
        ([], True, False),
        (["ok", "info", "unknown", "warning"], False, False),
        (["ok", "info", "unknown"], True, False),
        (["ok", "warning"], True, True),
        (["error", "ok"], False, True),
        (["error"], True, True),
    ],
)
def test_errors_fail_and_with_strict_warnings_too(
    states: list[State], strict: bool, is_failed: bool
) -> None:
    found = [DoctorCheck(area="a", name="n", state=state, found="f") for state in states]
    assert failed(found, strict=strict) is is_failed
