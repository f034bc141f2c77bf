"""The oracle itself: it shares no code with tallystick, and it detects each kind of damage to a good lake."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oracle import scenarios
from oracle.audit import Finding, audit
from oracle.place import Objects
from oracle.produced import NULL, ProducerLog, Sent, digest, produce_logged
from oracle.scene import BUCKET, Scene, columns, sums
from oracle.watcher import Watcher
from support.brokers import TestBroker

OWN = ("audit", "produced", "watcher")
FOREIGN = {"boto3", "botocore", "confluent_kafka", "fastavro", "pyarrow"}


def imported(module: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module)


def test_the_oracle_imports_nothing_of_tallystick() -> None:
    """It imports only the standard library, five external libraries and its own modules."""
    waiting, visited = list(OWN), set[str]()
    while waiting:
        name = waiting.pop()
        visited.add(name)
        for module in imported(Path(__file__).with_name(f"{name}.py")):
            top, _, rest = module.partition(".")
            if top == "oracle":
                waiting += [] if rest in visited else [rest]
            else:
                assert top in FOREIGN | sys.stdlib_module_names, f"oracle.{name} imports {module}"
    assert visited.issuperset({*OWN, "row_checks", "ledger_checks", "broker_log"})


# ---------------------------------------------------------------- a good lake, with other expectations


@pytest.fixture(scope="module")
def good(shared_log: Any, endpoint: str) -> Scene:
    scene = Scene(shared_log, endpoint)
    scenarios.days(scene)
    return scene


def audit_of(scene: Scene, sent: Sequence[Sent] | None = None, **other: Any) -> Finding:
    how: dict[str, Any] = {
        "acknowledged": scene.acknowledged,
        "payload": columns,
        "values": scene.log.written.values(),
        "aggregates": {"per_kind": sums},
        "in_order": True,
    }
    return audit(scene.place, scene.log.written.read() if sent is None else sent, **how | other)


def changed(sent: list[Sent], which: str = "ok", /, **fields: Any) -> list[Sent]:
    """Return the records with other fields in the first one of an outcome."""
    at = next(n for n, record in enumerate(sent) if record.outcome == which)
    return [*sent[:at], replace(sent[at], **fields), *sent[at + 1 :]]


def test_a_good_lake_passes(good: Scene) -> None:
    finding = audit_of(good)
    ok = [record for record in good.log.written.read() if record.outcome == "ok"]
    assert (finding.ok, finding.records, finding.payloads) == (True, len(ok), len(ok)), finding
    assert (finding.duplicates, finding.missing) == (0, 0)
    # The ledger pages of the swaps that granted and committed nothing: days 1, 2, 3 and 5.
    assert finding.orphans.count == 4


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda sent: changed(sent, outcome="aborted"), "foreign"),
        (lambda sent: changed(sent, outcome="failed", offset=None), "foreign"),
        (lambda sent: sent[1:], "foreign"),
        (lambda sent: [*sent, replace(sent[0], offset=10_000)], "missing"),
        (lambda sent: changed(sent, "aborted", outcome="ok"), "missing"),
        (lambda sent: changed(sent, sha256=digest(b"other")), "sent"),
        (lambda sent: changed(sent, timestamp_ms=1_356_998_400_001), "payload"),
        (lambda sent: changed(sent, timestamp_ms=1_357_084_800_000), "time"),
        (lambda sent: changed(sent, offset=None), "sent"),
        (lambda sent: [*sent, replace(sent[0], sha256=NULL)], "sent"),
    ],
    ids=[
        "noted as aborted",
        "noted as failed",
        "never sent",
        "one more acknowledged",
        "an aborted one noted as acknowledged",
        "another value",
        "another time",
        "a time of the next day",
        "acknowledged without an offset",
        "two acknowledged at one offset",
    ],
)
def test_a_difference_from_the_producers_log_is_reported(
    good: Scene, change: Callable[[list[Sent]], list[Sent]], kind: str
) -> None:
    finding = audit_of(good, change(good.log.written.read()))
    assert not finding.ok
    assert any(line.startswith(f"{kind}: ") for line in finding.problems), finding


@pytest.mark.parametrize(
    "change",
    [
        lambda sent: changed(sent, outcome="unknown"),
        lambda sent: changed(sent, outcome="unknown", offset=None),
        lambda sent: [*sent, replace(sent[0], outcome="unknown", offset=None, sha256=digest(b"x"))],
        lambda sent: [*sent, replace(sent[0], outcome="failed", offset=None)],
    ],
    ids=["present", "present, offset unknown", "absent", "failed and absent"],
)
def test_a_record_of_unknown_outcome_may_be_present_or_absent(
    good: Scene, change: Callable[[list[Sent]], list[Sent]]
) -> None:
    finding = audit_of(good, change(good.log.written.read()))
    assert finding.ok, finding


def test_an_unknown_record_explains_one_row_and_no_more(good: Scene) -> None:
    """The lake has two equal values, and the producer's log has one or two records of unknown outcome."""
    sent = good.log.written.read()
    place = sent[0].partition
    same = [s for s in sent if (s.sha256, s.partition) == (digest(scenarios.SAME), place)][:2]
    rest = [record for record in sent if record not in same]
    unknown = replace(same[0], outcome="unknown", offset=None)
    assert audit_of(good, [*rest, unknown, unknown]).ok
    finding = audit_of(good, [*rest, unknown])
    assert [line.split(":")[0] for line in finding.problems] == ["foreign"], finding


def other_row(value: bytes | None) -> Mapping[str, Any] | None:
    row = columns(value)
    return None if row is None else {**row, "n": row["n"] + 1}


@pytest.mark.parametrize(
    ("other", "kind"),
    [
        ({"payload": other_row}, "payload"),
        ({"payload": lambda value: columns(scenarios.SAME)}, "payload"),
        ({"payload": lambda value: None}, "payload"),
        ({"aggregates": {"per_kind": lambda rows: sums(rows[1:])}}, "aggregate"),
        ({"acknowledged": ["plans/not/existing.json"]}, "acknowledged"),
        ({"acknowledged": ["999"]}, "acknowledged"),
    ],
    ids=[
        "another row",
        "no dead letters",
        "all dead letters",
        "another sum",
        "a plan",
        "a version",
    ],
)
def test_a_difference_from_the_expectations_of_a_test_is_reported(
    good: Scene, other: dict[str, Any], kind: str
) -> None:
    finding = audit_of(good, **other)
    assert any(line.startswith(f"{kind}: ") for line in finding.problems), finding


# ---------------------------------------------------------------- a good lake, damaged


def metadata_of(root: Any) -> str:
    return str(root["tables"]["events"]["metadata"])


DATA = ("tables/events/data/", "tables/dead_letters/data/", "tables/per_kind/data/")


@pytest.mark.parametrize(
    ("prefix", "kind", "more"),
    [
        ("root.json", "object", None),
        ("ledger/", "object", None),
        ("commits/", "chain", None),
        ("plans/", "object", None),
        ("attempts/", "object", None),
        ("tables/events/metadata/", "object", None),
        *((table, "object", None) for table in DATA),
        *((table, "object", b"\n") for table in DATA),
    ],
)
def test_a_deleted_object_and_a_longer_data_file_are_reported(
    good: Scene, prefix: str, kind: str, more: bytes | None
) -> None:
    objects = Objects(good.place)
    root = objects.json("root.json")
    now = {line[2] for line in root["pages"]} | {root["record"], metadata_of(root), "root.json"}
    keys = sorted(key for key in objects.listing() if key.startswith(prefix))
    key = next((key for key in keys if key in now), keys[0])
    body, client = objects.body(key), objects._client
    s3 = {"Bucket": BUCKET, "Key": f"{good.place.prefix}/{key}"}
    try:
        if more is None:
            client.delete_object(**s3)
        else:
            client.put_object(**s3, Body=body + more)
        finding = audit_of(good)
    finally:
        client.put_object(**s3, Body=body)
        objects.close()
    assert any(line.startswith(f"{kind}: ") for line in finding.problems), finding


def test_a_watcher_reports_a_root_that_is_gone(
    good: Scene,
) -> None:
    objects = Objects(good.place)
    watcher = Watcher(good.place)
    watcher.poll()
    assert (watcher.ok, watcher.roots) == (True, 1)
    watcher.poll()
    assert watcher.roots == 1, "an unchanged root is not read again"
    key = f"{good.place.prefix}/root.json"
    body = objects.body("root.json")
    objects._client.delete_object(Bucket=BUCKET, Key=key)
    watcher.poll()
    objects._client.put_object(Bucket=BUCKET, Key=key, Body=body)
    assert any("is gone" in line for line in watcher.violations), watcher.violations
    objects.close()


# ---------------------------------------------------------------- the producer's log


def test_a_producer_notes_the_outcome_of_each_record(broker: TestBroker, tmp_path: Path) -> None:
    topic = broker.topic(2)
    log = ProducerLog(tmp_path / "sent.jsonl", keep_values=True)
    values = [b"a", None, b"x" * 2_000, b"b"]
    produce_logged(
        broker.bootstrap,
        topic,
        values,
        log=log,
        partitions=2,
        settings={"message.max.bytes": 1_500},
    )
    produce_logged(broker.bootstrap, topic, [b"c"], log=log, partitions=[1], transaction="abort")
    produce_logged(broker.bootstrap, topic, [b"d"], log=log, partitions=[1], transaction="commit")
    sent = log.read()
    assert [(s.partition, s.outcome, s.offset) for s in sent] == [
        (0, "ok", 0),
        (1, "ok", 0),
        (0, "failed", None),
        (1, "ok", 1),
        (1, "aborted", 2),
        (1, "ok", 4),
    ]
    assert [s.sha256 for s in sent[:2]] == [digest(b"a"), NULL]
    assert log.values()[digest(b"d")] == b"d"


def test_the_log_of_a_killed_producer_has_unknown_records_and_ignores_an_incomplete_line(
    tmp_path: Path,
) -> None:
    log = ProducerLog(tmp_path / "sent.jsonl")
    unknown = Sent("t", 0, None, "unknown", digest(b"a"), 1)
    log.note(unknown, name="first")
    log.note(replace(unknown, sha256=digest(b"b")), name="second")
    log.note(replace(unknown, offset=7, outcome="ok"), name="first")
    with log.path.open("a") as stream:
        stream.write('{"topic": "t", "part')
    assert [(s.outcome, s.offset) for s in log.read()] == [("ok", 7), ("unknown", None)]
