"""``dpsql upgrade --check``: what the requests of a ledger would be charged by this version."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction

from dpsql.dbapi.connection import (
    Connection,
    LedgerEntry,
    connect,
    inspect,
    verify_ledger,
)
from dpsql.engine.explanation import Explanation
from dpsql.engine.planner import Planner
from dpsql.errors import Error, ProgrammingError
from dpsql.privacy.budget.accounting import epsilon_for
from dpsql.privacy.budget.hash_chain import ANALYST
from dpsql.records import dataclass
from dpsql.sql.text.lexemes import split_statements

AUTO = "auto"
"""Noise that is left to the version: the ledger notes what was chosen, not that it was."""

CREATED = re.compile(r"\s*CREATE\b", re.IGNORECASE)

DIGITS = 9
"""Decimals of an epsilon that is added up from steps with Gaussian noise, which were rounded."""


@dataclass(frozen=True, slots=True)
class UpgradedRequest:
    """A request of the ledger as this version would take it, were it asked again.

    ``entries`` are those that paid for it, one for each of its steps. ``epsilon`` is what would be
    charged, 0 where it is free; ``refusal`` is there where it cannot be asked any more.
    """

    entries: tuple[int, ...]
    analyst: str
    sql: str
    epsilon: Fraction = Fraction(0)
    refusal: Error | None = None

    @property
    def free(self) -> bool:
        """True where the statement would be answered free."""
        return self.refusal is None and self.epsilon == 0


def asked_again(path: str | os.PathLike[str]) -> Iterator[UpgradedRequest]:
    """Forecast every request that a ledger was charged for, each once, on the terms that it notes.

    These are its statements, the analyst, epsilon and noise, and the delta of what was released;
    settings that it does not note are the usual ones. An entry without an analyst is asked by every
    analyst, where there are some now. Charges of which nothing came are left out.
    Raises: CatalogError; LedgerError for a ledger that is missing, damaged or of another catalog;
    DataUnavailable, as ``connect``.
    Guarantee: forecasts alone, functions of public facts: nothing is charged, noted or measured.
    """
    verify_ledger(path)  # creates none, and follows no catalog that has changed
    with _Asking(path) as asking:
        yield from asking.all()


class _Asking:
    """Connections to one catalog, one for each analyst, and what is known of its releases."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        self._open: dict[str, Connection] = {}
        self._told: set[object] = set()
        self._curator = inspect(path)
        self._deltas = dict(_deltas(self._curator.engine))
        engine = self._curator.engine
        self._kept = {each.receipt[1] for each in engine.models.values()}
        self._kept |= {each.receipt[1] for each in engine.found.values() if not each.dropped}

    def __enter__(self) -> _Asking:
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._curator, *self._open.values()):
            each.close()

    def all(self) -> Iterator[UpgradedRequest]:
        """Every request, oldest first."""
        debits = [e for e in self._curator.entries() if e.kind == "debit" and e.state != "failed"]
        for _, found in itertools.groupby(debits, key=_cause):
            run = list(found)
            own = _analyst_of(run[0])
            for analyst in [own] if own else list(self._curator.catalog.analysts) or [""]:
                yield from self._run(run, analyst)

    def _run(self, run: Sequence[LedgerEntry], analyst: str) -> Iterator[UpgradedRequest]:
        """Entries with the same statements one after another: steps of one request, or several."""
        if len(run) > 1:
            whole = self._ask(run, analyst)
            if whole.free:
                yield whole
                return
        for entry in run:
            terms = (analyst, *_cause(entry), entry.epsilon, entry.noise, entry.rho)
            if terms not in self._told:
                self._told.add(terms)
                yield self._ask([entry], analyst)

    def _ask(self, run: Sequence[LedgerEntry], analyst: str) -> UpgradedRequest:
        places, sql = tuple(entry.seq for entry in run), run[0].sql
        if len(run) == 1 and places[0] in self._kept and CREATED.match(sql):
            return UpgradedRequest(places, analyst, sql)  # what has a name is there
        try:
            _refuse_untold(run[0])
            told = self._on_terms_of(self._connected(analyst), run)
        except Error as error:
            return UpgradedRequest(places, analyst, sql, refusal=error)
        return UpgradedRequest(places, analyst, sql, Fraction(0) if told.free else told.epsilon)

    def _on_terms_of(self, connection: Connection, run: Sequence[LedgerEntry]) -> Explanation:
        usual, noise = connection.terms, run[0].noise
        delta = next((self._deltas[e.seq] for e in run if e.seq in self._deltas), None)
        if delta is None:  # what was released is gone: it will be charged at any delta
            delta = connection.catalog.budget.delta if run[0].rho else usual.delta
        terms = {"epsilon": _epsilon(run, delta), "delta": delta, "noise": noise}
        try:
            connection.terms = usual.with_values(terms)
            told = connection.explain(run[0].sql)
            if not told.free and noise != AUTO:  # what a model learned is known by what was asked
                connection.terms = usual.with_values(terms | {"noise": AUTO})
                chosen = connection.explain(run[0].sql)
                return chosen if chosen.free else told
            return told
        finally:
            connection.terms = usual

    def _connected(self, analyst: str) -> Connection:
        if analyst not in self._open:
            self._open[analyst] = connect(self._path, analyst=analyst or None)
        return self._open[analyst]


def _deltas(planner: Planner) -> Iterator[tuple[int, Fraction]]:
    """The delta of every release by the entry that paid for it."""
    for release in planner.store.releases.all().values():
        yield release.seq, release.plan.delta
    for clipped in planner.store.clipped.all().values():
        yield clipped.receipt[1], clipped.delta
    for shelf in (planner.store.learned, planner.store.tables):
        for model in shelf.all().values():
            yield model.receipt[1], model.delta
    for keys in planner.store.domains.all().values():
        yield keys.receipt[1], keys.delta


def _epsilon(run: Sequence[LedgerEntry], delta: Fraction) -> Fraction:
    """The epsilon of a request that was charged for in steps."""
    if len(run) == 1 or not run[0].rho:
        return sum((Fraction(entry.epsilon) for entry in run), Fraction(0))
    rho = sum((Fraction(entry.rho) for entry in run), Fraction(0))
    return round(epsilon_for(rho, delta), DIGITS)


def _cause(entry: LedgerEntry) -> tuple[object, ...]:
    """Facts that the steps of one request have in common."""
    facts = (entry.statements, entry.sql, entry.digest_of_sql)
    return (*facts, entry.within, entry.noise)


def _analyst_of(entry: LedgerEntry) -> str:
    names = (each.removeprefix(ANALYST) for each in entry.within.split("\n") if ANALYST in each)
    return next(names, "")


def _refuse_untold(entry: LedgerEntry) -> None:
    """Refuse an entry that does not have all of its SQL. Raises: ProgrammingError (E_STATEMENT)."""
    if not entry.sql:
        raise ProgrammingError("E_STATEMENT", "the ledger does not say what it was charged for")
    if entry.digest_of_sql:
        what = "the ledger has only the beginning of its SQL"
        raise ProgrammingError("E_STATEMENT", what, hint="EXPLAIN the file that it came from")
    if len(split_statements(entry.sql)) != entry.statements:
        what = "the statements that the ledger notes cannot be told apart"
        raise ProgrammingError("E_STATEMENT", what, hint="EXPLAIN them as one script")
