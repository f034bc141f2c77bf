"""Declarations of outputs: an invalid one is refused in the DAG file, not in a task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from support.fake_output import Declared
from support.small_lake import pipeline
from tallystick.errors import InvalidPipeline
from tallystick.outputs.calls import EmailOutput, HttpOutput
from tallystick.outputs.files import FileOutput
from tallystick.outputs.kafka import KafkaOutput
from tallystick.outputs.postgres import PostgresOutput
from tallystick.pipeline import DeclaredOutput, Pipeline, pipeline_from_spec


def topic(**options: Any) -> KafkaOutput:
    return KafkaOutput(**{"name": "feed", "table": "events", "topic": "feed"} | options)


def folder(**options: Any) -> FileOutput:
    return FileOutput(**{"name": "feed", "table": "events", "folder": "/srv/feed"} | options)


def http(**options: Any) -> HttpOutput:
    return HttpOutput(**{"name": "feed", "table": "events", "url": "https://a/b"} | options)


def database(**options: Any) -> PostgresOutput:
    defaults = {"name": "feed", "table": "events", "into": "public.events", "key": ["n"]}
    return PostgresOutput(**defaults | options)


def email(**options: Any) -> EmailOutput:
    defaults = {"subject": "s", "body": "b", "sender": "a@example.org"}
    return EmailOutput(**{"name": "feed", "table": "events", "to": "kind"} | defaults | options)


def declaring(*outputs: DeclaredOutput) -> Pipeline:
    """Return the small pipeline with these outputs."""
    return replace(pipeline("memory://small"), outputs=outputs)


@pytest.mark.parametrize(
    ("output", "default", "kind"),
    [(topic, "correct", "a topic"), (folder, "compensate", "a folder")],
)
def test_topics_and_folders_allow_their_own_kind_of_replacement_or_refuse(
    output: Callable[..., DeclaredOutput], default: str, kind: str
) -> None:
    assert output().replaced == default
    for allowed in (default, "refuse"):
        assert output(replaced=allowed).replaced == allowed
    others = {"correct", "compensate", "once", "typo"} - {default}
    for other in sorted(others):
        with pytest.raises(InvalidPipeline) as caught:
            output(replaced=other)
        assert caught.value.message == f"output feed: unsupported replaced={other!r} for {kind}."
        assert caught.value.hint == f"use {default} or refuse."


@pytest.mark.parametrize("output", [topic, database, http, email])
def test_a_key_is_a_list_of_columns_and_never_a_text(
    output: Callable[..., DeclaredOutput],
) -> None:
    with pytest.raises(InvalidPipeline, match="feed"):
        output(key="kn", replaced="refuse")
    assert output(key=["kn"], replaced="refuse").key == ("kn",)


@pytest.mark.parametrize("output", [topic, folder, database, Declared])
def test_two_outputs_with_one_target_are_refused(output: Callable[..., DeclaredOutput]) -> None:
    first, second = output(), output(name="sums", table="per_kind")
    with pytest.raises(InvalidPipeline) as caught:
        declaring(first, http(name="between", url="https://c/d"), second)
    assert caught.value.message == (
        f"outputs feed and sums: expected different targets, found {first.target} twice."
    )
    assert caught.value.hint.startswith("give each output a target of its own")


def test_outputs_with_different_targets_are_declared_together() -> None:
    outputs = (folder(), folder(name="sums", folder="/srv/sums"), topic(name="topic"))
    assert declaring(*outputs).outputs == outputs


@pytest.mark.parametrize("output", [email, http])
def test_several_outputs_may_call_one_receiver(output: Callable[..., DeclaredOutput]) -> None:
    outputs = (output(), output(name="sums", table="per_kind"))
    assert declaring(*outputs).outputs == outputs


def test_a_stored_plan_whose_outputs_share_a_target_is_read() -> None:
    spec = declaring(folder(), folder(name="sums", folder="/srv/sums")).to_spec()
    spec["outputs"][1]["target"] = spec["outputs"][0]["target"]
    found = pipeline_from_spec(spec, where="plan")
    assert [output.target for output in found.outputs] == ["file:/srv/feed"] * 2
