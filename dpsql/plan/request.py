"""Stages 4 to 6: compiled statements and a budget -> a plan over all tables they mention."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, cast

from dpsql.errors import DataError
from dpsql.plan.cache import cached_choice
from dpsql.plan.cells import Resolution, cells_of
from dpsql.plan.coarsen import Coarsening, coarsen
from dpsql.plan.convention import unit_error
from dpsql.plan.kinds import AnyBlock, AnyStrategy
from dpsql.plan.memory import check_memory, forecast_memory
from dpsql.plan.plan import Part, Plan, split_amount
from dpsql.plan.strategy import Noise
from dpsql.plan.workload import Product, Workload
from dpsql.privacy.accounting import rho_for

if TYPE_CHECKING:
    from dpsql.sql.products import Compiled

NOISES = ("auto", "laplace", "gaussian")

Place = tuple[int, int]


@dataclass(frozen=True)
class Request:
    """Statements to answer together, with one (epsilon, delta).

    ``noise`` is laplace, gaussian, or auto: the least expected error, Laplace when delta is 0.
    ``mechanism`` names the family of strategies to choose from; ``effort`` scales the search.
    A place is a pair (statement, aggregate).
    Raises: DataError (E_DELTA) for Gaussian noise without a delta; ProgrammingError
    (E_TOO_LARGE) when the results alone would not fit into memory.
    """

    statements: tuple[Compiled, ...]
    epsilon: Fraction
    delta: Fraction
    noise: str
    mechanism: str = "auto"
    effort: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        if self.noise == "gaussian" and self.delta == 0:
            raise DataError(
                "E_DELTA", "Gaussian noise needs a delta above 0", hint="SET delta = 1e-9"
            )
        rows, fields = self.size
        check_memory(forecast_memory(rows, fields), rows)

    @cached_property
    def size(self) -> tuple[int, int]:
        """The result rows, and the numbers in them with their errors."""
        sizes = [(item.rows, len(item.query.shell.outputs)) for item in self.statements]
        return sum(rows for rows, _ in sizes), sum(2 * rows * count for rows, count in sizes)

    @cached_property
    def places(self) -> dict[str, list[Place]]:
        """Per table that has to be measured, the aggregates to answer from it."""
        found: dict[str, list[Place]] = {}
        for i, item in enumerate(self.statements):
            if not item.is_static:
                places = [(i, j) for j, product in enumerate(item.products) if product is not None]
                found.setdefault(item.query.table, []).extend(places)
        return found

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that have to be measured, in the order they are mentioned."""
        return tuple(self.places)

    @property
    def noises(self) -> tuple[Noise, ...]:
        """The noise laws to choose from."""
        if self.noise == "auto":
            return ("laplace",) if self.delta == 0 else ("laplace", "gaussian")
        return (cast("Noise", self.noise),)

    @cached_property
    def workloads(self) -> dict[str, Workload]:
        """Per table, the union of all products over it."""
        found = {}
        for table, places in self.places.items():
            columns = self.statements[places[0][0]].table.columns
            domain = {name: column.size for name, column in columns.items() if column.size}
            products = (self.statements[i].products[j] for i, j in places)
            found[table] = Workload(domain, [p for p in products if p is not None])
        return found

    @cached_property
    def coarse(self) -> dict[str, Coarsening]:
        """Per table, the same workload on the fewest cells."""
        return {table: coarsen(workload) for table, workload in self.workloads.items()}

    def coarse_products(self) -> dict[Place, Product]:
        """The coarse product of every aggregate that has to be measured."""
        found: dict[Place, Product] = {}
        for table, places in self.places.items():
            found.update(zip(places, self.coarse[table].workload.products, strict=True))
        return found

    def table_of(self, place: Place) -> str:
        """The table an aggregate is about."""
        return self.statements[place[0]].query.table

    def units(self, table: str) -> int:
        """The rows that one privacy unit can contribute to a table."""
        return self.statements[self.places[table][0][0]].table.unit.max_rows

    def fingerprint(self) -> str:
        """A digest of what is asked and on what terms, whatever the strategy will be."""
        terms = [str(self.epsilon), str(self.delta), self.noise, self.mechanism]
        asked = [(table, workload.fingerprint()) for table, workload in self.workloads.items()]
        return hashlib.sha256(repr((terms, asked)).encode()).hexdigest()


def make_plan(request: Request) -> Plan:
    """Select the strategies with the least expected error for the whole request.

    Raises: ProgrammingError (E_TOO_LARGE).
    """
    plans = [_plan_with(request, noise) for noise in request.noises]
    best = plans[0]
    if len(plans) > 1:
        best = min(plans, key=lambda plan: expected_error(request, plan))
    rows, fields = request.size
    check_memory(forecast_memory(rows, fields, (part.strategy for part in best.parts)), rows)
    return best


def _plan_with(request: Request, noise: Noise) -> Plan:
    rho = rho_for(request.epsilon, request.delta) if noise == "gaussian" else None
    found = {
        table: cached_choice(item.workload, noise, request.mechanism, float(request.effort))
        for table, item in request.coarse.items()
    }
    errors = [
        unit_error(chosen.strategy, request.coarse[table].workload) * request.units(table) ** 2
        for table, chosen in found.items()
    ]
    amounts = split_amount(request.epsilon if rho is None else rho, errors, noise)
    parts = tuple(
        Part(
            table,
            chosen.strategy,
            _used(request.coarse[table], chosen.strategy),
            amount,
            request.units(table),
            chosen.lower,
        )
        for (table, chosen), amount in zip(found.items(), amounts, strict=True)
    )
    return Plan(parts, noise, request.epsilon, request.delta, rho)


def _used(coarse: Coarsening, strategy: AnyStrategy) -> Mapping[str, Resolution]:
    blocks: Sequence[AnyBlock] = strategy.blocks
    used = {name for block in blocks for name in block.attributes}
    names = [name for name in coarse.workload.attributes if name in used]
    return {name: cells_of(name, coarse.classes[name]) for name in names}


def expected_error(request: Request, plan: Plan) -> float:
    """The total expected squared error of all answers of a request."""
    return sum(
        float(variance.sum())
        for part in plan.parts
        for variance in part.forecast.variances(request.coarse[part.table].workload.products)
    )
