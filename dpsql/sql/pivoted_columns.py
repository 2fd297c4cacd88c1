"""What is known of the columns of what is pivoted: their names, and the values that are declared.

A column of a CTE or a sub-query that repeats one of a table has the values of that, as far as the
text says so: nothing is bound yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from dpsql.catalog import Column, Table
from dpsql.records import dataclass
from dpsql.sql.expressions import name_of
from dpsql.sql.names import names_of

Origin = tuple[Table, Column]
"""A column of the catalog, and the table that has it."""
WorkedOut = tuple[Table, Column, exp.Expr]
"""The same with what is worked out of the column, over ``v``."""


@dataclass(frozen=True, slots=True)
class Inside:
    """What an element of FROM is, its columns by name as far as they are ``given`` new ones."""

    found: Table | exp.Expr | None
    given: tuple[str, ...]
    around: PivotedColumns


@dataclass(frozen=True, slots=True)
class PivotedColumns:
    """Looks columns up in the ``tables`` of the catalog and in the CTEs before them."""

    tables: Mapping[str, Table]
    ctes: tuple[exp.CTE, ...]

    @classmethod
    def of(cls, tree: exp.Expr, tables: Mapping[str, Table]) -> PivotedColumns:
        """Those of a statement."""
        return cls(tables, tuple(tree.find_all(exp.CTE)))

    def names(self, source: exp.Expr) -> list[str] | None:
        """The names of the columns of an element of FROM, None where they are not written down."""
        inside = self._inside(source)
        own = _names_of(inside)
        return None if own is None else [*inside.given, *own[len(inside.given) :]]

    def worked_out(self, source: exp.Expr, node: exp.Expr) -> WorkedOut | None:
        """What an expression over one column of an element of FROM is of the catalog.

        None where it is of several columns, of none, of public ones or of answers.
        """
        columns = list(node.find_all(exp.Column))
        names = {each.name.casefold() for each in columns}
        if len(names) != 1 or any(isinstance(each.this, exp.Star) for each in columns):
            return None
        if node.find(exp.AggFunc, exp.Window, exp.Query) is not None:
            return None
        found = self._column(source, names.pop())
        if found is None:
            return None
        table, column, tree = found
        whole = node.transform(lambda e: exp.paren(tree) if isinstance(e, exp.Column) else e)
        return None if table.public or column.domain is None else (table, column, whole)

    def _column(self, source: exp.Expr, name: str) -> WorkedOut | None:
        """What one column of an element of FROM is of the catalog."""
        found = self.origin(source, name)
        if found is not None:
            return *found, exp.column("v")
        inside = self._inside(source)
        own, select = _names_of(inside) or [], inside.found
        shown = [each.casefold() for each in (*inside.given, *own[len(inside.given) :])]
        if shown.count(name) != 1 or not isinstance(select, exp.Select):
            return None
        name = own[shown.index(name)].casefold()
        items = (item for item in select.expressions if not item.is_star)
        item = next((each for each in items if name_of(each).casefold() == name), None)
        sources = _sources(select)
        if item is None:
            having = [each for each in sources if _has(inside.around.names(each), name)]
            return inside.around._column(having[0], name) if len(having) == 1 else None
        if len(sources) != 1 or select.args.get("group") is not None:
            return None
        return inside.around.worked_out(sources[0], item.unalias())

    def origin(self, source: exp.Expr, name: str) -> Origin | None:
        """What a column of an element of FROM repeats, None where it is anything else."""
        inside = self._inside(source)
        own, wanted = _names_of(inside) or [], name.casefold()
        shown = [each.casefold() for each in (*inside.given, *own[len(inside.given) :])]
        if shown.count(wanted) != 1:
            return None
        name = own[shown.index(wanted)].casefold()
        if isinstance(inside.found, Table):
            column = inside.found.columns.get(name)
            return None if column is None else (inside.found, column)
        if not isinstance(inside.found, exp.Select):
            return None
        items = [item for item in inside.found.expressions if not item.is_star]
        item = next((item for item in items if name_of(item).casefold() == name), None)
        if item is None:
            return inside.around._in(_sources(inside.found), name)
        node = item.unalias().unnest()
        if not isinstance(node, exp.Column):
            return None
        sources = _sources(inside.found)
        if node.table:
            alias = node.table.casefold()
            sources = [each for each in sources if each.alias_or_name.casefold() == alias]
        return inside.around._in(sources, node.name)

    def _in(self, sources: Sequence[exp.Expr], name: str) -> Origin | None:
        """What a column of one of some elements of FROM repeats."""
        having = [each for each in sources if _has(self.names(each), name)]
        return self.origin(having[0], name) if len(having) == 1 else None

    def _inside(self, source: exp.Expr) -> Inside:
        given = _given(source)
        if isinstance(source, exp.Subquery):
            return Inside(source.this, given, self)
        if not isinstance(source, exp.Table) or source.args.get("pivots"):
            return Inside(None, given, self)
        name = source.name.casefold()
        places = [k for k, each in enumerate(self.ctes) if each.alias.casefold() == name]
        if len(places) > 1:
            return Inside(None, given, self)
        if places:
            common, before = self.ctes[places[0]], self.ctes[: places[0]]
            return Inside(common.this, given or _given(common), PivotedColumns(self.tables, before))
        return Inside(self.tables.get(name), given, self)


def _names_of(inside: Inside) -> list[str] | None:
    """The names of columns before an alias gives them others."""
    if isinstance(inside.found, Table):
        return [name for name, hidden in names_of(inside.found) if not hidden]
    if not isinstance(inside.found, exp.Select):
        return None
    names: list[str] = []
    for item in inside.found.expressions:
        if item.find(exp.Columns) is not None:
            return None
        if not item.is_star:
            names.append(name_of(item))
            continue
        sources = [inside.around.names(each) for each in _sources(inside.found)]
        given = {key for key, value in item.args.items() if value}
        if not isinstance(item, exp.Star) or given - {"except_"} or None in sources:
            return None
        left_out = {each.name.casefold() for each in item.args.get("except_") or ()}
        listed = (name for names_of_one in sources for name in names_of_one or ())
        names += [name for name in listed if name.casefold() not in left_out]
    return names


def _has(names: Sequence[str] | None, name: str) -> bool:
    return names is not None and name.casefold() in [each.casefold() for each in names]


def _given(source: exp.Expr) -> tuple[str, ...]:
    """The names that an alias gives to columns."""
    alias = source.args.get("alias")
    listed = alias.args.get("columns") if isinstance(alias, exp.TableAlias) else None
    return tuple(each.name for each in listed or ())


def _sources(select: exp.Select) -> list[exp.Expr]:
    """The elements of FROM."""
    start = select.args.get("from_")
    joins = [join.this for join in select.args.get("joins") or ()]
    return [] if start is None else [start.this, *joins]
