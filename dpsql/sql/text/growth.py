"""Bounds on the length of a text that an expression could make.

It is bounded before anything is evaluated: REPLACE in REPLACE grows texts exponentially in the
length of a statement, and DuckDB's limits on memory do not cover texts under construction.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from sqlglot import exp

from dpsql.catalog import Column
from dpsql.errors import ProgrammingError
from dpsql.logical.functions import NUMBER, find, has
from dpsql.sql.shell.language import Locate

MAX_LENGTH = 100_000
"""Most characters of a text that an expression could make."""

MAX_COPIES = 2_000
"""Most parts of an expression that are written once more, or as copies of copies."""


def check_growth(columns: Iterable[Column | None], tree: exp.Expr, locate: Locate) -> None:
    """Refuse an expression that could make a text of over ``MAX_LENGTH`` characters.

    And one that grows when it is written out, NULLIF in NULLIF: DuckDB asks twice for the first.
    Raises: ProgrammingError (E_TOO_COMPLEX).
    """
    nodes = list(tree.walk())
    if any(isinstance(node, exp.Nullif) for node in nodes) and _copies(nodes) > MAX_COPIES:
        raise ProgrammingError(
            "E_TOO_COMPLEX",
            "NULLIF of NULLIF, or ratios in divisors, are nested too deeply",
            hint="each level doubles what is worked out: a sub-query may work out the inner ones",
            span=locate(tree),
        )
    growing = [node for node in nodes if has(node, "grows")]
    if not growing:
        return
    cells = (each.cells for each in columns if each is not None)
    widest = max((len(str(cell)) for cell in itertools.chain(*cells)), default=0)
    for node in growing:
        if bound_length(node, max(widest, NUMBER)) > MAX_LENGTH:
            raise ProgrammingError(
                "E_TOO_COMPLEX",
                f"{_name(node)} could make texts of over {MAX_LENGTH} characters",
                hint="shorter texts, and lengths that are written out, work",
                span=locate(node),
            )


def _copies(nodes: Sequence[exp.Expr]) -> int:
    """The nodes that a tree has more once NULLIF(a, b) is CASE WHEN a = b THEN NULL ELSE a END."""
    sizes: dict[int, int] = {}
    for node in reversed(nodes):  # those within others first
        sizes[id(node)] = 1 + sum(sizes[id(child)] for child in node.iter_expressions())
        if isinstance(node, exp.Nullif):
            sizes[id(node)] += sizes[id(node.this)]
    return sizes[id(nodes[0])] - len(nodes)


def _name(node: exp.Expr) -> str:
    return node.sql_name() if isinstance(node, exp.Func) and node.sql_names() else "PRINTF"


def bound_length(tree: exp.Expr, widest: int) -> int:
    """Bound the length of a value; ``widest`` bounds columns and numbers.

    >>> from sqlglot import parse_one
    >>> bound_length(parse_one("REPLACE(a || 'bc', 'b', 'xyz')"), 10)
    48
    """
    lengths = [bound_length(part, widest) for part in tree.iter_expressions()]
    if isinstance(tree, exp.Literal):
        return len(tree.name)
    known = find(tree)
    if known is None or known.length is None:
        return max(lengths, default=widest)
    return known.length(tree, lengths)
