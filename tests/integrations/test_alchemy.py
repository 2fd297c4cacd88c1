"""The dialect of SQLAlchemy, with pandas over it and the statements that tools write."""

from __future__ import annotations

import tomllib
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import registry

import dpsql
from dpsql.integrations.alchemy import DpsqlDialect

ROOT = Path(__file__).parents[2]
CATALOG = """
[budget]
epsilon = 50.0
delta = 0
[analyst.ana]
epsilon = 40.0
[view.adults]
sql = "SELECT sex, site, age FROM people WHERE age >= 4"
[view.everybody]
sql = "SELECT * FROM people"
[table.people]
source = "people.csv"
privacy_unit = { column = "person", max_rows = 2 }
[table.people.column]
sex = { type = "text", domain = ["f", "m"] }
site = { type = "text", domain = ["north", "east", "south"], null = true }
age = { type = "integer", domain = [0, 7] }
seen = { type = "date", domain = ["2024-01-01", "2024-12-31"], by = "month" }
pay = { type = "number", bounds = [0, 9] }
"""


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    site = ("north", "east", "south")
    lines = [f"{i // 2},{'fm'[i % 2]},{site[i % 3]},{i % 8},2024-02-01,{i % 7}" for i in range(240)]
    (tmp_path / "people.csv").write_text("\n".join(["person,sex,site,age,seen,pay", *lines, ""]))
    (tmp_path / "people.toml").write_text(CATALOG)
    return tmp_path / "people.toml"


@pytest.fixture
def engine(catalog: Path) -> Iterator[sa.Engine]:
    registry.register("dpsql", "dpsql.integrations.alchemy", "DpsqlDialect")
    found = sa.create_engine(f"dpsql:///{catalog}?epsilon=1&analyst=ana&noise=laplace")
    yield found
    found.dispose()


def test_the_dialect_is_an_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    place = project["entry-points"]["sqlalchemy.dialects"]["dpsql"]
    assert place == f"{DpsqlDialect.__module__}:{DpsqlDialect.__name__}"
    assert {"sqlalchemy", "plot", "notebook", "arrow", "polars"} <= {
        *project["optional-dependencies"]
    }


def test_reflection(engine: sa.Engine) -> None:
    found = sa.inspect(engine)
    assert found.get_table_names() == ["people"]
    assert found.get_view_names() == ["adults", "everybody"]
    assert found.get_schema_names() == ["main"]
    assert found.has_table("PEOPLE")
    assert not found.has_table("person")
    columns = {each["name"]: each for each in found.get_columns("people")}
    assert [*columns] == ["person", "sex", "site", "age", "seen", "pay"]
    kinds = [type(each["type"]).__name__ for each in columns.values()]
    assert kinds == ["Text", "Text", "Text", "BigInteger", "Date", "Double"]
    assert columns["age"]["comment"] == "0 to 7"
    assert [each["nullable"] for each in columns.values()] == [True, False, True, *[False] * 3]
    assert [each["name"] for each in found.get_columns("adults")] == ["sex", "site", "age"]
    assert isinstance(found.get_columns("adults")[2]["type"], sa.BigInteger)
    assert len(found.get_columns("everybody")) == 6
    assert "age >= 4" in (found.get_view_definition("adults") or "")
    assert found.get_table_comment("people")["text"] == "privacy unit: person, at most 2 rows"
    assert found.get_pk_constraint("people")["constrained_columns"] == []
    assert not found.get_foreign_keys("people")
    assert not found.get_indexes("people")
    for missing in (found.get_columns, found.get_view_definition):
        with pytest.raises(sa.exc.NoSuchTableError):
            missing("nothing")
    tables = sa.MetaData()
    tables.reflect(engine, views=True)
    assert {*tables.tables} == {"people", "adults", "everybody"}


def test_expressions_become_statements(engine: sa.Engine) -> None:
    people = sa.Table("people", sa.MetaData(), autoload_with=engine)
    counted = (
        sa.select(people.c.sex, sa.func.count().label("n"))
        .where(people.c.age.between(1, 6), people.c.site.in_(["north", "east"]))
        .group_by(people.c.sex)
    )
    below = counted.subquery()
    statements: list[tuple[Any, int]] = [
        (counted.order_by(sa.desc("n")).limit(1), 1),
        (sa.select(sa.func.sum(below.c.n), sa.func.max(below.c.n)), 1),
        (sa.select(sa.func.count(sa.case((people.c.age > 4, 1)))).select_from(people), 1),
        (sa.select(people.c.site, sa.func.count()).group_by(people.c.site).offset(1), 3),
        (sa.text("SELECT COUNT(*) FROM main.people WHERE sex = :s").bindparams(s="f"), 1),
    ]
    with engine.connect() as connection:
        connection.execute(sa.text("SET mechanism = 'identity'"))
        for statement, count in statements:
            assert len(connection.execute(statement).all()) == count


def test_pandas_reads_and_refusals_keep_their_words(engine: sa.Engine) -> None:
    sql = "SELECT sex, COUNT(*) AS n FROM people WHERE age < :age GROUP BY sex"
    frame = pd.read_sql(sql, engine, params={"age": 5})
    assert str(frame.n.dtype) == "int64"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pd.read_sql(sa.text(sql), engine, params={"age": 5}).equals(frame)
    with pytest.raises(pd.errors.DatabaseError, match="did you mean people") as caught:
        pd.read_sql("SELECT COUNT(*) FROM peple", engine)
    cause = caught.value.__cause__
    assert isinstance(cause, sa.exc.ProgrammingError)
    assert isinstance(cause.orig, dpsql.ProgrammingError)
    table = sa.Table("people", sa.MetaData(), autoload_with=engine)
    with engine.connect() as connection:
        for statement, kind in (
            (sa.select(table.c.age), sa.exc.ProgrammingError),
            (table.insert().values(age=3), sa.exc.NotSupportedError),
            (sa.text("DROP TABLE people"), sa.exc.NotSupportedError),
        ):
            with pytest.raises(kind):
                connection.execute(statement)
        assert connection.connection.dbapi_connection.budget.entries == 1  # type: ignore[union-attr]


def test_tools_ask_for_columns_with_no_rows_and_wrap_what_people_write(engine: sa.Engine) -> None:
    raw = engine.raw_connection()
    cursor: Any = raw.cursor()
    asked = ("SELECT * FROM people LIMIT 0", 'select * from "people" where 1=0')
    for sql in (*asked, "SELECT * FROM people WHERE age=0 LIMIT 0"):
        cursor.execute(sql)
        assert [each[0] for each in cursor.description][1:3] == ["sex", "site"]
        assert cursor.fetchall() == []
    with pytest.raises(dpsql.Error):
        cursor.execute("SELECT * FROM people LIMIT 1")
    assert raw.dbapi_connection.budget.entries == 0  # type: ignore[union-attr]
    inner = "SELECT site, COUNT(*) AS n FROM people GROUP BY site"
    cursor.execute(f"SELECT * FROM ({inner}) AS virtual_table LIMIT 1001")
    assert len(cursor.fetchall()) == 4
    raw.close()


@pytest.mark.parametrize(
    ("how", "columns"), [("on", ["sex", "n", "n_stddev"]), ("text", ["sex", "n"])]
)
def test_errors_beside_numbers(catalog: Path, how: str, columns: list[str]) -> None:
    registry.register("dpsql", "dpsql.integrations.alchemy", "DpsqlDialect")
    url = f"dpsql:///{catalog}?epsilon=1&analyst=ana&show_stddev={how}"
    engine = sa.create_engine(url)
    frame = pd.read_sql("SELECT sex, COUNT(*) AS n FROM people GROUP BY sex", engine)
    engine.dispose()
    assert list(frame.columns) == columns
    if how == "text":
        assert frame.n.str.fullmatch(r"-?\d+ ± \d+\.\d").all()


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("?epsilo=1", "did you mean epsilon"),
        ("?seed=1", "unknown option 'seed'"),
        ("?paramstyle=format", "unknown option"),
        ("?epsilon=1&epsilon=2", "stands twice"),
    ],
)
def test_unknown_options_are_refused_before_anything_opens(query: str, said: str) -> None:
    registry.register("dpsql", "dpsql.integrations.alchemy", "DpsqlDialect")
    with pytest.raises(sa.exc.ArgumentError, match=said):
        sa.create_engine(f"dpsql:///none.toml{query}")


@pytest.mark.parametrize("url", ["dpsql://", "dpsql://host/x.toml", "dpsql://ana@/x.toml"])
def test_other_places_are_refused(url: str) -> None:
    registry.register("dpsql", "dpsql.integrations.alchemy", "DpsqlDialect")
    with pytest.raises(sa.exc.ArgumentError, match=r"dpsql:///catalog\.toml"):
        sa.create_engine(url)


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("?epsilon=frog&analyst=ana", "E_EPSILON"),
        ("?epsilon=1", "E_ANALYST"),
        ("?mechanism=magic&analyst=ana", "E_SETTING"),
        ("?show_stddev=perhaps&analyst=ana", "E_SETTING"),
    ],
)
def test_wrong_values_are_typed_errors(catalog: Path, query: str, code: str) -> None:
    registry.register("dpsql", "dpsql.integrations.alchemy", "DpsqlDialect")
    engine = sa.create_engine(f"dpsql:///{catalog}{query}")
    with pytest.raises(sa.exc.DBAPIError, match=code):
        engine.connect()


def test_a_missing_catalog_is_named(tmp_path: Path) -> None:
    registry.register("dpsql", "dpsql.integrations.alchemy", "DpsqlDialect")
    with pytest.raises(sa.exc.ProgrammingError, match="there is no such file"):
        sa.create_engine(f"dpsql:///{tmp_path}/none.toml").connect()


def test_a_closed_connection_is_replaced(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        connection.connection.dbapi_connection.close()  # type: ignore[union-attr]
        with pytest.raises(sa.exc.InterfaceError) as caught:
            connection.execute(sa.text("SHOW tables"))
        assert caught.value.connection_invalidated
    with engine.connect() as connection:
        assert connection.execute(sa.text("SHOW tables")).scalar() == "people"


def test_threads_share_an_engine(catalog: Path) -> None:
    registry.register("dpsql", "dpsql.integrations.alchemy", "DpsqlDialect")
    url = f"dpsql:///{catalog}?epsilon=1&analyst=ana&mechanism=identity"
    engine = sa.create_engine(url)
    sql = "SELECT site, COUNT(*) AS n FROM people WHERE age < {} GROUP BY site"

    def ask(place: int) -> int:
        return len(pd.read_sql(sql.format(place), engine))

    with ThreadPoolExecutor(3) as pool:
        assert [*pool.map(ask, range(2, 6))] == [4] * 4
    assert ask(7) == 4
    engine.dispose()
