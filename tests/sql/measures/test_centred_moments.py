"""Means and spreads of values far from zero, against exact arithmetic."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlglot import exp, parse_one

import dpsql
from dpsql.errors import NotSupportedError
from dpsql.sql.measures.centred_moments import centred, same_but_for_little
from tests.support.seam import zero_noise

CATALOG = """
[budget]
epsilon = 10000
[table.t]
source = "t.parquet"
privacy_unit = "row"
[table.t.column]
x = {{ type = "integer", {kind} = [{low}, {high}] }}
y = {{ type = "integer", domain = [0, 4] }}
"""


def test_a_constant_is_near_the_middle() -> None:
    chosen = random.Random(0)
    for _ in range(300):
        width = chosen.choice([1, 3, 2**20, 0.25, 1e6]) * chosen.random()
        low = chosen.choice([-1, 1]) * chosen.choice([0, 1, 37.5, 2024, 2**31, 2**52])
        found, centre = centred(parse_one("x"), Mock(return_value=(low, low + width)))
        least, most = low, low + width
        if centre is None:
            assert max(-least, most) <= 2 * (most - least) or least == most
            continue
        assert isinstance(found.unnest(), exp.Sub)
        value = Fraction(float(centre.sql().strip("()")))
        middle = Fraction(least) + (Fraction(most) - Fraction(least)) / 2
        assert abs(value - middle) <= Fraction(most) - Fraction(least)


@pytest.mark.parametrize(
    ("sql", "alike"),
    [
        ("x", "x"),
        ("-x", "-x"),
        ("2 * x + 1", "2 * x + 1"),
        ("x * y", "x"),
        ("y * (x + y)", "(x + y)"),
        ("x - 33554432", None),
        ("y", None),
        ("CASE WHEN y = 1 THEN x END", None),
    ],
)
def test_what_is_all_but_the_same_is_found(sql: str, alike: str | None) -> None:
    bounds = {"x": (2.0**25, 2.0**25 + 8), "y": (0.0, 4.0)}
    found = same_but_for_little(parse_one(sql), lambda column: bounds[column.name])
    assert (None if found is None else found.sql()) == alike


@pytest.mark.parametrize("kind", ["bounds", "domain"])
@pytest.mark.parametrize("bits", [11, 31, 49])
def test_far_from_zero_moments_are_those_of_exact_arithmetic(
    bits: int, kind: str, tmp_path: Path
) -> None:
    chosen = random.Random(bits)
    low = chosen.choice([-1, 1]) * 2**bits
    xs = [low + chosen.randint(0, 16) for _ in range(800)]
    ys = [chosen.randint(0, 4) for _ in xs]
    pq.write_table(pa.table({"x": pa.array(xs, pa.int64()), "y": ys}), tmp_path / "t.parquet")
    text = CATALOG.format(kind=kind, low=low, high=low + 16)
    (tmp_path / "c.toml").write_text(text, encoding="utf-8")
    n, one, two = len(xs), sum(map(Fraction, xs)), sum(map(Fraction, ys))
    product = sum(Fraction(x) * y for x, y in zip(xs, ys, strict=True))
    wanted = {
        "AVG(x)": one / n,
        "VAR_POP(x)": sum((x - one / n) ** 2 for x in xs) / n,
        f"SUM(x - ({low}))": one - low * n,
        "COVAR_POP(x, y)": product / n - one / n * two / n,
        "REGR_AVGX(y, x)": one / n,
    }
    with zero_noise(), dpsql.connect(tmp_path / "c.toml", epsilon=1) as connection:
        result = connection.execute(f"SELECT {', '.join(wanted)} FROM t").result
        pairs = zip(wanted.items(), result.rows[0], result.stddev, strict=True)
        for (what, exact), answer, errors in pairs:
            assert errors is not None
            assert errors[0] is not None
            least = Fraction(math.ulp(float(exact)))
            assert abs(Fraction(answer) - exact) <= Fraction(errors[0]) / 50 + least, what
        (mean, *_), spread = result.stddev, 16 / n
        assert mean is not None
        assert mean[0] is not None
        assert mean[0] < 10 * spread, "the noise is that of a width, not of a magnitude"
        if bits > 24:
            with pytest.raises(NotSupportedError, match="all but the same number") as caught:
                connection.execute("SELECT SUM(x) FROM t")
            assert caught.value.span is not None


def test_whole_numbers_that_doubles_do_not_keep_are_integers_too(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1, 2], "y": [3, 4]}), tmp_path / "t.parquet")
    text = CATALOG.format(kind="domain", low=0, high=5)
    (tmp_path / "c.toml").write_text(text, encoding="utf-8")
    with zero_noise(), dpsql.connect(tmp_path / "c.toml", epsilon=1) as connection:
        asked = "SELECT COUNT(*) AS n, COUNT(*) + 9007199254740993 AS m FROM t"
        result = connection.execute(asked).result
        assert [type(each) for each in result.rows[0]] == [int, int]
        assert result.types == ("integer", "integer")
