"""Random rows of a few units, and random statements that combine what crosses between tables."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.tables import Tables

Row = tuple[Any, ...]
Data = dict[str, list[Row]]
CATALOG = """
[budget]
epsilon = 1000000
delta = 1e-4
max_epsilon_per_request = 10000
[unit.person]
[table.people]
source = "people.parquet"
privacy_unit = { column = "person", max_rows = 1 }
unit_columns = ["friend"]
[table.people.column]
town = { type = "text", domain = ["a", "b"], null = true }
age = { type = "integer", domain = [0, 9] }
[table.sales]
source = "sales.parquet"
privacy_unit = { column = "buyer", max_rows = 3 }
unit_columns = ["receiver", "payer"]
unit_keys = ["bill"]
references = { people = { on = { buyer = "person" } } }
[table.sales.column]
kind = { type = "text", domain = ["x", "y"], null = true }
size = { type = "integer", domain = [0, 9] }
price = { type = "integer", bounds = [0, 100], null = true }
item = { type = "integer", domain = [1, 4] }
[table.visits]
source = "visits.parquet"
privacy_unit = { column = "person", max_rows = 2 }
unit_columns = ["guide"]
[table.visits.column]
ward = { type = "text", domain = ["x", "y", "z"] }
day = { type = "integer", domain = [0, 9], null = true }
fee = { type = "number", bounds = [0, 50] }
[table.lines]
source = "lines.parquet"
privacy_unit = { through = "sales", on = "bill", max_rows = 4 }
[table.lines.column]
part = { type = "integer", domain = [1, 4] }
units = { type = "integer", domain = [0, 5] }
[table.items]
source = "items.parquet"
public = true
[table.items.column]
id = { type = "integer" }
brand = { type = "text" }
[view.few]
sql = "SELECT buyer, receiver, kind, size, price FROM sales WHERE size > 1"
max_rows = 2
[view.gifts]
sql = "SELECT p.person, p.town, s.size, s.kind FROM people p JOIN sales s ON s.receiver = p.person"
max_rows = 2
[view.spent]
sql = "SELECT buyer, SUM(price) AS spent, COUNT(*) AS times FROM sales GROUP BY buyer"
"""
HEADS = {
    "people": "person BIGINT, friend BIGINT, town VARCHAR, age BIGINT",
    "sales": "buyer BIGINT, receiver BIGINT, payer BIGINT, bill BIGINT, kind VARCHAR, "
    "size BIGINT, price BIGINT, item BIGINT",
    "visits": "person BIGINT, guide BIGINT, ward VARCHAR, day BIGINT, fee DOUBLE",
    "lines": "bill BIGINT, part BIGINT, units BIGINT",
}
ITEMS = [(1, "p"), (2, "q"), (3, "p"), (4, "r")]


def draw_data(draw: random.Random, odd: bool) -> Data:
    """Rows of two to six units; odd ones have too many, NULLs and values that nobody declared."""
    units = draw.choice([2, 2, 3, 3, 4, 6])
    ids = [*range(units), *([None, 99] if odd else [None])]

    def some(of: Sequence[Any], *strange: Any) -> Any:
        return draw.choice(strange) if odd and strange and draw.random() < 0.15 else draw.choice(of)

    def rows(most: int) -> Iterator[int]:
        for unit in range(units):
            for _ in range(draw.randrange((5 if odd else most) + 1)):
                yield some([unit], None) if odd else unit

    nine = range(10)
    people = [(u, draw.choice(ids), some(["a", "b", None], "q"), some(nine, 77)) for u in rows(1)]
    sales = [
        (
            u,
            draw.choice([u, *ids]),
            draw.choice([u, *ids]),
            some([10 * (u or 0) + draw.randrange(2), None], draw.randrange(60)),
            some(["x", "y", None], "q"),
            some(nine, -3, None),
            some([*range(0, 101, 20), None], 1000),
            some(range(1, 5), 9, None),
        )
        for u in rows(3)
    ]
    visits = [
        (u, draw.choice([u, *ids]), some("xyz", "q", None), some([*nine, None], 55),
         some([0.0, 12.5, 50.0], 80.0))
        for u in rows(2)
    ]  # fmt: skip
    bills = [row[3] for row in sales] + ([None, 77] if odd else [])
    lines = [
        (bill, some(range(1, 5), 8), some(range(6), None))
        for bill in (bills if odd else sorted({b for b in bills if b is not None}))
        for _ in range(draw.randrange(3))
    ]
    return {"people": people, "sales": sales, "visits": visits, "lines": lines}


def without(data: Data, unit: int) -> Data:
    """The tables without the rows of a unit; rows of bills belong to whoever has the bill."""
    kept = {
        name: [row for row in rows if name == "lines" or row[0] != unit]
        for name, rows in data.items()
    }
    left = {row[3] for row in kept["sales"] if row[0] is not None}
    gone = {row[3] for row in data["sales"] if row[0] == unit} - left
    kept["lines"] = [row for row in data["lines"] if row[0] not in gone]
    return kept


def tables_of(data: Data) -> Tables:
    private = {name: (HEADS[name], rows) for name, rows in data.items()}
    return {**private, "items": ("id BIGINT, brand VARCHAR", ITEMS)}


@dataclass
class Source:
    """What stands in FROM: whose its rows are, and what they have."""

    text: str
    unit: str
    keys: list[str]
    numbers: list[str]
    bill: str = ""
    ids: list[str] = field(default_factory=list)


def plain(draw: random.Random) -> Source:
    return draw.choice(
        [
            Source("people p", "p.person", ["p.town", "p.age"], ["p.age"], "", ["p.friend"]),
            sales("s"),
            sales("s"),
            Source("visits v", "v.person", ["v.ward", "v.day"], ["v.fee"], "", ["v.guide"]),
            Source("few f", "f.buyer", ["f.kind", "f.size"], ["f.price"], "", ["f.receiver"]),
            Source("gifts g", "g.person", ["g.town", "g.kind"], ["g.size"]),
            Source("lines l", "", ["l.part", "l.units"], ["l.units"], "l.bill"),
            Source("spent t", "t.buyer", ["t.times", "FLOOR(t.spent / 60)"], ["t.spent"]),
        ]
    )


def sales(name: str) -> Source:
    keys, ids = ["kind", "size", "item"], ["receiver", "payer"]
    return Source(
        f"sales {name}",
        f"{name}.buyer",
        [f"{name}.{each}" for each in keys],
        [f"{name}.price", f"{name}.size"],
        f"{name}.bill",
        [f"{name}.{each}" for each in ids],
    )


def draw_source(draw: random.Random, depth: int) -> Source:
    match draw.randrange(16 if depth else 4):
        case 0 | 1 | 2 | 3:
            found = plain(draw)
            name, alias = found.text.split()
            if depth and draw.random() < 0.4:
                found.text = f"(SELECT * FROM {name} {alias} WHERE {draw_test(draw, found, 1)}) "
                found.text += alias
            return found
        case 13:  # sums of what joins bring together
            key, other = draw.choice(["s.receiver", "s.buyer", "s.payer"]), draw.choice("ab")
            where = draw.choice(["", " WHERE s.size > 2", f" WHERE p.town = '{other}'"])
            inner = "SELECT p.person, SUM(s.price * p.age) AS r, COUNT(*) AS n, MAX(s.size) AS g "
            inner += f"FROM people p JOIN sales s ON {key} = p.person{where} GROUP BY p.person"
            keys = ["t.n", "t.g", "FLOOR(t.r / 300)", "t.r > 200"]
            return Source(f"({inner}) t", "t.person", keys, ["t.n", "t.r"])
        case 14 | 15:  # such sums beside rows
            key, word = draw.choice(["receiver", "payer", "buyer"]), draw.choice(["", "LEFT "])
            inner = "SELECT buyer AS u, SUM(price) AS a, SUM(price * size) AS r, COUNT(*) AS n"
            inner += f" FROM sales GROUP BY buyer{draw.choice(['', ' HAVING SUM(price) > 60'])}"
            found = sales("s")
            keys = ["t.n", "FLOOR(t.r / 300)", "t.a < t.r", "t.r IS NULL", "t.a > 3 * s.size"]
            text = f"sales s {word}JOIN ({inner}) t ON s.{key} = t.u"
            if draw.random() < 0.3:
                text = f"({inner}) t {word}JOIN sales s ON s.{key} = t.u"
            unit = "s.buyer" if text[0] == "s" else "t.u"
            return Source(text, unit, keys + found.keys, ["t.a", "s.price"], "s.bill", found.ids)
        case 4 | 5:  # a person's own sums
            more = draw.choice(["", "", ", kind"])
            having = draw.choice(
                ["", "", " HAVING COUNT(*) > 1", " HAVING SUM(price) > 50",
                 " HAVING SUM(price * size) > 40 OR COUNT(*) = 1"]
            )  # fmt: skip
            where = (
                f" WHERE {draw_test(draw, sales('s'), depth - 1)}" if draw.random() < 0.4 else ""
            )
            inner = (
                f"SELECT s.buyer{more}, SUM(price) AS a, COUNT(*) AS n, SUM(price * size) AS r, "
                f"COUNT(s.bill) AS b FROM sales s{where} GROUP BY s.buyer{more}{having}"
            )
            case = "CASE WHEN t.r > 90 THEN 'p' WHEN t.a > 20 THEN 'q' END"
            keys = ["t.n", "CAST(t.a / 50 AS INT)", "t.a > t.r", "t.b", case]
            keys += ["FLOOR(LEAST(t.r, 300) / 100)"]
            keys += ["t.kind"] * bool(more)
            return Source(f"({inner}) t", "t.buyer", keys, ["t.a", "t.n", "t.r"])
        case 6 | 7:  # joins by ids of other units, and by keys
            own = draw.choice(["s.buyer", "s.receiver", "s.payer"])
            word = draw.choice(["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
            found = sales("s")
            if draw.random() < 0.5:
                test = f"{own} = p.person{draw.choice(['', ' AND s.size > 3', ' AND p.age > 2'])}"
                one, two = draw.choice([("sales s", "people p"), ("people p", "sales s")])
                unit = "s.buyer" if one == "sales s" else "p.person"
                return Source(f"{one} {word} {two} ON {test}", unit, ["p.town", *found.keys],
                              ["p.age", *found.numbers], "s.bill", found.ids)  # fmt: skip
            if draw.random() < 0.3:
                other = draw.choice(["w.receiver", "w.payer", "w.buyer", "w.bill"])
                own = "s.bill" if other == "w.bill" else own
                text = f"sales s {word} sales w ON {own} = {other}"
                return Source(text, "s.buyer", ["w.kind", *found.keys], ["w.price", "s.size"],
                              "s.bill", ["w.receiver", *found.ids])  # fmt: skip
            theirs = draw.choice(["v.person", "v.guide"])
            text = f"sales s {word} visits v ON {own} = {theirs}"
            return Source(text, "s.buyer", ["v.ward", *found.keys], ["v.fee", "s.price"], "s.bill")
        case 8:
            text = draw.choice(
                [
                    "lines l JOIN sales s ON l.bill = s.bill",
                    "sales w JOIN sales s ON w.bill = s.bill",
                    "sales s JOIN items i ON s.item = i.id",
                ]
            )
            found = sales("s")
            extra = ["i.brand"] * ("items" in text) + ["l.part"] * ("lines" in text)
            return Source(
                text, "s.buyer", [*extra, *found.keys], found.numbers, "s.bill", found.ids
            )
        case 9:
            order = draw.choice(["size", "price", "size DESC"])
            inner = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY buyer ORDER BY {order}) AS k"
            inner += ", COUNT(*) OVER (PARTITION BY buyer) AS c FROM sales"
            found = sales("q")
            return Source(f"({inner}) q", "q.buyer", ["q.k", "q.c", *found.keys], found.numbers,
                          "q.bill", found.ids)  # fmt: skip
        case 10 | 11:  # rows of a person and of a key
            key = draw.choice(["bill", "receiver", "payer", "receiver, kind", "bill, kind"])
            unit, where = draw.choice(["", "buyer, "]), draw.choice(["", " WHERE size > 2"])
            having = draw.choice(["", " HAVING COUNT(*) > 1", " HAVING SUM(price * size) > 90"])
            inner = f"SELECT {unit}{key}, COUNT(*) AS n, SUM(price * size) AS r, SUM(price) AS a"
            inner += f" FROM sales s{where} GROUP BY {unit}{key}{having}"
            keys = ["t.n", "FLOOR(LEAST(t.r, 300) / 100)", "t.r > t.a", "t.a IS NULL"]
            ids = [f"t.{key}"] if key in ("receiver", "payer") else []
            bill = "t.bill" if "bill" in key else ""
            return Source(
                f"({inner}) t", "t.buyer" if unit else "", keys, ["t.n", "t.a"], bill, ids
            )
        case _:
            one = draw.choice(["SELECT buyer AS u, kind AS k, size AS d FROM sales",
                               "SELECT buyer AS u, kind AS k, size AS d FROM few"])  # fmt: skip
            two = draw.choice(["SELECT person, ward, day FROM visits", "SELECT person, town, age "
                               "FROM people", "SELECT person, kind, size FROM gifts"])  # fmt: skip
            word = draw.choice(["UNION ALL", "UNION", "EXCEPT", "INTERSECT"])
            return Source(f"({one} {word} {two}) e", "e.u", ["e.k", "e.d"], ["e.d"])


def draw_test(draw: random.Random, of: Source, depth: int) -> str:
    """A condition on a row."""
    key, unit = draw.choice(of.keys), of.unit or "0"
    other = draw.choice(["o.receiver", "o.payer", "o.buyer"])
    c = draw.choice([0, 1, 2, 5, 30, 100])
    found = [f"{draw.choice(of.numbers)} > {c % 10}", f"{key} IS NOT NULL"]
    if of.bill:
        found += [f"{of.bill} IS NULL", f"{of.bill} IS NOT NULL",
                  f"EXISTS (SELECT 1 FROM sales o WHERE o.bill = {of.bill} AND o.size > {c % 7})",
                  f"{of.bill} IN (SELECT bill FROM lines WHERE part > 2)"]  # fmt: skip
    for each in of.ids:
        found += [f"EXISTS (SELECT 1 FROM sales o WHERE {other} = {each} AND o.size > {c % 7})",
                  f"EXISTS (SELECT 1 FROM visits y WHERE y.guide = {each})",
                  f"{each} IN (SELECT payer FROM sales WHERE kind = 'x')",
                  f"(SELECT SUM(price) FROM sales o WHERE o.buyer = {each}) > {c}",
                  f"(SELECT COUNT(*) FROM sales o WHERE o.receiver = {each}) > {c % 2}",
                  f"{each} = {unit}", f"{each} <> {unit}", f"{each} IS NULL",
                  f"{each} IN (SELECT person FROM visits WHERE ward <> 'x')",
                  f"EXISTS (SELECT 1 FROM people y WHERE y.person = {each} AND y.town = 'a')",
                  f"{each} NOT IN (SELECT person FROM people WHERE age > 3)"]  # fmt: skip
    if of.unit:
        inner = ""
        wholes = [each for each in of.keys if each.split(".")[-1] in ("size", "day", "age", "d")]
        mixed = draw.choice(wholes or ["3"])
        if depth and draw.random() < 0.5:
            inner = f" AND {draw_test(draw, sales('o'), depth - 1)}"
        found += [
            f"{unit} IN (SELECT {other} FROM sales o WHERE o.size > {c % 7}{inner})",
            f"EXISTS (SELECT 1 FROM sales o WHERE {other} = {unit}{inner})",
            f"NOT EXISTS (SELECT * FROM sales o WHERE {other} = {unit} AND size < {c % 9}{inner})",
            f"{unit} IN (SELECT buyer FROM sales GROUP BY buyer HAVING SUM(price) > {c})",
            f"(SELECT SUM(price) FROM sales o WHERE o.buyer = {unit}) > {c}",
            f"(SELECT SUM(price * size) FROM sales o WHERE {other} = {unit}) > {3 * c}",
            f"(SELECT COUNT(*) FROM visits y WHERE y.person = {unit}) >= {c % 3}",
            f"(SELECT COUNT(*) FROM sales o WHERE o.receiver = {unit}) >= {c % 3}",
            f"(SELECT SUM(price) FROM sales o WHERE o.buyer = {unit}) > "
            f"(SELECT SUM(fee) FROM visits y WHERE y.person = {unit})",
            f"{unit} IN (SELECT buyer FROM sales INTERSECT SELECT person FROM visits)",
            f"{unit} IN (SELECT receiver FROM sales EXCEPT SELECT person FROM visits)",
            f"EXISTS (SELECT 1 FROM visits y WHERE y.guide = {unit} AND y.day > 2)",
            f"EXISTS (SELECT 1 FROM sales o WHERE {other} = {unit} AND o.size > {mixed})",
            f"NOT EXISTS (SELECT 1 FROM visits y WHERE y.guide = {unit} AND y.day <> {mixed})",
            f"{unit} IN (SELECT o.receiver FROM sales o JOIN people y ON o.payer = y.person)",
            f"{unit} IN (SELECT person FROM people WHERE friend IN (SELECT payer FROM sales))",
        ]
        if key in ("s.kind", "v.ward", "f.kind", "q.kind", "e.k"):
            found += [f"({unit}, {key}) IN (SELECT person, ward FROM visits)",
                      f"({unit}, {key}) IN (SELECT receiver, kind FROM sales)"]  # fmt: skip
    if key in ("s.kind", "v.ward", "f.kind", "q.kind", "e.k", "g.kind"):
        found += [
            f"{key} IN (SELECT ward FROM visits GROUP BY ward HAVING COUNT(*) > {c % 3})",
            f"{key} IN (SELECT kind FROM sales INTERSECT SELECT ward FROM visits)",
            f"{key} IN (SELECT ward FROM visits WHERE day > 2 EXCEPT SELECT kind FROM sales)",
        ]
    if key in ("s.size", "v.day", "p.age", "q.size"):
        found += [
            f"{key} > (SELECT AVG(size) + 0.3 FROM sales)",
            f"{key} IN (SELECT size FROM sales UNION SELECT day FROM visits WHERE ward = 'x')",
            f"({key}) IN (SELECT size FROM sales GROUP BY size HAVING COUNT(*) > 1)",
        ]
    test = draw.choice(found)
    if depth and draw.random() < 0.25:
        word = draw.choice(["OR", "AND"])
        return f"({test} {word} {draw_test(draw, of, depth - 1)})"
    return test


def draw_statement(draw: random.Random) -> str:
    """A statement that combines what there is."""
    if draw.random() < 0.08:
        key = draw.choice(["kind FROM sales", "ward FROM visits", "kind FROM gifts"])
        other = draw.choice(["ward FROM visits WHERE day > 3", "kind FROM sales WHERE size > 2"])
        word = draw.choice(["INTERSECT", "EXCEPT", "UNION"])
        return f"SELECT {key} {word} SELECT {other}"
    of, options = draw_source(draw, 2), []
    keys = draw.sample(of.keys, min(len(of.keys), draw.choice([0, 1, 1, 1, 2])))
    number = draw.choice(of.numbers)
    aggregates = ["COUNT(*)", f"SUM({number})", f"AVG({number})", f"MEDIAN({number})",
                  f"COUNT({number})", f"COUNT(DISTINCT {draw.choice(of.keys)})",
                  f"COUNT(*) FILTER (WHERE {draw_test(draw, of, 1)})",
                  f"SUM(CASE WHEN {draw_test(draw, of, 1)} THEN {number} ELSE 1 END)"]  # fmt: skip
    if of.unit:
        aggregates += [f"COUNT(DISTINCT {of.unit})"] * 3
    for each in of.ids:
        aggregates += [f"COUNT({each})", f"COUNT(DISTINCT {each})"]
    if of.bill:
        aggregates += [f"COUNT({of.bill})", f"COUNT(DISTINCT {of.bill})"] * 2
    if draw.random() < 0.2:
        aggregates += [f"SUM({number}, contribution_bounds_per_group => (0, 5))",
                       "COUNT(*, contribution_bounds_per_group => (0, 2))"] * 3  # fmt: skip
    if draw.random() < 0.3:
        options += [f"max_groups_contributed = {draw.randrange(1, 4)}"]
    if draw.random() < 0.25:
        options += [f"max_rows_contributed = {draw.randrange(1, 4)}"]
    if draw.random() < 0.1:
        options += ["min_privacy_units_per_group = 1"]
    if draw.random() < 0.04 and of.ids:
        options += [f"privacy_unit_column = {draw.choice([of.unit, *of.ids]).split('.')[-1]}"]
    clause = f"WITH DIFFERENTIAL_PRIVACY OPTIONS ({', '.join(options)}) " if options else ""
    picked = draw.sample(aggregates, draw.choice([1, 1, 2]))
    items = [f"{key} AS k{i}" for i, key in enumerate(keys)]
    items += [f"{each} AS m{i}" for i, each in enumerate(picked)]
    where = f" WHERE {draw_test(draw, of, 2)}" if draw.random() < 0.7 else ""
    group = ""
    if keys:
        listed = ", ".join(keys)
        group = f" GROUP BY {listed}"
        if draw.random() < 0.15 and not options:
            group = f" GROUP BY {draw.choice(['ROLLUP', 'CUBE'])} ({listed})"
    return f"SELECT {clause}{', '.join(items)} FROM {of.text}{where}{group}"
