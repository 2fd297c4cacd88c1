"""OPT_0: p-Identity strategies for one attribute, by quasi-Newton descent.

Searches here are many and short, or over very many variables: a step costs a few passes over the
memory, and bounds need no setting up.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from hashlib import sha256

import numpy as np

from dpsql.algebra.blocks import Columns
from dpsql.algebra.operator import Floats, Operator
from dpsql.interrupts import check
from dpsql.search.one_attribute.p_inverse import STRUCTURED_FROM, AppliedGram, applied
from dpsql.search.search_cache import SearchCache
from dpsql.search.work_limit import BRIEF, may_go_on, spend, threads_for

SUFFICIENT = 1e-4
"""Part of the predicted decrease that a step must reach."""
SMALL = 2
"""Small steps in a row that end a descent."""
LULL_STEPS = 10
"""Steps in a row that are looked at together."""
SHORT = 1e-15
"""Length below which differences of gradients are scaled."""

HALVED_FROM = 1 << 14
"""From this many variables on, directions are computed in single precision: half the traffic."""
TRIES = 20
"""Most step lengths tried on one line."""
FEW_VARIABLES = 256
"""Most variables of which a descent has a whole matrix: where corners are rounded ever less, it
takes a third of the steps that ten pairs do, and ends at up to 6 % less error."""


WORK = 1e11
"""Products of numbers that one descent on a dense Gram takes at most, about: minutes above it. Up
to 1,100 cells that is a thousand steps, more than any descent has taken."""
LEAST_STEPS = 30


def steps_within(work: float, most: int, effort: float = 1.0) -> int:
    """Return how many steps of so many products of numbers a descent may take.

    It depends on public sizes and the effort alone, so that plans can be made again.

    Args:
        work: products of numbers of one step.
        most: steps, whatever they take.
        effort: above one scales the work.

    >>> steps_within(1e6, 500), steps_within(1e9, 500), steps_within(1e9, 500, effort=4)
    (500, 100, 400)
    """
    return int(min(most, max(1.0, effort) * WORK / max(work, 1.0)))


def minimise(
    function: Callable[[Floats], tuple[float, Floats]],
    start: Floats,
    *,
    ftol: float,
    maxiter: int,
    signed: bool = False,
    cornered: bool = False,
    memory: int = 10,
    cost: float = 0.0,
    lull: float = 0.0,
) -> tuple[float, Floats]:
    """Return (value, x) of a local minimum over x >= 0, or over all x if ``signed``.

    Variables at zero whose derivative is positive stay there for the step; the others move along
    the quasi-Newton direction and are projected.

    Args:
        function: returns its value and gradient (size,).
        start: (size,), as x.
        ftol: decrease of some steps in a row that ends it, over the larger of the value and one.
        maxiter: most steps.
        cornered: true of a function with rounded corners: directions are made from all steps.
        memory: steps that the direction is made from, else and where variables are many.
        cost: work of one evaluation, in products of numbers; where no more may be done, the descent
            ends where it is.
        lull: decrease of LULL_STEPS steps together that ends it, as well.

    Source: Bertsekas 1982, two-metric projection; Lewis and Overton 2013 on BFGS where a function
    has corners.

    >>> value, x = minimise(
    ...     lambda x: (float(((x - [1, -1]) ** 2).sum()), 2 * (x - [1, -1])),
    ...     np.ones(2), ftol=1e-12, maxiter=50)
    >>> round(value, 9), x.round(9).tolist()
    (1.0, [1.0, 0.0])
    """
    least = -np.inf if signed else 0.0
    x = np.maximum(start, least)
    value, gradient = function(x)
    is_whole = cornered and len(x) <= FEW_VARIABLES
    known = _Curvature(len(x)) if is_whole else _LatestCurvature(len(x), memory)
    small = 0
    latest: deque[float] = deque([math.inf] * LULL_STEPS)
    for _ in range(maxiter):
        check()  # planning can be interrupted, in a server's threads too
        if not may_go_on():
            break
        spend(cost + known.cost)
        free = 1.0 if signed else (x > least) | (gradient < 0)
        direction = known.direction(gradient * free)
        direction *= free
        if not float(direction @ gradient) < 0:
            known.clear()
            direction = -gradient * free
        found = _step(function, x, value, gradient, direction, 1.0 if known.count else None, least)
        if found is None:
            if not known.count:
                break
            known.clear()
            continue
        new_value, new_x, new_gradient = found
        known.learn(new_x - x, new_gradient - gradient)
        gain = value - new_value
        value, x, gradient = new_value, new_x, new_gradient
        small = small + 1 if gain <= ftol * max(abs(value), abs(value + gain), 1.0) else 0
        latest.append(value)
        if small == SMALL or latest.popleft() - value < lull:
            break
    return value, x


class _Curvature:
    """A model of the inverse Hessian, a matrix of all pairs of variables, from all steps.

    It grows where a change of the gradient shows that it is too small. Source: BFGS.
    """

    def __init__(self, size: int) -> None:
        self.matrix: Floats = np.eye(size)
        self.count = 0
        self.cost = 4.0 * size**2

    def clear(self) -> None:
        """Forget all steps."""
        self.matrix, self.count = np.eye(len(self.matrix)), 0

    def learn(self, s: Floats, y: Floats) -> None:
        """Take up a step and the change of the gradient, (size,) each, if they tell something."""
        curvature, length2 = float(s @ y), float(y @ y)
        if not curvature > 1e-10 * length2:
            return
        if not self.count:
            self.matrix *= curvature / length2
        foreseen = self.matrix @ y
        growth = curvature / float(y @ foreseen)
        if growth > 1:
            self.matrix *= growth
            foreseen *= growth
        turned = s * (1 / min(growth, 1.0) + 1) / 2 - foreseen
        self.matrix += np.array([s, turned]).T @ (np.array([turned, s]) / curvature)
        self.count += 1

    def direction(self, gradient: Floats) -> Floats:
        """Return where the model has its minimum, (size,)."""
        return np.asarray(-(self.matrix @ gradient))


class _LatestCurvature:
    """The latest steps of a descent, and how the gradient changed: a model of the inverse Hessian.

    Source: Byrd, Nocedal, Schnabel 1994, theorem 2.2: the two loops of Nocedal 1980 as products
    with two matrices of all pairs, so that a direction takes a few calls however many there are.
    """

    def __init__(self, size: int, memory: int) -> None:
        kind = np.float32 if size >= HALVED_FROM else np.float64
        self.steps = np.zeros((2, memory, size), dtype=kind)
        self.products = np.zeros((2, memory, memory))
        self.count = 0
        self.cost = float(size * memory)

    def clear(self) -> None:
        """Forget all pairs."""
        self.count = 0

    def learn(self, s: Floats, y: Floats) -> None:
        """Take up a step and the change of the gradient, (size,) each, if they tell something."""
        length = float(np.sqrt(y @ y))
        curvature = float(s @ y)
        # Without positive curvature the model would have no minimum.
        if not curvature > 1e-10 * length**2:
            return
        # of single precision squares of less are lost: a pair may have any length
        unit = length if length < SHORT else 1.0
        k = self.count
        if k == self.steps.shape[1]:
            k -= 1
            self.steps[:, :-1] = self.steps[:, 1:]
            self.products[:, :-1, :-1] = self.products[:, 1:, 1:]
        self.steps[0, k], self.steps[1, k] = s / unit, y / unit
        self.count = k + 1
        latest = self.steps[:, : k + 1] @ self.steps[1, k]
        self.products[:, : k + 1, k] = latest
        self.products[1, k, : k + 1] = latest[1]

    def direction(self, gradient: Floats) -> Floats:
        """Return where the model has its minimum, (size,)."""
        k = self.count
        if not k:
            return -gradient
        pairs = self.steps[:, :k]
        triangle, squares = self.products[:, :k, :k]  # of steps and changes; the first is upper
        scale = triangle[-1, -1] / squares[-1, -1]
        of_s, of_y = pairs @ gradient.astype(pairs.dtype)
        inner = np.linalg.solve(triangle, of_s)
        outer = triangle.diagonal() * inner + scale * (squares @ inner - of_y)
        outer = np.linalg.solve(triangle.T, outer)
        found = (scale * inner) @ pairs[1] - outer @ pairs[0]
        found -= scale * gradient
        return np.asarray(found, dtype=np.float64)


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
        # The first step has no model yet: a move of length one, whatever the slope.
        length = 1 / max(float(np.sqrt(direction @ direction)), 1e-300)
    for _ in range(TRIES):
        moved = np.maximum(x + length * direction, least)
        slope = float(gradient @ (moved - x))
        new_value, new_gradient = function(moved)
        if new_value <= value + SUFFICIENT * min(slope, 0.0):
            return new_value, moved, new_gradient
        curve = new_value - value - slope
        # The minimum of a parabola through both ends, kept from steps of nothing.
        length *= float(np.clip(-slope / (2 * curve), 0.1, 0.5)) if curve > 0 else 0.5
    return None


TILED_ABOVE = 1024
"""Above this size, without p, the only start repeats the solution on a quarter of the cells."""
TILES, GROUPS = 4, 64
"""Tiles of a tiled start, and groups of cells over which its rows join them."""
BRIEF_TOLERANCE, BRIEF_STARTS = 1e-5, 256
"""Decrease per step at which a brief search ends, and its starts times cells: four at least."""
SCALES = (0.03, 0.1, 0.3, 1.0)
"""Scales tried for the rows that join tiles."""
TILE_TOLERANCE = 1e-4
"""Relative decrease per step at which the search on one tile ends."""
STAGES = (1e-3, 1e-5)
"""Relative decrease per step at which the early stages of a search with several starts stop."""
WARM_STAGE = 3e-3
"""The same of the first stage from a single start."""
STEEPEST = 1 << 12
"""Largest sum of the entries of a column: more could not be told from it in integer rows."""
OFFSET = 1e-6
"""Added to every entry before late stages, which descend over the roots of the entries."""
MEMORY, SHORT_MEMORY = 10, 6
"""Steps that a descent remembers; late stages over ``STRUCTURED_FROM`` cells or more, fewer."""
REMEMBERED = 1 << 21
"""Numbers of rows found that are remembered, 16 MiB: one column is searched for time and again."""

_found: SearchCache[Floats] = SearchCache(REMEMBERED)


def matrix(theta: Floats) -> Floats:
    """Return A = [I; Theta] diag(1/s), shape (n + p, n); every column has L1 norm exactly 1.

    Source: HDMM, definition 13 (p-Identity strategies).

    >>> matrix(np.array([[1.0, 0.0]])).tolist()
    [[0.5, 0.0], [0.0, 1.0], [0.5, 0.0]]
    """
    theta = np.asarray(theta, dtype=np.float64)
    scaled: Floats = np.vstack([np.eye(theta.shape[1]), theta]) / (1 + theta.sum(axis=0))
    return scaled


def loss_and_grad(theta: Floats, gram: Floats | Operator | AppliedGram) -> tuple[float, Floats]:
    """Return tr(V K) and its gradient in Theta, in O(p n^2), or O(p^2 n) for a structured Gram.

    Args:
        theta: (p, n).
        gram: V, (n, n).

    Source: HDMM, section 4.3 (OPT_0), in the lean form that never builds an n x n inverse.
    """
    return _evaluate(np.asarray(theta, dtype=np.float64), applied(gram))


def chain(theta: Floats, gamma: Floats | AppliedGram) -> Floats:
    """Return df/dTheta of any differentiable f(K), where gamma = df/dK is symmetric (n, n)."""
    return _evaluate(np.asarray(theta, dtype=np.float64), applied(gamma))[1]


def default_p(gram: Floats | Operator | AppliedGram) -> int:
    """Return how many learned rows to allow: 1 for points and totals, else ceil(n / 16).

    ``gram`` is n by n.
    """
    V = applied(gram)
    n = len(V.diagonal)
    probe = np.zeros((n, 2))
    probe[0, 0] = 1
    # A vector without symmetry: with the first unit vector it tells whether V is a I + b J.
    probe[:, 1] = np.linspace(-1, 2, n)
    first, image = V.apply(probe).T
    b = first[-1]
    expected = (first[0] - b) * probe[:, 1] + b * probe[:, 1].sum()
    points = n == 1 or np.allclose(image, expected, rtol=1e-9, atol=1e-9 * abs(first[0]))
    return 1 if points else math.ceil(n / 16)


def optimise(
    gram: Floats | Operator | AppliedGram,
    *,
    p: int | None = None,
    seed: int = 0,
    restarts: int | None = None,
    init: Floats | Sequence[Floats] | None = None,
    ftol: float | None = None,
    maxiter: int = 1000,
    effort: float = 1.0,
) -> Floats:
    """Return Theta >= 0 of shape (p, n) with the least tr(V K) found.

    Many starts are run loosely and the best few tightly. The result is never worse than the
    identity, which it is when Theta is all zero. Same arguments, same result: it is remembered.

    Args:
        gram: V, (n, n).
        p: rows of Theta; without it, starts vary it too.
        restarts: starts beside ``init``.
        init: (p, n) to begin with, or several, and then the only starts unless ``restarts`` asks
            for more.
        ftol: relative decrease of the loss per step at which a search ends.
        maxiter: most steps.
        effort: above one asks for more starts and a smaller decrease.

    Source: HDMM, section 4.3 (OPT_0).
    """
    if isinstance(gram, Columns) and gram.permutes:
        back = np.argsort(gram.index)
        moved = None if init is None else [each[:, back] for each in _several(init)]
        search = partial(optimise, p=p, seed=seed, restarts=restarts, ftol=ftol, maxiter=maxiter)
        return search(gram.op, init=moved, effort=effort)[:, gram.index]
    if init is not None or isinstance(gram, AppliedGram):
        return _searched(gram, p, seed, restarts, init, ftol, maxiter, effort)
    if isinstance(gram, Operator):
        key, n = gram.key, gram.n
    else:
        gram = np.ascontiguousarray(gram, dtype=np.float64)
        key, n = sha256(gram.tobytes()).digest(), len(gram)
    find = partial(_searched, gram, p, seed, restarts, None, ftol, maxiter, effort)
    size = n * (p or math.ceil(n / 16))
    # a copy, for attributes that hold the very same rows share them in searches
    return _found.of((key, p, seed, restarts, ftol, maxiter, effort), size, find).copy()


def _searched(
    gram: Floats | Operator | AppliedGram,
    p: int | None,
    seed: int,
    restarts: int | None,
    init: Floats | Sequence[Floats] | None,
    ftol: float | None,
    maxiter: int,
    effort: float,
) -> Floats:
    """Return the rows of ``optimise``, of cells as they are."""
    V = applied(gram)
    n = len(V.diagonal)
    if ftol is None:
        ftol = 1e-8 if n < STRUCTURED_FROM else 2e-5 if n <= TILED_ABOVE else 1e-4
        ftol = max(ftol, BRIEF_TOLERANCE) if effort <= BRIEF else ftol / max(1.0, effort) ** 2
    if restarts is None:
        restarts = int(_default_restarts(n) * max(1.0, effort)) if init is None else 0
        restarts = min(restarts, max(4, BRIEF_STARTS // n)) if effort <= BRIEF else restarts
    given = [] if init is None else _several(init)
    starts = [np.maximum(np.asarray(each, dtype=np.float64), 0) for each in given]
    base = p or default_p(gram)
    if isinstance(gram, np.ndarray):
        maxiter = max(min(maxiter, LEAST_STEPS), steps_within(n * n * base, maxiter, effort))
    starts += _random_starts(n, base, p is not None, restarts, seed)
    if n > TILED_ABOVE and restarts and p is None:
        starts = [*starts[: len(given)], _tiled_start(V, seed)]
    stages = [tol for tol in (STAGES if len(starts) > 1 else (WARM_STAGE,)) if tol > ftol] + [ftol]
    for stage, tolerance in enumerate(stages):
        with threads_for(n):
            found = [_descend(theta, V, tolerance, maxiter) for theta in starts]
        found.sort(key=lambda pair: pair[0])
        starts = [theta for _, theta in found[: _survivors(len(found), n, stage)]]
    value, theta = found[0]
    theta = theta * (STEEPEST / np.maximum(theta.sum(axis=0), STEEPEST))
    return theta if value < V.diagonal.sum() else np.zeros_like(theta)


def _several(init: Floats | Sequence[Floats]) -> Sequence[Floats]:
    return [init] if isinstance(init, np.ndarray) else init


def _small_inverse(theta: Floats) -> Floats:
    return np.asarray(np.linalg.inv(np.eye(len(theta)) + theta @ theta.T))


def _evaluate(theta: Floats, V: AppliedGram) -> tuple[float, Floats]:
    # With C = diag(s) V diag(s), B = (I + Theta Theta')^-1 and X = C Theta':
    # C Q = C - X B Theta and Theta Q C Q = B X' - B (Theta X) B Theta, with one product with V.
    s = 1 + theta.sum(axis=0)
    Xt = V.apply((theta * s).T).T * s
    B = _small_inverse(theta)
    first = B @ Xt
    diagonal = V.diagonal * s * s - np.einsum("pn,pn->n", theta, first)
    first -= (B @ (theta @ Xt.T) @ B) @ theta
    return float(diagonal.sum()), 2 * (diagonal / s - first)


def _descend(theta: Floats, V: AppliedGram, ftol: float, maxiter: int) -> tuple[float, Floats]:
    """Return (loss, Theta) where steps gain less than ``ftol``.

    Early stages descend over the entries themselves, which sets most of them to zero. Late ones
    descend over their roots: without bounds, and better scaled where entries differ in size.
    """
    shape, points = theta.shape, float(V.diagonal.sum())
    # No strategy of unit columns is better than the largest squared column of the workload;
    # rounding makes huge entries seem so.
    least = float(V.diagonal.max())
    late = ftol < STAGES[0]
    memory = SHORT_MEMORY if late and shape[1] >= STRUCTURED_FROM else MEMORY

    def log_loss(flat: Floats) -> tuple[float, Floats]:
        x = flat.reshape(shape)
        try:
            value, gradient = _evaluate(x * x if late else x, V)
        except np.linalg.LinAlgError:  # entries so large that the ones beside them are lost
            return math.inf, np.zeros_like(flat)
        slope = gradient * (2 * x) if late else gradient
        # Refused as a step too far rather than trusted.
        if not value > (1 - 1e-9) * least:
            return math.inf, slope.ravel()
        return math.log(value / points), slope.ravel() / value

    start = np.sqrt(theta + OFFSET) if late else theta
    value, flat = minimise(
        log_loss,
        start.ravel(),
        ftol=ftol,
        maxiter=maxiter,
        signed=late,
        memory=memory,
        cost=V.cost * len(theta) + 3.0 * theta.size * len(theta),
    )
    found = flat.reshape(shape)
    return points * math.exp(value), found * found if late else found


def _default_restarts(n: int) -> int:
    return 16 if n <= 96 else 8 if n <= 256 else 4 if n < STRUCTURED_FROM else 2


def _survivors(count: int, n: int, stage: int) -> int:
    """Return how many starts go on to the next, tighter stage."""
    share = 2 if n <= 256 else 3
    return min(count, max(1, count // share) if stage == 0 else 1 + (n <= 96))


def _random_starts(n: int, base: int, fixed: bool, count: int, seed: int) -> Iterator[Floats]:
    """Yield dense starts of several scales, and starts on disjoint windows of cells.

    A single scale can end at a useless point; windows suit workloads of short ranges.
    """
    rng = np.random.default_rng(seed)
    if n <= 96:
        scales: tuple[float | None, ...] = (1.0, 0.3, None, 0.1)
    elif n < STRUCTURED_FROM:
        scales = (0.2, None, 0.5, 1.0)
    else:
        scales = (None, 0.2)
    # More rows help some workloads; the ordinary number is tried twice as often.
    widths = (1.0,) if fixed or n <= 16 or base == 1 else (1.0, 1.5, 1.0, 2.0)
    for k in range(count):
        p = math.ceil(widths[k // len(scales) % len(widths)] * base)
        scale = scales[k % len(scales)]
        start = rng.random((p, n))
        yield 0.5 * start * _windows(p, n) if scale is None else scale * start


def _tiled_start(V: AppliedGram, seed: int) -> Floats:
    """Return a start from the search on one tile of cells, and on groups of cells of all tiles.

    The tile is repeated; rows over groups, which join the tiles, get the best of some scales.
    """
    n = len(V.diagonal)
    size = -(-n // TILES)
    tile = _block(V, n // 2 - size, size)
    # What all cells of the tile share is left to the rows that join the tiles.
    local = optimise(tile - tile.min(), seed=seed, ftol=TILE_TOLERANCE)
    start = np.kron(np.eye(TILES), local)[:, :n]
    groups = _windows(GROUPS, n)
    wide = optimise(groups @ V.apply(groups.T), seed=seed, restarts=4) @ groups
    wide *= 1 + start.sum(axis=0)
    starts = [np.vstack([start, scale * wide]) for scale in SCALES]
    return min(starts, key=lambda theta: _evaluate(theta, V)[0])


def _block(V: AppliedGram, begin: int, size: int) -> Floats:
    """Return a diagonal block of V, a few columns at a time."""
    out = np.empty((size, size))
    # 128 unit columns at a time bound the memory; V may be an operator that is never formed.
    for first in range(0, size, 128):
        unit = np.zeros((len(V.diagonal), min(128, size - first)))
        unit[begin + first + np.arange(unit.shape[1]), np.arange(unit.shape[1])] = 1
        out[:, first : first + 128] = V.apply(unit)[begin : begin + size]
    return out


def _windows(p: int, n: int) -> Floats:
    return np.asarray(np.arange(p)[:, None] == np.arange(n) * p // n, dtype=np.float64)
