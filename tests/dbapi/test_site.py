"""Several connections over the same rows, in threads of their own."""

from __future__ import annotations

import gc
import random
import threading
from pathlib import Path

import pytest

from dpsql.dbapi.connection import migrate_ledger
from dpsql.dbapi.site import open_site
from dpsql.errors import DataError, Error
from tests.support.seam import zero_noise
from tests.support.tables import write_tables

CATALOG = """
[budget]
epsilon = 100000
delta = 1e-4
discovery_delta = 9e-5

[ledger]
anchor = "anchors"

[analyst.ana]
epsilon = 50000
[analyst.bo]
epsilon = 1

[table.visits]
source = "visits.parquet"
privacy_unit = { column = "who", max_rows = 4 }

[table.visits.column]
ward = { type = "text", domain = ["a", "b", "c"] }
day = { type = "integer", domain = [0, 29] }
product = { type = "text", domain = "discover", max_keys = 4 }
"""
TABLES = {
    "visits": "SELECT i // 4 AS who, substr('abc', 1 + CAST(i % 3 AS INTEGER), 1) AS ward,"
    " i % 30 AS day, 'p' || CAST(i % 5 AS VARCHAR) AS product FROM range(4000) v(i)"
}


def test_threads_get_right_answers_whatever_others_find(tmp_path: Path) -> None:
    """Some find and drop the keys of a column, while others count by it and by other columns."""
    database = write_tables(tmp_path, CATALOG, TABLES)
    site = open_site(tmp_path / "t.toml")
    wrong: list[object] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        with site.connect("ana") as connection:
            connection.set("epsilon", "1")
            for _ in range(12):
                day = rng.randrange(30)
                sql = rng.choice(
                    (
                        f"SELECT ward, COUNT(*) FROM visits WHERE day < {day} GROUP BY ward",
                        f"SELECT COUNT(*) FROM visits WHERE day = {day}",
                        f"SELECT product, COUNT(*) FROM visits WHERE day >= {day} GROUP BY product",
                        "CREATE DOMAIN found FROM visits (product) OPTIONS (epsilon = 5)",
                        "DROP DOMAIN found",
                    )
                )
                try:
                    result = connection.execute(sql).result
                except Error as error:
                    if error.code not in ("E_DOMAIN", "E_UNKNOWN_TABLE", "E_STATEMENT"):
                        wrong.append((sql, error))
                    continue
                if sql.startswith("SELECT"):
                    answers.append((sql, result.rows))

    answers: list[tuple[str, tuple[tuple[object, ...], ...]]] = []
    with zero_noise():
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    site.close()
    assert wrong == []
    assert len(answers) > 20
    for sql, rows in answers:
        known = dict.fromkeys(row[0] for row in rows) if "GROUP" in sql else {}
        found = {r[0]: r[-1] for r in database.execute(sql).fetchall()}
        assert {**dict.fromkeys(known, 0), **found} == {row[0]: row[-1] for row in rows}, sql
    database.close()


def test_each_connection_is_an_analysts(tmp_path: Path) -> None:
    write_tables(tmp_path, CATALOG, TABLES).close()
    site = open_site(tmp_path / "t.toml")
    with site.connect("ana") as ana, site.connect("bo") as bo:
        ana.set("epsilon", "2")
        ana.execute("SELECT COUNT(*) FROM visits")
        assert float(bo.askable[0]) == 1
        assert float(ana.askable[0]) == 49998
        bo.set("epsilon", "2")
        with pytest.raises(Error, match="E_BUDGET"):
            bo.execute("SELECT COUNT(*) FROM visits WHERE day = 1")
        assert bo.execute("SELECT COUNT(*) FROM visits").result.cost is not None
    with pytest.raises(DataError):
        site.connect("eve")
    with site.connect("ana") as again:
        assert again.execute("SHOW epsilon").fetchall() == [("not set",)]
    site.close()


def test_rows_of_a_catalog_that_was_changed_go_with_their_last_connection(tmp_path: Path) -> None:
    """A server lives on while its catalog is changed: each time its rows are read anew."""
    write_tables(tmp_path, CATALOG, TABLES).close()
    path, count = tmp_path / "t.toml", "SELECT COUNT(*) FROM visits WHERE day = 1"
    site = open_site(path)
    opened = []
    first = site.connect("ana")
    for last in range(28, 25, -1):
        before = site.connect("ana")
        before.set("epsilon", "1")
        before.execute(count)
        opened.append(site.engine.vaults.tables.found["visits"])
        path.write_text(path.read_text().replace(f"[0, {last + 1}]", f"[0, {last}]"))
        migrate_ledger(path)
        with site.connect("ana") as after:
            after.set("epsilon", "1")
            after.execute(count)
        before.close()
    gc.collect()
    held = [vault._held.rows is not None for vault in opened]
    assert held == [True, False, False]
    first.close()
    gc.collect()
    assert opened[0]._held.rows is None
    assert len(site._past) == 0
    site.close()
