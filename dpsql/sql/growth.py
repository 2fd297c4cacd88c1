"""How long a text an expression could make.

It is bounded before anything is evaluated: REPLACE in REPLACE grows texts exponentially in the
length of a statement, and DuckDB's limits on memory do not cover texts under construction.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence

from sqlglot import exp

from dpsql.catalog import Column
from dpsql.errors import ProgrammingError
from dpsql.sql.language import Locate

MAX_LENGTH = 100_000
"""Most characters of a text that an expression could make."""

MAX_COPIES = 2_000
"""Most parts of an expression that are written once more, or as copies of copies."""

_NUMBER = 400
"""More characters than any number takes as text: a DOUBLE has 309 before its point at most."""

_KEEPING = (
    *(exp.Left, exp.Right, exp.Substring, exp.Trim, exp.SplitPart, exp.RegexpExtract),
    exp.Translate,
)
_GROWING = (
    *(exp.Replace, exp.RegexpReplace, exp.Pad, exp.Repeat, exp.ConcatWs, exp.Hex),
    exp.Format,
)
_SHOWN = 64
"""More characters than any letter of a format of strftime shows."""


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
    growing = [node for node in nodes if is_growing(node)]
    if not growing:
        return
    cells = (each.cells for each in columns if each is not None)
    widest = max((len(str(cell)) for cell in itertools.chain(*cells)), default=0)
    for node in growing:
        if bound_length(node, max(widest, _NUMBER)) > MAX_LENGTH:
            raise ProgrammingError(
                "E_TOO_COMPLEX",
                f"{_name(node)} could make texts of over {MAX_LENGTH} characters",
                hint="shorter texts, and lengths that are written out, work",
                span=locate(node),
            )


def _copies(nodes: Sequence[exp.Expr]) -> int:
    """How many nodes a tree has more once NULLIF(a, b) is CASE WHEN a = b THEN NULL ELSE a END."""
    sizes: dict[int, int] = {}
    for node in reversed(nodes):  # those within others first
        sizes[id(node)] = 1 + sum(sizes[id(child)] for child in node.iter_expressions())
        if isinstance(node, exp.Nullif):
            sizes[id(node)] += sizes[id(node.this)]
    return sizes[id(nodes[0])] - len(nodes)


def is_growing(node: exp.Expr) -> bool:
    """Whether a function may make a text that is longer than its arguments together."""
    return isinstance(node, _GROWING) or _is_printf(node)


def _is_printf(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and str(node.this).lower() == "printf"


def _name(node: exp.Expr) -> str:
    return node.sql_name() if isinstance(node, exp.Func) and node.sql_names() else "PRINTF"


def bound_length(tree: exp.Expr, widest: int) -> int:
    """Bound the length of a value; ``widest`` bounds columns and numbers.

    >>> from sqlglot import parse_one
    >>> bound_length(parse_one("REPLACE(a || 'bc', 'b', 'xyz')"), 10)
    48
    """
    lengths = {id(part): bound_length(part, widest) for part in tree.iter_expressions()}
    parts = list(lengths.values())
    if isinstance(tree, exp.Literal):
        return len(tree.name)
    if isinstance(tree, _KEEPING):
        return parts[0]
    if isinstance(tree, exp.Replace):
        text = lengths[id(tree.this)]
        return text + text * max(parts[2:], default=0)
    if isinstance(tree, exp.RegexpReplace):
        text, new = lengths[id(tree.this)], tree.args.get("replacement")
        if new is None:
            return text
        added = lengths[id(new)]
        # groups that it names are parts of the text that do not overlap
        named = new.name.count("\\") if isinstance(new, exp.Literal) else added
        return text + (text + 1) * added + text * named
    if isinstance(tree, exp.TimeToStr):
        return _SHOWN * lengths[id(tree.args["format"])]
    if isinstance(tree, exp.Format):
        return _filled(tree.this, parts[1:])
    if _is_printf(tree):
        return _filled(tree.expressions[0], parts[1:]) if parts else 0
    if isinstance(tree, exp.Pad):
        return _written(tree.expression)
    if isinstance(tree, exp.Repeat):
        return parts[0] * _written(tree.args["times"])
    if isinstance(tree, exp.ConcatWs):
        return sum(parts) + parts[0] * len(parts)
    if isinstance(tree, exp.Hex):
        return 8 * parts[0]
    if isinstance(tree, exp.DPipe | exp.Concat):
        return sum(parts)
    return max(parts, default=widest)


def _filled(pattern: exp.Expr, parts: Sequence[int]) -> int:
    """Bound what a pattern makes: places take a part each, and at most the widths that it names."""
    if not isinstance(pattern, exp.Literal) or re.search(r"\*|\{[^}]*\{", pattern.name):
        return MAX_LENGTH + 1
    places = max(1, pattern.name.count("{"), pattern.name.count("%"))
    widths = sum(map(int, re.findall(r"\d+", pattern.name)))
    return len(pattern.name) + places * max([*parts, _NUMBER]) + widths


def _written(node: exp.Expr) -> int:
    """A length that is written out; more than is allowed where it is not."""
    number = isinstance(node, exp.Literal) and node.name.isdigit()
    return int(node.name) if number else MAX_LENGTH + 1
