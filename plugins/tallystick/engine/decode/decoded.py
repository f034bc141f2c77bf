"""A batch of values as a decoder leaves it. Apart from the decoder, which loads numba: a driver decodes nothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Positions = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """One batch: `rows` holds the declared columns, `kept` the positions of its rows in the batch, ascending.

    `dead` holds the positions of the dead letters, ascending, `reasons` one text for each.
    """

    rows: pa.Table
    kept: Positions
    dead: Positions
    reasons: tuple[str, ...]
