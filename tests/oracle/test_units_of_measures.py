"""Errors do not depend on the unit of a measure: metres or millimetres, euros or cents.

Random statements are asked of two tables that differ by the units of their measures alone, without
noise: answers and standard errors are the same, in these units.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dpsql.answer.result import Result
from dpsql.dbapi.connection import Connection
from tests.support.effort import effort
from tests.support.seam import zero_noise
from tests.support.tables import open_tables

CATALOG = """
[budget]
epsilon = 1000000
delta = 1e-5

[table.t]
source = "t.parquet"
privacy_unit = "row"

[table.t.column]
g = {{ type = "text", domain = ["a", "b", "c"] }}
k = {{ type = "integer", domain = [0, 5] }}
"""
MEASURE = '{} = {{ type = "number", bounds = [{!r}, {!r}]{} }}\n'
TABLES = effort(4)
BOUNDS = [(0, 1), (-1, 1), (-0.25, 1), (0.5, 1)]
UNITS = [-20, -10, -10, -4, 0, 0, 10, 10, 20, 30]
"""Powers of two: whatever is exact in one unit is so in the other."""
AGGREGATES = {
    "SUM({x})": "x",
    "AVG({x})": "x",
    "COUNT(*)": "",
    "COUNT({x})": "",
    "COUNT(*) FILTER (WHERE k > 2)": "",
    "SUM(k)": "",
    "VAR_POP({x})": "xx",
    "STDDEV({x})": "x",
    "CORR({x}, {y})": "",
    "COVAR_POP({x}, {y})": "xy",
    "SUM({x} * {y})": "xy",
    "SUM({x} * {x})": "xx",
    "SUM({x}) FILTER (WHERE g = 'a')": "x",
    "SUM(CASE WHEN g = 'a' THEN {x} END)": "x",
    "SUM(-{x})": "x",
    "SUM({x} / 4)": "x",
    "SUM(k * {x})": "x",
    "SUM({x} - {x})": "x",
}
"""Aggregates, and the measures in whose units they are."""
EPSILONS = ("0.5", "1", "5", "50")


def pair(
    folder: Path, draw: random.Random, stack: ExitStack
) -> tuple[list[Connection], dict[str, float]]:
    """Two tables of the same rows, and the units of the second one."""
    bounds = {name: draw.choice(BOUNDS) for name in "uvw"}
    units = {name: 2.0 ** draw.choice(UNITS) for name in "uvw"}
    null = draw.choice(["", ", null = true"])
    rows: list[tuple[str, int, list[float]]] = []
    for _ in range(200):
        parts = [draw.random() ** draw.choice([1, 3]) for _ in "uvw"]
        pairs = zip(bounds.values(), parts, strict=True)
        rows.append(
            (draw.choice("abc"), draw.randrange(6), [a + (b - a) * p for (a, b), p in pairs])
        )
    found = []
    for place, sizes in enumerate((dict.fromkeys("uvw", 1.0), units)):
        text = CATALOG.format() + "".join(
            MEASURE.format(name, bounds[name][0] * size, bounds[name][1] * size, null)
            for name, size in sizes.items()
        )
        scaled = [
            (g, k, *(x * size for x, size in zip(numbers, sizes.values(), strict=True)))
            for g, k, numbers in rows
        ]
        kinds = "g VARCHAR, k BIGINT, u DOUBLE, v DOUBLE, w DOUBLE"
        world = open_tables(folder / str(place), text, {"t": (kinds, scaled)})
        found.append(stack.enter_context(world)[0])
    return found, units


def statement(draw: random.Random, units: dict[str, float]) -> tuple[str, list[float]]:
    """A statement, and the unit of each of its numbers."""
    items, sizes = [], []
    for place in range(draw.randint(1, 4)):
        form, unit = draw.choice(list(AGGREGATES.items()))
        x, y = draw.sample("uvw", 2)
        items.append(f"{form.format(x=x, y=y)} AS x{place}")
        sizes.append({"": 1.0, "x": units[x], "xx": units[x] ** 2, "xy": units[x] * units[y]}[unit])
    by = ("g, ", " GROUP BY g") if draw.random() < 0.4 else ("", "")
    return f"SELECT {by[0]}{', '.join(items)} FROM t{by[1]}", sizes


def differences(one: Result, two: Result, sizes: list[float]) -> Iterator[str]:
    """Where answers or errors are not the same but for their units."""
    start = len(one.columns) - len(sizes)
    for place, size in enumerate(sizes, start):
        for row, (left, right) in enumerate(zip(one.rows, two.rows, strict=True)):
            errors = one.stddev[place], two.stddev[place]
            assert errors[0] is not None
            assert errors[1] is not None
            told, other = errors[0][row], errors[1][row]
            if (told is None) != (other is None):
                yield f"{one.columns[place]}: errors {told} and {other}"
            if told is None or other is None:
                continue
            if not told / 1.25 <= other / size <= told * 1.25:
                yield f"{one.columns[place]}: errors {told} and {other / size}"
            if abs(right[place] / size - left[place]) > 1e-3 * (abs(left[place]) + told):
                yield f"{one.columns[place]}: {left[place]} and {right[place] / size}"


@pytest.mark.parametrize("seed", range(TABLES))
def test_errors_are_those_of_any_other_unit(seed: int, tmp_path: Path) -> None:
    draw, found = random.Random(seed), []
    with zero_noise(), ExitStack() as stack:
        connections, units = pair(tmp_path, draw, stack)
        for noise in ("laplace", "laplace", "gaussian"):
            terms = [f"SET epsilon = {draw.choice(EPSILONS)}", "SET delta = 1e-9"]
            sql, sizes = statement(draw, units)
            results = []
            for connection in connections:
                for each in (*terms, f"SET noise = {noise}"):
                    connection.execute(each)
                results.append(connection.execute(sql).result)
            about = f"{terms[0]} {noise} {units}\n{sql}\n"
            found += [about + each for each in differences(results[0], results[1], sizes)]
    assert not found, "\n\n".join(found)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize(
    "beside", ["", "SUM(v) AS s", "COUNT(*) AS n, SUM(k) FILTER (WHERE g = 'a')"]
)
def test_a_sum_that_is_always_zero_is_not_measured(noise: str, beside: str, tmp_path: Path) -> None:
    """Before: under Laplace noise most of these ended as defects."""
    measures = "".join(MEASURE.format(name, 0, 1, "") for name in "uvw")
    rows = [("a", 1, 0.5, 0.25, 1.0)] * 9
    kinds = "g VARCHAR, k BIGINT, u DOUBLE, v DOUBLE, w DOUBLE"
    with (
        zero_noise(),
        open_tables(tmp_path, CATALOG.format() + measures, {"t": (kinds, rows)}) as (
            connection,
            _,
        ),
    ):
        connection.execute("SET delta = 1e-9")
        connection.execute(f"SET noise = {noise}")
        for zero in ("SUM(v - v)", "SUM(k * v - v * k)", "SUM(CASE WHEN g = 'a' THEN v - v END)"):
            result = connection.execute(
                f"SELECT {zero} AS z{', ' if beside else ''}{beside} FROM t"
            ).result
            assert result.rows[0][0] == 0
            assert result.stddev[0] in ((0.0,), None)


def test_rates_beside_incomes_have_the_errors_of_each(tmp_path: Path) -> None:
    """Before: refused as not measured, or a count beside them was told as ± 1,482,910."""
    bounds = {"u": (0.0005, 0.001), "v": (0, 0.1), "w": (500000, 1000000)}
    measures = "".join(MEASURE.format(name, *each, "") for name, each in bounds.items())
    rows = [("a", 1, 0.00075, 0.05, 750000.0)] * 9
    kinds = "g VARCHAR, k BIGINT, u DOUBLE, v DOUBLE, w DOUBLE"
    with open_tables(tmp_path, CATALOG.format() + measures, {"t": (kinds, rows)}) as (
        connection,
        _,
    ):
        connection.execute("SET noise = laplace")
        told = connection.execute(
            "SELECT SUM(v) AS v, SUM(w) AS w, COUNT(*) AS n, SUM(u) FILTER (WHERE k > 2) FROM t"
        ).result.stddev
        for errors, largest in zip(told, (0.1, 1000000, 1, 0.001), strict=True):
            assert errors is not None
            assert errors[0] is not None
            assert errors[0] <= 1.2 * 4 * 2**0.5 * largest


@pytest.mark.parametrize("bounds", [(0, 1), (-0.1, 0.1), (0, 9.99), (0.001, 0.3), (-1e9, 1e9)])
def test_a_sum_by_itself_has_plain_noise(bounds: tuple[float, float], tmp_path: Path) -> None:
    """Before: 1.05 to 1.5 times that, where no binary fraction divides what is added up."""
    low, high = bounds
    largest = max(abs(low), high)
    draw = random.Random(7)
    rows = [
        ("a", draw.randrange(6), *(low + (high - low) * draw.random() for _ in "uvw"))
        for _ in range(50)
    ]
    measures = "".join(MEASURE.format(name, low, high, "") for name in "uvw")
    asked = {
        "SUM(u)": 1.0,
        "SUM(k * u)": 5.0,
        "SUM(u * v)": largest,
        "SUM(u) FILTER (WHERE k > 2)": 1.0,
        "SUM(CASE WHEN k > 2 THEN 3 * u ELSE u END)": 3.0,
    }
    kinds = "g VARCHAR, k BIGINT, u DOUBLE, v DOUBLE, w DOUBLE"
    world = open_tables(tmp_path, CATALOG.format() + measures, {"t": (kinds, rows)})
    with zero_noise(), world as (connection, database):
        connection.execute("SET noise = laplace")
        for each, times in asked.items():
            result = connection.execute(f"SELECT {each} FROM t").result
            (exact,) = database.execute(f"SELECT {each} FROM t").fetchall()[0]
            (told,) = result.stddev[0] or (None,)
            assert told is not None
            assert told == pytest.approx(2**0.5 * times * largest, rel=0.02), each
            assert result.rows[0][0] == pytest.approx(exact, abs=1e-4 * told), each
