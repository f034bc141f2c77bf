"""Orders and refunds, each in its table: only a refund has a reason, if only an empty one."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tallystick.spark import run

ONLY_ORDERS = ["status", "lines", "points", "card_network", "voucher"]
ONLY_REFUNDS = ["reason"]


def transform(records: pa.Table) -> dict[str, pa.Table]:
    """Return each record in the table of its message."""
    is_refund = pc.is_valid(records["reason"])
    return {
        "orders": records.filter(pc.invert(is_refund)).drop_columns(ONLY_REFUNDS),
        "refunds": records.filter(is_refund).drop_columns(ONLY_ORDERS),
    }


if __name__ == "__main__":
    run(transform)
