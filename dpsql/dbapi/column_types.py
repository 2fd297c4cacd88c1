"""Names and types of the columns of a SELECT, worked out without running it."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from dpsql.answer.assemble import assemble_results
from dpsql.answer.result import Result
from dpsql.answer.sql_types import told
from dpsql.dbapi.reflection import empty_answer
from dpsql.engine.planner import Planner
from dpsql.engine.terms import Terms
from dpsql.errors import ProgrammingError
from dpsql.records import replace
from dpsql.sql.text.constant_selects import constants_of
from dpsql.sql.text.lexemes import split_statements
from dpsql.sql.text.parse import Statement, check_limits


class ColumnTypes(NamedTuple):
    """A column of a result: its name, its type as in ``Result.types``, and whether it is noisy.

    ``own`` is what a dialect of its own calls the type.
    """

    name: str
    type: str
    noisy: bool
    own: str | None = None


def foresee(planner: Planner, text: str, dialect: str = "duckdb") -> tuple[ColumnTypes, ...]:
    """The columns that one SELECT would return.

    Args:
        planner: it knows the catalog, and releases nothing.
        text: one statement, whose parameters are bound.
        dialect: that the statement is read in.

    Guarantee: a function of public facts alone; nothing is planned, charged or measured.
    Raises: ProgrammingError, NotSupportedError.
    """
    fragments = split_statements(text)
    if len(fragments) != 1:
        raise ProgrammingError("E_PARSE", "one statement can be described at a time")
    statement = planner.read(fragments[0], dialect)
    if statement.kind in ("constant", "empty"):
        said = constants(statement) if statement.kind == "constant" else empty_answer(statement)
        noisy: list[bool] = [False] * len(said.columns)
        return _foreseen(said, noisy)
    if statement.kind != "select" or statement.explain:
        raise ProgrammingError("E_STATEMENT", "only a SELECT can be described")
    compiled = planner.compile([statement])
    terms = Terms(planner.catalog.budget.max_epsilon_per_request)
    request = planner.ask(compiled, terms, Fraction(1))
    (found,) = assemble_results(request, {}, {}, None, None, planner.sealed, planner.models)
    return _foreseen(found, [each is not None for each in found.stddev])


def _foreseen(found: Result, noisy: Sequence[bool]) -> tuple[ColumnTypes, ...]:
    own = found.typed or (None,) * len(noisy)
    return tuple(map(ColumnTypes, found.columns, found.types, noisy, own))


def constants(statement: Statement) -> Result:
    """Return the result of a SELECT of constants alone."""
    found = constants_of(check_limits(statement.fragment))
    names, types = tuple(each.name for each in found), tuple(each.type for each in found)
    row, sql = tuple(each.value for each in found), statement.fragment.body
    result = Result.of_rows(names, types, (row,), (None,) * len(row), sql)
    reader = statement.fragment.reader
    columns = None if reader is None else reader.read(sql, statement.fragment).columns
    if columns is None or len(columns) != len(row):
        return result
    result = replace(result, columns=tuple(each.name for each in columns))
    none = (False,) * len(row)
    return told(result, none, none, [each.type for each in columns])
