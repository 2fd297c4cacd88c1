"""Private-PGM by the mbi package, behind the interface of ``dpsql.pgm.fit``.

Optional: ``pip install dpsql[pgm]``. Only the fit is mbi's; answers and rows come from the same
model class, so a stored model needs neither mbi nor JAX.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Any

import numpy as np

from dpsql.algebra.blocks import Identity
from dpsql.algebra.operator import Floats
from dpsql.errors import OperationalError
from dpsql.pgm.fit import Progress, check
from dpsql.pgm.linear import is_whole, norm2
from dpsql.pgm.measurements import Candidate, Measured
from dpsql.pgm.model import GraphicalModel, model_of
from dpsql.pgm.tree import DEFAULT_CAP, Clique
from dpsql.records import dataclass

MAJOR = "2.0."


def fit_mbi(
    domain: Mapping[str, int],
    measurements: Sequence[Measured],
    total: float,
    *,
    warm: GraphicalModel | None = None,
    cap: int = DEFAULT_CAP,
    iterations: int = 1000,
    tolerance: float = 1e-6,
    progress: Progress | None = None,
) -> GraphicalModel:
    """Return the maximum-entropy minimiser of the weighted squared error, fitted by mbi.

    The total is always passed on, 64-bit numbers are switched on, and the size of the junction
    tree is checked first. ``tolerance`` plays no part: mbi runs all ``iterations``.

    Raises ModelTooLarge above the cap, OperationalError E_BACKEND without mbi 2.0.
    """
    terms = check(domain, measurements, cap)
    if not terms:
        return model_of(domain, total, {}, cap, 0.0)
    mbi = load_mbi()
    space = mbi.Domain(tuple(domain), tuple(domain.values()))
    linear = [
        mbi.LinearMeasurement(
            np.asarray(t.values), t.clique, t.precision**-0.5, query=_query(t.candidate, t.clique)
        )
        if not is_whole(t.candidate)
        else mbi.LinearMeasurement(np.asarray(t.values), t.clique, t.precision**-0.5)
        for t in terms
        if t.clique
    ]
    start = _warm(mbi, space, warm, [t.clique for t in terms])
    found = mbi.estimation.MirrorDescent().estimate(
        space, linear, known_total=float(total), iters=iterations, warm_start=start
    )
    model = model_of(domain, total, _potentials(found, domain), cap, float("nan"))
    loss = sum(t.loss(model.marginal(t.clique))[0] for t in terms)
    if progress is not None:
        progress(iterations, loss)
    return model_of(domain, total, model.potentials, cap, loss)


def load_mbi() -> Any:
    """Return the module mbi, in double precision.

    Raises: OperationalError (E_BACKEND) where it is not installed, or of another version.
    """
    try:
        jax: Any = import_module("jax")
        jax.config.update("jax_enable_x64", True)
        jax.config.update("jax_enable_compilation_cache", False)
        mbi: Any = import_module("mbi")
    except ImportError:
        raise OperationalError(
            "E_BACKEND",
            "the graphical model was asked of mbi, and mbi is not installed",
            hint="pip install dpsql[pgm], or use the back end that is always there",
        ) from None
    if not version("mbi").startswith(MAJOR):
        raise OperationalError(
            "E_BACKEND",
            f"mbi {version('mbi')} is not supported",
            hint='pip install "mbi>=2.0,<2.1"',
        )
    return mbi


def _potentials(found: Any, domain: Mapping[str, int]) -> dict[Clique, Floats]:
    out = {}
    for clique in found.potentials.cliques:
        factor = found.potentials[clique]
        attributes = tuple(factor.domain.attributes)
        ordered = tuple(a for a in domain if a in attributes)
        values = np.asarray(factor.values, dtype=np.float64)
        out[ordered] = values.transpose([attributes.index(a) for a in ordered])
    return out


def _warm(mbi: Any, space: Any, warm: GraphicalModel | None, new: Sequence[Clique]) -> Any:
    """Return mbi's form of earlier potentials, None when one of them fits nowhere."""
    if warm is None or not warm.potentials:
        return None
    if not all(any(set(old) <= set(c) for c in new) for old in warm.potentials):
        return None
    factors = {
        clique: mbi.Factor(space.project(clique), table)
        for clique, table in warm.potentials.items()
        if clique
    }
    return mbi.CliqueVector(space, list(factors), factors)


@dataclass(frozen=True, eq=False)
class _Query:
    """A candidate as a function of mbi's factor; hashed by identity, as JAX wants it."""

    products: tuple[tuple[Floats | bool | None, ...], ...]
    bound: float

    def __call__(self, factor: Any) -> Any:
        jnp: Any = import_module("jax.numpy")
        total: Any = 0.0
        for factors in self.products:
            out = factor.values
            for axis, rows in reversed(list(enumerate(factors))):
                if rows is None:
                    out = out.sum(axis=axis)
                elif not isinstance(rows, bool):
                    out = jnp.moveaxis(jnp.tensordot(rows, out, axes=(1, axis)), 0, axis)
            total = total + out.reshape(-1)
        return total

    def op_norm_sq(self) -> float:
        """Return a bound of the squared norm, from which mbi sets its first step."""
        return self.bound


def _query(candidate: Candidate, clique: Clique) -> _Query:
    products = []
    sizes: dict[str, int] = {}
    for product in candidate:
        factors: list[Floats | bool | None] = []
        for name in clique:
            operator = product.factors.get(name)
            if operator is None:
                factors.append(None)
                continue
            sizes[name] = operator.n
            whole = isinstance(operator, Identity)
            factors.append(True if whole else np.asarray(operator.dense(), dtype=np.float64))
        products.append(tuple(factors))
    return _Query(tuple(products), norm2(candidate, clique, [sizes[a] for a in clique]))
