"""How long a text an expression can make: a bound from the expression and the declared values.

REPLACE in REPLACE grows texts exponentially in the length of a statement, and DuckDB's limits on
memory do not cover texts under construction. The bound is checked before anything is evaluated.
"""

from __future__ import annotations

from sqlglot import exp

from dpsql.catalog import Column
from dpsql.errors import ProgrammingError
from dpsql.sql.language import Locate

MAX_LENGTH = 100_000
_NUMBER = 400
_SAME = (exp.Left, exp.Right, exp.Substring, exp.Trim, exp.SplitPart)


def check_growth(column: Column | None, tree: exp.Expr, locate: Locate) -> None:
    """Refuse an expression that could make a text of over ``MAX_LENGTH`` characters.

    Raises: ProgrammingError (E_TOO_COMPLEX).
    """
    if tree.find(exp.Replace) is None:
        return
    widest = max((len(str(cell)) for cell in column.cells), default=0) if column else 0
    for node in tree.find_all(exp.Replace):
        if bound_length(node, max(widest, _NUMBER)) > MAX_LENGTH:
            raise ProgrammingError(
                "E_TOO_COMPLEX",
                f"REPLACE could make texts of over {MAX_LENGTH} characters",
                hint="replace by shorter texts",
                span=locate(node),
            )


def bound_length(tree: exp.Expr, widest: int) -> int:
    """Bound the length of a value; ``widest`` bounds columns and numbers.

    >>> from sqlglot import parse_one
    >>> bound_length(parse_one("REPLACE(a || 'bc', 'b', 'xyz')"), 10)
    48
    """
    parts = [bound_length(part, widest) for part in tree.iter_expressions()]
    if isinstance(tree, exp.Literal):
        return len(tree.name)
    if isinstance(tree, _SAME):
        return parts[0]
    if isinstance(tree, exp.Replace):
        text = bound_length(tree.this, widest)
        return text + text * bound_length(tree.args["replacement"], widest)
    if isinstance(tree, exp.DPipe | exp.Concat):
        return sum(parts)
    return max(parts, default=widest)
