"""Structured rows against learned ones: ranges and running totals, both noises, and many values.

Errors are root mean squares in the convention of the published tables (epsilon 1, delta 1e-6).
Run: ``OMP_NUM_THREADS=1 python -m benchmarks.ranges``.
"""

from __future__ import annotations

import resource
import time

from dpsql.plan import Workload, select
from dpsql.strategy.base import Strategy
from dpsql.strategy.noise_law import Noise

SIZES = (256, 1024, 4096)
LARGE = (10_000, 100_000, 1_000_000)
KINDS = ("allrange", "prefix")
NOISES: tuple[Noise, ...] = ("laplace", "gaussian")


def timed(workload: Workload, noise: Noise, mechanism: str) -> tuple[Strategy, float, float]:
    """Return a strategy, its error, and the seconds of CPU that it took to plan."""
    start = time.process_time()
    strategy = select(workload, noise, mechanism)
    seconds = time.process_time() - start
    return strategy, strategy.rmse(workload), seconds


def main() -> None:
    """Print a line for every workload and noise."""
    print("workload      values noise         tree      s  learned      s ratio")
    for kind in KINDS:
        for n in SIZES:
            workload = Workload({"a": n}, [{"a": kind}])
            for noise in NOISES:
                _, ours, quick = timed(workload, noise, "tree")
                _, learned, slow = timed(workload, noise, "kron")
                shown = f"{ours:8.3f} {quick:6.2f} {learned:8.3f} {slow:6.2f} {ours / learned:.3f}"
                print(f"{kind:10} {n:9,} {noise:9} {shown}", flush=True)
    for n in LARGE:
        workload = Workload({"a": n}, [{"a": "prefix"}])
        for noise in NOISES:
            _, ours, quick = timed(workload, noise, "auto")
            _, cells, _ = timed(workload, noise, "identity")
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
            shown = f"{ours:8.3f} {quick:6.2f}, cells {cells:9.3f}, {memory} MiB so far"
            print(f"{'prefix':10} {n:9,} {noise:9} {shown}", flush=True)


if __name__ == "__main__":
    main()
