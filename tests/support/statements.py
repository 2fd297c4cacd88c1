"""Hypothesis strategies: statements of every form over the table ``t`` of tests/support/oracle.py.

Statements are typed, so that nearly all are accepted, and written so that DuckDB's answer on the
declared view is defined: a group that DuckDB has no rows of is dropped before anything compares
groups with each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from hypothesis import strategies as st

from dpsql.workload.weights import REAL_BITS


@dataclass(frozen=True, slots=True)
class Measured:
    """An aggregate; ``slack`` bounds one row's addition where it is rounded to a part of that.

    ``kind`` says how errors go on: sum, mean, square (variance) or root (standard deviation).
    """

    sql: str
    slack: float = 0.0
    kind: str = "sum"


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement and what is compared: its columns, and whether rows come in its own order.

    ``exact`` asks DuckDB the same where the statement itself cannot.
    """

    sql: str
    keys: int
    measured: tuple[Measured, ...]
    ordered: bool = False
    whole: bool = True
    exact: str = ""

    def tolerance(self, rows: int, column: int) -> float:
        """How far a number in a column may be from DuckDB's, beside relative rounding."""
        each = self.measured[column - self.keys]
        return rows * 3 * each.slack / (1 << REAL_BITS)


def pick(*texts: str) -> st.SearchStrategy[str]:
    """One of several texts."""
    return st.sampled_from(texts)


Others: TypeAlias = "st.SearchStrategy[Measured] | None"

WHOLE = pick("0", "1", "2", "3", "5", "-1", "7", "9", "100")
COMPARE = pick("=", "<>", "<", "<=", ">", ">=", "!=")


@st.composite
def numbers(draw: st.DrawFn) -> str:
    """A whole number over one column with a domain."""
    form = draw(
        pick(
            *("a", "a", "e", "e", "a + {k}", "{k} * e", "-a", "a // {p}", "a % {p}", "abs(e)"),
            *("e * e", "length(b)", "coalesce(e, {k})", "CAST(c AS INTEGER)", "nullif(a, {k})"),
            *("greatest(a, {k})", "CASE WHEN a > {k} THEN a ELSE {k} END", "year(d)", "month(d)"),
            *("CASE b WHEN 'x' THEN {k} WHEN 'y' THEN 4 END", "least(e, {k})", "(a - {k}) * a"),
            *("EXTRACT(month FROM d)", "round(a / 2.0)", "a << 1", "a & {p}", "sign(e)"),
        )
    )
    return form.format(k=draw(WHOLE), p=draw(pick("1", "2", "3", "4")))


@st.composite
def tests_of_one(draw: st.DrawFn) -> str:
    """A condition over one column."""
    form = draw(
        pick(
            *("{n} {o} {k}", "{n} {o} {k}", "{n} BETWEEN {k} AND {j}", "{n} IN ({k}, {j}, 4)"),
            *("{n} NOT BETWEEN {k} AND 5", "{n} NOT IN ({k}, 2)", "{n} IS NULL", "{n} IS NOT NULL"),
            *("{n} IS DISTINCT FROM {k}", "{n} IS NOT DISTINCT FROM {k}", "{k} {o} {n}"),
            *("b = {t}", "b <> {t}", "b IN ({t}, {t})", "b NOT IN ('x', {t})", "b LIKE {l}"),
            *("b NOT LIKE {l}", "b IS NULL", "b IS NOT NULL", "upper(b) = 'X'", "b > 'm'"),
            *("b || 'z' = 'xz'", "left(b, 1) = 'r'", "b ILIKE {l}", "starts_with(b, 'i')"),
            *("c", "NOT c", "c = TRUE", "c IS TRUE", "c IS NOT FALSE", "c IS NULL", "c <> FALSE"),
            *("d >= DATE '2024-01-01'", "d < '2024-02-01'", "d IS NULL", "year(d) = 2024"),
            *("d BETWEEN DATE '2023-12-01' AND DATE '2024-01-31'", "month(d) {o} 2"),
            *("n < 2", "n >= 0", "n < 0", "n BETWEEN 0 AND 10", "n >= 2", "1 {o} {k}", "TRUE"),
            *("coalesce(b, 'none') = 'none'", "a / 2.0 {o} 1.5", "1 / (a - 3) > 0", "b = NULL"),
        )
    )
    return form.format(
        n=draw(numbers()),
        o=draw(COMPARE),
        k=draw(WHOLE),
        j=draw(WHOLE),
        t=draw(pick("'x'", "'y'", "''", "'it''s'", "'rest'")),
        l=draw(pick("'%'", "'%t%'", "'_'", "'x%'", "'%s'", "''", "'r_st'")),
    )


@st.composite
def tests_of_two(draw: st.DrawFn) -> str:
    """A comparison between columns."""
    form = draw(
        pick(
            *(
                "a {o} e",
                "a {o} length(b)",
                "a + e {o} {k}",
                "e {o} length(b) + {k}",
                "c = (a > 2)",
            ),
            *("a * e > {k}", "(a > 2) = (b = 'x')", "a BETWEEN e AND length(b)", "a IN (e, {k})"),
            *(
                "coalesce(e, a) {o} {k}",
                "CASE WHEN c THEN a ELSE e END {o} {k}",
                "a - e = month(d)",
            ),
            *("a IS DISTINCT FROM e", "greatest(a, e) {o} {k}", "(c OR a > 3) IS NULL"),
        )
    )
    return form.format(o=draw(COMPARE), k=draw(WHOLE))


def conditions() -> st.SearchStrategy[str]:
    """Any boolean combination, across columns."""
    leaf = st.one_of(tests_of_one(), tests_of_one(), tests_of_one(), tests_of_two())

    def grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        pair = st.tuples(inner, inner)
        return st.one_of(
            pair.map(lambda p: f"({p[0]} OR {p[1]})"),
            pair.map(lambda p: f"{p[0]} AND {p[1]}"),
            pair.map(lambda p: f"({p[0]} AND {p[1]})"),
            inner.map(lambda p: f"NOT ({p})"),
        )

    return st.recursive(leaf, grow, max_leaves=4)


@st.composite
def measures(draw: st.DrawFn) -> Measured:
    """What is summed, with how much one row adds at most where it is rounded."""
    form = draw(
        st.sampled_from(
            [
                *(Measured("{n}"), Measured("{n}"), Measured("a * length(b)"), Measured("a - e")),
                *(
                    Measured("q"),
                    Measured("2 * q + a"),
                    Measured("q * a", 0),
                    Measured("a * e + 1"),
                ),
                *(Measured("m", 25), Measured("m", 25), Measured("2 * m + 3", 60)),
                *(Measured("m + a", 40), Measured("m * a", 200), Measured("coalesce(m, 0)", 30)),
                *(Measured("r", 2), Measured("r * r", 40), Measured("m * q", 7000)),
                *(
                    Measured("w", 12),
                    Measured("-m", 25),
                    Measured("m / 4", 7),
                    Measured("r + m", 30),
                ),
                *(Measured("CASE WHEN {p} THEN m ELSE 0 END", 40), Measured("m - r", 30)),
                *(
                    Measured("CASE WHEN {p} THEN a END"),
                    Measured("CASE WHEN {p} THEN q ELSE 1 END"),
                ),
                *(Measured("CASE WHEN {p} THEN 1 ELSE 0 END"), Measured("m * m", 3000)),
            ]
        )
    )
    test = draw(st.one_of(tests_of_one(), conditions())) if "{p}" in form.sql else ""
    number = draw(numbers()) if "{n}" in form.sql else ""
    return Measured(form.sql.format(p=test, n=number), form.slack)


@st.composite
def aggregates(draw: st.DrawFn, others: Others = None) -> Measured:
    """A count, sum, mean, spread or quantile, or one of the ``others``."""
    if others is not None and draw(st.integers(0, 2)):
        return draw(others)
    kind = draw(pick(*["count"] * 4, *["sum"] * 4, "mean", "mean", "spread", "rank", "ratio"))
    kept = f" FILTER (WHERE {draw(conditions())})" if draw(st.booleans()) else ""
    if kind == "count":
        form = draw(
            pick(
                *("COUNT(*)", "COUNT(*)", "COUNT({n})", "COUNT(b)", "COUNT(m)", "COUNT_IF({p})"),
                *("COUNT(w)", "COUNT(d)"),
            )
        )
        text = form.format(n=draw(numbers()), p=draw(conditions()))
        return Measured(text + ("" if "COUNT_IF" in text else kept))
    if kind == "rank":
        form = draw(
            pick(
                *("MEDIAN({n})", "QUANTILE_CONT({n}, {q})", "QUANTILE_DISC({n}, {q})"),
                *("PERCENTILE_CONT({q}) WITHIN GROUP (ORDER BY {n})", "QUANTILE_DISC(e, {q})"),
                "PERCENTILE_DISC({q}) WITHIN GROUP (ORDER BY {n} DESC)",
            )
        )
        return Measured(
            form.format(
                n=draw(pick("a", "e", "a * 2")), q=draw(pick("0.5", "0.1", "0.8", "0", "1"))
            ),
            0.0,
            "rank",
        )
    if kind == "ratio":
        return Measured("100.0 * COUNT(*) FILTER (WHERE c) / COUNT(*)", 0.0, "mean")
    inner = draw(measures())
    if kind == "sum":
        return Measured(f"SUM({inner.sql}){kept}", inner.slack)
    if kind == "mean":
        return Measured(f"AVG({inner.sql}){kept}", inner.slack, "mean")
    spread = draw(pick("VAR_POP", "VAR_SAMP", "STDDEV", "STDDEV_POP", "VARIANCE", "STDDEV_SAMP"))
    plain = draw(
        st.sampled_from(
            [Measured("a"), Measured("e"), Measured("q"), Measured("m", 25), Measured("r", 2)]
        )
    )
    return Measured(
        f"{spread}({plain.sql})", plain.slack**2, "root" if "STD" in spread else "square"
    )


KEYS = pick(
    *("a", "b", "c", "d", "n", "e", "a // 3", "a % 2", "a > 3", "e IS NULL", "length(b)"),
    *("upper(b)", "year(d)", "date_trunc('quarter', d)", "coalesce(e, 0)", "left(b, 1)"),
    *("CASE WHEN a < 2 THEN 'lo' WHEN a < 6 THEN 'mid' END", "b = 'x'", "CAST(a AS VARCHAR)"),
    *("n < 2", "CASE WHEN d < DATE '2024-01-01' THEN year(d) ELSE 0 END", "month(d) % 2", "-e"),
    *("CASE WHEN c THEN 'yes' ELSE 'no' END", "abs(e)", "EXTRACT(month FROM d)", "e + 1"),
)


FORMS = (*["plain"] * 6, "sets", "running", "public", "values", "shell", "shell", "window")


@st.composite
def statements(draw: st.DrawFn, forms: Sequence[str] = FORMS, others: Others = None) -> Statement:
    """A statement of one of these forms, over these aggregates and ``others``."""
    form = draw(pick(*forms))
    where = f" WHERE {draw(conditions())}" if draw(st.booleans()) else ""
    chosen = draw(st.lists(KEYS, max_size=3, unique=True))
    keys = list(chosen)
    if form == "sets":
        keys = [key for key in keys if " " not in key or "//" in key]
    if form in ("sets", "running", "shell", "window") and not keys:
        keys = ["a"]
    count = draw(st.integers(1, 3))
    measured = [draw(aggregates(others)) for _ in range(count)]
    if form == "running":
        return _running(draw, keys, where)
    if form in ("public", "values"):
        return _public(draw, form, where, measured)
    return _grouped(draw, form, keys, where, measured)


def columns_of(keys: Sequence[str], measured: Sequence[Measured]) -> str:
    items = [f"{key} AS k{i}" for i, key in enumerate(keys)]
    return ", ".join(items + [f"{each.sql} AS x{j}" for j, each in enumerate(measured)])


def _grouped(
    draw: st.DrawFn, form: str, keys: list[str], where: str, measured: list[Measured]
) -> Statement:
    order = ", ".join(f"k{i}" for i in range(len(keys)))
    names = {
        "keys": ", ".join(keys),
        "positions": ", ".join(str(i + 1) for i in range(len(keys))),
        "aliases": order,
        "all": "ALL",
    }
    spelling = draw(pick(*names))
    group = f" GROUP BY {names[spelling]}" if keys else ""
    items = columns_of(keys, measured)
    if form == "sets":
        shape = draw(pick("CUBE ({})", "ROLLUP ({})", "GROUPING SETS (({0}), ({1}), ())"))
        listed = shape.format(", ".join(keys[:2]), keys[0])
        bits = ", ".join(f"GROUPING({key}) AS g{i}" for i, key in enumerate(keys[:2]))
        items = f"{bits}, {columns_of(keys[:2], measured)}"
        text = f"SELECT {items} FROM t{where} GROUP BY {listed}"
        return Statement(text, 2 * len(keys[:2]), tuple(measured))
    if form == "window":
        group = f" GROUP BY {names['keys']}"
    text = f"SELECT {items} FROM t{where}{group}"
    if form == "plain":
        return Statement(text, len(keys), tuple(measured))
    text += f" HAVING COUNT(*) > {draw(pick('0.5', '1.5', '3.5'))}"
    if form == "window":
        window = draw(
            pick(
                *(
                    "RANK() OVER (ORDER BY ROUND(COUNT(*)) DESC)",
                    "SUM(COUNT(*)) OVER (ORDER BY {k})",
                ),
                *("COUNT(*) - LAG(COUNT(*)) OVER (ORDER BY {o})", "SUM(COUNT(*)) OVER ()"),
                *("ROW_NUMBER() OVER (ORDER BY {o})", "MAX(COUNT(*)) OVER (PARTITION BY {k})"),
                "AVG(COUNT(*)) OVER (ORDER BY {o} ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)",
            )
        ).format(k=keys[0], o=", ".join(keys))
        shown = Measured(window)
        text = text.replace(" FROM t", f", {window} AS x9 FROM t", 1)
        return Statement(text, len(keys), (*measured, shown), whole=False)
    least = draw(pick("", " LIMIT 3", " LIMIT 4 OFFSET 1"))
    way = draw(pick("", " DESC", " NULLS FIRST", " DESC NULLS LAST"))
    listed = ", ".join(f"k{i}{way}" for i in range(len(keys)))
    text += f" ORDER BY ROUND(COUNT(*)) DESC, {listed}{least}"
    return Statement(text, len(keys), tuple(measured), ordered=True, whole=False)


def _running(draw: st.DrawFn, keys: list[str], where: str) -> Statement:
    inner = draw(pick("COUNT(*)", "COUNT(e)", "SUM(a)", "SUM(q)", "COUNT(*) FILTER (WHERE c)"))
    way = draw(pick("", " DESC"))
    apart = f"PARTITION BY {', '.join(keys[1:])} " if len(keys) > 1 else ""
    window = f"SUM({inner}) OVER ({apart}ORDER BY {keys[0]}{way})"
    measured = (Measured(window), Measured("COUNT(*)"))
    text = f"SELECT {columns_of(keys, measured)} FROM t{where} GROUP BY {', '.join(keys)}"
    return Statement(text, len(keys), measured, whole=False)


def _public(draw: st.DrawFn, form: str, where: str, measured: list[Measured]) -> Statement:
    if form == "values":
        source = "(VALUES (0, 'p'), (3, 'q'), (3, 'r')) AS v(x, y) JOIN t ON "
        source += draw(pick("t.a <= v.x", "v.x = t.e", "t.a BETWEEN v.x AND v.x + 2"))
        key = draw(pick("v.x", "y", "x + 1"))
    else:
        join = draw(pick("JOIN", "LEFT JOIN", "INNER JOIN"))
        source = f"t {join} bands ON "
        source += draw(pick("a BETWEEN lo AND hi", "t.a = bands.lo", "a >= lo AND a < hi"))
        key = draw(pick("name", "lo", "bands.hi", "upper(name)"))
    text = f"SELECT {columns_of([key], measured)} FROM {source}{where} GROUP BY 1"
    return Statement(text, 1, tuple(measured))
