"""`tally local produce`: send the lines of a file to a topic, each as one record."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tallystick.cli.errors import bars, exit_on_error, note, out, out_json
from tallystick.errors import InvalidRequest, TallystickError
from tallystick_devstack.commands.topic import moment, topics_of
from tallystick_devstack.which_stack import StateDir

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tallystick_devstack.json_lines import LineReader, Source
    from tallystick_devstack.line_records import BadLines, LineRecords
    from tallystick_devstack.producing import Delivered

_WATCH_EVERY = 2_000


@exit_on_error
def produce(
    topic: str = typer.Argument(
        metavar="TOPIC", help="The topic; `tally local topic create` creates one."
    ),
    file: str = typer.Argument(
        metavar="FILE", help="JSON lines, plain or gzip; - for standard input."
    ),
    time_field: str | None = typer.Option(
        None,
        "--time",
        metavar="FIELD",
        help="The field with the time of the record's timestamp; a.b for b in a.",
    ),
    time_format: str | None = typer.Option(
        None,
        "--time-format",
        metavar="RULE",
        help="iso8601 (default), epoch_s, epoch_ms, epoch_us, or a strptime format.",
    ),
    key_field: str | None = typer.Option(
        None,
        "--key",
        metavar="FIELD",
        help="The field with the record's key. Without a value: no key.",
    ),
    header: list[str] = typer.Option(  # noqa: B008
        [], "--header", metavar="NAME=VALUE", help="A header of every record; may be repeated."
    ),
    bad_lines: str = typer.Option(
        "refuse",
        "--bad-lines",
        metavar="ACTION",
        help="Lines without a usable time or key: refuse (send nothing), skip, or send with the time of the line before.",
    ),
    state_dir: Path | None = StateDir,
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Send the lines of a file to a topic, each as one record, byte for byte. Repeated, it sends them again."""
    from tallystick.format import keys
    from tallystick_devstack import json_lines
    from tallystick_devstack.commands.produced import form, text
    from tallystick_devstack.line_records import LineRecords
    from tallystick_devstack.producing import Delivered
    from tallystick_devstack.producing import produce as send
    from tallystick_devstack.record_fields import Fields

    keys.check_topic(topic)
    fields = Fields(time=time_field, time_format=time_format, key=key_field)
    headers = _headers(header)
    action = _action(bad_lines)
    source = json_lines.source(file)
    chosen, topics = topics_of(state_dir)
    state, settings = topics.describe(topic), topics.settings(topic)
    limits = _Limits(settings)
    if fields.time is not None:
        limits.check_time_type(topic)
    records = LineRecords(name=file, fields=fields, allowed=limits.allowed(), bad_lines=action)
    if source.rereadable:
        records.first_ms = _checked(source, records, limits)
    if state.offsets:
        note(
            f"Topic {topic} already holds {state.offsets:,} offsets: these records are appended. A file that is sent "
            "twice is in it twice."
        )
    delivered = Delivered()
    with (
        source.lines(bytes_max=limits.message_bytes_max) as lines,
        _counted(delivered),
        bars() as show,
    ):
        send(
            topics.kafka,
            topic,
            records.of(lines),
            delivered,
            headers=headers,
            message_bytes_max=limits.message_bytes_max,
            watch=lambda: _advance(show, "sending", lines, source),
        )
    limits.warn_of_retention(topic, delivered.first_ms)
    if as_json:
        out_json(form(chosen, state, file, records, lines, delivered))
    else:
        out(text(state, records, lines, delivered))


def _headers(texts: Sequence[str]) -> list[tuple[str, bytes]]:
    found = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise InvalidRequest(
                f"--header: expected NAME=VALUE, found {text!r}.", hint="use --header NAME=VALUE."
            )
        found.append((name, value.encode(errors="surrogateescape")))
    return found


def _action(text: str) -> BadLines:
    from tallystick_devstack.line_records import BAD_LINES

    for action in BAD_LINES:
        if text == action:
            return action
    raise InvalidRequest(
        f"--bad-lines: expected {', '.join(BAD_LINES)}, found {text!r}.", hint="use one of them."
    )


class _Limits:
    """What a topic's settings allow."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings
        self.message_bytes_max = int(settings["max.message.bytes"])

    def check_time_type(self, topic: str) -> None:
        kind = self._settings["message.timestamp.type"]
        if kind != "CreateTime":
            raise InvalidRequest(
                f"topic {topic}: expected message.timestamp.type=CreateTime for --time, found {kind}: the broker would "
                "replace every timestamp by its own time.",
                hint="leave --time out, or create another topic.",
            )

    def allowed(self) -> Any:
        from tallystick_devstack.record_fields import TimeRange

        return TimeRange.of(
            int(self._settings["message.timestamp.before.max.ms"]),
            int(self._settings["message.timestamp.after.max.ms"]),
            now_ms=_now_ms(),
        )

    def warn_of_retention(self, topic: str, first_ms: int | None) -> None:
        """Print a note if Kafka will delete records at once, because of their timestamps."""
        kept_ms = int(self._settings["retention.ms"])
        if first_ms is not None and 0 <= kept_ms < _now_ms() - first_ms:
            note(
                f"Topic {topic} has retention.ms={kept_ms}, and there are timestamps from {moment(first_ms)} on: Kafka "
                "deletes such records soon. Next: use a topic that keeps them (`tally local topic create`)."
            )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _checked(source: Source, records: LineRecords, limits: _Limits) -> int | None:
    """Read a file once before anything is sent; return the first timestamp. Raises InvalidRequest for bad lines."""
    from dataclasses import replace

    every = replace(records, bad_lines="skip")
    with source.lines(bytes_max=limits.message_bytes_max) as lines, bars() as show:
        for number, _ in enumerate(every.of(lines)):
            if number % _WATCH_EVERY == 0:
                _advance(show, "checking", lines, source)
    if every.bad and records.bad_lines == "refuse":
        raise every.refusal(nothing_sent=True)
    every.check_key()
    if every.late:
        note(_out_of_order(source.name, every))
    if every.one_document and not every.fields.needed:
        note(
            f"{source.name} begins like one JSON document, not like JSON lines: each of its lines becomes a record. To "
            f"make one line of each object: jq -c '.[]' {source.name}"
        )
    return every.first_ms


def _out_of_order(name: str, records: LineRecords) -> str:
    from datetime import timedelta

    by = timedelta(seconds=records.latest_by_ms // 1000)
    return (
        f"{name} is not in the order of its times: {records.late:,} of {records.records:,} lines are more than a minute "
        f"before an earlier line, by up to {by}. A run reads the log up to the first record that is too late for it, so "
        "such records are in the interval in which they arrive, not in that of their time. Next: if the intervals are to "
        "have the records of their time, sort the lines first, e.g. "
        f"jq -sc 'sort_by(.{records.fields.time})[]' {name} > sorted.jsonl, for a topic of its own."
    )


def _advance(
    show: Callable[[str, int, int], None] | None, what: str, lines: LineReader, source: Source
) -> None:
    if show is not None:
        show(what, lines.position(), source.size_bytes or 0)


@contextmanager
def _counted(delivered: Delivered) -> Iterator[None]:
    """Add to an error how many records are in the topic; note it if the command is interrupted."""
    try:
        yield
    except InvalidRequest as error:
        if delivered.cause is not None:
            raise
        from tallystick_devstack.producing import AGAIN

        raise _with_count(error, delivered.records, AGAIN) from None
    except KeyboardInterrupt:
        from tallystick.cli.text import many

        note(f"Interrupted. Confirmed: {many(delivered.records, 'record')}.")
        raise


def _with_count(error: TallystickError, count: int, again: str) -> TallystickError:
    from tallystick.cli.text import many

    return type(error)(
        f"{error.message} The lines before it are sent: {many(count, 'record')}.",
        hint=f"{error.hint} {again}",
    )
