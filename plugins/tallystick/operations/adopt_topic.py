"""The use case `adopt`: continue a ledger with a topic that was recreated, or that is on another cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from tallystick.errors import IdentityChanged, InvalidRequest, Superseded
from tallystick.format.interval import Interval
from tallystick.format.root import Root, RootTopic
from tallystick.lake import Lake, NoUpdate, Snapshot, Update
from tallystick.operations.kafka_log import TopicDescription
from tallystick.protocol import adoption


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """The result of an adoption. `done`: True if it is in the ledger, False if it was only computed.

    `read_to` and `lost` have one value per partition of `closed`. `lost` counts the offsets after the last boundary; they
    belong to the interval that begins at `since`. `waiting` are the intervals that are granted and not committed. If the
    rows of such a plan are staged already, they can still be committed. If not, their offsets are lost, and an operator
    must accept the loss.
    """

    uri: str
    pipeline: str
    version: int
    topic: str
    closed: str
    old: RootTopic
    adopted: str
    new: RootTopic
    since: datetime
    read_to: tuple[int, ...]
    lost: tuple[int, ...]
    waiting: tuple[Interval, ...]
    done: bool


def adopt(
    lake: Lake,
    topic: str,
    describe: Callable[[], TopicDescription],
    *,
    ends_of: Callable[[Root], Mapping[int, int]],
    confirmed_id: str | None = None,
) -> Adopted:
    """Adopt the incarnation of `topic` that Kafka has now, in place of the one that the ledger reads.

    `confirmed_id` is the expected topic id of the new incarnation. If it is None, nothing is written, and the result
    describes what an adoption would do. `describe` queries Kafka. It is called after the root is read, so its answer is
    not older than that root. `ends_of` returns the end offset of each partition of the incarnation that the given root
    reads. If it leaves out a partition, the end is the offset up to which the ledger has read. If the ledger reads
    another incarnation by the time of the swap, nothing is adopted.

    Safe to repeat: if the ledger reads the new incarnation already, the result is built from the ledger, and nothing is
    written (C9). Raises InvalidRequest if there is nothing to adopt, if an end is lower than the offset that was read,
    or if `confirmed_id` is not the id of the topic. Raises IdentityChanged if the topic is a copy, or an incarnation that
    was closed before. Raises Superseded if another process adopts meanwhile. Raises the errors of `describe`, `ends_of`
    and the lake.
    """
    if confirmed_id is not None:
        lake.prove()
    root = lake.load_existing().root
    opened, ends = root.open_topic(topic), ends_of(root)
    seen = describe()
    if confirmed_id is not None and confirmed_id != seen.topic_id:
        raise InvalidRequest(
            f"topic {topic}: expected id {confirmed_id} (confirmed), found id {seen.topic_id} in cluster "
            f"{seen.cluster_id}.",
            hint="run the same command without --confirm to print the current topic.",
        )
    starts = tuple(partition.log_start for partition in seen.partitions)
    new = RootTopic(topic_id=seen.topic_id, cluster_id=seen.cluster_id, origins=starts)

    def step(snapshot: Snapshot) -> Update[Adopted] | NoUpdate[Adopted]:
        # Read the whole ledger: an adoption is rare, and the result contains all intervals that wait.
        ledger = snapshot.whole_ledger()
        last = ledger.boundaries[-1] if ledger.boundaries else None
        decision = adoption.decide_adoption(snapshot.root, last, topic, new, ends)
        if isinstance(decision, adoption.AlreadyRead) and decision.follows is not None:
            return NoUpdate(value=_found(lake, snapshot, topic, decision.name, decision.follows))
        if not isinstance(decision, adoption.Adopt):
            raise _refusal(lake, topic, decision, new)
        if decision.closed != opened:
            raise Superseded(
                f"ledger of {lake.store.uri}: expected {opened} as the topic that it reads, found {decision.closed}: "
                "another process adopted a topic in the meantime.",
                hint="check which topic the ledger reads: `tally status`.",
            )
        old = snapshot.root.topics[decision.closed]
        waiting = tuple(e.interval for e in ledger.entries if e.granted is not None)
        answer = Adopted(
            uri=lake.store.uri,
            pipeline=snapshot.root.pipeline,
            version=snapshot.root.version + (confirmed_id is not None),
            topic=topic,
            closed=decision.closed,
            old=old,
            adopted=decision.adopted,
            new=new,
            since=decision.since,
            read_to=decision.read_to,
            lost=decision.lost,
            waiting=waiting,
            done=confirmed_id is not None,
        )
        if confirmed_id is None:
            return NoUpdate(value=answer)
        # The decision has read every boundary. None of them changes, so the swap checks only the last one.
        edge = snapshot.ledger(decision.since, decision.since)
        return Update(
            tables=snapshot.root.tables, topics=decision.topics, ledger=edge, value=answer
        )

    return lake.swap(step)


def _found(lake: Lake, snapshot: Snapshot, topic: str, name: str, follows: str) -> Adopted:
    """Build the result of an adoption that is in the root already, for a repeated call."""
    old = snapshot.root.topics[follows]
    assert old.closed is not None  # another incarnation follows it
    ledger = snapshot.ledger(old.closed.since, old.closed.since)
    last = ledger.boundary(old.closed.since)
    assert last is not None  # boundaries are never removed
    read_to = tuple(
        last.position(follows, p, snapshot.root.origins).offset for p in range(len(old.origins))
    )
    return Adopted(
        uri=lake.store.uri,
        pipeline=snapshot.root.pipeline,
        version=snapshot.root.version,
        topic=topic,
        closed=follows,
        old=old,
        adopted=name,
        new=snapshot.root.topics[name],
        since=old.closed.since,
        read_to=read_to,
        lost=tuple(end - read for end, read in zip(old.closed.ends, read_to, strict=True)),
        waiting=(),
        done=True,
    )


def _refusal(
    lake: Lake, topic: str, decision: adoption.Adoption, new: RootTopic
) -> InvalidRequest | IdentityChanged:
    which = f"topic {topic} with id {new.topic_id} in cluster {new.cluster_id}"
    if isinstance(decision, adoption.EndsTooEarly):
        return InvalidRequest(
            f"partition {decision.partition} of the old topic: expected an end at or after offset {decision.read_to}, "
            f"to which the ledger has read, found {decision.end}.",
            hint="check whether the old topic was truncated (unclean leader election?); set its end with --old-end, "
            "or leave that partition out there.",
        )
    if isinstance(decision, adoption.InvalidEnds):
        return InvalidRequest(
            f"the ends of the old topic {topic} are not possible: {decision.why}.",
            hint="name each partition once, with its number and its end.",
        )
    if isinstance(decision, adoption.SameTopic):
        return IdentityChanged(
            f"{which} is a copy of {decision.name} in the ledger of {lake.store.uri}, which has the same id on another "
            "cluster: the records that were read before would be read twice.",
            hint="point the connection back at the old cluster, or begin a new pipeline with its own warehouse.",
        )
    if isinstance(decision, adoption.ReadBefore):
        return IdentityChanged(
            f"{which} is {decision.name} in the ledger of {lake.store.uri}, and was closed there: its offsets are "
            "accounted for, and would be read twice.",
            hint="adopt a topic that the ledger has not read yet, or begin a new pipeline with its own warehouse.",
        )
    if isinstance(decision, adoption.AlreadyRead):
        return InvalidRequest(
            f"{which} is already the topic that {lake.store.uri} reads.",
            hint="do nothing: there is no topic to adopt.",
        )
    return InvalidRequest(
        f"the ledger of {lake.store.uri} has not read topic {topic} yet.",
        hint="adopt nothing: the first run reads the topic as it is. `tally status` lists the topics of the ledger.",
    )
