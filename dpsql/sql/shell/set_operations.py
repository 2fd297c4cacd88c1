"""UNION, INTERSECT and EXCEPT of two tables of the shell, which hold answers and public rows.

With ALL, rows that are alike are told apart by which of them each one is: the third row of a kind
on the left meets the third one on the right. BY NAME, columns of one name are one column, and a
side that lacks it has NULL there.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from dpsql.errors import NotSupportedError, ProgrammingError, printable
from dpsql.sql.relations import ShellColumn, ShellTable
from dpsql.sql.shell.language import Locate

_KEPT: dict[type[exp.Expr], str] = {
    exp.Union: "TRUE",
    exp.Intersect: "bool_or(b = 0) AND bool_or(b = 1)",
    exp.Except: "NOT bool_or(b = 1)",
}
_AROUND = {"this", "expression", "distinct", "order", "limit", "offset", "with_"}

_Pairs = Sequence[tuple[int | None, int | None]]
"""Positions of each result column on the left and right side; None is NULL."""


def set_operation(
    node: exp.SetOperation, name: str, left: ShellTable, right: ShellTable, locate: Locate
) -> tuple[str, ShellTable]:
    """The SQL of a set operation as a table called ``name``.

    Raises: NotSupportedError or ProgrammingError (E_SET_OP).
    """
    pairs = _paired(node, left, right, locate)
    every, is_union = not node.args.get("distinct"), isinstance(node, exp.Union)
    columns = ", ".join(f"c{index}" for index in range(len(pairs)))
    both = [(_trait(left, a), _trait(right, b)) for a, b in pairs]
    # a column of UNION ALL keeps its errors where both sides have them, or nothing to err
    known = [every and is_union and (a.error or b.error) and not _unknown(a, b) for a, b in both]
    sides = []
    for side, table in enumerate((left, right)):
        is_exact = every and is_union  # else rows are told apart: by integers as they are told
        listed = [
            f"{_value(own[side], pair[side], is_exact)} AS c{index}"
            for index, (pair, own) in enumerate(zip(pairs, both, strict=True))
        ]
        listed += [
            f"{f'e{pair[side]}' if own[side].error else 'CAST(NULL AS DOUBLE)'} AS e{index}"
            for index, (pair, own) in enumerate(zip(pairs, both, strict=True))
            if known[index]
        ]
        sides.append(f"SELECT {', '.join(listed)}, {side} AS b, i FROM {table.name}")
    text = " UNION ALL ".join(sides)
    kept = columns + "".join(f", e{index}" for index, each in enumerate(known) if each)
    if not (every and is_union):
        by = columns
        if every:
            number = f"row_number() OVER (PARTITION BY {columns}, b ORDER BY i) AS m"
            text, by = f"SELECT *, {number} FROM ({text})", f"{columns}, m"
        text = (
            f"SELECT {columns}, min(b) AS b, min(i) AS i FROM ({text}) GROUP BY {by} "
            f"HAVING {_KEPT[type(node)]}"
        )
    text = f"SELECT {kept}, row_number() OVER (ORDER BY b, i) AS i FROM ({text})"
    traits = tuple(
        ShellColumn(
            (b if pair[0] is None else a).name,
            "",
            a.noisy or b.noisy,
            error,
            whole=(pair[0] is None or a.is_whole) and (pair[1] is None or b.is_whole),
        )
        for pair, (a, b), error in zip(pairs, both, known, strict=True)
    )
    rows = left.rows + (right.rows if is_union else 0)
    unique = () if every else (frozenset(range(len(traits))),)
    private = left.private or right.private
    chosen = left.chosen or right.chosen or (private and not (every and is_union))
    found = ShellTable(name, traits, rows, private, unique, chosen)
    return f"{name} AS MATERIALIZED ({text})", found


def _paired(node: exp.SetOperation, left: ShellTable, right: ShellTable, locate: Locate) -> _Pairs:
    """Positions of each column of a set operation on both sides."""
    word, by_name = node.key.upper(), bool(node.args.get("by_name"))
    known = {*_AROUND, "by_name"} if isinstance(node, exp.Union) else _AROUND
    extra = [key for key, value in node.args.items() if value and key not in known]
    if extra or type(node) not in _KEPT:
        what = extra[0].strip("_").upper().replace("_", " ") if extra else "of this kind"
        raise NotSupportedError(
            "E_SET_OP",
            f"{word} {what} is not supported",
            hint="UNION, INTERSECT and EXCEPT work, each with ALL or without; UNION BY NAME, too",
            span=locate(node),
        )
    if by_name:
        return _by_name(node, left, right, locate)
    if len(left.traits) != len(right.traits):
        raise ProgrammingError(
            "E_SET_OP",
            f"{word} of {len(left.traits)} and {len(right.traits)} columns",
            hint="both sides need the same number of columns",
            span=locate(node),
        )
    return [(index, index) for index in range(len(left.traits))]


def _by_name(node: exp.SetOperation, left: ShellTable, right: ShellTable, locate: Locate) -> _Pairs:
    """The columns of the left, each beside that of its name, and those that only the right has."""
    places: list[dict[str, int]] = []
    for side in (left, right):
        found: dict[str, int] = {}
        for index, each in enumerate(side.traits):
            if each.name.casefold() in found:
                raise ProgrammingError(
                    "E_SET_OP",
                    f"UNION BY NAME of two columns {printable(each.name)}",
                    hint="give each column of a side a name of its own, with AS",
                    span=locate(node),
                )
            found[each.name.casefold()] = index
        places.append(found)
    names = dict.fromkeys([*places[0], *places[1]])
    return [(places[0].get(each), places[1].get(each)) for each in names]


def _value(trait: ShellColumn, column: int | None, is_exact: bool) -> str:
    if column is None:
        return "NULL"
    return f"c{column}" if is_exact or not trait.is_estimate else f"round(c{column})"


def _trait(side: ShellTable, column: int | None) -> ShellColumn:
    return ShellColumn("", "") if column is None else side.traits[column]


def _unknown(left: ShellColumn, right: ShellColumn) -> bool:
    """True if one side is noisy without a known error."""
    return any(each.noisy and not each.error for each in (left, right))
