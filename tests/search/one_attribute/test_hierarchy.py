"""Hierarchies for attributes of many cells: what is searched over, and what comes of it."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from dpsql.algebra.blocks import AllRange, Dense, Identity, Prefix, Ranges, WidthRanges
from dpsql.algebra.groups import Groups
from dpsql.algebra.operator import Operator
from dpsql.plan import Workload, select
from dpsql.search.one_attribute import hierarchy
from dpsql.search.one_attribute.hierarchy import (
    AxisWorkload,
    best_levels,
    counts_of,
    fading_bases,
    weigh,
)
from dpsql.search.one_attribute.interval_energy import energy
from dpsql.search.problem import PLANNED
from dpsql.strategy import fading_axis
from dpsql.strategy.noise_law import Noise
from dpsql.workload.workload import Product

NOISES: tuple[Noise, ...] = ("laplace", "gaussian")
LARGE = PLANNED + 1000

# OPT_0 of HDMM, tables 4 and 5 (Laplace, and Gaussian at delta 1e-6), as mean error of a query.
P_IDENTITY = {
    ("allrange", 64, "laplace"): 5.55,
    ("allrange", 256, "laplace"): 8.07,
    ("allrange", 1024, "laplace"): 11.08,
    ("allrange", 4096, "laplace"): 14.38,
    ("prefix", 64, "laplace"): 5.32,
    ("prefix", 256, "laplace"): 7.35,
    ("prefix", 1024, "laplace"): 9.58,
    ("prefix", 4096, "laplace"): 12.2,
    ("allrange", 256, "gaussian"): 12.26,
    ("allrange", 1024, "gaussian"): 14.85,
    ("allrange", 4096, "gaussian"): 17.46,
    ("prefix", 256, "gaussian"): 10.66,
    ("prefix", 1024, "gaussian"): 12.49,
    ("prefix", 4096, "gaussian"): 14.32,
}


@pytest.mark.parametrize("count", [1, 5, 10, 37])
def test_energies_are_traces(count: int) -> None:
    n, random = 37, np.random.default_rng(count)
    edges = np.arange(count + 1) * n // count
    projection = np.zeros((n, n))
    for lo, hi in pairwise(edges):
        projection[lo:hi, lo:hi] = 1 / (hi - lo)
    ends = np.sort(random.integers(0, n + 1, (2, 9)), axis=0)
    operators: list[Operator] = [
        Identity(n),
        Prefix(n),
        AllRange(n),
        WidthRanges(n, 5),
        Ranges(n, ends[0], ends[1]),
        Groups(random.integers(-1, 3, n), 3, random.normal(size=n)),
        Dense(random.normal(size=(4, n))),
    ]
    for operator in operators:
        wanted = np.trace(operator.gram() @ projection)
        assert energy(operator, count) == pytest.approx(wanted), operator


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("branching", [2, 3])
def test_weights_are_the_best_there_are(noise: Noise, branching: int) -> None:
    n = branching**4
    asked = AxisWorkload((Prefix(n), Identity(n)), (1.0, 3.0), 2.0)
    counts = counts_of(n, branching)
    found = weigh(asked, counts, noise)
    G = Prefix(n).gram() + 3 * np.eye(n) + 2

    def error(shares: np.ndarray) -> float:
        weights = shares if noise == "laplace" else np.sqrt(shares)
        rows = [
            w * np.kron(np.eye(count), np.ones((1, n // count)))
            for w, count in zip(weights, counts, strict=True)
        ]
        A = np.concatenate(rows)
        return float(np.trace(G @ np.linalg.inv(A.T @ A)))

    assert found.error == pytest.approx(error(found.shares))
    random = np.random.default_rng(0)
    for _ in range(200):
        other = np.maximum(found.shares + 0.02 * random.normal(size=len(counts)), 1e-9)
        assert error(other / other.sum()) >= found.error * (1 - 1e-6)


@pytest.mark.parametrize(("kind", "n", "noise"), P_IDENTITY)
def test_the_error_is_near_that_of_learned_rows(kind: str, n: int, noise: Noise) -> None:
    workload = Workload({"a": n}, [{"a": kind}])
    strategy = select(workload, noise, "tree")
    assert strategy.method == "tree"
    assert strategy.rmse(workload) <= 1.15 * P_IDENTITY[kind, n, noise]


@pytest.mark.parametrize("noise", NOISES)
def test_large_columns_are_measured_by_hierarchies(noise: Noise) -> None:
    running = Workload({"a": LARGE}, [{"a": "prefix"}])
    strategy = select(running, noise)
    assert strategy.method == "tree"
    plain = select(running, noise, "identity")
    assert strategy.unit_error(running) < plain.unit_error(running) / 9
    cells = Workload({"a": LARGE}, [{"a": "identity"}])
    assert select(cells, noise).method == "identity"


@pytest.mark.parametrize("noise", NOISES)
def test_other_columns_stand_beside_a_hierarchy(noise: Noise) -> None:
    domain = {"a": LARGE, "b": 3, "c": 4}
    asked = [{"a": "prefix", "b": "identity"}, {"a": "identity"}, {"c": "prefix"}, {}]
    workload = Workload(domain, asked)
    strategy = select(workload, noise)
    plain = select(workload, noise, "identity")
    assert strategy.unit_error(workload) < plain.unit_error(workload) / 5
    forecast = strategy.forecast(strategy.unit_variances())
    each = [forecast.total(product) for product in workload.products]
    assert sum(each) == pytest.approx(strategy.unit_error(workload))
    again = select(workload, noise)
    assert again.fingerprint() == strategy.fingerprint()


def test_many_widths_of_ranges_are_not_forecast_from_fading_sums(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fading_axis, "WORK", 100 * LARGE)
    lo = np.arange(1, LARGE // 2)
    ranges = Ranges(LARGE, lo, LARGE - lo)
    assert fading_bases(AxisWorkload((ranges,), (1.0,), 0.0), "gaussian") == []
    workload = Workload({"a": LARGE}, [{"a": ranges}])
    assert select(workload, "gaussian").forecast([1.0]).supports(workload.products[0])
    running = select(Workload({"a": LARGE}, [{"a": "prefix"}]), "gaussian")
    forecast = running.forecast([1.0])
    assert forecast.supports(Product({"a": Identity(LARGE)}))
    assert not forecast.supports(workload.products[0])


def test_a_draw_of_very_many_intervals_stands_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = AxisWorkload((Prefix(6000),), (1.0,), 0.0)
    whole = best_levels(asked, "laplace")
    monkeypatch.setattr(hierarchy, "SAMPLE", 2000)
    drawn = best_levels(asked, "laplace")
    workload = Workload({"a": 6000}, [{"a": "prefix"}])

    def error(rows: object) -> float:
        from dpsql.strategy.product import assemble

        made = assemble({"a": 6000}, {"a": rows}, {("a",): 1.0}, "laplace", "tree")  # type: ignore[dict-item]
        return made.unit_error(workload)

    assert error(drawn) <= 1.05 * error(whole)


PLAN_A_MILLION = """
import time
from dpsql.plan import Workload, select
start = time.process_time()
workload = Workload({"a": 1_000_000}, [{"a": "prefix"}])
strategy = select(workload, "%s")
forecast = strategy.forecast(strategy.unit_variances())
assert forecast.variance(workload.products[0]).max() < 3000
with open("/proc/self/status") as status:  # what getrusage tells begins with the parent's size
    (peak,) = [line.split()[1] for line in status if line.startswith("VmHWM")]
print(int(peak) >> 10, time.process_time() - start)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells what was held")
@pytest.mark.parametrize("noise", NOISES)
def test_a_million_values_are_planned_in_little_memory(noise: Noise) -> None:
    code = PLAN_A_MILLION % noise
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout.split()[0]) < 1 << 9
