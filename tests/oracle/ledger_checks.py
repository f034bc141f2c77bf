"""The ledger, its records, plans and reports, checked against each other."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from oracle.place import Objects
from oracle.problems import Problems
from oracle.reading import TOTALS, Ledger, Partition, Piece, done_in


def read_chain(
    objects: Objects, root: Mapping[str, Any], problems: Problems, *, collected: bool
) -> dict[str, Mapping[str, Any]]:
    """The records from the root's back to the first, by key: each names its parent, versions fall, none is missing."""
    chain: dict[str, Mapping[str, Any]] = {}
    key, below = root["record"], root["version"] + 1
    while key is not None:
        record = objects.find(key)
        if record is None:
            if not collected:
                problems.say("chain", f"record {key} is named and not there")
            break
        version = int(key.removeprefix("commits/").split("-")[0])
        if (record["key"], record["version"]) != (key, version) or version >= below:
            problems.say(
                "chain", f"record {key} calls itself {record['key']}, before it is version {below}"
            )
            break
        chain[key] = record
        key, below = record["parent"], version
    return chain


def check_chain(
    ledger: Ledger,
    chain: Mapping[str, Mapping[str, Any]],
    acknowledged: Collection[str],
    problems: Problems,
    *,
    collected: bool,
) -> None:
    """Every commit that was acknowledged, stands, or was replaced is in the chain, and generations only grow."""
    plans = {done["plan"] for record in chain.values() for done in record["intervals"]}
    versions = {str(record["version"]) for record in chain.values()}
    for one in acknowledged:
        if str(one) not in plans | versions:
            problems.say("acknowledged", f"the commit of {one} is in no record of the history")
    if collected:
        return
    for entry in ledger.committed():
        key = entry["committed"]["record"]
        if key not in chain:
            problems.say(
                "chain", f"record {key} of committed {entry['interval']} is not in the history"
            )
    last: dict[tuple[str, str], int] = {}
    for record in reversed(chain.values()):
        for done in record["intervals"]:
            where = (done["interval"][0], done["interval"][1])
            if done["generation"] <= last.get(where, 0):
                problems.say(
                    "generation",
                    f"version {record['version']} commits {where} as generation {done['generation']} "
                    f"({done['plan']}), committed was generation {last[where]}",
                )
            last[where] = done["generation"]
            if done["replaces"] is not None and done["replaces"] not in chain:
                problems.say(
                    "chain",
                    f"{done['replaces']}, replaced by {done['plan']}, is not in the history",
                )


def read_pieces(
    objects: Objects, root: Mapping[str, Any], ledger: Ledger, problems: Problems
) -> list[Piece]:
    """Every committed interval with all that is said of it; what is not there is a problem and stays None."""

    def read(key: str | None, what: str, where: object) -> Mapping[str, Any] | None:
        if key is None:
            return None
        body: Mapping[str, Any] | None = objects.find(key)
        if body is None:
            problems.say("object", f"{key}, the {what} of {where}, is not there")
        elif body.get("key") != key:
            problems.say("object", f"{key} calls itself {body.get('key')}")
        return body

    pieces = []
    for entry in ledger.committed():
        interval = (entry["interval"][0], entry["interval"][1])
        committed = entry["committed"]
        record = read(committed["record"], "record", interval)
        done = done_in(record, entry) if record is not None else None
        if record is not None and done is None:
            problems.say("record", f"{committed['record']} says nothing of {interval}")
        pieces.append(
            Piece(
                interval=interval,
                entry=entry,
                ranges=ledger.ranges(root, interval),
                done=done,
                plan=read(committed["plan"], "plan", interval),
                report=read(done["report"], "report", interval) if done else None,
            )
        )
    return pieces


def check_tiling(
    root: Mapping[str, Any], pieces: list[Piece], problems: Problems, *, full_cover: bool
) -> None:
    """Ranges of each partition meet: no overlap, none upside down, and with `full_cover` no gap from the origin on."""
    for left, right in itertools.pairwise(pieces):
        if left.interval[1] > right.interval[0]:
            problems.say("tiling", f"{left.name} and {right.name} overlap")
        if full_cover and left.interval[1] != right.interval[0]:
            problems.say(
                "tiling",
                f"after {left.name} comes {right.name}: what lies between is not committed",
            )
    for topic, known in root["topics"].items():
        for number, origin in enumerate(known["origins"]):
            reached = origin
            for piece in pieces:
                start, end = piece.ranges[topic, number]
                if start > end or start < reached or (full_cover and start != reached):
                    problems.say(
                        "tiling",
                        f"{topic}[{number}] of {piece.name} is [{start}, {end}), committed before it is up to {reached}",
                    )
                reached = max(reached, end)


def check_accounts(root: Mapping[str, Any], pieces: list[Piece], problems: Problems) -> None:
    """Entry, record, plan and report of each committed interval say the same, and the account is the range's length."""
    for piece in pieces:
        for text in itertools.chain(_plan_problems(root, piece), _account_problems(piece)):
            problems.say("account", f"{piece.name}: {text}")


def _plan_problems(root: Mapping[str, Any], piece: Piece) -> Iterator[str]:
    committed, plan, done = piece.entry["committed"], piece.plan, piece.done
    if done is not None and any(
        done[name] != committed[name] for name in ("plan", "generation", "totals", "fingerprint")
    ):
        yield f"the ledger says {committed}, its record {dict(done)}"
    if plan is None:
        return
    if list(plan["interval"]) != list(piece.interval):
        yield f"its plan {plan['key']} is of {plan['interval']}"
    for topic in plan["topics"]:
        known = root["topics"].get(topic["name"], {})
        identity = (topic["topic_id"], topic["cluster_id"])
        if identity != (known.get("topic_id"), known.get("cluster_id")):
            yield (
                f"topic {topic['name']} was read as id {identity[0]} in cluster {identity[1]}, the lake's is "
                f"{known.get('topic_id')} in {known.get('cluster_id')}"
            )
    for (name, number), (start, end) in piece.ranges.items():
        ranges = piece.planned(name).get("ranges", ())
        planned = tuple(ranges[number][:2]) if number < len(ranges) else (start, start)
        if planned != (start, end):
            yield f"{name}[{number}] was planned as {planned}, the ledger's boundaries say {(start, end)}"


def _account_problems(piece: Piece) -> Iterator[str]:
    if piece.done is None:
        return
    accounts = piece.done["accounts"]
    if piece.report is None and piece.offsets:
        yield f"{piece.offsets} offsets were committed without a report"
    if piece.report is not None and piece.report["accounts"] != accounts:
        yield "the accounts of its record are not those of its report"
    if piece.report is not None and piece.report["plan"] != piece.entry["committed"]["plan"]:
        yield f"its report is of plan {piece.report['plan']}"
    sums = [sum(a[name] for a in accounts) for name in TOTALS]
    if sums != list(piece.entry["committed"]["totals"]):
        yield f"the accounts add up to {sums}, the ledger says {piece.entry['committed']['totals']}"
    by_place = {(a["topic"], a["partition"]): a for a in accounts}
    if len(by_place) != len(accounts):
        yield "a partition has two accounts"
    yield from _range_problems(piece, by_place)


def _range_problems(piece: Piece, by_place: dict[Partition, Mapping[str, Any]]) -> Iterator[str]:
    for place, (start, end) in piece.ranges.items():
        account = by_place.pop(place, None)
        name = f"{place[0]}[{place[1]}]"
        if account is None:
            if start < end:
                yield f"{name} [{start}, {end}) has no account"
            continue
        counts = {n: account[n] for n in TOTALS}
        if (account["start"], account["end"]) != (start, end):
            yield f"{name} is accounted as [{account['start']}, {account['end']}), committed is [{start}, {end})"
        if sum(counts.values()) != end - start or min(counts.values()) < 0:
            yield f"{name} [{start}, {end}) has {end - start} offsets, accounted are {counts}"
        if counts["lost"] and not (piece.plan or {}).get("accept_loss"):
            yield f"{name} [{start}, {end}): {counts['lost']} offsets are lost, and nobody accepted that"
        if counts["lost"] != piece.readable_from(place) - start:
            yield f"{name}: {counts['lost']} are accounted as lost, the plan knew {piece.readable_from(place) - start}"
        if counts["absent"] and not piece.planned(place[0]).get("compacted"):
            yield f"{name}: {counts['absent']} are absent from a topic that is not compacted"
    for topic, number in by_place:
        yield f"{topic}[{number}] has an account and no range"
