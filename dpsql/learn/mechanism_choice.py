"""Choice of the mechanism that suits a workload, decided from public facts alone.

The schema, the workload, the budget and a public or released number of rows decide; no mechanism
is ever run to compare it with another. Every rule is a limit on the number of rows, so it can be
told before any number is known. The constants were calibrated on published data sets and are
declared in THRESHOLDS.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal, TypeAlias

from dpsql.algebra.blocks import Identity
from dpsql.learn.candidates import attributes_of, expected_noise, is_marginal, norm, rows, spans
from dpsql.learn.schedule import default_rounds
from dpsql.pgm.measurements import Query
from dpsql.pgm.predict import best_power, marginal_errors
from dpsql.records import dataclass, replace
from dpsql.strategy.noise_law import GAUSSIAN, LAPLACE, Noise, law
from dpsql.workload.term import Pattern

Mechanism: TypeAlias = Literal["matrix", "matrix+projection", "mwem", "marginals", "rap"]
Metric: TypeAlias = Literal["mean", "max"]
GraphicalOrMixture: TypeAlias = Literal["graphical", "mixture"]

THRESHOLDS: Mapping[str, float] = {
    "max_error_per_row": 0.06,
    "mean_error_per_cell_laplace": 0.8,
    "mean_error_per_cell_gaussian": 0.2,
    "range_error_per_row": 0.035,
    "explicit_cells": float(1 << 20),
    "graphical_share": 0.5,
    "graphical_cliques": 500.0,
}
"""Every constant of the rules: error over rows or cell size at which the adaptive side wins."""

COUNT_SHARE = Fraction(1, 50)
"""Part of the budget for the number of rows that a rule waits for."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts that the decision may depend on; ``total`` is a declared hint, or None.

    ``matrix_rmse`` is the expected error of the matrix mechanism's plan, in counts.
    ``admitted`` is how many candidates fit under the graphical model's cap.
    """

    domain: Mapping[str, int]
    candidates: Sequence[Query]
    noise: Noise
    budget: Fraction
    total: float | None
    metric: Metric = "mean"
    unbiased: bool = False
    matrix_rmse: float | None = None
    admitted: int | None = None


@dataclass(frozen=True, slots=True)
class MechanismChoice:
    """The mechanism, its model, the public numbers it was chosen by, and the rule in words.

    ``power`` weights marginals n_S^-power when the largest error counts. ``useless`` says that
    answering zero, or with the uniform table, is expected to be better than the matrix mechanism.
    """

    mechanism: Mechanism
    rule: str
    inputs: Mapping[str, float]
    model: Literal["", "graphical", "mixture", "factored", "relaxed"] = ""
    power: float = 0.0
    useless: bool = False

    def describe(self) -> dict[str, Any]:
        """Return plain facts for a forecast."""
        found: dict[str, Any] = {"mechanism": self.mechanism, "rule": self.rule, **self.inputs}
        if self.model:
            found["model"] = self.model
        if self.useless:
            found["warning"] = "budget too small to be useful"
        return found


@dataclass(frozen=True, slots=True)
class Fork:
    """Two choices, and the number of rows up to which the first is made; else the second.

    ``measure`` is what is compared with ``limit``: ``error`` over the number of rows, as are all
    ``errors`` by name; below ``needed`` rows the budget is too small.
    """

    few: MechanismChoice
    many: MechanismChoice
    measure: str
    error: float
    limit: float
    errors: Mapping[str, float]
    needed: float

    @property
    def rows(self) -> float:
        """Up to how many rows the first choice is made."""
        return self.error / self.limit

    @property
    def mechanism(self) -> str:
        """The names of the two mechanisms that are chosen between."""
        return f"{self.few.mechanism} or {self.many.mechanism}"

    @property
    def model(self) -> str:
        """The model of the first choice."""
        return self.few.model

    @property
    def power(self) -> float:
        """The exponent in the weights of tables, n_S^-power."""
        return self.few.power

    @property
    def inputs(self) -> Mapping[str, float]:
        """No numbers: they wait for the number of rows."""
        return {}

    @property
    def useless(self) -> bool:
        """Not known yet."""
        return False

    @property
    def rule(self) -> str:
        """Both choices in words."""
        return (
            f"up to {_many(self.rows)} rows: {self.few.rule}; above: {self.many.rule}; "
            f"rows are counted with {float(COUNT_SHARE):.0%} of the budget"
        )

    def at(self, total: float, source: str = "") -> MechanismChoice:
        """Return the choice for a number of rows; ``source`` says where that is from."""
        total = max(1.0, total)
        value = self.error / total
        made, sign = (self.many, "<=") if value <= self.limit else (self.few, ">")
        known = f"{_many(total)} rows ({source}), " if source else ""
        rule = f"{known}{self.measure} = {value:.3g} {sign} {self.limit:g}: {made.rule}"
        inputs = {name: error / total for name, error in self.errors.items()}
        return replace(made, rule=rule, inputs=inputs, useless=total < self.needed)

    def describe(self) -> dict[str, Any]:
        """Return plain facts for a forecast."""
        found: dict[str, Any] = {"mechanism": self.mechanism, "rule": self.rule}
        found |= {"rows": self.rows, "needed": self.needed}
        if self.model:
            found["model"] = self.model
        if self.needed > 1:
            found["warning"] = f"budget too small to be useful below {_many(self.needed)} rows"
        return found


def decide(facts: Facts) -> MechanismChoice | Fork:
    """Return the mechanism that the public facts favour, a fork while the rows are not known."""
    if facts.unbiased:
        return _choice(facts, "matrix", "unbiased answers or intervals are wanted")
    if all(near_marginal(c) for c in facts.candidates):
        return settled(fork_of_marginals(facts), facts.total)
    cells = math.prod(facts.domain[a] for a in _used(facts))
    if cells <= THRESHOLDS["explicit_cells"]:
        if facts.matrix_rmse is not None:
            return settled(_explicit(facts, facts.matrix_rmse, cells), facts.total)
        rule = f"{cells} cells fit an explicit table, no forecast of the matrix mechanism"
        return _choice(facts, "mwem", rule, model="factored")
    if all(rows(c) == 1 for c in facts.candidates):
        rule = f"predicates over {cells} cells: too many for an explicit table"
        return _choice(facts, "rap", rule, model="relaxed")
    return _choice(facts, "matrix", f"blocks of ranges over {cells} cells")


def fork_of_marginals(facts: Facts, model: GraphicalOrMixture | None = None) -> Fork:
    """Return from how many rows on it is better to measure all marginals than to select some.

    A named ``model`` is that of both.
    """
    cliques = list(dict.fromkeys(tuple(sorted(attributes_of(c))) for c in facts.candidates))
    cliques = [clique for clique in cliques if clique] or [()]
    power = best_power(facts.domain, cliques) if facts.metric == "max" else 0.0
    errors = marginal_errors(facts.domain, cliques, power)
    is_pure = law(facts.noise).is_pure
    rho = float(facts.budget**2 / 2 if is_pure else facts.budget)
    rmse = facts.matrix_rmse
    if rmse is None and is_pure:
        rmse = math.sqrt(2) * len(cliques) / float(facts.budget)  # all measured as they are
    scale = 1.0 if rmse is None else rmse / errors.rmse(rho)
    stddevs = [scale * math.sqrt(v) for v in errors.cell_variances(rho)]
    noise = sum(n * s for n, s in zip(errors.cells, stddevs, strict=True))
    mean = math.sqrt(2 / math.pi) * noise / len(cliques)
    largest = scale * errors.largest(rho)
    inputs = {"error_per_cell": mean, "max_error_per_row": largest}
    if facts.metric == "max":
        name, error, limit = "predicted max error / rows", largest, "max_error_per_row"
    else:
        name, error = "expected error / mean cell", mean
        limit = f"mean_error_per_cell_{(LAPLACE if is_pure else GAUSSIAN).name}"
    fitted = model or _model(facts, cliques)
    return Fork(
        MechanismChoice("marginals", "select marginals adaptively", {}, fitted, power),
        MechanismChoice(
            "matrix+projection", "measure all marginals and project", {}, model or "", power
        ),
        name,
        error,
        THRESHOLDS[limit],
        inputs,
        max(largest, _drowned(facts)),
    )


def _explicit(facts: Facts, rmse: float, cells: int) -> Fork:
    inputs = {"matrix_error_per_row": rmse}
    few = MechanismChoice("mwem", f"reweight a table of {cells} cells", {}, "factored")
    many = MechanismChoice("matrix", "the matrix mechanism is precise", {})
    limit = THRESHOLDS["range_error_per_row"]
    return Fork(few, many, "matrix error / rows", rmse, limit, inputs, _worthless(facts, rmse))


def settled(fork: Fork, total: float | None) -> MechanismChoice | Fork:
    """Return the choice where any number of rows makes the same, or the number is known."""
    if total is not None:
        return fork.at(total)
    any_number = f"any number of rows: {fork.many.rule}"
    return replace(fork.many, rule=any_number) if fork.rows <= 1 else fork


def _many(count: float) -> str:
    return f"{count:,.0f}" if count < 1e12 else f"{count:.3g}"


def _worthless(facts: Facts, rmse: float) -> float:
    """Return below how many rows zeros are better than the matrix mechanism, and one round all."""
    if len(facts.candidates) <= 1:
        return 0.0
    sizes = [facts.domain[a] for a in _used(facts)]

    def once(total: float) -> bool:
        made = default_rounds(facts.noise, facts.budget, total, sizes, len(facts.candidates))
        return made <= 1

    low, high = 0.0, rmse / _zero_error(facts, 1.0)
    if once(high):
        return high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if once(middle) else (low, middle)
    return low


def _drowned(facts: Facts) -> float:
    """Return the least noise that one marginal has with the whole budget, in rows."""
    return min(
        rows(c) * expected_noise(norm(c, facts.noise), facts.noise, facts.budget)
        for c in facts.candidates
    )


def _zero_error(facts: Facts, total: float) -> float:
    """Return the largest root mean squared error that answering zero can have, in counts."""
    squares = sum(rows(c) * max(abs(end) for end in spans(c)) ** 2 for c in facts.candidates)
    return total * math.sqrt(squares / sum(rows(c) for c in facts.candidates))


def _model(facts: Facts, cliques: Sequence[tuple[str, ...]]) -> GraphicalOrMixture:
    admitted = len(cliques) if facts.admitted is None else facts.admitted
    fits = admitted >= THRESHOLDS["graphical_share"] * len(cliques)
    return "graphical" if fits and len(cliques) <= THRESHOLDS["graphical_cliques"] else "mixture"


def near_marginal(candidate: Query) -> bool:
    """Say whether a candidate is a marginal, or one with ranges on some attribute."""
    if is_marginal(candidate) or isinstance(candidate, Pattern):
        return is_marginal(candidate)
    ops = [op for product in candidate for op in product.factors.values()]
    return len(candidate) == 1 and len(ops) > 1 and any(isinstance(op, Identity) for op in ops)


def _used(facts: Facts) -> set[str]:
    return {a for c in facts.candidates for a in attributes_of(c)}


def _choice(
    facts: Facts,
    mechanism: Mechanism,
    rule: str,
    model: Literal["", "graphical", "mixture", "factored", "relaxed"] = "",
) -> MechanismChoice:
    inputs = {} if facts.total is None else {"rows": facts.total}
    return MechanismChoice(mechanism, rule, inputs, model)
