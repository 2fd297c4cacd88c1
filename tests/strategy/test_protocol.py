"""The protocol of strategies: nobody tells kinds apart, and a new kind is one file."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql.algebra.integer_rows import KronRows, OrbitRows
from dpsql.algebra.operator import Integers
from dpsql.answer.codec import Release, decode, encode
from dpsql.errors import InternalError
from dpsql.plan.memory import ResultSize, forecast_memory
from dpsql.plan.plan import Part, Plan
from dpsql.privacy.doors.exact_products import checked
from dpsql.privacy.doors.measure import check_cost, measure
from dpsql.strategy.base import Block, Estimate, Forecast, Strategy
from dpsql.strategy.noise_law import Noise
from dpsql.strategy.registry import OWN, decode_strategy
from dpsql.workload.cells import cells_of
from dpsql.workload.workload import Workload
from tests.audit.door import Door
from tests.strategy.running_sums import RunningBlock, RunningSums, running_sums
from tests.support.seam import zero_noise
from tests.support.symmetric import strategy_of

ROOT = Path(__file__).parent.parent.parent / "dpsql"
SIZE = 6
ASKED = Workload({"a": SIZE}, [{"a": "prefix"}, ({"a": "identity"}, 2.0), {}])
NOISES: tuple[Noise, ...] = ("laplace", "gaussian")


def kinds() -> set[str]:
    """Return the names of all classes of strategies, blocks, forecasts and estimates."""
    for name in OWN:
        import_module(f"dpsql.strategy.{name}")
    found: list[type] = [Strategy, Block, Forecast, Estimate]
    for each in found:
        found += each.__subclasses__()
    return {each.__name__ for each in found}


def told_apart(tree: ast.Module) -> set[str]:
    """Return the names of classes that objects are compared with."""
    found: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "cast"):
            found += node.args
        elif isinstance(node, ast.MatchClass):
            found.append(node.cls)
        elif isinstance(node, ast.Compare) and "type(" in ast.unparse(node):
            found.append(node)
    inside = [each for node in found for each in ast.walk(node)]
    names = {getattr(each, "id", getattr(each, "attr", "")) for each in inside}
    return names | {str(each.value) for each in inside if isinstance(each, ast.Constant)}


def test_nobody_outside_tells_kinds_of_strategies_apart() -> None:
    names, found = kinds(), {}
    assert {"ProductStrategy", "OrbitBlock", "QueriesForecast", "SymmetricEstimate"} <= names
    for path in ROOT.rglob("*.py"):
        text = path.read_text()
        if path.parent.name != "strategy" and any(name in text for name in names):
            known = names & told_apart(ast.parse(text))
            if known:
                found[str(path)] = known
    assert found == {}
    planted = "match x:\n    case OrbitBlock(): pass\nassert isinstance(y, a.Strategy | Block)"
    planted += "\nassert type(z) is ProductStrategy"
    assert {"OrbitBlock", "Strategy", "Block", "ProductStrategy"} <= told_apart(ast.parse(planted))


def plan_of(strategy: Strategy, rows: int = 2) -> Plan:
    resolutions = {name: cells_of(name, np.arange(n)) for name, n in strategy.domain.items()}
    part = Part("t", strategy, resolutions, Fraction(1, 2), rows)
    rho = Fraction(1, 2) if strategy.noise == "gaussian" else None
    epsilon = Fraction(1, 2) if rho is None else Fraction(1)
    return Plan((part,), strategy.noise, epsilon, Fraction(1, 10**9), rho)


@pytest.mark.parametrize("noise", NOISES)
def test_a_new_kind_is_measured_forecast_solved_and_stored(noise: Noise) -> None:
    strategy = running_sums("a", SIZE, 2, noise)
    plan = plan_of(strategy)
    (part,) = plan.parts
    counts = np.random.default_rng(4).integers(0, 1000, SIZE)
    door = Door(plan, counts)
    ((values,),) = (each.values for each in measure(plan, door.receipt(), door))
    A = np.eye(SIZE) + np.eye(SIZE, k=-1)
    spread = 60 * math.sqrt(strategy.noise_variances(part.scales)[0])
    assert np.abs(values - A @ counts).max() < spread
    with zero_noise():
        (exact,) = measure(plan, door.receipt(), door)
    assert exact.values[0].tolist() == (A @ counts).astype(int).tolist()

    estimate, forecast = part.estimate([values]), part.forecast
    inverse = np.linalg.inv(A)
    for product in ASKED.products:
        Q = forecast.rows(product)  # type: ignore[attr-defined]
        assert estimate.answer(product) == pytest.approx(Q @ np.linalg.lstsq(A, values)[0])
        variances = forecast.noise[0] * np.square(Q @ inverse).sum(axis=1)
        assert forecast.variance(product) == pytest.approx(variances)
        assert forecast.total(product) == pytest.approx(variances.sum())
    unit = 4.0 if noise == "laplace" else 2.0
    W = np.concatenate([p.weight * forecast.rows(p) for p in ASKED.products])  # type: ignore[attr-defined]
    assert strategy.unit_error(ASKED) == pytest.approx(unit * np.square(W @ inverse).sum())

    release = Release(plan, ((values,),), "ledger", 1, "head")
    again = decode(encode(release))
    assert isinstance(again.plan.parts[0].strategy, RunningSums)
    assert again.plan.fingerprint == plan.fingerprint
    assert forecast_memory(ResultSize(1, 1), [strategy]).measured == 16 * SIZE


class Crooked(KronRows):
    """Rows that would multiply counts in a way of their own."""


@dataclass(frozen=True, slots=True)
class CrookedBlock(RunningBlock):
    """A block whose rows are not what the membrane knows."""

    rows_given: Any = None

    @property
    def integer_rows(self) -> Any:
        """Return whatever was given."""
        return self.rows_given


class Loud(np.ndarray[Any, Any]):
    """An array that could do anything when it is multiplied."""


def loud(rows: NDArray[Any]) -> KronRows:
    return KronRows((rows.view(Loud),), (SIZE,))


CROOKED: list[Any] = [
    Crooked((np.eye(SIZE, dtype=np.int64),), (SIZE,)),
    KronRows((np.eye(SIZE),), (SIZE,)),  # type: ignore[arg-type]
    KronRows((np.eye(SIZE - 1, dtype=np.int64),), (SIZE,)),
    loud(np.eye(SIZE, dtype=np.int64)),
    OrbitRows((), (None,)),  # type: ignore[arg-type]
    OrbitRows((None,), ()),  # type: ignore[arg-type]
    np.eye(SIZE, dtype=np.int64),
    None,
]


@pytest.mark.parametrize("rows", CROOKED, ids=lambda rows: type(rows).__name__)
def test_the_membrane_takes_plain_integers_alone(rows: Any) -> None:
    strategy = running_sums("a", SIZE, 1, "laplace")
    honest = plan_of(strategy)
    block = CrookedBlock(("a",), SIZE, 1, Fraction(1), rows)
    part = replace(honest.parts[0], strategy=replace(strategy, blocks=(block,)))
    plan = replace(honest, parts=(part,))
    door = Door(honest, np.arange(SIZE))
    with pytest.raises(InternalError):
        checked(rows)
    with pytest.raises(InternalError):
        check_cost(plan, door.receipt())


def test_a_kind_that_understates_its_sensitivity_is_refused() -> None:
    class Modest(RunningSums):
        """One that pays for one row of two."""

        def sensitivity(self, block: RunningBlock) -> int:
            """Return too little."""
            return 1

    plan = plan_of(Modest({"a": SIZE}, (RunningBlock(("a",), SIZE, 2),), "laplace"))
    door = Door(plan, np.arange(SIZE))
    with pytest.raises(InternalError, match="costs more than was paid"):
        measure(plan, door.receipt(), door)


def test_rows_on_orbits_are_measured_under_the_squared_norm_alone() -> None:
    strategy = strategy_of("mixed")
    object.__setattr__(strategy, "noise", "laplace")
    plan = plan_of(strategy)
    door = Door(plan, np.zeros((2, 4, 6), dtype=np.int64))
    with pytest.raises(InternalError, match="under the L2 norm"):
        check_cost(plan, door.receipt())


def test_a_plan_and_its_strategies_have_one_law() -> None:
    plan = replace(plan_of(running_sums("a", SIZE, 2, "gaussian")), noise="laplace", rho=None)
    door = Door(plan, np.arange(SIZE))
    with pytest.raises(InternalError, match="another law"):
        check_cost(plan, door.receipt())


def test_a_kind_that_is_not_known_is_no_strategy() -> None:
    arrays: dict[str, Integers] = {}
    with pytest.raises(KeyError):
        decode_strategy({"kind": "unheard of"}, arrays)
