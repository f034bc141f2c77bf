"""The check of the example `orders-protobuf`: rows and dead letters that PyIceberg reads, against what was sent."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from pathlib import Path

from examples.checks import CheckResult, finding
from examples.checks.registered import LakeContent, compare_commits, compare_records
from examples.checks.sent import by_day, read_sent


def compare(content: LakeContent, sent: Path, *, days: Collection[datetime]) -> CheckResult:
    """Compare the lake with what was sent on these days."""
    by = by_day(read_sent(sent))
    records = [record for day in days for record in by[day]]
    orders = content.rows.get("orders", [])
    arms = {
        "card": sum(row["card_network"] is not None for row in orders),
        "voucher": sum(row["voucher"] is not None for row in orders),
        "neither": sum(row["card_network"] is None and row["voucher"] is None for row in orders),
    }
    both = sum(arms.values()) - len(orders)
    absent = [arm for arm, count in arms.items() if not count]
    return CheckResult(
        rows=sum(map(len, content.rows.values())),
        findings=[
            *compare_records(content, records),
            compare_commits(content, {"orders": len(days), "refunds": len(days)}),
            finding(
                "oneof",
                ", ".join(f"{count:,} {arm}" for arm, count in arms.items()) + ", never both",
                f"{both} orders have both ways to pay"
                if both
                else f"no order has {absent[0]}"
                if absent
                else None,
            ),
        ],
    )
