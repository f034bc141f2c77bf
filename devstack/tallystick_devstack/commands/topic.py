"""`tally local topic`: create, list and describe topics of the stack's Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tallystick.cli.errors import busy, exit_on_error, out, out_json
from tallystick.errors import InvalidRequest
from tallystick_devstack.which_stack import Chosen, StateDir, choose, running_stack

if TYPE_CHECKING:
    from tallystick_devstack.topics import Topics, TopicState

_FOREVER = "forever"

Name = typer.Argument(metavar="NAME", help="The topic's name.")
AsJson = typer.Option(False, "--json", help="Print JSON.")
app = typer.Typer(
    name="topic",
    help="Create, list and describe topics of the stack's Kafka.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
@exit_on_error
def create(
    name: str = Name,
    partitions: int = typer.Option(
        1, "--partitions", min=1, max=1000, help="Number of partitions; one keeps a file's order."
    ),
    retention: str = typer.Option(
        _FOREVER,
        "--retention",
        metavar="TIME",
        help="How long records are kept, e.g. 7d, by their timestamps; or forever.",
    ),
    config: list[str] = typer.Option(  # noqa: B008
        [], "--config", metavar="NAME=VALUE", help="A setting of the topic; may be repeated."
    ),
    state_dir: Path | None = StateDir,
    as_json: bool = AsJson,
) -> None:
    """Create a topic."""
    from tallystick.format import keys
    from tallystick_devstack.topics import RETENTION

    keys.check_topic(name)
    settings = named_values("--config", config)
    if RETENTION in settings and retention != _FOREVER:
        raise InvalidRequest(
            f"--retention {retention} and --config {RETENTION}={settings[RETENTION]} set the same.",
            hint="use only one.",
        )
    settings.setdefault(RETENTION, _retention_ms(retention))
    chosen, topics = topics_of(state_dir)
    with busy("creating the topic"):
        topics.create(name, partitions=partitions, config=settings)
        state = topics.describe(name)
    if as_json:
        out_json({"state_dir": str(chosen.folder)} | form(state))
    else:
        out(_created(state))


@app.command("list")
@exit_on_error
def list_topics(state_dir: Path | None = StateDir, as_json: bool = AsJson) -> None:
    """List the topics, without Kafka's own."""
    chosen, topics = topics_of(state_dir)
    with busy("reading Kafka"):
        found = topics.described()
    if as_json:
        out_json({"state_dir": str(chosen.folder), "topics": [form(one) for one in found]})
    else:
        out(_listed(found))


@app.command()
@exit_on_error
def describe(name: str = Name, state_dir: Path | None = StateDir, as_json: bool = AsJson) -> None:
    """Show a topic's partitions, offsets, timestamps, id, and the settings that are not Kafka's defaults."""
    chosen, topics = topics_of(state_dir)
    with busy("reading Kafka"):
        state = topics.describe(name)
    if as_json:
        out_json({"state_dir": str(chosen.folder)} | form(state))
    else:
        out(_described(state))


def topics_of(state_dir: Path | None) -> tuple[Chosen, Topics]:
    """Return the stack of a command, which must run, and its topics."""
    chosen = choose(state_dir)
    info = running_stack(chosen, "kafka")
    from tallystick_devstack.topics import Topics

    return chosen, Topics(info.kafka_client())


def named_values(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Return the names and values of an option NAME=VALUE that may be repeated, each name once."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise InvalidRequest(
                f"{option}: expected NAME=VALUE, found {text!r}.", hint=f"use {option} NAME=VALUE."
            )
        if name in found:
            raise InvalidRequest(
                f"{option}: expected each name once, found {name} with {found[name]!r} and {value!r}.",
                hint="use only one.",
            )
        found[name] = value
    return found


def _retention_ms(text: str) -> str:
    from tallystick.cli.gc import duration
    from tallystick_devstack.topics import FOREVER

    if text == _FOREVER:
        return FOREVER
    return str(duration(text, "--retention") // timedelta(milliseconds=1))


def moment(at_ms: int | None) -> str:
    """Return a timestamp as text, in UTC; "-" if there is none."""
    from tallystick.cli.text import spell

    if at_ms is None:
        return "-"
    try:
        return spell(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms))
    except OverflowError:
        return f"{at_ms} ms (after the year 9999)"


def _created(state: TopicState) -> str:
    from tallystick.cli.text import many, paragraph
    from tallystick_devstack.topics import FOREVER, RETENTION

    (kept,) = [one.value for one in state.settings if one.name == RETENTION]
    why = "Kafka deletes by the timestamps of records, which may be old."
    return "\n".join(
        (
            f"Created topic {state.name} with {many(len(state.partitions), 'partition')}.",
            paragraph(
                f"Its records are kept for ever ({RETENTION}={kept}): {why}"
                if kept == FOREVER
                else f"Its records are deleted when they are older than {RETENTION}={kept}: {why}"
            ),
            f"Next: tally local produce {state.name} FILE --time FIELD",
        )
    )


def _listed(found: Sequence[TopicState]) -> str:
    from tallystick.cli.text import grid

    if not found:
        return "No topics yet. Next: tally local topic create NAME"
    rows = [
        (
            one.name,
            str(len(one.partitions)),
            f"{one.offsets:,}",
            moment(
                min((p.first_ms for p in one.partitions if p.first_ms is not None), default=None)
            ),
            moment(
                max((p.latest_ms for p in one.partitions if p.latest_ms is not None), default=None)
            ),
        )
        for one in found
    ]
    headings = ("topic", "partitions", "offsets", "first timestamp", "latest timestamp")
    return grid(headings, rows, right=headings[1:3])


def _described(state: TopicState) -> str:
    from tallystick.cli.text import grid, many

    headings = (
        "partition",
        "first offset",
        "end offset",
        "offsets",
        "first timestamp",
        "latest timestamp",
    )
    rows = [
        (
            str(one.partition),
            f"{one.first_offset:,}",
            f"{one.end_offset:,}",
            f"{one.offsets:,}",
            moment(one.first_ms),
            moment(one.latest_ms),
        )
        for one in state.partitions
    ]
    settings = [(one.name, one.value, one.source) for one in state.settings]
    return "\n".join(
        (
            f"Topic {state.name}, id {state.topic_id}: {many(len(state.partitions), 'partition')}, "
            f"{many(state.offsets, 'offset')}.",
            grid(headings, rows, right=headings[:4]),
            "An offset, and the latest timestamp, is of a record or of a transaction's marker. Times are in UTC.",
            "",
            grid(("setting other than Kafka's default", "value", "set by"), settings),
        )
    )


def form(state: TopicState) -> dict[str, Any]:
    """Return a topic as JSON."""
    return {
        "topic": state.name,
        "id": state.topic_id,
        "offsets": state.offsets,
        "partitions": [
            {
                "partition": one.partition,
                "first_offset": one.first_offset,
                "end_offset": one.end_offset,
                "offsets": one.offsets,
                "first_timestamp_ms": one.first_ms,
                "latest_timestamp_ms": one.latest_ms,
            }
            for one in state.partitions
        ],
        "settings": [
            {"name": one.name, "value": one.value, "set_by": one.source} for one in state.settings
        ],
    }
