"""What an analyst has found or made shows nowhere to another, where names are their owner's.

In one of two worlds others act, in the other nobody does. Whatever an analyst then asks is told in
the same words: lists, refusals, forecasts, and what becomes of the same names.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import dpsql
from dpsql.dbapi.connection import Connection, inspect
from dpsql.errors import CatalogError
from dpsql.privacy.budget.curator_acts import migrate_ledger
from tests.engine.test_discover import sell
from tests.engine.test_owners import WHO, shared, tried
from tests.support.effort import effort, first_seed
from tests.support.seam import zero_noise

NAMES = ("d", "e", "s")
DRAWN = ("entry", "ledger", "total", "loss")
"""Rows of what is told that count the entries of all, or that a fit draws."""
ASK = "SELECT product, COUNT(*) AS n FROM sales GROUP BY product"
MADE = (
    "CREATE DOMAIN {} FROM sales (product) OPTIONS (epsilon = 1)",
    "CREATE DOMAIN {} FROM buys (product) OPTIONS (epsilon = 1)",
    "CREATE BOUNDS {} FROM sales (price) OPTIONS (epsilon = 1)",
    "CREATE SYNTHETIC TABLE {} FROM sales OPTIONS (model = 'rap', epsilon = 1)"
    " FOR (SELECT sex, COUNT(*) AS n FROM sales GROUP BY sex)",
)
ACTS = (*MADE, *MADE, "DROP DOMAIN {}", "DROP BOUNDS {}")
FREE = (
    *(f"EXPLAIN {each}" for each in MADE),
    *(each.replace("{}", "IF NOT EXISTS {}").replace("CREATE", "EXPLAIN CREATE") for each in MADE),
    *("DESCRIBE DOMAIN {}", "DESCRIBE BOUNDS {}", "DESCRIBE SYNTHETIC TABLE {}", "DESCRIBE {}"),
    *("DROP DOMAIN {}", "DROP BOUNDS {}", "DROP SYNTHETIC TABLE {}"),
    *("SELECT sex, COUNT(*) AS n FROM {} GROUP BY sex", f"EXPLAIN {ASK}"),
    *("MATERIALIZE SYNTHETIC TABLE {} TO 'x.csv'", "SHOW domains", "SHOW tables", "SHOW budget"),
    "EXPLAIN SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (keys = 'private') product, COUNT(*) AS n"
    " FROM sales GROUP BY product",
)


def world(folder: Path, visibility: str = "own") -> Path:
    catalog = shared(folder)
    catalog.write_text(f'{catalog.read_text()}\n[names]\nvisibility = "{visibility}"\n')
    return catalog


def told(connection: Connection, sql: str) -> Any:
    """All that is told of a statement, but for numbers of the ledger, which count everybody's."""
    try:
        result = connection.execute(sql).result
    except dpsql.Error as error:
        return error.code, str(error), error.hint
    rows = [row for row in result.rows if row[0] not in DRAWN]
    if sql == "SHOW domains":
        rows = [row[:-1] for row in rows]
    return result.columns, rows, result.notes


def seen(connection: Connection) -> list[Any]:
    found: list[Any] = [(sql, told(connection, sql.format(n))) for sql in FREE for n in NAMES]
    found += [[*connection.known.tables], [*connection.engine.common.tables]]
    for sql in MADE:
        found += [told(connection, sql.format(name)) for name in NAMES]
    found += [told(connection, "SHOW domains"), told(connection, "SHOW tables")]
    return [*found, told(connection, ASK), [*connection.engine.common.tables]]


@pytest.mark.parametrize("seed", range(effort(3)))
def test_what_others_have_shows_nowhere(tmp_path: Path, seed: int) -> None:
    draw, words = random.Random(first_seed(seed)), []
    for name in ("quiet", "busy"):
        catalog = world(tmp_path / name)
        with zero_noise():
            others = [dpsql.connect(catalog, epsilon=1, analyst=who) for who in WHO[::2]]
            acts = [draw.choice(ACTS).format(draw.choice(NAMES)) for _ in range(12)]
            done = [tried(draw.choice(others), act) for act in acts if name == "busy"]
            with dpsql.connect(catalog, epsilon=1, analyst=WHO[1]) as ben:
                words.append(seen(ben))
            assert name == "quiet" or done.count("") >= 3, done
    for quiet, busy in zip(*words, strict=True):
        assert busy == quiet


def test_each_has_their_own_and_the_curator_sees_all(tmp_path: Path) -> None:
    catalog = world(tmp_path)
    ana, ben = (dpsql.connect(catalog, epsilon=1, analyst=who) for who in WHO[:2])
    for each in (ana, ben):
        for sql, name in zip(MADE, "dbrs", strict=True):
            each.execute(sql.format(name))
        assert [row[0] for row in each.execute("SHOW domains").result.rows] == ["d", "b", "r"]
        assert each.execute("SELECT COUNT(*) AS n FROM s").result.rows
    paid = [each.execute(ASK).fetchall() for each in (ana, ben)]
    with inspect(catalog) as curator:
        names = [row[0] for row in curator.execute("SHOW domains").result.rows]
        assert len({*names}) == 6
        assert {"d", "b", "r"} < {*names}
        tables = [row[0] for row in curator.execute("SHOW tables").result.rows]
        assert len([name for name in tables if name.startswith("s")]) == 3
        second = next(name for name in names if name.startswith("d_"))
        curator.execute(f"DROP DOMAIN {second}")
    assert ana.execute(ASK).fetchall() == paid[0]
    assert tried(ben, ASK) == "E_DOMAIN"
    ben.execute(MADE[0].format("d"))
    assert ben.explain(ASK).free
    assert ben.execute(ASK).fetchall() == paid[1]
    for each in (ana, ben):
        each.close()


def test_what_nobody_in_particular_has_paid_for_is_everybodys(tmp_path: Path) -> None:
    catalog = sell(tmp_path)
    with dpsql.connect(catalog, epsilon=1) as curator:
        for sql, name in zip(MADE, "dbrs", strict=True):
            curator.execute(sql.format(name))
    world(tmp_path)
    migrate_ledger(catalog)
    with dpsql.connect(catalog, epsilon=1, analyst=WHO[0]) as ana:
        assert [row[0] for row in ana.execute("SHOW domains").result.rows] == ["d", "b", "r"]
        assert "s" in ana.engine.common.tables
        assert tried(ana, MADE[0].format("x")) == "E_STATEMENT"


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ('visibility = "mine"', "one of all, own"),
        ("visibility = true", "one of all, own"),
        ('seen = "own"', "visibility"),
        ('visibility = "own"', "declare them"),
    ],
)
def test_a_visibility_that_is_none_is_refused(tmp_path: Path, names: str, why: str) -> None:
    catalog = sell(tmp_path)
    catalog.write_text(f"{catalog.read_text()}\n[names]\n{names}\n")
    with pytest.raises(CatalogError) as caught:
        dpsql.connect(catalog)
    assert why in str(caught.value.hint)
