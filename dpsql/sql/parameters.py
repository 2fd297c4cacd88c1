"""``?`` marks -> literals: parameters are written into the text before it is planned."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal

from dpsql.errors import InterfaceError, ProgrammingError
from dpsql.sql.lexemes import lex
from dpsql.sql.parse import MAX_NUMBER


def bind_parameters(text: str, parameters: Sequence[object]) -> str:
    """Replace every ``?`` outside quotes and comments by a literal, in order.

    Raises: ProgrammingError (E_PARSE, E_LITERAL) when the counts differ or a value has no literal
    form; InterfaceError (E_PARSE) when the parameters are not a sequence.

    >>> bind_parameters("SELECT COUNT(*) FROM t WHERE a = ? AND b = '?'", ["it's"])
    "SELECT COUNT(*) FROM t WHERE a = 'it''s' AND b = '?'"
    """
    if isinstance(parameters, str | bytes | Mapping) or not isinstance(parameters, Iterable):
        raise InterfaceError("E_PARSE", "parameters must be a sequence, one value for every ?")
    values = list(parameters)
    parts: list[str] = []
    for lexeme in lex(text):
        if lexeme.kind == "symbol" and lexeme.text == "?":
            if not values:
                raise ProgrammingError("E_PARSE", "more ? marks than parameters")
            parts.append(render_literal(values.pop(0)))
        else:
            parts.append(lexeme.text)
    if values:
        raise ProgrammingError("E_PARSE", f"{len(values)} parameters too many for the ? marks")
    return "".join(parts)


def render_literal(value: object) -> str:
    """Write a Python value as a SQL literal.

    Raises: ProgrammingError (E_LITERAL) for numbers too long or not finite, (E_PARSE) for others.
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int() if abs(value) < 10**MAX_NUMBER:
            digits = int.__repr__(value)
            return digits if value >= 0 else f"({digits})"
        case float() if math.isfinite(value):
            return f"({float.__repr__(value)})"
        case Decimal() if value.is_finite() and abs(value.adjusted()) < MAX_NUMBER:
            return f"({value:f})"
        case int() | float() | Decimal():
            raise ProgrammingError("E_LITERAL", "a number parameter is too long or not finite")
        case str():
            return "'" + value.replace("'", "''") + "'"
        case dt.datetime():
            return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
        case dt.date():
            return f"DATE '{value.isoformat()}'"
    plain = _plain(value)
    if type(plain) is not type(value):
        return render_literal(plain)
    raise ProgrammingError("E_PARSE", f"a {type(value).__name__} cannot be a parameter")


def _plain(value: object) -> object:
    """The Python value of a numpy scalar; anything else as it is."""
    item = getattr(value, "item", None)
    try:
        return item() if callable(item) else value
    except (TypeError, ValueError):
        return value
