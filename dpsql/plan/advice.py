"""What a forecast advises where the catalog says that bounds are loose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpsql.catalog import Table

if TYPE_CHECKING:
    from dpsql.sql.compiled import Compiled


def advise_clip(table: Table, columns: Sequence[str]) -> tuple[str, ...]:
    """What to try for sums of those columns whose upper bound is a guess."""
    return tuple(
        f"hint        the bounds of {table.columns[key].name} are declared loose: "
        "OPTIONS(clip = 'svt') chooses a threshold privately"
        for key in dict.fromkeys(columns)
        if key in table.columns and table.columns[key].loose
    )


def advise_sums(statements: Sequence[Compiled]) -> tuple[str, ...]:
    """The advice for statements that sum columns with loose bounds."""
    lines: list[str] = []
    for item in [each for each in statements if each.truncation is None]:
        for select, answer in item.answers():
            names = [name for term in answer.terms for name in term.polynomials]
            names += [n for term in answer.terms if term.largest != 1 for n in term.factors]
            lines += advise_clip(select.table, names)
    return tuple(dict.fromkeys(lines))
