"""Translation of errors to Airflow's exceptions, and reading the result file of a job."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from tallystick import errors
from tallystick.airflow.outcome import airflow_errors, error_from, raise_reported_error, read_result
from tallystick.errors import (
    ActionRequired,
    InvalidPipeline,
    ReportRejected,
    RetryLater,
    Superseded,
    TallystickError,
)

SPAN = "[2013-01-02T00:00:00.000Z, 2013-01-03T00:00:00.000Z)"


def tree(top: type[TallystickError]) -> Iterator[type[TallystickError]]:
    yield top
    for below in top.__subclasses__():
        if below.__module__ == TallystickError.__module__:  # other modules may have private kinds
            yield from tree(below)


def result_file(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


@pytest.mark.parametrize("kind", list(tree(RetryLater)), ids=lambda k: k.__name__)
def test_errors_to_retry_later_are_retried(kind: type[TallystickError]) -> None:
    with (
        pytest.raises(
            AirflowException, match=r"seen 1, wanted 2\. This run requests .* Next: wait\."
        ) as caught,
        airflow_errors(SPAN),
    ):
        raise kind("seen 1, wanted 2.", hint="wait.")
    assert not isinstance(caught.value, AirflowFailException)


@pytest.mark.parametrize(
    "kind", [*tree(Superseded), *tree(ActionRequired)], ids=lambda k: k.__name__
)
def test_superseded_and_action_required_are_not_retried(kind: type[TallystickError]) -> None:
    with (
        pytest.raises(
            AirflowFailException, match=r"seen 1, wanted 2\. This run requests .* Next: decide\."
        ),
        airflow_errors(SPAN),
    ):
        raise kind("seen 1, wanted 2.", hint="decide.")


@pytest.mark.parametrize("message", ["seen 1, wanted 2.", f"{SPAN} may still get records."])
def test_the_span_of_the_run_is_in_the_message_once(message: str) -> None:
    with pytest.raises(AirflowFailException) as caught, airflow_errors(SPAN):
        raise ActionRequired(message, hint="decide.")
    assert str(caught.value).count(SPAN) == 1
    assert str(caught.value).startswith(message)


def test_other_errors_are_raised_unchanged() -> None:
    with pytest.raises(ZeroDivisionError), airflow_errors(SPAN):
        raise ZeroDivisionError


@pytest.mark.parametrize("kind", list(tree(TallystickError))[1:], ids=lambda k: k.__name__)
def test_error_of_a_job_comes_back_as_it_was_raised(
    kind: type[TallystickError], tmp_path: Path
) -> None:
    error = {"kind": kind.kind, "message": "a.", "hint": "b."}
    with pytest.raises(kind) as caught:
        raise_reported_error(result_file(tmp_path / "r", {"error": error}))
    assert type(caught.value) is kind
    assert (caught.value.message, caught.value.hint) == ("a.", "b.")
    assert str(pickle.loads(pickle.dumps(caught.value))) == "a. Next: b."


def test_other_error_of_a_job_is_retried_with_its_text(tmp_path: Path) -> None:
    error = {"kind": "error", "message": "KeyError: 'origin'", "hint": "read the log."}
    assert error_from(error) is None
    with pytest.raises(AirflowException, match="KeyError: 'origin'") as caught:
        raise_reported_error(result_file(tmp_path / "r", {"error": error}))
    assert not isinstance(caught.value, AirflowFailException)


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"error": 1}', "1"])
def test_result_file_without_an_error_raises_nothing(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "r"
    if text is not None:
        path.write_text(text)
    raise_reported_error(path)


def plans(*names: str) -> Any:
    return [SimpleNamespace(key=name) for name in names]


def test_result_names_exactly_the_requested_plans(tmp_path: Path) -> None:
    path = result_file(
        tmp_path / "r", [{"plan": "b", "report": "rb"}, {"plan": "a", "report": None}]
    )
    assert read_result(path, plans("a", "b")) == [
        {"plan": "b", "report": "rb"},
        {"plan": "a", "report": None},
    ]


@pytest.mark.parametrize(
    "value", [[], [{"plan": "a", "report": "r"}] * 2, [{"plan": "x", "report": "r"}], {"a": 1}]
)
def test_result_for_other_plans_is_refused(value: Any, tmp_path: Path) -> None:
    with pytest.raises(ReportRejected, match="expected a, found "):
        read_result(result_file(tmp_path / "r", value), plans("a"))


def test_job_that_never_ran_its_transform_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidPipeline, match=r"run\(transform\)"):
        read_result(tmp_path / "none", plans("a"))


def test_every_kind_has_its_own_name() -> None:
    kinds = [known.kind for known in tree(errors.TallystickError)]
    assert len(set(kinds)) == len(kinds)
