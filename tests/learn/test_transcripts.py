"""What is kept of a synthetic table: every look, its answers and its cost; never a true answer."""

from __future__ import annotations

import hashlib
import io
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsql
from dpsql.answer.codec import zipped
from dpsql.answer.synthetic_tables import Synthetic
from dpsql.dbapi.connection import Connection
from dpsql.learn.rap import run_rap
from dpsql.privacy.budget.accounting import rho_for
from tests.support.people import people

pytestmark = pytest.mark.slow

WORKLOAD = (
    "FOR (SELECT sex, age, COUNT(*) FROM people GROUP BY sex, age;"
    " SELECT ward, COUNT(*) FROM people GROUP BY ward;"
    " SELECT ward, pay, COUNT(*) FROM people GROUP BY ward, pay)"
)
DELTA = ", noise = 'gaussian', delta = 1e-8"


@pytest.fixture(autouse=True)
def _few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_rap.__kwdefaults__ is not None
    monkeypatch.setitem(run_rap.__kwdefaults__, "steps", 50)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Connection]:
    with dpsql.connect(people(tmp_path / "w")) as connection:
        yield connection


def make(connection: Connection, more: str, workload: str = WORKLOAD) -> Synthetic:
    connection.execute(
        f"CREATE SYNTHETIC TABLE s FROM people OPTIONS (epsilon = 1, {more}) {workload}"
    )
    return connection.synthetic("S")


def kinds(made: Synthetic) -> list[tuple[int, int]]:
    """Of every look, how many were chosen and how many were measured."""
    return [(look.chosen, len(look.measured)) for look in made.looks]


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ("model = 'mwem', rounds = 2", [(0, 1)] + 2 * [(1, 0), (0, 1)]),
        ("model = 'mwem', rounds = 500", [(0, 1)] + 2 * [(1, 0), (0, 1)] + [(0, 1)]),
        ("model = 'rap', rounds = 3, per_round = 4", [(0, 1)] + 3 * [(4, 0), (0, 4)]),
        ("model = 'rap', rounds = 9, per_round = 20", [(0, 1), (20, 0), (0, 20), (0, 16)]),
        ("model = 'rap', rounds = 1", [(0, 1), (0, 3)]),
        ("model = 'pgm', rounds = 2", [(0, 4)] + 2 * [(1, 0), (0, 1)]),
        ("model = 'mixture', rounds = 9999", [(0, 4)] + 6 * [(1, 0), (0, 1)]),
        ("metric = 'max', model = 'marginals', rounds = 1", [(0, 4), (1, 0), (0, 1)]),
    ],
)
@pytest.mark.parametrize("more_noise", ["", DELTA])
def test_a_run_takes_the_declared_rounds(
    world: Connection, more: str, wanted: list[tuple[int, int]], more_noise: str
) -> None:
    assert kinds(make(world, more + more_noise)) == wanted


@pytest.mark.parametrize("kind", ["doubling", "annealing"])
def test_words_for_rounds(world: Connection, kind: str) -> None:
    looks = make(world, f"model = 'mwem', rounds = {kind}").looks
    amounts = [look.amount for look in looks if look.chosen]
    assert amounts[-2] > amounts[0]
    assert sum(look.amount for look in looks) == 1


@pytest.mark.parametrize("model", ["auto", "mwem", "mixture", "pgm", "rap"])
@pytest.mark.parametrize("noise", ["", DELTA])
def test_costs_add_up_and_everything_is_read_again(
    world: Connection, model: str, noise: str
) -> None:
    made = make(world, f"model = '{model}'{noise}")
    amount = Fraction(1) if not noise else rho_for(Fraction(1), Fraction(1, 10**8))
    assert sum(look.amount for look in made.looks) == amount
    told = world.execute("DESCRIBE SYNTHETIC TABLE s").fetchall()
    assert ("neighbours", "one row more or less") in told
    assert [word for word, _ in told if word in ("measured", "chosen")] == [
        "chosen" if look.chosen else "measured" for look in made.looks
    ]
    catalog = world.catalog.path
    world.close()
    with dpsql.connect(catalog) as again:
        assert again.execute("DESC SYNTHETIC TABLE S").fetchall() == told
        found = again.synthetic("s")
        assert kinds(found) == kinds(made)
        for new, old in zip(found.looks, made.looks, strict=True):
            assert new.amount == old.amount
            for one, other in zip(new.measured, old.measured, strict=True):
                assert np.array_equal(one.values, other.values)
                assert (one.stddev, one.noise) == (other.stddev, other.noise)


def test_rounds_are_forecast_and_kept(world: Connection) -> None:
    sql = "CREATE SYNTHETIC TABLE s FROM people OPTIONS (epsilon = 1, model = rap, per_round = 2) "
    lines = [row[0] for row in world.execute(f"EXPLAIN {sql}{WORKLOAD}").fetchall()]
    assert "per_round   2" in lines
    made = make(world, "model = rap, per_round = 2")
    assert [f"{name:<12}{text}" for name, text in made.forecast] == lines[:-1]


def bodies(path: Path, change: Any) -> None:
    """Rewrite the facts of the one stored table."""
    with closing(sqlite3.connect(path)) as db, db:
        ((name, body),) = db.execute("SELECT name, body FROM synthetic").fetchall()
        with np.load(io.BytesIO(body)) as stored:
            arrays = {key: stored[key] for key in stored.files}
        facts = json.loads(arrays["facts"].tobytes())
        change(facts)
        arrays["facts"] = np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8)
        new = zipped(arrays)
        digest = hashlib.sha256(name.encode() + new).hexdigest()
        db.execute("UPDATE synthetic SET body = ?, digest = ?", (new, digest))


def test_tables_of_earlier_versions_are_read_and_later_ones_refused(world: Connection) -> None:
    make(world, "model = 'mwem'")
    catalog = world.catalog.path
    world.close()

    def first(facts: dict[str, Any]) -> None:
        for name in ("version", "looks", "neighbours", "forecast"):
            del facts[name]

    bodies(catalog.with_suffix(".synthetic"), first)
    with dpsql.connect(catalog) as again:
        assert again.synthetic("s").looks == ()
        told = dict(again.execute("DESCRIBE SYNTHETIC TABLE s").fetchall())
        assert "model = 'mwem'" in told.values()
        assert "stddev" in told["measured"]
    bodies(catalog.with_suffix(".synthetic"), lambda facts: facts.update(version=99))
    with pytest.raises(dpsql.OperationalError) as caught:
        dpsql.connect(catalog)
    assert caught.value.code == "E_LEDGER_VERSION"
    assert caught.value.hint


def test_nothing_but_what_was_released_is_kept(world: Connection) -> None:
    make(world, "model = 'rap', rounds = 2, per_round = 3")
    with closing(sqlite3.connect(world.catalog.path.with_suffix(".synthetic"))) as db:
        ((body,),) = db.execute("SELECT body FROM synthetic").fetchall()
    with np.load(io.BytesIO(body)) as stored:
        facts = json.loads(stored["facts"].tobytes())
        assert stored[facts["looks"]["values"]].shape == (1 + 2 * 3,)
    assert set(facts) == {
        *("name", "table", "model", "epsilon", "delta", "noise", "rule", "transcript", "receipt"),
        *("interrupted", "version", "looks", "neighbours", "forecast"),
    }
    assert set(facts["looks"]) == {"looks", "queries", "operators", "stddevs", "values"}
    assert len(body) < 300_000


def test_a_script_describes_what_it_makes(world: Connection) -> None:
    sql = f"CREATE SYNTHETIC TABLE s FROM people OPTIONS (epsilon = 1) {WORKLOAD}"
    cursor = world.executescript(f"{sql}; DESCRIBE s; DESCRIBE SYNTHETIC TABLE s")
    assert cursor.nextset()
    assert [row[0] for row in cursor.fetchall()] == ["sex", "age", "ward", "pay"]
    assert cursor.nextset()
    assert dict(cursor.fetchall())["cost"] == "epsilon 1"
    for wrong in ("people", "nothing"):
        with pytest.raises(dpsql.ProgrammingError, match="no synthetic table"):
            world.execute(f"DESCRIBE SYNTHETIC TABLE {wrong}")
        with pytest.raises(dpsql.ProgrammingError, match="no synthetic table"):
            world.synthetic(wrong)
