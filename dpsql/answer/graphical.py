"""Answers of a release from a graphical model that is fitted to what was measured (Private-PGM)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.integer_rows import operator_of
from dpsql.algebra.operator import Floats, Operator
from dpsql.errors import NotSupportedError, ProgrammingError
from dpsql.pgm.fit import check, fit
from dpsql.pgm.linear import clique_of
from dpsql.pgm.measurements import Measured
from dpsql.pgm.model import GraphicalModel, model_of
from dpsql.pgm.tree import (
    DEFAULT_CAP,
    JunctionTree,
    ModelTooLarge,
    junction_tree,
    model_cells,
)
from dpsql.plan.plan import Part, Plan
from dpsql.plan.target import Reading
from dpsql.records import dataclass, field
from dpsql.strategy.base import Estimate
from dpsql.workload.cells import Nodes
from dpsql.workload.workload import Product

INSTEAD = "reconstruct = 'nonnegative' has no such limit"

STEPS = (1_000, 10_000)
"""Least and most steps of a fit of mbi's; few steps are worse than no post-processing."""

WORK = 10**8
"""Cells times steps that a fit of mbi's may take beyond the least number of steps."""

TOTAL = Product({})


def check_models(plan: Plan, readings: Iterable[tuple[int, Reading]], method: str) -> None:
    """Refuse, before anything is paid, what a graphical model cannot be fitted to or answer.

    Args:
        readings: of answers, each with the number of its part.
        method: pgm or mbi.

    Raises: NotSupportedError (E_SETTING); ProgrammingError (E_TOO_LARGE); OperationalError
    (E_BACKEND) where mbi is asked for and absent.
    """
    if method == "mbi":
        from dpsql.pgm.mbi_backend import load_mbi  # mbi is optional

        load_mbi()
    by_part: dict[int, list[Product]] = {}
    for index, reading in readings:
        by_part.setdefault(index, []).extend(product for _, product in reading)
    for index, products in by_part.items():
        part = plan.parts[index]
        _check_part(part)
        nothing = [np.zeros(block.rows) for block in part.blocks]
        measured = read_measurements(part, nothing)
        domain = _domain(part)
        try:
            check(domain, measured, DEFAULT_CAP)
            tree = junction_tree(domain, [block.attributes for block in part.strategy.blocks])
            _rehearse(domain, tree, products)
        except ModelTooLarge as error:
            raise ProgrammingError("E_TOO_LARGE", error.message, hint=INSTEAD) from None


def _check_part(part: Part) -> None:
    reason = None
    if part.units:
        reason = "counts of privacy units do not add up"
    elif any(isinstance(each, Nodes) for each in part.resolutions.values()):
        names = [n for n, each in part.resolutions.items() if isinstance(each, Nodes)]
        reason = f"sums of values of {', '.join(names)} were measured, not counts"
    elif not part.strategy.has_marginals:
        reason = "no marginals were measured, but queries or orbits of cells"
    elif not part.forecast.supports(TOTAL):
        reason = "the number of rows was not measured"
    if reason is not None:
        raise NotSupportedError(
            "E_SETTING",
            f"no graphical model of {part.table}: {reason}",
            hint="reconstruct = 'nonnegative' works for every release",
        )


def _rehearse(domain: Mapping[str, int], tree: JunctionTree, products: Sequence[Product]) -> None:
    """Answer what lies across cliques once from the uniform model, to see that it fits the cap."""
    across = [p for p in products if tree.home(p.factors) is None]
    if across:
        cliques = {c: np.zeros(tree.shape(c)) for c in tree.cliques}
        model = model_of(domain, 1.0, cliques, DEFAULT_CAP, 0.0)
        for product in across:
            model.answer((product,))


def _domain(part: Part) -> dict[str, int]:
    """The attributes that were measured, in domain order."""
    used = {name for block in part.strategy.blocks for name in block.attributes}
    sizes = part.strategy.domain.items()
    return {name: size for name, size in sizes if name in used or size == 1}


def read_measurements(part: Part, values: Sequence[NDArray[Any]]) -> list[Measured]:
    """Return the noisy numbers of a part, block by block, as measurements in rows.

    Args:
        values: (rows,) of each block, in units of the block.
    """
    strategy = part.strategy
    found = []
    numbers = zip(strategy.blocks, values, part.block_units, part.forecast.noise, strict=True)
    for block, value, unit, variance in numbers:
        factors: dict[str, Operator] = {}
        for name, rows in block.factors.items():
            factors[name] = operator_of(rows, strategy.domain[name])
        rows_per_cell = np.asarray(value).astype(np.float64) / unit
        measured = Measured((Product(factors),), rows_per_cell, math.sqrt(variance), strategy.noise)
        found.append(measured)
    return found


@dataclass
class Models:
    """The graphical models of one release, each fitted when it is first asked."""

    plan: Plan
    values: Sequence[Sequence[NDArray[Any]]]
    estimates: Mapping[int, Estimate]
    fitted: dict[tuple[int, str], GraphicalModel] = field(default_factory=dict)

    def answer(self, index: int, reading: Reading, method: str) -> Floats:
        """Return the answers of a reading from the model of its part.

        Args:
            index: the number of the part.
            method: pgm or mbi.
        """
        model = self._model(index, method)
        found = [scale * model.answer((product,)) for scale, product in reading]
        return np.asarray(sum(found[1:], found[0]), dtype=np.float64)

    def _model(self, index: int, method: str) -> GraphicalModel:
        if (index, method) not in self.fitted:
            part = self.plan.parts[index]
            measured = read_measurements(part, self.values[index])
            total = max(1.0, float(self.estimates[index].answers([TOTAL])[0][0]))
            self.fitted[index, method] = _fit(_domain(part), measured, total, method)
        return self.fitted[index, method]


def _fit(
    domain: Mapping[str, int], measured: Sequence[Measured], total: float, method: str
) -> GraphicalModel:
    if method == "mbi":
        from dpsql.pgm.mbi_backend import fit_mbi  # mbi is optional

        cells = model_cells(domain, [clique_of(m.candidate, domain) for m in measured])
        steps = min(STEPS[1], max(STEPS[0], WORK // cells))
        return fit_mbi(domain, measured, total, iterations=steps)
    return fit(domain, measured, total)
