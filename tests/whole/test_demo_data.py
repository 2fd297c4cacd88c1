"""The shipped data are what SOURCES.md says, and the workloads ask what they claim."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.catalog.read import read_catalog

DEMO = Path(__file__).parents[2] / "demo_data"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DEMO / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def one(sql: str, name: str) -> tuple[Any, ...]:
    row = duckdb.connect().execute(sql, [str(DEMO / name)]).fetchone()
    assert row is not None
    return row


def statements(name: str) -> list[str]:
    text = re.sub(r"--.*", "", (DEMO / name).read_text(encoding="utf-8"))
    return [part.strip() for part in text.split(";") if part.strip()]


def test_checksums_of_sources_md_hold() -> None:
    text = (DEMO / "SOURCES.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^([0-9a-f]{64})  (\w+\.parquet)$", text, re.MULTILINE))
    assert sorted(listed.values()) == sorted(path.name for path in DEMO.glob("*.parquet"))
    for digest, name in listed.items():
        assert hashlib.sha256((DEMO / name).read_bytes()).hexdigest() == digest


def test_adult_has_the_published_size_and_keeps_the_unknown_value() -> None:
    assert one("SELECT count(*) FROM read_parquet(?)", "adult.parquet") == (48842,)
    described = duckdb.connect().execute(
        "DESCRIBE SELECT * FROM read_parquet(?)", [str(DEMO / "adult.parquet")]
    )
    assert len(described.fetchall()) == 14
    unknown = one(
        "SELECT count(*) FROM read_parquet(?) WHERE '?' IN (workclass, occupation, native_country)",
        "adult.parquet",
    )
    assert unknown == (48842 - 45222,)
    labels = one(
        "SELECT list(DISTINCT income ORDER BY income) FROM read_parquet(?)", "adult.parquet"
    )
    assert labels == (["<=50K", ">50K"],)


def test_rand_hie_has_the_published_size_and_at_most_five_rows_a_person() -> None:
    sql = "SELECT count(*), count(DISTINCT person_id) FROM read_parquet(?)"
    assert one(sql, "rand_hie.parquet") == (20190, 5912)
    sql = "SELECT max(n) FROM (SELECT count(*) AS n FROM read_parquet(?) GROUP BY person_id)"
    assert one(sql, "rand_hie.parquet") == (5,)


def test_census_has_a_million_synthetic_rows() -> None:
    assert one("SELECT count(*) FROM read_parquet(?)", "census.parquet") == (1_000_000,)


def test_the_hospital_is_what_its_generator_draws(tmp_path: Path) -> None:
    load("make_hospital").main(["--out", str(tmp_path), "--level", "1"])
    with duckdb.connect() as database:
        for table in ("patients", "visits", "prescriptions"):
            name = f"hospital_{table}.parquet"
            here, there = (f"FROM '{place / name}'" for place in (DEMO, tmp_path))
            differ = f"(SELECT * {here} EXCEPT ALL SELECT * {there})"
            assert database.execute(f"SELECT COUNT(*) FROM {differ}").fetchone() == (0,)
            sizes = [database.execute(f"SELECT COUNT(*) {p}").fetchone() for p in (here, there)]
            assert sizes[0] == sizes[1]
    assert one("SELECT count(*) FROM read_parquet(?)", "hospital_patients.parquet") == (40_000,)
    assert len(statements("hospital_tour.sql")) == 26


def test_the_tour_of_the_hospital_is_answered_for_persons(tmp_path: Path) -> None:
    for path in DEMO.glob("hospital*"):
        shutil.copy(path, tmp_path)
    with dpsql.connect(tmp_path / "hospital.toml", epsilon=1) as connection:
        for sql in statements("hospital_tour.sql"):
            told = str(connection.explain(sql))
            assert re.search(r"at most \d+ rows? of each patient_id counts?", told), sql
            assert " exists" not in told, sql


def test_census_generator_draws_the_requested_rows() -> None:
    module = load("make_census")
    counts = module.draw_counts(1000, seed=1)
    assert counts.shape == (2 * 2 * 64 * 115,)
    assert counts.sum() == 1000
    assert np.isclose(module.cell_shares().sum(), 1.0)


def test_adult_lines_are_cleaned() -> None:
    lines = ["|1x3 Cross validator", "25, Private, 226802, <=50K.", ""]
    assert list(load("make").adult_rows(lines)) == [["25", "Private", "226802", "<=50K"]]


@pytest.mark.parametrize("name", ["adult", "rand_hie", "census"])
def test_catalog_loads_and_names_columns_of_its_file(name: str) -> None:
    catalog = read_catalog(DEMO / f"{name}.toml")
    (table,) = catalog.tables.values()
    rows = duckdb.connect().execute("DESCRIBE SELECT * FROM read_parquet(?)", [table.source])
    present = {row[0] for row in rows.fetchall()}
    assert {column.name for column in table.columns.values()} <= present
    assert table.unit.column is None or table.unit.column in present


@pytest.mark.parametrize("name", ["adult", "rand_hie", "census"])
def test_declared_domains_cover_the_shipped_rows(name: str) -> None:
    (table,) = read_catalog(DEMO / f"{name}.toml").tables.values()
    relation = duckdb.connect()
    for column in table.columns.values():
        if column.domain is None or column.type == "number":
            continue
        values = relation.execute(
            f'SELECT DISTINCT "{column.name}" FROM read_parquet(?)', [table.source]
        ).fetchall()
        assert {value for (value,) in values} <= set(column.cells), column.name


def test_workload_sizes() -> None:
    assert len(statements("adult_tour.sql")) == 17
    assert len(statements("adult_marginals.sql")) == 21
    assert len(statements("adult_cdf.sql")) == 61
    assert len(statements("census_sf1.sql")) == 4151
    assert len(statements("census_sf1_compact.sql")) == 33


def test_generated_workloads_are_up_to_date() -> None:
    module = load("make_workloads")
    assert (DEMO / "adult_marginals.sql").read_text(encoding="utf-8") == module.marginals_text()
    assert (DEMO / "adult_cdf.sql").read_text(encoding="utf-8") == module.cdf_text()


def test_sf1_file_has_33_blocks_and_199_distinct_predicates() -> None:
    text = (DEMO / "census_sf1.sql").read_text(encoding="utf-8")
    assert text.count("\n-- ") + 1 == 33
    predicates = {
        condition
        for statement in statements("census_sf1.sql")
        if " WHERE " in statement
        for condition in re.split(
            r" AND (?=sex|hispanic|race|age)", statement.partition(" WHERE ")[2]
        )
    }
    assert len(predicates) == 199


def test_sf1_renderer_keeps_order_and_meaning() -> None:
    module = load("make_sf1")
    source: dict[str, Any] = {
        "attributes": [["race", 8], ["age", 10]],
        "products": ["P1", "P12a"],
        "cells": {"race": [[1], [0, 3, 5, 6, 7]], "age": [[0, 1], [3], [5, 6], [7, 8, 9]]},
        "queries": [[0, -1, -1]] + [[1, r, a] for r in (0, 1, -1) for a in range(4)],
    }
    text = module.render(json.loads(json.dumps(source)))
    lines = [line for line in text.splitlines() if line.startswith("SELECT")]
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE person AS SELECT r.range AS race, a.range AS age, "
        "1 AS people FROM range(8) r, range(10) a"
    )
    for line, (_, race, age) in zip(lines, source["queries"], strict=True):
        cells = source["cells"]
        expected = (8 if race < 0 else len(cells["race"][race])) * (
            10 if age < 0 else len(cells["age"][age])
        )
        assert connection.execute(line).fetchone() == (expected,)
