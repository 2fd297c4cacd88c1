"""Statements that PostgreSQL and dpsql both answer, drawn at random, over tables that both have.

Real numbers are summed in steps of some 1e-8 by dpsql, so that none is rounded that may be a half.
"""

from __future__ import annotations

import itertools
import random
from pathlib import Path

from tests.support.tables import write_tables

CATALOG = """
[budget]
epsilon = 1000000
delta = 1e-9
max_epsilon_per_request = 1000

[analyst.ana]
epsilon = 1000000

[table.p]
source = "p.parquet"
privacy_unit = "row"

[table.p.column]
g = { type = "text", domain = ["x", "y", "it's"], null = true }
a = { type = "integer", domain = [0, 9] }
b = { type = "integer", domain = [-3, 3], null = true }
n = { type = "decimal", domain = [-1, 3], step = 0.25 }
d = { type = "date", domain = ["2024-01-28", "2024-02-03"], null = true }
c = { type = "boolean", domain = [false, true], null = true }
year = { type = "integer", domain = [2020, 2022] }
m = { type = "number", bounds = [0, 100] }
q = { type = "integer", bounds = [0, 50], null = true }

[table.w]
source = "w.parquet"
public = true

[table.w.column]
a = { type = "integer" }
label = { type = "text" }
size = { type = "integer" }
"""
ROWS = """SELECT [NULL, 'x', 'y', 'it''s'][(i * 7) % 4 + 1] AS g, CAST(i % 10 AS BIGINT) AS a,
  CASE WHEN i % 11 < 7 THEN CAST(i % 11 - 3 AS BIGINT) END AS b,
  CAST((i % 17 - 4) * 0.25 AS DECIMAL(8, 2)) AS n,
  CASE WHEN i % 13 < 12 THEN DATE '2024-01-28' + CAST(i % 7 AS INTEGER) END AS d,
  [NULL, true, false][(i // 5) % 3 + 1] AS c, CAST(2020 + (i // 3) % 3 AS BIGINT) AS year,
  CAST((i * 37) % 101 AS DOUBLE) AS m, CASE WHEN i % 17 > 0 THEN CAST(i % 51 AS BIGINT) END AS q
  FROM range(3000) v(i)"""
PUBLIC = """SELECT CAST(i AS BIGINT) AS a, ['lo', 'mid', 'hi'][i // 4 + 1] AS label,
  CASE WHEN i <> 3 THEN CAST(i * 5 AS BIGINT) END AS size FROM range(10) v(i)"""
TABLES = {"p": ROWS, "w": PUBLIC}
KINDS = {
    "p": "g text, a bigint, b bigint, n numeric, d date, c boolean, year bigint, "
    "m double precision, q bigint",
    "w": "a bigint, label text, size bigint",
}

INTEGERS = ["a", "b", "year", "a / 3", "b / 2", "-b / 2", "a % 4", "(a + 1) / 2", "abs(b)"]
INTEGERS += ["a - b", "a / 3 * 3", "year / 10", "coalesce(b, 0)", "nullif(a, 3)", "greatest(a, 4)"]
INTEGERS += ["(a / 4.0)::int", "cast(n as int)", "n::bigint", "round(a / 4.0)::int", "length(g)"]
INTEGERS += ["(a / 2.0)::bigint", "c::int", "d - date '2024-01-01'", "7 / 2 + a", "least(b, 1)"]
INTEGERS += ["case when a > 4 then a / 2 else 0 end", "'7'::int / 2 + a", "div(a, 3)::int"]
INTEGERS += [
    "(a * 5 / 2) / 2",
    "mod(a, 3)",
    "(b / 2.0)::int",
    "(n * 3)::int",
    "a::int",
    "strpos(g, 'x')",
]
NUMBERS = ["round(a / 4.0)", "round(n)", "round(n * 3)", "ceil(n)", "floor(a / 2.0)", "trunc(n)"]
NUMBERS += ["a / 4.0", "a::numeric / 4", "n / 2", "a * 1.5", "n + a", "power(a, 2)", "sqrt(a * a)"]
NUMBERS += [
    "extract(day from d)",
    "date_part('month', d)",
    "round(a / 8.0, 1)",
    "abs(n)",
    "sign(b)",
]
NUMBERS += ["extract(dow from d)", "a::float8 / 4", "round((n * 10)::numeric, 1)", "n * 2"]
NUMBERS += [
    "a / 2::float8",
    "round(a::float8 / 2)",
    "(a::float8 / 2)::int",
    "coalesce(b, 0.5)",
    "round(b / 2.0)",
    "extract(month from d) / 2",
]
TEXTS = [
    "g",
    "upper(g)",
    "g || '-' || a",
    "format('%s/%s', g, a)",
    "coalesce(g, 'none')",
    "left(g, 1)",
]
TEXTS += [
    "a::text",
    "concat(g, a)",
    "case when g = 'x' then 'ex' else g end",
    "to_char(d, 'YYYY-MM')",
]
TEXTS += ["format('%s%%', a)", "substring(g from 1 for 2)", "b::text", "replace(g, 'x', 'u')"]
TEXTS += ["lpad(g, 3, '-')", "c::text", "E'a\\'b' || g", "year || ''", "format('%2$s %1$s', g, a)"]
OTHERS = ["c", "d", "a > 4", "b is null", "g in ('x', 'y')", "a = any(array[1, 2, 3])", "d + 1"]
OTHERS += ["a = any('{4,5}')", "g similar to '(x|it)%'", "g like 'it\\''%'", "g ~ '^x'", "not c"]
OTHERS += [
    "date_trunc('month', d)",
    "g <> all(array['x'])",
    "a between 2 and 4",
    "b <= any('{0,1}')",
]
OTHERS += [
    "a in (1, 2) or c",
    "g is distinct from 'x'",
    "d + interval '1 day'",
    "d::timestamp",
    "a = '3'",
]
KEYS = [INTEGERS, INTEGERS, NUMBERS, TEXTS, OTHERS]
AGGREGATES = ["count(*)", "count(b)", "count(distinct a)", "sum(m)", "sum(q)", "avg(m)", "avg(q)"]
AGGREGATES += [
    "count(*) / 3",
    "sum(q) / 7",
    "100 * count(*) / 7",
    "round(avg(m) + 0.0123)",
]
AGGREGATES += [
    "sum(q) / count(*)",
    "round(avg(m)::numeric + 0.00123, 1)",
    "count(*)::float8 / 7",
    "sum(a)",
]
AGGREGATES += ["sum(case when a > 3 then 1 else 0 end)", "count(*) filter (where c)", "sum(a / 2)"]
AGGREGATES += ["sum(a::int)", "avg(a)", "count(*) * 1.5", "count(*) % 7", "coalesce(sum(q), 0)"]
AGGREGATES += [
    "sum(q) filter (where a / 2 = 1)",
    "count(*) - count(b)",
    "sum(m)::int",
]
AGGREGATES += [
    "count(*) filter (where b / 2 = 0) / 2",
    "sum(case when c then m end)",
    "avg(q)::int",
]
AGGREGATES += ["sum(q * 2)", "avg(a / 2)", "count(nullif(a, 3))", "round(sum(m))", "count(*) > 40"]
CONDITIONS = [
    "a / 3 = 1",
    "b / 2 = 0",
    "(a / 4.0)::int = 2",
    "g similar to 'x|y'",
    "a = any('{1,2,3}')",
]
CONDITIONS += [
    "round(n) = 2",
    "c",
    "d >= '2024-01-30'",
    "a in (1, 2, 3)",
    "b is not null",
    "g = 'x'",
]
CONDITIONS += ["a <> all(array[1, 2])", "not (g = 'x' and c)", "g ilike 'X%'", "a % 3 = 1 or b < 0"]
CONDITIONS += ["year / 2 = 1010", "n between 0 and 3", "extract(month from d) = 2", "a / 2.0 > 1.6"]
CONDITIONS += ["7 / 2 = 3", "g like 'it\\''%'", "length(g) = 1", "c is not true", "a::text = '3'"]
WAYS = ["", " desc"]
NULLS = ["", "", " nulls first", " nulls last"]
EMPTY = ["select * from p where 1 = 0", "select g, a / 2 as h, d from p limit 0"]
EMPTY += ["select q.* from (select g, count(*) as n from p group by g) q where (0 = 1)"]
EMPTY += ["select g, count(*), avg(m), sum(q) from p where false group by g"]
EMPTY += ["with u as (select * from p limit 0) select a, n / 2 from u where a > 3"]
EMPTY += ["select a from p where 1 = 0 union all select a from w where false"]
EMPTY += ["select x.g, w.label from (select * from p where 1 > 2) x join w on w.a = x.a"]
EMPTY += ['select "g" as "g", cast("m" as int) from (select * from p) as "custom" where (0 = 1)']


def write_common(folder: Path) -> Path:
    """Write catalog and data; return the catalog's path."""
    write_tables(folder, CATALOG, TABLES).close()
    (folder / "t.toml").rename(folder / "common.toml")
    return folder / "common.toml"


def draw(rng: random.Random) -> str:
    """A statement whose rows come in one order only."""
    forms = [_grouped, _grouped, _grouped, _totals, _outer, _windowed, _joined, _united, _public]
    return rng.choice(EMPTY) if rng.random() < 0.03 else rng.choice(forms)(rng)


def _keys(rng: random.Random, most: int = 2) -> list[str]:
    return [rng.choice(rng.choice(KEYS)) for _ in range(rng.choice([1, most]))]


def _where(rng: random.Random) -> str:
    tests = rng.sample(CONDITIONS, rng.choice([0, 1, 1, 2]))
    return f" where {' and '.join(f'({each})' for each in tests)}" if tests else ""


def _order(rng: random.Random, count: int) -> str:
    places = list(range(1, count + 1))
    rng.shuffle(places)
    return ", ".join(f"{k}{rng.choice(['', ' desc'])}{rng.choice(NULLS)}" for k in places)


def _items(rng: random.Random, items: list[str]) -> str:
    named = itertools.count()
    return ", ".join(f"{each} as c{next(named)}" if rng.random() < 0.2 else each for each in items)


def _grouped(rng: random.Random) -> str:
    keys, aggregates = _keys(rng), rng.sample(AGGREGATES, rng.choice([1, 2, 3]))
    group = ", ".join(map(str, range(1, len(keys) + 1)))
    if rng.random() < 0.3:
        group = ", ".join(keys)
    limit = rng.choice(["", "", " limit 5", " limit 3 offset 1", " fetch first 4 rows only"])
    return (
        f"select {_items(rng, [*keys, *aggregates])} from p{_where(rng)} group by {group}"
        f" having count(*) > 0 order by {_order(rng, len(keys))}{limit}"
    )


def _totals(rng: random.Random) -> str:
    return f"select {_items(rng, rng.sample(AGGREGATES, 3))} from p{_where(rng)}"


def _outer(rng: random.Random) -> str:
    (key,) = _keys(rng, 1)
    aggregate = rng.choice(["count(*)", "sum(q)", "sum(m)", "count(b)", "avg(q)"])
    over = [
        "n",
        "n / 2",
        "n / 3.0",
        "n::int / 2",
        "round(n / 4 + 0.0123)",
        "k",
        "n > 100",
        "n * 2",
        "-n",
    ]
    shown = rng.sample(over, 2)
    test = rng.choice(["", " where n > 20", " where n / 2 > 30", " where k is not null"])
    return (
        f"select k, {', '.join(shown)} from (select {key} as k, {aggregate} as n"
        f" from p{_where(rng)} group by 1 having count(*) > 0) s{test} order by k{rng.choice(WAYS)}"
    )


def _windowed(rng: random.Random) -> str:
    key = rng.choice(["a", "b", "g", "d", "a / 2", "year"])
    windows = ["row_number() over (order by {k} desc)", "sum(count(*)) over ()"]
    windows += [
        "count(*)::float8 / sum(count(*)) over ()",
        "100 * count(*) / sum(count(*)) over ()",
    ]
    windows += ["sum(count(*)) over (order by {k})", "lag(count(*)) over (order by {k})"]
    windows += ["rank() over (order by {k} desc nulls last)", "count(*) / sum(count(*)) over ()"]
    windows += ["max(count(*)) over ()", "ntile(3) over (order by {k})", "avg(count(*)) over ()"]
    shown = ", ".join(each.format(k=key) for each in rng.sample(windows, 2))
    return (
        f"select {key} as k, {shown} from p{_where(rng)} group by {key}"
        f" having count(*) > 0 order by {key}{rng.choice(['', ' desc'])}"
    )


def _joined(rng: random.Random) -> str:
    key = rng.choice(["w.label", "w.size / 10", "w.size", "w.label || p.a", "p.a / 2"])
    aggregates = ", ".join(rng.sample(["count(*)", "sum(p.q)", "avg(p.m)", "sum(w.size)"], 2))
    side = rng.choice(["join", "join", "left join"])
    return (
        f"select {key}, {aggregates} from p {side} w on p.a = w.a group by 1"
        f" having count(*) > 0 order by 1{rng.choice(['', ' desc'])}{rng.choice(NULLS)}"
    )


def _united(rng: random.Random) -> str:
    one, two = rng.choice(
        [("a", "b"), ("a / 2", "b"), ("g", "g"), ("d", "d"), ("year", "a"), ("a", "n")]
    )
    kind = rng.choice(["union all", "union all", "union"])
    return (
        f"select {one} as k, count(*) as n from p{_where(rng)} group by 1 having count(*) > 0"
        f" {kind} select {two}, count(*) from p group by 1 having count(*) > 0"
        f" order by 1{rng.choice(['', ' desc'])}, 2"
    )


def _public(rng: random.Random) -> str:
    items = [
        "a",
        "size / 2",
        "size / 4.0",
        "label",
        "format('%s:%s', label, size)",
        "(size / 10.0)::int",
    ]
    items += [
        "round(size / 10.0)",
        "a = any('{1,2}')",
        "label similar to '(lo|hi)'",
        "array[a, size]",
    ]
    tests = ["", " where size / 10 = 1", " where label similar to '(lo|hi)'", " where size > 10"]
    shown = ", ".join(rng.sample(items, 3))
    return f"select {shown} from w{rng.choice(tests)} order by size{rng.choice([' desc', ''])}, a"
