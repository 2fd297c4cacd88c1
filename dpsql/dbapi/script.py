"""Scripts that make synthetic tables: their workloads in files, checks and forecasts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.answer.modelled import check_target
from dpsql.answer.synthetics import check_name, find_synthetic
from dpsql.engine.explain import Explanation
from dpsql.engine.granted import Granted
from dpsql.engine.terms import Terms
from dpsql.errors import Error, InternalError, ProgrammingError, UsageError, printable
from dpsql.files import read_regular
from dpsql.privacy.curator import nested_budgets
from dpsql.settings import BOTH, taken_by
from dpsql.sql.lexemes import Fragment, lex, split_statements
from dpsql.sql.parse import Statement
from dpsql.sql.synthetic import Creation

if TYPE_CHECKING:
    from dpsql.engine.engine import Engine
    from dpsql.engine.learn import Synthesis

OF_A_CREATION = ("E_UNKNOWN_TABLE", "E_STATEMENT", "E_EPSILON", "E_DELTA", "E_SETTING")
"""Codes of what may be wrong about CREATE SYNTHETIC TABLE itself, whatever its workload."""

MOST_BYTES = 4 * 1024 * 1024
"""Size of a workload in a file: 64 statements of the longest kind."""


def workload_of(creation: Creation, granted: Granted) -> tuple[Fragment, ...]:
    """The statements that a synthetic table is for; a file is read from the granted folder.

    Raises: UsageError (E_INPUT, E_FILES).
    """
    if creation.file is None:
        return creation.workload
    path = granted.find(creation.file)
    if path.suffix.lower() != ".sql":
        raise _unreadable(path, "a workload is a .sql file")
    try:
        text = read_regular(path, MOST_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _unreadable(path, "it is not UTF-8") from None
    except (OSError, ValueError):
        raise _unreadable(path, "no such file, or no right to read it") from None
    statements = tuple(split_statements(text))
    if not statements:
        raise _unreadable(path, "it has no statement")
    return statements


@contextmanager
def unquoted(creation: Creation, own: Collection[str] = ()) -> Iterator[None]:
    """Tell what is wrong in the file of a workload by its place alone: errors quote no file.

    Errors with codes of ``own`` that point at no text are about the statement itself.
    """
    try:
        yield
    except InternalError as error:
        if creation.file is not None:
            error.span = None
        raise
    except Error as error:
        if creation.file is None or (error.span is None and error.code in own):
            raise
        code, span = error.code, error.span
    else:
        return
    place = "" if span is None else " at line {}, column {}".format(*span.position())
    raise ProgrammingError(
        code,
        f"the workload {printable(Path(creation.file).name)!r} is refused{place}",
        hint="ask the statement there by itself to see why; nothing of a file is quoted",
    )


def about_created(statements: Sequence[Statement]) -> list[Statement]:
    """The SELECTs of a script that ask a synthetic table which the script itself creates."""
    created = {s.creation.name.casefold() for s in statements if s.creation and not s.explain}
    return [
        s
        for s in statements
        if s.kind == "select"
        and any(lexeme.text.strip('"').casefold() in created for lexeme in lex(s.fragment.body))
    ]


def plan_offered(engine: Engine, creation: Creation, terms: Terms) -> tuple[Synthesis, bool]:
    """The run that makes a synthetic table, and whether its epsilon was assumed.

    Raises: as ``Engine.plan_synthesis``.
    """
    assumed = terms.epsilon is None and "epsilon" not in dict(creation.options)
    offered = terms.having(epsilon=Fraction(1)) if assumed else terms
    return engine.plan_synthesis(creation, offered), assumed


def remaining_for(engine: Engine, run: Synthesis) -> Fraction:
    """The largest epsilon that one more request on the table of a run may ask for."""
    within = nested_budgets(engine.catalog, [run.table.name.casefold()], engine.analyst)
    return engine.status().remaining_within(within)


def check_synthetics(engine: Engine, statements: Sequence[Statement], terms: Terms) -> None:
    """Refuse, before anything of a script runs, what is wrong about its synthetic tables.

    Raises: ProgrammingError, NotSupportedError, DataError, OperationalError.
    """
    made: dict[str, object] = {}
    for statement in statements:
        creation, wanted = statement.creation, statement.rows
        if creation is not None and statement.explain:
            plan_offered(engine, creation, terms)
        elif creation is not None:
            engine.plan_synthesis(creation, terms)
            check_name(creation.name, made)
            made[creation.name.casefold()] = creation
        if wanted is not None:
            if wanted.name.casefold() not in made:
                find_synthetic(engine.models, wanted.name)
            check_target(engine.granted.find(wanted.path))


def explain_script(engine: Engine, statements: Sequence[Statement], terms: Terms) -> Explanation:
    """The forecast of a script that makes synthetic tables: of every run and of its SELECTs.

    SELECTs from the tables that it makes are free and not forecast. Amounts are sums.
    """
    later = about_created(statements)
    selects = [s for s in statements if s.kind == "select" and s not in later]
    lines, planned, assumed = [], [], False
    for statement in statements:
        if statement.creation is not None and not statement.explain:
            run, guessed = plan_offered(engine, statement.creation, terms)
            planned.append(run)
            assumed |= guessed
            left = remaining_for(engine, run)
            lines += [f"synthetic   {run.name}", *run.lines(left, guessed)]
    epsilon = sum((run.epsilon for run in planned), Fraction(0))
    delta = sum((run.delta for run in planned), Fraction(0))
    if not selects:
        method, noise = planned[0].task.choice.mechanism, planned[0].task.noise
        remaining = min(remaining_for(engine, run) for run in planned)
        free, nan = False, float("nan")
        return Explanation(
            (), method, noise, epsilon, delta, nan, (), free, assumed, remaining, text=tuple(lines)
        )
    whole = engine.explain(engine.compile(selects), joint_terms(terms, selects))
    if not whole.free:
        epsilon, delta = epsilon + whole.epsilon, delta + whole.delta
    text = (*whole.lines(), *lines)
    return replace(whole, epsilon=epsilon, delta=delta, free=False, text=text)


def joint_terms(terms: Terms, selects: Sequence[Statement]) -> Terms:
    """The terms of a workload: the session's, overridden by the OPTIONS of its statements.

    Raises: ProgrammingError (E_SETTING) unless all statements have the same terms.
    """
    wanted = [_own_terms(terms, statement) for statement in selects]
    for statement, own in zip(selects, wanted, strict=True):
        if own != wanted[0]:
            differ = [name for name in own.values if own.values[name] != wanted[0].values[name]]
            names = " and ".join(differ)
            raise ProgrammingError(
                "E_SETTING",
                f"the statements of one workload share one budget, but differ in {names}",
                hint=f"SET {differ[0]} once for all, not in OPTIONS; or ask this one by itself",
                span=statement.fragment.whole(),
            )
    return wanted[0] if wanted else terms


def _own_terms(terms: Terms, statement: Statement) -> Terms:
    """The terms of one statement, the OPTIONS that a workload shares included."""
    for name, text in statement.options:
        if name in taken_by(BOTH):
            terms = terms.with_text(name, text)
    return terms


def _unreadable(path: Path, why: str) -> UsageError:
    return UsageError(
        "E_INPUT",
        f"the workload {printable(path.name)!r} cannot be used: {why}",
        hint="FOR WORKLOAD 'queries.sql', a file of the folder that SQL is granted",
    )
