"""FROM and JOIN -> the private table, and the public rows joined to single columns of it."""

from __future__ import annotations

import datetime as dt
from typing import Any, NoReturn

from sqlglot import exp

from dpsql.catalog import Catalog, Table
from dpsql.catalog.domain import Bins, Periods
from dpsql.errors import NotSupportedError, ProgrammingError, printable
from dpsql.sql.conditions import conjuncts
from dpsql.sql.edges import check_edges
from dpsql.sql.language import check_scalar
from dpsql.sql.lexemes import Fragment
from dpsql.sql.names import Joined, PublicRows, Scope, locate, suggest_table
from dpsql.sql.query import Lookup

MAX_PAIRS = 1 << 22
"""Most combinations of a cell and a public row that a join is evaluated on."""

_INNER = {"", "INNER", "CROSS"}
_INSTEAD = "JOIN public_table ON private_column = public_column, or BETWEEN two public columns"


def open_scope(tree: exp.Select, fragment: Fragment, catalog: Catalog, public: PublicRows) -> Scope:
    """The scope of a SELECT; conditions that join public rows are noted with them.

    Raises: NotSupportedError (E_JOIN, E_SUBQUERY, E_TABLE_FUNCTION); ProgrammingError.
    """
    return _Sources(tree, fragment, catalog, public).scope()


class _Sources:
    """Reads the FROM clause of one SELECT."""

    def __init__(
        self, tree: exp.Select, fragment: Fragment, catalog: Catalog, public: PublicRows
    ) -> None:
        self.tree = tree
        self.fragment = fragment
        self.catalog = catalog
        self.public = public
        self.private: tuple[Table, str] | None = None
        self.joined: list[Joined] = []

    def scope(self) -> Scope:
        self.add(self.tree.args["from_"].this, keep=False)
        joins = self.tree.args.get("joins") or []
        for join in joins:
            self.join(join)
        if self.private is None:
            self.refuse(self.tree.args["from_"].this, "E_JOIN", "a public table alone")
        table, alias = self.private
        scope = Scope(self.fragment, self.catalog, table, {alias}, self.joined)
        self.fit(scope, joins)
        return scope

    def refuse(self, node: exp.Expr, code: str, what: str, hint: str = _INSTEAD) -> NoReturn:
        raise NotSupportedError(
            code,
            f"{what} is not supported",
            hint=hint,
            span=locate(node, self.fragment),
        )

    def join(self, join: exp.Join) -> None:
        """Check the kind of a join and add its table."""
        side, kind = str(join.side or "").upper(), str(join.kind or "").upper()
        if join.args.get("method") or kind not in _INNER | {"OUTER"} or side == "FULL":
            self.refuse(join, "E_JOIN", f"{join.args.get('method') or side or kind} JOIN")
        if join.args.get("using") and side:
            self.refuse(join, "E_JOIN", "an outer join by USING", "write ON left = right")
        before = self.private
        self.add(join.this, keep=side == "LEFT")
        if side == "LEFT" and (before is None or self.private is not before):
            self.refuse(join, "E_JOIN", "a private table on the outer side of a join")
        if side == "RIGHT":
            if before is not None or len(self.joined) != 1:
                self.refuse(join, "E_JOIN", "this RIGHT JOIN")
            self.joined[0].keep = True

    def add(self, source: exp.Expr, *, keep: bool) -> None:
        """Add one table of FROM."""
        if isinstance(source, exp.Values):
            self.joined.append(self.values(source, keep))
            return
        if isinstance(source, exp.Subquery):
            self.refuse(source, "E_SUBQUERY", "this sub-query in FROM")
        if not isinstance(source, exp.Table) or not isinstance(source.this, exp.Identifier):
            unnest = isinstance(source, exp.Unnest)
            what = "UNNEST" if unnest else "a table function"
            self.refuse(
                source, "E_TABLE_FUNCTION", what, "one private table and public tables work"
            )
        for key, value in source.args.items():
            if value and key not in ("this", "alias", "db", "catalog"):
                known = {"sample": ("E_SAMPLE", "sampling"), "joins": ("E_JOIN", "a nested join")}
                code, what = known.get(key, ("E_STATEMENT", key.upper()))
                self.refuse(source, code, what)
        table = self.find_table(source)
        alias = source.args.get("alias")
        if alias is not None and alias.args.get("columns"):
            self.refuse(alias, "E_STATEMENT", "renaming columns in FROM")
        if alias is not None and not isinstance(alias.this, exp.Identifier):
            self.refuse(source, "E_STATEMENT", "this alias in FROM")
        name = (alias.name if alias is not None else source.name).casefold()
        if not table.public:
            if self.private is not None:
                self.refuse(source, "E_JOIN", "a join of two private tables")
            self.private = (table, name)
            return
        found = self.public(table)
        rows = tuple(zip(*(values for _, values in found.values()), strict=True))
        columns = {column.casefold(): index for index, column in enumerate(found)}
        types = tuple(kind for kind, _ in found.values())
        span = locate(source, self.fragment)
        self.joined.append(Joined(name, columns, types, rows, keep, span))

    def find_table(self, source: exp.Table) -> Table:
        table = self.catalog.tables.get(source.name.casefold())
        if table is None or source.args.get("db"):
            full = ".".join(part.name for part in source.parts)
            known = [t.name for t in self.catalog.tables.values()]
            raise ProgrammingError(
                "E_UNKNOWN_TABLE",
                f"there is no table {printable(full)!r} in the catalog",
                hint=suggest_table(source, known),
                span=locate(source, self.fragment),
            )
        return table

    def values(self, source: exp.Values, keep: bool) -> Joined:
        """A VALUES list as public rows."""
        alias = source.args.get("alias")
        if alias is None or not alias.args.get("columns"):
            self.refuse(
                source, "E_JOIN", "VALUES without names", "(VALUES (17, 29)) AS bands(lo, hi)"
            )
        names = [column.name.casefold() for column in alias.args["columns"]]
        rows = []
        for row in source.expressions:
            items = row.expressions if isinstance(row, exp.Tuple) else [row]
            if len(items) != len(names):
                self.refuse(source, "E_JOIN", "VALUES with other lengths than names")
            rows.append(tuple(self.literal(item) for item in items))
        types = tuple(_common_type([row[i] for row in rows]) for i in range(len(names)))
        columns = {name: index for index, name in enumerate(names)}
        span = locate(source, self.fragment)
        return Joined(alias.name.casefold(), columns, types, tuple(rows), keep, span)

    def literal(self, node: exp.Expr) -> Any:
        inner = node.unnest()
        if isinstance(inner, exp.Null):
            return None
        if isinstance(inner, exp.Boolean):
            return bool(inner.this)
        if isinstance(inner, exp.Neg):
            value = self.literal(inner.this)
            if isinstance(value, int | float):
                return -value
        if isinstance(inner, exp.Cast) and inner.to.this == exp.DType.DATE:
            inner, day = inner.this, True
        else:
            day = False
        if isinstance(inner, exp.Literal):
            try:
                if day:
                    return dt.date.fromisoformat(inner.name)
                if inner.is_string:
                    return inner.name
                return int(inner.name) if inner.name.isdigit() else float(inner.name)
            except ValueError:
                pass
        self.refuse(node, "E_JOIN", "this in VALUES", "numbers, texts and dates work")

    def fit(self, scope: Scope, joins: list[exp.Join]) -> None:
        """Find the private column that each set of public rows is joined to."""
        where = self.tree.args.get("where")
        written = conjuncts(where.this) if where is not None else []
        if not self.joined and not joins:
            scope.where = written
            return
        tests: list[tuple[exp.Expr, bool]] = []
        for join in joins:
            if join.args.get("on") is not None:
                tests += [(test, True) for test in conjuncts(join.args["on"])]
            for name in join.args.get("using") or []:
                tests.append((self.using(scope, name), True))
        kept: list[exp.Expr] = []
        tests += [(test, False) for test in written]
        for test, joining in tests:
            if not self.take(scope, test, joining):
                kept.append(test)
        for joined in self.joined:
            if joined.carrier is None:
                self.refuse(
                    self.tree.args["from_"], "E_JOIN", f"{joined.alias} without a condition"
                )
        carriers = [joined.carrier for joined in self.joined]
        if len(set(carriers)) < len(carriers):
            self.refuse(
                self.tree.args["from_"], "E_JOIN", "joining one column to two public tables"
            )
        scope.where = kept

    def using(self, scope: Scope, name: exp.Expr) -> exp.Expr:
        joined = next((j for j in self.joined if name.name.casefold() in j.columns), None)
        if joined is None or name.name.casefold() not in scope.table.columns:
            self.refuse(name, "E_JOIN", f"USING ({printable(name.name)})")
        alias = next(iter(scope.aliases))
        joined.shared.add(name.name.casefold())
        return exp.EQ(
            this=exp.column(name.name, alias), expression=exp.column(name.name, joined.alias)
        )

    def take(self, scope: Scope, test: exp.Expr, joining: bool) -> bool:
        """Use a condition to join public rows, if that is what it is for."""
        references = list(test.find_all(exp.Column))
        found = [scope.find_public(reference) for reference in references]
        public = {id(each[0]): each[0] for each in found if each is not None}
        private = {
            scope.find_column(reference).name.casefold()
            for reference, each in zip(references, found, strict=True)
            if each is None
        }
        if len(public) != 1:
            if joining and len(public) > 1:
                self.refuse(test, "E_JOIN", "a condition over two public tables")
            if joining and any(joined.keep for joined in self.joined):
                self.refuse(test, "E_JOIN", "an outer join on private columns alone")
            return False
        joined = next(iter(public.values()))
        if not joining and (joined.carrier is not None or joined.keep or len(private) != 1):
            return False
        check_scalar(test, scope.locate)
        if len(private) > 1 or (joined.carrier and private - {joined.carrier}):
            self.refuse(test, "E_JOIN", "joining public rows to two private columns")
        if private:
            joined.carrier = private.pop()
        joined.tests.append(test)
        return True


def lookups(scope: Scope) -> tuple[Lookup, ...]:
    """The joined public rows as the compiler reads them.

    Raises: ProgrammingError (E_TOO_LARGE, E_BIN_EDGE).
    """
    out = []
    for joined in scope.joined:
        assert joined.carrier is not None
        column = scope.table.columns[joined.carrier]
        if column.size * max(1, len(joined.rows)) > MAX_PAIRS:
            raise ProgrammingError(
                "E_TOO_LARGE",
                f"{joined.alias} has {len(joined.rows):,} rows for {column.size:,} cells of "
                f"{column.name}",
                hint=f"at most {MAX_PAIRS:,} combinations",
                span=joined.span,
            )
        for test in joined.tests:
            if isinstance(column.domain, Bins | Periods):
                for tree in scope.written_out(test):
                    check_edges(column, tree, scope.locate)
        on = " AND ".join(f"({scope.render(test)})" for test in joined.tests)
        out.append(Lookup(joined.carrier, joined.types, joined.rows, on, joined.keep, joined.span))
    return tuple(out)


def _common_type(values: list[Any]) -> str:
    known = {type(value) for value in values if value is not None}
    for kinds, name in (
        ({bool}, "BOOLEAN"),
        ({int}, "BIGINT"),
        ({int, float}, "DOUBLE"),
        ({dt.date}, "DATE"),
    ):
        if known and known <= kinds:
            return name
    return "VARCHAR"
