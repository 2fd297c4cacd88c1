"""Scripts: on what terms they are asked, and those that make synthetic tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.engine.planner import Planner
from dpsql.engine.statements import explain_workload
from dpsql.engine.terms import Terms
from dpsql.errors import InterfaceError, ProgrammingError, decimal_text
from dpsql.records import replace
from dpsql.settings.table import BOTH, SETTINGS, options_of
from dpsql.sql.compiled import Compiled
from dpsql.sql.text.cycle_collector import uncollected
from dpsql.sql.text.lexemes import lex, split_statements
from dpsql.sql.text.parse import Statement, parse

if TYPE_CHECKING:
    from dpsql.engine.discover import DiscoveryJob
    from dpsql.engine.explanation import Explanation, Row
    from dpsql.engine.learn import SyntheticTableJob
    from dpsql.sql.text.create_domain import Search
    from dpsql.sql.text.synthetic import Creation

Parameters = Sequence[object] | Mapping[str, object] | None


def asked_now(statements: Sequence[Statement]) -> dict[int, Statement]:
    """The SELECTs of a script by place, but those about a synthetic table that it creates."""
    created = {s.creation.name.casefold() for s in statements if s.creation and not s.explain}
    return {
        place: s
        for place, s in enumerate(statements)
        if s.kind == "select" and not (created and _mentions(s, created))
    }


def _mentions(statement: Statement, names: AbstractSet[str]) -> bool:
    words = (lexeme.text.strip('"') for lexeme in lex(statement.fragment.body))
    return any(word.casefold() in names for word in words)


def changes_domains(statement: Statement) -> bool:
    """True if a statement finds or forgets what the SELECTs after it depend on."""
    return statement.kind in ("find", "forget") and not statement.explain


def plan_offered(
    planner: Planner, creation: Creation, terms: Terms
) -> tuple[SyntheticTableJob, bool]:
    """The run that makes a synthetic table, and whether its epsilon was assumed.

    Args:
        planner: it knows tables and models.
        creation: CREATE SYNTHETIC TABLE as it was read, with options of its own.
        terms: of the session; epsilon is taken to be 1 where neither they nor the statement have
            one.

    Raises: as ``plan_table``.
    """
    from dpsql.engine.learn import plan_table  # few scripts learn models

    assumed = terms.epsilon is None and "epsilon" not in dict(creation.options)
    offered = terms.having(epsilon=Fraction(1)) if assumed else terms
    return plan_table(planner, creation, offered), assumed


def offered_search(planner: Planner, search: Search, terms: Terms) -> tuple[DiscoveryJob, bool]:
    """The release of a domain or of bounds, and whether its epsilon was assumed.

    Args:
        planner: it knows the columns whose domains are to be found.
        search: the statement as it was read, with options of its own.
        terms: of the session; epsilon is taken to be 1 where neither they nor the statement have
            one.

    Raises: as ``plan_search``.
    """
    assumed = terms.epsilon is None and "epsilon" not in dict(search.options)
    offered = terms.having(epsilon=Fraction(1)) if assumed else terms
    from dpsql.engine.discover import plan_search  # few scripts find domains

    return plan_search(planner, search, offered), assumed


def explain_search(planner: Planner, search: Search, terms: Terms) -> Explanation:
    """The forecast of a domain or of bounds: of what was found before, where that will do.

    Args:
        planner: it catches up with the ledger first, so that what others have found is known.
        search: the statement as it was read.
        terms: of the session.

    Raises: as ``plan_search``.
    """
    from dpsql.engine.discover import found_before  # few statements find domains

    planner.catch_up()
    known = found_before(planner, search)
    if known is None:
        planned, assumed = offered_search(planner, search, terms)
        return planned.explain(planner, assumed)
    from dpsql.engine.key_counts import explain_counts  # fewer find them again

    return explain_counts(planner, known, False)


def check_synthetics(planner: Planner, statements: Sequence[Statement], terms: Terms) -> None:
    """Refuse, before anything of a script runs, what is wrong about its synthetic tables.

    Args:
        planner: it knows tables, models and the folder that rows may be written to.
        statements: the whole script, in order: a table is made before rows are drawn from it.
        terms: of the session.

    Raises: ProgrammingError, NotSupportedError, DataError, OperationalError.
    """
    made: dict[str, object] = {}
    for statement in statements:
        creation, wanted = statement.creation, statement.rows
        if creation is not None and statement.explain:
            plan_offered(planner, creation, terms)
        elif creation is not None:
            from dpsql.answer.synthetic_tables import check_name  # few scripts learn models
            from dpsql.engine.learn import plan_table

            plan_table(planner, creation, terms)
            check_name(creation.name, made)
            made[creation.name.casefold()] = creation
        if wanted is not None:
            from dpsql.answer.model_answers import check_target  # few scripts draw rows
            from dpsql.answer.synthetic_tables import find_synthetic

            if wanted.name.casefold() not in made:
                find_synthetic(planner.models, wanted.name)
            check_target(planner.granted.find(wanted.path))


def explain_script(planner: Planner, statements: Sequence[Statement], terms: Terms) -> Explanation:
    """The forecast of a script that makes synthetic tables: of every run and of its SELECTs.

    SELECTs from the tables that it makes are free and not forecast. Amounts are sums.

    Args:
        planner: it compiles the SELECTs together, as one request.
        statements: the whole script.
        terms: of the session; every run and the SELECTs together are charged by them.
    """
    selects = list(asked_now(statements).values())
    rows: list[Row] = []
    found: list[Explanation] = []
    for statement in statements:
        if statement.creation is not None and not statement.explain:
            run, assumed = plan_offered(planner, statement.creation, terms)
            found.append(run.explain(planner, assumed))
            rows += [("synthetic", run.name), *found[-1].rows()]
    if selects:
        whole = explain_workload(planner, planner.compile(selects), joint_terms(terms, selects))
        rows = [*whole.rows(), *rows]
        paid = [*found, *([] if whole.free else [whole])]
    else:
        paid, left = found, min(each.remaining for each in found)
        whole = replace(found[0], assumed=any(e.assumed for e in found), remaining=left)
    epsilon = sum((each.epsilon for each in paid), Fraction(0))
    delta = sum((each.delta for each in paid), Fraction(0))
    return replace(whole, epsilon=epsilon, delta=delta, free=False, whole=tuple(rows))


def is_new(planner: Planner, statement: Statement) -> bool:
    """True if a statement finds what was not found before."""
    if statement.search is None or statement.explain:
        return False
    from dpsql.engine.discover import found_before  # few scripts find domains

    return found_before(planner, statement.search) is None


def explain_finding(planner: Planner, statements: Sequence[Statement], terms: Terms) -> Explanation:
    """The forecast of a script that finds domains: of these, and of what is known of the rest.

    Errors of SELECTs depend on how many keys there will be. Amounts are sums.

    Args:
        planner: it answers from domains that were found before.
        statements: the whole script, of which one at least finds something new.
        terms: of the session.
    """
    rows: list[Row] = []
    found: list[Explanation] = []
    for statement in statements:
        if is_new(planner, statement):
            assert statement.search is not None
            planned, assumed = offered_search(planner, statement.search, terms)
            found.append(planned.explain(planner, assumed))
            rows += [("find", statement.search.name), *found[-1].rows()]
    selects = list(asked_now(statements).values())
    planner.foresee(selects)
    epsilon = sum((each.epsilon for each in found), Fraction(0))
    if selects:
        own = joint_terms(terms, selects).epsilon or Fraction(1)
        rows.append(
            ("answers", f"at most epsilon {decimal_text(own)} more: errors once it is found")
        )
        epsilon += own
    delta = sum((each.delta for each in found), Fraction(0))
    return replace(found[0], epsilon=epsilon, delta=delta, whole=tuple(rows))


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


def gathered(
    planner: Planner, collected: Sequence[Statement] | None, terms: Terms
) -> tuple[tuple[Compiled, ...], Terms]:
    """The statements of an open workload and their terms.

    Args:
        planner: it compiles the statements together, as one request.
        collected: statements since BEGIN WORKLOAD; None where no workload is open.
        terms: of the session, which single statements may have made stricter.

    Raises: ProgrammingError (E_STATEMENT) where there are none.
    """
    if not collected:
        what = "no workload is open" if collected is None else "it is empty"
        raise ProgrammingError("E_STATEMENT", what, hint="BEGIN WORKLOAD; SELECT ...;")
    return planner.compile(collected), joint_terms(terms, collected)


def _own_terms(terms: Terms, statement: Statement) -> Terms:
    """The terms of one statement, the OPTIONS that a workload shares included."""
    for name, text in statement.options:
        if name in options_of(BOTH):
            terms = terms.with_text(name, text)
    return terms


def check_order(statements: Sequence[Statement], is_open: bool) -> None:
    """A script is one workload with one budget: settings precede it, markers enclose it."""
    seen_select = False
    for position, statement in enumerate(statements):
        if statement.kind in ("cancel", "forecast") and len(statements) > 1:
            raise ProgrammingError(
                "E_STATEMENT",
                "CANCEL, ROLLBACK and EXPLAIN of a workload stand alone",
                hint="a script is one workload: leave out what is not to be asked",
                span=statement.fragment.whole(),
            )
        if statement.kind == "set" and seen_select:
            raise ProgrammingError(
                "E_SETTING",
                "SET must come before the first SELECT of a script",
                hint="one script is one workload with one budget",
                span=statement.fragment.span(0, 3),
            )
        if changes_domains(statement) and seen_select:
            raise ProgrammingError(
                "E_STATEMENT",
                "domains are found or dropped before the first SELECT of a script",
                hint="one script is one workload over the domains that there are",
                span=statement.fragment.span(0, 6),
            )
        seen_select |= statement.kind == "select" and not statement.explain
        last = position == len(statements) - 1
        stray_run = statement.kind == "run" and not (last and is_open)
        stray_begin = statement.kind == "begin" and (is_open or seen_select)
        is_open |= statement.kind == "begin"
        if stray_run or stray_begin:
            raise ProgrammingError(
                "E_STATEMENT",
                "a script is one workload: BEGIN WORKLOAD and RUN WORKLOAD can only enclose it",
                span=statement.fragment.span(0, 5),
            )


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

    Args:
        sql: whole text, of any number of statements.
        planner: it reads statements in the light of its catalog; None to read them by their text
            alone.
        dialect: that the first statement is read in.
    """
    found = []
    with uncollected():
        for fragment in split_statements(sql):
            statement = parse(fragment) if planner is None else planner.read(fragment, dialect)
            found.append(statement)
            if statement.kind == "set" and statement.words[0] == "dialect":
                dialect = SETTINGS["dialect"].read(statement.words[1].lower())
    return found


def check_text(sql: object) -> str:
    """Return SQL that is text. Raises: InterfaceError (E_PARSE) for anything else."""
    if not isinstance(sql, str):
        raise InterfaceError("E_PARSE", f"SQL must be text, not {type(sql).__name__}")
    return sql
