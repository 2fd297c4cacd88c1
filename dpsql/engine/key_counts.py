"""Keys that nobody listed and their counts, from one release: a threshold on the counts shown.

It shows more keys than finding them first, and less noise, where the counts of a key are all that
is asked. Source: Desfontaines, Voss, Gipson and Mandayam 2020 (thresholds on noisy counts).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from dpsql.answer.discovered import CountedKeys, Discovered, room_of
from dpsql.answer.result import CostInfo, ReceiptInfo, Result
from dpsql.answer.shell import NoisySelect, build_result
from dpsql.catalog import Column, Table
from dpsql.catalog.catalog import SERVERS
from dpsql.engine.discover import DiscoveryJob, KeyDiscoveryJob
from dpsql.engine.explanation import Explanation, Row
from dpsql.engine.job import Doors
from dpsql.engine.planner import Planner
from dpsql.engine.terms import Terms
from dpsql.errors import DataUnavailable, decimal_text, printable
from dpsql.plan.target import find_views
from dpsql.privacy.budget.receipt import Receipt
from dpsql.privacy.doors.discovery import CountedDiscovery
from dpsql.records import dataclass, replace
from dpsql.relation.row_view import left_out
from dpsql.relation.unit_local import DerivedTable
from dpsql.sql.compiled import Compiled
from dpsql.sql.query import COUNT_ROWS, Aggregate, Query
from dpsql.strategy.noise_law import law
from dpsql.vectors import Vector

OTHERS = Fraction(1, 10)
"""Part of the budget for the count of all keys that are not shown: one large number."""
PASSED = "keys of a noisy count below {:,} are not shown: counts near it are too high on average"


@dataclass(frozen=True, slots=True, eq=False)
class CountedKeysJob(KeyDiscoveryJob):
    """The keys whose noisy counts reach a threshold, and these counts."""

    rest: Fraction
    spread: int

    @property
    def discovery(self) -> CountedDiscovery:
        """The discovery that the membrane is paid for."""
        column = self.column
        assert column.sought is not None
        what = (*self._place, column.sought, self.noise, self.amount - self.rest, self.chance)
        label = column.other if isinstance(column.other, str | int) else None
        return CountedDiscovery(*what, self.rest, self.spread, column.null, label, room_of(column))

    @property
    def is_counted(self) -> bool:
        """True if keys come with their counts."""
        return True

    def perform(self, planner: Planner, doors: Doors, receipt: Receipt) -> Discovered:
        """Count the keys; what fails stays paid."""
        asked = self.discovery
        found = doors.count(asked, receipt)
        made = self.made(planner, (receipt.ledger_id, receipt.seq, receipt.head), found.keys)
        scales = asked.scale, asked.rest_scale if asked.rest else Fraction(0)
        counts = CountedKeys(found.counts, found.null, found.other, scales, asked.level)
        return replace(made, counted=counts)

    def facts(self) -> tuple[Row, ...]:
        """From which count on keys are shown, and how noisy the counts are."""
        asked = self.discovery
        most, whose = asked.sought.max_keys, self.table.unit.column or "row"
        keys = "its key counts" if most == 1 else f"at most {most} keys count"
        error = law(self.noise).variance(float(asked.scale)) ** 0.5
        errors = f"standard error {error:.3g} of a count"
        if asked.rest:
            others = law(self.noise).variance(float(asked.rest_scale)) ** 0.5
            errors += f", {others:.3g} of {self.column.other!r}"
        return (
            ("column", f"{self.table.name}.{self.column.name}: of each {whose} {keys}"),
            ("mechanism", f"{law(self.noise).name} noise and a threshold, on the counts shown"),
            ("found", f"keys whose noisy count is {asked.level:,} or more"),
            ("errors", errors),
        )


def counts_keys(workload: Sequence[Compiled], terms: Terms) -> bool:
    """True if counts of units by one key that nobody listed are all that is asked.

    Then one release is better than two: a function of public facts only.
    """
    if len(workload) != 1 or len(workload[0].seeks) != 1:
        return False
    (item,) = workload
    if item.outer is not None or item.truncation is not None or terms.mechanism != "auto":
        return False
    if (item.reconstruct or terms.reconstruct) != "gls":
        return False
    (select,) = item.selects
    ((_, name),) = item.seeks
    return _holds_keys(select.table, name) and _is_histogram(select.query, name, select.table)


def _holds_keys(table: Table, name: str) -> bool:
    if isinstance(table, DerivedTable) or table.synthetic or table.engine in SERVERS:
        return False
    return not table.complete and table.columns[name].type in ("text", "integer")


def _is_histogram(query: Query, name: str, table: Table) -> bool:
    """True if a query counts units, or rows that are units, by a column as it is."""
    if query.where or query.lookups or query.listing is not None or query.sets != ((0,),):
        return False
    (key,) = query.keys
    if key.column != name or key.sql != "v" or key.ranges or key.listed:
        return False
    return all(_is_count(each, table) for each in query.aggregates)


def _is_count(aggregate: Aggregate, table: Table) -> bool:
    if replace(aggregate, units=False) != Aggregate(summands=COUNT_ROWS):
        return False
    return aggregate.units or _is_one(table)


def counting(first: DiscoveryJob) -> CountedKeysJob:
    """The release that counts the keys that another one would find, for the same budget."""
    assert isinstance(first, KeyDiscoveryJob)
    assert first.column.sought is not None
    table, column = first.table, first.column
    spread = 1 if _is_one(table) else first.column.sought.max_keys + column.null
    rest = Fraction(0) if column.other is None else first.amount * OTHERS
    return CountedKeysJob(
        first.search,
        table,
        column,
        first.noise,
        first.epsilon,
        first.amount,
        first.anew,
        first.chance,
        rest,
        spread,
    )


def find_counted(planner: Planner, place: tuple[str, str], terms: Terms) -> Discovered | None:
    """The counts that a column's keys were released with, as long as they are as accurate."""
    column: Column = planner.declared.tables[place[0]].columns[place[1]]
    found = planner.found.get(column.released)
    if found is None or found.counted is None or terms.fresh or terms.epsilon is None:
        return None
    try:
        is_same = found.data in planner.versions([place[0]])
    except DataUnavailable:
        return None
    return found if is_same and found.epsilon >= terms.epsilon else None


def explain_counts(planner: Planner, found: Discovered, assumed: bool) -> Explanation:
    """The forecast of what is published: free."""
    entry = found.receipt[1]
    paid = f"epsilon {decimal_text(found.epsilon)}"
    rows = (*found.facts, ("cost", f"free: from entry {entry} of the ledger ({paid})"))
    remaining, nothing = planner.remaining([found.table]), math.nan
    return Explanation(
        (),
        "keys",
        found.noise,
        found.epsilon,
        found.delta,
        nothing,
        (),
        True,
        assumed,
        remaining,
        entry,
        whole=rows,
    )


def read_counts(planner: Planner, item: Compiled, found: Discovered, free: bool) -> Result:
    """The answer to a statement that the counts of keys are all of."""
    assert found.counted is not None
    (select,) = item.selects
    counts: dict[object, int] = dict(zip(found.keys, found.counted.counts, strict=True))
    counted = [
        _of_cell(select.table.columns[found.column], each, counts, found.counted)
        for each in select.key_columns()[0]
    ]
    values = [value for value, _ in counted]
    variances = np.array([law(found.noise).variance(float(scale)) for _, scale in counted])
    size = range(len(select.query.aggregates))
    pairs = dict.fromkeys(itertools.combinations_with_replacement(size, 2), variances)
    filled = NoisySelect((Vector.of(values),) * len(size), pairs)
    cost = CostInfo(found.epsilon, found.delta, found.noise, free)
    result = build_result(item, [filled], cost, ReceiptInfo(*found.receipt), planner.sealed)
    column, view = select.table.columns[found.column], find_views([item])[select.query.table]
    assert column.sought is not None
    keys = None if _is_one(select.table) else (column.sought.max_keys, printable(column.name))
    said = left_out(select.table, view, keys)
    standing = () if said is None else (said,)
    notes = (*result.notes, PASSED.format(found.counted.level), *standing)
    return replace(result, notes=notes, standing=standing)


def _is_one(table: Table) -> bool:
    """True if a unit has one row that counts."""
    return table.unit.column is None or table.unit.max_rows == 1


def _of_cell(
    column: Column, value: object, counts: dict[object, int], counted: CountedKeys
) -> tuple[int, Fraction]:
    """The count of a cell, and the scale of its noise."""
    scale, rest = counted.scales
    if value is None:
        return counted.null or 0, scale
    if value in counts:
        return counts[value], scale
    return counted.other or 0, rest
