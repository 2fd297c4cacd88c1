"""UNION, INTERSECT and EXCEPT of two tables of the shell, in the order of their rows."""

from __future__ import annotations

from sqlglot import exp

from dpsql.errors import NotSupportedError, ProgrammingError
from dpsql.sql.language import Locate
from dpsql.sql.relations import Known, Trait

_KINDS: dict[type[exp.Expr], str] = {
    exp.Union: "TRUE",
    exp.Intersect: "bool_or(b = 0) AND bool_or(b = 1)",
    exp.Except: "NOT bool_or(b = 1)",
}
_KNOWN = {"this", "expression", "distinct", "order", "limit", "offset", "with_"}


def union(
    node: exp.SetOperation, name: str, left: Known, right: Known, locate: Locate
) -> tuple[str, Known]:
    """The SQL of a set operation as a table called ``name``.

    Raises: NotSupportedError or ProgrammingError (E_SET_OP).
    """
    word = node.key.upper()
    extra = [key for key, value in node.args.items() if value and key not in _KNOWN]
    every = not node.args.get("distinct")
    if extra or type(node) not in _KINDS or (every and not isinstance(node, exp.Union)):
        what = extra[0].strip("_").upper().replace("_", " ") if extra else "ALL"
        raise NotSupportedError(
            "E_SET_OP",
            f"{word} {what} is not supported",
            hint="UNION, UNION ALL, INTERSECT and EXCEPT work",
            span=locate(node),
        )
    if len(left.traits) != len(right.traits):
        raise ProgrammingError(
            "E_SET_OP",
            f"{word} of {len(left.traits)} and {len(right.traits)} columns",
            hint="both sides need the same number of columns",
            span=locate(node),
        )
    columns = ", ".join(f"c{index}" for index in range(len(left.traits)))
    both = list(zip(left.traits, right.traits, strict=True))
    # a column of an operation keeps its errors where both sides have them, or nothing to err
    known = [every and (a.error or b.error) and not _unknown(a, b) for a, b in both]
    sides = []
    for side, table in enumerate((left, right)):
        errors = "".join(
            f", {f'e{index}' if table.traits[index].error else 'CAST(NULL AS DOUBLE)'} AS e{index}"
            for index, each in enumerate(known)
            if each
        )
        sides.append(f"SELECT {columns}{errors}, {side} AS b, i FROM {table.name}")
    text = " UNION ALL ".join(sides)
    kept = columns + "".join(f", e{index}" for index, each in enumerate(known) if each)
    if not every:
        text = (
            f"SELECT {columns}, min(b) AS b, min(i) AS i FROM ({text}) GROUP BY {columns} "
            f"HAVING {_KINDS[type(node)]}"
        )
    text = f"SELECT {kept}, row_number() OVER (ORDER BY b, i) AS i FROM ({text})"
    traits = tuple(
        Trait(a.name, "", a.noisy or b.noisy, error, whole=a.is_whole and b.is_whole)
        for (a, b), error in zip(both, known, strict=True)
    )
    rows = left.rows + (right.rows if isinstance(node, exp.Union) else 0)
    unique = () if every else (frozenset(range(len(traits))),)
    private = left.private or right.private
    chosen = left.chosen or right.chosen or (private and not every)
    found = Known(name, traits, rows, private, unique, chosen)
    return f"{name} AS MATERIALIZED ({text})", found


def _unknown(left: Trait, right: Trait) -> bool:
    """Whether one side is noisy without a known error."""
    return any(each.noisy and not each.error for each in (left, right))
