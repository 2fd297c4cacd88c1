"""Exact privacy losses along whole runs of every mechanism, on every neighbouring table.

A run on one table is followed look by look; what each look would have shown with one privacy unit
more is computed from the very noise that was drawn and from the scores of the neighbours. No loss
is above what the look was charged, and what is charged adds up to what was paid.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsql.algebra.blocks import Dense, Prefix
from dpsql.learn.task import Task, make_task, run_task
from dpsql.pgm.measurements import Candidate, Measured
from dpsql.privacy.doors import look, sensitivity
from dpsql.privacy.doors.look import TableHandle
from dpsql.privacy.doors.privacy_filter import Filter
from dpsql.privacy.noise.samplers import SAMPLERS
from dpsql.privacy.noise.selection import top_choices
from dpsql.settings.rounds import Rounds
from dpsql.strategy.noise_law import Noise
from dpsql.workload.workload import Product
from tests.privacy.looks import World, dense, whole

DOMAIN = {"a": 2, "b": 3}
COUNTS = np.array([[9, 0, 4], [1, 6, 2]])
AMOUNT = Fraction(1, 2)
ROUNDED = 1 + 1e-6
"""Rates of selection are rounded down to 20 bits, scales up to 30."""


pytestmark = pytest.mark.usefixtures("short_runs")


class Undercharged(Exception):
    """A look that shows more than it was charged."""


class Losses:
    """A handle that compares the loss of every look, for every neighbour, with its charge.

    ``most`` is the largest share of its charge that a look of each kind lost.
    """

    def __init__(self, settings: str, noise: Noise, c: int) -> None:
        self.noise: Noise = noise
        self.c = c
        self.inner = World(DOMAIN, COUNTS).opened(AMOUNT, noise, c, settings)
        self.twins: list[TableHandle] = []
        for place in np.ndindex(*COUNTS.shape):
            world = World(DOMAIN, COUNTS)
            world.cells.counts[place] += c
            self.twins.append(world.opened(10**4, noise, c))
        self.most = {"measure": 0.0, "select": 0.0}
        self.kinds: set[str] = set()

    @property
    def domain(self) -> Any:
        return self.inner.domain

    def remaining(self) -> Fraction:
        return self.inner.remaining()

    def total(self, amount: Fraction) -> Measured:
        self.kinds.add("total")
        with self._measuring([whole(DOMAIN)]):
            return self.inner.total(amount)

    def measure(self, candidates: Sequence[Candidate], amount: Fraction) -> list[Measured]:
        self.kinds.add("measure")
        with self._measuring(candidates):
            return self.inner.measure(candidates, amount)

    @contextmanager
    def _measuring(self, candidates: Sequence[Candidate]) -> Iterator[None]:
        before = self.remaining()
        with recorded() as scales:
            yield
        (scale,) = set(scales)
        rows = self.c * np.concatenate([dense(each, DOMAIN) for each in candidates])
        if self.noise == "laplace":
            losses = np.abs(rows).sum(axis=0) / float(scale)
        else:
            losses = (rows**2).sum(axis=0) / (2 * float(scale))
        self._compare("measure", losses.max(), before)

    def select(
        self, candidates: Sequence[Candidate], answers: Any, *, count: int = 1, **more: Any
    ) -> list[int]:
        self.kinds.add("select")
        before = self.remaining()
        with chosen() as here:
            picked = self.inner.select(candidates, answers, count=count, **more)
        losses = []
        for twin in self.twins:
            with chosen(picked) as there:
                twin.select(candidates, answers, count=count, **more)
            losses.append(self._choice(here[0], there[0], picked))
        self._compare("select", max(losses), before)
        return picked

    def _compare(self, kind: str, loss: float, before: Fraction) -> None:
        charged = float(before - self.remaining())
        if charged == 0 or loss > charged * ROUNDED:
            raise Undercharged(kind)
        self.most[kind] = max(self.most[kind], loss / charged)

    def _choice(self, here: Any, there: Any, picked: Sequence[int]) -> float:
        """The worst outcome of every draw (epsilon), or its bounded range (rho)."""
        loss, left = 0.0, list(range(len(here[0])))
        for each in picked:
            ratio = logs(here, left) - logs(there, left)
            wide = float(ratio.max() - ratio.min())
            loss += float(np.abs(ratio).max()) if self.noise == "laplace" else wide**2 / 8
            left.remove(each)
        return loss


def logs(given: tuple[Any, Fraction, int], left: list[int]) -> Any:
    """The logarithms of the chances of an exponential mechanism."""
    scores, epsilon, spread = given
    weights = np.array([float(epsilon) / spread * int(scores[i]) for i in left])
    return weights - np.logaddexp.reduce(weights)


@contextmanager
def recorded() -> Iterator[list[Fraction]]:
    """The scales of all noise that is drawn."""
    scales: list[Fraction] = []

    def of(draw: Callable[..., Any]) -> Callable[..., Any]:
        def watch(bits: Any, scale: Fraction, size: int) -> Any:
            scales.append(scale)
            return draw(bits, scale, size)

        return watch

    with pytest.MonkeyPatch.context() as patch:
        for name, draw in list(SAMPLERS.items()):
            patch.setitem(SAMPLERS, name, of(draw))
        yield scales


@contextmanager
def chosen(result: list[int] | None = None) -> Iterator[list[tuple[Any, Fraction, int]]]:
    """Scores, epsilon and spread of every selection; its outcome may be given."""
    seen: list[tuple[Any, Fraction, int]] = []

    def watch(bits: Any, scores: Any, epsilon: Fraction, spread: int, count: int) -> list[int]:
        seen.append((scores, epsilon, spread))
        return top_choices(bits, scores, epsilon, spread, count) if result is None else result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(look, "top_choices", watch)
        yield seen


PAIRS: list[Candidate] = [whole(DOMAIN, "a", "b"), whole(DOMAIN, "a"), whole(DOMAIN, "b")]
ROWS: list[Candidate] = [
    (Product({"a": Dense(np.array([row])), "b": Dense(np.array([column]))}),)
    for row in ([1, 0], [1, 1], [1, -1])
    for column in (*np.indices((2, 2, 2)).reshape(3, 8).T[1:], [64, 0, 1], [1, -1, 0], [0, 1, 2])
]
RANGES: list[Candidate] = [(Product({"b": Prefix(3)}),), (Product({"a": Prefix(2)}),)]
IN_ROUNDS = Rounds(5, 5)
RUNS: dict[str, tuple[list[Candidate], dict[str, Any], set[str]]] = {
    "mwem of rows": (ROWS, {"model": "mwem"}, {"total", "measure", "select"}),
    "mwem of tables": (PAIRS, {"model": "mwem"}, {"total", "measure", "select"}),
    "one table": (PAIRS[:1], {"model": "mwem"}, {"total", "measure"}),
    "pgm": (PAIRS, {"model": "pgm", "hint": 1.0}, {"measure", "select"}),
    "mixture": (PAIRS, {"model": "mixture", "hint": 1.0}, {"measure", "select"}),
    "rap of rows": (ROWS, {"model": "rap", "rounds": IN_ROUNDS}, {"total", "measure", "select"}),
    "rap at once": (ROWS, {"model": "rap"}, {"total", "measure"}),
    "rap of tables": (PAIRS, {"model": "rap"}, {"total", "measure"}),
    "fixed": (PAIRS, {"hint": 1e6}, {"measure"}),
    "fixed ranges": (RANGES, {"hint": 1e6, "matrix_rmse": 1.0}, {"measure", "total"}),
}
"""Queries, how to learn them, and every kind of look that is taken."""


def follow(name: str, noise: Noise, c: int) -> Losses:
    """Return the handle of one run. Raises: Undercharged."""
    candidates, options, _ = RUNS[name]
    task: Task = make_task(DOMAIN, candidates, noise, AMOUNT, **options)
    handle: Any = Losses(task.settings(), noise, c)
    run_task(task, handle)
    assert isinstance(handle, Losses)
    return handle


@pytest.mark.parametrize("c", [1, 3])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("name", RUNS)
def test_no_look_loses_more_than_it_is_charged(name: str, noise: Noise, c: int) -> None:
    handle = follow(name, noise, c)
    assert handle.kinds == RUNS[name][2]
    assert handle.remaining() == 0
    assert sum(amount for _, amount in handle.inner.spent) == AMOUNT
    assert handle.most["measure"] > 1 / ROUNDED


def half_noise(patch: pytest.MonkeyPatch) -> None:
    """Noise is drawn at half its scale, respectively variance."""
    patch.setattr(look, "round_up", lambda value: value / 2)


def one_row(patch: pytest.MonkeyPatch) -> None:
    """A privacy unit is taken for one row."""
    patch.setattr(look._Looker, "_c", 1)


def free_choices(patch: pytest.MonkeyPatch) -> None:
    """Selections are not charged."""
    spend = Filter.spend

    def skip(self: Filter, what: str, amount: Fraction) -> None:
        if what != "select":
            spend(self, what, amount)

    patch.setattr(Filter, "spend", skip)


def eager_choices(patch: pytest.MonkeyPatch) -> None:
    """A row is taken to change no score by more than one."""
    patch.setattr(sensitivity, "largest_column", lambda *_: 0)


EAGER = ("mwem of rows", "rap of rows", "pgm", "mixture")
"""Runs whose scores a row changes by more than one."""


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize(
    ("name", "fault"),
    [
        *itertools.product(RUNS, [half_noise, one_row]),
        *((name, free_choices) for name, run in RUNS.items() if "select" in run[2]),
        *((name, eager_choices) for name in EAGER),
    ],
)
def test_faults_are_found(
    name: str,
    fault: Callable[[pytest.MonkeyPatch], None],
    noise: Noise,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fault(monkeypatch)
    with pytest.raises(Undercharged):
        follow(name, noise, 3)
