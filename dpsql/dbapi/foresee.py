"""Foresight of a SELECT: names and types of its columns, told without asking it."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from dpsql.answer.assemble import assemble_results
from dpsql.answer.result import Result
from dpsql.dbapi.reflect import asked_columns
from dpsql.engine.desk import Desk
from dpsql.engine.terms import Terms, form_request
from dpsql.errors import ProgrammingError
from dpsql.sql.constants import constants_of
from dpsql.sql.lexemes import split_statements
from dpsql.sql.parse import Statement, check_limits


class Foreseen(NamedTuple):
    """A column of a result: its name, its type as in ``Result.types``, and whether it is noisy."""

    name: str
    type: str
    noisy: bool


def foresee(desk: Desk, text: str) -> tuple[Foreseen, ...]:
    """The columns that one SELECT would return.

    Guarantee: a function of public facts alone; nothing is planned, charged or measured.
    Raises: ProgrammingError, NotSupportedError.
    """
    fragments = split_statements(text)
    if len(fragments) != 1:
        raise ProgrammingError("E_PARSE", "one statement can be described at a time")
    asked = asked_columns(desk.known, fragments[0].body)
    if asked is not None:
        return tuple(
            Foreseen(*each, False) for each in zip(asked.columns, asked.types, strict=True)
        )
    statement = desk.read(fragments[0])
    if statement.kind == "constant":
        said = constants(statement)
        return tuple(Foreseen(*each, False) for each in zip(said.columns, said.types, strict=True))
    if statement.kind != "select" or statement.explain:
        raise ProgrammingError("E_STATEMENT", "only a SELECT can be described")
    compiled = desk.compile([statement])
    terms = Terms(desk.catalog.budget.max_epsilon_per_request)
    request = form_request(compiled, terms, Fraction(1), desk.sealed)
    (found,) = assemble_results(request, {}, {}, None, None, desk.sealed, desk.models)
    noisy = [each is not None for each in found.stddev]
    return tuple(map(Foreseen, found.columns, found.types, noisy))


def constants(statement: Statement) -> Result:
    """Return the result of a SELECT of constants alone."""
    found = constants_of(check_limits(statement.fragment))
    names, types = tuple(each.name for each in found), tuple(each.type for each in found)
    row = tuple(each.value for each in found)
    return Result(names, types, (row,), (None,) * len(row), statement.fragment.body)
