"""Named workloads of the floor: what plain noise used to beat, each figure beside what it must be.

Run: ``python -m benchmarks.floor figures [part ...] [how many weightings]``, parts as in PARTS.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from benchmarks import floor
from dpsql.dbapi.connection import Connection
from dpsql.plan.target import reading_variances
from dpsql.search.select import select
from dpsql.strategy.noise_law import Noise
from dpsql.workload.coarsen import coarsen
from dpsql.workload.workload import Workload

WEIGHTINGS = 200
"""Weights of statements that are tried against the epsilon that is found."""

LINES = 60
"""Random workloads on one attribute, and how much better more effort may make them."""

MORE, CLOSE = 8.0, 1.02

WANTED = (
    "SELECT {} COUNT(*) FROM adult",
    "SELECT {} sex, COUNT(*) FROM adult GROUP BY sex",
    "SELECT {} sex, race, education, COUNT(*) FROM adult GROUP BY sex, race, education",
)
"""A total and two tables of which the errors are wanted to be at most five."""


Figure: TypeAlias = Callable[[Connection, int], bool]
"""Prints figures, given a connection and a number of weightings; says whether they hold."""


def figures(connection: Connection, wanted: Sequence[str] = ()) -> bool:
    """Print every figure, or those of the parts that are named; say whether all hold.

    A number among the names is how many weightings are tried.
    """
    numbers = [int(text) for text in wanted if text.isdigit()]
    names = [text for text in wanted if not text.isdigit()] or list(PARTS)
    weightings = numbers[0] if numbers else WEIGHTINGS
    held = [PARTS[name](connection, weightings) for name in names]
    return all(held)


def shown(title: str, value: float, must: str, holds: bool) -> bool:
    """Print a figure; return whether it is what it must be."""
    print(f"{title:<74} {value:8.4f}  {must:<9} {'' if holds else 'NOT'}", flush=True)
    return holds


def scattered(connection: Connection) -> bool:
    """Eight counts of conditions on four columns that no row is in two of."""
    values = zip(floor.DOMAINS["education"][:4] * 2, floor.DOMAINS["race"] * 2, strict=True)
    script = ";".join(
        f"SELECT COUNT(*) FROM adult WHERE age = {20 + i} AND education = {education}"
        f" AND race = {race} AND hours_per_week = {30 + i}"
        for i, (education, race) in enumerate(values)
    )
    largest = worst_error(connection, script)
    return shown(
        "8 scattered counts over 4 columns, standard error", largest, "<= 2.6", largest <= 2.6
    )


def worst_error(connection: Connection, script: str) -> float:
    """The largest standard error of an answer, root mean square over its rows, epsilon 1."""
    _, planned = floor.plan(connection, floor.Case("", 0, script, "laplace"), "auto")
    found = [
        reading_variances(planned.plan.parts[at].forecast, [reading])[0]
        for at, reading, _ in planned.readings.values()
    ]
    return math.sqrt(max(float(variance.mean()) for variance in found))


def conjunctions() -> Iterator[str]:
    """Lists of 3 to 40 counts under conditions on 2, 3 and 4 columns."""
    for each in (2, 3, 4):
        for count in (3, 5, 8, 12, 20, 40):
            rng = np.random.default_rng([each, count])
            chosen = [rng.choice(list(floor.DOMAINS), each, replace=False) for _ in range(count)]
            yield ";".join(
                "SELECT COUNT(*) FROM adult WHERE "
                + " AND ".join(floor.condition(rng, str(name)) for name in names)
                for names in chosen
            )


def counts(connection: Connection, noise: Noise) -> bool:
    """Plain noise is better in none of eighteen lists of conjunctive counts."""
    return against_plain(connection, "conjunctive counts", list(conjunctions()), noise)


def dashboards(connection: Connection, noise: Noise) -> bool:
    """Plain noise is better in none of nineteen dashboards."""
    scripts = [";".join(floor.dashboard(np.random.default_rng([7, k]))) for k in range(19)]
    return against_plain(connection, "dashboards", scripts, noise)


def against_plain(connection: Connection, title: str, scripts: Sequence[str], noise: Noise) -> bool:
    """Print the worst error as a multiple of plain noise's, all queries of a script together."""
    cases = [floor.Case(title, k, script, noise) for k, script in enumerate(scripts)]
    worst = max(floor.errors(*floor.plan(connection, case, "auto"))[0] for case in cases)
    text = f"{len(scripts)} {title}, {noise}: the worst error over plain noise's"
    return shown(text, worst, "<= 1", worst <= 1 + 1e-6)


def wanted_error(connection: Connection, weightings: int) -> bool:
    """No weights of statements reach a wanted error for less than what is found."""
    option = "WITH DIFFERENTIAL_PRIVACY OPTIONS({})"
    script = ";".join(text.format(option.format("max_stddev = 5")) for text in WANTED)
    epsilon = float(connection.explain(script).epsilon)
    rng = np.random.default_rng(0)
    least = math.inf
    for weights in np.exp(rng.uniform(0, 3.5, (weightings, len(WANTED)))).round(3):
        pairs = zip(WANTED, weights, strict=True)
        script = ";".join(text.format(option.format(f"weight = {w}")) for text, w in pairs)
        least = min(least, worst_error(connection, script) / 5)
    by_hand = f"the same by the best of {weightings} weightings"
    held = shown(
        "max_stddev = 5 for a total and two tables: epsilon", epsilon, "<= 0.68", epsilon <= 0.68
    )
    return shown(by_hand, least, f">= {0.98 * epsilon:.3f}", least >= 0.98 * epsilon) and held


def lines() -> bool:
    """More effort gains little on one attribute."""
    start = time.perf_counter()
    ratios = [effort_gain(modular(210, range(2, 19)))]
    text = "17 modular predicates, n = 210: error over that of effort 8"
    held = shown(text, ratios[0], f"<= {CLOSE}", ratios[0] <= CLOSE)
    ratios = [effort_gain(random_line(seed)) for seed in range(LINES)]
    text = (
        f"{LINES} random workloads on one attribute: the worst, {time.perf_counter() - start:.0f} s"
    )
    return shown(text, max(ratios), f"<= {CLOSE}", max(ratios) <= CLOSE) and held


def effort_gain(workload: Workload) -> float:
    """The error at effort 1 over that at effort 8, on the fewest cells, as of statements."""
    merged = coarsen(workload).workload
    first, second = (select(merged, effort=effort) for effort in (1.0, MORE))
    return math.sqrt(first.unit_error(merged) / second.unit_error(merged))


def modular(n: int, periods: Sequence[int]) -> Workload:
    """Predicates x % k = 0."""
    rows = np.array([np.arange(n) % k == 0 for k in periods], dtype=np.int64)
    return Workload({"x": n}, [{"x": rows}])


def random_line(seed: int) -> Workload:
    """Predicates, ranges, prefixes or windows on one attribute."""
    rng = np.random.default_rng([11, seed])
    n, count = int(rng.choice([30, 64, 100, 128, 210])), int(rng.integers(3, 40))
    x = np.arange(n)
    if seed % 5 == 0:
        return modular(n, [int(k) for k in rng.integers(2, 30, count)])
    ends = np.sort(rng.integers(0, n, (count, 2)), axis=1)
    if seed % 5 == 1:
        rows = (x >= ends[:, :1]) & (x <= ends[:, 1:])
    elif seed % 5 == 2:
        rows = x <= ends[:, 1:]
    elif seed % 5 == 3:
        rows = rng.random((count, n)) < rng.choice([0.1, 0.5])
        rows[:, 0] = True
    else:
        rows = (x >= ends[:, :1]) & (x < ends[:, :1] + int(rng.integers(2, n // 3)))
    return Workload({"x": n}, [{"x": rows.astype(np.int64)}])


PARTS: dict[str, Figure] = {
    "scattered": lambda connection, _: scattered(connection),
    "counts-laplace": lambda connection, _: counts(connection, "laplace"),
    "counts-gaussian": lambda connection, _: counts(connection, "gaussian"),
    "dashboards-laplace": lambda connection, _: dashboards(connection, "laplace"),
    "dashboards-gaussian": lambda connection, _: dashboards(connection, "gaussian"),
    "wanted": wanted_error,
    "lines": lambda connection, _: lines(),
}
"""What can be asked for by name."""
