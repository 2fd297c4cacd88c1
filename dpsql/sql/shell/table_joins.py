"""FROM and JOIN of a SELECT of the outer shell -> SQL, and a bound on the number of its rows.

The bound is a function of public facts: declared keys, how many of them agree on some columns, and
conditions that set columns equal to others or to constants.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from sqlglot import exp

from dpsql.errors import ProgrammingError
from dpsql.logical.functions import conjuncts, has
from dpsql.records import dataclass, replace
from dpsql.sql.names import Names
from dpsql.sql.relations import Join
from dpsql.sql.shell.expressions import sql_of
from dpsql.sql.shell.join_bounds import ColumnPlace, JoinBound
from dpsql.sql.shell.over_tables import TableExpressions, place_of
from dpsql.sql.shell.whole_numbers import INTEGERS

MAX_ROWS = 1_000_000
"""Most rows of a table of the shell, and most pairs of rows of a join."""

MOST_KEYS = 16
"""Most sets of columns that are known to tell the rows of a join apart."""

MOST_KEYED = 4
"""Columns among which pairs are tried as keys: they stand first, as a rule."""

ColumnSets = tuple[frozenset[ColumnPlace], ...]

_NUMBERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "DOUBLE", "FLOAT"}


@dataclass(frozen=True, slots=True)
class From:
    """FROM as SQL, a bound on its rows, and sets of columns that no two rows agree on.

    Every row of the tables ``once`` is part of one row at most; ``told`` are columns, each with
    one that tells it. ``bound`` says how many rows agree on columns; None where that is not known.
    """

    sql: str
    rows: int
    unique: ColumnSets
    once: frozenset[int] = frozenset()
    told: tuple[tuple[ColumnPlace, ColumnPlace], ...] = ()
    bound: JoinBound | None = None


class Joins:
    """Joins the tables of one SELECT of the shell; their names are added to its expressions."""

    def __init__(self, expressions: TableExpressions) -> None:
        self.expressions = expressions
        self.sources = expressions.sources
        self.names = expressions.names
        self.locate = expressions.locate
        where = expressions.select.args.get("where")
        self.where = [] if where is None else conjuncts(where.this)
        self.taken: list[exp.Expr] = []

    def join(self) -> From:
        """The join of all tables of FROM, in the order written.

        Raises: ProgrammingError (E_TOO_LARGE, E_UNKNOWN_COLUMN); NotSupportedError (E_JOIN).
        """
        found = From("(SELECT 0 AS i) AS a0", 1, (frozenset(),))
        for number, each in enumerate(self.sources):
            self.names.add(each.element.alias, each.fields(number), each.element.node)
            own = tuple(frozenset((number, k) for k in keys) for keys in each.table.unique)
            join = each.element.join
            if join is None:
                text = f"{each.table.name} AS a{number}"
                bound = JoinBound((each.table,))
                found = From(text, each.table.rows, own, frozenset({number}), bound=bound)
            else:
                found = self.add(found, number, own, join)
                if join.side or found.bound is None or number + 1 == len(self.sources):
                    self.check(found, join)
        for test in self.where:
            found = self.keep(found, test)
        return found

    def keep(self, found: From, test: exp.Expr) -> From:
        """Leave out rows whose column is not IN a sub-query, where WHERE says no more than that."""
        inner = test.unnest()
        query = inner.args.get("query") if isinstance(inner, exp.In) else None
        if query is None or not isinstance(inner.this.unnest(), exp.Column):
            return found
        tree = self.expressions.rewrite(inner.this)
        place = place_of(tree.unnest())
        table = None if place is None else self.expressions.hoisted.table(query)
        if place is None or table is None or len(table.traits) != 1:
            return found
        kinds = {self.kind(place), table.traits[0].kind}
        if len(kinds) > 1 and not kinds <= _NUMBERS:
            return found
        self.taken.append(test)
        self.expressions.chosen |= table.private or self.expressions.mentions_noise(tree)
        number = f"s{len(self.taken)}"
        on = f"a{place[0]}.c{place[1]} = {number}.c0"
        return replace(found, sql=f"{found.sql} SEMI JOIN {table.name} AS {number} ON {on}")

    def rest(self, select: exp.Select) -> exp.Select:
        """The SELECT without the conditions that are part of its joins."""
        if not self.taken:
            return select
        kept = [test.copy() for test in self.where if not any(test is each for each in self.taken)]
        copy = select.copy()
        copy.set("where", exp.Where(this=exp.and_(*kept, copy=False)) if kept else None)
        return copy

    def add(self, before: From, number: int, own: ColumnSets, join: Join) -> From:
        """Join one more table; where a key of one side is met, its rows match at most once."""
        clause, equal, fixed = self.on(join, number)
        side = join.side
        ours = {a for a, _ in equal} | {place for place in fixed if place[0] != number}
        theirs = {b for _, b in equal} | {place for place in fixed if place[0] == number}
        left = any(keys <= ours for keys in before.unique)
        right = any(keys <= theirs for keys in own)
        here = self.sources[number].table
        if right:
            rows = before.rows + (here.rows if side in ("RIGHT", "FULL") else 0)
        elif left:
            rows = here.rows + (before.rows if side in ("LEFT", "FULL") else 0)
        else:
            rows = before.rows * here.rows
            if rows > MAX_ROWS:
                most = min(self.most(ours, table) for table in before.once or {-1})
                rows = min(rows, before.rows * self.most(theirs, number), here.rows * most)
            rows += before.rows + here.rows if side else 0
        bound = self.bound(before, number, equal, fixed, side)
        rows = rows if bound is None or rows <= MAX_ROWS else min(rows, bound.most())
        unique = [one | two for one in before.unique for two in own]
        if right and side in ("", "LEFT"):
            unique += before.unique
        if left and side in ("", "RIGHT"):
            unique += own
        text = f"{before.sql} {side or 'INNER'} JOIN {here.name} AS a{number} ON {clause}"
        once = before.once if right and side in ("", "LEFT") else frozenset()
        once |= {number} if left and side in ("", "RIGHT") else frozenset()
        told = before.told if side in ("", "LEFT") else ()
        told += tuple(pair for a, b in equal for pair in ((a, b), (b, a))) if not side else ()
        keys = () if side == "FULL" else _least(unique)
        return From(text, rows, keys, once, told, bound)

    def bound(
        self,
        before: From,
        number: int,
        equal: Sequence[tuple[ColumnPlace, ColumnPlace]],
        fixed: Sequence[ColumnPlace],
        side: str,
    ) -> JoinBound | None:
        """The bound with one more table; None where rows before it may be missing."""
        known = before.bound
        if known is None or side not in ("", "LEFT"):
            return None
        tells = [pair for a, b in equal for pair in ((a, b), *(((b, a),) if not side else ()))]
        optional = known.optional | ({number} if side else set())
        tables = (*known.tables, self.sources[number].table)
        return JoinBound(tables, (*known.tells, *tells), known.fixed | set(fixed), optional)

    def check(self, found: From, join: Join) -> None:
        """Refuse too many rows; those of inner joins together, whatever the order written."""
        if found.rows > MAX_ROWS:
            raise ProgrammingError(
                "E_TOO_LARGE",
                f"the join could have {found.rows:,} rows",
                hint=f"join on all keys of one side; at most {MAX_ROWS:,} rows",
                span=self.locate(join.node),
            )

    def most(self, places: Collection[ColumnPlace], number: int) -> int:
        """The most rows of a table that agree on those of the columns that are its own."""
        table = self.sources[number].table if number >= 0 else None
        listed = {} if table is None else table.listed()
        values = [listed[k] for source, k in places if source == number and k in listed]
        if table is None or not values:
            return MAX_ROWS + 1 if table is None else table.rows
        return max(Counter(zip(*values, strict=True)).values(), default=0)

    def on(
        self, join: Join, number: int
    ) -> tuple[str, list[tuple[ColumnPlace, ColumnPlace]], list[ColumnPlace]]:
        """The condition of a join, the pairs of columns it sets equal, and those it fixes."""
        if not join.is_plain:
            self.expressions.refuse(join.node, "E_JOIN", f"{join.method or join.kind} JOIN")
        tests: list[exp.Expr] = []
        pairs, fixed = [], []
        for name in join.using:
            reference = exp.column(name.name)
            reference.meta.update(name.meta)
            known = self.names.find(reference, number)
            right = Names(self.locate, self.names.sources[number:]).find(reference)
            if known is None or right is None:
                self.names.refuse_column(reference)
            tests.append(exp.EQ(this=known, expression=right))
            both = exp.Coalesce(this=known.copy(), expressions=[right.copy()])
            merged = {"FULL": both, "RIGHT": right.copy()}.get(join.side, known.copy())
            self.names.shared[name.name.casefold()] = merged
        if join.on is not None:
            if join.on.find(exp.Query):
                what = "a sub-query in ON"
                self.expressions.refuse(join.node, "E_SUBQUERY", what, "test it in WHERE")
            tests += [self.expressions.rewrite(test) for test in conjuncts(join.on)]
        if not join.side:
            tests += [self.expressions.rewrite(test) for test in self.where if self.meets(test)]
        texts = []
        for test in tests:
            self.expressions.chosen |= self.expressions.mentions_noise(test)
            pair, text = self.equality(test, number), sql_of(_qualified(test))
            is_safe = pair is not None and all(place_of(side) for side in _sides(test))
            if pair is not None:
                pairs.append(pair)
            elif (place := self.constant(test)) is not None:
                fixed.append(place)
            texts.append(text if is_safe else f"TRY(CAST({text} AS BOOLEAN))")
        return " AND ".join(texts) or "TRUE", pairs, [] if join.side else fixed

    def meets(self, test: exp.Expr) -> bool:
        """True if a condition of WHERE sets columns of the tables joined so far equal."""
        sides = _sides(test)
        columns = [column for side in sides for column in side.find_all(exp.Column)]
        return (
            bool(columns)
            and all(_moved(side) or _is_constant(side) for side in sides)
            and all(self.names.place(column) is not None for column in columns)
        )

    def equality(self, test: exp.Expr, number: int) -> tuple[ColumnPlace, ColumnPlace] | None:
        """The two columns, of earlier tables and of this one, each of which tells the other."""
        places = [self.place(side) for side in _sides(test)]
        if len(places) != 2 or places[0] is None or places[1] is None:
            return None
        left, right = places[0], places[1]
        if left[0] == number:
            left, right = right, left
        if left[0] == number or right[0] != number:
            return None
        kinds = {self.kind(left), self.kind(right)}
        return (left, right) if len(kinds) == 1 or kinds <= _NUMBERS else None

    def place(self, side: exp.Expr) -> ColumnPlace | None:
        """The column that one side of an equality tells; ``k + 1`` tells whole numbers."""
        column = _moved(side)
        place = None if column is None else place_of(column)
        is_known = place is not None and (column is side or self.kind(place) in INTEGERS)
        return place if is_known else None

    def constant(self, test: exp.Expr) -> ColumnPlace | None:
        """The column that a test sets equal to a constant."""
        sides = _sides(test)
        is_constant = any(_is_constant(side) for side in sides)
        return next((p for side in sides if (p := place_of(side)) and is_constant), None)

    def kind(self, place: ColumnPlace) -> str:
        return self.sources[place[0]].table.traits[place[1]].kind


def _least(keys: Sequence[frozenset[ColumnPlace]]) -> ColumnSets:
    """The sets of columns of which no other is a part, the smallest first, but no more than a few.

    >>> _least([frozenset({(0, 0), (1, 0)}), frozenset({(1, 0)}), frozenset({(1, 0)})])
    (frozenset({(1, 0)}),)
    """
    found: list[frozenset[ColumnPlace]] = []
    for each in sorted(keys, key=len):
        if len(found) < MOST_KEYS and not any(known <= each for known in found):
            found.append(each)
    return tuple(found)


def _sides(test: exp.Expr) -> list[exp.Expr]:
    """The two sides of an equality."""
    inner = test.unnest()
    return [inner.this.unnest(), inner.expression.unnest()] if isinstance(inner, exp.EQ) else []


def _is_constant(side: exp.Expr) -> bool:
    """True if a side of an equality is written of literals alone, as ``2000 + 1``."""
    return all(map(_is_written, side.walk()))


def _moved(side: exp.Expr) -> exp.Column | None:
    """The column of ``k``, ``k + 1`` or ``k - 1``."""
    if isinstance(side, exp.Add | exp.Sub) and isinstance(side.expression.unnest(), exp.Literal):
        side = side.this.unnest()
    return side if isinstance(side, exp.Column) else None


def _qualified(tree: exp.Expr) -> exp.Expr:
    """A condition over the tables of a join rather than over the layer above them."""
    out = exp.paren(tree.copy())
    for column in list(out.find_all(exp.Column)):
        place = place_of(column)
        if place is not None:
            column.replace(exp.column(f"c{place[1]}", f"a{place[0]}"))
    return out


def keys_among(values: Sequence[Sequence[Any]]) -> tuple[frozenset[int], ...]:
    """The columns, or pairs of the first columns, that no two public rows agree on."""
    rows = len(values[0]) if values else 0
    ones = [k for k, each in enumerate(values) if None not in each and len(set(each)) == rows]
    if ones:
        return tuple(frozenset({k}) for k in ones)
    pairs = itertools.combinations(range(min(len(values), MOST_KEYED)), 2)
    return tuple(
        frozenset(pair)
        for pair in pairs
        if len(set(zip(*(values[k] for k in pair), strict=True))) == rows
    )


def _is_written(node: exp.Expr) -> bool:
    """Say whether a part of a constant is one that no error comes of."""
    is_sum = has(node, "arithmetic") and not isinstance(node, exp.Div)
    return is_sum or isinstance(node, exp.Literal)
