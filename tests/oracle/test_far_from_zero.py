"""Answers and errors do not depend on where zero is: far from it all is known as well.

Random statements are asked of two tables that differ by a shift of their measures and of the bounds
of these alone, without noise: but for the shift answers and standard errors are the same, and
answers are those of exact arithmetic.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dpsql.answer.result import Result
from dpsql.dbapi.connection import Connection
from dpsql.errors import Error
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
g = { type = "text", domain = ["a", "b", "c"] }
k = { type = "integer", domain = [0, 5] }
"""
MEASURE = '{} = {{ type = "{}", {} = [{}, {}]{} }}\n'
TABLES = effort(4)
WIDTHS = (2, 4, 8, 20, 130, 1000)
BITS = (0, 0, 8, 11, 17, 30, 40, 49)
"""How far from zero, in powers of two: years, prices, milliseconds and microseconds since 1970."""
SHIFTED = {
    "AVG({x})": "x",
    "AVG(-{x})": "-x",
    "AVG({x} + {y})": "x + y",
    "AVG({x} - {y})": "x - y",
    "AVG(2 * {x} - {y} + 5)": "2 * x - y",
    "AVG({x}) FILTER (WHERE g <> 'a')": "x",
    "AVG(CASE WHEN g = 'a' THEN {x} END)": "x",
    "AVG(CASE WHEN k > 2 THEN {x} + 1 WHEN k > 1 THEN {x} - 1 END)": "x",
    "AVG(COALESCE({x}, {a}))": "x",
    "AVG(LEAST(GREATEST({x}, {a1}), {a2}))": "x",
    "REGR_AVGX({y}, {x})": "x",
    "REGR_AVGY({y}, {x})": "y",
}
"""Aggregates, and what a shift of the measures does to them.

``a`` and ``b`` are their middles, ``a1`` and ``a2`` are one below and one above.
"""
STEADY = (
    "COUNT(*)",
    "COUNT({x})",
    "VAR_POP({x})",
    "VAR_SAMP({x})",
    "STDDEV({x})",
    "VAR_POP({x} + {y})",
    "VAR_POP({x} - {y})",
    "VAR_POP(2 * {x} + 1)",
    "STDDEV_POP(5 - {x})",
    "COVAR_POP({x}, {y})",
    "COVAR_SAMP({x}, {x} - {y})",
    "CORR({x}, {y})",
    "CORR({x} + {y}, {y})",
    "COVAR_POP({x}, k)",
    "REGR_SLOPE({x}, {y})",
    "REGR_R2({x}, {y})",
    "REGR_SXX({x}, {y})",
    "REGR_SYY({x}, {y})",
    "REGR_SXY({x}, {y})",
    "VAR_SAMP({x}) FILTER (WHERE k > 2)",
    "VAR_POP(GREATEST(LEAST({x}, {a2}), {a1}))",
    "VAR_POP(COALESCE({x}, {a}))",
    "SUM({x} - {a})",
    "SUM(({x} - {a}) * ({x} - {a}))",
    "SUM(({x} - {a}) * ({y} - {b}))",
    "SUM(({x} - {a} - 1) * k)",
    "COUNT(*) FILTER (WHERE g = 'b')",
)
"""Aggregates that a shift does nothing to."""


def pair(
    folder: Path, draw: random.Random, stack: ExitStack
) -> tuple[list[Connection], dict[str, int]]:
    """Two tables of the same rows, and how far the measures of the second one are moved."""
    kinds = {name: draw.choice(["number", "integer", "domain"]) for name in "uvw"}
    widths = {
        name: draw.choice(WIDTHS[:4] if kind == "domain" else WIDTHS)
        for name, kind in kinds.items()
    }
    shifts = {}
    for name in "uvw":
        bits = draw.choice(
            [each for each in BITS if not each or 2**each > 3 * max(widths.values())]
        )
        shifts[name] = draw.choice([-1, 1]) * (2**bits + draw.randrange(2**bits) if bits else 0)
    if draw.random() < 0.5:
        shifts["v"] = shifts["u"]  # differences of them are near zero
    null = draw.choice(["", ", null = true"])
    rows: list[tuple[str, int, list[float]]] = []
    for _ in range(300):
        place, numbers = draw.random(), []
        for name, kind in kinds.items():
            part = (place + 2 * draw.random()) / 3  # values that have to do with each other
            parts = 8 if kind == "number" else 1  # so that shifts are exact
            numbers.append(round(part * widths[name] * parts) / parts - widths[name] // 2)
        rows.append((draw.choice("abc"), draw.randrange(6), numbers))
    found = []
    for place, far in enumerate((False, True)):
        moves = shifts if far else dict.fromkeys("uvw", 0)
        text = CATALOG
        for name, kind in kinds.items():
            low = moves[name] - widths[name] // 2
            what = ("integer", "domain") if kind == "domain" else (kind, "bounds")
            text += MEASURE.format(name, *what, low, low + widths[name], null)
        moved = [
            (g, k, *(x + move for x, move in zip(numbers, moves.values(), strict=True)))
            for g, k, numbers in rows
        ]
        types = {name: "DOUBLE" if kind == "number" else "BIGINT" for name, kind in kinds.items()}
        columns = "g VARCHAR, k BIGINT, " + ", ".join(f"{n} {types[n]}" for n in types)
        world = open_tables(folder / str(place), text, {"t": (columns, moved)})
        found.append(stack.enter_context(world)[0])
    return found, shifts


def statements(draw: random.Random, shifts: dict[str, int]) -> tuple[list[str], list[int]]:
    """A statement for each of the tables, and by how much each of its numbers is moved."""
    items: list[list[str]] = [[], []]
    moves = []
    for place in range(draw.randint(1, 3)):
        x, y = draw.sample("uvw", 2)
        form = draw.choice([*SHIFTED, *STEADY])
        for far in (0, 1):
            names = {"a": 0, "a1": -1, "a2": 1}
            middles = {name: f"({far * shifts[x] + more})" for name, more in names.items()}
            middles["b"] = f"({far * shifts[y]})"
            items[far].append(f"{form.format(x=x, y=y, **middles)} AS x{place}")
        moves.append(eval(SHIFTED.get(form, "0"), {"x": shifts[x], "y": shifts[y]}))
    by = ("g, ", " GROUP BY g") if draw.random() < 0.3 else ("", "")
    return [f"SELECT {by[0]}{', '.join(each)} FROM t{by[1]}" for each in items], moves


def differences(near: Result, far: Result, moves: list[int]) -> Iterator[str]:
    """Where answers or errors are not the same but for the shift."""
    start = len(near.columns) - len(moves)
    for place, move in enumerate(moves, start):
        for row, (left, right) in enumerate(zip(near.rows, far.rows, strict=True)):
            errors = near.stddev[place], far.stddev[place]
            assert errors[0] is not None
            assert errors[1] is not None
            told, other = errors[0][row], errors[1][row]
            if (told is None) != (other is None):
                yield f"{near.columns[place]}: errors {told} and {other}"
            if told is None or other is None:
                continue
            if not told / 1.05 <= other <= told * 1.05:
                yield f"{near.columns[place]}: errors {told} and {other}"
            least = 1e-3 * (abs(left[place]) + told) + 2 * math.ulp(abs(move))
            if abs(right[place] - move - left[place]) > least:
                yield f"{near.columns[place]}: {left[place]} and {right[place]} - {move}"


@pytest.mark.parametrize("seed", range(TABLES))
def test_errors_are_those_of_the_same_around_zero(seed: int, tmp_path: Path) -> None:
    draw, found = random.Random(seed), []
    with zero_noise(), ExitStack() as stack:
        connections, shifts = pair(tmp_path, draw, stack)
        for noise in ("laplace", "laplace", "gaussian", "gaussian"):
            asked, moves = statements(draw, shifts)
            about = f"{noise} {shifts}\n{asked[1]}\n"
            results: list[Result] = []
            for connection, sql in zip(connections, asked, strict=True):
                connection.execute("SET delta = 1e-9")
                connection.execute(f"SET noise = {noise}")
                try:
                    results.append(connection.execute(sql).result)
                except Error as error:
                    found.append(f"{about}{error}")
            if len(results) == 2:
                found += [about + each for each in differences(results[0], results[1], moves)]
    assert not found, "\n\n".join(found)
