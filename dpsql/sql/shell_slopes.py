"""Slopes of expressions of the outer shell, by the noisy numbers they are computed from."""

from __future__ import annotations

from sqlglot import exp

from dpsql.sql.derivative import NoDerivative, smooth_gradient
from dpsql.sql.shell_expressions import Expressions, place_of

MAX_SLOPES = 16
"""Most noisy numbers that the standard error of a column is followed through."""

MAX_TEXT = 20_000
"""Longest SQL of the slopes of a column."""

NUMBERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "DOUBLE", "FLOAT", "DECIMAL"}

Influences = dict[tuple[str, int, int], str]
"""Slopes as SQL by the column that numbers cells, the select and the aggregate."""


def slopes_over(expressions: Expressions, tree: exp.Expr) -> Influences:
    """The slopes of smooth arithmetic over noisy numbers; nothing where it is anything else."""

    def leaf(column: exp.Column) -> Influences:
        name, place = column.name, place_of(column)
        if place is not None:
            number, index = place
            table = expressions.sources[number].table
            slope, cell = f"d{number}_{index}_", f"r{number}_"
        elif name in expressions.scalars:
            table, index = expressions.scalars[name], 0
            slope, cell = f"{name}_d0_", f"{name}_r"
        else:
            raise NoDerivative
        trait = table.traits[index]
        if trait.kind.split("(")[0] not in NUMBERS or (trait.noisy and not trait.slopes):
            raise NoDerivative
        return {
            (f"{cell}{each.origin}", table.origins[each.origin], each.aggregate): (
                "1" if each.one else f"{slope}{part}"
            )
            for part, each in enumerate(trait.slopes)
        }

    try:
        found = smooth_gradient(tree, leaf)
    except NoDerivative:
        return {}
    short = len(found) <= MAX_SLOPES and sum(map(len, found.values())) <= MAX_TEXT
    return found if short else {}
