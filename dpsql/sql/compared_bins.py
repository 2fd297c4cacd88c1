"""Rows of a column with bins that are compared with an answer: within a bin they are spread evenly.

So quantiles of bins are read, too. ``r`` are running totals by the bins, ``m`` the answer.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from sqlglot import exp, parse_one

from dpsql.catalog.catalog import Column
from dpsql.catalog.domain import Bins
from dpsql.records import dataclass


@dataclass(frozen=True, slots=True)
class EvenBins:
    """Bins of one width, from the first edge to the last."""

    first: float
    last: float
    width: float

    @classmethod
    def of(cls, column: Column) -> EvenBins | None:
        """Those of a column; None where it has none, or of several widths."""
        edges = column.domain.edges if isinstance(column.domain, Bins) else ()
        widths = {after - before for before, after in itertools.pairwise(edges)}
        if len(widths) != 1:
            return None
        return cls(float(edges[0]), float(edges[-1]), float(widths.pop()))

    def taken(
        self, totals: exp.Select, query: exp.Select, keys: Sequence[str], sums: int, above: bool
    ) -> exp.Select:
        """The part of the totals above, or below, an answer, for every key.

        ``totals`` has ``keys``, ``c0``, the lower edge of a bin, and ``a0``, ``a1``, ...: what lies
        in this bin and those beyond it.
        """
        by = f"PARTITION BY {', '.join(keys)} " if keys else ""
        window = f"({by}ORDER BY c0{' DESC' if above else ''})"
        columns = [f"COALESCE(LAG(a{k}) OVER {window}, 0) AS n{k}" for k in range(sums)]
        share = f"(c0 + {self.width} - v) / {self.width}" if above else f"(v - c0) / {self.width}"
        within = f"LEAST(1.0, GREATEST(0.0, {share}))"
        parts = [f"n{k} + (a{k} - n{k}) * {within} AS a{k}" for k in range(sums)]
        text = (
            f"SELECT {', '.join((*keys, *parts))} "
            f"FROM (SELECT *, {', '.join(columns)} FROM r) AS s CROSS JOIN m "
            f"WHERE (c0 <= v OR c0 = {self.first}) "
            f"AND (v < c0 + {self.width} OR c0 + {self.width} >= {self.last})"
        )
        tree = parse_one(text, read="duckdb")
        assert isinstance(tree, exp.Select)
        answer = query.copy()
        answer.set("expressions", [exp.alias_(query.expressions[0].unalias().copy(), "v")])
        for node in list(tree.find_all(exp.Table)):
            inner = totals if node.name == "r" else answer
            alias = exp.TableAlias(this=exp.to_identifier(node.name))
            node.replace(exp.Subquery(this=inner, alias=alias))
        return tree
