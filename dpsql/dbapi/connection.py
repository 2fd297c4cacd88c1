"""PEP 249: connections over one catalog, and what the surfaces need beside them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from dpsql.answer.result import Result
from dpsql.catalog import Catalog
from dpsql.dbapi.cursor import Cursor, Parameters, check_text, parse_script, refuse_unknown
from dpsql.dbapi.exceptions import Exceptions
from dpsql.dbapi.script import (
    explain_finding,
    explain_script,
    explain_search,
    gathered,
    is_new,
    joint_terms,
)
from dpsql.engine.charges import Charges, Rehearsed, interruptible
from dpsql.engine.defects import told
from dpsql.engine.engine import Engine
from dpsql.engine.granted_files import NOTHING, GrantedFiles, grant, grant_here
from dpsql.engine.progress import looking_ahead
from dpsql.engine.terms import Terms
from dpsql.errors import (
    InterfaceError,
    LedgerError,
    ProgrammingError,
    Span,
    check_fork,
)
from dpsql.integrations.notebook import progress
from dpsql.interrupts import check
from dpsql.privacy.accounting import parse_delta_text, parse_epsilon_text
from dpsql.privacy.curator import (
    adopt_ledger,
    anchor_folder,
    find_analyst,
    find_entry,
    largest_request,
    migrate_ledger,
    raise_budget,
    verify_ledger,
)
from dpsql.privacy.ledger import Entry as LedgerEntry
from dpsql.privacy.ledger import Status as BudgetStatus
from dpsql.privacy.vaults import refuse_unreadable, share_room
from dpsql.records import replace
from dpsql.settings import SETTINGS
from dpsql.sql.lexemes import split_script as _split_script
from dpsql.sql.parse import Statement

if TYPE_CHECKING:
    from dpsql.answer.synthetics import Synthetic
    from dpsql.dbapi.column_types import ColumnTypes
    from dpsql.engine.explanation import Explanation

T = TypeVar("T")

__all__ = [
    "BudgetStatus",
    "Connection",
    "Cursor",
    "Explanation",
    "LedgerEntry",
    "Result",
    "adopt_ledger",
    "connect",
    "find_entry",
    "inspect",
    "migrate_ledger",
    "parse_delta_text",
    "parse_epsilon_text",
    "raise_budget",
    "split_script",
    "verify_ledger",
]


def connect(
    catalog: str | os.PathLike[str],
    *,
    epsilon: object = None,
    delta: object = None,
    noise: str | None = None,
    analyst: str | None = None,
    files: str | os.PathLike[str] | None = None,
    show_stddev: str = "off",
    paramstyle: str = "qmark",
    **unknown: object,
) -> Connection:
    """Open a connection to the tables of a catalog.

    ``epsilon`` and ``delta`` are what each request costs (int, float, Decimal or Fraction);
    ``noise`` is "laplace", "gaussian", "auto" or the name of an installed law. All three can be
    changed by SET. ``analyst`` says whose budget requests are charged to as well, where the catalog
    declares analysts. ``files`` is the one folder whose files SQL may name, for workloads and drawn
    rows; by default there is none. ``show_stddev`` gives rows that are fetched a column of standard
    errors after every noisy one ("on"), or these beside the numbers ("text"). ``paramstyle`` says
    how parameters are marked in SQL, one of PEP 249: "qmark" (``?``, and ``:name`` for a mapping),
    "named", "numeric", "format", "pyformat".
    Raises: CatalogError, LedgerError, DataError (E_EPSILON, E_DELTA, E_SETTING, E_ANALYST);
    UsageError (E_FILES) for a folder in which sources, the catalog or its anchor lie;
    DataUnavailable (E_DATA) for a table of which one stored value could stop every statement.
    Guarantee: everything ever released from the catalog together is (epsilon, delta)-differentially
    private for one privacy unit, with the epsilon and delta of the catalog's [budget].
    """
    refuse_unknown(unknown)
    style = SETTINGS["paramstyle"].read(str(paramstyle))
    shown = SETTINGS["show_stddev"].read(str(show_stddev))
    options = {"epsilon": epsilon, "delta": delta, "noise": noise}
    loaded = open_catalog(catalog)
    given = {name: value for name, value in options.items() if value is not None}
    terms = Terms.of(loaded).with_values(given)
    found = find_analyst(loaded, analyst)
    granted = grant(files, loaded, anchor_folder(loaded))
    connection = Connection(loaded, terms, found, granted)
    connection.paramstyle, connection.show_stddev = style, shown
    connection.report = progress()
    return connection


def open_catalog(path: str | os.PathLike[str]) -> Catalog:
    """Read a catalog whose tables can be asked.

    Raises: CatalogError; DataUnavailable (E_DATA) for a table of which one stored value could stop
    every statement, and for more rows than there is room for.
    """
    check_fork()
    loaded = Catalog.load(_path(path))
    refuse_unreadable(loaded)
    return share_room(loaded)


def inspect(catalog: str | os.PathLike[str]) -> Connection:
    """Open a connection for the curator, who sees the budget and every charge.

    Where analysts are declared it belongs to none of them, and every charge is refused.
    Raises: CatalogError, LedgerError.
    """
    check_fork()
    loaded = Catalog.load(_path(catalog))
    return Connection(loaded, Terms(loaded.budget.max_epsilon_per_request))


def _path(catalog: object) -> Path:
    try:
        return Path(catalog)  # type: ignore[arg-type]
    except TypeError:
        what = f"a catalog is named by a path, not by {type(catalog).__name__}"
        raise InterfaceError("E_POLICY", what) from None


def split_script(text: str) -> tuple[list[str], str]:
    """The complete statements of a script and the unfinished rest."""
    fragments, rest = _split_script(text)
    return [fragment.body for fragment in fragments], rest


class Connection(Exceptions):
    """A session on one catalog (PEP 249); threads may share the module, not connections.

    Those that share one all the same take turns, statement by statement.

    ``shared`` is the engine whose rows it counts, where several connections count the same.
    ``report``, when set, is told how a long run goes on: one line of text at a time.
    """

    def __init__(
        self,
        catalog: Catalog,
        terms: Terms,
        analyst: str | None = None,
        granted: GrantedFiles = NOTHING,
        shared: Engine | None = None,
    ) -> None:
        self._catalog = catalog
        self.analyst = analyst
        self.terms = terms
        self.collected: list[Statement] | None = None
        self.paramstyle = "qmark"
        self.show_stddev = "off"
        self.report: Callable[[str], None] | None = None
        self._engine: Engine | None = Engine(
            catalog, anchor_folder(catalog), analyst, granted, shared
        )
        self._process = os.getpid()
        self._turn = threading.RLock()

    def go_on_from(self, before: Connection) -> None:
        """Have the settings, the open workload and the charges of one to the catalog as it was.

        What its next charge may cost (``at_most``) is bounded as before. Raises: ProgrammingError.
        """
        engine, collected = self.engine, before.collected
        self.terms = replace(self.terms, values=before.terms.values)
        if collected is not None:
            self.collected = [
                engine.read(each.fragment, each.fragment.dialect) for each in collected
            ]
        engine.charges, engine.demanded = before.engine.charges, before.engine.demanded
        self.paramstyle, self.show_stddev = before.paramstyle, before.show_stddev
        self.report = before.report

    @property
    def charged(self) -> int:
        """The number of charges made by statements here, and by those that it goes on from."""
        return self._charges.made

    @property
    def engine(self) -> Engine:
        """The engine. Raises: InterfaceError once the connection is closed, LedgerError E_FORK."""
        if os.getpid() != self._process:  # before anything is worked out: threads are not copied
            what = "a connection cannot be used in a forked process"
            raise LedgerError("E_FORK", what, hint="connect again there")
        if self._engine is None:
            raise InterfaceError("E_CLOSED", "the connection is closed")
        return self._engine

    @property
    def catalog(self) -> Catalog:
        """The public facts."""
        return self._catalog

    @property
    def known(self) -> Catalog:
        """The public facts with the synthetic tables made so far."""
        return self.engine.known

    @property
    def budget(self) -> BudgetStatus:
        """The remainder of the catalog's budget."""
        return self.engine.status()

    @property
    def askable(self) -> tuple[Fraction, Fraction]:
        """The largest epsilon of one more request here, on any table, and what it was at first."""
        return largest_request(self.catalog, self.budget, self.analyst, self.engine.scratch)

    @property
    def workload(self) -> int | None:
        """The number of statements that BEGIN WORKLOAD has collected; None outside a workload."""
        return None if self.collected is None else len(self.collected)

    @property
    def settings(self) -> dict[str, str]:
        """The session settings, as SHOW prints them."""
        return self.terms.display()

    def entries(self) -> tuple[LedgerEntry, ...]:
        """Every charge so far, oldest first."""
        return self.engine.entries()

    def synthetic(self, name: str) -> Synthetic:
        """A synthetic table: its model, and every look with its noisy answers and its cost.

        Raises: ProgrammingError (E_UNKNOWN_TABLE).
        """
        from dpsql.answer.synthetics import find_synthetic  # few connections have one

        return find_synthetic(self.engine.models, name)

    def refit(self, name: str, work: float = 1e10) -> Synthetic:
        """Fit the model of a synthetic table further, and store it as another table; free.

        Args:
            work: cells that the fit may go through; 1e10 take about a minute.

        Raises: ProgrammingError (E_UNKNOWN_TABLE, E_STATEMENT) for one that is not there, or that
        has no graphical model.

        Guarantee: a function of what was published, so that nothing is charged.
        """
        return self.engine.refit(name, work)

    def cursor(self) -> Cursor:
        """A new cursor. Raises: InterfaceError (E_CLOSED)."""
        self._check_open()
        return Cursor(self)

    def execute(self, sql: str, parameters: Parameters = (), **options: object) -> Cursor:
        """Execute one statement on a new cursor."""
        return self.cursor().execute(sql, parameters, **options)

    def executescript(self, sql: str) -> Cursor:
        """Answer all SELECTs of a script as one workload, on a new cursor."""
        return self.cursor().executescript(sql)

    def explain(self, sql: str, parameters: Parameters = ()) -> Explanation:
        """The forecast of a statement or script: free, from public facts only."""
        from dpsql.sql.marks import bind_parameters  # scripts have none

        text = bind_parameters(check_text(sql), parameters, self.paramstyle)
        return self.told(lambda: self._explain(text), text)

    def _explain(self, text: str) -> Explanation:
        terms = self.terms
        statements = parse_script(text, self.engine, terms.dialect)
        if [statement.kind for statement in statements] in (["run"], ["forecast"]):
            return self.foresee_workload()
        for statement in statements:
            if statement.kind == "set":
                terms = terms.with_text(*statement.words)
        if any(s.creation is not None and not s.explain for s in statements):
            return explain_script(self.engine, statements, terms)
        selects = [statement for statement in statements if statement.kind == "select"]
        searches = [statement.search for statement in statements if statement.search]
        if searches and len(statements) == 1:
            return explain_search(self.engine, searches[0], terms)
        if any(is_new(self.engine, statement) for statement in statements):
            return explain_finding(self.engine, statements, terms)
        if not selects:
            raise ProgrammingError("E_PARSE", "there is no SELECT to explain")
        return self.engine.explain(self.engine.compile(selects), joint_terms(terms, selects))

    def rehearse(self, sql: str) -> None:
        """Take a script as far as its first charge, on its own way: what refuses it is raised.

        Data are opened and read; nothing is charged, noted or stored. A script that writes rows,
        or forgets domains, is not gone through. Raises: as ``executescript``.
        """
        statements = parse_script(check_text(sql), self.engine, self.terms.dialect)
        if any(each.kind == "forget" or each.rows is not None for each in statements):
            return
        self.engine.rehearses = True
        try:
            self.executescript(sql)
        except Rehearsed:
            pass
        finally:
            self.engine.rehearses = False

    def foresee_workload(self) -> Explanation:
        """The forecast of the open workload: free. Raises: ProgrammingError (E_STATEMENT)."""
        return self.engine.explain(*gathered(self.engine, self.collected, self.terms))

    def describe(self, sql: str) -> tuple[ColumnTypes, ...]:
        """The columns that a SELECT would return, which is not asked.

        Free, from public facts only: the outer shell runs over
        zeros in place of noisy numbers. Raises: ProgrammingError, NotSupportedError.
        """
        text = check_text(sql)
        from dpsql.dbapi.column_types import foresee  # most are asked for answers

        return self.told(lambda: foresee(self.engine, text, self.terms.dialect), text)

    def grant_here(self) -> None:
        """Grant SQL the working directory, unless data lie there, as a terminal does."""
        self.engine.granted = grant_here(self.catalog, anchor_folder(self.catalog))

    def told(self, work: Callable[[], T], text: str) -> T:
        """Run ``work`` for a text of SQL; a fault of dpsql, or Ctrl-C, says what was charged.

        Raises: InternalError; Interrupted, which is a KeyboardInterrupt.
        """
        self._check_open()  # a forked child would wait for a thread that it does not have
        charges = self._charges

        def run() -> T:
            found = told(work, charges, lambda: Span.whole(text))
            check()  # an interrupt that a library has swallowed comes late, and is not lost
            return found

        with self._turn, looking_ahead(self.report):
            return interruptible(run, charges)

    def interruptible(self, work: Callable[[], T]) -> T:
        """Run ``work``, statements and what is done with their results; Ctrl-C says what they cost.

        Raises: Interrupted.
        """
        return interruptible(work, self._charges)

    @property
    def _charges(self) -> Charges:
        return Charges() if self._engine is None else self.engine.charges

    def at_most(self, epsilon: Fraction) -> AbstractContextManager[None]:
        """Refuse (E_PRICE), for as long as this lasts, what would cost more in all.

        Guarantee: a refusal comes before the rows are read, and charges nothing.
        """
        return self._charges.at_most(epsilon)

    def set(self, name: str, value: str) -> None:
        """SET a session setting from its text."""
        self.terms = self.terms.with_text(name, value)

    def _check_open(self) -> None:
        _ = self.engine

    def commit(self) -> None:
        """Does nothing: every answer is final when it is returned."""
        self._check_open()

    def rollback(self) -> None:
        """Forget an open workload; what was released stays released and is never refunded."""
        self._check_open()
        self.collected = None

    def close(self) -> None:
        """Close the connection; a second close does nothing, nor does one in a forked process."""
        if self._engine is not None and os.getpid() == self._process:
            self._engine.close()
            self._engine = None

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
