"""Parameters ``$1``, ``$2`` of a statement: their types, and literals in their places."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from dpsql.catalog import Catalog
from dpsql.errors import ProgrammingError
from dpsql.server.messages import ProtocolError
from dpsql.server.values import ARRAYS, TEXT_TYPE, wire_type
from dpsql.sql.rewrites.qualified import find_key
from dpsql.sql.text.lexemes import Lexeme, lex, render_literal
from dpsql.sql.text.table_mentions import parameters_of, tables_of

MOST = 10_000
"""Parameters of one statement."""


def numbers(text: str) -> list[int]:
    """The numbers of the parameters of a text, in its order. Raises: ProtocolError.

    >>> numbers("SELECT '$9' WHERE a = $2 AND b = $1")
    [2, 1]
    """
    return [number for _, _, number in _marks(text)]


def _marks(text: str) -> list[tuple[Lexeme, Lexeme, int]]:
    found = []
    lexemes = lex(text)
    for left, right in itertools.pairwise(lexemes):
        if left.text == "$" and left.kind == "symbol" and right.kind == "number":
            if not (right.text.isdigit() and 0 < int(right.text[:6]) <= MOST):
                raise ProtocolError(f"there is no parameter ${right.text[:20]}", "42P02")
            found.append((left, right, int(right.text)))
    return found


def types_of(text: str, given: Sequence[int], known: Catalog) -> list[int]:
    """The number of the type of every parameter: as given, else that of the column beside it.

    Args:
        text: statement with parameters $1, $2, ...
        given: OIDs that the client has declared; 0 for those that it left open.
        known: declared columns, beside which a parameter takes their type.
    """
    count = max([len(given), *numbers(text)])
    found = [*given, *[0] * (count - len(given))]
    places = parameters_of(text) if 0 in found else {}
    for position in range(count):
        if not found[position]:
            place, name = places.get(position + 1, ("", ""))
            found[position] = 20 if place == "limit" else _type_of(text, name, known)
            if place == "list":
                found[position] = ARRAYS[found[position]]
    return found


def _type_of(text: str, name: str, known: Catalog) -> int:
    """The type of a column that the tables of a query have; text where none has it."""
    for parts in tables_of(text) or ():
        table = known.tables.get(find_key(parts, known) or "")
        column = None if table is None else table.columns.get(name.casefold())
        if column is not None:
            return wire_type(column.type).oid
    return TEXT_TYPE


def bind(text: str, values: Sequence[object]) -> str:
    """A text with literals in place of its parameters. Raises: ProgrammingError (E_PARSE)."""
    parts, end = [], 0
    for left, right, number in _marks(text):
        if number > len(values):
            raise ProgrammingError("E_PARSE", f"there is no value for parameter ${number}")
        parts += [text[end : left.start], render_literal(values[number - 1])]
        end = right.end
    return "".join([*parts, text[end:]])


def sample(text: str, count: int) -> str:
    """A text of the same columns whatever its parameters are: NULL, 1 for limits, no list."""
    places = parameters_of(text)
    kinds = [places.get(number, ("", ""))[0] for number in range(1, count + 1)]
    known: dict[str, object] = {"limit": 1, "list": []}
    return bind(text, [known.get(each) for each in kinds])
