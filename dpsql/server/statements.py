"""Statements of one session, each a command that is carried out by dpsql, the twin or the session.

What comes back is a ``Reply``: a table or none, a tag, and notices.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TypeVar

from dpsql.answer.display import errors_text
from dpsql.answer.result import Result, listing
from dpsql.catalog import Catalog
from dpsql.catalog.describe import describe_table
from dpsql.dbapi.connection import Connection
from dpsql.dbapi.site import Site
from dpsql.engine.terms import Terms
from dpsql.errors import NotSupportedError, ProgrammingError, printable
from dpsql.records import dataclass, replace
from dpsql.server.analyst_session import AnalystSession, FreeAnswer
from dpsql.server.answer_ticks import Ticks
from dpsql.server.catalog_twin import Declared, Twin, TwinReader
from dpsql.server.events import Events
from dpsql.server.messages import FieldDescription, Notice
from dpsql.server.result_stream import ResultStream, ResultTable, heads_of, wire_types
from dpsql.server.route import KEPT, SessionCommand, blank_but, route
from dpsql.settings.table import SETTINGS, OptionPlace, options_of
from dpsql.sql.rewrites.qualified import find_key
from dpsql.sql.text.constant_selects import is_constant
from dpsql.sql.text.lexemes import Fragment, render_literal, split_statements

T = TypeVar("T")

FREE_FORMS = ("EXPLAIN", "SHOW", "DESCRIBE", "DESC")
"""Free statements, so that a client which only wants to know its columns may cause it."""

BEGIN, RUN = "BEGIN WORKLOAD", "RUN"
"""The tags of what encloses a workload."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to a statement; ``counted`` adds the number of rows to the tag."""

    tag: str
    table: ResultStream | None = None
    notices: tuple[Notice, ...] = ()
    counted: bool = False

    def said(self, rows: int) -> str:
        """The tag after so many rows."""
        return f"{self.tag} {rows}" if self.counted else self.tag


class StatementRunner:
    """Asks on behalf of one analyst; its connection is opened by the first statement.

    ``enters`` tells the databases that are listed to whoever asks for all of them.
    """

    def __init__(
        self,
        site: Site,
        twin: Twin | None,
        analyst: str | None,
        ticks: Ticks | None = None,
        shows_errors: bool = False,
        events: Events | None = None,
        enters: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._caller = AnalystSession(
            site, analyst, ticks, is_strict=True, dialect="postgres", events=events
        )
        self._twin, self._enters = twin, enters
        self.last_charge = "nothing was asked"
        self._ticks = ticks or Ticks()
        self._told: tuple[Terms, str] | None = None
        self.settings = {
            "show_stddev": "on" if shows_errors else "off",
            "statement_timeout": "0",
        }
        self._first = dict(self.settings)
        self._local: dict[str, object] = {}
        self.cancel = self._caller.cancel
        self.follow = self._caller.follow
        self.close = self._caller.close

    @property
    def connection(self) -> Connection:
        """The connection. Raises: LedgerError, DataError."""
        return self._caller.connection

    def ask_twin(self, ask: Callable[[TwinReader], T]) -> T:
        """Ask the twin something, with the tables that are declared by now, until it is ended.

        Raises: NotSupportedError; OperationalError (E_TWIN); TwinError; Interrupted.
        """
        limit = int(self.settings["statement_timeout"])
        return self._caller.within(lambda: ask(self._read_twin()), limit, is_public=True)

    def _read_twin(self) -> TwinReader:
        if self._twin is None:
            what = "statements without a declared table are not answered here"
            raise NotSupportedError("E_TWIN", what, hint="dpsql serve --twin auto")
        self.connection.engine.catch_up()
        self._twin.declare(declared_tables(self.connection.engine.common))
        return self._twin.reader(self.connection.analyst, self._enters())

    @property
    def shows_errors(self) -> bool:
        """True if standard errors are columns."""
        return self.settings["show_stddev"] == "on"

    def knows(self, parts: tuple[str, ...]) -> bool:
        """True if a name is that of a declared table, a view or a synthetic table."""
        return find_key(parts, self.connection.known) is not None

    def forget_workload(self) -> None:
        """Forget an open workload, as the end of a transaction that is rolled back does."""
        if self._caller.is_open:
            self.connection.rollback()

    def route(self, fragment: Fragment) -> SessionCommand:
        """Route a statement; constants are dpsql's where nobody else is there."""
        found = route(fragment, self.knows)
        if self._twin is None and found.kind == "twin" and is_constant(fragment):
            return replace(found, kind="ask")
        return found

    def ask(self, text: str, commands: Sequence[SessionCommand]) -> list[Reply]:
        """Answer statements of dpsql together; ``text`` is the script that they are in.

        Raises: Error; Interrupted.
        """
        seen: set[str] = set()
        markers = {command.tag for command in commands} & {BEGIN, RUN}
        if len(commands) > 1 and len(markers) != 1:
            results = iter(self._run(text, commands))
            marked = (Reply(each.tag) if each.tag in markers else None for each in commands)
            pairs = zip(commands, marked, strict=True)
            return [reply or self._reply(each, next(results), seen) for each, reply in pairs]
        return [
            self._reply(command, result, seen)
            for command in commands
            for result in self._run(text, [command])
        ]

    def _run(self, text: str, commands: Sequence[SessionCommand]) -> list[Result]:
        """The results of statements, of several as a script."""
        script = blank_but(text, [command.fragment for command in commands])
        limit = int(self.settings["statement_timeout"])
        return self._caller.run(script, len(commands) > 1, limit)

    def _reply(self, command: SessionCommand, result: Result, seen: set[str]) -> Reply:
        notices = tuple(_notices(result, seen))
        if result.cost is not None:
            self.last_charge = charge_of(result)
        if result.columns:
            counted = command.tag in ("SELECT", RUN)
            tag = "SELECT" if counted else command.tag
            return Reply(tag, ResultTable(result, self.shows_errors), notices, counted)
        if result.message and command.tag != "SET":
            notices = (*notices, Notice("NOTICE", "00000", result.message))
        return Reply(command.tag, None, notices)

    def as_shown(self, reply: Reply) -> Reply:
        """A reply with columns of standard errors, or without, as it is set by now."""
        if isinstance(reply.table, ResultTable):
            return replace(reply, table=replace(reply.table, errors=self.shows_errors))
        return reply

    @property
    def repeated(self) -> FreeAnswer | None:
        """The answer to the last question, if it was found among repetitions."""
        return self._caller.repeated

    @property
    def is_outlived(self) -> bool:
        """True if the tables or the analyst of the session are no more what they were."""
        return self._caller.is_outlived

    @property
    def is_late(self) -> bool:
        """True if the last question was ended since it took too long."""
        return self._caller.is_late

    def forget_repeated(self) -> None:
        """Forget what was asked last."""
        self._caller.repeated = None

    def stamp(self) -> Hashable | None:
        """As long as what a free answer is right; None where none is given at once.

        Whoever is told at ticks, or collects a workload, is told nothing at once.
        """
        caller = self._caller
        if self._ticks.period or not (caller.is_open and caller.is_current):
            return None
        if self.connection.collected is not None:
            return None
        return self._caller.repeats.stamp(self.connection)

    @property
    def manner(self) -> Hashable:
        """Identity of who asks, on what terms, and of how it is told."""
        terms, analyst = self.connection.terms, self.connection.analyst
        if self._told is None or self._told[0] is not terms:
            self._told = terms, repr(terms)
        return self._told[1], analyst, self.shows_errors

    def show(self, command: SessionCommand) -> Reply:
        """SHOW of what the session itself keeps."""
        is_charge = command.name == "last_charge"
        told = self.last_charge if is_charge else self.settings[command.name]
        if command.name == "statement_timeout":
            told = _shown(int(told))
        return Reply("SHOW", ResultTable(listing((command.name,), [(told,)], "")))

    def set(self, command: SessionCommand) -> Reply:
        """SET of what the session itself keeps; other settings of clients are taken and forgotten.

        Raises: ProgrammingError (E_SETTING).
        """
        name, value = command.name, " ".join(command.words).lower()
        if name == "show_stddev":
            if value not in ("on", "off", "true", "false"):
                raise ProgrammingError(
                    "E_SETTING", f"{name} = {printable(value)}", hint="on or off"
                )
            self.settings[name] = "on" if value in ("on", "true") else "off"
        elif name == "statement_timeout":
            self.settings[name] = str(_milliseconds(value))
        return Reply(command.tag)

    def reset(self, name: str) -> None:
        """Set a setting to what the session began with, all of them where no name is given."""
        for each in (name,) if name else (*self._first, *options_of(OptionPlace.SET)):
            self._local.pop(each, None)
            if each in self._first:
                self.settings[each] = self._first[each]
            elif each in options_of(OptionPlace.SET) and self._caller.first_terms is not None:
                self._have(each, self._caller.first_terms.values[SETTINGS[each].key])

    def changes_terms(self, commands: Sequence[SessionCommand]) -> list[SessionCommand]:
        """Return the commands that change terms between statements of a script, but for SET."""
        kinds = {"set local", "discard"}
        if self._local or any(each.kind == "set local" for each in commands):
            kinds |= {"commit", "rollback"}
        terms = ("", *options_of(OptionPlace.SET))
        return [
            each
            for each in commands
            if each.kind in kinds or (each.kind == "reset" and each.name in terms)
        ]

    def keep(self, name: str) -> None:
        """Note what a setting is, which has another value until the transaction ends."""
        if name not in self._local:
            is_own = name in self.settings
            terms = self.connection.terms.values
            self._local[name] = self.settings[name] if is_own else terms[SETTINGS[name].key]

    def end_transaction(self) -> None:
        """Set what SET LOCAL has set to what it was."""
        for name, value in self._local.items():
            if name in self.settings:
                self.settings[name] = str(value)
            else:
                self._have(name, value)
        self._local.clear()

    def _have(self, name: str, value: object) -> None:
        terms = self.connection.terms
        self.connection.terms = terms.having(**{SETTINGS[name].key: value})

    def begin(self, settings: Mapping[str, str]) -> None:
        """Set what a client begins with, as far as dpsql has such settings. Raises: Error."""
        for name in (settings.keys() & {*options_of(OptionPlace.SET), *KEPT}) - {"last_charge"}:
            text = f"SET {name} = {render_literal(settings[name])}"
            (fragment,) = split_statements(text)
            command = self.route(fragment)
            if command.kind == "set":
                self.set(command)
            else:
                self.ask(text, [command])
        self._first = dict(self.settings)
        if self._caller.is_open:
            self._caller.first_terms = self.connection.terms

    def columns(
        self, command: SessionCommand, text: str
    ) -> tuple[tuple[FieldDescription, ...] | None, Reply | None]:
        """The columns of a statement that is not asked yet, and its reply where that is free.

        Raises: Error.
        """
        if command.tag == "SELECT":
            found = self.connection.describe(text)
            noisy = [self.shows_errors and each.noisy for each in found]
            kinds = wire_types([each.type for each in found], [each.own for each in found])
            heads = heads_of([each.name for each in found], kinds, noisy)
            return heads, None
        if command.tag in FREE_FORMS:
            (reply,) = self.ask(text, [command])
            return (None if reply.table is None else reply.table.heads), reply
        return None, None


def charge_of(result: Result) -> str:
    """Tell the cost of an answer, and its entry in the ledger."""
    entry = "" if result.receipt is None else f", ledger entry {result.receipt.seq}"
    return f"{result.cost}{entry}"


def _notices(result: Result, seen: set[str]) -> Iterator[Notice]:
    """Notices to a client on an answer: its cost, once for all with the same, errors, notes."""
    if result.cost is not None and result.receipt is not None:
        key = f"{result.receipt.seq} {result.cost.free}"
        if key not in seen:
            seen.add(key)
            head = "free" if result.cost.free else f"charged: {result.cost}"
            entry = f"ledger entry {result.receipt.seq}, head {result.receipt.head}"
            yield Notice("NOTICE", "00000", head, entry)
    errors = errors_text(result)
    if errors:
        yield Notice("NOTICE", "00000", f"standard error: {errors}")
    for note in result.notes:
        if note not in seen:
            seen.add(note)
            yield Notice("NOTICE", "00000", f"note: {note}")


def _milliseconds(value: str) -> int:
    """A time as PostgreSQL writes it. Raises: ProgrammingError (E_SETTING)."""
    found = re.fullmatch(r"(\d{1,9})\s*(ms|s|min|h|d|)", value)
    if found is None:
        what = f"statement_timeout = {printable(value)}"
        raise ProgrammingError("E_SETTING", what, hint="milliseconds, 30s or 2min")
    return int(found.group(1)) * _UNITS.get(found.group(2), 1)


_UNITS = {"d": 86_400_000, "h": 3_600_000, "min": 60_000, "s": 1000, "ms": 1}


def _shown(milliseconds: int) -> str:
    """A time as PostgreSQL shows it: in the largest unit of which it is a whole number.

    >>> _shown(0), _shown(1500), _shown(60_000)
    ('0', '1500ms', '1min')
    """
    if not milliseconds:
        return "0"
    unit = next(unit for unit, each in _UNITS.items() if milliseconds % each == 0)
    return f"{milliseconds // _UNITS[unit]}{unit}"


def declared_tables(known: Catalog) -> Declared:
    """The declared tables as the twin describes them: names, types, and domains as comments."""
    tables = []
    for table in known.tables.values():
        unit = table.unit.column
        comment = "public" if table.public else f"privacy unit: {unit or 'row'}"
        columns = [(name, kind, values) for name, kind, values, _ in describe_table(table)]
        names = {name.casefold() for name, _, _ in columns}
        if unit and unit.casefold() not in names:
            columns.insert(
                0, (unit, "text", "the privacy unit: COUNT(DISTINCT it), joins along it")
            )
        tables.append((table.name, comment, tuple(columns)))
    return tuple(tables)
