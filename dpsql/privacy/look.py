"""The membrane's second door: a run that looks several times, within what one receipt paid.

The other door measures a plan that was fixed beforehand. An adaptive mechanism chooses what to
measure by what it has seen, so it is given a handle: it asks, the handle looks, and a filter adds
up what every look costs. Only indices and noisy counts leave.
"""

from __future__ import annotations

import hashlib
import math
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpsql.adaptive.handle import Candidate, Floats, Measured, Noise
from dpsql.errors import BudgetExceeded, InternalError
from dpsql.plan.strategy import round_up
from dpsql.plan.workload import Product
from dpsql.privacy.entropy import Bits
from dpsql.privacy.ledger import Receipt
from dpsql.privacy.measure import Vaults
from dpsql.privacy.noise import discrete_gaussian, discrete_laplace
from dpsql.privacy.norms import Piece, Reader, joint_norm, largest_column
from dpsql.privacy.opendp_noise import certified
from dpsql.privacy.selection import top_choices
from dpsql.privacy.truth import Truth
from dpsql.privacy.vault.base import Vault
from dpsql.privacy.whole import misused, root_down, whole_lists, whole_penalties, whole_weights

T = TypeVar("T")

DRAWS = {"laplace": discrete_laplace, "gaussian": discrete_gaussian}


@dataclass(frozen=True, slots=True)
class Run:
    """The public facts of one adaptive run, fixed before it is paid.

    ``classes`` gives, per attribute in domain order, the class of every declared cell, or -1 for
    rows to leave out. ``amount`` is the epsilon ("laplace") or rho ("gaussian") of the whole run,
    for a privacy unit of at most ``rows_per_unit`` rows. ``settings`` is the canonical text of
    every public setting of the mechanism.
    """

    table: str
    classes: Mapping[str, NDArray[np.int64]]
    noise: Noise
    amount: Fraction
    rows_per_unit: int
    settings: str

    @property
    def domain(self) -> dict[str, int]:
        """Attribute to number of classes."""
        return {name: int(each.max(initial=-1)) + 1 for name, each in self.classes.items()}

    @property
    def fingerprint(self) -> str:
        """A digest of everything the run was paid for."""
        facts = (self.table, self.noise, str(self.amount), self.rows_per_unit, self.settings)
        digest = hashlib.sha256(repr(("adaptive", *facts, list(self.classes))).encode())
        for each in self.classes.values():
            cells = np.ascontiguousarray(each, dtype=np.int64)
            digest.update(repr(cells.shape).encode() + cells.tobytes())
        return digest.hexdigest()


def open_handle(run: Run, receipt: Receipt, vaults: Vaults) -> Looks:
    """Use a receipt up and return the handle that it paid for.

    Raises: LedgerError (E_RECEIPT, E_FORK) unless the receipt is unused and for this run on the
    present data; InternalError when it paid less than the run may spend.
    Guarantee: all looks through the handle together are amount-DP, respectively amount-zCDP, for
    one privacy unit, however each was chosen by what others returned.
    """
    receipt.redeem(run.fingerprint, vaults.versions([run.table]), run.noise)
    paid = receipt.epsilon if run.noise == "laplace" else receipt.rho
    if paid is None or run.amount > paid or run.rows_per_unit < 1:
        raise InternalError("E_INTERNAL", "the run costs more than was paid; nothing was measured")
    return Looks(run, vaults[run.table], vaults.backend)


class Looks:
    """A ``dpsql.adaptive.handle.Handle`` over one private table; made by ``open_handle`` alone.

    Raises: BudgetExceeded, and releases nothing, for an amount above ``remaining()``;
    InternalError (E_INTERNAL) with a constant text for anything that goes wrong afterwards, and
    E_FORK in another process. What a failed look would have cost stays spent.
    """

    __slots__ = ("_backend", "_left", "_lock", "_pid", "_reader", "_run", "_spent", "_truth")

    def __init__(self, run: Run, vault: Vault, backend: str) -> None:
        self._run = run
        self._backend = backend
        self._reader = Reader(run.domain)
        self._truth = Truth(vault, run.classes)
        self._left = run.amount
        self._spent: list[tuple[str, Fraction]] = []
        self._lock = threading.Lock()
        self._pid = os.getpid()

    @property
    def domain(self) -> Mapping[str, int]:
        """Attribute to number of cells, in domain order."""
        return self._reader.domain

    @property
    def noise(self) -> Noise:
        """The noise law, which fixes the currency of the budget."""
        return self._run.noise

    @property
    def spent(self) -> tuple[tuple[str, Fraction], ...]:
        """What every look has cost, in order."""
        return tuple(self._spent)

    def remaining(self) -> Fraction:
        """Return the epsilon or rho that is left."""
        return self._left

    def total(self, amount: Fraction) -> Measured:
        """Return the noisy number of rows."""
        return self._release("total", [(Product({}),)], amount)[0]

    def measure(self, candidates: Sequence[Candidate], amount: Fraction) -> list[Measured]:
        """Return noisy answers of all candidates, released together.

        Guarantee: independent noise of one scale, from the joint sensitivity of the integer rows
        of all candidates: amount-DP or amount-zCDP.
        """
        return self._release("measure", candidates, amount)

    def select(
        self,
        candidates: Sequence[Candidate],
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
        Guarantee: each draw is an exponential mechanism of epsilon = amount / count, or of
        epsilon^2 / 8 <= amount / count: together amount-DP, respectively amount-zCDP.
        """
        pieces = self._read(candidates)
        factors = whole_weights(weights, len(candidates))
        offsets = whole_penalties(penalties, len(candidates))
        rounded = whole_lists(answers, [each[0].rows for each in pieces])
        if not 0 < count <= len(candidates):
            raise misused()
        norms = [largest_column(each, self.domain) for each in pieces]
        reach = max(f * norm for f, norm in zip(factors, norms, strict=True))
        spread = 2 * self._run.rows_per_unit * max(1, reach)
        self._spend("select", amount)
        each = amount / count
        epsilon = each if self.noise == "laplace" else root_down(8 * each)

        def choose() -> list[int]:
            gaps = self._truth.distances(pieces, rounded)
            terms = zip(factors, gaps, offsets, strict=True)
            scores = np.array([f * (gap - offset) for f, gap, offset in terms], dtype=object)
            return top_choices(Bits(), scores, epsilon, spread, count)

        return sealed_look(choose)

    def close(self) -> None:
        """Forget the data and what is left of the budget."""
        self._truth.close()
        with self._lock:
            self._left = Fraction(0)

    def _release(
        self, what: str, candidates: Sequence[Candidate], amount: Fraction
    ) -> list[Measured]:
        pieces = self._read(candidates)
        norm = joint_norm(pieces, self.domain, self.noise)
        c = self._run.rows_per_unit
        self._require(amount)
        if self.noise == "laplace":
            sensitivity, scale = c * norm, round_up(c * norm / amount)
            stddev = math.sqrt(2) * float(scale)
        else:
            sensitivity, scale = c * c * norm, round_up(c * c * norm / (2 * amount))
            stddev = math.sqrt(scale)
        backend = certified(self.noise, sensitivity, scale) if self._backend == "opendp" else None
        self._spend(what, amount)

        def look() -> list[NDArray[Any]]:
            true = [self._truth.answer(each) for each in pieces]
            if backend is not None:
                return [backend.release(each) for each in true]
            draw, bits = DRAWS[self.noise], Bits()
            return [each + draw(bits, scale, each.size) for each in true]

        noisy = sealed_look(look)
        return [
            Measured(candidate, np.array(values, dtype=np.float64), stddev, self.noise)
            for candidate, values in zip(candidates, noisy, strict=True)
        ]

    def _read(self, candidates: Sequence[Candidate]) -> list[tuple[Piece, ...]]:
        if len(candidates) == 0:
            raise misused()
        return [self._reader.read(candidate) for candidate in candidates]

    def _require(self, amount: Fraction) -> None:
        if not isinstance(amount, Fraction) or amount <= 0:
            raise misused()

    def _spend(self, what: str, amount: Fraction) -> None:
        """Charge the filter, before anything is looked at."""
        if os.getpid() != self._pid:
            raise InternalError("E_FORK", "a handle cannot be used in a forked process")
        self._require(amount)
        with self._lock:
            if amount > self._left:
                kind = "epsilon" if self.noise == "laplace" else "rho"
                raise BudgetExceeded(amount, self._left, f"{kind} of this run")
            self._left -= amount
            self._spent.append((what, amount))

    def __repr__(self) -> str:
        return f"<handle on {self._run.table}>"

    def __copy__(self) -> NoReturn:
        raise misused()

    def __deepcopy__(self, memo: object) -> NoReturn:
        raise misused()

    def __reduce__(self) -> NoReturn:
        raise misused()


def sealed_look(look: Callable[[], T]) -> T:
    """Run a look; whatever it raises becomes one constant error that carries no trace of it."""
    try:
        return look()
    except Exception:
        pass
    raise InternalError("E_INTERNAL", "the look failed; what it costs stays spent")
