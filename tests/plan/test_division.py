"""Requests in parts: what is too large together, and what would be too far off together."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.dbapi.connection import Connection
from dpsql.dbapi.script import parse_script
from dpsql.engine.explanation import Explanation
from dpsql.plan import division, request
from dpsql.plan.candidate_plan import CandidatePlan
from dpsql.plan.limits import CAP
from dpsql.plan.plan import SHARE_GRID, shared_error, split_amount
from dpsql.strategy.noise_law import GAUSSIAN, LAPLACE
from tests.support.effort import IS_LARGE

CATALOG = """
[budget]
epsilon = 1000000
delta = 1e-5
max_epsilon_per_request = 1000000
[unit.person]
[table.t]
source = "t.parquet"
privacy_unit = { column = "pid", max_rows = 1, unit = "person" }
[table.t.column]
a = { type = "integer", domain = [0, 999] }
b = { type = "integer", domain = [0, 699] }
c = { type = "integer", domain = [0, 599] }
d = { type = "integer", domain = [0, 3] }
wide = { type = "integer", domain = [0, 4999] }
[table.v]
source = "t.parquet"
privacy_unit = { column = "pid", max_rows = 1, unit = "person" }
[table.v.column]
wide = { type = "integer", domain = [0, 4999] }
"""

ROWS = (
    "SELECT i AS pid, (i * 7 % 1000)::INT AS a, (i % 700)::INT AS b, (i * 3 % 600)::INT AS c,"
    " (i % 4)::INT AS d, (i * 11 % 5000)::INT AS wide FROM range(3000) r(i)"
)

LARGE = (
    "SELECT a, COUNT(*) AS n FROM t GROUP BY a",
    "SELECT b, COUNT(*) AS n FROM t GROUP BY b",
    "SELECT COUNT(*) AS n FROM t WHERE a < 500 AND b > 30 AND c BETWEEN 7 AND 400",
    "SELECT c, COUNT(*) AS n FROM t GROUP BY c",
    "SELECT d, COUNT(*) AS n FROM t WHERE a >= 20 AND b < 600 AND c <> 3 GROUP BY d",
)

FAR = (
    "SELECT COUNT(*) AS n FROM t",
    "SELECT wide // 900 AS k, d, COUNT(*) AS n FROM t GROUP BY 1, 2",
    "SELECT wide, COUNT(*) AS n FROM t GROUP BY wide",
)

FEW = (
    "SELECT d, COUNT(*) AS n FROM t GROUP BY d",
    "SELECT COUNT(*) AS n FROM t WHERE a < 500",
    "SELECT b // 100 AS k, COUNT(*) AS n FROM t GROUP BY 1",
)


@pytest.fixture
def connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Connection:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "c.toml").write_text(CATALOG)
    with duckdb.connect() as scribe:
        scribe.execute(f"COPY ({ROWS}) TO '{tmp_path}/t.parquet'")
    opened = dpsql.connect(tmp_path / "c.toml", epsilon=1)
    terms = {"effort": "0.05", "delta": "1e-6", "noise": "gaussian", "metric": "mean"}
    for name, value in terms.items():
        opened.set(name, value)
    return opened


def worst(forecast: Explanation) -> float:
    """The largest error of a column, as a multiple of that of plain noise."""
    columns = [each for statement in forecast.statements for each in statement.errors]
    return max(each.rmse / each.plain for each in columns if each.plain)


def test_statements_that_are_too_large_together_are_answered_and_a_repeat_is_free(
    connection: Connection,
) -> None:
    for statement in LARGE:
        connection.explain(statement)  # each by itself always was
    assert worst(connection.explain(";".join(LARGE))) <= CAP * (1 + 1e-6)
    connection.execute("SET epsilon = 100000")
    cursor = connection.executescript(";".join(LARGE))
    with duckdb.connect() as plain:
        plain.execute(f"CREATE TABLE t AS {ROWS}")
        for statement in LARGE:
            counted = dict(row if len(row) > 1 else (0, *row) for row in cursor.fetchall())
            known = plain.execute(statement).fetchall()
            for key, n in (row if len(row) > 1 else (0, *row) for row in known):
                assert counted[key] == pytest.approx(n, abs=0.5)
            cursor.nextset()
    before = connection.explain(";".join(LARGE))
    assert before.free
    connection.executescript(";".join(LARGE))
    assert connection.explain(";".join(LARGE)).remaining == before.remaining


@pytest.mark.skipif(not IS_LARGE, reason="it takes half a minute: EFFORT above 1")
def test_no_answer_of_few_rows_is_given_up_for_one_of_many(connection: Connection) -> None:
    assert worst(connection.explain(";".join(FAR))) <= CAP * (1 + 1e-3)


def test_a_repeat_of_what_was_halved_is_free(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def needed(chosen: CandidatePlan, *_: Any) -> float:
        return 3.0 if len(chosen.means) > 1 else 0.3

    def counted(*given: Any) -> list[division.SeparatePlan]:
        found = division.in_pieces(*given)
        counts.add(len(found))
        return found

    script, counts = ";".join(FEW), set[int]()
    with monkeypatch.context() as patch:
        patch.setattr(request, "in_pieces", counted)
        patch.setattr(division, "least_part", needed)
        cursor = connection.executescript(script)
    assert counts == {3}
    assert connection.explain(script).free
    for _ in FEW:
        assert cursor.fetchall()
        cursor.nextset()


@pytest.mark.parametrize(
    ("epsilon", "noise"),
    [
        ("0.1", "laplace"),
        *([("10", "laplace"), ("100", "laplace")] if IS_LARGE else []),
        *((epsilon, "gaussian") for epsilon in ("0.1", "10", "100")),
    ],
)
def test_what_is_within_its_limits_as_noise_is_drawn_stays_whole(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, epsilon: str, noise: str
) -> None:
    """Large budgets have noise of less variance than its limit, and other plans.

    Where limits are asked of real-valued noise, Laplace noise tells at 10 and at 100, which take
    long: make fuzz asks them.
    """
    connection.set("noise", noise)
    connection.set("epsilon", epsilon)
    found = connection.explain(";".join(FEW))
    monkeypatch.setattr(request, "in_pieces", lambda piece, *_: [piece])
    connection.set("effort", "0.051")
    whole = connection.explain(";".join(FEW))
    assert worst(whole) <= CAP * (1 + 1e-6)
    assert found.rmse == pytest.approx(whole.rmse, rel=1e-3)


def test_what_is_asked_of_several_tables_keeps_the_limits_of_all(connection: Connection) -> None:
    few = ("SELECT COUNT(*) AS n FROM t", "SELECT COUNT(DISTINCT pid) AS n FROM t WHERE d < 2")
    many = "SELECT wide, COUNT(*) AS n FROM v GROUP BY wide"
    assert worst(connection.explain(";".join([*few, many]))) <= CAP * (1 + 1e-5)


def test_sums_and_counts_of_different_values_share_evenly(connection: Connection) -> None:
    """Before: the sum had a tenth, and 9.4 times the error that it has by itself."""
    script = "SELECT COUNT(DISTINCT d) AS n, SUM(DISTINCT d) AS s FROM t"
    compiled = connection.engine.compile(parse_script(script))
    planned = request.make_plan(request.Request(compiled, Fraction(1), Fraction(0), "laplace"))
    assert [float(part.amount) for part in planned.plan.parts] == pytest.approx([0.5] * 2, rel=0.01)


@pytest.mark.parametrize("seed", range(20))
def test_parts_of_a_budget_are_the_best_that_have_the_least(seed: int) -> None:
    random = np.random.default_rng(seed)
    count = int(random.integers(1, 6))
    errors = np.exp(random.normal(0, 4, count))
    least = random.dirichlet(np.ones(count)) * random.choice([0.2, 0.7, 1.0, 1.5])
    for noise, power in ((LAPLACE.name, -2), (GAUSSIAN.name, -1)):
        shares = np.array(
            [*map(float, split_amount(Fraction(1), errors.tolist(), noise, least.tolist()))]
        )
        assert sum(split_amount(Fraction(3), errors.tolist(), noise, least.tolist())) == 3
        fewest = least / max(1.0, least.sum())
        assert (shares >= fewest - 2 * count / SHARE_GRID).all()
        best = float((errors * shares**power).sum())
        for _ in range(50):
            others = fewest + random.dirichlet(np.full(count, 0.3)) * (1 - fewest.sum())
            if others.min() > 0:
                assert best <= float((errors * others**power).sum()) * (1 + 1e-3)


def test_least_shares_may_come_to_one_but_for_rounding() -> None:
    """Sixty statements could not be planned where the sum was the next number below one."""
    random = np.random.default_rng(133)
    for _ in range(3000):
        count = int(random.integers(2, 9))
        least = random.dirichlet(np.ones(count)) * (1 - random.choice([0, 1e-16, 1e-15, 1e-12]))
        errors = random.choice([0.0, 1.0, 1e-9, 1e9], size=count) * random.random(count)
        for noise in (LAPLACE.name, GAUSSIAN.name):
            error = shared_error(errors.tolist(), least.tolist(), noise)
            assert error >= 0 or sum(least) > 1
            amounts = split_amount(Fraction(1), errors.tolist(), noise, least.tolist())
            assert sum(amounts) == 1
            assert min(amounts) > 0


def test_halves_part_where_rows_grow_most() -> None:
    random = np.random.default_rng(5)
    for _ in range(100):
        rows = sorted(random.integers(1, 1000, int(random.integers(2, 9))).tolist())
        cut = division._widest(rows)
        steps = [math.log(after / before) for before, after in pairwise(rows)]
        assert 0 < cut < len(rows)
        assert max(steps) == 0 or steps[cut - 1] == max(steps)


@pytest.mark.parametrize(
    ("least", "errors", "foreseen", "parted"),
    [
        ((0.2, 0.9), (1.0, 16.0), 30.0, True),
        ((0.2, 0.9), (1.0, 16.0), 20.0, False),
        ((0.2, 0.7), (1.0, 16.0), 30.0, False),
        ((0.05, 0.9), (16.0, 1.0), 30.0, True),
        ((0.05, 0.9), (16.0, 1.0), 20.0, False),
        ((0.05, 0.3), (16.0, 1.0), 30.0, False),
        ((0.05, 0.9), (16.0, 0.0), 30.0, True),
    ],
)
def test_the_piece_whose_limits_take_the_most_is_parted(
    least: tuple[float, ...],
    errors: tuple[float, ...],
    foreseen: float,
    parted: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where all together are beyond the limits, or where those of one take from another.

    Errors of 1 and 16 with parts of 2/11 and 9/11 come to 5.5 + 19.6, with the best parts to 25.
    With .1 and .9 those of 16 and 1 come to 161, with .7 and .3 to 26.2.
    """
    target = SimpleNamespace(asked={1, 2})
    pieces: list[Any] = [
        SimpleNamespace(
            least=part, target=target, noise=GAUSSIAN.name, chosen=SimpleNamespace(error=error)
        )
        for part, error in zip(least, errors, strict=True)
    ]
    found: list[Any] = ["few", "many"]
    monkeypatch.setattr(division, "_parted", lambda piece, *_: [piece.least, *found])
    monkeypatch.setattr(division, "eased", lambda groups: groups)
    monkeypatch.setattr(division, "_shared", lambda groups: -len(groups[0]))
    expected = [pieces[0], 0.9, *found] if parted else pieces
    assert division._leaner(pieces, lambda *_: found[0], foreseen) == expected
