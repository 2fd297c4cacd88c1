"""Cursors: execute statements and walk their results (PEP 249)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from dpsql.answer.discovered import find_named
from dpsql.answer.result import Result, listing, message
from dpsql.dbapi.fetching import Fetching
from dpsql.dbapi.script import (
    asked_now,
    changes_domains,
    check_order,
    check_synthetics,
    gathered,
    joint_terms,
    offered_search,
    plan_offered,
)
from dpsql.engine.terms import Terms
from dpsql.errors import InterfaceError, NotSupportedError, ProgrammingError
from dpsql.records import replace
from dpsql.settings import SETTINGS, Taker, taken_by
from dpsql.sql.collector import uncollected
from dpsql.sql.lexemes import MAX_STATEMENT, split_statements
from dpsql.sql.parse import QUERY, Statement, parse

if TYPE_CHECKING:
    from dpsql.dbapi.connection import Connection
    from dpsql.engine.explanation import Explanation
    from dpsql.engine.planner import Planner

Parameters = Sequence[object] | Mapping[str, object] | None
FORGOTTEN = "{} {} is forgotten; what it cost stays charged"


def refuse_unknown(options: dict[str, object]) -> None:
    """Refuse keyword arguments that do not exist, and say why seeds and true answers do not.

    Raises: ProgrammingError (E_SEED, E_DEBUG); TypeError for any other name.
    """
    for name in options:
        if name in ("seed", "rng", "random_state", "generator"):
            raise ProgrammingError("E_SEED", "noise has no seed: a known seed subtracts the noise")
        if name in ("debug", "include_true", "true", "exact", "raw"):
            raise ProgrammingError("E_DEBUG", "true answers cannot be asked for")
        raise TypeError(f"unexpected keyword argument {name!r}")


def parse_script(
    sql: str, planner: Planner | None = None, dialect: str = "duckdb"
) -> list[Statement]:
    """Read every statement of a script before any of them runs, each in the dialect set by then.

    It is read by a desk, or by its text alone.
    """
    found = []
    with uncollected():
        for fragment in split_statements(sql):
            statement = parse(fragment) if planner is None else planner.read(fragment, dialect)
            found.append(statement)
            if statement.kind == "set" and statement.words[0] == "dialect":
                dialect = SETTINGS["dialect"].read(statement.words[1].lower())
    return found


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

        A sequence is for ``?`` marks, a mapping for ``:name``; see ``paramstyle`` of ``connect``.

        ``epsilon``, ``delta`` and ``noise`` override the session for this statement.
        Raises: ProgrammingError, NotSupportedError, BudgetExceeded, OperationalError; InternalError
        for a defect of dpsql, which says what was charged.
        """
        self._start()
        terms = self._terms_with(options)
        if len(check_text(sql)) > MAX_STATEMENT:
            raise ProgrammingError("E_TOO_LARGE", f"a statement of over {MAX_STATEMENT} characters")
        from dpsql.sql.marks import bind_parameters  # scripts have none

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
        known = {key: value for key, value in options.items() if key in taken_by(Taker.EXECUTE)}
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
        from dpsql.answer.modelled import check_target, write_rows  # few statements draw rows

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


def check_text(sql: object) -> str:
    """Return SQL that is text. Raises: InterfaceError (E_PARSE) for anything else."""
    if not isinstance(sql, str):
        raise InterfaceError("E_PARSE", f"SQL must be text, not {type(sql).__name__}")
    return sql


def _forecast(explanation: Explanation, statement: Statement) -> Result:
    lines = [(line,) for line in explanation.lines()]
    return listing(("explain",), lines, statement.fragment.body)
