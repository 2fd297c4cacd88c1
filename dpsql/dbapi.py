"""PEP 249: connections and cursors over one catalog."""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from dpsql.answer.result import Result, listing, message
from dpsql.catalog import Catalog
from dpsql.catalog.describe import describe_table
from dpsql.engine import Engine, Terms
from dpsql.errors import (
    DataError,
    InterfaceError,
    NotSupportedError,
    ProgrammingError,
    decimal_text,
    printable,
)
from dpsql.plan.request import NOISES
from dpsql.privacy.accounting import (
    parse_delta,
    parse_delta_text,
    parse_epsilon,
    parse_epsilon_text,
)
from dpsql.sql.parse import Statement, bind_parameters, parse, split_statements
from dpsql.sql.parse import split_script as _split_script

from dpsql.plan.explain import Explanation
from dpsql.privacy.ledger import Entry as LedgerEntry
from dpsql.privacy.ledger import Status as BudgetStatus

if TYPE_CHECKING:
    from dpsql.sql.products import Compiled

__all__ = [
    "BudgetStatus",
    "Connection",
    "Cursor",
    "Explanation",
    "LedgerEntry",
    "Result",
    "connect",
    "draft_catalog",
    "parse_delta_text",
    "parse_epsilon_text",
    "split_script",
]


class _TypeObject:
    """Equal to every result type it stands for (PEP 249)."""

    def __init__(self, *names: str) -> None:
        self.names = frozenset(names)

    def __eq__(self, other: object) -> bool:
        return other in self.names if isinstance(other, str) else self is other

    def __hash__(self) -> int:
        return hash(self.names)


STRING = _TypeObject("text")
NUMBER = _TypeObject("integer", "number", "boolean")
DATETIME = _TypeObject("date")
BINARY = _TypeObject()
ROWID = _TypeObject()
Date = dt.date
Time = dt.time
Timestamp = dt.datetime
Binary = bytes


def DateFromTicks(ticks: float) -> dt.date:  # noqa: N802
    """A date from seconds since the epoch (PEP 249)."""
    return dt.date(*time.localtime(ticks)[:3])


def TimeFromTicks(ticks: float) -> dt.time:  # noqa: N802
    """A time from seconds since the epoch (PEP 249)."""
    return dt.time(*time.localtime(ticks)[3:6])


def TimestampFromTicks(ticks: float) -> dt.datetime:  # noqa: N802
    """A time stamp from seconds since the epoch (PEP 249)."""
    return dt.datetime(*time.localtime(ticks)[:6])


def connect(
    catalog: str | os.PathLike[str],
    *,
    epsilon: object = None,
    delta: object = None,
    noise: str | None = None,
    **unknown: object,
) -> Connection:
    """Open a connection to the tables of a catalog.

    ``epsilon`` and ``delta`` are what each request costs (int, float, Decimal or Fraction);
    ``noise`` is "laplace", "gaussian" or "auto". All three can be changed by SET.
    Raises: CatalogError, LedgerError, DataError (E_EPSILON, E_DELTA, E_SETTING).
    Guarantee: everything ever released from the catalog together is (epsilon, delta)-differentially
    private for one privacy unit, with the epsilon and delta of the catalog's [budget].
    """
    _refuse_unknown(unknown)
    return Connection(Catalog.load(Path(catalog)), epsilon=epsilon, delta=delta, noise=noise)


def _refuse_unknown(unknown: dict[str, object]) -> None:
    for name in unknown:
        if name in ("seed", "rng", "random_state", "generator"):
            raise ProgrammingError("E_SEED", "noise has no seed: a known seed subtracts the noise")
        if name in ("debug", "include_true", "true", "exact", "raw"):
            raise ProgrammingError("E_DEBUG", "true answers cannot be asked for")
        raise TypeError(f"unexpected keyword argument {name!r}")


def split_script(text: str) -> tuple[list[str], str]:
    """The complete statements of a script and the unfinished rest."""
    fragments, rest = _split_script(text)
    return [fragment.body for fragment in fragments], rest


def draft_catalog(path: str | os.PathLike[str]) -> str:
    """Draft a TOML catalog for a data file from its column names and types only."""
    from dpsql.catalog.draft import draft
    from dpsql.privacy.measure import describe_source

    return draft(Path(path), describe_source(str(path)))


def _anchor_folder() -> Path:
    """Where ledger anchors live: away from the ledgers they guard."""
    home = os.environ.get("XDG_STATE_HOME") or os.path.join(Path.home(), ".local", "state")
    return Path(home) / "dpsql" / "anchors"


class Connection:
    """A session on one catalog (PEP 249); threads may share the module, not connections."""

    def __init__(
        self, catalog: Catalog, *, epsilon: object, delta: object, noise: str | None
    ) -> None:
        self._catalog = catalog
        limit = catalog.budget.max_epsilon_per_request
        terms = Terms(None, Fraction(0), "auto")
        if epsilon is not None:
            terms = replace(terms, epsilon=parse_epsilon(epsilon, limit))
        if delta is not None:
            terms = replace(terms, delta=parse_delta(delta))
        if noise is not None:
            terms = replace(terms, noise=_parse_noise(noise))
        self._terms = terms
        self._collected: list[Statement] | None = None
        self._engine: Engine | None = Engine(catalog, _anchor_folder())

    @property
    def engine(self) -> Engine:
        """The engine; raises InterfaceError once the connection is closed."""
        if self._engine is None:
            raise InterfaceError("E_CLOSED", "the connection is closed")
        return self._engine

    @property
    def catalog(self) -> Catalog:
        """The public facts."""
        return self._catalog

    @property
    def budget(self) -> BudgetStatus:
        """What is left of the catalog's budget."""
        return self.engine.status()

    @property
    def workload(self) -> int | None:
        """How many statements BEGIN WORKLOAD has collected, or None outside a workload."""
        return None if self._collected is None else len(self._collected)

    @property
    def settings(self) -> dict[str, str]:
        """The session settings, as SHOW prints them."""
        terms = self._terms
        return {
            "epsilon": "not set" if terms.epsilon is None else decimal_text(terms.epsilon),
            "delta": f"{float(terms.delta):g}",
            "noise": terms.noise,
            "fresh": "on" if terms.fresh else "off",
        }

    def entries(self) -> tuple[LedgerEntry, ...]:
        """Every charge so far, oldest first."""
        return self.engine.entries()

    def cursor(self) -> Cursor:
        """A new cursor."""
        self.engine.status()
        return Cursor(self)

    def execute(self, sql: str, parameters: Sequence[object] = (), **options: object) -> Cursor:
        """Execute one statement on a new cursor."""
        return self.cursor().execute(sql, parameters, **options)

    def executescript(self, sql: str) -> Cursor:
        """Answer all SELECTs of a script as one workload, on a new cursor."""
        return self.cursor().executescript(sql)

    def explain(self, sql: str, parameters: Sequence[object] = ()) -> Explanation:
        """The forecast of a statement or script: free, from public facts only."""
        script = _Script(self, _parse_all(bind_parameters(sql, parameters)))
        workload = script.compile_all()
        if not workload:
            raise ProgrammingError("E_PARSE", "there is no SELECT to explain")
        return self.engine.explain(workload, script.terms)

    def set(self, name: str, value: str) -> None:
        """SET a session setting from its text."""
        self._terms = self._changed(self._terms, name, value)

    def _changed(self, terms: Terms, name: str, value: str) -> Terms:
        match name:
            case "epsilon":
                limit = self._catalog.budget.max_epsilon_per_request
                return replace(terms, epsilon=parse_epsilon_text(value, limit))
            case "delta":
                return replace(terms, delta=parse_delta_text(value))
            case "noise":
                return replace(terms, noise=_parse_noise(value.lower()))
            case "fresh" if value.lower() in ("on", "off", "true", "false"):
                return replace(terms, fresh=value.lower() in ("on", "true"))
        raise ProgrammingError("E_SETTING", f"{name} = {value}: on or off", hint="SET fresh = on")

    def commit(self) -> None:
        """Does nothing: every answer is final when it is returned."""
        self.engine.status()

    def rollback(self) -> None:
        """Forget an open workload; what was released stays released and is never refunded."""
        self.engine.status()
        self._collected = None

    def close(self) -> None:
        """Close the connection; a second close does nothing."""
        if self._engine is not None:
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


def _parse_noise(value: object) -> str:
    if not isinstance(value, str) or value not in NOISES:
        raise DataError("E_SETTING", f"noise = {value}", hint=f"one of {', '.join(NOISES)}")
    return value


def _parse_all(sql: object) -> list[Statement]:
    if not isinstance(sql, str):
        raise InterfaceError("E_PARSE", f"SQL must be text, not {type(sql).__name__}")
    return [parse(fragment) for fragment in split_statements(sql)]


@dataclass
class _Script:
    """The statements of one call, checked and compiled before any of them runs."""

    connection: Connection
    statements: list[Statement]
    terms: Terms = field(init=False)
    compiled: dict[int, Compiled] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.terms = self.connection._terms
        for statement in self.statements:
            if statement.kind == "set":
                self.terms = self.connection._changed(self.terms, *statement.words)

    def compile_all(self) -> list[Compiled]:
        """Compile every SELECT, in order."""
        selects = [s for s in self.statements if s.kind == "select"]
        return list(self.connection.engine.compile(selects))


class Cursor:
    """Executes statements and walks their results (PEP 249)."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.arraysize = 1
        self._results: list[Result] = []
        self._position = 0
        self._row = 0
        self._closed = False

    def execute(self, sql: str, parameters: Sequence[object] = (), **options: object) -> Cursor:
        """Execute one statement; ``?`` marks are bound as literals before planning.

        ``epsilon``, ``delta`` and ``noise`` override the session for this statement.
        Raises: ProgrammingError, NotSupportedError, BudgetExceeded, OperationalError.
        """
        terms = self._terms_with(options)
        fragments = split_statements(bind_parameters(_text(sql), parameters))
        if not fragments:
            raise ProgrammingError("E_PARSE", "the statement is empty", hint="write a SELECT")
        if len(fragments) > 1:
            raise ProgrammingError(
                "E_MULTI_STATEMENT",
                "more than one statement",
                hint="executescript() answers several statements as one workload",
                span=fragments[1].span(0, len(fragments[1].body)),
            )
        self._finish(self._run(parse(fragments[0]), terms))
        return self

    def executescript(self, sql: str) -> Cursor:
        """Answer all SELECTs of a script as one workload with one charge; see ``nextset``.

        SET statements must come before the first SELECT. Every statement is checked before any
        of them runs. BEGIN WORKLOAD and RUN WORKLOAD may enclose the script.
        """
        connection = self.connection
        statements = _parse_all(_text(sql))
        if not statements:
            raise ProgrammingError("E_PARSE", "the script is empty")
        _check_order(statements)
        script = _Script(connection, statements)
        selects = [s for s in statements if s.kind == "select" and not s.explain]
        compiled = connection.engine.compile(selects)
        answers = iter(connection.engine.answer(compiled, script.terms) if compiled else ())
        results: list[Result] = []
        for statement in statements:
            if statement.kind == "select" and not statement.explain:
                results.append(next(answers))
            elif statement.kind not in ("begin", "run"):
                results += self._run(statement, connection._terms)
        self._finish(results)
        return self

    def executemany(self, sql: str, parameters: Sequence[Sequence[object]]) -> Cursor:
        """Not supported: a workload is asked for in one script."""
        raise NotSupportedError(
            "E_STATEMENT",
            "executemany is not supported",
            hint="executescript() answers several statements as one workload",
        )

    def _terms_with(self, options: dict[str, object]) -> Terms:
        terms = self.connection._terms
        known = {
            key: value for key, value in options.items() if key in ("epsilon", "delta", "noise")
        }
        _refuse_unknown({key: value for key, value in options.items() if key not in known})
        if "epsilon" in known:
            limit = self.connection.catalog.budget.max_epsilon_per_request
            terms = replace(terms, epsilon=parse_epsilon(known["epsilon"], limit))
        if "delta" in known:
            terms = replace(terms, delta=parse_delta(known["delta"]))
        if "noise" in known:
            terms = replace(terms, noise=_parse_noise(known["noise"]))
        return terms

    def _run(self, statement: Statement, terms: Terms) -> list[Result]:
        connection = self.connection
        text = statement.fragment.body
        match statement.kind:
            case "set":
                connection.set(*statement.words)
                name = statement.words[0]
                return [message(f"{name} = {connection.settings[name]}", text)]
            case "show":
                return [_show(connection, statement.words[0], text)]
            case "describe":
                return [_describe(connection.catalog, statement)]
            case "begin":
                if connection._collected is not None:
                    raise ProgrammingError("E_STATEMENT", "a workload is already open")
                connection._collected = []
                return [message("workload open; RUN WORKLOAD answers it", text)]
            case "run":
                return self._run_workload()
        compiled = connection.engine.compile([statement])
        if statement.explain:
            lines = connection.engine.explain(compiled, terms).lines()
            return [listing(("explain",), [(line,) for line in lines], text)]
        if connection._collected is not None:
            connection._collected.append(statement)
            return [message(f"collected; {connection.workload} statements so far", text)]
        return list(connection.engine.answer(compiled, terms))

    def _run_workload(self) -> list[Result]:
        connection = self.connection
        if not connection._collected:
            what = "no workload is open" if connection._collected is None else "it is empty"
            raise ProgrammingError("E_STATEMENT", what, hint="BEGIN WORKLOAD; SELECT ...;")
        compiled = connection.engine.compile(connection._collected)
        results = connection.engine.answer(compiled, connection._terms)
        connection._collected = None
        return list(results)

    def _finish(self, results: Sequence[Result]) -> None:
        self._results = list(results)
        self._position = self._row = 0

    @property
    def result(self) -> Result:
        """The current result; raises InterfaceError before the first execute."""
        self._check_open()
        if not self._results:
            raise InterfaceError("E_NO_RESULT", "nothing has been executed")
        return self._results[self._position]

    @property
    def stddev(self) -> tuple[tuple[float | None, ...] | None, ...]:
        """The standard errors of the current result, column by column."""
        return self.result.stddev

    @property
    def description(self) -> list[tuple[Any, ...]] | None:
        """PEP 249 column descriptions: name and type code, then five times None."""
        if not self._results or not self.result.columns:
            return None
        pairs = zip(self.result.columns, self.result.types, strict=True)
        return [(name, kind, None, None, None, None, None) for name, kind in pairs]

    @property
    def rowcount(self) -> int:
        """Number of rows of the current result, or -1."""
        return len(self.result.rows) if self._results else -1

    def nextset(self) -> bool | None:
        """Move on to the result of the next statement; None when there is none."""
        self._check_open()
        if self._position + 1 >= len(self._results):
            return None
        self._position += 1
        self._row = 0
        return True

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row, or None."""
        rows = self.fetchmany(1)
        return rows[0] if rows else None

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """The next ``size`` rows (``arraysize`` by default)."""
        count = self.arraysize if size is None else size
        rows = list(self.result.rows[self._row : self._row + count])
        self._row += len(rows)
        return rows

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All remaining rows."""
        return self.fetchmany(len(self.result.rows))

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        while (row := self.fetchone()) is not None:
            yield row

    def setinputsizes(self, sizes: object) -> None:
        """Does nothing (PEP 249)."""

    def setoutputsize(self, size: object, column: object = None) -> None:
        """Does nothing (PEP 249)."""

    def close(self) -> None:
        """Forget the results."""
        self._closed = True
        self._results = []

    def _check_open(self) -> None:
        if self._closed:
            raise InterfaceError("E_CLOSED", "the cursor is closed")

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _text(sql: object) -> str:
    if not isinstance(sql, str):
        raise InterfaceError("E_PARSE", f"SQL must be text, not {type(sql).__name__}")
    return sql


def _check_order(statements: list[Statement]) -> None:
    """A script is one workload with one budget: settings precede it, markers enclose it."""
    seen_select = False
    for position, statement in enumerate(statements):
        if statement.kind == "set" and seen_select:
            raise ProgrammingError(
                "E_SETTING",
                "SET must come before the first SELECT of a script",
                hint="one script is one workload with one budget",
                span=statement.fragment.span(0, 3),
            )
        seen_select |= statement.kind == "select" and not statement.explain
        last = position == len(statements) - 1
        if (statement.kind == "run" and not last) or (statement.kind == "begin" and seen_select):
            raise ProgrammingError(
                "E_STATEMENT",
                "a script is one workload: BEGIN WORKLOAD and RUN WORKLOAD can only enclose it",
                span=statement.fragment.span(0, 5),
            )


def _show(connection: Connection, what: str, sql: str) -> Result:
    if what == "tables":
        rows: list[tuple[Any, ...]] = [
            (table.name, _unit_text(table.unit.column, table.unit.max_rows), len(table.columns))
            for table in connection.catalog.tables.values()
        ]
        return listing(("table", "privacy_unit", "columns"), rows, sql)
    if what == "budget":
        return listing(("budget", "value"), _budget_rows(connection.budget), sql)
    return listing((what,), [(connection.settings[what],)], sql)


def _unit_text(column: str | None, max_rows: int) -> str:
    return "row" if column is None else f"{column}, at most {max_rows} rows"


def _budget_rows(status: BudgetStatus) -> list[tuple[Any, ...]]:
    rows = [
        ("total epsilon", decimal_text(status.total_epsilon)),
        ("total delta", f"{float(status.total_delta):g}"),
        ("largest epsilon of one more request", decimal_text(status.remaining_epsilon)),
    ]
    if status.total_delta > 0:
        rows.append(
            (
                "largest epsilon of one more Gaussian request",
                decimal_text(status.remaining_gaussian_epsilon),
            )
        )
    return [*rows, ("requests", str(status.entries)), ("ledger", status.ledger_id)]


def _describe(catalog: Catalog, statement: Statement) -> Result:
    name = statement.words[0]
    table = catalog.tables.get(name.casefold())
    if table is None:
        raise ProgrammingError(
            "E_UNKNOWN_TABLE",
            f"there is no table {printable(name)!r} in the catalog",
            hint=f"tables: {', '.join(t.name for t in catalog.tables.values())}",
        )
    rows: list[tuple[Any, ...]] = list(describe_table(table))
    return listing(("column", "type", "values", "cells"), rows, statement.fragment.body)
