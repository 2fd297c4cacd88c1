"""COUNT(t.*) of any table of any joins, and values of (SELECT ...) without a table, at random."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

import dpsql
from tests.oracle.test_private_joins import CATALOG, differences, star
from tests.support.effort import effort, first_seed
from tests.support.seam import zero_noise
from tests.support.tables import World, open_tables

STATEMENTS = effort(60)
JOINS = [
    ("patients p", "p", ["p.sex", "p.age"]),
    ("visits v", "v", ["v.ward"]),
    ("patients p JOIN visits v USING (patient_id)", "pv", ["p.sex", "v.ward"]),
    ("patients p LEFT JOIN visits v USING (patient_id)", "pv", ["p.sex"]),
    ("patients p LEFT JOIN visits v ON v.patient_id = p.patient_id AND v.ward = 'a'", "pv",
     ["p.age"]),
    ("visits v RIGHT JOIN patients p ON p.patient_id = v.patient_id", "pv", ["p.sex"]),
    ("lines l JOIN visits v ON l.visit_id = v.visit_id JOIN patients p USING (patient_id)", "lvp",
     ["l.drug", "v.ward", "p.sex"]),
    ("lines l JOIN visits v USING (visit_id) LEFT JOIN patients p ON p.patient_id = v.patient_id",
     "lvp", ["l.drug", "v.ward"]),
    ("visits v LEFT JOIN wards w ON w.ward = v.ward AND w.floor = 1", "v", ["v.ward", "w.floor"]),
    ("wards w LEFT JOIN visits v ON w.ward = v.ward AND v.day > 7", "v", ["w.ward", "w.floor"]),
    ("range(0, 40, 3) AS r(i) LEFT JOIN visits v ON v.day = r.i", "v", ["r.i"]),
    ("(SELECT * FROM visits WHERE day < 20) v JOIN wards w USING (ward)", "vw", ["w.floor"]),
]  # fmt: skip
VALUES = [
    "30",
    "5 + 5",
    "LEAST(9, 14)",
    "ABS(-4)",
    "CAST('7' AS INTEGER)",
    "CASE WHEN TRUE THEN 2 END",
]
TESTS = ["day > (SELECT {})", "day BETWEEN (SELECT 2) AND (SELECT {} AS x)", "day IN (SELECT {})"]
TESTS += ["(SELECT {}) < day", "day + (SELECT {}) > 20", "NOT day = (SELECT ({}))"]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with open_tables(tmp_path_factory.mktemp("rows"), CATALOG, star(3)) as found, zero_noise():
        found[0].execute("SET mechanism = identity")
        yield found


def of_rows(rng: random.Random) -> str:
    source, names, keys = rng.choice(JOINS)
    items = [f"COUNT({name}.*) AS n{name}" for name in names]
    if rng.random() < 0.3:
        items.append(f"COUNT({names[0]}.*) FILTER (WHERE {keys[0]} IS NOT NULL) AS f")
    key = rng.choice([None, *keys])
    if key is None:
        return f"SELECT {', '.join(items)} FROM {source}"
    return f"SELECT {key}, {', '.join(items)} FROM {source} GROUP BY {key}"


def of_values(rng: random.Random) -> str:
    test = rng.choice(TESTS).format(rng.choice(VALUES))
    value = f"COUNT(*) * (SELECT {rng.choice(VALUES)})"
    return (
        f"SELECT ward, {value} AS n, COUNT(*) FILTER (WHERE {test}) AS f FROM visits GROUP BY ward"
    )


@pytest.mark.parametrize("draw", [of_rows, of_values], ids=["rows", "values"])
def test_random_statements_are_answered_as_by_the_database(world: World, draw: object) -> None:
    assert callable(draw)
    rng = random.Random(first_seed(1))
    wrong = {}
    for _ in range(STATEMENTS):
        sql = draw(rng)
        try:
            found = differences(world, sql)
        except dpsql.Error as error:
            wrong[sql] = str(error)
        else:
            wrong.update({sql: str(found)} if found else {})
    assert not wrong, "\n\n".join(f"{sql}\n{why}" for sql, why in list(wrong.items())[:5])


def test_rows_that_no_condition_tells_are_refused(world: World) -> None:
    for source in (
        "patients p LEFT JOIN visits v ON v.day > p.age",
        "wards w LEFT JOIN visits v ON v.day > w.floor",
        "wards w FULL JOIN visits v ON v.day = w.floor",
    ):
        with pytest.raises(dpsql.Error) as caught:
            world[0].execute(f"SELECT COUNT(v.*) AS n FROM {source}")
        assert caught.value.hint
