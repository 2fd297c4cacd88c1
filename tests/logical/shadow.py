"""The binder in the shadow of DuckDB's: what either accepts of the statements of the gate.

No user sees it. DuckDB binds a statement without asking a row of anything (DESCRIBE).
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
from sqlglot import exp

from dpsql.errors import Error
from dpsql.logical.bind.binder import bind_query
from dpsql.logical.bind.scope import NotYetBoundError, SchemaColumn
from dpsql.logical.expressions import ColumnId, columns_in
from dpsql.logical.nodes import (
    BoundStatement,
    LogicalApply,
    Plan,
    columns_of,
    expressions_of,
    inputs_of,
)
from dpsql.sql.text.lexemes import Fragment, split_statements
from dpsql.sql.text.parse import Statement, parse
from tests.gate.record import FEW, key_of, opened
from tests.gate.worlds import worlds
from tests.logical.planned import walk_plan

UNBOUND = Path(__file__).with_name("unbound.txt")
NAMES = ("Referenced column", "Referenced table", "Ambiguous reference", "does not have a column")
"""What DuckDB says of a name that stands for nothing, or for one thing or another."""
GROUPS = ("must appear in the GROUP BY", "cannot contain aggregate", "cannot contain window")
"""What it says of a column that is no key, and of aggregates and windows in the wrong clause."""


class StoredSchema:
    """The tables and views of a database, whose columns all show."""

    def __init__(self, database: duckdb.DuckDBPyConnection) -> None:
        self._columns: dict[str, list[SchemaColumn]] = {}
        rows = database.execute(
            "SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal"
            " AND database_name = current_database() ORDER BY table_name, column_index"
        )
        for table, column in rows.fetchall():
            self._columns.setdefault(table.casefold(), []).append(SchemaColumn(column))

    def columns(self, table: str) -> Sequence[SchemaColumn] | None:
        """The columns of a table or a view."""
        return self._columns.get(table.rpartition(".")[2])

    def every_column(self) -> set[str]:
        """The names of all columns."""
        return {each.name for columns in self._columns.values() for each in columns}

    def most_rows(self, view: str) -> int | None:
        """None: no view here declares it."""
        return None


@dataclass(frozen=True, slots=True)
class Shadowed:
    """A statement that DuckDB binds, its plan or why there is none, and DuckDB's columns."""

    name: str
    sql: str
    plan: BoundStatement | None
    why: str
    columns: tuple[str, ...]
    tree: exp.Query


def described(database: duckdb.DuckDBPyConnection, sql: str) -> tuple[str, ...] | str:
    """The names of the columns of a statement, or what DuckDB refuses it by."""
    try:
        return tuple(row[0] for row in database.execute(f"DESCRIBE {sql}").fetchall())
    except duckdb.Error as error:
        return str(error)


def bound(tree: exp.Expr, schema: StoredSchema, fragment: Fragment) -> BoundStatement | str:
    """The plan of a statement, or why there is none: a code, or a form beyond the binder."""
    try:
        return bind_query(tree, schema, fragment)
    except NotYetBoundError as error:
        return f"beyond: {error}"
    except Error as error:
        return error.code


def shadowed(
    every: int = 1, names: Collection[str] = (), seed: int = 0
) -> Iterator[tuple[Shadowed, duckdb.DuckDBPyConnection]]:
    """The statements of the gate that DuckDB binds, one in ``every``, each with its database."""
    draw = random.Random(f"shadow {seed}")
    for world in worlds():
        apart, together = len(world.asked) > FEW, draw.random() * every < 1
        chosen = [s for s in world.asked if (draw.random() * every < 1 if apart else together)]
        if not chosen or (names and world.name not in names):
            continue
        with opened(world) as (_, database):
            schema = StoredSchema(database)
            for sql in chosen:
                statement = _parsed(sql)
                columns = None if statement is None else described(database, statement.sql)
                if statement is None or not isinstance(columns, tuple):
                    continue
                assert statement.tree is not None
                found = bound(statement.tree.copy(), schema, statement.fragment)
                plan = None if isinstance(found, str) else found
                why = found if isinstance(found, str) else ""
                name = key_of(world.name, sql)
                yield Shadowed(name, sql, plan, why, columns, statement.tree), database


def _parsed(sql: str) -> Statement | None:
    try:
        (fragment,) = split_statements(sql)
        statement = parse(fragment)
    except (Error, ValueError):
        return None
    return statement if statement.tree is not None and statement.kind == "select" else None


def misplaced(statement: BoundStatement) -> list[str]:
    """The expressions of a plan that mention a column which nothing below them has."""
    given = {column for _, column in statement.shown} - set(columns_of(statement.plan))
    found = [f"shown {sorted(given)}"] if given else []
    _check(statement.plan, frozenset(), found)
    numbers = [column for plan in _once(statement.plan) for column in _made(plan)]
    return [*found, *(["a column is made twice"] if len(set(numbers)) < len(numbers) else [])]


def _check(plan: Plan, parameters: frozenset[ColumnId], found: list[str]) -> None:
    below = parameters.union(*(columns_of(each) for each in inputs_of(plan)))
    if isinstance(plan, LogicalApply):
        below = parameters.union(columns_of(plan.left))
        _check(plan.left, parameters, found)
        _check(plan.right, frozenset(column for column, _ in plan.parameters), found)
    else:
        for each in inputs_of(plan):
            _check(each, parameters, found)
    for expression in expressions_of(plan):
        missing = [ref.column for ref in columns_in(expression) if ref.column not in below]
        if missing:
            found.append(f"{type(plan).__name__} {missing}")


def _once(plan: Plan) -> list[Plan]:
    """The operators of a plan, what is shared once."""
    return list({id(each): each for each in walk_plan(plan)}.values())


def _made(plan: Plan) -> list[ColumnId]:
    """The columns that an operator has and those below it do not."""
    below = {column for each in inputs_of(plan) for column in columns_of(each)}
    return [column for column in columns_of(plan) if column not in below]


def read_unbound() -> dict[str, str]:
    """Statements that DuckDB binds and the binder does not, by their keys, each with why."""
    rows = UNBOUND.read_text("utf-8").splitlines()
    return {name: why for name, _, why in (row.partition(" ") for row in rows)}


def write_unbound() -> tuple[int, int]:
    """Write the list of these anew; return how many DuckDB binds, and how many are not bound."""
    found = [each for each, _ in shadowed()]
    rows = [f"{each.name} {each.why}\n" for each in found if each.plan is None]
    UNBOUND.write_text("".join(rows), encoding="utf-8")
    return len(found), len(rows)


def mutants(tree: exp.Query, names: Sequence[str], draw: random.Random) -> Iterator[exp.Query]:
    """The same statement with something else named, or something in another clause.

    One column has another name, or the table of another; a key of GROUP BY is left out, or what is
    shown is a condition.
    """
    columns = [each for each in tree.find_all(exp.Column) if isinstance(each.this, exp.Identifier)]
    tables = sorted({each.table for each in columns} | {"nobody"} - {""})
    if columns:
        for name, table in (
            (draw.choice(names), None),
            ("nothing", None),
            (None, draw.choice(tables)),
        ):
            other = tree.copy()
            found = [e for e in other.find_all(exp.Column) if isinstance(e.this, exp.Identifier)]
            chosen = draw.choice(found)
            if name is not None:
                chosen.set("this", exp.to_identifier(name))
            if table:
                chosen.set("table", exp.to_identifier(table))
            yield other
    other = tree.copy()
    groups = [each for each in other.find_all(exp.Group) if each.expressions]
    if groups:
        draw.choice(groups).expressions.pop()
        yield other
    other = tree.copy()
    selects = [each for each in other.find_all(exp.Select) if each.args.get("from_")]
    if selects:
        select = draw.choice(selects)
        shown = [each.unalias() for each in select.expressions if not each.is_star]
        if shown:
            select.where(exp.Is(this=draw.choice(shown).copy(), expression=exp.null()), copy=False)
            yield other


def is_of_names(refusal: str) -> bool:
    """Whether DuckDB refuses a statement for what the binder is about: names and groups."""
    return any(word in refusal for word in (*NAMES, *GROUPS))
