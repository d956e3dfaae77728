"""What a large response lacks: its end says so, see `stampede.read.api.streams`."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

Ids: TypeAlias = np.ndarray | pa.Array
NONE = pa.array([], pa.string())


class Completeness(NamedTuple):
    """Whether a response is complete, and what it lacks.

    Attributes
    ----------
    missing
        The ids of which nothing is stored.
    unreadable
        The ids that may have rows that cannot be read. Other rows of such an id may be there.
    reasons
        Why it may lack what is stored, see `stampede.lookup.response_warnings`;
        empty if it lacks nothing.
    """

    missing: Ids
    unreadable: Ids
    reasons: Sequence[str] = ()


COMPLETE = Completeness(NONE, NONE)
