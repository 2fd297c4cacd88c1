"""Expressions of ibis, asked as the how-to says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ibis
import pytest
from ibis import _

from dpsql.errors import NotSupportedError, ProgrammingError
from tests.support.tables import write_tables

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "tools.md"
CATALOG = """
[budget]
epsilon = 1000000
max_epsilon_per_request = 10000

[table.clinic]
source = "clinic.parquet"
privacy_unit = "row"

[table.clinic.column]
age = { type = "integer", domain = [0, 110] }
ward = { type = "text", domain = ["surgery", "medicine"] }
cost = { type = "number", bounds = [0, 100] }
day = { type = "date", domain = ["2024-01-01", "2024-01-31"] }
"""
ROWS = (
    "SELECT i % 111 AS age, CASE WHEN i % 3 = 0 THEN 'surgery' ELSE 'medicine' END AS ward,"
    " CAST(i % 50 AS DOUBLE) AS cost, DATE '2024-01-01' + CAST(i % 31 AS INTEGER) AS day"
    " FROM range(999) t(i)"
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, Any], Any]]:
    """The names of the how-to's Python after it has run, and a database with the same table."""
    folder = tmp_path_factory.mktemp("ibis")
    (code,) = re.findall(
        r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    names: dict[str, Any] = {}
    with (
        write_tables(folder, CATALOG, {"clinic": ROWS}) as database,
        pytest.MonkeyPatch.context() as p,
    ):
        (folder / "t.toml").rename(folder / "clinic.toml")
        p.setenv("XDG_STATE_HOME", str(folder / "state"))
        p.chdir(folder)
        exec(code.replace("epsilon=0.5", "epsilon=5"), names)
        with names["connection"]:
            yield names, database


QUESTIONS: tuple[Callable[[Any], Any], ...] = (
    lambda t: t.count(),
    lambda t: t.cost.sum(),
    lambda t: t.group_by("ward").agg(n=_.count(), spent=_.cost.sum()).order_by("ward"),
    lambda t: t.group_by(decade=t.age // 10 * 10).agg(n=_.count()).order_by("decade"),
    lambda t: t.filter((t.ward == "surgery") & (t.age < 50)).count(),
    lambda t: t.group_by("ward").agg(old=_.count(where=t.age > 64)).order_by("ward"),
    lambda t: t.mutate(old=t.age > 64).group_by("old").agg(n=_.count()).order_by("old"),
    lambda t: t.group_by("ward").agg(n=_.count()).filter(_.n > 400),
    lambda t: t.group_by(t.day.month().name("m")).agg(n=_.count()),
)


@pytest.mark.parametrize("number", range(len(QUESTIONS)))
def test_an_expression_has_the_answer_of_duckdb(page: Any, number: int) -> None:
    names, database = page
    expression = QUESTIONS[number](names["clinic"])
    sql = str(ibis.to_sql(expression.as_table(), dialect="duckdb"))
    wanted = database.execute(sql).fetchall()
    found = names["connection"].execute(sql).result
    assert len(found.rows) == len(wanted)
    for i, (mine, exact) in enumerate(zip(found.rows, wanted, strict=True)):
        for one, other, errors in zip(mine, exact, found.stddev, strict=True):
            near = 0 if errors is None else 15 * errors[i] + 1e-6  # Laplace: once in 10^9
            assert one == other if errors is None else abs(one - other) <= near
    assert any(name.endswith("_stddev") for name in names["run"](expression).columns)


def test_columns_are_those_of_the_catalog(page: Any) -> None:
    names, _database = page
    kinds = {name: str(kind) for name, kind in names["clinic"].schema().items()}
    assert kinds == {"age": "int64", "ward": "string", "cost": "float64", "day": "date"}


def test_what_cannot_be_answered_is_refused(page: Any) -> None:
    names, _database = page
    with pytest.raises((NotSupportedError, ProgrammingError), match="rows"):
        names["run"](names["clinic"])
