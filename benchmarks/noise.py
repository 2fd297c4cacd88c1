"""Samples per second of the exact samplers, beside OpenDP's where it is installed.

usage: python -m benchmarks.noise [SAMPLES]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from dpsql.privacy.noise.entropy import Bits
from dpsql.privacy.noise.samplers import discrete_gaussian, discrete_laplace

SCALES = (*(Fraction(10) ** power for power in range(0, 13, 2)), Fraction(2**29 + 1, 2**20))
SMALL = 18
THEIRS = 20_000

Draw = Callable[[int], object]


def seconds(draw: Draw, size: int, repeats: int) -> float:
    """Return the least wall time of one call in seconds."""
    best = float("inf")
    for _ in range(repeats):
        began = time.perf_counter()
        draw(size)
        best = min(best, time.perf_counter() - began)
    return best


def ours(law: str, scale: Fraction) -> Draw:
    """Return a call of our sampler with fresh bits, as a measurement makes it."""
    if law == "laplace":
        return lambda size: discrete_laplace(Bits(), scale, size)
    return lambda size: discrete_gaussian(Bits(), scale**2, size)


def opendp(law: str, scale: Fraction) -> Draw | None:
    """Return a call of OpenDP's sampler, None when it is not installed."""
    try:
        import opendp.prelude as dp
    except ImportError:
        return None
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T=int))
    measure: Any
    if law == "laplace":
        measure = dp.m.make_laplace(domain, dp.l1_distance(T=int), scale=float(scale))
    else:
        measure = dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=float(scale))
    return lambda size: measure([0] * size)


def main(samples: int) -> None:
    """Print one line per law and scale."""
    print(
        f"{'law':9}{'scale':>16}{'M/s':>8}{f'{SMALL} cells, ms':>16}{'OpenDP M/s':>12}{'ratio':>7}"
    )
    for law in ("laplace", "gaussian"):
        for scale in SCALES:
            mine, theirs = ours(law, scale), opendp(law, scale)
            rate = samples / seconds(mine, samples, 3) / 1e6
            small = seconds(mine, SMALL, 50) * 1e3
            line = f"{law:9}{float(scale):16.6g}{rate:8.2f}{small:16.3f}"
            if theirs is not None:
                other = THEIRS / seconds(theirs, THEIRS, 1) / 1e6
                line += f"{other:12.3f}{rate / other:7.0f}"
            print(line)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
