"""Which examples there are: a line each, in the order in which `NAME=all` plays them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from examples.ads.play import Ads
from examples.average.play import Average
from examples.billing.play import Billing
from examples.cleanup.play import Cleanup
from examples.counts.play import Counts
from examples.dedup.play import Dedup
from examples.files.play import Files
from examples.runner.scene import Example, Scene
from examples.upsert.play import Upsert

EXAMPLES: Mapping[str, Callable[[Scene], Example]] = {
    "files": Files,
    "counts": Counts,
    "upsert": Upsert,
    "dedup": Dedup,
    "billing": Billing,
    "cleanup": Cleanup,
    "average": Average,
    "ads": Ads,
}
