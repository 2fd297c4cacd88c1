"""One plan for all, or several: no request has much more error than its statements in groups."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.algebra.operator import Floats
from dpsql.dbapi.connection import Connection
from dpsql.dbapi.script import parse_script
from dpsql.errors import NotSupportedError, ProgrammingError
from dpsql.plan import division
from dpsql.plan.candidate_plan import CandidatePlan
from dpsql.plan.division import GAIN, SeparatePlan, in_pieces, part_of, total_of
from dpsql.plan.partition import MOST, Forecaster, best_partition
from dpsql.plan.plan import shared_error
from dpsql.plan.request import Request, choose_one, expected_error, make_plan
from dpsql.plan.target import Target
from dpsql.search.work_limit import IN_ALL, PLANNING, limited, metered
from dpsql.strategy.noise_law import Noise, law
from dpsql.workload.layout import Place
from tests.support.effort import beyond

SIZES = (2, 3, 5, 8, 12, 24, 52, 100, 366, 1000)
HEAD = """[budget]
epsilon = 1000000
delta = 1e-4
max_epsilon_per_request = 1000
[table.t]
source = "t.parquet"
privacy_unit = "row"
[table.t.column]
"""
COUNT = beyond(1)
FOUND = (5, 55, 223, 273, *((6, 206, 290, 296) if COUNT else ()))
"""Seeds at which one plan had up to three times the error of several."""
EFFORT = 0.1
SUMS = (
    "SELECT AVG(c2) FROM t",
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(weight = 0.1) SUM(c2) FROM t"
    " WHERE c4 = 7 AND c3 <= 34",
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(weight = 2) SUM(c2) FROM t WHERE c3 = 28",
    "SELECT SUM(c2) FROM t WHERE c4 <= 23 AND c0 IN (0, 1)",
)
"""Seed 55: its best parts have sums."""


@contextmanager
def opened(columns: Sequence[tuple[str, int, bool]], folder: Path) -> Iterator[Connection]:
    """A connection to one table of a row with these columns: their sizes, and whether sums."""
    declared = "".join(
        f"{name} = {{ type = 'number', bounds = [0, {size}] }}\n"
        if is_sum
        else f"{name} = {{ type = 'integer', domain = [0, {size - 1}] }}\n"
        for name, size, is_sum in columns
    )
    (folder / "c.toml").write_text(HEAD + declared)
    shown = ", ".join(f"0 AS {name}" for name, _, _ in columns)
    duckdb.sql(f"COPY (SELECT {shown}) TO '{folder}/t.parquet'")
    with dpsql.connect(folder / "c.toml") as connection:
        yield connection


def random_request(seed: int, folder: Path) -> Request:
    """Ordinary statements over one to five columns of mixed sizes, some of them weighted."""
    rng = np.random.default_rng([seed, 77])
    count = int(rng.integers(1, 6))
    columns = [
        (f"c{i}", int(rng.choice(SIZES)), bool(i > 0 and rng.random() < 0.2)) for i in range(count)
    ]
    asked = int(rng.choice([2, 3, 4, 6, 10, 16]))
    script = ";\n".join(statement(rng, columns) for _ in range(asked))
    noise = ("laplace", "gaussian")[int(rng.random() < 0.5)]
    with opened(columns, folder) as connection:
        compiled = connection.engine.compile(parse_script(script))
    delta = Fraction(1, 10**9) if noise == "gaussian" else Fraction(0)
    effort = Fraction(EFFORT)
    return Request(compiled, Fraction(1), delta, noise, effort=effort, metric="mean")


def statement(rng: np.random.Generator, columns: Sequence[tuple[str, int, bool]]) -> str:
    """A random statement: a count, a sum or a mean, under conditions, in groups, weighted."""
    keys = [each for each in columns if not each[2]]
    sums = [each for each in columns if each[2]]
    shown = "COUNT(*)"
    if sums and rng.random() < 0.35:
        name = sums[int(rng.integers(len(sums)))][0]
        shown = f"{rng.choice(['SUM', 'AVG', 'SUM'])}({name})"
    where = []
    if rng.random() < 0.5:
        for i in rng.permutation(len(keys))[: int(rng.integers(1, 3))]:
            name, size, _ = keys[i]
            low, high = sorted(rng.integers(0, size, size=2).tolist())
            kinds = (f"= {low}", f"<= {high}", f"BETWEEN {low} AND {high}", f"IN ({low}, {high})")
            where.append(f"{name} {rng.choice(kinds)}")
    grouping, room = [], 20_000
    for i in rng.permutation(len(keys))[: int(rng.choice([0, 0, 1, 1, 1, 2, 2, 3]))]:
        name, size, _ = keys[i]
        if size <= room:
            room //= size
            is_binned = size >= 100 and rng.random() < 0.3
            grouping.append(f"{name} // {rng.choice([7, 10, 20])}" if is_binned else name)
    by, options = ", ".join(grouping), ""
    if rng.random() < 0.12:
        weight = rng.choice(["0.1", "0.5", "2", "10"])
        options = f"WITH DIFFERENTIAL_PRIVACY OPTIONS(weight = {weight}) "
    condition = f" WHERE {' AND '.join(where)}" if where else ""
    keyed = f" GROUP BY {by}" if by else ""
    return f"SELECT {options}{by + ', ' if by else ''}{shown} FROM t{condition}{keyed}"


def partitions(target: Target) -> list[list[frozenset[Place]]]:
    """Every statement alone, those over the same columns, those with and without each column."""
    asked: dict[int, set[Place]] = {}
    names: dict[int, set[str]] = {}
    for place, reading in target.layouts[0].products.items():
        asked.setdefault(place[0], set()).add(place)
        names.setdefault(place[0], set()).update(n for _, p in reading for n in p.factors)
    alike: dict[frozenset[str], set[Place]] = {}
    for i, places in asked.items():
        alike.setdefault(frozenset(names[i]), set()).update(places)
    found = [list(map(frozenset, asked.values())), list(map(frozenset, alike.values()))]
    for name in sorted({name for each in names.values() for name in each}):
        inside = {p for i, places in asked.items() if name in names[i] for p in places}
        found.append([frozenset(inside), frozenset(target.asked.keys() - inside)])
    return [groups for groups in found if len(groups) > 1 and all(groups)]


def planned_alone(
    request: Request, whole: Target, places: frozenset[Place], noise: Noise
) -> SeparatePlan:
    """Some answers planned by themselves, at the whole budget."""
    amount, part = request.budget(noise), part_of(whole, places)
    with limited(IN_ALL), metered(PLANNING):
        return SeparatePlan(whole, part, choose_one(request, part, noise, amount), amount)


def alternatives(
    request: Request, whole: Target, places: frozenset[Place], noise: Noise
) -> list[SeparatePlan]:
    """Some answers by themselves: as cells, or as queries; a statement as it is planned."""
    if len({place[0] for place in places}) == 1:
        return [planned_alone(request, whole, places, noise)]
    found = []
    for name in ("identity", "workload"):
        with contextlib.suppress(ProgrammingError, NotSupportedError):
            simple = replace(request, mechanism=name)
            found.append(planned_alone(simple, whole, places, noise))
    return found


@pytest.mark.parametrize("seed", [*FOUND, *range(1000, 1000 + COUNT)])
def test_no_groups_of_statements_have_much_less_error_than_the_plan(
    seed: int, tmp_path: Path
) -> None:
    request = random_request(seed, tmp_path)
    (target,), (noise,) = request.targets, request.noises
    if target.units or len(target.asked) == 1:
        return
    unit = law(noise).unit_variance(float(request.budget(noise)))
    error = expected_error(request, make_plan(request)) / unit
    known: dict[frozenset[Place], list[SeparatePlan]] = {}
    for groups in partitions(target):
        for places in groups:
            if places not in known:
                known[places] = alternatives(request, target, places, noise)
        for found in product(*(known[places] for places in groups[:MOST])):
            if len(groups) <= MOST:
                least = [each.least for each in found]
                other = shared_error([each.chosen.error for each in found], least, noise)
                assert error <= GAIN * other * 1.02, f"{len(groups)} groups"


@pytest.mark.parametrize("seed", range(12))
def test_forecasts_of_groups_are_those_of_dense_matrices(seed: int, tmp_path: Path) -> None:
    """Small columns: every cell of all is written out, and alike cells of a group counted once."""
    rng = np.random.default_rng([seed, 31])
    columns = [("c0", 4, False), ("c1", 3, False), ("c2", 5, False)]
    script = ";\n".join(statement(rng, columns) for _ in range(4))
    with opened(columns, tmp_path) as connection:
        compiled = connection.engine.compile(parse_script(script))
    noise: Noise = ("laplace", "gaussian")[seed % 2]
    request = Request(compiled, Fraction(1), Fraction(1, 10**9), noise)
    (target,) = request.targets
    forecaster = Forecaster(target, noise)
    layout = target.layouts[0]
    for places in (frozenset(target.asked), frozenset(list(target.asked)[:2])):
        queries = {place: dense(layout, place) for place in places}
        limit = min(forecaster.limits[place] for place in places)
        weights = {place: target.asked[place].weight for place in places}
        stacked = np.vstack([weights[place] * q for place, q in queries.items()])
        each = law(noise).squared(float(law(noise).powers(stacked).sum(axis=0).max()))
        plain, *cells = forecaster.prospects(places)
        assert plain.error == pytest.approx(len(stacked) * each)
        assert plain.least == pytest.approx((each / limit) ** (law(noise).norm / 2))
        (counted,) = cells
        kept = stacked[:, kept_cells(layout, places)]
        assert counted.error == pytest.approx(float((kept**2).sum()))
        assert limit >= each  # what is asked of all costs no less


def dense(layout: object, place: Place) -> Floats:
    """The rows of one answer over all cells of a layout."""
    workload = layout.workload  # type: ignore[attr-defined]
    ((scale, asked),) = layout.products[place]  # type: ignore[attr-defined]
    rows = np.ones((1, 1))
    for name, n in workload.domain.items():
        factor = asked.factors.get(name)
        rows = np.kron(rows, np.ones((1, n)) if factor is None else factor.dense())
    return np.asarray(scale * rows)


def kept_cells(layout: object, places: frozenset[Place]) -> list[int]:
    """One cell of every class that the factors of some answers tell apart, column by column."""
    workload = layout.workload  # type: ignore[attr-defined]
    kept = []
    for name, n in workload.domain.items():
        asked = [layout.products[place][0][1].factors.get(name) for place in places]  # type: ignore[attr-defined]
        columns = np.vstack([f.dense() for f in asked if f is not None] or [np.ones((1, n))])
        kept.append(sorted(np.unique(columns, axis=1, return_index=True)[1].tolist()))
    sizes = list(workload.domain.values())
    return [int(np.ravel_multi_index(cell, sizes)) for cell in product(*kept)]


def test_pieces_are_within_the_limits_of_all_and_their_error_is_what_was_counted(
    tmp_path: Path,
) -> None:
    request = random_request(6, tmp_path)
    (target,), (noise,) = request.targets, request.noises
    one = planned_alone(request, target, frozenset(target.asked), noise)

    def choose(part: Target, earnest: bool = False) -> CandidatePlan:
        return planned_alone(request, target, frozenset(part.asked), noise).chosen

    pieces = in_pieces(one, choose)
    assert len(pieces) > 1
    assert sum(each.least for each in pieces) <= 1
    assert total_of(pieces) * GAIN < total_of([one])
    unit = law(noise).unit_variance(float(request.budget(noise)))
    assert expected_error(request, make_plan(request)) == pytest.approx(
        unit * total_of(pieces), rel=0.01
    )


LARGE = """SELECT c0, c1, COUNT(*) FROM t GROUP BY 1, 2;
SELECT c2, COUNT(*) FROM t WHERE c0 <= {0} GROUP BY 1;
SELECT COUNT(*) FROM t WHERE c0 = {1};
SELECT COUNT(*) FROM t WHERE c0 BETWEEN {1} AND {0} AND c3 <= 9;
SELECT COUNT(*) FROM t WHERE c1 IN (3, 7) AND c2 <= {1};
SELECT c1, COUNT(*) FROM t WHERE c3 <= 9 GROUP BY 1"""
"""Answers of few rows beside one of thousands: queries of all are too many to be measured."""


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("seed", range(4))
def test_groups_that_can_be_measured_keep_the_limits_where_nothing_else_does(
    noise: Noise, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, random requests had answers up to ten times as far off as under plain noise."""
    rng = np.random.default_rng([seed, 41])
    columns = [("c0", 200, False), ("c1", 52, False), ("c2", 60, False), ("c3", 20, False)]
    low, high = sorted(rng.integers(1, 199, 2).tolist())
    with opened(columns, tmp_path) as connection:
        compiled = connection.engine.compile(parse_script(LARGE.format(high, low)))
    effort = Fraction(EFFORT)
    request = Request(
        compiled, Fraction(1, 20), Fraction(1, 10**9), noise, effort=effort, metric="mean"
    )
    (target,) = request.targets
    everything = frozenset(target.asked)
    cells = replace(request, mechanism="identity")
    one = planned_alone(cells, target, everything, noise)
    assert one.least > 1
    monkeypatch.setattr(division, "HALVINGS", 0)
    monkeypatch.setattr(division, "GAIN", math.inf)

    def choose(part: Target, earnest: bool = False) -> CandidatePlan:
        return planned_alone(request, target, frozenset(part.asked), noise).chosen

    pieces = in_pieces(one, choose)
    assert len(pieces) > 1
    assert sum(each.least for each in pieces) <= 1
    assert {place for each in pieces for place in each.target.asked} == everything


def test_many_statements_come_in_few_groups_and_a_statement_stays_whole(tmp_path: Path) -> None:
    columns = [(f"c{i}", 3 + i, False) for i in range(20)]
    script = ";".join(
        f"SELECT {n}, COUNT(*), COUNT(*) FILTER (WHERE {n} = 1) FROM t GROUP BY 1"
        for n, _, _ in columns
    )
    with opened(columns, tmp_path) as connection:
        compiled = connection.engine.compile(parse_script(script))
    (target,) = Request(compiled, Fraction(1), Fraction(0), "laplace").targets
    assert 1 < len(Forecaster(target, "laplace").starts()) <= MOST
    groups = best_partition(target, "laplace").groups
    assert sorted(place for group in groups for place in group) == sorted(target.asked)
    numbers = [{place[0] for place in group} for group in groups]
    assert sum(map(len, numbers)) == len(columns)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_repeats_of_what_was_measured_in_groups_are_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noise: str
) -> None:
    """Those with sums too, and statements of it in another order."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(division, "GAIN", 1e-6)
    columns = [("c0", 12, False), ("c2", 2, True), ("c3", 52, False), ("c4", 24, False)]
    with opened(columns, tmp_path) as connection:
        connection.set("epsilon", "1")
        connection.set("noise", noise)
        connection.set("delta", "1e-6" if noise == "gaussian" else "0")
        connection.set("effort", "0.05")
        cursor = connection.executescript(";".join(SUMS))
        assert len(connection.explain(";".join(SUMS)).statements) == len(SUMS)
        assert connection.explain(";".join(SUMS)).free
        first = [cursor.fetchall()]
        while cursor.nextset():
            first.append(cursor.fetchall())
        again = connection.executescript(";".join(SUMS))
        for rows in first:
            assert again.fetchall() == rows
            again.nextset()
        counts = [text.replace("SUM(c2)", "COUNT(*)") for text in SUMS[1:]]
        connection.executescript(";".join(counts))
        assert connection.explain(";".join(reversed(counts))).free


def test_shares_are_the_best_by_brute_force() -> None:
    rng = np.random.default_rng(3)
    for noise, power in (("laplace", 2), ("gaussian", 1)):
        for _ in range(20):
            errors, least = np.exp(rng.normal(0, 3, 2)), rng.random(2) / 2
            grid = np.linspace(least[0], 1 - least[1], 20_001)
            best = (errors[0] / grid**power + errors[1] / (1 - grid) ** power).min()
            found = shared_error(errors.tolist(), least.tolist(), noise)
            assert found == pytest.approx(float(best), rel=1e-4)
    assert math.isinf(shared_error([1.0, 1.0], [0.6, 0.6], "laplace"))
