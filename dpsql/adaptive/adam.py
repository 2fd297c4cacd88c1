"""Adam: first-order descent with running moments of the gradient."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dpsql.adaptive.handle import Floats


@dataclass(slots=True)
class Adam:
    """The running moments of one descent; updates happen in place.

    Source: Kingma and Ba 2015, algorithm 1.
    """

    rate: float
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    count: int = 0
    first: Floats = field(default_factory=lambda: np.zeros(0))
    second: Floats = field(default_factory=lambda: np.zeros(0))

    def step(self, x: Floats, gradient: Floats, scale: float = 1.0) -> None:
        """Move ``x`` against the gradient; ``scale`` multiplies the rate of this step."""
        if not self.count:
            self.first, self.second = np.zeros_like(x), np.zeros_like(x)
        self.count += 1
        b1, b2 = self.betas
        self.first *= b1
        self.first += (1 - b1) * gradient
        self.second *= b2
        self.second += (1 - b2) * np.square(gradient)
        root = np.sqrt(self.second / (1 - b2**self.count)) + self.epsilon
        x -= (self.rate * scale / (1 - b1**self.count)) * self.first / root
