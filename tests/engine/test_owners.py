"""What one analyst does takes nothing from another: domains and bounds belong to who paid for them.

Sequences of acts of several analysts are drawn. Before every act it is noted what each of them
owns: answers, by the statement, and budget. Afterwards the others still have all of it.
"""

from __future__ import annotations

import random
from fractions import Fraction
from pathlib import Path

import pytest

import dpsql
from dpsql.dbapi.connection import Connection, inspect
from dpsql.privacy.budget.curator_acts import analyst_name
from tests.engine.test_discover import sell
from tests.support.effort import effort

SEEDS = range(effort(3))
WHO = ("ana", "ben", "cy")
HOW = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS"
KINDS = {
    "product": ("DOMAIN", "SELECT product, COUNT(*) AS n FROM sales GROUP BY product"),
    "price": ("BOUNDS", "SELECT SUM(price) AS s FROM sales"),
}
FORMS = {
    "product": [
        KINDS["product"][1],
        f"{HOW}(mechanism = 'mwem') product, COUNT(*) AS n FROM sales GROUP BY product",
    ],
    "price": [
        KINDS["price"][1],
        f"{HOW}(clip = 'svt') SUM(price) AS s FROM sales",
        f"{HOW}(clip = 'svt') SUM(price) AS s, COUNT(*) AS n FROM sales",
    ],
}
"""Statements that need what was found: measured, clipped, clipped and measured, and learned."""


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
    for column, (what, _) in KINDS.items():
        create = f"CREATE {what} d_{column} FROM sales ({column}) OPTIONS (epsilon = 1)"
        everyone[draw.choice(WHO)].execute(create)
    for _ in range(14):
        who, (column, (what, _)) = draw.choice(WHO), draw.choice([*KINDS.items()])
        sql = draw.choice(FORMS[column])
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
            for each in FORMS[column]:
                owned[who].pop(each, None)  # their own act: found again it is free
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


@pytest.mark.parametrize("sql", [sql for each in FORMS.values() for sql in each])
def test_what_another_has_paid_for_is_not_dropped_under_it(tmp_path: Path, sql: str) -> None:
    catalog = shared(tmp_path)
    column = next(each for each, forms in FORMS.items() if sql in forms)
    what = KINDS[column][0]
    ana, ben = (dpsql.connect(catalog, epsilon=1, analyst=who) for who in WHO[:2])
    ana.execute(f"CREATE {what} d FROM sales ({column}) OPTIONS (epsilon = 1)")
    ana.execute(sql)
    ana.execute(f"DROP {what} d")  # her own answers are hers to give up
    ana.execute(f"CREATE {what} d FROM sales ({column}) OPTIONS (epsilon = 1)")
    ben.set("reuse", "never")
    ben.execute(sql)
    ben.set("reuse", "auto")
    assert tried(ana, f"DROP {what} d") == "E_STATEMENT"
    assert ben.explain(sql).free
    ana.execute("SELECT COUNT(*) AS n FROM sales")
    with inspect(catalog) as curator:
        curator.execute(f"DROP {what} d")


def test_what_has_a_name_of_its_own_outlives_its_domain(tmp_path: Path) -> None:
    catalog = shared(tmp_path)
    ana, ben = (dpsql.connect(catalog, epsilon=1, analyst=who) for who in WHO[:2])
    ana.execute("CREATE DOMAIN d FROM sales (product) OPTIONS (epsilon = 1)")
    ben.execute(
        "CREATE SYNTHETIC TABLE s FROM sales OPTIONS (model = 'rap', epsilon = 1)"
        f" FOR ({KINDS['product'][1]})"
    )
    before = ben.execute("SELECT product, COUNT(*) AS n FROM s GROUP BY product").fetchall()
    ana.execute("DROP DOMAIN d")
    again = ben.execute("SELECT product, COUNT(*) AS n FROM s GROUP BY product").fetchall()
    assert again == before


def test_one_request_takes_no_more_of_discovery_delta_than_of_epsilon(tmp_path: Path) -> None:
    catalog = shared(tmp_path)
    ana, ben = (dpsql.connect(catalog, epsilon=1, analyst=who) for who in WHO[:2])
    share = ana.budget.total_discovery / 3
    create = "CREATE DOMAIN {} FROM sales (product) OPTIONS (epsilon = {}, discovery_delta = {})"
    for epsilon, most in ((".001", share / 10), ("1", share / 10), ("6", share / 2)):
        assert tried(ana, create.format("d", epsilon, float(most * 101 / 100))) == "E_BUDGET"
    assert budget_of(ana)[1] == share
    ana.execute("CREATE DOMAIN d FROM sales (product) OPTIONS (epsilon = 3)")
    assert budget_of(ana)[1] == share * 3 / 4  # as of her epsilon, 12
    assert tried(ana, create.format("e", "6", float(share / 2))) == "E_STATEMENT"
    ana.execute("DROP DOMAIN d")
    assert tried(ana, create.format("e", "6", float(share * 49 / 100))) == ""
    assert budget_of(ana)[1] < share * 27 / 100
    ana.execute("DROP DOMAIN e")
    assert tried(ana, create.format("f", "1", float(share * 9 / 100))) == ""
    assert budget_of(ben)[1] == share
