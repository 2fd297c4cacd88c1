"""Clauses of other dialects about what a privacy unit adds: told apart from what the catalog says.

``max_groups_contributed``, ``max_rows_contributed``, ``privacy_unit_column``,
``min_privacy_units_per_group`` and ``group_selection_strategy`` as in ZetaSQL and BigQuery. What
the catalog declares already is accepted; what would need other bounds than the declared ones is
refused, with what to declare.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NoReturn

import numpy as np
from sqlglot import exp

from dpsql.catalog import Catalog, Table
from dpsql.catalog.catalog import PublicRows
from dpsql.errors import NotSupportedError, printable
from dpsql.records import dataclass
from dpsql.sql.cells.evaluate import Evaluator, Operand
from dpsql.sql.compiled import Select
from dpsql.sql.text.clauses import Options, read_option_values, span_of
from dpsql.sql.text.lexemes import Fragment, lex

if TYPE_CHECKING:
    from dpsql.logical.bind.subqueries import SubqueryBinder, SubqueryNames

_OF_PUBLIC = re.compile(r"\bp\d+\b")
"""The columns, in an expression, of public rows that are looked up."""


@dataclass(frozen=True, slots=True)
class Contributions:
    """The settings of a statement for the rows of privacy units; None where it says nothing."""

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
            read_option_values(
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

    def check(self, select: Select, evaluator: Evaluator) -> None:
        """Refuse what a SELECT has more of than is said. Raises: NotSupportedError (E_SETTING)."""
        self._check_table(select.table, bool(select.query.keys))
        self._check_groups(select, evaluator)

    def _check_table(self, table: Table, grouped: bool) -> None:
        """Refuse what a table does not declare."""
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
        groups = 1
        if grouped and self.most_groups is not None:
            from dpsql.sql.units.contribution_bounds import groups_of  # few statements say it

            groups = groups_of(table)
        for option, most, found, where in (
            ("max_groups_contributed", self.most_groups, groups, "rows, in as many groups"),
            ("max_rows_contributed", self.most_rows, unit.max_rows, "rows"),
        ):
            if most is not None and most < found:
                self.refuse(
                    option,
                    f"a privacy unit of {printable(table.name)} has up to {unit.max_rows} {where}",
                    f"declare privacy_unit = {{ column = ..., max_rows = {most} }}, "
                    f"or ask for {option} = {unit.max_rows}",
                )

    def _check_groups(self, select: Select, evaluator: Evaluator) -> None:
        """Refuse fewer groups than one row is in where it meets several public rows."""
        query, most = select.query, 1
        if self.most_groups is None or self.most_groups >= select.rows:
            return
        if query.listing is not None and any(key.listed for key in query.keys):
            most *= len(query.listing.rows)
        for lookup in query.lookups:
            if any(
                key.column == lookup.column and _OF_PUBLIC.search(key.sql) for key in query.keys
            ):
                column = select.table.columns[lookup.column]
                cells = evaluator.cells(Operand(select.table.name, column, lookup))
                most *= 1 if cells is None or not len(cells) else int(np.bincount(cells).max())
        if most > 1 and most * select.table.unit.max_rows > self.most_groups:
            self.refuse(
                "max_groups_contributed",
                f"a row of {printable(select.table.name)} meets {most} groups of public rows",
                "leave the option out: rows are counted in every group, with no more noise",
            )

    def filtered(self, tree: exp.Expr, catalog: Catalog, public: PublicRows) -> exp.Expr:
        """A statement with the groups left out that have too few privacy units.

        They are those of the SELECTs that have the option, and are counted with noise, as
        HAVING COUNT(DISTINCT unit) counts them. Raises: NotSupportedError (E_SETTING).
        """
        if self.least_units is None:
            return tree
        from dpsql.logical.bind.subqueries import SubqueryBinder  # few statements have the option

        tree, binder = tree.copy(), SubqueryBinder(catalog, public)
        for select in self.having(tree):
            self.leave_out(select, binder)
        return tree

    def having(self, tree: exp.Expr) -> list[exp.Select]:
        """The SELECTs with the clause, which stands right before their first item."""
        from dpsql.sql.dialects.report_format import BETWEEN  # few statements have the option

        words = [each for each in lex(self.fragment.body) if each.kind not in BETWEEN]
        found = []
        for place in range(len(words)):
            clause = [each.text.lower() for each in words[place : place + 3]]
            if clause != ["with", "differential_privacy", "options"]:
                continue
            end = next(each.start for each in words[place:] if each.text == ")")
            starts = [(_start(select), select) for select in tree.find_all(exp.Select)]
            first = min((start for start, _ in starts if start > end), default=-1)
            inside = [select for start, select in starts if start == first]
            inside.sort(key=lambda select: -_depth(select))
            between = [each.text.lower() for each in words if end < each.start < first]
            found += inside[between.count("select") :][:1]
        return found

    def leave_out(self, select: exp.Select, binder: SubqueryBinder) -> None:
        """Leave groups of one SELECT out, in place."""
        counted = _counted(binder.names(select))
        if counted is None:
            self.refuse(
                "min_privacy_units_per_group",
                "the privacy units of this statement's groups cannot be counted",
                "SELECT ... FROM one private table GROUP BY ..., or HAVING COUNT(*) >= 10",
            )
        least = exp.Literal.number(self.least_units)
        test: exp.Expr = exp.GTE(this=exp.Count(this=counted, big_int=True), expression=least)
        having = select.args.get("having")
        if having is not None:
            test = exp.And(this=exp.paren(having.this.copy()), expression=test)
        select.set("having", exp.Having(this=test))

    def refuse(self, name: str, what: str, hint: str) -> NoReturn:
        """Refuse an option where it stands."""
        span = span_of(self.fragment, name)
        raise NotSupportedError("E_SETTING", what, hint=hint, span=span)


def _counted(names: SubqueryNames | None) -> exp.Expr | None:
    """Each privacy unit of rows once; None where they are not rows, or cannot be told apart."""
    if names is None or names.facts is None or not names.facts.is_rows:
        return None
    for alias, each in names.scope.visible():
        if each.column in names.facts.units:
            of = exp.to_identifier(alias, quoted=True) if alias else None
            unit = exp.to_identifier(each.name, quoted=True)
            return exp.Distinct(expressions=[exp.Column(this=unit, table=of)])
    return exp.Star() if names.facts.rows == 1 else None


def _start(select: exp.Select) -> int:
    """Position of the first item of a SELECT in the text; -1 where the parser has none."""
    walked = (part for item in select.expressions for part in item.walk())
    return min((part.meta["start"] for part in walked if "start" in part.meta), default=-1)


def _depth(node: exp.Expr) -> int:
    parent = node.parent
    return 0 if parent is None else 1 + _depth(parent)
