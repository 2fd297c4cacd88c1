"""Public tables that only pick private rows, and joins of answers, compared with DuckDB."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest

import dpsql
from dpsql.sql.shell import table_joins
from tests.suites.suite import compared
from tests.support.seam import zero_noise
from tests.support.tables import World, open_tables

CATALOG = """
[budget]
epsilon = 100000

[unit.person]

[table.people]
source = "people.parquet"
privacy_unit = { column = "id", max_rows = 1 }
[table.people.column]
sex = { type = "text", domain = ["f", "m"] }

[table.visits]
source = "visits.parquet"
privacy_unit = { column = "id", max_rows = 40 }
references = { people = "id" }
[table.visits.column]
day = { type = "integer", domain = [0, 29], null = true }
ward = { type = "text", domain = ["a", "b", "c"] }
cost = { type = "integer", domain = [0, 20] }

[table.letters]
source = "letters.parquet"
privacy_unit = { column = "id", max_rows = 40 }
[table.letters.column]
sent = { type = "integer", domain = [0, 29] }
pages = { type = "integer", domain = [0, 20] }

[table.days]
source = "days.parquet"
public = true
[table.days.column]
n = { type = "integer" }
week = { type = "integer" }
month = { type = "integer" }

[table.beds]
source = "beds.parquet"
public = true
[table.beds.column]
ward = { type = "text" }
floor = { type = "integer" }
"""

TABLES = {
    "people": "SELECT i AS id, ['f', 'm'][i % 2 + 1] AS sex FROM range(40) r(i)",
    "visits": "SELECT (hash(i, 1) % 35)::BIGINT AS id, "
    "CASE WHEN i % 11 > 0 THEN (hash(i, 2) % 30)::INT END AS day, "
    "['a', 'b', 'c'][(hash(i, 3) % 3)::INT + 1] AS ward, "
    "(hash(i, 4) % 21)::INT AS cost FROM range(300) r(i) UNION ALL "
    "SELECT i % 35, CASE WHEN i % 31 < 30 THEN i % 31 END, ['a', 'b', 'c'][i // 31 + 1], 7 "
    "FROM range(93) r(i)",
    "letters": "SELECT (hash(i, 5) % 38)::BIGINT AS id, (hash(i, 6) % 30)::INT AS sent, "
    "(hash(i, 7) % 21)::INT AS pages FROM range(90) r(i)",
    "days": "SELECT CASE WHEN i < 30 THEN i END AS n, i // 7 AS week, i // 15 AS month "
    "FROM range(32) r(i)",
    "beds": "SELECT ['a', 'a', 'b', 'd'][i + 1] AS ward, i AS floor FROM range(4) r(i)",
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("picks")
    with open_tables(folder, CATALOG, TABLES) as found, zero_noise():
        found[0].set("mechanism", "identity")
        yield found


def agrees(world: World, sql: str) -> None:
    result = world[0].execute(sql).result
    found = compared(result, world[1].execute(sql).fetchall(), 1e-6)
    assert found is None, f"{sql}\n{found}"


PICKS = ("d.week = 1", "week IN (0, 2)", "month = 1 AND d.week < 4", "d.n > 3", "TRUE")
FORMS = (
    "SELECT k, COUNT(*) FROM (SELECT v.id, COUNT(*) AS k FROM visits v{days} GROUP BY v.id) "
    "GROUP BY k",
    "SELECT COUNT(*) FROM (SELECT v.id, SUM(v.cost) AS s FROM visits v{days} GROUP BY v.id "
    "HAVING COUNT(*) > 2) WHERE s > 12",
    "SELECT ward, COUNT(*), SUM(c) FROM (SELECT v.ward, v.cost AS c FROM visits v{days} UNION ALL "
    "SELECT 'a', pages FROM letters) GROUP BY ward",
    "SELECT sex, COUNT(*) FROM people p WHERE EXISTS (SELECT * FROM visits v{days} AND v.id = p.id)"
    " GROUP BY sex",
    "SELECT COUNT(*) FROM people WHERE id NOT IN (SELECT v.id FROM visits v{days})",
    "SELECT COUNT(*) FROM people p WHERE EXISTS (SELECT 1 FROM visits v, beds b WHERE "
    "b.ward = v.ward AND v.id = p.id AND b.floor < {n})",
)


LOOKED_UP = (
    "SELECT w, k, COUNT(*) FROM (SELECT v.id, {item} AS w, COUNT(*) AS k FROM visits v{days} "
    "GROUP BY v.id, {item}) GROUP BY w, k",
    "SELECT COUNT(*), SUM(s) FROM (SELECT v.id, SUM(CASE WHEN {item} > {n} THEN cost ELSE 0 END) "
    "AS s, COUNT(DISTINCT {item}) AS k FROM visits v{days} GROUP BY v.id) WHERE k > 1",
    "SELECT kind, w, COUNT(*), SUM(c) FROM (SELECT 'visit' AS kind, {item} AS w, v.cost AS c FROM "
    "visits v{days} UNION ALL SELECT 'letter', e.month, 0 FROM letters l JOIN days e ON "
    "e.n = l.sent WHERE e.week < 4) GROUP BY kind, w",
    "SELECT w, COUNT(*) FROM people p JOIN (SELECT v.id, {item} AS w FROM visits v{days}) t "
    "ON t.id = p.id WHERE p.sex = 'f' GROUP BY w",
    "SELECT w, COUNT(*) FROM (SELECT {item} AS w, COUNT(*) OVER (PARTITION BY v.id) AS k "
    "FROM visits v{days}) WHERE k > {n} GROUP BY w",
    "SELECT sex, COUNT(*) FROM people p WHERE sex = 'm' OR EXISTS (SELECT 1 FROM visits v{days} "
    "AND v.id = p.id AND {item} < v.cost) GROUP BY sex",
    "SELECT k, COUNT(*) FROM (SELECT v.id, MAX({item}) AS k FROM visits v{days} GROUP BY v.id) "
    "GROUP BY k",
    "SELECT f, w, COUNT(*) FROM (SELECT v.id, {item} AS w, b.f, MIN(cost) AS c FROM visits v "
    "LEFT JOIN (VALUES ('a', 10), ('c', 30)) AS b(of_ward, f) ON b.of_ward = v.ward{days} "
    "GROUP BY v.id, {item}, b.f) GROUP BY f, w",
)


@pytest.mark.parametrize("seed", range(32))
def test_rows_that_public_rows_are_looked_up_for(world: World, seed: int) -> None:
    """What public rows say of a visit is a column of it."""
    draw = random.Random(seed)
    item = draw.choice(["d.week", "d.month", "d.week + v.cost // 10"])
    kinds = [" JOIN days d ON d.n = v.day WHERE {0}", " LEFT JOIN days d ON v.day = d.n WHERE {0}"]
    days = draw.choice(kinds).format(draw.choice([*PICKS, "d.week <> v.cost"]))
    form = LOOKED_UP[seed % len(LOOKED_UP)]
    agrees(world, form.format(item=item, days=days, n=draw.randrange(4)))


@pytest.mark.parametrize("seed", range(24))
def test_rows_that_public_rows_pick(world: World, seed: int) -> None:
    """Days have each key once; beds do not, which does not matter in EXISTS."""
    random.seed(seed)
    picked = random.choice(PICKS)
    joined = random.choice(
        [f", days d WHERE v.day = d.n AND {picked}", f" JOIN days d ON d.n = day WHERE {picked}"]
    )
    agrees(world, FORMS[seed % len(FORMS)].format(days=joined, n=random.randrange(4)))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT k, COUNT(*) FROM (SELECT v.id, COUNT(*) AS k FROM visits v LEFT JOIN days d "
        "ON d.n = v.day AND v.cost > d.week GROUP BY v.id) GROUP BY k",
        "SELECT COUNT(*) FROM (SELECT v.cost FROM visits v, beds b WHERE b.ward = v.ward "
        "UNION ALL SELECT pages FROM letters)",
    ],
)
def test_public_rows_that_do_more_than_pick(world: World, sql: str) -> None:
    """Keys that rows share would count rows twice."""
    with pytest.raises(dpsql.NotSupportedError):
        world[0].execute(sql)


WEEKS = "(SELECT day, ward, COUNT(*) AS n FROM visits GROUP BY ALL)"
"""Answers: 31 days in three wards, and every one of these groups has rows."""
TIES = (
    "a.day = b.day",
    "a.day = b.day - 7",
    "b.day + 7 = a.day",
    "a.ward = b.ward",
    "a.ward = b.ward AND b.day = 3",
    "a.day = 2 AND b.day = 9",
    "a.ward = b.ward AND a.n = b.n",
    "a.ward = 'a' AND a.day = b.day AND b.ward = 'b'",
)


SIDES = ("", "", "LEFT ", "RIGHT ", "FULL ")


@pytest.mark.parametrize("seed", range(24))
def test_rows_of_joined_answers(world: World, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is never below the rows that there are, and what passes agrees with DuckDB."""
    random.seed(seed)
    tests, side = TIES[seed % len(TIES)], random.choice(SIDES)
    clause = f"a {side}JOIN {WEEKS} b ON {tests}" if side else f"a, {WEEKS} b WHERE {tests}"
    inner = f"SELECT a.day AS x, a.ward AS w, b.day AS y, b.n AS k FROM {WEEKS} {clause}"
    outer = f"SELECT x, w, k, d.week FROM ({inner}) j JOIN days d ON d.n = x"
    agrees(world, inner)
    agrees(world, outer)
    for sql, most in ((inner, 1), (outer, _count(world, inner))):
        monkeypatch.setattr(table_joins, "MAX_ROWS", most)
        refused = _refused(world, sql.replace("SELECT", f"SELECT {seed} AS other,", 1))
        assert (most if refused is None else refused) >= _count(world, sql), sql


@pytest.mark.parametrize("tests", TIES[:4])
def test_keys_that_few_rows_share(
    world: World, tests: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """93 groups, of which three have a day and 31 a ward: 279 or 2,883 pairs, not 8,649."""
    monkeypatch.setattr(table_joins, "MAX_ROWS", 2_883 if "ward" in tests else 279)
    sql = f"SELECT a.day, b.ward, a.n + b.n AS both_{{}} FROM {WEEKS} a, {WEEKS} b WHERE {tests}"
    agrees(world, sql.format("fit"))
    monkeypatch.setattr(table_joins, "MAX_ROWS", 2_882 if "ward" in tests else 278)
    with pytest.raises(dpsql.ProgrammingError, match="rows"):
        world[0].execute(sql.format("not"))


def _refused(world: World, sql: str) -> int | None:
    """How many rows a refusal says there could be; None where a statement passes."""
    try:
        world[0].execute(sql)
    except dpsql.ProgrammingError as error:
        found = re.search(r"could have ([0-9,]+) rows", str(error))
        return int(found[1].replace(",", "")) if found else -1
    return None


def _count(world: World, sql: str) -> int:
    found = world[1].execute(f"SELECT COUNT(*) FROM ({sql})").fetchone()
    assert found is not None
    return int(found[0])


def test_a_key_of_public_rows_that_no_row_joins(world: World) -> None:
    """No bed is on floor nine: there are no groups, and nothing fails."""
    agrees(
        world,
        "SELECT b.floor, v.ward, COUNT(*) FROM visits v, beds b WHERE b.ward = v.ward "
        "AND b.floor = 9 AND v.cost < b.floor GROUP BY b.floor, v.ward",
    )
    agrees(
        world,
        "SELECT b.floor + d.week, COUNT(*) FROM visits v, beds b, days d WHERE b.ward = v.ward "
        "AND d.n = v.day AND b.floor = 9 GROUP BY 1",
    )
