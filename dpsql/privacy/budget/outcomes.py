"""Outcomes of debits: noted at once in memory, and in the ledger with what is written next."""

from __future__ import annotations

import sqlite3
from typing import Literal

from dpsql.errors import LedgerError
from dpsql.privacy.budget import ledger_file
from dpsql.privacy.budget.hash_chain import Entry, Outcome
from dpsql.privacy.budget.receipt import Receipt
from dpsql.records import dataclass, field, replace


@dataclass(slots=True)
class Outcomes:
    """The debits of one handle on a ledger that are reserved, and those that have been settled.

    Both are by their places in the ledger; ``settled`` are not in the file yet. One thread may
    settle while another commits. Guarantee: none of it is a charge, or takes one back.
    """

    reserved: dict[int, str] = field(default_factory=dict)
    settled: dict[int, tuple[str, Outcome]] = field(default_factory=dict)

    def reserve(self, receipt: Receipt) -> None:
        """Note a debit that is in the file."""
        self.reserved[receipt.seq] = receipt.head

    def settle(self, receipt: Receipt, outcome: Literal["released", "failed"]) -> None:
        """Note what became of a debit. Raises: LedgerError E_RECEIPT where it is not reserved."""
        if outcome not in ("released", "failed"):
            raise LedgerError("E_RECEIPT", "a debit is settled as released or failed")
        if self.reserved.get(receipt.seq) != receipt.head:
            raise LedgerError("E_RECEIPT", "no such debit is waiting to be settled")
        del self.reserved[receipt.seq]
        self.settled[receipt.seq] = receipt.head, outcome

    def told(self, entry: Entry) -> Entry:
        """An entry of the file, with what has become of it since."""
        head, outcome = self.settled.get(entry.seq, ("", entry.state))
        return replace(entry, state=outcome) if head == entry.hash else entry

    def commit(self, db: sqlite3.Connection) -> None:
        """Commit a transaction on the ledger, and in it what has been settled until now.

        Raises: sqlite3.Error, with nothing forgotten of what has been settled.
        """
        written = tuple(self.settled.items())
        for seq, (head, outcome) in written:
            ledger_file.set_state(db, seq, head, outcome)
        db.execute("COMMIT")
        for seq, _ in written:
            del self.settled[seq]
