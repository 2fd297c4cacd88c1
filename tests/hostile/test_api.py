"""Hostile use of the Python interface, and properties of one request."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import dpsql
from dpsql.dbapi.connection import Connection
from dpsql.dbapi.script import parse_script
from dpsql.plan.request import Request, make_plan
from dpsql.privacy.budget.accounting import laplace_cost
from dpsql.privacy.doors.measure import measure
from dpsql.privacy.noise.samplers import SAMPLERS
from tests.support.world import ROOT, catalog_text, ledger_state, refusal, watching

COUNT = "SELECT COUNT(*) FROM adult"
BY_SEX = "SELECT sex, COUNT(*) FROM adult GROUP BY sex"


def refused(connection: Connection, code: str, action: Callable[[], object]) -> dpsql.Error:
    """Refused by ``code``; nothing charged, no vault opened."""
    before = ledger_state(connection)
    with watching() as watch:
        error = refusal(action)
        assert error.code == code
        assert watch.opened == watch.loaded == 0
    assert ledger_state(connection) == before
    return error


@pytest.mark.parametrize("value", ["1", None, True, -1, float("nan"), 10**400, Decimal("1e400")])
def test_epsilon_is_a_number(connection: Connection, value: Any) -> None:
    """B106, B108."""
    refused(connection, "E_EPSILON", lambda: connection.execute(COUNT, epsilon=value))


def test_a_cost_is_required(world: Path) -> None:
    """B108: there is no default cost."""
    with dpsql.connect(world) as connection:
        refused(connection, "E_EPSILON", lambda: connection.execute(COUNT))


def test_the_same_question_is_free(connection: Connection) -> None:
    """B119."""
    first = connection.execute(BY_SEX).result
    before = ledger_state(connection)
    with watching() as watch:
        second = connection.execute(BY_SEX.lower().replace("'", "")).result
        assert not watch.loaded
        assert not watch.counted
    assert second.cost is not None
    assert second.cost.free
    assert second.rows == first.rows
    assert ledger_state(connection) == before


def test_one_unit_over_budget_is_refused(world: Path) -> None:
    """B121: a pure budget of 1, of which 0.4 remains."""
    world.write_text(catalog_text("1", "0"), encoding="utf-8")
    with dpsql.connect(world, epsilon=Fraction(3, 5)) as connection:
        connection.execute(COUNT)
        before = ledger_state(connection)
        over = Fraction(2, 5) + Fraction(1, 10**12)
        with watching() as watch, pytest.raises(dpsql.BudgetExceeded) as caught:
            connection.execute(BY_SEX, epsilon=over)
        assert watch.counted == []
        error = caught.value
        assert (error.requested, error.remaining) == (over, Fraction(2, 5))
        assert error.difference == Fraction(1, 10**12)
        assert ledger_state(connection) == before
        connection.execute(BY_SEX, epsilon=Fraction(2, 5))
        assert connection.budget.remaining_epsilon == 0


RACE = """
import sys, threading, dpsql
def ask(number):
    try:
        with dpsql.connect(sys.argv[1], epsilon=1) as connection:
            connection.execute(f"SELECT COUNT(*) FROM adult WHERE age > {number}")
        sys.stdout.write("granted\\n")
    except dpsql.BudgetExceeded:
        sys.stdout.write("refused\\n")
start = int(sys.argv[2])
threads = [threading.Thread(target=ask, args=(start + i,)) for i in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def test_one_of_many_gets_the_last_unit(world: Path) -> None:
    """B122, with fewer processes; the torture test of the ledger has more."""
    world.write_text(catalog_text("1", "0"), encoding="utf-8")
    dpsql.connect(world).close()
    command = [sys.executable, "-c", RACE, str(world)]
    processes = [
        subprocess.Popen(
            [*command, str(start)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        for start in (20, 30)
    ]  # fmt: skip
    lines = "".join(process.communicate(timeout=120)[0] for process in processes).split()
    assert sorted(lines) == ["granted"] + ["refused"] * 5


def test_a_failure_after_the_charge_has_one_text(connection: Connection) -> None:
    """B124: the debit stays, no text of the failure is told, and the release is kept."""

    def fail(*_: object) -> None:
        raise BufferError("secret 12345")

    with mock.patch("dpsql.engine.matrix.assemble_results", fail):
        errors = [refusal(lambda: connection.execute(COUNT)) for _ in range(2)]
        errors.append(refusal(lambda: connection.execute("SELECT COUNT(*) FROM visits")))
    assert {error.code for error in errors} == {"E_UNEXPECTED"}
    assert errors[0].message == errors[2].message
    assert errors[2].message.endswith("; the charge stands")
    assert errors[1].message.endswith("; nothing was charged")
    assert all("12345" not in str(e) and e.__context__ is None for e in errors)
    assert connection.budget.entries == 2
    again = connection.execute(COUNT).result
    assert again.cost is not None
    assert again.cost.free


def test_a_failure_while_measuring_keeps_the_debit(connection: Connection) -> None:
    def fail(*_: object) -> None:
        raise ValueError("secret 12345")

    with mock.patch.dict(SAMPLERS, {"laplace": fail}):
        error = refusal(lambda: connection.execute(COUNT))
    assert error.code == "E_INTERNAL"
    assert "12345" not in str(error)
    assert [entry.state for entry in connection.entries()][-1] == "failed"
    assert connection.budget.entries == 1


@pytest.mark.parametrize("name", ["seed", "rng", "random_state", "generator"])
def test_there_is_no_seed(connection: Connection, world: Path, name: str) -> None:
    """B125."""
    for value in (42, np.random.default_rng(42)):
        options: dict[str, Any] = {name: value}
        refused(connection, "E_SEED", partial(connection.execute, COUNT, **options))
        assert refusal(partial(dpsql.connect, world, **options)).code == "E_SEED"
    generator: Any = np.random.default_rng(42)
    assert refusal(lambda: dpsql.connect(world, noise=generator)).code == "E_SETTING"
    assert refusal(lambda: dpsql.connect(world, epsilon=generator)).code == "E_EPSILON"


@pytest.mark.parametrize("name", ["include_true", "debug", "true", "exact", "raw"])
def test_there_are_no_true_answers(connection: Connection, world: Path, name: str) -> None:
    """B128."""
    options: dict[str, Any] = {name: True}
    refused(connection, "E_DEBUG", lambda: connection.execute(COUNT, **options))
    assert refusal(lambda: dpsql.connect(world, **options)).code == "E_DEBUG"


def test_no_environment_variable_or_setting_changes_noise(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DPSQL_SEED", "DPSQL_DEBUG", "PYTHONHASHSEED", "SEED"):
        monkeypatch.setenv(name, "0")
    connection.execute("SET fresh = on")
    rows = {connection.execute(COUNT, epsilon=0.01).result.rows for _ in range(3)}
    assert len(rows) > 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_is_refused(connection: Connection) -> None:
    """B127."""
    connection.execute(COUNT)
    before = ledger_state(connection)
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        try:
            connection.execute(BY_SEX)
            told = b"answered"
        except dpsql.Error as error:
            told = error.code.encode()
        except BaseException as error:
            told = repr(error).encode()
        os.write(write, told)
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        assert pipe.read() == b"E_FORK"
    assert ledger_state(connection) == before


def plan_of(connection: Connection, sql: str) -> Any:
    """The plan the engine would measure for a statement."""
    compiled = connection.engine.compile(parse_script(sql))
    return make_plan(Request(compiled, Fraction(1), Fraction(0), "laplace")).plan


def test_a_plan_cannot_be_changed(connection: Connection) -> None:
    """B130: between debit and measurement nothing can be swapped."""
    plan = plan_of(connection, BY_SEX)
    for target in (plan, plan.parts[0], plan.parts[0].strategy, plan.parts[0].strategy.blocks[0]):
        for field in dataclasses.fields(target):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(target, field.name, None)


def test_a_receipt_pays_once_and_for_one_plan(connection: Connection) -> None:
    """B185, B130: through the membrane's own door."""
    engine = connection.engine
    cheap, dear = plan_of(connection, COUNT), plan_of(connection, BY_SEX)
    version = engine.vaults.versions(["adult"])
    cost = laplace_cost(engine.ledger.policy, cheap.epsilon)
    receipt = engine.ledger.debit(cost, cheap.fingerprint, version)
    assert refusal(lambda: measure(dear, receipt, engine.vaults)).code == "E_RECEIPT"
    assert refusal(lambda: measure(cheap, receipt, engine.vaults)).code == "E_RECEIPT"
    receipt = engine.ledger.debit(cost, cheap.fingerprint, "another version")
    assert refusal(lambda: measure(cheap, receipt, engine.vaults)).code == "E_RECEIPT"
    receipt = engine.ledger.debit(cost, cheap.fingerprint, version)
    measure(cheap, receipt, engine.vaults)
    assert refusal(lambda: measure(cheap, receipt, engine.vaults)).code == "E_RECEIPT"


def test_unknown_names_after_a_select_charge_nothing(connection: Connection) -> None:
    """P009."""
    for last in ("DESCRIBE nowhere", "EXPLAIN SELECT COUNT(*) FROM nowhere"):
        script = f"{COUNT}; {last}"
        refused(connection, "E_UNKNOWN_TABLE", partial(connection.executescript, script))


@pytest.mark.parametrize(
    "value", [10**5000, -(10**5000), Decimal("1E+999999999"), Decimal("-1e-999999999"),
              float("nan"), float("inf"), Decimal("NaN"), Decimal("-Infinity")],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_numbers_that_cannot_be_parameters(connection: Connection, value: Any) -> None:
    """P010."""
    sql = COUNT + " WHERE age > ?"
    refused(connection, "E_LITERAL", lambda: connection.execute(sql, (value,)))


@pytest.mark.parametrize("value", [5, None, "ab", b"ab", {"a": 1}])
def test_what_cannot_be_parameters(connection: Connection, value: Any) -> None:
    """P011."""
    sql = COUNT + " WHERE age > ? AND age < ?"
    refused(connection, "E_PARSE", lambda: connection.execute(sql, value))


@pytest.mark.parametrize(
    "value", [b"x", object(), [b"x"], {"a": 1}, np.array([1, 2]), 1j, lambda: 0, float, ()]
)
def test_values_without_a_literal(connection: Connection, value: Any) -> None:
    refused(connection, "E_PARSE", lambda: connection.execute(COUNT + " WHERE age > ?", (value,)))


@pytest.mark.parametrize(
    "value", [np.float64(30.5), np.float32(30.5), np.int64(30), np.array(30), Decimal("30.5"), -1]
)
def test_numbers_that_are_parameters(connection: Connection, value: Any) -> None:
    result = connection.execute(COUNT + " WHERE age > ?", (value,)).result
    assert len(result.rows) == 1


@pytest.mark.parametrize("value", [123, b"x", None, "a\0b", "~nobody-here/x", "\ud800", "", "/"])
def test_what_does_not_name_a_catalog(value: Any) -> None:
    """P016, for the catalog itself."""
    assert refusal(lambda: dpsql.connect(value)).code == "E_POLICY"
