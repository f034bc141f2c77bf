"""`tally topic`: the decisions of an operator about a topic of a ledger."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from tallystick.cli.errors import busy, exit_on_error, out, out_json
from tallystick.connections.kafka import KafkaSettings

if TYPE_CHECKING:
    from tallystick.format.root import Root
    from tallystick.kafka.planning import TopicState
    from tallystick.operations.adopt_topic import Adopted

UNKNOWN = "unknown"
_END = re.compile(r"([0-9]{1,6})=([0-9]{1,19})")

OldEnd = typer.Option(
    [], "--old-end", metavar="P=OFFSET", help="End of partition P of the old topic; or unknown."
)
app = typer.Typer(
    name="topic",
    help="Commands for the topics of a ledger.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def _topic() -> None:
    """Keep `adopt` as a subcommand: without a callback, typer makes a single command the whole program."""


@app.command()
@exit_on_error
def adopt(
    topic: str = typer.Argument(metavar="TOPIC", help="The name of the topic in Kafka."),
    lake: str | None = typer.Argument(None, metavar="LAKE", help="As in `tally status --help`."),
    kafka: str = typer.Option(
        "default", "--kafka", metavar="NAME", help="The connection to the new topic."
    ),
    old_kafka: str | None = typer.Option(
        None, "--old-kafka", metavar="NAME", help="A connection to the old topic, to read its ends."
    ),
    old_end: list[str] = OldEnd,
    confirm: str | None = typer.Option(
        None, "--confirm", metavar="ID", help="Adopt the new topic, which has this id."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Adopt a topic that was created anew, or on another cluster, as the successor of the old one."""
    from tallystick.cli.lake_argument import open_lake
    from tallystick.format import keys
    from tallystick.operations.adopt_topic import adopt as follow

    keys.check_topic(topic)
    opened = open_lake(lake, writes=confirm is not None)
    ends = _parse_ends(topic, old_kafka, old_end, needed=confirm is not None)

    def ends_of(root: Root) -> Mapping[int, int]:
        if old_kafka is not None:
            return ends_on(root, topic, old_kafka, environ=os.environ)
        return ends or {}

    with busy("reading Kafka and the ledger"):
        answer = follow(
            opened,
            topic,
            lambda: described(kafka, topic, environ=os.environ),
            ends_of=ends_of,
            confirmed_id=confirm,
        )
    if as_json:
        out_json(form(answer))
    else:
        out(text(answer, ends_known=old_kafka is not None or ends is not None))


def _parse_ends(
    topic: str, old_kafka: str | None, texts: Sequence[str], *, needed: bool
) -> Mapping[int, int] | None:
    """Return the old topic's ends by partition from --old-end; empty if they are unknown, None if it is not given."""
    from tallystick.errors import InvalidRequest

    if old_kafka is not None and texts:
        raise InvalidRequest(
            "--old-kafka and --old-end both set the ends of the old topic.", hint="use only one."
        )
    if not texts and old_kafka is None and needed:
        raise InvalidRequest(
            f"the ends of the old topic {topic} are not set: offsets that were not read of it are lost for ever.",
            hint="name a connection that still leads to it (--old-kafka), its ends "
            f"(--old-end 0=1234 --old-end 1=1300), or --old-end {UNKNOWN}.",
        )
    if not texts:
        return None
    if list(texts) == [UNKNOWN]:
        return {}
    matches = [_END.fullmatch(end) for end in texts]
    ends = {int(end[1]): int(end[2]) for end in matches if end}
    if len(ends) != len(texts) or max(ends.values()) >= 2**63:
        raise InvalidRequest(
            f"--old-end: expected offsets by partition, found {' '.join(texts)}.",
            hint=f"use PARTITION=OFFSET, once per partition, e.g. 0=1234; or {UNKNOWN} alone.",
        )
    return ends


def ends_on(
    root: Root, topic: str, connection: str, *, environ: Mapping[str, str]
) -> Mapping[int, int]:
    """Return the current end offset of each partition of the topic that the ledger reads, from a connection's cluster.

    Returns an empty mapping if this topic is already closed in the ledger.
    Raises IdentityChanged if the connection leads to another incarnation, and what the client raises.
    """
    from tallystick.errors import IdentityChanged

    known = root.topics.get(root.open_topic(topic))
    seen = described(connection, topic, environ=environ)
    closed = [t for t in root.topics.values() if t.closed is not None]
    if any((t.topic_id, t.cluster_id) == (seen.topic_id, seen.cluster_id) for t in closed):
        return {}  # C9: an earlier run of this command closed it, and its answer was lost; the root has the ends
    if known is not None and (seen.topic_id, seen.cluster_id) != (known.topic_id, known.cluster_id):
        raise IdentityChanged(
            f"topic {topic} of connection {connection}: expected id {known.topic_id} in cluster {known.cluster_id} as in "
            f"the ledger, found id {seen.topic_id} in cluster {seen.cluster_id}.",
            hint="name a connection to the old topic; or set its ends with --old-end.",
        )
    return {number: one.high_watermark for number, one in enumerate(seen.partitions)}


def described(connection: str, topic: str, *, environ: Mapping[str, str]) -> TopicState:
    """Return identity and offsets of a topic by a connection's name, within the time limit of the command.

    Raises SettingsError, and what the client raises; KafkaUnavailable after the limit.
    """
    from tallystick.cli.waiting import LIMIT_S, kafka_within
    from tallystick.connections.resolve import resolve
    from tallystick.kafka.planning import LogPlanner

    settings = resolve(KafkaSettings, connection, environ=environ)

    def describe() -> TopicState:
        with LogPlanner(settings) as planner:
            return planner.describe([topic])[topic]

    return kafka_within(
        LIMIT_S.get(),
        connection,
        describe,
        hint="check that this machine reaches the brokers, and run the command again.",
    )


def text(answer: Adopted, *, ends_known: bool) -> str:
    """Return the answer as text: the ends of the old topic, the origins of the new one, the loss, and the next step."""
    from tallystick.cli.text import INDENT, grid, many, paragraph, span, spell

    old, new = answer.old, answer.new
    verb = "follows" if answer.done else "would follow"
    parts = [
        paragraph(f"{answer.pipeline} at {answer.uri}, version {answer.version}"),
        paragraph(
            f"topic {answer.topic} with id {new.topic_id} in cluster {new.cluster_id} {verb} the topic with id "
            f"{old.topic_id} in cluster {old.cluster_id}, from {spell(answer.since)} (UTC) on. Its name in the ledger "
            f"and in the rows is {answer.adopted}."
        ),
    ]
    rows = [
        (str(p), f"{read:,}", f"{lost:,}")
        for p, (read, lost) in enumerate(zip(answer.read_to, answer.lost, strict=True))
    ]
    headings = (f"{answer.closed} partition", "read to offset", "lost after it")
    parts.append(grid(headings, rows, right=headings))
    begins = [(str(p), f"{origin:,}") for p, origin in enumerate(new.origins)]
    begin_headings = (f"{answer.adopted} partition", "begins at offset")
    parts.append(grid(begin_headings, begins, right=begin_headings))
    lost = sum(answer.lost)
    if lost:
        parts.append(
            paragraph(
                f"LOST: {many(lost, 'offset')} of {answer.closed}, recorded in the interval that begins at "
                f"{spell(answer.since)}."
            )
        )
    if answer.waiting:
        lines = [
            "Granted and not committed: staged plans can still be committed, the others become losses."
        ]
        lines += [f"{INDENT}{span(one)}" for one in answer.waiting]
        parts.append("\n".join(lines))
    if not answer.done:
        next_step = "Nothing was changed."
        if not ends_known:
            next_step += (
                " Set the ends of the old topic (--old-kafka, --old-end); otherwise offsets after those above are lost "
                "without a record (--old-end unknown)."
            )
        parts.append(paragraph(f"{next_step} To adopt it permanently: --confirm {new.topic_id}"))
    return "\n\n".join(parts)


def form(answer: Adopted) -> Mapping[str, Any]:
    """Return the JSON of `tally topic adopt`."""
    from tallystick.format import keys

    return {
        "lake": answer.uri,
        "pipeline": answer.pipeline,
        "version": answer.version,
        "done": answer.done,
        "topic": answer.topic,
        "since": keys.instant(answer.since),
        "closed": {
            "name": answer.closed,
            "id": answer.old.topic_id,
            "cluster": answer.old.cluster_id,
            "read_to": list(answer.read_to),
            "lost": list(answer.lost),
        },
        "adopted": {
            "name": answer.adopted,
            "id": answer.new.topic_id,
            "cluster": answer.new.cluster_id,
            "origins": list(answer.new.origins),
        },
        "waiting": [
            {"from": keys.instant(one.start), "to": keys.instant(one.end)} for one in answer.waiting
        ],
    }
