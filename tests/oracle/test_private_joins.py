"""Joins of private tables without noise, compared with DuckDB's own answers on random stars."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path

import pytest

import dpsql
from dpsql.privacy.vault.open_tables import OpenTables
from dpsql.sql.public import public_lookups
from tests.support.effort import effort, first_seed
from tests.support.seam import zero_noise
from tests.support.tables import Tables, World, open_tables, statements_of

CATALOG = """
[budget]
epsilon = 100000

[unit.patient]

[table.patients]
source = "patients.parquet"
privacy_unit = { column = "patient_id", max_rows = 1 }
[table.patients.column]
sex = { type = "text", domain = ["f", "m"], null = true }
age = { type = "integer", domain = [0, 9] }

[table.visits]
source = "visits.parquet"
privacy_unit = { column = "patient_id", max_rows = 30 }
references = { patients = "patient_id" }
[table.visits.column]
ward = { type = "text", domain = ["a", "b", "c"] }
day = { type = "integer", domain = [0, 29], null = true }
cost = { type = "integer", bounds = [0, 100] }

[table.lines]
source = "lines.parquet"
privacy_unit = { through = "visits", on = "visit_id", max_rows = 60 }
[table.lines.column]
drug = { type = "text", domain = ["x", "y"] }
dose = { type = "integer", domain = [1, 5] }

[table.bills]
source = "bills.parquet"
privacy_unit = { column = "who", max_rows = 20 }
[table.bills.references]
visits = { on = { visit = "visit_id" } }
patients = { on = { who = "patient_id" } }
[table.bills.column]
amount = { type = "integer", domain = [0, 9] }

[table.wards]
source = "wards.parquet"
public = true
[table.wards.column]
ward = { type = "text", domain = ["a", "b", "c"] }
floor = { type = "integer", domain = [0, 3] }

[table.rates]
source = "rates.parquet"
public = true
[table.rates.column]
ward = { type = "text" }
day = { type = "integer" }
rate = { type = "integer" }
floor = { type = "integer" }

[table.storeys]
source = "storeys.parquet"
public = true
[table.storeys.column]
floor = { type = "integer" }
name = { type = "text" }

[table.drugs]
source = "drugs.parquet"
public = true
[table.drugs.column]
drug = { type = "text" }
dose = { type = "integer" }
ward = { type = "text" }
price = { type = "integer" }
"""


def star(seed: int) -> Tables:
    """A star of 25 patients, of whom 20 are known; everything refers to what is there."""
    draw = random.Random(seed)
    visits = [
        (
            i,
            draw.randrange(25),
            draw.choice("abc"),
            draw.choice([None, *range(30)]),
            draw.randrange(101),
        )
        for i in range(120)
    ]
    of = {visit: patient for visit, patient, *_ in visits}
    lines = [(draw.randrange(120), draw.choice("xy"), draw.randrange(1, 6)) for _ in range(200)]
    bills = [(visit := draw.randrange(120), of[visit], draw.randrange(10)) for _ in range(80)]
    patients = [(i, draw.choice(["f", "m", None]), draw.randrange(10)) for i in range(20)]
    return {
        "patients": ("patient_id BIGINT, sex VARCHAR, age BIGINT", patients),
        "visits": (
            "visit_id BIGINT, patient_id BIGINT, ward VARCHAR, day BIGINT, cost BIGINT",
            visits,
        ),
        "lines": ("visit_id BIGINT, drug VARCHAR, dose BIGINT", lines),
        "bills": ("visit BIGINT, who BIGINT, amount BIGINT", bills),
        "wards": ("ward VARCHAR, floor BIGINT", [("a", 0), ("b", 1), ("c", 1)]),
        "rates": (
            "ward VARCHAR, day BIGINT, rate BIGINT, floor BIGINT",
            [
                (ward, day, draw.randrange(-3, 9), draw.randrange(3))
                for ward in "abd"
                for day in [None, *range(-2, 28)]
                if draw.random() < 0.8
            ],
        ),
        "storeys": ("floor BIGINT, name VARCHAR", [(0, "low"), (1, "high"), (1, "top"), (2, None)]),
        "drugs": (
            "drug VARCHAR, dose BIGINT, ward VARCHAR, price BIGINT",
            [(x, n, w, draw.randrange(9)) for x in "xyz" for n in range(7) for w in "abc"],
        ),
    }


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with open_tables(tmp_path_factory.mktemp("star"), CATALOG, star(1)) as found, zero_noise():
        found[0].set("epsilon", "100")  # small groups are above what noise alone makes likely
        yield found


HERE = Path(__file__)
FILES = ("private_joins.sql", "private_sets.sql", "long_reports.sql")
LINES = [sql for name in FILES for sql in statements_of(HERE.with_name(name))]


def floats(found: Sequence[Sequence[object]]) -> list[tuple[object, ...]]:
    """Rows with numbers as doubles."""
    return [tuple(float(v) if isinstance(v, int | Decimal) else v for v in row) for row in found]


def differences(world: World, sql: str) -> list[tuple[object, ...]]:
    """The rows of the database that the answer lacks, and those of the answer that are no zeros."""
    connection, database = world
    found = floats(connection.execute(sql).fetchall())
    exact = floats(database.execute(sql).fetchall())
    lacking = [row for row in exact if not any(_same(row, each) for each in found)]
    # groups that the data lack are rows of zeros here, and none there
    extra = [row for row in found if not any(_same(row, each) for each in exact)]
    return lacking + [row for row in extra if any(isinstance(v, float) and v for v in row[-1:])]


def _same(one: Sequence[object], other: Sequence[object]) -> bool:
    return all(
        abs(a - b) < 1e-3 if isinstance(a, float) and isinstance(b, float) else a == b
        for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("sql", LINES, ids=range(len(LINES)))
def test_joins_answer_as_the_database_does(world: World, sql: str) -> None:
    assert differences(world, sql) == []


def test_random_stars_and_statements(tmp_path: Path) -> None:
    for seed in range(2, 5):
        draw = random.Random(seed)
        with open_tables(tmp_path / str(seed), CATALOG, star(seed)) as found, zero_noise():
            for sql in draw.sample(LINES, 8):
                assert differences(found, sql) == [], (seed, sql)


SIDES = {
    "visits": (
        "patient_id",
        ["ward", "'v'", "ward || '!'"],
        ["day", "day // 3"],
        "cost",
        "day > 9",
    ),
    "bills": (
        "who",
        ["'b'", "CASE WHEN amount > 4 THEN 'big' ELSE 'small' END"],
        ["amount", "-amount"],
        None,
        "amount IN (1, 5)",
    ),
    "lines": (None, ["drug", "upper(drug)"], ["dose", "7"], None, "drug = 'x'"),
    "patients": ("patient_id", ["sex", "'p'"], ["age", "age * 3"], None, "age < 6 AND sex = 'f'"),
}
"""The unit of every table, texts, whole numbers, a measure and a condition."""


def draw_union(draw: random.Random) -> str:
    """A SELECT around UNION ALL of private rows, or a set operation of units."""
    units = {name: unit for name, (unit, *_) in SIDES.items() if unit is not None}
    if draw.random() < 0.3:
        word = draw.choice(["UNION", "INTERSECT", "EXCEPT"])
        one, other = draw.sample(sorted(units), 2)
        sides = [f"SELECT {units[n]} FROM {n} WHERE {SIDES[n][4]}" for n in (one, other)]
        inner = f"{sides[0]} {word} {sides[1]}"
        if draw.random() < 0.5:
            return f"SELECT COUNT(*) AS n FROM ({inner}) AS u"
        asked = f"patient_id {draw.choice(['', 'NOT '])}IN ({inner})"
        return f"SELECT ward, COUNT(*) AS n FROM visits WHERE {asked} GROUP BY ward"
    if draw.random() < 0.3:
        word = draw.choice(["UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL"])
        sides, name = [], draw.choice(sorted(units))
        text, number = (draw.choice(each) for each in SIDES[name][1:3])
        for _ in range(2):
            unit, test = units[name], SIDES[name][4]
            kept = draw.choice(["", f" WHERE {test}", f" WHERE NOT ({test})"])
            sides.append(f"SELECT {unit} AS who, {text} AS t, {number} AS x FROM {name}{kept}")
            if draw.random() < 0.3:
                name = draw.choice(sorted(units))
                text, number = (draw.choice(each) for each in SIDES[name][1:3])
        inner, key = f" {word} ".join(sides), draw.choice(["t", "x", "x, t"])
        return f"SELECT {key}, COUNT(*) AS n FROM ({inner}) AS u GROUP BY {key}"
    parts: list[str] = []
    for name in draw.choices(sorted(units), k=draw.choice([2, 2, 3])):
        who, texts, numbers, _, where = SIDES[name]
        null = ["NULL"] if parts else []
        shown = draw.choice([*texts, *null]), draw.choice([*numbers, *null])
        items = f"{who} AS who, {shown[0]} AS t, {shown[1]} AS x"
        parts.append(f"SELECT {items} FROM {name}{draw.choice(['', f' WHERE {where}'])}")
    inner = " UNION ALL ".join(parts)
    key = draw.choice(["t", "x", "x, t"])
    test = draw.choice(["", " WHERE x > 3", " WHERE t IS NOT NULL", " WHERE x IS NULL OR t < 'n'"])
    what = draw.choice(["COUNT(*)", "COUNT(DISTINCT who)"])
    return f"SELECT {key}, {what} AS n FROM ({inner}) AS u{test} GROUP BY {key}"


def test_random_set_operations(world: World) -> None:
    draw = random.Random(8)
    for _ in range(40):
        sql = draw_union(draw)
        assert differences(world, sql) == [], sql


def draw_join(draw: random.Random) -> str:
    """Two or three private tables, joined one way or the other by their unit."""
    units = {name: unit for name, (unit, *_) in SIDES.items() if unit is not None}
    names = draw.sample(sorted(units), draw.choice([2, 2, 3]))
    sides = [f"(SELECT * FROM {name} WHERE {SIDES[name][4]})" for name in names]
    sides = [draw.choice([name, side]) for name, side in zip(names, sides, strict=True)]
    text = f"{sides[0]} AS {names[0]}"
    for place, name in enumerate(names[1:], 1):
        first = names[draw.randrange(place)]
        kind = draw.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "FULL JOIN"])
        text += f" {kind} {sides[place]} AS {name}"
        text += f" ON {name}.{units[name]} = {first}.{units[first]}"
        if draw.random() < 0.4:
            one, other = (SIDES[each][4] for each in (name, first))
            less = f"{SIDES[name][2][0]} < {SIDES[first][2][0]}"
            on = [one, other, f"({one} OR {other})", less, f"NOT ({other}) AND {less}"]
            text += f" AND {draw.choice(on)}"
    columns = {"visits": "ward", "bills": "amount", "patients": "sex"}
    keys = draw.sample([columns[name] for name in names], draw.choice([1, 1, 2]))
    lone = draw.choice(names)
    test = draw.choice(["", "", f" WHERE {lone}.{units[lone]} IS NULL"])
    counts = ["COUNT(*)", *(f"COUNT(DISTINCT {name}.{units[name]})" for name in names)]
    listed = ", ".join(f"{what} AS n{i}" for i, what in enumerate(draw.sample(counts, 2)))
    return f"SELECT {', '.join(keys)}, {listed} FROM {text}{test} GROUP BY ALL"


JOINS = effort(8)


def test_random_joins(world: World) -> None:
    draw, answered = random.Random(first_seed(14)), 0
    for _ in range(JOINS):
        sql = draw_join(draw)
        try:
            found = differences(world, sql)
        except dpsql.Error as error:
            if error.code != "E_JOIN" or "FULL" not in sql:  # by a unit that some rows lack
                raise
        else:
            assert found == [], sql
            answered += 1
    assert answered > JOINS // 2


CHAINED = {
    "visits": {"ward": "ward", "day": "day"},
    "patients": {},
    "lines": {"drug": "drug", "dose": "dose"},
    "wards": {"ward": "ward", "floor": "floor"},
    "rates": {"ward": "ward", "day": "day", "floor": "floor"},
    "storeys": {"floor": "floor"},
    "drugs": {"drug": "drug", "dose": "dose", "ward": "ward"},
}
"""What the columns of every table may be equal to, those of one name to each other."""
FACTS = {
    "visits": (["v.ward", "v.day"], ["v.cost", "v.day"], "v.day < 20"),
    "patients": (["p.sex", "p.age"], ["p.age"], "p.age > 2"),
    "lines": (["l.drug", "l.dose"], ["l.dose"], "l.dose <> 3"),
    "wards": (["w.floor"], ["w.floor"], "w.floor = 1"),
    "rates": (["r.rate", "r.floor"], ["r.rate", "r.rate + 1"], "r.rate > 0"),
    "storeys": (["s.name"], ["s.floor"], "s.name <> 'top'"),
    "drugs": (["d.price", "d.drug"], ["d.price"], "d.price BETWEEN 2 AND 7"),
}
"""Keys, numbers and a condition of every table, by the first letter of its name."""
PRIVATE = ("visits", "patients", "lines")
UNITED = {
    ("visits", "patients"): "v.patient_id = p.patient_id",
    ("lines", "visits"): "l.visit_id = v.visit_id",
}


def draw_chain(draw: random.Random) -> str:
    """Two to five tables, private and public, equal in some columns in whatever order."""
    private = draw.choice(
        [["visits"], ["visits", "patients"], ["lines", "visits"], ["lines", "visits", "patients"]]
    )
    names = [*private, *draw.sample(["wards", "rates", "storeys", "drugs"], draw.choice([1, 2, 2]))]
    draw.shuffle(names)
    tests = [UNITED[pair] for pair in UNITED if set(pair) <= set(private)]
    shared = sorted({kind for name in names for kind in CHAINED[name]})
    for kind in shared:
        sides = [f"{name[0]}.{CHAINED[name][kind]}" for name in names if kind in CHAINED[name]]
        draw.shuffle(sides)
        for place, side in enumerate(sides[1:], 1):
            pair = [side, draw.choice(sides[:place])]
            draw.shuffle(pair)
            tests.append(" = ".join(pair))
        if len(sides) > 2 and draw.random() < 0.3:
            tests.append(" = ".join(draw.sample(sides, 2)))
    draw.shuffle(tests)
    listed, keyed, alone = zip(*(FACTS[name] for name in names), strict=True)
    if draw.random() < 0.4:
        one, two = draw.choice(alone), draw.choice(alone)
        moved = [tests.pop() for _ in range(draw.choice([0, 1])) if len(tests) > 1]
        both = " AND ".join([*moved, one]), " AND ".join([*moved, two])
        tests.append(f"(({both[0]}) OR ({both[1]}))")
    tests += draw.sample(alone, draw.choice([0, 0, 1]))
    froms = [f"{name} {name[0]}" for name in names]
    if draw.random() < 0.5:
        text = f"{', '.join(froms)} WHERE {' AND '.join(tests or ['TRUE'])}"
    else:
        seen, text = {names[0][0]}, froms[0]
        for name, each in zip(names[1:], froms[1:], strict=True):
            seen.add(name[0])
            here = [t for t in tests if _aliases(t) <= seen and name[0] in _aliases(t)]
            tests = [t for t in tests if t not in here]
            text += f" JOIN {each} ON {' AND '.join(here or ['TRUE'])}"
        text += f" WHERE {' AND '.join(tests)}" if tests else ""
    keys = draw.sample(sorted({k for each in listed for k in each}), draw.choice([0, 1, 1, 2]))
    numbers = sorted({n for each in keyed for n in each})
    product = " * ".join(draw.sample(numbers, min(2, len(numbers))))
    sums = ["COUNT(*)", f"SUM({draw.choice(numbers)})", f"SUM({product})"]
    items = [*(f"{key} AS k{n}" for n, key in enumerate(keys)), draw.choice(sums)]
    return f"SELECT {', '.join(items)} FROM {text}{' GROUP BY ALL' if keys else ''}"


def _aliases(test: str) -> set[str]:
    return {found[0] for found in re.findall(r"\b[a-z]\.", test)}


@pytest.mark.parametrize(
    "sql",
    [
        # a condition between public tables that stand before the private ones
        "SELECT SUM(d.price) FROM drugs d JOIN rates r ON r.ward = d.ward JOIN visits v "
        "ON v.ward = d.ward AND r.day = v.day JOIN patients p ON v.patient_id = p.patient_id",
        # a condition on another private column than the one that public rows are joined to
        "SELECT SUM(v.cost) FROM lines l JOIN rates r ON TRUE JOIN visits v ON r.day = v.day "
        "AND l.visit_id = v.visit_id JOIN storeys s "
        "ON ((r.floor = s.floor AND r.floor = 1) OR (r.floor = s.floor AND l.dose <> 3))",
    ],
)
def test_no_condition_is_lost(world: World, sql: str) -> None:
    assert differences(world, sql) == []


CHAINS = effort(6)


@pytest.mark.parametrize("few", [1_000, 5])
def test_random_chains(world: World, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(public_lookups, "FEW", few)
    draw, answered = random.Random(first_seed(15) + few), 0
    for _ in range(CHAINS):
        sql = draw_chain(draw)
        try:
            found = differences(world, sql)
        except dpsql.Error as error:
            if error.code not in ("E_JOIN", "E_EXPR_IN_AGG", "E_PREDICATE", "E_TOO_LARGE"):
                raise
        else:
            assert [row for row in found if row[-1] is not None] == [], sql
            answered += 1
    assert answered > CHAINS // 2


def test_set_operations_add_up_what_a_unit_may_have(world: World) -> None:
    connection, _ = world
    for sql, rows in (
        ("SELECT ward FROM visits UNION ALL SELECT ward FROM visits", "60 rows"),
        ("SELECT patient_id, ward FROM visits UNION SELECT patient_id, ward FROM visits", "3 rows"),
        ("SELECT patient_id FROM visits UNION SELECT who FROM bills", "1 row"),
        ("SELECT patient_id FROM visits EXCEPT SELECT who FROM bills", "1 row"),
        ("SELECT ward FROM visits UNION ALL SELECT 'b' FROM bills", "50 rows"),
    ):
        explained = connection.execute(f"EXPLAIN SELECT COUNT(*) AS n FROM ({sql}) AS u")
        assert f"at most {rows} of each" in "\n".join(row[0] for row in explained), sql


SETS_REFUSED = {
    "SELECT * FROM visits UNION SELECT * FROM visits": "E_SET_OP",
    "SELECT ward FROM visits INTERSECT ALL SELECT ward FROM visits": "E_SET_OP",
    "SELECT day FROM visits EXCEPT ALL SELECT amount FROM bills": "E_SET_OP",
    "SELECT patient_id, cost FROM visits EXCEPT SELECT who, amount FROM bills": "E_SET_OP",
    "SELECT patient_id, cost FROM visits INTERSECT SELECT patient_id, cost FROM visits": "E_SET_OP",
    "SELECT visit_id, patient_id FROM visits EXCEPT ALL SELECT visit, who FROM bills": "E_SET_OP",
    "SELECT patient_id FROM visits UNION ALL SELECT amount FROM bills": "E_SET_OP",
    "SELECT patient_id, ward FROM visits UNION ALL SELECT who FROM bills": "E_SET_OP",
    "SELECT ward FROM visits UNION ALL SELECT amount FROM bills": "E_SET_OP",
    "SELECT ward FROM visits UNION ALL SELECT CAST(0 AS DECIMAL(3, 1)) FROM bills": "E_SET_OP",
    "SELECT 0.5 AS x FROM visits UNION ALL SELECT 'a' FROM bills": "E_SET_OP",
    "SELECT day FROM visits UNION ALL SELECT random() FROM bills": "E_NONDETERMINISTIC",
    "SELECT NULL AS x FROM visits UNION ALL SELECT NULL FROM bills": "E_SET_OP",
    "SELECT cost % 2 AS x FROM visits UNION ALL SELECT amount FROM bills": "E_SET_OP",
    "SELECT ward FROM visits UNION ALL SELECT ward FROM visits JOIN rates USING (ward)": "E_SET_OP",
    "SELECT ward FROM visits UNION ALL SELECT ward FROM wards": "E_SET_OP",
}


@pytest.mark.parametrize("sql", SETS_REFUSED)
def test_set_operations_that_units_do_not_share_are_refused(world: World, sql: str) -> None:
    connection, _ = world
    before = connection.budget
    with pytest.raises(dpsql.Error) as caught:
        connection.execute(f"SELECT COUNT(*) AS n FROM ({sql}) AS u")
    assert caught.value.code == SETS_REFUSED[sql], caught.value
    assert caught.value.hint
    assert caught.value.span is not None
    assert connection.budget == before


def test_a_declared_reference_changes_nothing_for_one_table(tmp_path: Path) -> None:
    plain = "\n".join(line for line in CATALOG.splitlines() if "references" not in line)
    plain = plain.split("[table.bills]")[0]
    statements = ["SELECT ward, COUNT(*) FROM visits GROUP BY ward", "SELECT SUM(cost) FROM visits"]
    answers = []
    for name, text in (("with", CATALOG), ("without", plain)):
        few = text.replace("max_rows = 30", "max_rows = 2")
        with open_tables(tmp_path / name, few, star(5)) as (connection, _), zero_noise():
            salted = connection.engine.vaults
            salted.tables = OpenTables(b"the same salt for both")
            answers.append([connection.execute(sql).fetchall() for sql in statements])
    assert answers[0] == answers[1]


REFUSED = {
    "SELECT COUNT(*) FROM visits v JOIN visits w ON v.ward = w.ward": "w ON",
    "SELECT COUNT(*) FROM visits v CROSS JOIN patients p": "patients p",
    "SELECT COUNT(*) FROM visits v, bills b WHERE v.visit_id = b.who": "bills b",
    "SELECT COUNT(*) FROM visits v JOIN lines l ON v.patient_id = l.visit_id": "lines l",
    "SELECT COUNT(*) FROM visits v JOIN patients p ON v.doctor = p.patient_id": "v.doctor",
    "SELECT COUNT(*) FROM visits v FULL JOIN patients p "
    "ON v.patient_id = p.patient_id AND v.ward = (SELECT MAX(ward) FROM visits)": "v.ward",
    "SELECT COUNT(*) FROM visits v FULL JOIN lines l USING (visit_id)": "lines l",
    "SELECT COUNT(*) FROM wards w JOIN visits v ON w.ward = v.ward "
    "FULL JOIN patients p ON p.patient_id = v.patient_id": "patients p ON",
    "SELECT COUNT(*) FROM patients p LEFT JOIN visits v ON v.patient_id = p.patient_id "
    "FULL JOIN bills b ON b.who = v.patient_id": "bills b",
    "SELECT COUNT(*) FROM visits v JOIN patients p USING (ward)": "ward",
    "SELECT COUNT(*) FROM visits v JOIN bills b ON v.visit_id = b.visit OR TRUE": "bills b",
    "SELECT COUNT(*) FROM bills b JOIN lines l ON b.visit = l.visit_id": "lines l",
    "SELECT COUNT(*) FROM visits v LEFT JOIN patients p "
    "ON v.patient_id = p.patient_id AND p.sex = (SELECT MAX(sex) FROM patients)": "p.sex",
    "SELECT COUNT(*) FROM wards w LEFT JOIN visits v ON v.ward = w.ward": "*",
    "SELECT COUNT(v.ward) FROM wards w LEFT JOIN visits v ON v.ward = w.ward "
    "WHERE v.day IS NULL": "v.day IS",
    "SELECT COUNT(v.ward) FROM wards w LEFT JOIN visits v ON v.ward = w.ward "
    "WHERE day > 9 OR floor = 1": "day > 9 OR floor",
    "SELECT ward, COUNT(*) FROM visits RIGHT JOIN wards USING (ward) GROUP BY ward": "*",
    "SELECT ward, COUNT(ward) FROM visits RIGHT JOIN wards USING (ward) GROUP BY ward": "ward)",
    "SELECT v.day, COUNT(v.ward) FROM wards w LEFT JOIN visits v ON v.ward = w.ward "
    "GROUP BY 1": "v.day",
    "SELECT SUM(floor) FROM wards w LEFT JOIN visits v ON v.ward = w.ward": "floor",
    "SELECT COUNT(*) FROM visits v JOIN wards w ON w.ward = v.ward AND floor = 1 "
    "RIGHT JOIN patients p ON p.patient_id = v.patient_id": "patients p ON",
}


@pytest.mark.parametrize("sql", REFUSED)
def test_joins_that_units_do_not_share_are_refused(world: World, sql: str) -> None:
    connection, _ = world
    before = connection.budget
    with pytest.raises(dpsql.Error) as caught:
        connection.execute(sql)
    assert caught.value.code == "E_JOIN"
    assert caught.value.hint
    assert caught.value.span is not None
    assert connection.budget == before


@pytest.mark.parametrize(
    ("test", "named"),
    [
        ("v.patient = p.patient_id", "patient_id, visit_id"),
        ("v.visit = p.patient_id", "patient_id, visit_id"),
        ("v.patient_id = p.id", "patient_id"),
    ],
)
def test_a_join_by_an_unknown_column_is_told_what_joins(
    world: World, test: str, named: str
) -> None:
    connection, _ = world
    with pytest.raises(dpsql.Error) as caught:
        connection.execute(f"SELECT COUNT(*) FROM visits v JOIN patients p ON {test}")
    assert caught.value.code == "E_JOIN"
    assert (caught.value.hint or "").endswith(f" are joined by {named}")


def test_tables_without_a_shared_unit(tmp_path: Path) -> None:
    apart = CATALOG.replace("[unit.patient]", "[unit.patient]\n[unit.other]")
    apart = apart.replace("max_rows = 1 }", 'max_rows = 1, unit = "other" }')
    apart = apart.replace("max_rows = 30 }", 'max_rows = 30, unit = "patient" }')
    apart = apart.split("[table.lines]")[0].replace('references = { patients = "patient_id" }', "")
    with open_tables(tmp_path, apart, star(1)) as (connection, _):
        with pytest.raises(dpsql.Error, match="different privacy units") as caught:
            connection.execute("SELECT COUNT(*) FROM visits JOIN patients USING (patient_id)")
        assert caught.value.code == "E_JOIN"
        assert caught.value.span is not None


def test_a_joined_statement_is_charged_to_every_table(tmp_path: Path) -> None:
    text = CATALOG.replace(
        "[table.patients]\n", "[table.patients]\nbudget = { epsilon = 2 }\n"
    ).replace("[table.visits]\n", "[table.visits]\nbudget = { epsilon = 5 }\n")
    joined = "SELECT sex, COUNT(*) FROM visits JOIN patients USING (patient_id) GROUP BY sex"
    with open_tables(tmp_path, text, star(1)) as (connection, _):
        connection.execute(joined)
        left = {name: each.remaining_epsilon for name, each in connection.budget.nested.items()}
        assert sorted(left.values()) == [1, 4]
        again = connection.execute(joined)
        assert {n: e.remaining_epsilon for n, e in connection.budget.nested.items()} == left
        assert again.fetchall()
        connection.execute("SELECT COUNT(*) FROM visits JOIN patients USING (patient_id)")
        with pytest.raises(dpsql.BudgetExceeded):
            connection.execute(joined.replace("sex", "age"))
        connection.execute("SELECT ward, COUNT(*) FROM visits GROUP BY ward")


VIEWS = (
    """
[view.pairs]
sql = """
    + '"'
    + """SELECT v.patient_id, v.ward, l.drug FROM visits v JOIN lines l \
  ON v.visit_id = l.visit_id WHERE v.ward <> 'c' AND (l.drug = 'x' OR v.ward = 'b')"""
    + '"'
    + """
max_rows = 60
[view.late]
sql = "SELECT * FROM visits WHERE day BETWEEN 10 AND 19"
max_rows = 3
[view.floors]
sql = "SELECT * FROM visits JOIN wards USING (ward)"
max_rows = 3
[view.wards_counted]
sql = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"
max_rows = 3
"""
)


def test_views_with_rows_of_their_own(tmp_path: Path) -> None:
    text = CATALOG + VIEWS.replace("\\\n", "")
    with open_tables(tmp_path, text, star(6)) as found, zero_noise():
        connection, database = found
        for name, view in connection.catalog.views.items():
            database.execute(f"CREATE VIEW {name} AS {view.sql}")
        for sql in (
            "SELECT ward, drug, COUNT(*) AS n FROM pairs GROUP BY ALL",
            "SELECT sex, COUNT(*) AS n FROM pairs JOIN patients USING (patient_id) GROUP BY sex",
            "SELECT COUNT(DISTINCT patient_id) AS n FROM late",
        ):
            assert differences(found, sql) == []
        kept = "FROM late QUALIFY row_number() OVER (PARTITION BY patient_id) <= 3"
        exact = database.execute(f"SELECT COUNT(*) FROM (SELECT * {kept})").fetchall()
        assert connection.execute("SELECT COUNT(*) FROM late").fetchall() == exact
        for name in ("floors", "wards_counted"):
            with pytest.raises(dpsql.Error) as caught:
                connection.execute(f"SELECT COUNT(*) FROM {name}")
            assert caught.value.code == "E_JOIN"


def test_a_sum_by_unit_without_bounds_says_what_it_lacks(tmp_path: Path) -> None:
    bare = CATALOG.replace(", bounds = [0, 100] }", " }")
    sql = "SELECT AVG(n) FROM (SELECT patient_id, SUM(cost) AS n FROM visits GROUP BY ALL) AS p"
    with open_tables(tmp_path, bare, star(1)) as (connection, _):
        with pytest.raises(dpsql.Error, match="cost has no bounds") as caught:
            connection.execute(sql)
        assert caught.value.code == "E_NO_BOUNDS"


OF_UNITS = (
    "SELECT COUNT(DISTINCT visit) AS n, COUNT(*) AS k, SUM(amount) AS s FROM bills "
    "WHERE amount > 2",
    "SELECT COUNT(DISTINCT b.visit) AS n FROM bills b, visits v WHERE b.visit = v.visit_id",
    "SELECT COUNT(*) AS n FROM bills b WHERE EXISTS (SELECT 1 FROM bills c "
    "WHERE c.visit = b.visit AND c.amount > b.amount)",
    "WITH w AS (SELECT a.visit FROM bills a, bills b "
    "WHERE a.visit = b.visit AND a.amount <> b.amount) "
    "SELECT COUNT(DISTINCT visit) AS n, COUNT(*) AS k FROM bills "
    "WHERE visit IN (SELECT visit FROM w)",
)


def test_keys_of_one_unit_join_rows_by_themselves(tmp_path: Path) -> None:
    unit = 'privacy_unit = { column = "who", max_rows = 20 }'
    text = CATALOG.replace(unit, f'{unit}\nunit_keys = ["visit"]')
    tables = dict(star(1))
    bills = tables["bills"]
    assert not isinstance(bills, str)
    tables["bills"] = bills[0], [*bills[1], (None, 1, 3), (None, 2, 4), (None, 1, 5)]
    with open_tables(tmp_path / "with", text, tables) as found, zero_noise():
        for sql in OF_UNITS:
            assert differences(found, sql) == [], sql
    with open_tables(tmp_path / "without", CATALOG, star(1)) as (connection, _):
        for sql in (OF_UNITS[0], OF_UNITS[2], OF_UNITS[3]):
            with pytest.raises(dpsql.Error):
                connection.execute(sql)
    for given in ('"visit"', '["visit", "VISIT"]', '["who"]', "[3]"):
        bad = CATALOG.replace(unit, f"{unit}\nunit_keys = {given}")
        with (
            pytest.raises(dpsql.Error, match="unit_keys"),
            open_tables(tmp_path / str(len(given)), bad, star(1)),
        ):
            pass
