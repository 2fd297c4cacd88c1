"""Speed of strategy search and Kronecker products, as ratios to textbook forms in one run.

usage: OMP_NUM_THREADS=1 python -m benchmarks.speed [--large]

The textbook forms are written here for comparison: the p-Identity loss through the n x n matrix
(A'A)^-1, a dense Gram instead of two cumulative sums, and the vec trick with a transpose per mode.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations

import numpy as np

from benchmarks.published import published_rmse
from benchmarks.reference.symmetric_sums import plan_all_marginals
from dpsql.algebra.blocks import AllRange, Prefix, WidthRanges
from dpsql.algebra.kron import kron_apply
from dpsql.algebra.operator import Array, Floats
from dpsql.search.one_attribute import dual, opt0
from dpsql.search.select import select
from dpsql.workload.workload import Workload


def milliseconds(call: Callable[[], object], repeats: int = 3) -> float:
    """Return the least wall time of one call, after one call to warm up."""
    call()
    best = math.inf
    for _ in range(repeats):
        began = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - began)
    return best * 1e3


def textbook_loss(theta: Floats, V: Floats) -> tuple[float, Floats]:
    """Return tr(V (A'A)^-1) and its gradient, forming every n x n matrix."""
    s = 1 + theta.sum(axis=0)
    Q = np.linalg.inv(np.eye(len(V)) + theta.T @ theta)
    CQ = (V * s * s[:, None]) @ Q
    return float(np.trace(CQ)), 2 * np.diag(CQ) / s - 2 * theta @ Q @ CQ


def transposing(matrices: Sequence[Array], tensor: Array) -> Array:
    """Apply a Kronecker product by the vec trick: one transpose per mode."""
    for matrix in matrices:
        flat = matrix @ tensor.reshape(tensor.shape[0], -1)
        tensor = np.ascontiguousarray(flat.T).reshape(*tensor.shape[1:], len(matrix))
    return tensor


def loss_lines(sizes: Sequence[tuple[int, int]]) -> None:
    """Print milliseconds per loss and gradient, all ranges."""
    print("p-Identity loss and gradient, ms (ratio to the column on its left)")
    print(f"{'n, p':>12}{'textbook':>10}{'lean':>17}{'structured':>17}")
    for n, p in sizes:
        workload = AllRange(n)
        theta = np.random.default_rng(0).random((p, n)) / p
        structured = milliseconds(partial(opt0.loss_and_grad, theta, workload))
        if n > 4096:
            print(f"{n:7}, {p:3}{'-':>10}{'-':>17}{structured:10.1f}")
            continue
        V = workload.gram()
        lean = milliseconds(partial(opt0.loss_and_grad, theta, V))
        textbook = milliseconds(partial(textbook_loss, theta, V), repeats=1)
        print(
            f"{n:7}, {p:3}{textbook:10.1f}{lean:10.1f}{textbook / lean:6.1f}x"
            f"{structured:10.1f}{lean / structured:6.1f}x"
        )


def search_lines(sizes: Sequence[int]) -> None:
    """Print CPU seconds and error of whole searches under both noises."""
    print("\nOPT_0, CPU seconds and published-convention RMSE")
    print(f"{'workload':>18}{'Laplace s':>11}{'RMSE':>9}{'Gaussian s':>12}{'RMSE':>9}{'gap':>9}")
    for n in sizes:
        for workload in (AllRange(n), Prefix(n), WidthRanges(n, 32)):
            began = time.process_time()
            theta = opt0.optimise(workload)
            laplace = time.process_time() - began
            error = opt0.loss_and_grad(theta, workload)[0]
            began = time.process_time()
            found = dual.optimise(workload)
            gaussian = time.process_time() - began
            print(
                f"{type(workload).__name__:>12} {n:5}{laplace:11.2f}"
                f"{published_rmse(error, workload.rows, 'laplace'):9.4f}{gaussian:12.2f}"
                f"{published_rmse(found.upper, workload.rows, 'gaussian'):9.4f}"
                f"{found.upper / found.lower - 1:9.1e}"
            )


def planning_lines() -> None:
    """Print the time of planning marginals under Gaussian noise."""
    print(
        "\nPlanning marginals, Gaussian noise, CPU seconds (ratio to the same marginals in a list)"
    )
    for d in (8, 16):
        sizes = [10] * d
        domain = {f"a{i}": 10 for i in range(d)}
        sets = [s for k in range(4) for s in combinations(domain, k)]
        workload = Workload(domain, [dict.fromkeys(s, "identity") for s in sets])
        listed = milliseconds(partial(select, workload, "gaussian", "residual"), repeats=1)
        summed = milliseconds(partial(plan_all_marginals, sizes, 3))
        print(
            f"   d = {d:3}, size 10, up to 3 attributes: {summed / 1e3:.5f} {listed / summed:8.0f}x"
        )
    summed = milliseconds(partial(plan_all_marginals, [10] * 100, 3))
    print(f"   d = 100, size 10, up to 3 attributes: {summed / 1e3:.5f}")
    sizes = [100, 100, 100, 99, 85, 42, 16, 15, 9, 7, 6, 5, 2, 2]
    domain = {f"a{i}": n for i, n in enumerate(sizes)}
    sets = [s for k in range(4) for s in combinations(domain, k)]
    workload = Workload(domain, [dict.fromkeys(s, "identity") for s in sets])
    began = time.process_time()
    select(workload, "gaussian", "marginals")
    seconds = time.process_time() - began
    print(f"   Adult, {len(sets)} marginals, OPT_M: {seconds:.2f}")


def kron_lines(shapes: Sequence[tuple[int, ...]]) -> None:
    """Print milliseconds per Kronecker product over a full tensor."""
    print("\nKronecker products, ms (ratio to one transpose per mode)")
    print(f"{'cells':>12}{'transposing':>13}{'reshape':>16}{'prefix':>16}")
    for shape in shapes:
        rng = np.random.default_rng(0)
        tensor = rng.random(shape)
        matrices = [rng.random((n, n)) for n in shape]
        prefixes = [Prefix(n) for n in shape]
        rolled = milliseconds(partial(transposing, matrices, tensor))
        straight = milliseconds(partial(kron_apply, matrices, tensor))
        prefix = milliseconds(partial(kron_apply, prefixes, tensor))
        print(
            f"{tensor.size:12}{rolled:13.1f}{straight:10.1f}{rolled / straight:5.1f}x"
            f"{prefix:10.1f}{rolled / prefix:5.1f}x"
        )


def main(large: bool) -> None:
    """Print the four tables; large domains only when asked for."""
    loss_lines([(512, 32), (1024, 64), *([(4096, 64), (8192, 64)] if large else [])])
    search_lines([64, 256, *([1024] if large else [])])
    if large:
        for n in (1024, 4096, 8192):
            began = time.process_time()
            opt0.optimise(AllRange(n), p=64)
            print(
                f"{'all ranges, p = 64':>20}, n = {n}:{time.process_time() - began:7.2f} s Laplace"
            )
    planning_lines()
    kron_lines([(2, 2, 64, 115, 17), *([(51, 2, 2, 64, 115, 17)] if large else [])])


if __name__ == "__main__":
    main("--large" in sys.argv[1:])
