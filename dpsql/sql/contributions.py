"""Clauses of other dialects about what a privacy unit adds: told apart from what the catalog says.

``max_groups_contributed``, ``max_rows_contributed``, ``privacy_unit_column``,
``min_privacy_units_per_group`` and ``group_selection_strategy`` as in ZetaSQL and BigQuery. What
the catalog declares already is accepted; what would need other bounds than the declared ones is
refused, with what to declare.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from sqlglot import exp

from dpsql.catalog import Catalog, Table
from dpsql.errors import NotSupportedError, printable
from dpsql.sql.clauses import Options, read_own, span_of
from dpsql.sql.lexemes import Fragment


@dataclass(frozen=True, slots=True)
class Contributions:
    """What a statement says of the rows of privacy units; None where it says nothing."""

    fragment: Fragment
    most_groups: int | None
    most_rows: int | None
    unit: str | None
    least_units: int | None
    selection: str | None

    @classmethod
    def read(cls, fragment: Fragment, options: Options) -> Contributions:
        """Read the options. Raises: ProgrammingError (E_SETTING)."""
        said = (
            read_own(
                options,
                "max_groups_contributed",
                "max_rows_contributed",
                "privacy_unit_column",
                "min_privacy_units_per_group",
                "group_selection_strategy",
            )
            if options
            else [None] * 5
        )
        return cls(fragment, *said)

    def check(self, table: Table) -> None:
        """Refuse what a table does not declare. Raises: NotSupportedError (E_SETTING)."""
        if table.public or table.synthetic:
            return
        unit = table.unit
        if self.unit is not None and self.unit.casefold() != (unit.column or "").casefold():
            told = "one row" if unit.column is None else printable(unit.column)
            self.refuse(
                "privacy_unit_column",
                f"the privacy unit of {printable(table.name)} is {told}",
                "leave the option out: the catalog says whose a row is, by privacy_unit",
            )
        for option, most, where in (
            ("max_groups_contributed", self.most_groups, "rows, in as many groups"),
            ("max_rows_contributed", self.most_rows, "rows"),
        ):
            if most is not None and most < unit.max_rows:
                self.refuse(
                    option,
                    f"a privacy unit of {printable(table.name)} has up to {unit.max_rows} {where}",
                    f"declare privacy_unit = {{ column = ..., max_rows = {most} }}, "
                    f"or ask for {option} = {unit.max_rows}",
                )

    def filtered(self, tree: exp.Expr, catalog: Catalog) -> exp.Expr:
        """A statement with the groups left out that have too few privacy units.

        They are counted with noise, as HAVING COUNT(DISTINCT unit) counts them.
        Raises: NotSupportedError (E_SETTING).
        """
        if self.least_units is None:
            return tree
        source = tree.args.get("from_") if isinstance(tree, exp.Select) else None
        name = source.this.name.casefold() if source is not None else ""
        table = catalog.tables.get(name)
        joined = bool(tree.args.get("joins"))
        if table is None or table.public or (joined and table.unit.column is None):
            self.refuse(
                "min_privacy_units_per_group",
                "the privacy units of this statement's groups cannot be counted",
                "SELECT ... FROM one private table GROUP BY ..., or HAVING COUNT(*) >= 10",
            )
        counted: exp.Expr = exp.Star()
        if table.unit.column is not None:
            counted = exp.Distinct(expressions=[exp.column(table.unit.column, quoted=True)])
        least = exp.Literal.number(self.least_units)
        test: exp.Expr = exp.GTE(this=exp.Count(this=counted, big_int=True), expression=least)
        copy, having = tree.copy(), tree.args.get("having")
        if having is not None:
            test = exp.And(this=exp.paren(having.this.copy()), expression=test)
        copy.set("having", exp.Having(this=test))
        return copy

    def refuse(self, name: str, what: str, hint: str) -> NoReturn:
        """Refuse an option where it stands."""
        span = span_of(self.fragment, name)
        raise NotSupportedError("E_SETTING", what, hint=hint, span=span)
