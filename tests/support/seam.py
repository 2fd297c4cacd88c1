"""The zero-noise seam: replaces the samplers inside the membrane, for tests only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from dpsql.privacy.noise.samplers import SAMPLERS


def _nothing(bits: object, scale: Fraction, size: int) -> NDArray[np.int64]:
    assert scale > 0
    return np.zeros(size, dtype=np.int64)


@contextmanager
def zero_noise() -> Iterator[None]:
    """Measure without noise, so that answers can be compared with the database's own."""
    with mock.patch.dict(SAMPLERS, dict.fromkeys(SAMPLERS, _nothing)):
        yield
