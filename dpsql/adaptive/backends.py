"""The two model families that whole-marginal selection can fit: graphical, and mixtures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from dpsql.adaptive.handle import Measured, Model
from dpsql.adaptive.mixture import COMPONENTS, STEPS, fit_mixture
from dpsql.adaptive.relaxed import ProductMixture
from dpsql.answer.junction import DEFAULT_CAP, Clique, model_cells
from dpsql.answer.pgm import GraphicalModel, fit

Progress = Callable[[int, float], None]


class Backend(Protocol):
    """What the selection loop needs of a model family."""

    @property
    def name(self) -> str:
        """Return the name shown to people."""

    def fit(
        self,
        measurements: Sequence[Measured],
        total: float,
        warm: Model | None,
        *,
        last: bool,
        progress: Progress | None = None,
    ) -> Model:
        """Return a model of the measurements; ``last`` asks for the most careful fit."""

    def admits(self, cliques: Sequence[Clique], new: Clique, share: float) -> bool:
        """Say whether a clique may still be measured when ``share`` of the budget is used."""


@dataclass(frozen=True, slots=True)
class Graphical:
    """Private-PGM under a cap on the junction tree that grows with the budget used.

    ``seconds`` bounds the last fit; those between rounds get a tenth of it.
    """

    domain: Mapping[str, int]
    cap: int = DEFAULT_CAP
    iterations: int = 1000
    seconds: float = 40.0

    @property
    def name(self) -> str:
        """Return the name shown to people."""
        return "graphical"

    def fit(
        self,
        measurements: Sequence[Measured],
        total: float,
        warm: Model | None,
        *,
        last: bool,
        progress: Progress | None = None,
    ) -> Model:
        """Return a graphical model of the measurements."""
        return fit(
            self.domain,
            measurements,
            total,
            warm=warm if isinstance(warm, GraphicalModel) else None,
            cap=self.cap,
            iterations=self.iterations if last else max(1, self.iterations // 10),
            tolerance=1e-6 if last else 1e-4,
            seconds=self.seconds if last else self.seconds / 10,
            progress=progress,
        )

    def admits(self, cliques: Sequence[Clique], new: Clique, share: float) -> bool:
        """Say whether the junction tree with a new clique stays under its part of the cap."""
        return model_cells(self.domain, [*cliques, new]) <= self.cap * min(1.0, share)


@dataclass(frozen=True, slots=True)
class Mixture:
    """A fixed number of product distributions; any set of marginals fits."""

    domain: Mapping[str, int]
    rng: np.random.Generator
    cap: int = DEFAULT_CAP
    components: int = COMPONENTS
    steps: int = STEPS
    name: str = field(default="mixture", init=False)

    def fit(
        self,
        measurements: Sequence[Measured],
        total: float,
        warm: Model | None,
        *,
        last: bool,
        progress: Progress | None = None,
    ) -> Model:
        """Return a mixture of products near the measurements."""
        return fit_mixture(
            self.domain,
            measurements,
            total,
            warm=warm if isinstance(warm, ProductMixture) else None,
            components=self.components,
            steps=2 * self.steps if last else self.steps,
            rng=self.rng,
            progress=progress,
        )

    def admits(self, cliques: Sequence[Clique], new: Clique, share: float) -> bool:
        """Say whether the marginal itself is under the cap."""
        return bool(np.prod([float(self.domain[a]) for a in new]) <= self.cap)


def admitted(domain: Mapping[str, int], cliques: Sequence[Clique], cap: int = DEFAULT_CAP) -> int:
    """Return how many cliques, each next to all single attributes, fit under a cap.

    >>> admitted({"a": 2, "b": 3, "c": 9}, [("a", "b"), ("b", "c")], cap=20)
    1
    """
    return sum(model_cells(domain, [clique]) <= cap for clique in cliques)
