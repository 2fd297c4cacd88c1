"""FROM and JOIN as they are read, and what names stand for."""

from __future__ import annotations

import pytest
from sqlglot import exp, parse_one

from dpsql.errors import Error, Span
from dpsql.sql.names import Names, find_alias, position_of
from dpsql.sql.relations import Field, find_clause, read_from, read_literal, renamed

HERE = Span("", 0, 0)


def names() -> Names:
    """Two tables: ``a`` with x, y and a hidden unit, ``b`` with y, z and another column unit."""
    found = Names(lambda _: HERE)
    for alias, columns in (("a", ("x", "y", "unit")), ("b", ("y", "z", "Unit", "z"))):
        fields = [Field(n, exp.column(n, alias), hidden=n == "unit") for n in columns]
        found.add(alias, fields, exp.column(alias))
    return found


def test_elements_of_from_carry_their_joins() -> None:
    tree = parse_one(
        "SELECT 1 FROM t, (SELECT 2) AS Q LEFT OUTER JOIN v AS w USING (k) ASOF JOIN u ON a < b",
        read="duckdb",
    )
    found = read_from(tree)
    assert [each.alias for each in found] == ["t", "q", "w", "u"]
    joins = [each.join for each in found[1:]]
    assert found[0].join is None
    assert [join.is_plain for join in joins if join is not None] == [True, True, False]
    assert [(j.side, j.kind, j.method) for j in joins if j is not None] == [
        ("", "", ""),
        ("LEFT", "OUTER", ""),
        ("", "", "ASOF"),
    ]
    assert [[c.name for c in j.using] for j in joins if j is not None] == [[], ["k"], []]
    assert read_from(parse_one("SELECT 1")) == ()


def test_a_clause_that_is_not_known_is_named() -> None:
    table = parse_one("SELECT 1 FROM t TABLESAMPLE 10%", read="duckdb").find(exp.Table)
    assert table is not None
    found = find_clause(table)
    assert found is not None
    assert found[:2] == ("E_SAMPLE", "sampling")
    assert find_clause(exp.to_table("t")) is None


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("x", (0, 0)),
        ("X", (0, 0)),
        ("a.y", (0, 1)),
        ("b.y", (1, 0)),
        ("b.unit", (1, 2)),
        ("c", None),
    ],
)
def test_a_name_has_one_place(name: str, place: tuple[int, int] | None) -> None:
    assert names().place(exp.column(*reversed(name.split(".")))) == place


@pytest.mark.parametrize("name", ["y", "unit", "z", "b.z"])
def test_a_name_of_several_columns_is_refused(name: str) -> None:
    with pytest.raises(Error, match="is ambiguous"):
        names().place(exp.column(*reversed(name.split("."))))


def test_using_merges_a_name_and_the_first_tables_are_looked_at_alone() -> None:
    found = names()
    assert found.find(exp.column("y"), 1) == exp.column("y", "a")
    found.shared["y"] = exp.column("both")
    assert found.find(exp.column("y")) == exp.column("both")
    assert found.find(exp.column("y", "b")) == exp.column("y", "b")


@pytest.mark.parametrize(
    ("name", "code"), [("c.x", "E_UNKNOWN_TABLE"), ("a.z", "E_UNKNOWN_COLUMN")]
)
def test_a_qualified_name_that_nothing_has_is_refused(name: str, code: str) -> None:
    with pytest.raises(Error) as caught:
        names().find(exp.column(*reversed(name.split("."))))
    assert caught.value.code == code
    with pytest.raises(Error, match="two tables in FROM are named 'a'"):
        names().add("a", [], exp.column("a"))


def test_positions_and_aliases() -> None:
    items = parse_one("SELECT x AS one, y").expressions
    found = [position_of(exp.Literal.number(n), len(items)) for n in ("1", "2", "3", "0", "1.5")]
    assert found == [0, 1, None, None, None]
    assert find_alias(items, exp.column("ONE")) == exp.column("x")
    assert find_alias(items, exp.column("one", "a")) is None
    assert find_alias(items, exp.column("y")) is None


def test_names_of_an_alias_come_first_and_are_not_too_many() -> None:
    alias = exp.TableAlias(this=exp.to_identifier("q"), columns=[exp.to_identifier("p")])
    assert renamed(["x", "y"], alias, lambda _: HERE) == ["p", "y"]
    with pytest.raises(Error, match="more names than columns"):
        renamed([], alias, lambda _: HERE)


@pytest.mark.parametrize("text", ["3", "-2.5", "'x'", "NULL", "TRUE"])
def test_literals_are_read(text: str) -> None:
    value = read_literal(parse_one(text), lambda node: pytest.fail(str(node)))
    assert value == {"3": 3, "-2.5": -2.5, "'x'": "x", "NULL": None, "TRUE": True}[text]
