"""The ways in which a ledger refuses to work."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from dpsql.errors import BudgetExceeded, DataError, LedgerError
from dpsql.files import HELD, MANY_OPEN, file_trouble
from dpsql.privacy.budget.accounting import Cost

LONGEST_NAME = 4096
"""Characters of a fingerprint or version in an entry; they are hashes and short lists of them."""


def tampered(what: str) -> LedgerError:
    """Return the error for a ledger that contradicts itself."""
    return LedgerError(
        "E_LEDGER_TAMPERED",
        f"the ledger has been altered: {what}",
        hint="restore it from a copy that verifies, together with its anchor",
    )


def unchangeable(why: str, hint: str) -> LedgerError:
    """Return the error for a change of catalog that a ledger cannot follow; ``hint`` mends it."""
    what = f"the ledger cannot follow this change: {why}"
    return LedgerError("E_POLICY_CHANGED", what, hint=hint)


def policy_changed(what: str = "", refused: LedgerError | None = None) -> LedgerError:
    """Return the error for a catalog that is not the one in force, with what has changed.

    ``refused`` is what would hinder the curator from accepting the change.
    """
    hint = "undo the change, or let the curator run: dpsql ledger migrate"
    if refused is not None:
        hint = f"{hint}; before that {refused.hint}, since {refused.message}"
    return LedgerError(
        "E_POLICY_CHANGED",
        f"the catalog is not the one this ledger was created for{what and ': '}{what}",
        hint=hint,
    )


def existing() -> LedgerError:
    """Return the error for a place that a ledger has, or had."""
    return LedgerError(
        "E_LEDGER_EXISTS",
        "there is, or was, a ledger at this path",
        hint="open it, or restore it if only its anchor is left",
    )


def forked() -> LedgerError:
    """Return the error for a handle that a forked process has inherited."""
    return LedgerError("E_FORK", "a ledger cannot be used in a forked process; open it there")


def changed_meanwhile() -> LedgerError:
    """Return the error for a debit under a catalog that is no longer in force."""
    return LedgerError(
        "E_POLICY_CHANGED",
        "the catalog or its budget has been changed since it was opened",
        hint="connect again",
    )


def undiscoverable(wanted: Fraction, left: Fraction) -> BudgetExceeded:
    """Return the error for keys whose release needs more delta than is left for it."""
    refused = BudgetExceeded(wanted, left, "discovery_delta")
    refused.hint = (
        "nothing was charged; a request takes a tenth of discovery_delta in [budget] at most, or "
        "as large a part as it does of epsilon; of their equal shares where analysts are declared"
    )
    return refused


def older(anchor: Path) -> LedgerError:
    """Return the error for a ledger that lacks what its anchor has seen."""
    return LedgerError(
        "E_LEDGER_ROLLBACK",
        "the ledger has been replaced: it is older than its anchor",
        hint="restore the newest copy; a curator who has none charges this one up to the sums in "
        f"{anchor} with `dpsql ledger recover`",
    )


def unvouched() -> LedgerError:
    """Return the error for a ledger without an anchor: nobody knows whether it is the newest."""
    return LedgerError(
        "E_LEDGER_ROLLBACK",
        "the ledger has been moved: it has entries, but no anchor vouches for it",
        hint="restore the newest copy; a curator who knows that this is it can accept it with"
        " `dpsql ledger adopt`",
    )


def unrecoverable(why: str) -> LedgerError:
    """Return the error for an old ledger of which nobody knows what was spent since."""
    return LedgerError(
        "E_LEDGER_ROLLBACK",
        f"the ledger cannot be charged up to what was spent since: {why}",
        hint="restore the newest copy, or its anchor; a curator who has neither, and knows what "
        "was spent, removes the anchor and accepts this copy with `dpsql ledger adopt`",
    )


def missing() -> LedgerError:
    """Return the error for a ledger that is no longer there."""
    return LedgerError(
        "E_LEDGER_MISSING",
        "the ledger of this catalog is missing",
        hint="restore it; without it nothing is known about what was spent",
    )


def foreign() -> LedgerError:
    """Return the error for a ledger with another name than expected here."""
    return LedgerError(
        "E_LEDGER_MISMATCH",
        "the ledger belongs to another catalog",
        hint="put the ledger of this catalog back",
    )


def unwritable(error: Exception | None = None) -> LedgerError:
    """Return the error for a ledger that the operating system does not let work."""
    trouble = None if error is None else file_trouble(error)
    what = "the ledger cannot be read or written durably"
    hint = (
        "the folders of the catalog and of the anchor (by default in ~/.local/state, or "
        "XDG_STATE_HOME) must be writable and not full"
    )
    if trouble in (HELD, MANY_OPEN):
        hint = trouble.hint
    return LedgerError(
        "E_LEDGER_IO",
        what if trouble is None else f"{what}: {trouble.what}",
        hint=hint,
    )


def unusable(error: OSError) -> LedgerError:
    """Return the error for a failure of the operating system."""
    if isinstance(error, FileExistsError):
        return LedgerError("E_LEDGER_EXISTS", "there is a ledger at this path")
    return unwritable(error)


def check_request(cost: Cost, *names: str) -> None:
    """Refuse what is not a cost, and names that an entry could not hold unambiguously.

    Raises: DataError (E_EPSILON); LedgerError (E_LEDGER_IO).
    """
    if not isinstance(cost, Cost):
        raise DataError("E_EPSILON", "a cost must be a positive whole number of units")
    cost.check()
    check_names(*names)


def check_names(*names: object) -> None:
    """Refuse names that an entry could not hold. Raises: LedgerError (E_LEDGER_IO)."""
    if not all(isinstance(name, str) and _is_plain(name) for name in names):
        raise LedgerError("E_LEDGER_IO", "a name in a ledger is short and printable")


def _is_plain(name: str) -> bool:
    return 0 < len(name) <= LONGEST_NAME and name.isprintable()
