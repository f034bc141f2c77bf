"""Warns of calls that give other rows when Spark evaluates them again: a lost executor or a retry then tears an output.

Only known names are found, in the text of the analysed plan: a Python function that draws by itself is not seen, and a
text that happens to spell such a call is warned of in vain. A warning, therefore, and no error.
"""

from __future__ import annotations

import re

from pyspark.sql import DataFrame

_DRAWN = "rand|randn|randstr|uniform|uuid|shuffle"
_CLOCK = "now|current_timestamp|current_date|current_time|localtimestamp"
_PLACE = "monotonically_increasing_id|spark_partition_id|input_file_name"
_ORDER = "first|last|any_value|collect_list"
_STABLE = "context.stable_id() gives an id that stays"
_TRAPS = (
    (rf"(?<!\w)(?:{_DRAWN})\(", f"draws anew at each evaluation; {_STABLE}"),
    (
        rf"(?<!\w)(?:{_CLOCK})\(",
        "reads the driver's clock, another at each attempt; context.start, .end and .planned_at stay",
    ),
    (rf"(?<!\w)(?:{_PLACE})\(", f"depends on how rows were split over tasks; {_STABLE}"),
    (
        rf"^Aggregate .*?(?<!\w)(?<!sort_array\()(?:{_ORDER})\(",
        "depends on the order in which rows arrive; use min_by, max_by or sort_array(collect_list(...))",
    ),
    (
        r"^Repartition \d+, true",
        "deals rows out by turns, and loses or doubles some where a task is run again over input that changed; "
        "repartition(n, columns) stays",
    ),
    (r"^Sample ", "draws anew where rows arrive in another order; filter by a hash of the offset instead"),
)  # fmt: skip
_NAME = re.compile(r"(\w+)\($")


def traps_in(plan: str) -> tuple[str, ...]:
    """Return one sentence per trap that the text of an analysed plan shows, e.g. `rand() draws anew ...`."""
    found: dict[str, None] = {}
    for line in plan.splitlines():
        step = line.lstrip(" :+-")
        for pattern, why in _TRAPS:
            for match in re.finditer(pattern, step, re.IGNORECASE):
                call = _NAME.search(match[0])
                told = f"{call[1].lower()}()" if call else match[0].strip()
                found[f"{told} {why}"] = None
    return tuple(found)


def traps_of(frame: DataFrame) -> tuple[str, ...]:
    """Return the traps of a DataFrame; nothing is evaluated."""
    conf = frame.sparkSession.conf
    key = "spark.sql.debug.maxToStringFields"
    # Spark's text leaves out what is beyond the 25th column.
    before = conf.get(key) or "25"
    conf.set(key, str(2**31 - 1))
    try:
        return traps_in(frame._jdf.queryExecution().analyzed().toString())
    finally:
        conf.set(key, before)
