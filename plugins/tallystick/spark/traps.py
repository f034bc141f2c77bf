"""Warns of calls whose result changes when Spark evaluates them again, for example after a lost executor or a retry.

A table could then contain rows of two different evaluations. The check searches the text of the analysed plan for known
names. It misses a Python function that draws random values itself, and it also warns of a string literal that contains
such a name. Therefore it is a warning and not an error.
"""

from __future__ import annotations

import re

from pyspark.sql import DataFrame

_DRAWN = "rand|randn|randstr|uniform|uuid|shuffle"
_CLOCK = "now|current_timestamp|current_date|current_time|localtimestamp"
_PLACE = "monotonically_increasing_id|spark_partition_id|input_file_name"
_ORDER = "first|last|any_value|collect_list"
_STABLE = "use context.stable_id() for a stable id"
_TRAPS = (
    (rf"(?<!\w)(?:{_DRAWN})\(", f"draws other values in each evaluation; {_STABLE}"),
    (
        rf"(?<!\w)(?:{_CLOCK})\(",
        "reads the driver's clock, which differs in each attempt; use context.start, .end or .planned_at",
    ),
    (rf"(?<!\w)(?:{_PLACE})\(", f"depends on how rows were split over tasks; {_STABLE}"),
    (
        rf"^Aggregate .*?(?<!\w)(?<!sort_array\()(?:{_ORDER})\(",
        "depends on the order in which rows arrive; use min_by, max_by or sort_array(collect_list(...))",
    ),
    (
        r"^Repartition \d+, true",
        "distributes rows in turns, and loses or duplicates some if a task is run again over input that changed; "
        "use repartition(n, columns)",
    ),
    (r"^Sample ", "selects other rows if they arrive in another order; filter by a hash of the offset"),
)  # fmt: skip
_NAME = re.compile(r"(\w+)\($")


def traps_in(plan: str) -> tuple[str, ...]:
    """Return one sentence per trap in the text of an analysed plan, e.g. `rand() draws other values ...`."""
    found: dict[str, None] = {}
    for line in plan.splitlines():
        step = line.lstrip(" :+-")
        for pattern, why in _TRAPS:
            for match in re.finditer(pattern, step, re.IGNORECASE):
                call = _NAME.search(match[0])
                what = f"{call[1].lower()}()" if call else match[0].strip()
                found[f"{what} {why}"] = None
    return tuple(found)


def traps_of(frame: DataFrame) -> tuple[str, ...]:
    """Return the traps of a DataFrame; nothing is evaluated."""
    conf = frame.sparkSession.conf
    key = "spark.sql.debug.maxToStringFields"
    # By default Spark's text omits all columns after the 25th.
    before = conf.get(key) or "25"
    conf.set(key, str(2**31 - 1))
    try:
        return traps_in(frame._jdf.queryExecution().analyzed().toString())
    finally:
        conf.set(key, before)
