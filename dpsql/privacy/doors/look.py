"""The membrane's second door: a run that looks several times, within what one receipt paid.

The first door, ``measure``, is for plans that were fixed beforehand. An adaptive mechanism chooses
what to measure by what it has seen, so it is given a handle: it asks, the handle looks, and a
filter adds up what every look costs. Only indices and noisy counts leave.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.blocks import Dense
from dpsql.algebra.operator import Floats, Integers
from dpsql.errors import InternalError
from dpsql.pgm.measurements import Measured, Query
from dpsql.privacy.budget.ledger import Receipt
from dpsql.privacy.doors.exact_counts import Tally, TrueAnswers
from dpsql.privacy.doors.privacy_filter import Filter, Run, require_amount
from dpsql.privacy.doors.sensitivity import (
    ProductRows,
    Reader,
    cut_score,
    integer_lists,
    integer_penalties,
    integer_weights,
    joint_norm,
    misused,
    root_down,
)
from dpsql.privacy.doors.vaults import Vaults
from dpsql.privacy.noise.entropy import Bits
from dpsql.privacy.noise.opendp_noise import certified
from dpsql.privacy.noise.samplers import discrete_laplace, sampler
from dpsql.privacy.noise.selection import above_threshold, exponential_mechanism, top_choices
from dpsql.strategy.base import round_up
from dpsql.strategy.noise_law import Noise, law
from dpsql.workload.cells import Nodes
from dpsql.workload.weights import block_unit
from dpsql.workload.workload import Product

T = TypeVar("T")


def open_handle(run: Run, receipt: Receipt, vaults: Vaults) -> TableHandle:
    """Use a receipt up and return the handle that it paid for.

    Args:
        run: tables, amount and noise, which the receipt pays for.
        receipt: used up, whatever becomes of the run.
        vaults: of the catalog.

    Raises: LedgerError (E_RECEIPT, E_FORK) unless the receipt is unused and for this run on the
    present data; InternalError when it paid less than the run may spend.
    Guarantee: all looks through the handle together are amount-DP, respectively amount-zCDP, for
    one privacy unit, however each was chosen by what others returned.
    """
    _redeem(run, receipt, vaults)
    return TableHandle(run, vaults)


def open_sums(run: Run, receipt: Receipt, vaults: Vaults) -> BinSumHandle:
    """Use a receipt up and return the handle on bins with public values that it paid for.

    Args:
        run: tables, amount, noise, and the public values of its bins in increasing order.
        receipt: used up, whatever becomes of the run.
        vaults: of the catalog.

    Raises and guarantee: as ``open_handle``; InternalError unless values do not decrease, are not
    negative and belong to the classes of one attribute.
    """
    values = np.asarray(run.values, dtype=np.int64)
    sizes = list(run.domain.values())
    if sizes != [values.size] or values.min(initial=0) < 0 or (np.diff(values) < 0).any():
        raise misused()
    _redeem(run, receipt, vaults)
    return BinSumHandle(run, vaults)


def _redeem(run: Run, receipt: Receipt, vaults: Vaults) -> None:
    receipt.redeem(run.fingerprint, vaults.versions([run.table]), run.noise)
    paid = law(run.noise).budget(receipt.epsilon, receipt.rho)
    vaults.check_unit(run.table, run.rows_per_unit)
    if paid is None or run.amount > paid or run.rows_per_unit < 1:
        raise InternalError("E_INTERNAL", "the run costs more than was paid; nothing was measured")


class _Looker:
    """The common part of both kinds of handle: a filter, true answers, and one joint release.

    Raises: BudgetExceeded, and releases nothing, for an amount above ``remaining()``;
    InternalError (E_INTERNAL) with a constant text for anything that goes wrong afterwards, and
    E_FORK in another process. What a failed look would have cost stays spent.
    """

    __slots__ = ("_backend", "_filter", "_reader", "_truth", "_vault")

    def __init__(self, run: Run, vaults: Vaults) -> None:
        self._filter, self._backend = Filter(run), vaults.backend
        self._vault = vaults.narrowed(run.table, run.rows)
        self._reader = Reader(run.domain)
        self._truth = TrueAnswers(self._vault, run.classes)
        if run.view is not None:
            self._truth = Tally(self._vault, (run.view.levels, *run.view.within))

    @property
    def noise(self) -> Noise:
        """The noise law, which fixes the currency of the budget."""
        return self._filter.noise

    @property
    def spent(self) -> tuple[tuple[str, Fraction], ...]:
        """The cost of every look, in order."""
        return self._filter.spent

    def remaining(self) -> Fraction:
        """Return the epsilon or rho that is left."""
        return self._filter.remaining()

    def close(self) -> None:
        """Forget the data and what is left of the budget."""
        self._truth.close()
        self._filter.forfeit()

    def __repr__(self) -> str:
        return repr(self._filter)

    def __reduce__(self) -> Any:
        raise misused()

    @property
    def _c(self) -> int:
        return self._filter.run.rows_per_unit

    def _read(self, candidates: Sequence[Query]) -> list[tuple[ProductRows, ...]]:
        if len(candidates) == 0:
            raise misused()
        return [self._reader.read(candidate) for candidate in candidates]

    def _release(self, what: str, candidates: Sequence[Query], amount: Fraction) -> list[Measured]:
        pieces = self._read(candidates)
        norm = joint_norm(pieces, self._reader.domain, law(self.noise).norm)
        noisy, stddev = self._draw(what, pieces, norm, self._c, self._truth, amount)
        return [
            Measured.of(candidate, np.array(values, dtype=np.float64), stddev, self.noise)
            for candidate, values in zip(candidates, noisy, strict=True)
        ]

    def _draw(
        self,
        what: str,
        pieces: Sequence[tuple[ProductRows, ...]],
        norm: int,
        unit: int,
        truth: TrueAnswers,
        amount: Fraction,
    ) -> tuple[list[NDArray[Any]], float]:
        """Noisy answers and the deviation of their noise.

        A privacy unit moves the columns of the rows, whose largest norm is given, by ``unit``.
        """
        require_amount(amount)
        noise = law(self.noise)
        sensitivity = unit**noise.norm * norm
        scale = round_up(noise.scale(sensitivity, amount))
        stddev = noise.stddev(float(scale))
        backend = certified(self.noise, sensitivity, scale) if self._backend == "opendp" else None
        # All that public facts refuse is refused by now. From here on the amount is gone, whatever
        # happens: whether a look fails may depend on rows.
        self._filter.spend(what, amount)

        def look() -> list[NDArray[Any]]:
            true = [truth.answer(each) for each in pieces]
            if backend is not None:
                return [backend.release(each) for each in true]
            bits = Bits()
            draw = sampler(self.noise)
            return [each + draw(bits, scale, each.size) for each in true]

        return sealed_look(look), stddev


class TableHandle(_Looker):
    """A ``dpsql.pgm.measurements.Handle`` over one private table; made by ``open_handle`` alone."""

    __slots__ = ()

    @property
    def domain(self) -> Mapping[str, int]:
        """Attribute to number of cells, in domain order."""
        return self._reader.domain

    def total(self, amount: Fraction) -> Measured:
        """Return the noisy number of rows."""
        return self._release("total", [(Product({}),)], amount)[0]

    def measure(self, candidates: Sequence[Query], amount: Fraction) -> list[Measured]:
        """Return noisy answers of all candidates, released together.

        Guarantee: independent noise of one scale, from the joint sensitivity of the integer rows
        of all candidates: amount-DP or amount-zCDP.
        """
        return self._release("measure", candidates, amount)

    def select(
        self,
        candidates: Sequence[Query],
        answers: Sequence[Floats],
        *,
        penalties: Sequence[float] | None = None,
        weights: Sequence[Fraction] | None = None,
        count: int = 1,
        amount: Fraction,
    ) -> list[int]:
        """Return ``count`` distinct indices of candidates that a model answers badly.

        The score of candidate i is weight_i (||true_i - round(answers_i)||_1 - penalty_i), with
        weights and penalties rounded to integers, and changes by at most weight_i times the L1
        norm of the candidate's columns for each row.

        Args:
            candidates: queries to choose from, each in integer rows.
            answers: (rows,) of each candidate, of a model; public, since made of what was released.
            penalties: per candidate, in rows of data; None for 0.
            weights: per candidate, None for 1 each.
            count: distinct candidates that are drawn; each gets an equal part of the amount.
            amount: epsilon or rho, by the noise of the run; taken off what the run may spend.

        Guarantee: each draw is an exponential mechanism of epsilon = amount / count, or of
        epsilon^2 / 8 <= amount / count: together amount-DP, respectively amount-zCDP.
        """
        pieces = self._read(candidates)
        factors = integer_weights(weights, len(candidates))
        offsets = integer_penalties(penalties, len(candidates))
        rounded = integer_lists(answers, [each[0].rows for each in pieces])
        if not 0 < count <= len(candidates):
            raise misused()
        norms = [self._reader.largest_column(each) for each in pieces]
        reach = max(f * norm for f, norm in zip(factors, norms, strict=True))
        spread = 2 * self._c * max(1, reach)
        self._filter.spend("select", amount)
        each = amount / count
        epsilon = each if law(self.noise).is_pure else root_down(8 * each)

        def choose() -> list[int]:
            gaps = self._truth.distances(pieces, rounded)
            terms = zip(factors, gaps, offsets, strict=True)
            scores = np.array([cut_score(f * (gap - offset)) for f, gap, offset in terms], np.int64)
            return top_choices(Bits(), scores, epsilon, spread, count)

        return sealed_look(choose)


class BinSumHandle(_Looker):
    """A ``dpsql.pgm.measurements.SumHandle`` over the bins of one column; made by ``open_sums``.

    A choice of threshold that is epsilon-DP costs epsilon, or epsilon^2/2 of rho (Bun and Steinke
    2016); ``quantile`` costs epsilon^2/8 of rho (Cesar and Rogers 2021).
    """

    __slots__ = ()

    @property
    def values(self) -> Integers:
        """The public value of every bin, non-decreasing and non-negative, shape (m,)."""
        return np.array(self._filter.run.values, dtype=np.int64)

    def first_below(
        self, thresholds: Sequence[int], count: int, amount: Fraction, upto: int | None = None
    ) -> int | None:
        """Return the first index where noisily at most ``count`` rows are above, by SVT.

        Args:
            thresholds: (looks,), whole and public, in the order in which they are tried.
            count: rows that may be above.
            amount: epsilon or rho of the whole search, however many thresholds it tries.
            upto: clips the values of bins; None leaves them as they are.

        Guarantee: one row moves every ``count - above`` by an amount in [-1, 0].
        """
        levels, k = self._levels(thresholds, upto), checked_integer(count)
        epsilon = self._charge("first_below", amount, 2)

        def look() -> int | None:
            scores = [k - each for each in self._above(levels, upto)]
            return above_threshold(Bits(), scores, 0, epsilon, self._c, 0)

        return sealed_look(look)

    def first_covering(
        self, thresholds: Sequence[int], ratio: Fraction, amount: Fraction, upto: int | None = None
    ) -> int | None:
        """Return the first index where noisily a ``ratio`` of the rows is not above, by SVT.

        Args:
            thresholds: (looks,), whole and public, in the order in which they are tried.
            ratio: part of the rows, 0 to 1, as an exact fraction.
            amount: epsilon or rho of the whole search, however many thresholds it tries.
            upto: only bins with values of at most this count; None for all.

        Guarantee: with ratio p/q, one row moves every q (n - above) - p n by an amount in
        [-p, q - p]; the private n costs nothing more.
        """
        levels = self._levels(thresholds, upto)
        if not isinstance(ratio, Fraction) or not 0 <= ratio <= 1:
            raise misused()
        p, q = ratio.numerator, ratio.denominator
        epsilon = self._charge("first_covering", amount, 2)

        def look() -> int | None:
            n = int(self._counts(upto).sum())
            scores = [q * (n - each) - p * n for each in self._above(levels, upto)]
            return above_threshold(Bits(), scores, 0, epsilon, self._c * p, self._c * (q - p))

        return sealed_look(look)

    def recursive(
        self, thresholds: Sequence[int], amount: Fraction, upto: int | None = None
    ) -> int:
        """Return, with noise, the least i such that at most i rows are above thresholds[i].

        Args:
            thresholds: (looks,), whole, public and not decreasing.
            amount: epsilon or rho of the look.
            upto: only bins with values of at most this count; None for all.

        Guarantee: thresholds do not decrease, so one row more leaves it or raises it by one.
        Source: Chen and Zhou 2013.
        """
        levels = self._levels(thresholds, upto)
        if (np.diff(levels) < 0).any():
            raise misused()
        epsilon = self._charge("recursive", amount, 2)

        def look() -> int:
            above = self._above(levels, upto)
            least = next((i for i, each in enumerate(above) if each <= i), len(above))
            noisy = least + int(discrete_laplace(Bits(), round_up(self._c / epsilon), 1)[0])
            return min(max(noisy, 0), len(above) - 1)

        return sealed_look(look)

    def quantile(
        self,
        thresholds: Sequence[int],
        count: int,
        amount: Fraction,
        upto: int | None = None,
        falling: int = 0,
    ) -> int:
        """Return an index with about ``count`` rows above, by the exponential mechanism.

        Args:
            thresholds: (looks,), whole and public; positive unless ``falling`` is 0.
            count: rows that should be above.
            amount: epsilon or rho of the look.
            upto: only bins with values of at most this count; None for all.
            falling: power of the thresholds by which chances fall.

        Guarantee: one row moves every -abs(above - count) by at most 1; what is taken off it is a
        whole number that public facts decide.
        """
        levels, k, power = (
            self._levels(thresholds, upto),
            checked_integer(count),
            checked_integer(falling),
        )
        if power and levels.min() < 1:
            raise misused()
        epsilon = self._charge("quantile", amount, 8)
        spread = 2 * self._c
        logs = np.log(levels / levels[0]) if power else np.zeros(len(levels))
        offsets = [round(power * float(each) * spread / epsilon) for each in logs]

        def look() -> int:
            pairs = zip(self._above(levels, upto), offsets, strict=True)
            scores = [-abs(each - k) - offset for each, offset in pairs]
            return exponential_mechanism(Bits(), scores, epsilon, spread)

        return sealed_look(look)

    def measure(self, rows: Integers, amount: Fraction) -> Measured:
        """Return noisy answers of integer rows over the bins, shape (r, m), released together.

        Guarantee: noise from the exact largest column norm: amount-DP or amount-zCDP.
        """
        given = np.asarray(rows)
        if given.ndim != 2 or given.dtype.kind not in "iu":
            raise misused()
        (name,) = self._reader.domain
        view = self._filter.run.view
        if view is not None and view.spread is not None:
            return self.spread(view.spread, given, amount)
        candidate = (Product({name: Dense(given.astype(np.int64))}),)
        return self._release("measure", [candidate], amount)[0]

    def spread(self, nodes: Nodes, rows: Integers, amount: Fraction) -> Measured:
        """Return noisy answers of integer rows over nodes of the column, shape (r, nodes).

        Answers are in rows of data, of which each adds one in total to its nodes.

        Args:
            nodes: resolution of the column, whose nodes each row of data is split between.
            rows: (r, nodes), integers.
            amount: epsilon or rho of the measurement.

        Guarantee: the weights of a row are a convex combination of ``block_unit`` cells, so noise
        from the exact largest column norm times the unit: amount-DP or amount-zCDP.
        """
        (name,), view, given = self._reader.domain, self._filter.run.view, np.asarray(rows)
        if view is None or nodes.column != name or given.ndim != 2:
            raise misused()
        reader = Reader({name: nodes.size})
        candidate = (Product({name: Dense(given.astype(np.int64))}),)
        pieces = [reader.read(candidate)]
        norm = joint_norm(pieces, reader.domain, law(self.noise).norm)
        truth = Tally(self._vault, (nodes, *view.within))
        one = block_unit((nodes, *view.within))
        (noisy,), stddev = self._draw("measure", pieces, norm, self._c * one, truth, amount)
        values = np.array([int(each) / one for each in noisy], dtype=np.float64)
        return Measured(candidate, values, stddev / one, self.noise)

    def _charge(self, what: str, amount: Fraction, rate: int) -> Fraction:
        """Spend an amount and return its epsilon; under zCDP epsilon^2 / rate costs it."""
        self._filter.spend(what, amount)
        return amount if law(self.noise).is_pure else root_down(rate * amount)

    def _levels(self, thresholds: Sequence[int], upto: int | None) -> Integers:
        size = len(self._filter.run.values)
        if len(thresholds) == 0 or not (upto is None or 0 <= checked_integer(upto) <= size):
            raise misused()
        return np.array([checked_integer(each) for each in thresholds], dtype=np.int64)

    def _counts(self, upto: int | None) -> NDArray[Any]:
        (name,) = self._reader.domain
        return self._truth.marginal((name,))[:upto]

    def _above(self, levels: Integers, upto: int | None) -> list[int]:
        """The number of rows above every level, in bins before ``upto``."""
        counts = self._counts(upto)
        tail = np.append(np.cumsum(counts[::-1])[::-1], 0)
        places = np.searchsorted(self.values[:upto], levels, side="right")
        return [int(each) for each in tail[places]]


def checked_integer(number: int) -> int:
    """Return a public whole number below 2^62. Raises: InternalError for anything else."""
    if isinstance(number, bool | np.bool_) or not isinstance(number, int | np.integer):
        raise misused()
    if abs(int(number)) >= 2**62:
        raise misused()
    return int(number)


def sealed_look(look: Callable[[], T]) -> T:
    """Run a look; whatever it raises becomes one constant error that carries no trace of it."""
    with suppress(Exception):
        return look()
    # Raised outside of the handler, where no context would hold rows.
    raise InternalError("E_INTERNAL", "the look failed; what it costs stays spent")
