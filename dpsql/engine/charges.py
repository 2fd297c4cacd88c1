"""Charges: from the debit to the stored release is one step, which an interrupt waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import TypeVar

from dpsql.errors import Interrupted, OperationalError, decimal_text
from dpsql.interrupts import HoldInterrupts, InterruptWatch, check
from dpsql.privacy.budget.accounting import Cost
from dpsql.privacy.budget.hash_chain import Cause
from dpsql.privacy.budget.ledger import Ledger, Receipt
from dpsql.records import dataclass, replace

T = TypeVar("T")


class DryRunDone(BaseException):
    """A run was taken as far as its first charge, and nothing refused it; no fault of anybody."""


@dataclass(slots=True)
class Charges:
    """Charges begun and made so far, their epsilon, and how much of it is stored for.

    Stored is what came of a charge: a release, a threshold or a model. ``source`` names the file
    that the statements came from, if any. ``most`` is what ``epsilon`` may come to, None without
    a bound: a price was shown.
    """

    begun: int = 0
    made: int = 0
    epsilon: Fraction = Fraction(0)
    stored: Fraction = Fraction(0)
    source: str = ""
    most: Fraction | None = None

    @contextmanager
    def at_most(self, epsilon: Fraction) -> Iterator[None]:
        """Have all that is charged meanwhile cost no more than a price that was shown."""
        self.most = self.epsilon + epsilon
        try:
            yield
        finally:
            self.most = None

    def refuse_dearer(self, cost: Cost) -> None:
        """Refuse a charge beyond the price that was shown. Raises: OperationalError (E_PRICE)."""
        if self.most is None or self.epsilon + cost.epsilon <= self.most:
            return
        shown = decimal_text(max(Fraction(0), self.most - self.epsilon))
        raise OperationalError(
            "E_PRICE",
            f"it would cost epsilon {decimal_text(cost.epsilon)}, not {shown} as was shown",
            hint="nothing was charged for it; look at its forecast, and run it again",
        )

    @contextmanager
    def paid(
        self,
        ledger: Ledger,
        cost: Cost,
        fingerprint: str,
        version: str,
        within: tuple[str, ...],
        asked: tuple[str, ...],
    ) -> Iterator[Receipt]:
        """Debit a cost around the work that it pays for and that stores what comes of it.

        ``asked`` are the statements that it is for.

        Guarantee: the ledger says "released" only where the work has ended without an error.
        Raises: as ``Ledger.debit`` and the work; KeyboardInterrupt before the debit, where nothing
        is charged, or after all of it.
        """
        with HoldInterrupts():
            check()
            self.begun += 1
            receipt = ledger.debit(cost, fingerprint, version, within, Cause(asked, self.source))
            self.made += 1
            self.epsilon += cost.epsilon
            try:
                yield receipt
            except BaseException:
                ledger.settle(receipt, "failed")
                raise
            self.stored += cost.epsilon
            ledger.settle(receipt, "released")

    def since(self, before: Charges) -> str:
        """Say what became of the charges after ``before``."""
        if self.made > before.made:
            return "the charge stands"
        return "a charge already made stays" if self.begun > before.begun else "nothing was charged"

    def interrupted(self, before: Charges) -> Interrupted:
        """Return the interrupt as it is told, by the charges after ``before``."""
        charged = self.epsilon - before.epsilon
        return Interrupted(charged, charged - (self.stored - before.stored))


def interruptible(work: Callable[[], T], charges: Charges) -> T:
    """Run a statement; an interrupt, or whatever a library made of one, says what was charged.

    Raises: Interrupted.
    """
    before = replace(charges)
    try:
        with InterruptWatch() as watch:
            try:
                return work()
            except Exception:
                if not watch.interrupted:
                    raise
    except KeyboardInterrupt:
        pass  # one that comes while the watch begins or ends is told as well
    raise charges.interrupted(before)
