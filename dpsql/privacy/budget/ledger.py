"""The durable budget: debits that are on disk before any noise is drawn, and never undone.

One SQLite file per catalog and an anchor elsewhere. A crash at any point can lose budget, never
privacy: the debit is committed and anchored before the receipt for it exists.
"""

from __future__ import annotations

import atexit
import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from fractions import Fraction
from pathlib import Path
from typing import Literal

from dpsql.errors import BudgetExceeded, LedgerError
from dpsql.files import (
    copy_database,
    exclusive,
    is_read_only,
    journal_of,
    make_folder,
    on_network_disk,
)
from dpsql.forks import awaited
from dpsql.privacy.budget import ledger_file
from dpsql.privacy.budget.accounting import Cost, Policy
from dpsql.privacy.budget.admission import admitted
from dpsql.privacy.budget.anchor import (
    Anchor,
    anchor_path,
    has_anchor,
    packed,
    read_anchor,
    read_sums,
    unpacked,
)
from dpsql.privacy.budget.hash_chain import (
    CHECKPOINTS,
    NO_SQL,
    WHOLE,
    BudgetTerms,
    Cause,
    Entry,
    State,
    curator_entry,
    debit_entry,
    first_state,
    id_of,
    read_checkpoint,
    terms_after_change,
    terms_for,
)
from dpsql.privacy.budget.outcomes import Outcomes
from dpsql.privacy.budget.receipt import Receipt, issue
from dpsql.privacy.budget.refusals import (
    check_names,
    check_request,
    existing,
    foreign,
    forked,
    missing,
    older,
    policy_changed,
    tampered,
    unusable,
    unvouched,
)
from dpsql.privacy.budget.status import Status, status_of
from dpsql.records import replace

__all__ = ["Entry", "Ledger", "Receipt", "Status"]
_HANDLES: weakref.WeakSet[Ledger] = weakref.WeakSet()
"""The handles of this process, for what they have not written when it ends."""


class Ledger:
    """A handle on a ledger file: any number of processes and threads may hold one.

    Obtain it by ``create``, ``open`` or ``open_or_create``.
    """

    def __init__(self, path: Path, anchor: Path) -> None:
        self._path = path
        self._lock_file = path.with_name(path.name + ".lock")
        self._anchor = anchor
        self._pid = os.getpid()
        # Beside the file's lock, which keeps processes apart and not the threads of one. A fork
        # waits for it, so that no child inherits a ledger that is half written.
        self._lock = awaited(threading.Lock())
        self._closed = False
        self._state: State | None = None
        self._inherited: State | None = None
        self._policy_hash: str | None = None
        self._salt = b""
        self._outcomes = Outcomes()
        _HANDLES.add(self)

    @classmethod
    def create(
        cls,
        path: Path,
        anchor_dir: Path,
        policy: Policy,
        policy_hash: str,
        nested: Mapping[str, Fraction] | None = None,
        parts: Mapping[str, str] | None = None,
    ) -> Ledger:
        """Create a ledger where none is or was; ``nested`` names smaller budgets inside it.

        Args:
            path: file of the ledger, in a folder of this machine.
            anchor_dir: folder of anchors, kept elsewhere than the ledger, so that an old copy of it
                is seen.
            policy: of the whole budget; its Renyi order stays for ever.
            policy_hash: of the catalog's declarations.
            nested: epsilons of smaller budgets inside it, by name.
            parts: hashes of what is declared.

        Raises: LedgerError E_LEDGER_EXISTS, E_LEDGER_IO.
        """
        ledger = cls._at(path, anchor_dir)
        terms = terms_for(policy, policy_hash, nested or {}, parts=parts)
        check_names(policy_hash, *(nested or {}))
        try:
            ledger._path.parent.mkdir(parents=True, exist_ok=True)
            make_folder(ledger._anchor.parent)
            if on_network_disk(ledger._path.parent):
                raise LedgerError("E_LEDGER_IO", "a ledger cannot be kept on a network disk")
            with exclusive(ledger._lock_file), ledger._lock:
                ledger._create(terms)
        except OSError as error:
            raise unusable(error) from None
        ledger._policy_hash = policy_hash
        return ledger

    @classmethod
    def open(
        cls,
        path: Path,
        anchor_dir: Path,
        policy: Policy,
        policy_hash: str,
        verified: Ledger | None = None,
    ) -> Ledger:
        """Open a ledger, verifying its chain, its anchor and the catalog it belongs to.

        The chain is followed from its newest checkpoint; ``verify`` begins with the first entry.

        Args:
            path: file of the ledger.
            anchor_dir: folder of its anchor.
            policy: that the catalog declares, which has to be the one in force.
            policy_hash: of the catalog's declarations.
            verified: another handle of this process on the same file, whose entries are not read
                again.

        Raises: LedgerError E_LEDGER_MISSING, E_LEDGER_MISMATCH, E_LEDGER_VERSION,
        E_LEDGER_TAMPERED, E_LEDGER_ROLLBACK, E_LEDGER_IO, E_POLICY_CHANGED.
        """
        ledger = cls._at(path, anchor_dir, verified)
        with ledger._reading() as db:
            ledger._catch_up(db, policy_hash)
        ledger._policy_hash = policy_hash
        ledger._require(policy)
        return ledger

    def go_by(self, policy: Policy, policy_hash: str) -> None:
        """Refuse another catalog than that of this handle, or than is in force by now.

        Raises: as ``open``.
        """
        if policy_hash != self._policy_hash:
            raise policy_changed()
        self.check()
        self._require(policy)

    def is_in_force(self) -> bool:
        """Say whether the catalog of this handle is the one in force. Raises: LedgerError."""
        return self.check().terms.policy_hash == self._policy_hash

    def _require(self, policy: Policy) -> None:
        """Refuse a catalog that is not in force. Raises: LedgerError E_POLICY_CHANGED."""
        terms = self._known().terms
        totals = [(each.epsilon, each.delta, each.discovery) for each in (terms.policy, policy)]
        if terms.policy_hash != self._policy_hash or totals[0] != totals[1]:
            raise policy_changed()

    @classmethod
    def open_or_create(
        cls,
        path: Path,
        anchor_dir: Path,
        policy: Policy,
        policy_hash: str,
        nested: Mapping[str, Fraction] | None = None,
        parts: Mapping[str, str] | None = None,
        verified: Ledger | None = None,
    ) -> Ledger:
        """Open a ledger; create it only when neither it nor an anchor for its path exists.

        Args:
            path: file of the ledger.
            anchor_dir: folder of its anchor.
            policy: of the whole budget, as the catalog declares it.
            policy_hash: of the catalog's declarations.
            nested: epsilons of smaller budgets inside it, by name; for a new ledger alone.
            parts: hashes of what is declared; for a new ledger alone.
            verified: another handle of this process on the same file, whose entries are not read
                again.

        Raises: LedgerError as ``open`` and ``create`` do.
        """
        ledger = cls._at(path, anchor_dir)
        try:
            is_new = not ledger._path.exists() and not ledger._anchor.exists()
        except OSError as error:  # a folder that may not be looked into is no empty one
            raise unusable(error) from None
        if is_new:
            try:
                return cls.create(path, anchor_dir, policy, policy_hash, nested, parts)
            except LedgerError as error:
                if error.code != "E_LEDGER_EXISTS":
                    raise
        return cls.open(path, anchor_dir, policy, policy_hash, verified)

    @classmethod
    def terms_in_force(
        cls, path: Path, anchor_dir: Path, verified: Ledger | None = None
    ) -> BudgetTerms:
        """Verify a ledger and return the budgets and the catalog's hash that it goes by.

        Args:
            path: file of the ledger.
            anchor_dir: folder of its anchor.
            verified: another handle of this process on the same file, whose entries are not read
                again.

        Raises: LedgerError as ``open`` does, save E_POLICY_CHANGED.
        """
        ledger = cls._at(path, anchor_dir, verified)
        with ledger._reading() as db:
            return ledger._catch_up(db).terms

    @classmethod
    def migrate(
        cls,
        path: Path,
        anchor_dir: Path,
        policy: Policy,
        policy_hash: str,
        nested: Mapping[str, Fraction] | None = None,
        note: str = "",
        parts: Mapping[str, str] | None = None,
    ) -> Ledger:
        """Log that the curator changed the catalog or the budget, and open the ledger under it.

        The Renyi order stays as it was at creation, so the past transcript counts in full, and
        a budget cannot be set below what is spent. A curator's act, never a query's.

        Args:
            path: file of the ledger.
            anchor_dir: folder of its anchor.
            policy: of the whole budget, as the changed catalog has it.
            policy_hash: of the changed catalog's declarations.
            nested: epsilons of smaller budgets by name; None leaves them as they are.
            note: reason, kept in the ledger.
            parts: hashes of what is declared.

        Raises: LedgerError, with E_POLICY_CHANGED when the past does not fit the new budget.
        """
        ledger = cls._at(path, anchor_dir)
        with ledger._exclusive() as db:
            state = ledger._catch_up(db)
            budgets = ledger.nested if nested is None else nested
            terms = terms_after_change(state, policy, policy_hash, budgets, parts)
            detail = terms.to_json(state.ledger_id, note)
            ledger._append(db, state, curator_entry(state.seq + 1, "policy", detail))
        ledger._policy_hash = policy_hash
        return ledger

    @classmethod
    def follow(
        cls, path: Path, anchor_dir: Path, terms: BudgetTerms, verified: Ledger | None = None
    ) -> bool:
        """Go by another catalog from now on if nothing was charged; say whether it does.

        Args:
            path: file of the ledger.
            anchor_dir: folder of its anchor.
            terms: of the catalog to go by.
            verified: another handle of this process on the same file, whose entries are not read
                again.

        Raises: LedgerError as ``open`` does, save E_POLICY_CHANGED.
        Guarantee: once there is a debit, nothing but ``migrate`` changes what it is held against.
        """
        ledger = cls._at(path, anchor_dir, verified)
        with ledger._exclusive() as db:
            state = ledger._catch_up(db)
            if state.debits:
                return False
            detail = terms.to_json(state.ledger_id, "nothing was charged yet")
            ledger._append(db, state, curator_entry(state.seq + 1, "policy", detail))
        return True

    @classmethod
    def hindrance(
        cls, path: Path, anchor_dir: Path, wanted: BudgetTerms, verified: Ledger | None = None
    ) -> LedgerError | None:
        """The refusal of ``migrate`` to other terms; None where it would not refuse.

        Args:
            path: file of the ledger.
            anchor_dir: folder of its anchor.
            wanted: terms of the changed catalog.
            verified: another handle of this process on the same file, whose entries are not read
                again.

        Raises: LedgerError as ``open`` does, save E_POLICY_CHANGED.
        """
        nested = {name: each.epsilon for name, each in wanted.budgets.items() if name != WHOLE}
        ledger = cls._at(path, anchor_dir, verified)
        with ledger._exclusive() as db:
            state = ledger._catch_up(db)
        try:
            terms_after_change(state, wanted.policy, wanted.policy_hash, nested, wanted.parts)
        except LedgerError as error:
            return error
        return None

    @classmethod
    def adopt(cls, path: Path, anchor_dir: Path, note: str = "") -> Ledger:
        """Accept a verified ledger that was moved, or whose anchor is lost or damaged, and log it.

        A curator's act: it vouches that this is the newest copy.

        Args:
            path: file of the ledger where it is now.
            anchor_dir: folder in which its anchor will be.
            note: reason, kept in the ledger.

        Raises: LedgerError.
        """
        ledger = cls._at(path, anchor_dir)
        with ledger._exclusive() as db:
            make_folder(ledger._anchor.parent)
            is_vouched = has_anchor(ledger._anchor)
            state = ledger._catch_up(db, is_whole=True) if is_vouched else ledger._read(db, True)
            detail = state.terms.to_json(state.ledger_id, note)
            ledger._append(db, state, curator_entry(state.seq + 1, "adopted", detail))
        return ledger

    @classmethod
    def recover(cls, path: Path, anchor_dir: Path, note: str = "") -> Ledger | None:
        """Charge an old copy of a ledger up to the sums in its anchor; None where it is none.

        A curator's act.

        Args:
            path: file of the old copy.
            anchor_dir: folder of the anchor of the ledger that was lost.
            note: reason, kept in the ledger.

        Raises: LedgerError, E_LEDGER_ROLLBACK where there is any doubt.

        Guarantee: afterwards no sum of a budget is below what it was in the ledger that was lost,
        and the terms in force are those that it went by.
        """
        ledger = cls._at(path, anchor_dir)
        with ledger._exclusive() as db:
            _check_integrity(db)
            anchor, state = read_sums(ledger._anchor), ledger._read(db, True)
            if anchor.ledger_id != state.ledger_id:
                raise foreign()
            if ledger_file.hash_at(db, anchor.seq) == anchor.hash:
                return None
            told = curator_entry(anchor.seq, "adopted", unpacked(anchor.sums))
            last = read_checkpoint(replace(told, hash=anchor.hash))
            linked = state.recovery(last, note).seal(state.head)
            after = state.after(linked)
            # The anchor moves first, unlike after a debit: cut short before the entry is there, it
            # has the same sums, and the copy is behind it as before.
            ledger._advance(after, anew=True)
            ledger_file.append(db, linked, after.spent)
            ledger._outcomes.commit(db)
        return ledger

    @classmethod
    def backup(cls, path: Path, anchor_dir: Path, folder: Path) -> Status:
        """Copy a ledger with its anchor, as they stand together, into a folder; verify the copy.

        Whoever writes waits meanwhile.

        Args:
            path: file of the ledger.
            anchor_dir: folder of its anchor.
            folder: gets the copy, and its anchor in a folder below.

        Raises: LedgerError as ``open`` does, save E_POLICY_CHANGED.
        """
        ledger, copy = cls._at(path, anchor_dir), folder / path.name
        with ledger._exclusive() as db:
            state = ledger._catch_up(db)
            copy_database(ledger._path, copy)
            beside = folder / "anchor"
            make_folder(beside)
            _anchor_of(state).write(beside / ledger._anchor.name, ledger._path)
        with ledger_file.connect(copy, "ro") as db:
            _check_integrity(db)
            if cls(copy, beside)._read(db, True) != state:
                raise tampered("a copy of it is not the same")
        return status_of(state)

    def debit(
        self,
        cost: Cost,
        plan_hash: str,
        data_version: str,
        within: tuple[str, ...] = (),
        asked: Cause = NO_SQL,
    ) -> Receipt:
        """Charge a cost for good and return the receipt, after both are on disk.

        Every budget computes the cost anew at its own Renyi order.

        Args:
            cost: of everything that is measured for it.
            plan_hash: fingerprint of the plan that may be measured for it.
            data_version: of the sources that may be measured.
            within: nested budgets to charge too.
            asked: statements that it is charged for, of which the entry keeps the beginning.

        Raises: BudgetExceeded (nothing was charged), LedgerError, DataError E_EPSILON for a
        malformed cost.

        Guarantee: over all processes, admitted debits satisfy a rule of the policy at each step.
        """
        check_request(cost, plan_hash, data_version, *within)
        within = tuple(dict.fromkeys(within))
        with self._exclusive() as db:
            state = self._catch_up(db)
            cost = admitted(state, cost, within, self._policy_hash)
            entry = debit_entry(state.seq + 1, cost, plan_hash, data_version, within, asked)
            after = self._append(db, state, entry)
        receipt = issue(after.ledger_id, after.seq, after.head, plan_hash, data_version, cost)
        self._outcomes.reserve(receipt)
        return receipt

    def afford(self, cost: Cost, within: tuple[str, ...] = ()) -> None:
        """Refuse what ``debit`` would; charge nothing. Raises: as that.

        It goes on by what was last seen, and refuses by what is there: a budget may be raised.
        """
        within = tuple(dict.fromkeys(within))
        with suppress(BudgetExceeded, LedgerError):
            admitted(self._known(), cost, within, self._policy_hash)
            return
        admitted(self.check(), cost, within, self._policy_hash)

    def settle(self, receipt: Receipt, outcome: Literal["released", "failed"]) -> None:
        """Note what became of a debit of this handle; it stays charged either way.

        A failure is written at once; a release with the next debit, or when the handle is closed.
        Until then the debit is "reserved" to others, which counts in full.
        Raises: LedgerError E_RECEIPT when the debit is not here or was settled before.
        """
        self._outcomes.settle(receipt, outcome)
        if outcome == "failed":
            self._write_outcomes()

    def status(self) -> Status:
        """Return totals, sums and what is still admitted. Raises: LedgerError."""
        return status_of(self.check())

    def check(self) -> State:
        """Return what is on disk by now, unless it is missing or damaged. Raises: LedgerError."""
        with self._reading() as db:
            return self._catch_up(db)

    def entries(self) -> tuple[Entry, ...]:
        """Return every entry in order, the creation first. Raises: LedgerError."""
        with self._reading() as db:
            self._catch_up(db)
            return tuple(map(self._outcomes.told, ledger_file.entries_after(db, -1)))

    def entry(self, seq: int) -> Entry | None:
        """Return one entry, None where there is none. Raises: LedgerError."""
        with self._reading() as db:
            self._catch_up(db)
            found = ledger_file.entry_at(db, seq)
        return None if found is None else self._outcomes.told(found)

    def verify(self) -> Status:
        """Check the whole file again from its first entry. Raises: LedgerError."""
        with self._reading() as db:
            _check_integrity(db)
            self._state = self._inherited = None
            return status_of(self._catch_up(db, is_whole=True))

    @property
    def policy(self) -> Policy:
        """The policy with the Renyi order that costs must be computed at."""
        return self._known().terms.policy

    @property
    def nested(self) -> Mapping[str, Fraction]:
        """The nested budgets by name."""
        budgets = self._known().terms.budgets
        return {name: policy.epsilon for name, policy in budgets.items() if name != WHOLE}

    @property
    def ledger_id(self) -> str:
        """The name this ledger was given at creation."""
        return self._known().ledger_id

    @property
    def salt(self) -> bytes:
        """The secret of this ledger, 32 bytes: orders the rows of one privacy unit."""
        return self._salt

    def note_outcomes(self) -> None:
        """Write what became of the last debits, where it can be."""
        if self._outcomes.settled and not self._closed:
            with suppress(LedgerError):
                self._write_outcomes()

    def close(self) -> None:
        """Give the handle up; what became of its last debits is written, where it can be."""
        self.note_outcomes()
        self._closed = True

    def _write_outcomes(self) -> None:
        with self._exclusive() as db:
            self._catch_up(db)
            self._outcomes.commit(db)

    def _known(self) -> State:
        if self._state is None:
            raise LedgerError("E_LEDGER_IO", "the ledger has not been read")
        return self._state

    @classmethod
    def _at(cls, path: Path, anchor_dir: Path, verified: Ledger | None = None) -> Ledger:
        real = Path(os.path.realpath(path))
        ledger = cls(real, anchor_path(Path(os.path.realpath(anchor_dir)), real))
        if verified is not None and verified._path == real and verified._anchor == ledger._anchor:
            ledger._inherited = verified._state
        return ledger

    @contextmanager
    def _exclusive(self) -> Iterator[sqlite3.Connection]:
        """Hold the ledger alone, inside one write transaction."""
        self._check_handle()
        try:
            if not self._path.exists():
                raise missing()
            with exclusive(self._lock_file), self._lock:
                if not self._path.exists():
                    raise missing()
                with ledger_file.connect(self._path) as db:
                    db.execute("BEGIN IMMEDIATE")
                    yield db
        except OSError as error:
            raise unusable(error) from None

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """Hold the ledger alone; where it cannot be written, read one snapshot of it instead."""
        if not self._is_read_only:
            with self._exclusive() as db:
                yield db
            return
        self._check_handle()
        try:
            with self._lock, ledger_file.connect(self._path, "ro") as db:
                db.execute("BEGIN")
                yield db
        except OSError as error:
            raise unusable(error) from None

    @property
    def _is_read_only(self) -> bool:
        try:
            return is_read_only(self._path, self._lock_file, journal_of(self._path))
        except OSError as error:
            raise unusable(error) from None

    def _check_handle(self) -> None:
        if os.getpid() != self._pid:
            raise forked()
        if self._closed:
            raise LedgerError("E_LEDGER_IO", "the ledger has been closed")

    def _create(self, terms: BudgetTerms) -> None:
        journal = journal_of(self._path)
        if any(map(os.path.lexists, (self._path, self._anchor))) or ledger_file.is_hot(journal):
            raise existing()
        # As long as the keys that are derived from it, so that these are no easier to guess.
        salt = os.urandom(32)
        first = curator_entry(0, "created", terms.to_json(id_of(salt), "")).seal("")
        state = first_state(first)
        ledger_file.create(self._path, first, state.spent, salt)
        self._salt = salt
        self._advance(state)

    def _read(self, db: sqlite3.Connection, is_whole: bool = False) -> State:
        """Fold the entries not yet seen, and compare with the sums and head that are stored.

        One that has seen none begins with the newest checkpoint, or with the first where all is to
        be read. Guarantee: a state is what its entries add up to, whichever handle has read them:
        a checkpoint was written by one that had, and is bound by its hash; one that was inherited
        is taken only where the file still has the entry that it ended with.
        """
        ledger_file.check_format(db)
        state, inherited = self._state, self._inherited
        if state is None and inherited is not None:
            same = ledger_file.hash_at(db, inherited.seq) == inherited.head
            state = inherited if same else None
        if state is not None and ledger_file.hash_at(db, state.seq) != state.head:
            raise older(self._anchor)
        if state is None and not is_whole:
            state = _newest_checkpoint(db)
        for entry in ledger_file.entries_after(db, -1 if state is None else state.seq):
            state = first_state(entry) if state is None else state.after(entry)
        if state is None:
            raise tampered("it has no entries")
        spent, (seq, head, salt) = ledger_file.totals(db)
        if (spent, seq, head) != (dict(state.spent), state.seq, state.head):
            raise tampered("its totals do not match its entries")
        if salt != self._salt and id_of(salt) != state.ledger_id:
            raise tampered("its salt is not the one it was created with")
        self._salt = salt
        return state

    def _catch_up(
        self, db: sqlite3.Connection, policy_hash: str | None = None, is_whole: bool = False
    ) -> State:
        """Read the ledger and hold it against its anchor."""
        state = self._read(db, is_whole)
        anchor = read_anchor(self._anchor)
        if anchor is None:
            if policy_hash is not None and policy_hash != state.terms.policy_hash:
                raise foreign()
            if state.seq > 0:
                raise unvouched()
            if not self._is_read_only:
                make_folder(self._anchor.parent)
                self._advance(state)
        elif anchor.ledger_id != state.ledger_id:
            raise foreign()
        elif anchor.seq > state.seq or ledger_file.hash_at(db, anchor.seq) != anchor.hash:
            raise older(self._anchor)
        self._state = state
        return state

    def _append(self, db: sqlite3.Connection, state: State, entry: Entry) -> State:
        """Commit one entry with its consequences, then move the anchor.

        A checkpoint comes before it where it is time for one, in the same transaction.
        """
        if (state.seq + 1) % CHECKPOINTS == 0:
            repeated = state.checkpoint().seal(state.head)
            state = state.after(repeated)
            ledger_file.append(db, repeated, state.spent)
            entry = replace(entry, seq=state.seq + 1)
        linked = entry.seal(state.head)
        after = state.after(linked)
        ledger_file.append(db, linked, after.spent)
        self._outcomes.commit(db)
        # The anchor moves last. Cut short before it has, the ledger is one entry ahead of it, which
        # is in order; behind its anchor it would look like an old copy (decision 112).
        self._advance(after)
        return after

    def _advance(self, state: State, anew: bool = False) -> None:
        _anchor_of(state).write(self._anchor, self._path, anew)
        self._state = state


def _anchor_of(state: State) -> Anchor:
    """The anchor of a ledger whose entries come to a state."""
    less = replace(state, terms=replace(state.terms, parts={}))  # they are many, and no sums
    return Anchor(state.ledger_id, state.seq, state.head, packed(less.to_json("")))


def _check_integrity(db: sqlite3.Connection) -> None:
    """Refuse a file whose pages contradict each other. Raises: LedgerError E_LEDGER_TAMPERED."""
    if db.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
        raise tampered("the file is damaged")


def _newest_checkpoint(db: sqlite3.Connection) -> State | None:
    """The state of the newest checkpoint; None where that is not at its place, or is damaged.

    Then all entries are read, which say what is wrong.
    """
    last = ledger_file.totals(db)[1][0]
    place = last - last % CHECKPOINTS if isinstance(last, int) else 0
    entry = ledger_file.entry_at(db, place) if place > 0 else None
    try:
        if entry is not None and entry.is_checkpoint:
            before = ledger_file.hash_at(db, place - 1)
            if entry.hash == entry.digest(before or ""):
                return read_checkpoint(entry)
    except (LedgerError, TypeError, ValueError, AttributeError):
        return None
    return None


@atexit.register
def _note_outcomes() -> None:
    """Write what became of the last debits of a program that ends without closing its handles."""
    for ledger in [*_HANDLES]:
        if ledger._pid == os.getpid():
            ledger.note_outcomes()
