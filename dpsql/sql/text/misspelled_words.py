"""Refusals of words that were meant otherwise: statements, functions, texts in other quotes."""

from __future__ import annotations

from typing import NoReturn

from sqlglot import exp

from dpsql.errors import NotSupportedError, nearest, printable
from dpsql.logical.functions import nearest_function
from dpsql.sql.shell.language import Locate
from dpsql.sql.text.lexemes import Fragment, Lexeme

_STATEMENTS = {
    "explain": "EXPLAIN SELECT ..., EXPLAIN RUN WORKLOAD, EXPLAIN CREATE SYNTHETIC TABLE ...",
    "run": "BEGIN WORKLOAD; SELECT ...; RUN WORKLOAD answers several statements for one charge",
    "summarize": "DESCRIBE t says what is declared; SELECT COUNT(*), AVG(x), STDDEV(x), "
    "QUANTILE_DISC(x, [0.25, 0.5, 0.75]) FROM t counts",
    "create": "WITH v AS (SELECT ...) SELECT ... FROM v, or a view in the catalog; "
    "CREATE SYNTHETIC TABLE, CREATE DOMAIN and CREATE BOUNDS",
    "copy": "SELECT ..., whose answers dpsql run --out writes to files",
}
_STATEMENTS |= dict.fromkeys(("begin", "cancel", "commit", "start"), _STATEMENTS["run"])
_KNOWN = (
    "SELECT, EXPLAIN, SET, SHOW, DESCRIBE, BEGIN, RUN and CANCEL WORKLOAD, ROLLBACK, "
    "CREATE SYNTHETIC TABLE, MATERIALIZE SYNTHETIC TABLE, CREATE DOMAIN, "
    "CREATE BOUNDS and DROP DOMAIN"
)
_FIRST = ("select", "explain", "show", "describe", "begin", "rollback", "with")
_TYPOGRAPHIC = "‘’‚‛′“”„‟«»´"


def refuse_statement(fragment: Fragment, lexemes: list[Lexeme]) -> NoReturn:
    """Refuse a statement by its first word. Raises: NotSupportedError (E_STATEMENT)."""
    first = lexemes[0].text
    near = nearest(first.lower(), _FIRST)
    known = _STATEMENTS.get(first.lower())
    if known is not None and len(lexemes) == 1:
        what = f"{first.upper()} alone is not supported"
    else:
        what = f"{printable(first.upper())}{' of this' * (known is not None)} is not supported"
    hint = f"what works: {known or _KNOWN}"
    if known is None and near:
        hint = f"did you mean {near.upper()}?"
    raise NotSupportedError("E_STATEMENT", what, hint=hint, span=fragment.at(lexemes[0]))


def refuse_misspelt(node: exp.Expr, locate: Locate) -> None:
    """Refuse a part of a function that there is not, where another is meant.

    Raises: NotSupportedError (E_FUNCTION).
    """
    called = node if isinstance(node, exp.Anonymous) else node.find_ancestor(exp.Anonymous)
    if called is None:
        return
    name = str(called.this)
    near = nearest_function(name)
    if near is not None:
        what = f"the function {printable(name)}() is not supported here"
        hint = f"did you mean {near.upper() if name.isupper() else near}()?"
        raise NotSupportedError("E_FUNCTION", what, hint=hint, span=locate(node))


def hint_of_text(column: exp.Column) -> str | None:
    """The hint for a name that no column has and that seems to be a text in other quotes."""
    if column.table:
        return None
    name = column.name.strip(_TYPOGRAPHIC)
    is_quoted = name != column.name or column.this.args.get("quoted")
    of_test = isinstance(column.parent, exp.EQ | exp.NEQ) and column.parent.expression is column
    of_list = isinstance(column.parent, exp.In) and column.parent.this is not column
    if not is_quoted and not of_test and not of_list:
        return None
    text = printable(name).replace("'", "''")
    return f"a text is written in single quotes: '{text}'"
