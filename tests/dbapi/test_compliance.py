"""The public compliance suite of PEP 249 (``dbapi-compliance``), and the optional parts by hand.

The suite writes tables as it goes; here they are public tables of a catalog, written beforehand.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import dbapi20
import pytest

import dpsql
from dpsql.dbapi.connection import Connection
from dpsql.settings.table import SETTINGS

TROUBLE = "thi%s :may ca%(u)se? troub:1e"
SAMPLES = dbapi20.DatabaseAPI20Test.samples
CATALOG = """
[budget]
epsilon = 1.0
delta = 0
[table.people]
source = "people.csv"
privacy_unit = "row"
[table.people.column]
sex = { type = "text", domain = ["f", "m"] }
[table.dbapi20test_booze]
source = "booze.csv"
public = true
[table.dbapi20test_booze.column]
name = { type = "text" }
[table.dbapi20test_barflys]
source = "barflys.csv"
public = true
[table.dbapi20test_barflys.column]
name = { type = "text" }
drink = { type = "text" }
"""

WRITES = "dpsql reads tables and writes none: "
SKIPPED = {
    "test_cursor_isolation": WRITES + "a row that one cursor inserts for another",
    "test_rowcount": WRITES + "the count of inserted rows; test_counts has that of a SELECT",
    "test_executemany": WRITES + "many inserts; test_many_sets_of_parameters has the refusal",
    "test_fetchone": WRITES + "a row between two SELECTs; test_one_row has the rest",
    "test_None": WRITES + "NULL inserted; test_null has one that was read",
    "test_non_idempotent_close": "closing twice does nothing, as for files; the suite says that "
    "reasonable persons differ",
    "test_setoutputsize": "the suite leaves it to drivers; it does nothing here, as PEP 249 allows",
}


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A catalog with the tables of the suite as public ones."""
    (tmp_path / "people.csv").write_text("sex\nf\nm\nm\n")
    (tmp_path / "booze.csv").write_text("\n".join(["name", *SAMPLES, ""]))
    (tmp_path / "barflys.csv").write_text("name,drink\n")
    (tmp_path / "shop.toml").write_text(CATALOG)
    return tmp_path / "shop.toml"


class TestCompliance(dbapi20.DatabaseAPI20Test):  # type: ignore[misc]
    """The suite, with SETs in place of DDL."""

    driver = dpsql
    connect_kw_args: ClassVar[dict[str, Any]] = {"epsilon": 0.1}

    @pytest.fixture(autouse=True)
    def _open(self, shop: Path, request: pytest.FixtureRequest) -> Iterator[None]:
        if request.node.originalname in SKIPPED:
            pytest.skip(SKIPPED[request.node.originalname])
        self.connect_args = (shop,)
        self.opened: list[Connection] = []
        yield
        for each in self.opened:
            each.close()

    def _connect(self) -> Connection:
        self.opened.append(super()._connect())
        return self.opened[-1]

    def executeDDL1(self, cursor: Any) -> None:
        cursor.execute("SET epsilon = 0.1")

    executeDDL2 = executeDDL1  # noqa: N815

    def _populate(self) -> list[str]:
        return []

    def tearDown(self) -> None:
        """Nothing was created."""

    def _paraminsert(self, cur: Any) -> None:
        sql = f"SELECT name, '{TROUBLE}' FROM dbapi20test_booze WHERE name IN (?, '{TROUBLE}')"
        cur.execute(sql, ("Redback",))
        assert cur.fetchall() == [("Redback", TROUBLE)]

    def test_nextset(self) -> None:
        cursor = self._connect().executescript(
            "SELECT COUNT(*) FROM dbapi20test_booze; SELECT name FROM dbapi20test_booze"
        )
        assert cursor.fetchone() == (len(SAMPLES),)
        assert cursor.nextset()
        assert len(cursor.fetchall()) == len(SAMPLES)
        assert cursor.nextset() is None


def test_every_test_that_is_skipped_is_one_of_the_suite() -> None:
    assert all(hasattr(dbapi20.DatabaseAPI20Test, name) for name in SKIPPED)


@pytest.fixture
def connection(shop: Path) -> Iterator[Connection]:
    with dpsql.connect(shop, epsilon=0.1) as connection:
        yield connection


def test_one_row(connection: Connection) -> None:
    cursor = connection.cursor()
    for wrong in ("fetchone", "fetchmany", "fetchall"):
        with pytest.raises(connection.InterfaceError, match="E_NO_RESULT"):
            getattr(cursor, wrong)()
    cursor.execute("SET epsilon = 0.2")
    for wrong in ("fetchone", "fetchmany", "fetchall"):
        with pytest.raises(connection.Error, match="no rows to fetch"):
            getattr(cursor, wrong)()
    assert cursor.execute("SELECT name FROM dbapi20test_barflys").fetchone() is None
    cursor.execute("SELECT name FROM dbapi20test_booze WHERE name = 'XXXX'")
    assert (cursor.fetchone(), cursor.fetchone()) == (("XXXX",), None)


def test_a_refused_statement_leaves_no_rows_of_the_one_before(connection: Connection) -> None:
    cursor = connection.cursor()
    refused = ("SELECT nope FROM people", "SELECT COUNT(*) FROM people WHERE sex = ?")
    for wrong in refused:
        cursor.execute("SELECT name FROM dbapi20test_booze")
        with pytest.raises(dpsql.ProgrammingError):
            cursor.execute(wrong)
        with pytest.raises(dpsql.InterfaceError, match="E_NO_RESULT"):
            cursor.df()
        assert cursor.description is None


def test_counts(connection: Connection) -> None:
    cursor = connection.cursor()
    assert (cursor.rowcount, cursor.rownumber) == (-1, None)
    cursor.execute("SELECT name FROM dbapi20test_booze")
    assert (cursor.rowcount, cursor.rownumber) == (6, 0)
    cursor.fetchmany(4)
    assert cursor.rownumber == 4
    cursor.execute("SET epsilon = 0.2")
    assert cursor.rowcount == -1
    assert cursor.description is cursor.lastrowid is None


def test_null(connection: Connection) -> None:
    sql = "SELECT CASE WHEN name = 'XXXX' THEN name END FROM dbapi20test_booze LIMIT 1"
    assert connection.execute(sql).fetchall() == [(None,)]


def test_scrolling_and_walking(connection: Connection) -> None:
    cursor = connection.execute("SELECT name FROM dbapi20test_booze")
    assert next(cursor) == cursor.execute("SELECT name FROM dbapi20test_booze").next()
    cursor.scroll(2)
    assert cursor.fetchone() == (SAMPLES[3],)
    cursor.scroll(-4)
    assert [row[0] for row in cursor] == SAMPLES
    cursor.scroll(5, "absolute")
    assert cursor.fetchall() == [(SAMPLES[5],)]
    for value, mode in ((7, "absolute"), (-7, "relative"), (1, "relative")):
        with pytest.raises(IndexError):
            cursor.scroll(value, mode)
    with pytest.raises(dpsql.InterfaceError, match="E_SETTING"):
        cursor.scroll(0, "sideways")


def test_many_sets_of_parameters(connection: Connection) -> None:
    with pytest.raises(connection.NotSupportedError, match="would be charged by itself"):
        connection.cursor().executemany("SELECT COUNT(*) FROM people WHERE sex = ?", [("f",)])
    assert connection.budget.entries == 0


def test_what_is_said_of_a_result(connection: Connection) -> None:
    cursor = connection.execute("SELECT sex, COUNT(*) AS n FROM people GROUP BY sex")
    assert [text for _, text in cursor.messages] == list(cursor.result.notes)
    assert cursor.connection is connection


def test_a_closed_cursor_takes_nothing(connection: Connection) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT name FROM dbapi20test_booze")
    for call in (
        lambda: cursor.execute("SELECT COUNT(*) FROM people"),
        lambda: cursor.executescript("SELECT COUNT(*) FROM people"),
        cursor.fetchone,
        cursor.nextset,
        cursor.df,
    ):
        with pytest.raises(dpsql.InterfaceError, match="E_CLOSED"):
            call()
    assert connection.budget.entries == 0


@pytest.mark.parametrize("style", SETTINGS["paramstyle"].kind.known)
def test_a_connection_has_its_own_style_of_parameters(shop: Path, style: str) -> None:
    mark = {"qmark": "?", "numeric": ":1", "format": "%s", "named": ":x", "pyformat": "%(x)s"}
    quoted = TROUBLE.replace("%", "%%") if "format" in style else TROUBLE
    named = style in ("named", "pyformat")
    sql = f"SELECT '{quoted}' FROM dbapi20test_booze WHERE name = {mark[style]} -- ? %s :x"
    with dpsql.connect(shop, paramstyle=style) as connection:
        value: Any = {"x": "XXXX"} if named else ["XXXX"]
        assert connection.execute(sql, value).fetchall() == [(TROUBLE,)]


def test_an_unknown_style_is_refused(shop: Path) -> None:
    with pytest.raises(dpsql.DataError, match="one of qmark, named"):
        dpsql.connect(shop, paramstyle="dollar")


def test_names_that_do_not_fit_charge_nothing(connection: Connection) -> None:
    sql = "SELECT COUNT(*) FROM people WHERE sex = :sex"
    for wrong in ({}, {"sx": "f"}, {"sex": "f", "age": 3}, {"sex": object()}, {"sex": ["f"]}):
        with pytest.raises(dpsql.Error, match=r"parameter|E_"):
            connection.execute(sql, wrong)
    with pytest.raises(dpsql.ProgrammingError, match="did you mean 'sx'"):
        connection.execute(sql, {"sx": "f"})
    assert connection.budget.entries == 0
    connection.execute(sql, {"sex": "f"})
    assert connection.budget.entries == 1
