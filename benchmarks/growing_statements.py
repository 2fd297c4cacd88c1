"""Parts of ``benchmarks.growth`` in one statement: sums of numbers, keys, means, conditions."""

from __future__ import annotations

import math
from functools import reduce
from itertools import combinations
from pathlib import Path

from benchmarks.growing import Growing, with_cells, with_columns, write_table
from dpsql.dbapi.connection import Connection


def _with_halves(folder: Path, size: int) -> None:
    """So many keys, each of which has two halves."""
    declared = f'k = {{ type = "integer", domain = [0, {size - 1}] }}\n'
    declared += 'c = { type = "boolean", domain = [true, false] }\n'
    write_table(folder, declared, 10_000, f"(hash(i) % {size})::INT AS k, i % 2 = 0 AS c")


def _added(connection: Connection, size: int) -> None:
    """Counts by their values in one sum, whose standard error has a covariance for every pair."""
    counts = (f"{place + 1} * COUNT(*) FILTER (WHERE k = {place})" for place in range(size))
    connection.execute(f"SELECT {' + '.join(counts)} AS n FROM t").fetchall()


def _compared(connection: Connection, _: int) -> None:
    """What two sub-queries say of every key."""
    one, two = (f"SELECT k, COUNT(*) AS n FROM t WHERE {c} GROUP BY k" for c in ("c", "NOT c"))
    sql = f"SELECT x.k, x.n - y.n FROM ({one}) AS x JOIN ({two}) AS y USING (k)"
    connection.execute(sql).fetchall()


def _means(connection: Connection, size: int) -> None:
    """A mean of every column."""
    means = ", ".join(f"AVG(c{place})" for place in range(size))
    connection.execute(f"SELECT {means} FROM t").fetchall()


def _disjoint(connection: Connection, size: int) -> None:
    """A table of counts for every column by itself, in one script."""
    tables = (f"SELECT c{place}, COUNT(*) FROM t GROUP BY c{place}" for place in range(size))
    connection.explain(";".join(tables))


def _conditions(connection: Connection, size: int) -> None:
    """The rows that meet a condition on every column."""
    told = (f"c{place} {'=' if place % 2 else '<'} 5" for place in range(size))
    connection.execute(f"SELECT COUNT(*) FROM t WHERE {' AND '.join(told)}").fetchall()


def _either(connection: Connection, size: int) -> None:
    """The rows that meet a condition on some column, and beside these, all rows."""
    told = " OR ".join(f"c{place} < 5" for place in range(size))
    sql = f"SELECT COUNT(*) FROM t WHERE {told}; SELECT COUNT(*) FROM t"
    connection.executescript(sql).close()


def _clauses(connection: Connection, size: int) -> None:
    """The rows that meet one of two conditions, for every two columns."""
    pairs = (f"(c{place} < 5 OR c{place + 1} < 5)" for place in range(0, size, 2))
    connection.execute(f"SELECT COUNT(*) FROM t WHERE {' AND '.join(pairs)}").fetchall()


def _nested(connection: Connection, size: int) -> None:
    """Counts in UNION ALL, each in parentheses with all those before it."""
    counts = [f"SELECT COUNT(*) AS n FROM t WHERE k > {place}" for place in range(size)]
    connection.explain(reduce(lambda united, count: f"({united} UNION ALL {count})", counts))


def _chained(connection: Connection, size: int) -> None:
    """Names each of which uses the one before it twice, and is used twice by the next."""
    twice = "SELECT a.n + b.n AS n FROM u{0} AS a, u{0} AS b"
    names = ", ".join(f"u{place} AS ({twice.format(place - 1)})" for place in range(1, size))
    first = "u0 AS (SELECT COUNT(*) AS n FROM t)"
    connection.explain(f"WITH {first}, {names} SELECT n FROM u{size - 1}")


def _pairs(connection: Connection, size: int) -> None:
    """The rows whose values of two columns are in a list of pairs."""
    pairs = ", ".join(f"({place}, {place % 2 == 0})" for place in range(size))
    connection.explain(f"SELECT COUNT(*) FROM t WHERE (k, c) IN ({pairs})")


def _longer(connection: Connection, size: int) -> None:
    """Columns that add a hundred numbers to a count each."""
    items = (f"COUNT(*){' + 1' * 100} AS n{place}" for place in range(size))
    connection.explain(f"SELECT {', '.join(items)} FROM t")


def _with_pairs(folder: Path, size: int) -> None:
    """Columns of two values that have so many combinations."""
    names = [f"c{place}" for place in range(size.bit_length() - 1)]
    declared = "".join(f'{name} = {{ type = "text", domain = ["x", "y"] }}\n' for name in names)
    drawn = (f"if(hash(i + {j}) % 2 = 0, 'x', 'y') AS {name}" for j, name in enumerate(names))
    write_table(folder, declared, 10_000, ", ".join(drawn))


def _with_measures(folder: Path, size: int) -> None:
    """Numbers with bounds, of which there are so many pairs."""
    names = [f"x{place}" for place in range(1 + math.isqrt(2 * size))]
    declared = "".join(f'{name} = {{ type = "number", bounds = [0, 100] }}\n' for name in names)
    drawn = (f"(hash(i + {j}) % 10000) / 100.0 AS {name}" for j, name in enumerate(names))
    write_table(folder, declared, 10_000, ", ".join(drawn))


def _grouped(connection: Connection, size: int) -> None:
    """A count for every combination of the values of all columns."""
    names = ", ".join(f"c{place}" for place in range(size.bit_length() - 1))
    connection.execute(f"SELECT {names}, COUNT(*) FROM t GROUP BY {names}").fetchall()


def _rolled_up(connection: Connection, size: int) -> None:
    """The same, and for the first columns alone, one less at a time."""
    names = ", ".join(f"c{place}" for place in range(size.bit_length() - 1))
    connection.execute(f"SELECT {names}, COUNT(*) FROM t GROUP BY ROLLUP({names})").fetchall()


def _joined_texts(connection: Connection, size: int) -> None:
    """A count for every value of an expression of all columns."""
    text = " || ".join(f"c{place}" for place in range(size.bit_length() - 1))
    connection.execute(f"SELECT {text} AS k, COUNT(*) FROM t GROUP BY k").fetchall()


def _correlated(connection: Connection, size: int) -> None:
    """How every two columns hang together."""
    pairs = combinations([f"x{place}" for place in range(1 + math.isqrt(2 * size))], 2)
    asked = ", ".join(f"CORR({one}, {other})" for one, other in pairs)
    connection.execute(f"SELECT {asked} FROM t").fetchall()


PARTS = {
    "added": Growing(
        (30, 100), (250,), with_cells, _added, "a sum of n numbers has n^2 / 2 covariances"
    ),
    "compared": Growing((1000, 10_000), (100_000,), _with_halves, _compared),
    "means": Growing((10, 30, 100), (300,), with_columns, _means),
    "disjoint": Growing((25, 50, 100), (200,), with_columns, _disjoint),
    "conditions": Growing((5, 10, 20, 40, 60), (), with_columns, _conditions),
    "either": Growing(
        (5, 10, 15, 20), (), with_columns, _either, "n columns have 2^n combinations"
    ),
    "clauses": Growing((6, 10, 14, 18), (), with_columns, _clauses, "n pairs take 2^n products"),
    "nested": Growing((4, 8, 16, 32), (), with_cells, _nested),
    "chained": Growing((10, 20, 40, 80), (), with_cells, _chained),
    "pairs": Growing((100, 300, 900), (), _with_halves, _pairs),
    "longer": Growing((6, 12, 24, 48), (), with_cells, _longer),
    "grouped": Growing((256, 4096, 65_536), (524_288,), _with_pairs, _grouped),
    "rollup": Growing((256, 4096, 16_384, 65_536), (), _with_pairs, _rolled_up),
    "texts": Growing((64, 256, 1024, 4096), (), _with_pairs, _joined_texts),
    "correlated": Growing((6, 28, 66, 120), (), _with_measures, _correlated),
}
"""By name: numbers that one expression adds up, keys of sub-queries that are compared, means,
tables of a column each, and conditions on columns that are joined by AND, by OR, and by OR two by
two. Of EXPLAIN, texts that are long: counts in nested UNION ALL, CTEs that use each other twice,
pairs of an IN list, and columns that are sums of a hundred parts. Columns that are grouped by,
rolled up, put together in one key, and correlated two by two."""
