"""Which examples there are: a line each, in the order in which `NAME=all` plays them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tallystick.local.examples.ads import Ads
from tallystick.local.examples.average import Average
from tallystick.local.examples.billing import Billing
from tallystick.local.examples.cleanup import Cleanup
from tallystick.local.examples.counts import Counts
from tallystick.local.examples.dedup import Dedup
from tallystick.local.examples.files import Files
from tallystick.local.examples.scene import Example, Scene
from tallystick.local.examples.upsert import Upsert

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
