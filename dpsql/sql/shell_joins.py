"""FROM and JOIN of a SELECT of the outer shell -> SQL, and a bound on the number of its rows.

The bound is a function of public facts: declared keys, and conditions that set keys equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from dpsql.errors import ProgrammingError
from dpsql.sql.relations import Field, Names
from dpsql.sql.shell_expressions import Expressions, place_of, sql_of

MAX_ROWS = 1_000_000
"""Most rows of a table of the shell, and most pairs of rows of a join."""

Place = tuple[int, int]
Keys = tuple[frozenset[Place], ...]

_INNER = ("", "INNER", "CROSS", "OUTER")
_SIDES = ("LEFT", "RIGHT", "FULL")
_NUMBERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "DOUBLE", "FLOAT"}


@dataclass(frozen=True, slots=True)
class From:
    """FROM as SQL, a bound on its rows, and sets of columns that no two rows agree on."""

    sql: str
    rows: int
    unique: Keys


class Joins:
    """Joins the tables of one SELECT of the shell; their names are added to its expressions."""

    def __init__(self, expressions: Expressions) -> None:
        self.expressions = expressions
        self.sources = expressions.sources
        self.names = expressions.names
        self.locate = expressions.locate

    def join(self) -> From:
        """All tables of FROM, joined in the order written.

        Raises: ProgrammingError (E_TOO_LARGE, E_UNKNOWN_COLUMN); NotSupportedError (E_JOIN).
        """
        found = From("(SELECT 0 AS i) AS a0", 1, (frozenset(),))
        for number, each in enumerate(self.sources):
            fields = [Field(name, each.column(number, k)) for k, name in enumerate(each.columns)]
            self.names.add(each.alias, fields, each.node)
            own = tuple(frozenset((number, k) for k in keys) for keys in each.table.unique)
            if each.join is None:
                found = From(f"{each.table.name} AS a{number}", each.table.rows, own)
            else:
                found = self.add(found, number, own, each.join)
        return found

    def add(self, before: From, number: int, own: Keys, join: exp.Join) -> From:
        """Join one more table; where a key of one side is met, its rows match at most once."""
        clause, equal = self.on(join, number)
        side = str(join.side or "").upper()
        left = any(keys <= {a for a, _ in equal} for keys in before.unique)
        right = any(keys <= {b for _, b in equal} for keys in own)
        here = self.sources[number].table
        if right:
            rows = before.rows + (here.rows if side in ("RIGHT", "FULL") else 0)
        elif left:
            rows = here.rows + (before.rows if side in ("LEFT", "FULL") else 0)
        else:
            rows = before.rows * here.rows + (before.rows + here.rows if side else 0)
        if rows > MAX_ROWS:
            raise ProgrammingError(
                "E_TOO_LARGE",
                f"the join could have {rows:,} rows",
                hint=f"join on all keys of one side; at most {MAX_ROWS:,} rows",
                span=self.locate(join),
            )
        unique = [one | two for one in before.unique for two in own][:8]
        if right and side in ("", "LEFT"):
            unique += before.unique
        if left and side in ("", "RIGHT"):
            unique += own
        text = f"{before.sql} {side or 'INNER'} JOIN {here.name} AS a{number} ON {clause}"
        return From(text, rows, () if side == "FULL" else tuple(unique))

    def on(self, join: exp.Join, number: int) -> tuple[str, list[tuple[Place, Place]]]:
        """The condition of a join, and the pairs of columns it sets equal."""
        side, kind = str(join.side or "").upper(), str(join.kind or "").upper()
        if join.args.get("method") or kind not in _INNER or side not in ("", *_SIDES):
            self.expressions.refuse(
                join, "E_JOIN", f"{join.args.get('method') or kind or side} JOIN"
            )
        tests: list[exp.Expr] = []
        pairs = []
        for name in join.args.get("using") or []:
            reference = exp.column(name.name)
            reference.meta.update(name.meta)
            known = self.names.find(reference, number)
            right = Names(self.locate, self.names.sources[number:]).find(reference)
            if known is None or right is None:
                self.names.refuse_column(reference)
            tests.append(exp.EQ(this=known, expression=right))
            both = exp.Coalesce(this=known.copy(), expressions=[right.copy()])
            merged = {"FULL": both, "RIGHT": right.copy()}.get(side, known.copy())
            self.names.shared[name.name.casefold()] = merged
        if join.args.get("on") is not None:
            if join.args["on"].find(exp.Query):
                self.expressions.refuse(join, "E_SUBQUERY", "a sub-query in ON", "test it in WHERE")
            tests += _conjuncts(join.args["on"], lambda node: self.expressions.rewrite(node, False))
        texts = []
        for test in tests:
            self.expressions.chosen |= self.expressions.mentions_noise(test)
            pair = self.equality(test, number)
            if pair is not None:
                pairs.append(pair)
            text = sql_of(_qualified(test))
            texts.append(text if pair is not None else f"TRY(CAST({text} AS BOOLEAN))")
        return " AND ".join(texts) or "TRUE", pairs

    def equality(self, test: exp.Expr, number: int) -> tuple[Place, Place] | None:
        """The two columns, of earlier tables and of this one, that a test compares safely."""
        inner = test.unnest()
        if not isinstance(inner, exp.EQ):
            return None
        left, right = (place_of(side.unnest()) for side in (inner.this, inner.expression))
        if left is None or right is None:
            return None
        if left[0] == number:
            left, right = right, left
        if left[0] == number or right[0] != number:
            return None
        kinds = {self.kind(left), self.kind(right)}
        return (left, right) if len(kinds) == 1 or kinds <= _NUMBERS else None

    def kind(self, place: Place) -> str:
        return self.sources[place[0]].table.traits[place[1]].kind


def _qualified(tree: exp.Expr) -> exp.Expr:
    """A condition over the tables of a join rather than over the layer above them."""
    out = exp.paren(tree.copy())
    for column in list(out.find_all(exp.Column)):
        place = place_of(column)
        if place is not None:
            column.replace(exp.column(f"c{place[1]}", f"a{place[0]}"))
    return out


def _conjuncts(node: exp.Expr, rewrite: Callable[[exp.Expr], exp.Expr]) -> list[exp.Expr]:
    inner = node.unnest()
    if isinstance(inner, exp.And):
        return [*_conjuncts(inner.this, rewrite), *_conjuncts(inner.expression, rewrite)]
    return [rewrite(node)]
