"""Which mechanism suits a workload, decided from public facts alone.

The schema, the workload, the budget and a public or already released number of rows decide; no
mechanism is ever run to compare it with another. The constants were calibrated on published data
sets and are declared in THRESHOLDS.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeAlias

from dpsql.adaptive.handle import Noise, Query
from dpsql.adaptive.query import attributes_of, expected_noise, is_marginal, norm, rows, spans
from dpsql.adaptive.schedule import default_rounds
from dpsql.algebra.blocks import Identity
from dpsql.answer.predict import best_power, marginal_errors
from dpsql.plan.pattern import Pattern

Mechanism: TypeAlias = Literal["matrix", "matrix+projection", "mwem", "marginals", "rap"]
Metric: TypeAlias = Literal["mean", "max"]

THRESHOLDS: Mapping[str, float] = {
    "max_error_per_row": 0.06,
    "mean_error_per_cell": 1.0,
    "range_error_per_row": 0.035,
    "explicit_cells": float(1 << 20),
    "graphical_share": 0.5,
    "graphical_cliques": 500.0,
}
"""Every constant of the rules: error over rows or cell size at which the adaptive side wins."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the decision may depend on; ``total`` is a declared hint or an earlier release.

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
class Choice:
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


def decide(facts: Facts) -> Choice:
    """Return the mechanism that the public facts favour."""
    if facts.unbiased:
        return _choice(facts, "matrix", "unbiased answers or intervals are wanted")
    if facts.total is None:
        return _choice(facts, "matrix", "no number of rows is declared or released")
    if all(_near_marginal(c) for c in facts.candidates):
        return _marginals(facts, max(1.0, facts.total))
    cells = math.prod(facts.domain[a] for a in _used(facts))
    if cells <= THRESHOLDS["explicit_cells"]:
        return _explicit(facts, max(1.0, facts.total), cells)
    if all(rows(c) == 1 for c in facts.candidates):
        rule = f"predicates over {cells} cells: too many for an explicit table"
        return _choice(facts, "rap", rule, model="relaxed")
    return _choice(facts, "matrix", f"blocks of ranges over {cells} cells")


def _marginals(facts: Facts, total: float) -> Choice:
    cliques = [attributes_of(c) for c in facts.candidates]
    power = best_power(facts.domain, cliques) if facts.metric == "max" else 0.0
    errors = marginal_errors(facts.domain, cliques, power)
    rho = float(facts.budget if facts.noise == "gaussian" else facts.budget**2 / 2)
    scale = 1.0 if facts.matrix_rmse is None else facts.matrix_rmse / errors.rmse(rho)
    stddevs = [scale * math.sqrt(v) for v in errors.cell_variances(rho)]
    noise = sum(n * s for n, s in zip(errors.cells, stddevs, strict=True))
    ratio = math.sqrt(2 / math.pi) * noise / (total * len(cliques))
    share = scale * errors.largest(rho) / total
    if facts.metric == "max":
        key, value, name = "max_error_per_row", share, "predicted max error / rows"
    else:
        key, value, name = "mean_error_per_cell", ratio, "expected error / mean cell"
    inputs = {"error_per_cell": ratio, "max_error_per_row": share}
    useless = share > 1 or _drowned(facts, total)
    limit = THRESHOLDS[key]
    if value <= limit:
        rule = f"{name} = {value:.3g} <= {limit:g}: measure all marginals and project"
        return Choice("matrix+projection", rule, inputs, "", power, useless)
    rule = f"{name} = {value:.3g} > {limit:g}: select marginals adaptively"
    return Choice("marginals", rule, inputs, _model(facts, cliques), power, useless)


def _explicit(facts: Facts, total: float, cells: int) -> Choice:
    rmse = facts.matrix_rmse
    if rmse is None:
        return _choice(facts, "matrix", "no forecast of the matrix mechanism to compare with")
    limit = THRESHOLDS["range_error_per_row"]
    inputs = {"cells": float(cells), "matrix_error_per_row": rmse / total}
    sizes = [facts.domain[a] for a in _used(facts)]
    few = default_rounds(facts.noise, facts.budget, total, sizes, len(facts.candidates)) <= 1
    useless = rmse > _zero_error(facts, total) and few and len(facts.candidates) > 1
    if rmse / total > limit:
        rule = f"matrix error / rows = {rmse / total:.3g} > {limit:g}: reweight a table"
        return Choice("mwem", rule, inputs, "factored", 0.0, useless)
    rule = f"matrix error / rows = {rmse / total:.3g} <= {limit:g}: the matrix mechanism is precise"
    return Choice("matrix", rule, inputs, "", 0.0, useless)


def _drowned(facts: Facts, total: float) -> bool:
    """Say whether any one marginal, with the whole budget, has more noise than rows."""
    noise = min(
        rows(c) * expected_noise(norm(c, facts.noise), facts.noise, facts.budget)
        for c in facts.candidates
    )
    return noise > total


def _zero_error(facts: Facts, total: float) -> float:
    """Return the largest root mean squared error that answering zero can have, in counts."""
    squares = sum(rows(c) * max(abs(end) for end in spans(c)) ** 2 for c in facts.candidates)
    return total * math.sqrt(squares / sum(rows(c) for c in facts.candidates))


def _model(facts: Facts, cliques: Sequence[tuple[str, ...]]) -> Literal["graphical", "mixture"]:
    admitted = len(cliques) if facts.admitted is None else facts.admitted
    fits = admitted >= THRESHOLDS["graphical_share"] * len(cliques)
    return "graphical" if fits and len(cliques) <= THRESHOLDS["graphical_cliques"] else "mixture"


def _near_marginal(candidate: Query) -> bool:
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
) -> Choice:
    inputs = {} if facts.total is None else {"rows": facts.total}
    return Choice(mechanism, rule, inputs, model)
