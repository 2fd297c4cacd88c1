"""OPTIONS (keys = 'private'): the keys that a statement lacks are found first, then it is answered.

The keys get a fixed part of epsilon, so that what either step costs is public. They are stored
before the answers are charged, and stay found whatever becomes of these. Where counts of the keys
are all that is asked, one release does both.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.answer.discovered import Discovered, unfound
from dpsql.answer.result import Result
from dpsql.engine.discover import plan_search
from dpsql.engine.job import Doors
from dpsql.engine.key_counts import (
    CountedKeysJob,
    counting,
    counts_keys,
    explain_counts,
    find_counted,
    read_counts,
)
from dpsql.engine.planner import Planner
from dpsql.engine.terms import Terms, require_epsilon
from dpsql.errors import NotSupportedError, decimal_text
from dpsql.privacy.budget.accounting import UNITS, budget_for, units_down
from dpsql.records import dataclass, replace
from dpsql.sql.compiled import Compiled
from dpsql.sql.text.create_domain import Search
from dpsql.sql.text.parse import reparse
from dpsql.strategy.noise_law import law

if TYPE_CHECKING:
    from dpsql.engine.discover import DiscoveryJob
    from dpsql.engine.explanation import Explanation

SHARE = Fraction(1, 2)
"""Part of epsilon for the keys: of 10, 25 and 50 % the last finds most keys, 261 of 403 that one
threshold on the counts themselves would show (200,000 rows, Zipf, epsilon 1, delta 1e-9)."""


FOUND = "keys of {} were found as domain {} ({}), free from now on"


@dataclass(frozen=True, slots=True, eq=False)
class KeySearch:
    """The search before a workload is answered, None where all was found, and the terms left.

    ``counted`` are keys that were released with the very counts that are asked.
    """

    workload: tuple[Compiled, ...]
    first: DiscoveryJob | None
    whole: Terms
    rest: Terms
    counted: Discovered | None = None

    def check(self, planner: Planner, doors: Doors) -> None:
        """Refuse what the budget refuses of both steps together."""
        assert self.first is not None
        price, epsilon = self.first.price, require_epsilon(self.whole)
        is_pure = law(price.noise).is_pure
        rho = None if is_pure else budget_for(price.noise, epsilon, self.whole.delta)
        doors.afford(replace(price, epsilon=epsilon, rho=rho))

    def compiled(self, planner: Planner) -> tuple[Compiled, ...]:
        """The workload, once the keys are found."""
        return planner.compile([reparse(item.text, item.reader) for item in self.workload])

    def counts(self, planner: Planner, found: Discovered, free: bool) -> Result:
        """The answer that came with the keys."""
        result = read_counts(planner, self.compiled(planner)[0], found, free)
        note = FOUND.format(found.column, found.name, _paid(found))
        aged = planner.aged([found])
        return replace(result, notes=(*result.notes, *aged, *([] if free else [note])))

    def told(self, result: Result, found: Discovered) -> Result:
        """An answer, with what both steps cost."""
        note = FOUND.format(found.column, found.name, _paid(found))
        cost = result.cost
        if cost is not None:
            cost = replace(cost, epsilon=found.epsilon + (0 if cost.free else cost.epsilon))
            cost = replace(cost, free=False)
        return replace(result, cost=cost, notes=(*result.notes, note))

    def explain(self, planner: Planner, assumed: bool) -> Explanation:
        """The forecast of the keys: that of the answers depends on how many there will be."""
        if self.counted is not None:
            return explain_counts(planner, self.counted, assumed)
        assert self.first is not None
        found = self.first.explain(planner, assumed)
        if isinstance(self.first, CountedKeysJob):
            return found
        rest = decimal_text(require_epsilon(self.rest))
        then = ("answers", f"epsilon {rest} more; EXPLAIN tells their errors once keys are found")
        rows = (*(found.whole or ()), then)
        return replace(found, epsilon=require_epsilon(self.whole), whole=rows)


def plan_seeking(planner: Planner, workload: Sequence[Compiled], terms: Terms) -> KeySearch | None:
    """Read which keys a workload wants to be found first; None where it does not ask for it.

    Raises: NotSupportedError (E_SETTING), and as ``plan_search``.
    """
    asked = [item for item in workload if item.seeks]
    if not asked:
        return None
    if any(item.demands for item in workload):
        what, hint = "an error beside keys = 'private'", "CREATE DOMAIN first, then max_stddev"
        raise NotSupportedError("E_SETTING", f"{what} is not supported", hint=hint)
    epsilon = require_epsilon(terms)
    part = Fraction(units_down(SHARE * epsilon), UNITS)
    rest = terms.having(epsilon=epsilon - part)
    missing = sorted({p for item in asked for p in unfound(item.seeks, planner.declared.tables)})
    in_one = counts_keys(workload, terms)
    if not missing:
        counted = find_counted(planner, asked[0].seeks[0], terms) if in_one else None
        return KeySearch(tuple(workload), None, terms, rest, counted)
    if len(missing) > 1 and not _go_together(missing, asked):
        names = " and ".join(f"{table} ({column})" for table, column in missing)
        raise NotSupportedError(
            "E_SETTING",
            f"keys of several columns in one request are not supported: {names}",
            hint="CREATE DOMAIN for each, or one for all of them, then the statement",
        )
    search = _search(planner, missing, asked)
    if in_one:
        both = plan_search(planner, search, terms)
        return KeySearch(tuple(workload), counting(both), terms, rest)
    first = plan_search(planner, search, terms.having(epsilon=part))
    return KeySearch(tuple(workload), first, terms, rest)


def _paid(found: Discovered) -> str:
    return f"epsilon {decimal_text(found.epsilon)}, entry {found.receipt[1]} of the ledger"


def _go_together(missing: Sequence[tuple[str, str]], asked: Sequence[Compiled]) -> bool:
    """True if every statement, all of one table, wants keys of several columns in combination.

    A SELECT that mentions all of them is about the combinations that are found in one release.
    """
    tables = {table for table, _ in missing}
    return len(tables) == 1 and all({*missing} <= {*item.seeks} for item in asked)


def _search(
    planner: Planner, missing: Sequence[tuple[str, str]], asked: Sequence[Compiled]
) -> Search:
    """The domain to find, under a name of its own."""
    (table, column), *more = missing
    taken = {each.name.casefold() for each in planner.found.values() if not each.dropped}
    columns = "_".join(name for _, name in missing)
    name = re.sub(r"\W", "_", f"{table}_{columns}")[:50]
    name = name if name.isidentifier() else f"d_{name}"
    names = [name, *(f"{name}_{i}" for i in range(2, len(taken) + 3))]
    parts = {item.chance for item in asked if item.chance is not None}
    options = () if not parts else (("discovery_delta", str(min(parts))),)
    free = next(each for each in names if each not in taken)
    text = ";\n".join(item.text for item in asked)
    further = tuple(name for _, name in more)
    return Search("DOMAIN", free, table, column, options, text, lenient=True, more=further)
