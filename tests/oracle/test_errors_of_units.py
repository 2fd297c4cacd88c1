"""Joined and per-person statements err as they say, and as on a table that is joined beforehand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.oracle.test_private_joins import CATALOG, star
from tests.support.effort import effort
from tests.support.seam import zero_noise
from tests.support.tables import World, open_tables

RUNS = effort(40)
NUMBERED = "SELECT *, ROW_NUMBER() OVER (PARTITION BY patient_id ORDER BY day) AS k FROM visits"
STATEMENTS = {
    "SELECT sex, ward, COUNT(*) AS n FROM visits JOIN patients USING (patient_id) GROUP BY ALL": (
        "SELECT sex, ward, COUNT(*) AS n FROM joined GROUP BY ALL"
    ),
    "SELECT sex, ward, SUM(cost) AS n FROM visits JOIN patients USING (patient_id) GROUP BY ALL": (
        "SELECT sex, ward, SUM(cost) AS n FROM joined GROUP BY ALL"
    ),
    "SELECT m, COUNT(*) AS n FROM (SELECT patient_id, COUNT(*) AS m FROM visits GROUP BY 1) AS p"
    " WHERE m < 9 GROUP BY m": "SELECT m, COUNT(*) AS n FROM people WHERE m < 9 GROUP BY m",
    f"SELECT ward, COUNT(*) AS n FROM ({NUMBERED}) AS v WHERE k = 1 GROUP BY ward": (
        "SELECT ward, COUNT(*) AS n FROM firsts GROUP BY ward"
    ),
    "SELECT k, COUNT(*) AS n FROM (SELECT ward AS k FROM visits UNION ALL SELECT 'bill' FROM bills)"
    " AS u GROUP BY k": "SELECT k, COUNT(*) AS n FROM events GROUP BY k",
    "SELECT sex, COUNT(*) AS n FROM patients WHERE patient_id IN (SELECT patient_id FROM visits "
    "EXCEPT SELECT who FROM bills) GROUP BY sex": (
        "SELECT sex, COUNT(*) AS n FROM asked WHERE there GROUP BY sex"
    ),
}
SEX = 'sex = { type = "text", domain = ["f", "m"], null = true }\n'
WARD = 'ward = { type = "text", domain = ["a", "b", "c"] }\n'
BEFORE = {
    "joined": (
        "SELECT v.*, p.sex FROM visits v JOIN patients p USING (patient_id)",
        30,
        SEX + WARD + 'cost = { type = "integer", bounds = [0, 100] }\n',
    ),
    "people": (
        "SELECT patient_id, COUNT(*) AS m FROM visits GROUP BY patient_id",
        1,
        'm = { type = "integer", domain = [1, 30] }\n',
    ),
    "firsts": (f"SELECT * FROM ({NUMBERED}) WHERE k = 1", 1, WARD),
    "events": (
        "SELECT patient_id, ward AS k FROM visits UNION ALL SELECT who, 'bill' FROM bills",
        50,
        'k = { type = "text", domain = ["a", "b", "c", "bill"] }\n',
    ),
    "asked": (
        "SELECT *, patient_id IN (SELECT patient_id FROM visits EXCEPT SELECT who FROM bills)"
        " AS there FROM patients",
        1,
        SEX + 'there = { type = "boolean", domain = [false, true] }\n',
    ),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder, text = tmp_path_factory.mktemp("errors"), CATALOG
    for name, (_, most, columns) in BEFORE.items():
        unit = f'privacy_unit = {{ column = "patient_id", max_rows = {most} }}'
        text += (
            f'[table.{name}]\nsource = "{name}.parquet"\n{unit}\n[table.{name}.column]\n{columns}'
        )
    with open_tables(folder, text, star(4)) as found:
        for name, (sql, *_) in BEFORE.items():
            found[1].execute(f"COPY ({sql}) TO '{folder / name}.parquet'")
        yield found


def numbers(rows: Any) -> list[float]:
    return [float(row[-1] or 0) for row in rows]


@pytest.mark.parametrize("index", range(len(STATEMENTS)))
def test_expected_and_measured_error_agree(world: World, index: int) -> None:
    sql, (connection, _) = list(STATEMENTS)[index], world
    connection.set("fresh", "on")
    with zero_noise():
        exact = np.array(numbers(connection.execute(sql).fetchall()))
    found = []
    for _ in range(RUNS):
        result = connection.execute(sql).result
        told = np.array(result.stddev[-1], dtype=float)
        found.append((np.array(numbers(result.rows)) - exact) / told)
    agreement = float(np.mean(np.square(found)))
    assert 0.4 < agreement < 2.4, agreement


@pytest.mark.parametrize("sql", STATEMENTS)
def test_a_table_joined_beforehand_has_the_same_error(world: World, sql: str) -> None:
    connection, _ = world
    with zero_noise():
        results = [connection.execute(each).result for each in (sql, STATEMENTS[sql])]
    told, before = (np.array(each.stddev[-1], dtype=float) for each in results)
    assert told == pytest.approx(before, rel=1e-6)


def test_an_error_that_is_told_wrong_is_found() -> None:
    draw = np.random.default_rng(0)
    noise = draw.laplace(size=(RUNS, 3)) / np.sqrt(2)
    assert 0.4 < float(np.mean(noise**2)) < 2.4
    for factor in (0.5, 2.0):  # rows of a unit forgotten, or counted twice over
        assert not 0.4 < float(np.mean((noise * factor) ** 2)) < 2.4
