"""PEP 249: connections over one catalog, and what the surfaces need beside them."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from dpsql.answer.discovered import find_named
from dpsql.answer.result import Result, listing, message
from dpsql.catalog import Catalog
from dpsql.catalog.read import read_catalog
from dpsql.dbapi.exceptions import Exceptions
from dpsql.dbapi.fetching import Fetching
from dpsql.dbapi.script import (
    Parameters,
    asked_now,
    changes_domains,
    check_order,
    check_synthetics,
    check_text,
    explain_finding,
    explain_script,
    explain_search,
    gathered,
    is_new,
    joint_terms,
    offered_search,
    parse_script,
    plan_offered,
    refuse_unknown,
)
from dpsql.engine.charges import Charges, DryRunDone, interruptible
from dpsql.engine.defects import told
from dpsql.engine.engine import Engine
from dpsql.engine.granted_files import NOTHING, GrantedFiles, grant, grant_here
from dpsql.engine.progress import looking_ahead
from dpsql.engine.terms import Terms
from dpsql.errors import (
    InterfaceError,
    LedgerError,
    NotSupportedError,
    ProgrammingError,
    Span,
    check_fork,
)
from dpsql.integrations.notebook import progress
from dpsql.interrupts import check
from dpsql.privacy.budget.accounting import parse_delta_text, parse_epsilon_text
from dpsql.privacy.budget.curator_acts import (
    adopt_ledger,
    anchor_folder,
    find_analyst,
    find_entry,
    largest_request,
    migrate_ledger,
    raise_budget,
    recover_ledger,
    verify_ledger,
)
from dpsql.privacy.budget.ledger import Entry as LedgerEntry
from dpsql.privacy.budget.ledger import Status as BudgetStatus
from dpsql.privacy.doors.vaults import refuse_unreadable, share_room
from dpsql.records import replace
from dpsql.settings.table import SETTINGS, OptionPlace, options_of
from dpsql.sql.text.lexemes import MAX_STATEMENT, split_statements
from dpsql.sql.text.lexemes import split_script as _split_script
from dpsql.sql.text.parse import QUERY, Statement

if TYPE_CHECKING:
    from dpsql.answer.synthetic_tables import Synthetic
    from dpsql.dbapi.column_types import ColumnTypes
    from dpsql.engine.explanation import Explanation

T = TypeVar("T")
FORGOTTEN = "{} {} is forgotten; what it cost stays charged"

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
    "recover_ledger",
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

    Args:
        catalog: path of the TOML file.
        epsilon, delta: what each request costs, as int, float, Decimal or Fraction; None leaves it
            to the catalog or to SET.
        noise: "laplace", "gaussian", "auto" or the name of an installed law; SET changes it, as it
            does epsilon and delta.
        analyst: whose budget requests are charged to as well, where the catalog declares analysts.
        files: the one folder whose files SQL may name, for workloads and drawn rows; None for no
            folder.
        show_stddev: gives rows that are fetched a column of standard errors after every noisy one
            ("on"), or these beside the numbers ("text").
        paramstyle: marks of parameters in SQL, one of PEP 249: "qmark" (``?``, and ``:name`` for a
            mapping), "named", "numeric", "format", "pyformat".
        **unknown: options that there are none of, refused by name.

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
    loaded = read_catalog(_path(path))
    refuse_unreadable(loaded)
    return share_room(loaded)


def inspect(catalog: str | os.PathLike[str]) -> Connection:
    """Open a connection for the curator, who sees the budget and every charge.

    Where analysts are declared it belongs to none of them, and every charge is refused.
    Raises: CatalogError, LedgerError.
    """
    check_fork()
    loaded = read_catalog(_path(catalog))
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
        """The catalog: tables, columns, domains, bounds, units, budget."""
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
        from dpsql.answer.synthetic_tables import find_synthetic  # few connections have one

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
        """Execute one statement on a new cursor.

        Args:
            sql: one statement.
            parameters: a sequence or a mapping, by the ``paramstyle``.
            **options: epsilon, delta and noise of this statement, in place of the session's.

        Raises: as ``Cursor.execute``.
        """
        return self.cursor().execute(sql, parameters, **options)

    def executescript(self, sql: str) -> Cursor:
        """Answer all SELECTs of a script as one workload, on a new cursor."""
        return self.cursor().executescript(sql)

    def explain(self, sql: str, parameters: Parameters = ()) -> Explanation:
        """The forecast of a statement or script: free, from public facts only."""
        from dpsql.sql.text.parameters import bind_parameters  # scripts have none

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
        except DryRunDone:
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


class Cursor(Fetching):
    """Executes statements and walks their results (PEP 249)."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.connection = connection

    def _show(self, result: Result) -> Result:
        how = self.connection.show_stddev
        if how == "off":
            return result
        from dpsql.answer.display import errors_as_columns, errors_as_text  # asked for by a setting

        return errors_as_text(result) if how == "text" else errors_as_columns(result)

    def execute(self, sql: str, parameters: Parameters = (), **options: object) -> Cursor:
        """Execute one statement; its parameters are bound as literals before planning.

        Args:
            sql: one statement.
            parameters: a sequence for ``?`` marks, a mapping for ``:name``; see ``paramstyle`` of
                ``connect``.
            **options: epsilon, delta and noise of this statement, in place of the session's.

        Raises: ProgrammingError, NotSupportedError, BudgetExceeded, OperationalError; InternalError
        for a defect of dpsql, which says what was charged.
        """
        self._start()
        terms = self._terms_with(options)
        if len(check_text(sql)) > MAX_STATEMENT:
            raise ProgrammingError("E_TOO_LARGE", f"a statement of over {MAX_STATEMENT} characters")
        from dpsql.sql.text.parameters import bind_parameters  # scripts have none

        text = bind_parameters(sql, parameters, self.connection.paramstyle)
        self.connection.told(lambda: self._finish(self._execute(text, terms)), text)
        return self

    def _execute(self, text: str, terms: Terms) -> list[Result]:
        fragments = split_statements(text)
        if not fragments:
            raise ProgrammingError("E_PARSE", "the statement is empty", hint="write a SELECT")
        if len(fragments) > 1:
            raise ProgrammingError(
                "E_MULTI_STATEMENT",
                "more than one statement",
                hint="executescript() answers several statements as one workload",
                span=fragments[1].whole(),
            )
        return self._run(self.connection.engine.read(fragments[0], terms.dialect), terms)

    def executescript(self, sql: str) -> Cursor:
        """Answer all SELECTs of a script as one workload with one charge; see ``nextset``.

        SET statements must come before the first SELECT. Every statement is checked before any
        of them runs. BEGIN WORKLOAD and RUN WORKLOAD may enclose the script; while a workload is
        open, the SELECTs of a script are added to it. Raises: as ``execute``.
        """
        self._start()
        check_text(sql)
        self.connection.told(lambda: self._finish(self._execute_script(sql)), sql)
        return self

    def _execute_script(self, sql: str) -> list[Result]:
        connection = self.connection
        statements = parse_script(sql, connection.engine, connection.terms.dialect)
        if not statements:
            raise ProgrammingError("E_PARSE", "the script is empty")
        check_order(statements, connection.collected is not None)
        found = self._find_first(statements)
        statements = statements[len(found) :]
        return [*itertools.chain(*found), *(self._rest_of_script(statements) if statements else ())]

    def _find_first(self, statements: list[Statement]) -> list[list[Result]]:
        """Answer the head of a script: up to the last domain or bounds that it finds or forgets."""
        connection, engine = self.connection, self.connection.engine
        places = [i for i, s in enumerate(statements) if changes_domains(s)]
        before = statements[: places[-1] + 1] if places else []
        if not before:
            return []
        if connection.collected is not None:
            what = "domains are not found while a workload is open"
            raise ProgrammingError("E_STATEMENT", what, hint="RUN WORKLOAD first")
        terms = connection.terms
        for statement in statements:
            if statement.kind == "set":
                terms = terms.with_text(*statement.words)
        from dpsql.engine.discover import found_before  # few scripts find domains

        if all(statement.kind != "forget" for statement in before):
            for statement in before:
                if statement.search is not None and not found_before(engine, statement.search):
                    offered_search(engine, statement.search, terms)
        engine.foresee(list(asked_now(statements).values()))
        return [self._run(statement, connection.terms) for statement in before]

    def _rest_of_script(self, statements: list[Statement]) -> list[Result]:
        connection = self.connection
        terms = connection.terms
        for statement in statements:
            if statement.kind == "set":
                terms = terms.with_text(*statement.words)
        engine = connection.engine
        made = {s.creation.name.casefold() for s in statements if s.creation and not s.explain}
        told = [each for each in statements if each.kind == "describe"]
        for statement in told if not made else [t for t in told if t.words[1:] != QUERY]:
            if statement.words[0].casefold() not in made:
                from dpsql.dbapi.show import describe  # few scripts describe tables

                describe(engine, statement)
        now = asked_now(statements)
        check_synthetics(engine, statements, terms)
        compiled = dict(zip(now, engine.compile(list(now.values())), strict=True))
        kinds = [statement.kind for statement in statements]
        whole = ("begin" in kinds) == ("run" in kinds) and kinds[-2:] != ["begin", "run"]
        if connection.collected is not None or not whole:
            return [r for s in statements for r in self._run(s, connection.terms)]
        paid = [place for place, statement in now.items() if not statement.explain]
        workload = [compiled[place] for place in paid]
        terms = joint_terms(terms, [now[place] for place in paid])
        found = engine.answer(workload, terms, connection.report) if workload else ()
        answers = dict(zip(paid, found, strict=True))
        results: list[Result] = []
        for place, statement in enumerate(statements):
            if place in answers:
                results.append(answers[place])
            elif statement.kind not in ("begin", "run"):
                results += self._run(statement, connection.terms)
        return results

    def executemany(self, sql: str, parameters: Iterable[Parameters]) -> Cursor:
        """Refused: a statement for each of many parameters would be a charge for each of them.

        Raises: NotSupportedError (E_STATEMENT).
        """
        raise NotSupportedError(
            "E_STATEMENT",
            "executemany is refused: every set of parameters would be charged by itself",
            hint="executescript() answers several statements for one charge; "
            "JOIN (VALUES ...) asks one statement about many values",
        )

    def _terms_with(self, options: dict[str, object]) -> Terms:
        known = {
            key: value for key, value in options.items() if key in options_of(OptionPlace.EXECUTE)
        }
        refuse_unknown({key: value for key, value in options.items() if key not in known})
        return self.connection.terms.with_values(known)

    def _run(self, statement: Statement, terms: Terms) -> list[Result]:
        connection, engine = self.connection, self.connection.engine
        if statement.kind != "select":  # one is compiled with what is known by then
            engine.catch_up()
        text = statement.fragment.body
        match statement.kind:
            case "set":
                connection.set(*statement.words)
                name = statement.words[0]
                return [message(f"{name} = {connection.settings[name]}", text)]
            case "show":
                from dpsql.dbapi.show import describe, show  # few statements show anything

                if statement.words[0] == "columns":
                    return [describe(engine, replace(statement, words=statement.words[1:]))]
                return [show(engine, connection.terms, statement.words[0], text)]
            case "empty":
                from dpsql.dbapi.reflection import empty_answer  # few statements ask for columns

                return [empty_answer(statement)]
            case "constant":
                from dpsql.dbapi.column_types import constants  # few statements have no table

                return [constants(statement)]
            case "describe":
                from dpsql.dbapi.show import describe  # few statements describe tables

                return [describe(engine, statement)]
            case "begin":
                if connection.collected is not None:
                    raise ProgrammingError("E_STATEMENT", "a workload is already open")
                connection.collected = []
                return [message("workload open; RUN WORKLOAD answers it", text)]
            case "run":
                return self._run_workload()
            case "cancel":
                return [message(self._forget_workload(), text)]
            case "forecast":
                return [_forecast(connection.foresee_workload(), statement)]
            case "create":
                return self._create(statement, terms)
            case "find":
                return self._search(statement, terms)
            case "forget":
                from dpsql.engine.discover import forget  # few statements forget domains

                found = find_named(engine.found, *statement.words)
                forget(engine, found)
                return [message(FORGOTTEN.format(found.what.lower(), found.name), text)]
            case "materialize":
                return [self._materialize(statement)]
        compiled = engine.compile([statement])
        terms = joint_terms(terms, [statement])
        if statement.explain:
            return [_forecast(engine.explain(compiled, terms), statement)]
        if connection.collected is not None:
            connection.collected.append(statement)
            return [message(f"collected; {connection.workload} statements so far", text)]
        return list(engine.answer(compiled, terms, connection.report))

    def _create(self, statement: Statement, terms: Terms) -> list[Result]:
        """CREATE SYNTHETIC TABLE, or its forecast."""
        engine, creation = self.connection.engine, statement.creation
        assert creation is not None
        if statement.explain:
            planned, assumed = plan_offered(engine, creation, terms)
            return [_forecast(planned.explain(engine, assumed), statement)]
        from dpsql.engine.learn import plan_table  # few statements learn models

        return list(engine.run(plan_table(engine, creation, terms, self.connection.report)))

    def _search(self, statement: Statement, terms: Terms) -> list[Result]:
        """CREATE DOMAIN or CREATE BOUNDS, or its forecast."""
        engine, search = self.connection.engine, statement.search
        assert search is not None
        from dpsql.engine.discover import THERE, found_before, plan_search  # few find domains

        known = found_before(engine, search)
        if known is not None:
            return [message(THERE.format(known.what.lower(), known.name), search.text)]
        if statement.explain:
            planned, assumed = offered_search(engine, search, terms)
            return [_forecast(planned.explain(engine, assumed), statement)]
        return list(engine.run(plan_search(engine, search, terms)))

    def _materialize(self, statement: Statement) -> Result:
        """Draw rows of a synthetic table into a file."""
        from dpsql.answer.model_answers import check_target, write_rows  # few statements draw rows

        wanted = statement.rows
        assert wanted is not None
        path = self.connection.engine.granted.find(wanted.path)
        check_target(path)
        columns = self.connection.engine.draw(wanted)
        write_rows(columns, path)
        count = len(next(iter(columns.values())))
        return message(f"{count:,} rows in {wanted.path}", statement.fragment.body)

    def _forget_workload(self) -> str:
        """Forget the open workload, and say so."""
        count = self.connection.workload
        self.connection.rollback()
        if count is None:
            return "no workload is open; what was released stays released"
        return f"workload of {count} statements is forgotten; nothing was charged for it"

    def _run_workload(self) -> list[Result]:
        connection = self.connection
        compiled, terms = gathered(connection.engine, connection.collected, connection.terms)
        results = connection.engine.answer(compiled, terms, connection.report)
        connection.collected = None
        return list(results)


def _forecast(explanation: Explanation, statement: Statement) -> Result:
    lines = [(line,) for line in explanation.lines()]
    return listing(("explain",), lines, statement.fragment.body)
