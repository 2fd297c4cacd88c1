"""Running totals of rows that are compared with an answer: the one that the answer points at.

``WHERE age > (SELECT AVG(age) FROM t)`` is asked as totals by age, added up from above. Within a
bin rows are spread evenly: a part of what is in it is taken.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from sqlglot import exp, parse_one

from dpsql.catalog.catalog import Column
from dpsql.catalog.domain import Bins
from dpsql.logical.functions import MIRRORED
from dpsql.records import dataclass
from dpsql.sql.subqueries.rows_and_answers import RowsAndAnswers

ROWS = "counted rows"
"""The alias of the counted rows; answers keep their own."""
_VALUE = "c0"


@dataclass(frozen=True, slots=True)
class EvenBins:
    """Bins of one width, from the first edge to the last."""

    first: float
    last: float
    width: float

    @classmethod
    def of(cls, column: Column) -> EvenBins | None:
        """The bins of a column; None where it has none, or bins of several widths."""
        edges = column.domain.edges if isinstance(column.domain, Bins) else ()
        widths = {after - before for before, after in itertools.pairwise(edges)}
        if len(widths) != 1:
            return None
        return cls(float(edges[0]), float(edges[-1]), float(widths.pop()))

    def taken(self, keys: Sequence[str], sums: Sequence[str], above: bool) -> str:
        """The part of the totals ``r`` above, or below, the answer ``v`` of ``m``, for every key.

        ``r`` has ``c0``, the lower edge of a bin, and sums of what lies in this bin and those
        beyond it.
        """
        by = f"PARTITION BY {', '.join(keys)} " if keys else ""
        window = f"({by}ORDER BY c0{' DESC' if above else ''})"
        columns = [f"COALESCE(LAG({a}) OVER {window}, 0) AS n{a}" for a in sums]
        share = f"(c0 + {self.width} - v) / {self.width}" if above else f"(v - c0) / {self.width}"
        within = f"LEAST(1.0, GREATEST(0.0, {share}))"
        parts = [f"n{a} + ({a} - n{a}) * {within} AS {a}" for a in sums]
        return (
            f"SELECT {', '.join((*keys, *parts))} "
            f"FROM (SELECT {', '.join(('*', *columns))} FROM r) AS s CROSS JOIN m "
            f"WHERE (c0 <= v OR c0 = {self.first}) "
            f"AND (v < c0 + {self.width} OR c0 + {self.width} >= {self.last})"
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """A condition ``value`` op ``query``: an expression over rows, and one row of answers."""

    test: exp.Expr
    kind: type[exp.Binary]
    value: exp.Expr
    query: exp.Subquery
    bins: EvenBins | None

    @classmethod
    def of(cls, sides: RowsAndAnswers) -> Comparison | None:
        """The only such condition of a SELECT; None where there are none or several."""
        found = [each for test in sides.outer if (each := cls.read(test, sides)) is not None]
        return found[0] if len(found) == 1 else None

    @classmethod
    def read(cls, test: exp.Expr, sides: RowsAndAnswers) -> Comparison | None:
        """The comparison of a column with a sub-query that a condition is; None if it is none."""
        inner = test.unnest()
        kinds = {**MIRRORED, exp.EQ: exp.EQ}
        if not isinstance(inner, exp.Binary) or type(inner) not in kinds:
            return None
        straight = ((inner.this, inner.expression), type(inner))
        mirrored = ((inner.expression, inner.this), kinds[type(inner)])
        for (value, query), kind in (straight, mirrored):
            value = value.unnest()
            if (
                sides.is_of_rows(value)
                and isinstance(query, exp.Subquery)
                and sides.is_asked(query)
            ):
                is_bare = isinstance(value, exp.Column) and sides.is_coarse(value)
                is_alone = kind is not exp.EQ and sides.binder.is_answer(query)
                stored = sides.names.origin(value) if is_bare and is_alone else None
                bins = None if stored is None else EvenBins.of(stored)
                return cls(test, kind, value, query, bins) if bins or not is_bare else None
        return None

    @property
    def is_one(self) -> bool:
        """True if one row of the totals is taken for each of their keys."""
        return self.bins is None

    @property
    def is_above(self) -> bool:
        return self.kind in (exp.GT, exp.GTE)

    def grouped(
        self, by: Sequence[exp.Expr], sums: Mapping[str, exp.Expr]
    ) -> tuple[list[exp.Expr], dict[str, exp.Expr]]:
        """Keys with the value, and sums added up as far as that."""
        totals = {_VALUE: self.value}
        for name, node in sums.items():
            ordered = exp.Ordered(this=self.value.copy(), desc=self.is_above)
            keys, order = [each.copy() for each in by], exp.Order(expressions=[ordered])
            total = exp.Window(this=exp.Sum(this=node.copy()), partition_by=keys, order=order)
            totals[name] = node if self.kind is exp.EQ else total
        return [*by, self.value], totals

    def taken(self, totals: exp.Select, query: exp.Expr, keys: Sequence[str]) -> exp.Select:
        """The totals that meet the condition, by ``keys``."""
        sums = [name for name in totals.named_selects if name not in (*keys, _VALUE)]
        if self.bins is not None:
            tree = parse_one(self.bins.taken(keys, sums, self.is_above), read="duckdb")
            answer = query.unnest().copy()
            answer.set("expressions", [exp.alias_(answer.expressions[0].unalias(), "v")])
            for node in list(tree.find_all(exp.Table)):
                inner = totals if node.name == "r" else answer
                alias = exp.TableAlias(this=exp.to_identifier(node.name))
                node.replace(exp.Subquery(this=inner, alias=alias))
            assert isinstance(tree, exp.Select)
            return tree
        by = f"PARTITION BY {', '.join(keys)} " if keys else ""
        order = f"{by}ORDER BY {_VALUE}{'' if self.is_above else ' DESC'}"
        tree = parse_one(f"SELECT {', '.join((*keys, *sums))} FROM r", read="duckdb")
        assert isinstance(tree, exp.Select)
        if self.kind is not exp.EQ:
            first = parse_one(f"ROW_NUMBER() OVER ({order}) = 1", read="duckdb")
            tree.set("qualify", exp.Qualify(this=first))
        rows = exp.TableAlias(this=exp.to_identifier(ROWS, quoted=True))
        tree.set("from_", exp.From(this=exp.Subquery(this=totals, alias=rows)))
        tree.set("where", exp.Where(this=self.kind(this=exp.column(_VALUE), expression=query)))
        return tree
