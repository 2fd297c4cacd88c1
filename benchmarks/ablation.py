"""Searches switched off one by one: the error that plans have without each, over that with all.

Of five kinds of workload: the published tables, those that the decisions about single searches
speak of, those of ``benchmarks.floor``, the mixed scripts of ``benchmarks.fair``, and random unions
of products over one to four attributes. A search that is never called, or finds nothing, cannot
matter, so a workload is planned again only without those that found something for it. Errors are
forecasts, and deterministic: no clock is compared.

Run: ``python -m benchmarks.ablation [published | documented | floor | fair | random ...] [how many
[first seed]] [quiet]``. Published and documented ones are all asked, those of 4096 cells left out.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import dpsql
from benchmarks import accuracy, fair, few, floor
from dpsql.algebra.blocks import Prefix
from dpsql.algebra.ranges import AllRange
from dpsql.errors import Error
from dpsql.plan import drawn_variance, partition
from dpsql.plan.answer_weights import AnswerWeights
from dpsql.plan.partition import Partition
from dpsql.plan.request import Request
from dpsql.search import column_components, gaussian, laplace, shares, strategy_cache
from dpsql.search.coarse_noise import BestByBudget
from dpsql.search.one_attribute import hierarchy, low_rank
from dpsql.search.select import choose
from dpsql.search.symmetry import interchangeable_cells, opposite_cells
from dpsql.search.unions import opt_plus
from dpsql.strategy.noise_law import Noise
from dpsql.workload.coarsen import coarsen
from dpsql.workload.workload import Product, Workload

COUNT = 20
CHANGED = 1.01
"""Ratio of errors from which a figure counts as changed."""
Planned = Callable[[], Mapping[str, float]]
"""Plans a workload and returns its errors, by name."""


def nothing(*_: Any, **__: Any) -> None:
    """Find no strategy."""


def empty(*_: Any, **__: Any) -> tuple[()]:
    """Find no strategies."""
    return ()


def together(target: Any, *_: Any, **__: Any) -> Partition:
    """Find no groups: all answers are one."""
    return Partition((frozenset(target.asked),), math.inf, math.inf)


NOISES: tuple[Noise, ...] = ("laplace", "gaussian")
CONDITIONS = (
    *("age >= 40", "hours_per_week > 40", "education = 'Bachelors'", "race = 'Black'"),
    *("sex = 'Male'", "income = '>50K'", "workclass = 'Private'", "relationship = 'Wife'"),
)
"""Conditions on columns of their own."""
Entry = tuple[Any, str, Callable[..., Any]]
"""A module or class, the name of its function that finds something, and what finds nothing."""

SWITCHES: dict[str, tuple[Entry, ...]] = {
    "opposite cells": ((opposite_cells, "in_threes", nothing),),
    "fading totals": ((hierarchy, "fading_bases", empty),),
    "hierarchies": ((hierarchy, "with_hierarchies", nothing),),
    "gram parts": ((laplace, "learn_parts", nothing),),
    "column components": ((column_components, "plan_apart", nothing),),
    "symmetric queries": ((low_rank, "find_alike", nothing),),
    "few queries": tuple((each, "read_few", nothing) for each in (laplace, gaussian, opt_plus)),
    "neighbourhood": ((AnswerWeights, "near", nothing),),
    "shares": ((shares, "reweight", nothing), (shares, "mix", nothing)),
    "coarse noise": ((drawn_variance, "_coarse_of", empty), (BestByBudget, "winners", empty)),
    "interchange": ((interchangeable_cells, "symmetric_optimum", nothing),),
    "groups of products": ((opt_plus, "separate_strategy", nothing),),
    "groups of answers": ((partition, "best_partition", together),),
}
"""Searches that serve one kind of workload each, by name."""


@dataclass(slots=True)
class Tally:
    """Ratios of errors without one search, by kind of workload; ``used`` counts the workloads."""

    used: int = 0
    failed: int = 0
    ratios: list[float] = field(default_factory=list)

    def line(self) -> str:
        """The text of a cell: workloads, the worst and mean ratio, figures changed either way."""
        if not self.used:
            return "never used"
        ratios = np.array(self.ratios or [1.0])
        worse, better = (ratios > CHANGED).sum(), (ratios < 1 / CHANGED).sum()
        mean = math.exp(float(np.log(ratios).mean()))
        lost = f", {self.failed} not planned" if self.failed else ""
        return f"{self.used}: {ratios.max():.3f}, {mean:.4f}, {worse} up, {better} down{lost}"


def main(arguments: Sequence[str]) -> int:
    """Print a line for every figure that changes, then the table."""
    kinds = [each for each in arguments if each in KINDS] or list(KINDS)
    numbers = [int(each) for each in arguments if each.isdigit()]
    count, first = (*numbers, *(COUNT, 0)[len(numbers) :])
    tallies = {name: {kind: Tally() for kind in kinds} for name in SWITCHES}
    asked = dict.fromkeys(kinds, 0)
    with tempfile.TemporaryDirectory() as folder:
        for kind in kinds:
            for title, planned in KINDS[kind](Path(folder), range(first, first + count)):
                asked[kind] += 1
                for name, ratios in compare(planned):
                    tally = tallies[name][kind]
                    tally.used += 1
                    tally.failed += ratios is None
                    tally.ratios += (ratios or {}).values()
                    if "quiet" not in arguments:
                        worst = max((ratios or {"not planned": math.inf}).items(), key=_size)
                        print(f"{kind} {title}: {name} {worst[1]:.4f} {worst[0]}", flush=True)
    print(f"| without | {' | '.join(f'{kind} ({asked[kind]})' for kind in kinds)} |")
    print(f"|---|{'---|' * len(kinds)}")
    for name, found in tallies.items():
        print(f"| {name} | {' | '.join(found[kind].line() for kind in kinds)} |")
    return 0


def _size(figure: tuple[str, float]) -> float:
    return abs(math.log(figure[1]))


def compare(planned: Planned) -> Iterator[tuple[str, Mapping[str, float] | None]]:
    """Yield each search that finds something, with the ratios of all figures; None if no plan."""
    found: set[str] = set()
    with ExitStack() as stack:
        for name, entries in SWITCHES.items():
            for holder, entry, without in entries:
                watched = partial(_watched, found, name, without)
                stack.enter_context(_put(holder, entry, watched))
        try:
            errors = _anew(planned)
        except Error:
            return
    for name in filter(found.__contains__, SWITCHES):
        with ExitStack() as stack:
            for holder, entry, without in SWITCHES[name]:
                stack.enter_context(_put(holder, entry, partial(_instead, without)))
            try:
                others = _anew(planned)
            except Error:
                yield name, None
                continue
        yield name, {each: others[each] / error for each, error in errors.items() if error}


def _anew(planned: Planned) -> Mapping[str, float]:
    strategy_cache._memory.clear()
    return planned()


def _instead(without: Callable[..., Any], _: Callable[..., Any]) -> Callable[..., Any]:
    return without


def _watched(
    found: set[str], name: str, without: Callable[..., Any], entry: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a function that notes by name that it found something."""

    def watched(*given: Any, **named: Any) -> Any:
        result = entry(*given, **named)
        is_none = result is None or (isinstance(result, list | tuple) and not result)
        if not is_none and not (isinstance(result, Partition) and len(result.groups) == 1):
            found.add(name)
        return result

    return watched


@contextmanager
def _put(
    holder: Any, name: str, change: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Iterator[None]:
    """Change a function of a module or class for a while."""
    with mock.patch.object(holder, name, change(getattr(holder, name))):
        yield


def published(_: Path, __: range) -> Iterator[tuple[str, Planned]]:
    """Yield the cells of the published tables."""
    for asked in accuracy.cells_of(quick=True):
        yield asked.cell, partial(_selected, asked.workload, asked.noise)


def _selected(made: Callable[[], Workload], noise: Noise) -> dict[str, float]:
    workload = coarsen(made()).workload
    return {"error": math.sqrt(choose(workload, noise).strategy.unit_error(workload))}


def documented(folder: Path, _: range) -> Iterator[tuple[str, Planned]]:
    """Yield workloads for which single searches were made: decisions 60, 68, 115, 257 and 289."""
    for noise in NOISES:
        totals = Workload({"a": 10_000}, [{"a": "prefix"}])
        yield f"10,000 running totals, {noise}", partial(_selected, partial(_given, totals), noise)
    yield "sums and counts of 200 groups", partial(_selected, sums_and_counts, "laplace")
    sizes = {f"c{i}": 8 for i in range(12)}
    apart = Workload(sizes, [{name: kind} for name in sizes for kind in ("identity", "prefix")])
    yield "tables of 12 columns", partial(_selected, partial(_given, apart), "laplace")
    with floor.connected(folder) as connection:
        for noise in NOISES:
            asked = ";".join(f"SELECT COUNT(*) FROM adult WHERE {each}" for each in CONDITIONS)
            case = floor.Case("conditions", 0, asked, noise)
            yield f"eight conditions, {noise}", partial(_of_floor, connection, case)
            for seed in (101, 102, 103):
                case = floor.Case("few", seed, few.script(3, seed), noise)
                yield f"few {seed}, {noise}", partial(_of_floor, connection, case)


def _given(workload: Workload) -> Workload:
    return workload


def sums_and_counts() -> Workload:
    """A sum and a count of each of 200 groups, whose values lie on eight cells."""
    counts = np.kron(np.eye(200, dtype=np.int64), np.ones((1, 8), dtype=np.int64))
    sums = counts * np.random.default_rng(1).integers(90, 101, 1600)
    return Workload({"x": 1600}, [({"x": counts}, 1.0), ({"x": sums}, 0.01)])


def of_floor(folder: Path, seeds: range) -> Iterator[tuple[str, Planned]]:
    """Yield workloads of ``benchmarks.floor``."""
    with floor.connected(folder) as connection:
        for seed in seeds:
            case = floor.make_case(seed)
            yield f"{seed} {case.kind}", partial(_of_floor, connection, case)


def _of_floor(connection: Any, case: floor.Case) -> dict[str, float]:
    whole, statement = floor.errors(*floor.plan(connection, case, "auto"))
    return {"all": whole, "the worst statement": statement}


def of_fair(folder: Path, seeds: range) -> Iterator[tuple[str, Planned]]:
    """Yield scripts of ``benchmarks.fair``, whose figures are the errors of shown columns."""
    for script in fair.scripts(folder, seeds):
        with dpsql.connect(script.catalog, epsilon=1) as connection:
            compiled = fair.compiled_of(connection, script.statements)
        delta = Fraction(0) if script.noise == "laplace" else Fraction(1, 10**9)
        request = Request(compiled, script.epsilon, delta, script.noise, metric="fair")
        yield f"{script.seed} {script.noise}", partial(_of_fair, request)


def _of_fair(request: Request) -> dict[str, float]:
    return {f"{name} of {at}": error for (at, name), error in fair.errors_of(request).items()}


def at_random(_: Path, seeds: range) -> Iterator[tuple[str, Planned]]:
    """Yield random unions of products."""
    for seed in seeds:
        noise = NOISES[seed % 2]
        yield f"{seed} {noise}", partial(_selected, partial(random_workload, seed), noise)


def random_workload(seed: int) -> Workload:
    """One to six products over one to four attributes; the same for the same seed."""
    rng = np.random.default_rng([seed, 46])
    sizes = {f"a{i}": int(rng.choice([2, 3, 5, 8, 16, 40])) for i in range(rng.integers(1, 5))}
    products = []
    for _ in range(rng.integers(1, 7)):
        names = rng.choice(list(sizes), size=rng.integers(1, len(sizes) + 1), replace=False)
        factors = {str(name): random_factor(rng, sizes[str(name)]) for name in names}
        products.append(Product(factors, float(rng.choice([0.5, 1, 1, 1, 2]))))
    return Workload(sizes, products)


def random_factor(rng: np.random.Generator, n: int) -> Any:
    """Cells, running totals, ranges, or a few conditions."""
    kinds = ("identity", Prefix(n), AllRange(n))
    if rng.random() < 0.6:
        return kinds[int(rng.integers(len(kinds)))]
    rows = (rng.random((int(rng.integers(1, 6)), n)) < rng.choice([0.2, 0.5])).astype(np.int64)
    rows[:, int(rng.integers(n))] = 1
    return rows


KINDS: dict[str, Callable[[Path, range], Iterator[tuple[str, Planned]]]] = {
    "published": published,
    "documented": documented,
    "floor": of_floor,
    "fair": of_fair,
    "random": at_random,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
