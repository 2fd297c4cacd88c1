"""The zero-noise seam: replaces the samplers inside the membrane, for tests only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from unittest import mock

import numpy as np
from numpy.typing import NDArray


def _nothing(bits: object, scale: Fraction, size: int) -> NDArray[np.int64]:
    assert scale > 0
    return np.zeros(size, dtype=np.int64)


@contextmanager
def zero_noise() -> Iterator[None]:
    """Measure without noise, so that answers can be compared with the database's own."""
    with (
        mock.patch("dpsql.privacy.measure.discrete_laplace", _nothing),
        mock.patch("dpsql.privacy.measure.discrete_gaussian", _nothing),
    ):
        yield
