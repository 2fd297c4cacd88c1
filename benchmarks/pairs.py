"""CPU seconds of planning under ``metric = 'fair'`` over those under ``'mean'``, in pairs.

The requests are the demonstration's tours, few ordinary statements (``benchmarks.few``), random
catalogs (``benchmarks.cliffs``), mixed scripts (``benchmarks.fair``), and the published workloads.
Each is planned by either metric in turn, in processes that are forked where everything is imported
and nothing was planned, ``TIMES`` times; the least of each counts.

Run: ``python -m benchmarks.pairs [how many of a kind] [tours] [few] [cliffs] [mixed] [published]``.
"""

from __future__ import annotations

import gc
import math
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import duckdb

import dpsql
from benchmarks import cliffs, fair, few
from dpsql.plan.request import Request, make_plan
from dpsql.sql.compiled import Compiled

COUNT, TIMES = 6, 3
METRICS = ("mean", "fair")


@dataclass(frozen=True, slots=True)
class Asked:
    """Compiled statements, and on what terms they are planned."""

    kind: str
    name: str
    statements: tuple[Compiled, ...]
    noise: str
    epsilon: Fraction


def main(arguments: list[str]) -> int:
    """Print a line for every request, then the ratio of the sums of each kind."""
    counts = [int(each) for each in arguments if each.isdigit()]
    count = counts[0] if counts else COUNT
    kinds = [each for each in arguments if not each.isdigit()] or list(KINDS)
    _import_all()
    print(f"{'':10} {'':12} {'asked':>6} {'mean s':>8} {'fair s':>8} {'ratio':>7}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        next(fair.scripts(folder, [0]))  # copies the demonstration data
        for kind in kinds:
            spent = [_measured(each) for each in KINDS[kind](folder, count)]
            sums = [sum(each[metric] for each in spent) for metric in METRICS]
            ratios = [each["fair"] / each["mean"] for each in spent]
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            print(f"{kind}: ratio of sums {sums[1] / sums[0]:.3f}, geometric mean {mean:.3f}")
    return 0


def _import_all() -> None:
    for module in walk_packages(dpsql.__path__, "dpsql."):
        if module.name.split(".")[1] in ("search", "plan", "strategy", "workload", "algebra"):
            import_module(module.name)


def _measured(asked: Asked) -> dict[str, float]:
    """The least CPU seconds by metric, printed."""
    gc.collect()
    found: dict[str, list[float]] = {metric: [] for metric in METRICS}
    for turn in range(TIMES):
        for metric in METRICS if turn % 2 == 0 else METRICS[::-1]:
            found[metric].append(_planned_apart(asked, metric))
    least = {metric: min(each) for metric, each in found.items()}
    print(
        f"{asked.kind:10} {asked.name:12} {len(asked.statements):>6} {least['mean']:>8.3f}"
        f" {least['fair']:>8.3f} {least['fair'] / least['mean']:>7.3f}",
        flush=True,
    )
    return least


def _planned_apart(asked: Asked, metric: str) -> float:
    """CPU seconds of planning in a forked process, infinite where it is refused."""
    fork = multiprocessing.get_context("fork")
    here, there = fork.Pipe(duplex=False)

    def plan() -> None:
        delta = Fraction(0) if asked.noise == "laplace" else Fraction(1, 10**9)
        start = time.process_time()
        make_plan(Request(asked.statements, asked.epsilon, delta, asked.noise, metric=metric))
        there.send(time.process_time() - start)

    process = fork.Process(target=plan)
    process.start()
    there.close()
    spent: float = here.recv()
    process.join()
    return spent


def tours(folder: Path, _: int) -> Iterator[Asked]:
    """The demonstration's tours."""
    for name, epsilon in (("adult", 1), ("hospital", 8)):
        yield _of_file(folder, "tours", name, f"{name}_tour", epsilon)


def published(folder: Path, _: int) -> Iterator[Asked]:
    """The workloads of papers; that of the census in its compact form."""
    for name in ("adult_cdf", "adult_marginals", "census_sf1_compact"):
        yield _of_file(folder, "published", name.split("_")[0], name, 1)


def _of_file(folder: Path, kind: str, catalog: str, name: str, epsilon: int) -> Asked:
    text = (fair.DEMO / f"{name}.sql").read_text()
    return _compiled(folder / f"{catalog}.toml", kind, name, text, "laplace", Fraction(epsilon))


def small(folder: Path, count: int) -> Iterator[Asked]:
    """Three ordinary statements each."""
    for seed in range(1, 1 + count):
        text = few.script(3, seed)
        yield _compiled(folder / "adult.toml", "few", str(seed), text, "laplace", Fraction(1))


def random_catalogs(folder: Path, count: int) -> Iterator[Asked]:
    """Requests over random catalogs."""
    for seed in range(count):
        case = cliffs.random_case(seed)
        place = folder / f"cliffs{seed}"
        place.mkdir()
        (place / "c.toml").write_text(case.catalog)
        shown = ", ".join(f"0 AS {column}" for column in case.columns)
        with duckdb.connect() as scribe:
            scribe.execute(f"COPY (SELECT {shown}) TO '{place}/t.parquet'")
        noise = "gaussian" if case.script.startswith("-- gaussian") else "laplace"
        try:
            yield _compiled(place / "c.toml", "cliffs", str(seed), case.script, noise, Fraction(1))
        except dpsql.Error:  # some of the random ones are refused
            continue


def mixed(folder: Path, count: int) -> Iterator[Asked]:
    """The scripts that errors together and alone are compared for."""
    for each in fair.scripts(folder, range(count)):
        text = ";\n".join(each.statements)
        yield _compiled(each.catalog, "mixed", str(each.seed), text, each.noise, each.epsilon)


def _compiled(
    catalog: Path, kind: str, name: str, text: str, noise: str, epsilon: Fraction
) -> Asked:
    with dpsql.connect(catalog, epsilon=1) as connection:
        return Asked(kind, name, fair.compiled_of(connection, [text]), noise, epsilon)


KINDS: dict[str, Callable[[Path, int], Iterator[Asked]]] = {
    "tours": tours,
    "few": small,
    "cliffs": random_catalogs,
    "mixed": mixed,
    "published": published,
}

if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main(sys.argv[1:]))
