"""Limited-memory quasi-Newton descent, over all vectors or over the nonnegative ones.

Searches here are many and short, or over very many variables: a step costs a few passes over the
memory, and bounds need no setting up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from dpsql.algebra.operator import Array, Floats

SUFFICIENT = 1e-4
"""Part of the predicted decrease that a step must reach."""
SMALL = 2
"""Small steps in a row that end a descent."""
HALVED_FROM = 1 << 14
"""From this many variables on, directions are computed in single precision: half the traffic."""
TRIES = 20
"""Most step lengths tried on one line."""


def minimise(
    function: Callable[[Floats], tuple[float, Floats]],
    start: Floats,
    *,
    ftol: float,
    maxiter: int,
    signed: bool = False,
    memory: int = 10,
) -> tuple[float, Floats]:
    """Return (value, x) of a local minimum over x >= 0, or over all x if ``signed``.

    Ends when steps in a row lower the value by less than ``ftol`` relative to the larger of it
    and one.
    Variables at zero whose derivative is positive stay there for the step; the others move along
    the quasi-Newton direction and are projected.

    Source: Bertsekas 1982, two-metric projection, with the two-loop recursion of Nocedal 1980.

    >>> value, x = minimise(
    ...     lambda x: (float(((x - [1, -1]) ** 2).sum()), 2 * (x - [1, -1])),
    ...     np.ones(2), ftol=1e-12, maxiter=50)
    >>> round(value, 9), x.round(9).tolist()
    (1.0, [1.0, 0.0])
    """
    least = -np.inf if signed else 0.0
    x = np.maximum(start, least)
    value, gradient = function(x)
    pairs: deque[tuple[Array, Array, float]] = deque(maxlen=memory)
    kind = np.float32 if len(x) >= HALVED_FROM else np.float64
    small = 0
    for _ in range(maxiter):
        free = (x > least) | (gradient < 0)
        direction = _direction(gradient * free, pairs)
        direction *= free
        if not float(direction @ gradient) < 0:
            pairs.clear()
            direction = -gradient * free
        found = _step(function, x, value, gradient, direction, 1.0 if pairs else None, least)
        if found is None:
            if not pairs:
                break
            pairs.clear()
            continue
        new_value, new_x, new_gradient = found
        s, y = new_x - x, new_gradient - gradient
        curvature = float(s @ y)
        if curvature > 1e-10 * float(y @ y):
            pairs.append((s.astype(kind), y.astype(kind), 1 / curvature))
        gain = value - new_value
        value, x, gradient = new_value, new_x, new_gradient
        small = small + 1 if gain <= ftol * max(abs(value), abs(value + gain), 1.0) else 0
        if small == SMALL:
            break
    return value, x


def _direction(gradient: Floats, pairs: deque[tuple[Array, Array, float]]) -> Floats:
    q = -gradient.astype(pairs[0][0].dtype if pairs else gradient.dtype)
    parts = []
    for s, y, inverse in reversed(pairs):
        part = inverse * float(s @ q)
        q -= part * y
        parts.append(part)
    if pairs:
        _, y, inverse = pairs[-1]
        q *= 1 / (inverse * float(y @ y))
    for (s, y, inverse), part in zip(pairs, reversed(parts), strict=True):
        q += (part - inverse * float(y @ q)) * s
    return q.astype(np.float64)


def _step(
    function: Callable[[Floats], tuple[float, Floats]],
    x: Floats,
    value: float,
    gradient: Floats,
    direction: Floats,
    length: float | None,
    least: float,
) -> tuple[float, Floats, Floats] | None:
    """Return (value, x, gradient) after a step that lowers the value enough, None without one."""
    if length is None:
        length = 1 / max(float(np.sqrt(direction @ direction)), 1e-300)
    for _ in range(TRIES):
        moved = np.maximum(x + length * direction, least)
        slope = float(gradient @ (moved - x))
        new_value, new_gradient = function(moved)
        if new_value <= value + SUFFICIENT * min(slope, 0.0):
            return new_value, moved, new_gradient
        curve = new_value - value - slope
        length *= float(np.clip(-slope / (2 * curve), 0.1, 0.5)) if curve > 0 else 0.5
    return None
