"""The examples: a line each, in the order in which `NAME=all` runs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from examples.ads.scenario import Ads
from examples.average.scenario import Average
from examples.billing.scenario import Billing
from examples.cleanup.scenario import Cleanup
from examples.counts.scenario import Counts
from examples.dedup.scenario import Dedup
from examples.files.scenario import Files
from examples.runner.harness import Example, Harness
from examples.upsert.scenario import Upsert

EXAMPLES: Mapping[str, Callable[[Harness], Example]] = {
    "files": Files,
    "counts": Counts,
    "upsert": Upsert,
    "dedup": Dedup,
    "billing": Billing,
    "cleanup": Cleanup,
    "average": Average,
    "ads": Ads,
}
