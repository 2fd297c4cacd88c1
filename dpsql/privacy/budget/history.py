"""The ledger as a history: what every entry changed, and what was left after it.

It can be read whatever has become of the catalog: nothing here decides what may be released.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from fractions import Fraction
from pathlib import Path

from dpsql.amounts import UNITS
from dpsql.errors import LedgerError, decimal_text
from dpsql.files import exclusive, is_read_only, journal_of
from dpsql.privacy.budget import ledger_file
from dpsql.privacy.budget.hash_chain import (
    WHOLE,
    BudgetTerms,
    Entry,
    State,
    budget_text,
    first_state,
    read_terms,
)
from dpsql.privacy.budget.refusals import missing, unusable
from dpsql.records import dataclass

MOST = 8
"""Parts of a catalog that are named; of more their number is told."""


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """An entry, what it changed of the budgets and the catalog, and the budgets after it.

    ``state`` is None from where the entries contradict each other on.
    """

    entry: Entry
    change: str
    state: State | None

    def left(self, name: str = WHOLE) -> Fraction | None:
        """The largest epsilon of one more request that a budget admits after this."""
        if self.state is None or name not in self.state.terms.budgets:
            return None
        return self.state.spent_in(name).largest_pure(self.state.terms.budgets[name])

    def total(self, name: str = WHOLE) -> Fraction | None:
        """The epsilon of a budget after this."""
        known = {} if self.state is None else self.state.terms.budgets
        return known[name].epsilon if name in known else None


def read_entries(path: Path) -> tuple[Entry, ...]:
    """The entries of a ledger as they stand, unverified, also where it may only be read.

    Raises: LedgerError.
    """
    lock = path.with_name(path.name + ".lock")
    try:
        if not path.exists():
            raise missing()
        closed = is_read_only(path, lock, journal_of(path))
        with (
            nullcontext() if closed else exclusive(lock),
            ledger_file.connect(path, "ro" if closed else "rw") as db,
        ):
            db.execute("BEGIN")
            ledger_file.check_format(db)
            return tuple(ledger_file.entries_after(db, -1))
    except OSError as error:
        raise unusable(error) from None


def moments(entries: Iterable[Entry]) -> tuple[HistoryEntry, ...]:
    """The history that some entries tell, oldest first."""
    found: list[HistoryEntry] = []
    state: State | None = None
    for place, entry in enumerate(entries):
        before = state
        try:
            state = (
                first_state(entry) if place == 0 else None if state is None else state.after(entry)
            )
        except LedgerError:
            state = None
        found.append(HistoryEntry(entry, _change(before, entry, state), state))
    return tuple(found)


def _change(before: State | None, entry: Entry, state: State | None) -> str:
    if entry.is_recovery and before is not None and state is not None:
        spent = (each.spent[WHOLE].epsilon_units for each in (state, before))
        epsilon = decimal_text(Fraction(next(spent) - next(spent), UNITS))
        gaussian = "" if not state.spent[WHOLE].gaussian else ", Gaussian noise beside"
        return f"requests of before: {state.debits - before.debits}, epsilon {epsilon}{gaussian}"
    if entry.kind == "debit" or entry.kind == "adopted":
        return ""
    try:
        after = read_terms(entry)[1]
    except LedgerError:
        return ""
    if before is None:
        return f"total: epsilon {decimal_text(after.policy.epsilon)}"
    return changed_between(before.terms, after)


def changed_between(before: BudgetTerms, after: BudgetTerms) -> str:
    """Tell the difference between two terms: budgets with their values, and parts by name."""
    found = []
    for name in dict.fromkeys([*before.budgets, *after.budgets]):
        old, new = before.budgets.get(name), after.budgets.get(name)
        label = budget_text(name).removeprefix("the ")
        if old is None and new is not None:
            found.append(f"{label}: new, epsilon {decimal_text(new.epsilon)}")
        elif new is None:
            found.append(f"{label}: no budget any more")
        elif old is not None and old.epsilon != new.epsilon:
            amounts = f"{decimal_text(old.epsilon)} -> {decimal_text(new.epsilon)}"
            found.append(f"{label}: epsilon {amounts}")
    deltas = (before.policy.delta, after.policy.delta)
    found += [f"delta {float(deltas[0]):g} -> {float(deltas[1]):g}"] * (deltas[0] != deltas[1])
    keys = (before.policy.discovery, after.policy.discovery)
    found += [f"discovery_delta {float(keys[0]):g} -> {float(keys[1]):g}"] * (keys[0] != keys[1])
    found += changed_parts(before, after)[:MOST]
    more = len(changed_parts(before, after)) - MOST
    found += [f"{more} more"] if more > 0 else []
    if not found and before.policy_hash != after.policy_hash:
        found = ["what the catalog declares"]
    return ", ".join(found)


def changed_parts(before: BudgetTerms, after: BudgetTerms) -> list[str]:
    """The names of the parts of a catalog that differ; none where an older ledger has none."""
    if not before.parts or not after.parts:
        return []
    new = [f"{name} (new)" for name in after.parts if name not in before.parts]
    gone = [f"{name} (gone)" for name in before.parts if name not in after.parts]
    other = [
        f"{name} (changed)"
        for name, part in after.parts.items()
        if before.parts.get(name, part) != part
    ]
    return [*other, *new, *gone]
