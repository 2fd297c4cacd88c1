"""The proof that a release was paid for: made by a debit, good for one measurement."""

from __future__ import annotations

import os
import threading
from fractions import Fraction
from typing import NoReturn

from dpsql.errors import LedgerError
from dpsql.forks import fresh
from dpsql.privacy.budget.accounting import Cost
from dpsql.records import InitVar, dataclass, field
from dpsql.strategy.noise_law import Noise

_TOKEN = object()
# A receipt is used once, whichever of two threads comes first: else one debit pays for two draws.
_lock = fresh(threading.Lock())
_open: set[str] = set()


@dataclass(frozen=True, slots=True)
class Receipt:
    """A durable debit, bound to one plan, noise law and data version.

    ``seq`` and ``head`` are the place and hash of the debit in the ledger's chain; whoever keeps
    them can prove a later rollback. Only a ledger can make one.
    Raises: LedgerError E_RECEIPT when anything else tries to.
    """

    ledger_id: str
    seq: int
    head: str
    plan_hash: str
    data_version: str
    cost: Cost
    token: InitVar[object]
    _pid: int = field(init=False, repr=False, compare=False)

    def __post_init__(self, token: object) -> None:
        if token is not _TOKEN:
            raise LedgerError("E_RECEIPT", "only a debit makes a receipt")
        object.__setattr__(self, "_pid", os.getpid())
        with _lock:
            _open.add(self.head)

    @property
    def noise(self) -> Noise:
        """The noise law that was paid for."""
        return self.cost.noise

    @property
    def epsilon(self) -> Fraction:
        """The epsilon that was asked for."""
        return self.cost.epsilon

    @property
    def rho(self) -> Fraction | None:
        """The zCDP parameter that was paid for, when the noise is Gaussian."""
        return self.cost.rho

    def redeem(self, plan_hash: str, data_version: str, noise: Noise | None = None) -> None:
        """Use the receipt up; after this, or after a wrong attempt, it is worthless.

        Args:
            plan_hash: fingerprint of the plan that is to be measured.
            data_version: of the sources as they are now.
            noise: of the plan; None where only plan and data are compared.

        Raises: LedgerError E_RECEIPT when used before or not for this measurement, E_FORK in
        another process than the one that paid.
        """
        if os.getpid() != self._pid:
            raise LedgerError("E_FORK", "a receipt cannot be used in a forked process")
        with _lock:
            unused = self.head in _open
            _open.discard(self.head)
        if not unused:
            raise LedgerError("E_RECEIPT", "this receipt has been used")
        paid = (self.plan_hash, self.data_version, self.noise)
        if paid != (plan_hash, data_version, self.noise if noise is None else noise):
            raise LedgerError("E_RECEIPT", "this receipt is for another measurement")

    def __copy__(self) -> NoReturn:
        raise LedgerError("E_RECEIPT", "a receipt cannot be copied")

    def __deepcopy__(self, memo: object) -> NoReturn:
        self.__copy__()

    def __reduce__(self) -> NoReturn:
        self.__copy__()


def issue(
    ledger_id: str, seq: int, head: str, plan_hash: str, data_version: str, cost: Cost
) -> Receipt:
    """Make a receipt; for Ledger.debit alone, after its commit is durable.

    Args:
        ledger_id: of the ledger that was charged.
        seq, head: number and hash of the debit, by which a receipt is used once.
        plan_hash: fingerprint of the plan that was paid for.
        data_version: of the sources that may be measured.
        cost: that was charged.
    """
    return Receipt(ledger_id, seq, head, plan_hash, data_version, cost, _TOKEN)
