"""Checks of the ledger, its records, plans and reports against each other."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from oracle.place import Objects
from oracle.problems import Problems
from oracle.reading import TOTALS, CommittedInterval, Ledger, Partition, done_in


def read_chain(
    objects: Objects, root: Mapping[str, Any], problems: Problems, *, collected: bool
) -> dict[str, Mapping[str, Any]]:
    """Read the records from the root's back to the first, by key. Check parents and versions. None may be missing."""
    chain: dict[str, Mapping[str, Any]] = {}
    key, below = root["record"], root["version"] + 1
    while key is not None:
        record = objects.find(key)
        if record is None:
            if not collected:
                problems.add("chain", f"record {key} is named and does not exist")
            break
        version = int(key.removeprefix("commits/").split("-")[0])
        if (record["key"], record["version"]) != (key, version) or version >= below:
            problems.add(
                "chain", f"record {key} has the key {record['key']}, its child is version {below}"
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
    """Check that the chain has every acknowledged, current or replaced commit, and that generations only grow."""
    plans = {done["plan"] for record in chain.values() for done in record["intervals"]}
    versions = {str(record["version"]) for record in chain.values()}
    for plan in acknowledged:
        if str(plan) not in plans | versions:
            problems.add("acknowledged", f"the commit of {plan} is in no record of the history")
    if collected:
        return
    for entry in ledger.committed():
        key = entry["committed"]["record"]
        if key not in chain:
            problems.add(
                "chain", f"record {key} of committed {entry['interval']} is not in the history"
            )
    last: dict[tuple[str, str], int] = {}
    for record in reversed(chain.values()):
        for done in record["intervals"]:
            bounds = (done["interval"][0], done["interval"][1])
            if done["generation"] <= last.get(bounds, 0):
                problems.add(
                    "generation",
                    f"version {record['version']} commits {bounds} as generation {done['generation']} "
                    f"({done['plan']}), committed was generation {last[bounds]}",
                )
            last[bounds] = done["generation"]
            if done["replaces"] is not None and done["replaces"] not in chain:
                problems.add(
                    "chain",
                    f"{done['replaces']}, replaced by {done['plan']}, is not in the history",
                )


def read_intervals(
    objects: Objects, root: Mapping[str, Any], ledger: Ledger, problems: Problems
) -> list[CommittedInterval]:
    """Read every committed interval with its record, plan and report. A missing object is a problem and remains None."""

    def read(key: str | None, what: str, owner: object) -> Mapping[str, Any] | None:
        if key is None:
            return None
        body: Mapping[str, Any] | None = objects.find(key)
        if body is None:
            problems.add("object", f"{key}, the {what} of {owner}, does not exist")
        elif body.get("key") != key:
            problems.add("object", f"{key} has the key {body.get('key')}")
        return body

    intervals = []
    for entry in ledger.committed():
        bounds = (entry["interval"][0], entry["interval"][1])
        committed = entry["committed"]
        record = read(committed["record"], "record", bounds)
        done = done_in(record, entry) if record is not None else None
        if record is not None and done is None:
            problems.add("record", f"{committed['record']} has no entry of {bounds}")
        intervals.append(
            CommittedInterval(
                bounds=bounds,
                entry=entry,
                ranges=ledger.ranges(root, bounds),
                done=done,
                plan=read(committed["plan"], "plan", bounds),
                report=read(done["report"], "report", bounds) if done else None,
            )
        )
    return intervals


def check_tiling(
    root: Mapping[str, Any],
    intervals: list[CommittedInterval],
    problems: Problems,
    *,
    full_cover: bool,
) -> None:
    """Check that no range of a partition overlaps or is negative, and with `full_cover` that there is no gap."""
    for left, right in itertools.pairwise(intervals):
        if left.bounds[1] > right.bounds[0]:
            problems.add("tiling", f"{left.name} and {right.name} overlap")
        if full_cover and left.bounds[1] != right.bounds[0]:
            problems.add(
                "tiling",
                f"after {left.name} comes {right.name}: the time between is not committed",
            )
    for topic, known in root["topics"].items():
        for number, origin in enumerate(known["origins"]):
            reached = origin
            for interval in intervals:
                start, end = interval.ranges[topic, number]
                if start > end or start < reached or (full_cover and start != reached):
                    problems.add(
                        "tiling",
                        f"{topic}[{number}] of {interval.name} is [{start}, {end}), committed up to {reached}",
                    )
                reached = max(reached, end)


def check_accounts(
    root: Mapping[str, Any], intervals: list[CommittedInterval], problems: Problems
) -> None:
    """Check that entry, record, plan and report of each interval agree, and that the account adds up to the range."""
    for interval in intervals:
        for text in itertools.chain(_plan_problems(root, interval), _account_problems(interval)):
            problems.add("account", f"{interval.name}: {text}")


def _plan_problems(root: Mapping[str, Any], interval: CommittedInterval) -> Iterator[str]:
    committed, plan, done = interval.entry["committed"], interval.plan, interval.done
    if done is not None and any(
        done[name] != committed[name] for name in ("plan", "generation", "totals", "fingerprint")
    ):
        yield f"in the ledger {committed}, in its record {dict(done)}"
    if plan is None:
        return
    if list(plan["interval"]) != list(interval.bounds):
        yield f"its plan {plan['key']} is of {plan['interval']}"
    for topic in plan["topics"]:
        known = root["topics"].get(topic["name"], {})
        identity = (topic["topic_id"], topic["cluster_id"])
        if identity != (known.get("topic_id"), known.get("cluster_id")):
            yield (
                f"topic {topic['name']} was read as id {identity[0]} in cluster {identity[1]}, the lake's is "
                f"{known.get('topic_id')} in {known.get('cluster_id')}"
            )
    for (name, number), (start, end) in interval.ranges.items():
        ranges = interval.planned(name).get("ranges", ())
        planned = tuple(ranges[number][:2]) if number < len(ranges) else (start, start)
        if planned != (start, end):
            yield f"{name}[{number}] was planned as {planned}, by the ledger's boundaries it is {(start, end)}"


def _account_problems(interval: CommittedInterval) -> Iterator[str]:
    if interval.done is None:
        return
    accounts = interval.done["accounts"]
    if interval.report is None and interval.offsets:
        yield f"{interval.offsets} offsets were committed without a report"
    if interval.report is not None and interval.report["accounts"] != accounts:
        yield "the accounts of its record are not those of its report"
    if (
        interval.report is not None
        and interval.report["plan"] != interval.entry["committed"]["plan"]
    ):
        yield f"its report is of plan {interval.report['plan']}"
    sums = [sum(a[name] for a in accounts) for name in TOTALS]
    if sums != list(interval.entry["committed"]["totals"]):
        yield f"the accounts add up to {sums}, in the ledger {interval.entry['committed']['totals']}"
    by_place = {(a["topic"], a["partition"]): a for a in accounts}
    if len(by_place) != len(accounts):
        yield "a partition has two accounts"
    yield from _range_problems(interval, by_place)


def _range_problems(
    interval: CommittedInterval, by_place: dict[Partition, Mapping[str, Any]]
) -> Iterator[str]:
    for place, (start, end) in interval.ranges.items():
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
        if counts["lost"] and not (interval.plan or {}).get("accept_loss"):
            yield f"{name} [{start}, {end}): {counts['lost']} offsets are lost, and the plan does not accept a loss"
        if counts["lost"] != interval.readable_from(place) - start:
            yield f"{name}: {counts['lost']} are accounted as lost, in the plan {interval.readable_from(place) - start}"
        if counts["absent"] and not interval.planned(place[0]).get("compacted"):
            yield f"{name}: {counts['absent']} are absent from a topic that is not compacted"
    for topic, number in by_place:
        yield f"{topic}[{number}] has an account and no range"
