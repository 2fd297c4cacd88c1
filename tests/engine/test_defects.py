"""Faults of dpsql itself: typed, told without what they say, and truthful about the charge."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from fractions import Fraction
from typing import Any
from unittest import mock

import pytest

import dpsql
from dpsql.dbapi.connection import Connection
from dpsql.engine.charges import Charges
from dpsql.engine.defects import told
from dpsql.errors import BudgetExceeded, InternalError, ProgrammingError, Span
from dpsql.privacy.budget.accounting import laplace_cost
from dpsql.sql.compiled import Compiled
from dpsql.sql.compose import compile_statement
from dpsql.sql.text.parse import Statement

COUNT = "SELECT COUNT(*) FROM adult WHERE age > 30"
OTHER = "SELECT sex, COUNT(*) FROM adult GROUP BY sex"
SCRIPT = f"{COUNT};\n  {OTHER}"
SECRET = "secret 12345"
BEFORE = (
    *("dpsql.engine.planner.parse", "dpsql.engine.planner.compile_statement"),
    *("dpsql.engine.planner.form_request", "dpsql.engine.planner.make_plan"),
)
AFTER = ("dpsql.plan.plan.Part.estimate", "dpsql.engine.matrix.assemble_results")
FAULTS = (KeyError, RecursionError, AssertionError, OSError)


def planted(target: str, fault: BaseException) -> Any:
    """Make a function of dpsql fail."""
    return mock.patch(target, side_effect=fault)


def caught(action: Callable[[], object]) -> InternalError:
    with pytest.raises(InternalError) as found:
        action()
    assert SECRET not in str(found.value)
    assert found.value.__context__ is None
    return found.value


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("target", BEFORE)
def test_a_fault_before_the_charge_costs_nothing(
    adult: Connection, target: str, kind: type[Exception]
) -> None:
    fault = kind(*((5, SECRET) if kind is OSError else (SECRET,)))
    with planted(target, fault):
        error = caught(lambda: adult.execute(COUNT))
    assert error.code == "E_UNEXPECTED"
    assert error.message.startswith(f"dpsql failed unexpectedly: {type(fault).__name__} in ")
    assert error.message.endswith("; nothing was charged")
    assert error.__cause__ is fault
    assert error.span is not None
    assert (error.span.text, error.span.start, error.span.end) == (COUNT, 0, len(COUNT))
    assert adult.budget.entries == 0
    assert adult.execute(COUNT).fetchall()


@pytest.mark.parametrize("target", BEFORE[2:])
def test_planning_that_runs_out_of_memory_is_too_large(adult: Connection, target: str) -> None:
    with planted(target, MemoryError(SECRET)), pytest.raises(ProgrammingError) as found:
        adult.execute(COUNT)
    assert found.value.code == "E_TOO_LARGE"
    assert "more memory than there is; nothing was charged" in str(found.value)
    assert SECRET not in str(found.value)
    assert adult.budget.entries == 0


@pytest.mark.parametrize("target", AFTER)
def test_a_fault_after_the_charge_says_that_it_stands(adult: Connection, target: str) -> None:
    fault = KeyError(SECRET)
    with planted(target, fault):
        error = caught(lambda: adult.execute(COUNT))
        again = caught(lambda: adult.execute(COUNT))
    assert (error.code, error.__cause__) == ("E_UNEXPECTED", fault)
    assert error.message.endswith("; the charge stands")
    assert again.message.endswith("; nothing was charged"), "the release was kept"
    assert adult.budget.entries == 1
    kept = adult.execute(COUNT).result
    assert kept.cost is not None
    assert kept.cost.free


def test_a_fault_in_a_script_is_at_its_statement(adult: Connection) -> None:
    def fail_second(statement: Statement, *rest: Any) -> Compiled:
        if statement.fragment.body == OTHER:
            raise LookupError(SECRET)
        return compile_statement(statement, *rest)

    with mock.patch("dpsql.engine.planner.compile_statement", fail_second):
        for action in (adult.executescript, adult.explain):
            error = caught(lambda action=action: action(SCRIPT))  # type: ignore[misc]
            assert error.span is not None
            assert error.span.text[error.span.start : error.span.end] == OTHER
            assert error.span.position() == (2, 3)
            assert "^" in str(error)
    assert adult.budget.entries == 0


def test_a_fault_about_a_whole_script_is_at_the_script(adult: Connection) -> None:
    with planted("dpsql.engine.matrix.assemble_results", ZeroDivisionError(SECRET)):
        error = caught(lambda: adult.executescript(f"\n{SCRIPT}"))
    assert error.message.endswith("; the charge stands")
    assert error.span is not None
    assert (error.span.start, error.span.end) == (1, 1 + len(SCRIPT))


@pytest.mark.parametrize(
    ("target", "entries", "outcome"),
    [
        ("dpsql.privacy.vault.vault.TableVault.load", 0, "nothing was charged"),
        ("dpsql.privacy.budget.ledger.debit_entry", 0, "a charge already made stays"),
        ("dpsql.privacy.doors.measure.check_cost", 1, "the charge stands"),
    ],
)
def test_nothing_of_a_fault_inside_the_membrane_is_told(
    adult: Connection, target: str, entries: int, outcome: str
) -> None:
    fault = MemoryError if entries else KeyError
    with planted(target, fault(SECRET)):
        error = caught(lambda: adult.execute(COUNT))
    assert error.code == "E_INTERNAL"
    assert error.message == f"the request failed, details are withheld; {outcome}"
    assert error.__cause__ is None
    assert adult.budget.entries == entries


def test_what_came_from_inside_the_membrane_is_not_told_either() -> None:
    """A fault raised while one of the membrane was handled would show both."""

    def work() -> None:
        try:
            laplace_cost(None, Fraction(1))  # type: ignore[arg-type]
        except AttributeError:
            raise KeyError(SECRET) from None

    error = caught(lambda: told(work, Charges(), lambda: None))
    assert (error.code, error.__cause__) == ("E_INTERNAL", None)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("target", [BEFORE[3], AFTER[1]])
def test_interrupts_and_exits_stay_what_they_are(
    adult: Connection, target: str, kind: type[BaseException]
) -> None:
    stop = kind(3)
    with planted(target, stop), pytest.raises(kind) as found:
        adult.execute(COUNT)
    if isinstance(found.value, dpsql.Interrupted):
        charged = Fraction(target == AFTER[1])
        assert found.value.charged == charged
        assert not found.value.lost
        assert found.value.__context__ is None
    else:
        assert found.value is stop


def test_typed_errors_are_left_alone(adult: Connection) -> None:
    with pytest.raises(dpsql.ProgrammingError) as found:
        adult.execute("SELECT COUNT(*) FROM nowhere")
    assert found.value.code == "E_UNKNOWN_TABLE"
    with pytest.raises(TypeError):
        adult.execute(COUNT, colour="red")


@pytest.mark.parametrize(
    "error",
    [
        dpsql.ProgrammingError("E_PARSE", "wrong", hint="right", span=Span("SELECT", 0, 6)),
        BudgetExceeded(Fraction(1), Fraction(1, 2), whose=("analyst:ana",)),
    ],
)
def test_errors_come_back_from_other_processes_as_they_are(error: dpsql.Error) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), vars(again)) == (str(error), vars(error))
