"""Conditions that couple many columns, such as 5 of 12 predicates: learned in one piece."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import dpsql
from dpsql.answer.model_answers import answer_from, candidate_of
from dpsql.dbapi.connection import Connection
from dpsql.learn.relaxed import ProductMixture
from dpsql.sql.text.lexemes import split_statements
from dpsql.sql.text.parse import parse_select

NAMES = [f"q{i}" for i in range(12)]
ROWS = np.random.default_rng(1).random((400, 12)) < np.linspace(0.2, 0.8, 12)
FIVE = " + ".join(f"({name} = 'y')::INT" for name in NAMES)
ANY = " OR ".join(f"{name} = 'y'" for name in NAMES)
COLUMN = '{ type = "text", domain = ["n", "y"] }'


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Connection]:
    """A connection to a table of its own."""
    with dpsql.connect(written(tmp_path)) as connection:
        yield connection


@pytest.fixture(scope="module")
def unspent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    """A connection for all that charge nothing."""
    with dpsql.connect(written(tmp_path_factory.mktemp("unspent"))) as connection:
        yield connection
        assert connection.budget.entries == 0


def written(folder: Path) -> Path:
    """A table of twelve answers, yes or no, and an age that may be missing."""
    lines = [",".join([*NAMES, "age"])]
    for i, row in enumerate(ROWS):
        lines.append(",".join([*("ny"[int(each)] for each in row), str(i % 5) if i % 7 else ""]))
    (folder / "t.csv").write_text("\n".join(lines) + "\n")
    columns = "\n".join(f"{name} = {COLUMN}" for name in NAMES)
    (folder / "t.toml").write_text(
        f'[budget]\nepsilon = 1000\n[ledger]\nanchor = "anchors"\n[table.t]\nsource = "t.csv"\n'
        f'privacy_unit = "row"\n[table.t.column]\n{columns}\n'
        f'age = {{ type = "integer", domain = [0, 4], null = true }}\n'
    )
    return folder / "t.toml"


CONDITIONS = [
    "(q0 = 'y')::INT + (q1 = 'y')::INT + (age > 1)::INT + (age > 3)::INT >= 2",
    "CASE WHEN q0 = 'y' THEN 1 ELSE 0 END + CASE WHEN age < 3 THEN 1 ELSE 0 END"
    " + CASE WHEN q2 = 'y' THEN 1 ELSE 0 END = 2",
    "q0 = 'y' OR age IS NULL OR q3 = 'n' OR q4 = 'y'",
    "(q0 = 'y') <> (age = 2)",
    "2 * (q0 = 'y')::INT + (q1 = 'y')::INT + (q2 = 'y')::INT > 1 AND (q5 = 'y' OR q6 = 'y')",
]


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("group", ["", " GROUP BY q0, q7", " GROUP BY age"])
def test_whole_conditions_equal_their_products(
    unspent: Connection, condition: str, group: str
) -> None:
    text = f"SELECT COUNT(*), SUM(age) FROM t WHERE {condition}{group}"
    (fragment,) = split_statements(text)
    (compiled,) = unspent.engine.compile([parse_select(fragment)])
    table = unspent.engine.known.tables["t"]
    domain = {name: each.size for name, each in table.columns.items()}
    rng = np.random.default_rng(2)
    blocks = [rng.dirichlet(np.ones(n), 7) for n in domain.values()]
    model = ProductMixture(domain, 400.0, np.concatenate(blocks, axis=1))
    for _, answer in compiled.answers():
        assert any(term.pattern is not None for term in answer.whole)
        parts = [model.answer(candidate_of(table, term)) for term in answer.terms]
        assert answer_from(model, table, answer) == pytest.approx(sum(parts), abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["rap", "mixture"])
def test_five_of_twelve_is_learned(
    asked: Connection, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpsql.learn.whole_marginals.FIRST_ROUNDS", 1 / 6)
    workload = f"SELECT COUNT(*) FROM t WHERE {FIVE} >= 5"
    more = f"SELECT q3, COUNT(*) FROM t WHERE {FIVE} >= 7 GROUP BY q3; SELECT COUNT(*) FROM t"
    asked.execute(
        f"CREATE SYNTHETIC TABLE s FROM t OPTIONS (epsilon = 100, model = '{model}')"
        f" FOR ({workload}; {more} WHERE {ANY})"
    )
    ((n,),) = asked.execute(workload.replace("FROM t", "FROM s")).fetchall()
    counts = ROWS.sum(axis=1)
    near = 8 if model == "rap" else 60
    assert n == pytest.approx((counts >= 5).sum(), abs=near)
    found = asked.execute(f"SELECT q3, COUNT(*) FROM s WHERE {FIVE} >= 7 GROUP BY q3").fetchall()
    for answer, number in found:
        true = ((counts >= 7) & (ROWS[:, 3] == (answer == "y"))).sum()
        assert number == pytest.approx(true, abs=near)
    assert "biased" in str(asked.execute(workload.replace("FROM t", "FROM s")).result.notes)
    assert len([e for e in asked.entries() if e.kind == "debit"]) == 1


def test_a_workload_of_one_condition_is_one_query(asked: Connection) -> None:
    sql = (
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(mechanism = 'rap', epsilon = 100)"
        f" COUNT(*) AS n FROM t WHERE {FIVE} BETWEEN 5 AND 6"
    )
    first = asked.execute(sql).fetchall()
    counts = ROWS.sum(axis=1)
    assert first[0][0] == pytest.approx(((counts >= 5) & (counts <= 6)).sum(), abs=5)
    assert asked.execute(sql).fetchall() == first
    assert asked.execute(sql.replace("BETWEEN 5 AND 6", "= 5")).fetchall() != first
    assert asked.budget.entries == 2


def test_what_cannot_be_is_refused_before_the_charge(unspent: Connection) -> None:
    five = f"SELECT COUNT(*) FROM t WHERE {FIVE} >= 5"
    create = "CREATE SYNTHETIC TABLE s FROM t OPTIONS (epsilon = 1, model = '{}') FOR ({})"
    wide = " AND ".join(f"{name} IN ('y')" for name in NAMES)
    for sql in (
        five,
        "EXPLAIN " + five,
        create.format("mwem", five),
        create.format("pgm", five),
        five.replace("SELECT", "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(mechanism = 'mwem')"),
    ):
        with pytest.raises(dpsql.ProgrammingError) as caught:
            unspent.execute(sql, epsilon=1)
        assert caught.value.code == "E_PREDICATE"
        assert "256 products" in str(caught.value)
        assert "rap" in str(caught.value)
    both = create.format("auto", f"{five}; SELECT COUNT(*) FROM t WHERE {wide}")
    assert "rap" in str(unspent.execute("EXPLAIN " + both).fetchall())


def test_a_script_is_refused_before_any_of_it_runs(unspent: Connection) -> None:
    five = f"SELECT COUNT(*) FROM t WHERE {FIVE} >= 5"
    create = "CREATE SYNTHETIC TABLE s FROM t FOR (SELECT q0, COUNT(*) FROM t GROUP BY q0)"
    for script in (f"SELECT COUNT(*) FROM t; {five}", f"SET epsilon = 1; {create}; {five}"):
        unspent.set("epsilon", "1")
        with pytest.raises(dpsql.ProgrammingError) as caught:
            unspent.executescript(script)
        assert caught.value.code == "E_PREDICATE"
