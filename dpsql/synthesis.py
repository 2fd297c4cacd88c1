"""CREATE SYNTHETIC TABLE: from a workload and a budget to the task of one adaptive run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import cast

import numpy as np

from dpsql.adaptive.auto import Metric
from dpsql.adaptive.handle import Candidate, Noise
from dpsql.adaptive.task import Learned, Task, make_task
from dpsql.answer.modelled import candidate_of
from dpsql.answer.synthetics import Synthetic, check_name
from dpsql.catalog import Table
from dpsql.errors import DataError, NotSupportedError, ProgrammingError, decimal_text, printable
from dpsql.privacy.accounting import rho_for
from dpsql.privacy.run import Run
from dpsql.sql.compiled import Compiled
from dpsql.sql.synthetic import Creation
from dpsql.terms import Terms


@dataclass(frozen=True, slots=True)
class Synthesis:
    """One run that makes a synthetic table: the table, the task and its price."""

    name: str
    table: Table
    task: Task
    epsilon: Fraction
    delta: Fraction

    @property
    def run(self) -> Run:
        """What the membrane is paid for."""
        classes = {name: np.arange(size) for name, size in self.task.domain.items()}
        unit = self.table.unit.max_rows
        task = self.task
        key = self.table.name.casefold()
        return Run(key, classes, task.noise, task.amount, unit, task.settings())

    def synthetic(self, learned: Learned, receipt: tuple[str, int, str]) -> Synthetic:
        """The release that the run ended with."""
        return Synthetic(
            self.name,
            self.table.name.casefold(),
            learned.model,
            self.epsilon,
            self.delta,
            self.task.noise,
            self.task.choice.rule,
            learned.transcript(),
            receipt,
            learned.interrupted,
        )

    @property
    def rho(self) -> Fraction | None:
        """The zero-concentrated budget of a run with Gaussian noise."""
        return self.task.amount if self.task.noise == "gaussian" else None

    def lines(self, remaining: Fraction, assumed: bool) -> tuple[str, ...]:
        """The forecast as text: from public facts only."""
        cells = " x ".join(f"{name} {size}" for name, size in self.task.domain.items())
        cost = f"epsilon {decimal_text(self.epsilon)}" + (" (assumed)" if assumed else "")
        if self.task.noise == "gaussian":
            cost += f", delta {float(self.delta):g}"
        facts = self.task.choice.describe()
        lines = [
            f"workload    {len(self.task.candidates):,} tables of {self.table.name}",
            f"columns     {cells}",
            f"mechanism   {facts['mechanism']}"
            + (f", {facts['model']}" if "model" in facts else ""),
            f"rule        {facts['rule']}",
        ]
        for name, value in self.task.choice.inputs.items():
            lines.append(f"            {name.replace('_', ' ')} {value:.4g}")
        lines.append(
            f"cost        {cost}; at most {decimal_text(remaining)} can still be asked for"
        )
        if "warning" in facts:
            lines.append(f"warning     {facts['warning']}")
        return tuple(lines)


def plan_synthesis(
    creation: Creation, tables: Mapping[str, Table], workload: Sequence[Compiled], terms: Terms
) -> Synthesis:
    """Read the workload of a synthetic table and choose how to learn it.

    Raises: ProgrammingError (E_WORKLOAD, E_TOO_LARGE); NotSupportedError; DataError (E_EPSILON).
    """
    check_name(creation.name, tables)
    table = tables.get(creation.table.casefold())
    if table is None or table.public or table.synthetic:
        raise ProgrammingError(
            "E_UNKNOWN_TABLE",
            f"there is no private table {printable(creation.table)!r} in the catalog",
            hint=f"tables: {', '.join(t.name for t in tables.values())}",
        )
    options = dict(creation.options)
    model = options.pop("model", "auto").lower()
    metric = options.pop("metric", "mean").lower()
    for name, text in options.items():
        terms = terms.with_text(name, text)
    if terms.epsilon is None:
        raise DataError("E_EPSILON", "no epsilon is set", hint="OPTIONS (epsilon = 0.5)")
    candidates = tuple(c for item in workload for c in read_candidates(table, item))
    used = {a for c in candidates for product in c for a in product.factors}
    domain = {key: table.columns[key].size for key in table.columns if key in used}
    if not domain:
        raise ProgrammingError(
            "E_WORKLOAD",
            "the workload mentions no column",
            hint="FOR (SELECT a, b, COUNT(*) FROM t GROUP BY CUBE (a, b))",
        )
    gaussian = terms.noise == "gaussian" or (terms.noise == "auto" and terms.delta > 0)
    if gaussian and terms.delta == 0:
        raise DataError("E_DELTA", "Gaussian noise needs a delta above 0", hint="delta = 1e-9")
    noise: Noise = "gaussian" if gaussian else "laplace"
    amount = rho_for(terms.epsilon, terms.delta) if gaussian else terms.epsilon
    hint = None if table.row_count_hint is None else float(table.row_count_hint)
    task = make_task(
        domain, candidates, noise, amount, model=model, metric=cast("Metric", metric), hint=hint
    )
    return Synthesis(creation.name, table, task, terms.epsilon, terms.delta)


def read_candidates(table: Table, item: Compiled) -> list[Candidate]:
    """The queries of a statement as candidates over the declared cells of a table.

    Raises: ProgrammingError (E_WORKLOAD); NotSupportedError (E_AGGREGATE, E_EXPR_IN_AGG).
    """
    found: list[Candidate] = []
    for select, answer in item.answers():
        if select.query.table != table.name.casefold():
            raise ProgrammingError(
                "E_WORKLOAD",
                f"the workload asks about {select.table.name}, the table is {table.name}",
                hint=f"SELECT ... FROM {table.name}",
            )
        if answer.units:
            raise NotSupportedError(
                "E_AGGREGATE", "COUNT(DISTINCT ...) cannot be learned", hint="COUNT(*) can"
            )
        if answer.terms:
            products = [candidate_of(table, term)[0] for term in answer.terms]
            if len({product.rows for product in products}) == 1:
                found.append(tuple(products))
            else:
                found += [(product,) for product in products]
    return found
