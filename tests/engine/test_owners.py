"""What one analyst does takes nothing from another: domains and bounds belong to who paid for them.

Sequences of acts of several analysts are drawn. Before every act it is noted what each of them
owns: answers, by the statement, and budget. Afterwards the others still have all of it.
"""

from __future__ import annotations

import os
import random
from fractions import Fraction
from pathlib import Path

import pytest

import dpsql
from dpsql.dbapi.connection import Connection, inspect
from dpsql.privacy.curator import analyst_name
from tests.engine.test_discover import sell

SEEDS = range(int(os.environ.get("OWNERS", "3")))
WHO = ("ana", "ben", "cy")
KINDS = {
    "product": ("DOMAIN", "SELECT product, COUNT(*) AS n FROM sales GROUP BY product"),
    "price": ("BOUNDS", "SELECT SUM(price) AS s FROM sales"),
}


def shared(folder: Path) -> Path:
    """The sales of a shop, asked about by three analysts."""
    catalog = sell(folder)
    shares = "".join(f"\n[analyst.{who}]\nepsilon = 12\n" for who in WHO)
    catalog.write_text(catalog.read_text() + shares)
    return catalog


def tried(connection: Connection, sql: str) -> str:
    """What became of an act: the code of its refusal, or nothing."""
    try:
        connection.execute(sql)
    except dpsql.Error as error:
        return error.code
    return ""


def budget_of(connection: Connection) -> tuple[Fraction, Fraction]:
    status, name = connection.budget, analyst_name(str(connection.analyst))
    return status.nested[name].remaining_epsilon, status.discovery_left([name])


@pytest.mark.parametrize("seed", SEEDS)
def test_no_act_takes_from_another(tmp_path: Path, seed: int) -> None:
    catalog, draw = shared(tmp_path), random.Random(seed)
    everyone = {who: dpsql.connect(catalog, epsilon=1, analyst=who) for who in WHO}
    owned: dict[str, dict[str, object]] = {who: {} for who in WHO}
    seen = set()
    for _ in range(14):
        who, (column, (what, sql)) = draw.choice(WHO), draw.choice([*KINDS.items()])
        others = [each for each in WHO if each != who]
        before = {each: budget_of(everyone[each]) for each in others}
        act = draw.choice(
            [
                f"CREATE {what} d_{column} FROM sales ({column}) OPTIONS (epsilon = 1)",
                f"DROP {what} d_{column}",
                f"DROP {what} d_{column}",
                sql,
            ]
        )
        entries = len(everyone[who].entries())
        outcome = tried(everyone[who], act)
        seen.add((act.split()[0], outcome))
        if act.startswith("DROP") and not outcome:
            owned[who].pop(sql, None)  # their own act: found again it is free
        if act == sql and not outcome and len(everyone[who].entries()) > entries:
            owned[who][sql] = everyone[who].execute(sql).fetchall()
        for each in others:
            assert budget_of(everyone[each]) == before[each], (act, each)
            for mine, rows in owned[each].items():
                assert everyone[each].explain(mine).free, (act, who, each)
                assert everyone[each].execute(mine).fetchall() == rows
    assert ("DROP", "E_STATEMENT") in seen or ("DROP", "") in seen
    for connection in everyone.values():
        connection.close()


def test_only_who_paid_and_the_curator_drop(tmp_path: Path) -> None:
    catalog = shared(tmp_path)
    create = "CREATE DOMAIN d FROM sales (product) OPTIONS (epsilon = 1)"
    ana, ben = (dpsql.connect(catalog, epsilon=1, analyst=who) for who in WHO[:2])
    ana.execute(create)
    assert tried(ben, "DROP DOMAIN d") == "E_STATEMENT"
    ben.execute(KINDS["product"][1])
    assert tried(ana, "DROP DOMAIN d") == "E_STATEMENT"  # ben has paid for answers over it
    with inspect(catalog) as curator:
        curator.execute("DROP DOMAIN d")
    entries = len(ben.entries())
    assert ben.explain(create).free
    ben.execute(create)
    assert ben.explain(KINDS["product"][1]).free
    assert len(ben.entries()) == entries
    assert tried(ben, "DROP DOMAIN d") == "E_STATEMENT"  # ana's it is, whoever found it again


def test_one_analyst_has_no_more_than_a_share_of_discovery_delta(tmp_path: Path) -> None:
    catalog = shared(tmp_path)
    ana, ben = (dpsql.connect(catalog, epsilon=1, analyst=who) for who in WHO[:2])
    whole = ana.budget.total_discovery
    create = "CREATE DOMAIN d FROM sales (product) OPTIONS (epsilon = 1, discovery_delta = {})"
    assert tried(ana, create.format(float(whole))) == "E_BUDGET"
    assert tried(ana, create.format(float(whole / 4))) == ""
    assert budget_of(ana)[1] < whole / 3
    assert budget_of(ben)[1] == whole / 3
