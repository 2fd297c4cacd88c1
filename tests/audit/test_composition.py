"""Requests over several tables of one unit: all that is measured, together, is what is charged.

Statements are compiled and planned as ever; then one unit leaves all tables, and the change of the
whole measured vector is compared, in exact fractions, with the cost of the plan.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsql.catalog.catalog import Budget, Catalog, Table, View
from dpsql.catalog.read_units import relate
from dpsql.dbapi.script import parse_script
from dpsql.plan.plan import Plan
from dpsql.plan.request import Request, make_plan
from dpsql.privacy.doors.exact_products import apply_rows_unbounded, checked
from dpsql.privacy.vault.unit.local_rows import rows_of, take_stock
from dpsql.privacy.vault.unit.rows import Rows, line_up, load_rows, tally, view
from dpsql.relation.row_view import RowView
from dpsql.relation.unit_local import DerivedTable
from dpsql.sql.compose import compile_statement
from dpsql.sql.products import Compiler
from dpsql.strategy.noise_law import law
from tests.support.clinic import DIGEST, TABLES, Data, _batch, _raw, draw_data, units_of, without
from tests.support.effort import effort

REQUESTS = 10
WORLDS = 5

BY_UNIT = "(SELECT patient_id, {} FROM visits{} GROUP BY patient_id{}) AS u"
FORMS = (
    "SELECT ward, COUNT(*) FROM visits GROUP BY ward",
    "SELECT ward, SUM(cost), COUNT(*) FROM visits WHERE day < 5 GROUP BY ward",
    "SELECT COUNT(DISTINCT patient_id) FROM visits WHERE ward = 'a'",
    "SELECT ward, COUNT(DISTINCT patient_id) FROM visits GROUP BY ward",
    "SELECT sex, ward, COUNT(*) FROM visits JOIN patients USING (patient_id) GROUP BY sex, ward",
    "SELECT sex, SUM(v.cost) FROM visits v JOIN patients p USING (patient_id) GROUP BY sex",
    "SELECT sex, COUNT(*) FROM patients p LEFT JOIN visits v USING (patient_id) GROUP BY sex",
    "SELECT kind, ward, COUNT(*) FROM lines l JOIN visits v USING (visit_id) GROUP BY kind, ward",
    "SELECT kind, COUNT(*) FROM lines GROUP BY kind",
    "SELECT SUM(price) FROM lines",
    f"SELECT n, COUNT(*) FROM {BY_UNIT.format('COUNT(*) AS n', '', '')} GROUP BY n",
    f"SELECT SUM(s), COUNT(*) FROM {BY_UNIT.format('SUM(cost) AS s', ' WHERE day > 2', '')}",
    f"SELECT ward, COUNT(*) FROM {BY_UNIT.format('ward, COUNT(*) AS n', '', ', ward')}"
    " WHERE n > 1 GROUP BY ward",
    "SELECT COUNT(*) FROM patients WHERE patient_id IN"
    " (SELECT patient_id FROM visits WHERE ward = 'b')",
    "SELECT sex, COUNT(*) FROM patients p WHERE NOT EXISTS"
    " (SELECT 1 FROM visits v WHERE v.patient_id = p.patient_id AND v.day > 4) GROUP BY sex",
    "SELECT ward, COUNT(*) FROM few GROUP BY ward",
    "SELECT ward, SUM(cost, contribution_bounds_per_group => (0, 4)) FROM visits GROUP BY ward",
    "SELECT 1 AS side, COUNT(*) FROM visits UNION ALL SELECT 2, COUNT(*) FROM patients",
    "SELECT v.ward, COUNT(*) FROM visits v JOIN visits w USING (patient_id) WHERE w.ward = 'a'"
    " GROUP BY v.ward",
)


def small() -> Catalog:
    """The catalog of the clinic."""
    path = Path("clinic.toml")
    views = {"few": View("few", "SELECT patient_id, ward FROM visits WHERE day < 8", 2)}
    budget = Budget(Fraction(10**6), Fraction(1, 10**6))
    return Catalog(path, budget, relate(path, TABLES), views=views)


@dataclass(frozen=True, slots=True)
class World:
    """The rows of all tables that a plan is about."""

    data: Data

    def rows(self, table: Table) -> Rows:
        """The rows of a table, with those that stay of each unit lined up."""
        found = {
            name: load_rows([_batch(TABLES[name], self.data[name])], _raw(name)) for name in TABLES
        }
        if isinstance(table, DerivedTable):
            rows = rows_of(table, table.relation, take_stock(list(TABLES.values()), found, DIGEST))
        else:
            rows = found[table.name]
        return replace(rows, queue=line_up(rows, table, DIGEST))

    def measured(self, plan: Plan, catalog: Catalog) -> Iterator[list[Any]]:
        """The exact integers of every block, part by part."""
        for part in plan.parts:
            table = catalog.find(part.table)
            rows = self.rows(table)
            kept = view(rows, table, part.view or RowView(tuple(table.columns)))
            for block in part.blocks:
                cells = [part.resolutions[name] for name in block.attributes]
                counted = tally(rows, kept, table, cells, part.units)
                found = apply_rows_unbounded(checked(block.integer_rows), counted, 2**40)
                yield np.ravel(found).astype(object).tolist()


def loss(plan: Plan, one: World, two: World, catalog: Catalog) -> Fraction:
    """What a change of worlds costs under the noise of a plan: never more than was paid."""
    scales = [scale for part in plan.parts for scale in part.scales]
    noise, total = law(plan.noise), Fraction(0)
    pairs = zip(one.measured(plan, catalog), two.measured(plan, catalog), scales, strict=True)
    for before, after, scale in pairs:
        moved = sum(abs(a - b) ** noise.norm for a, b in zip(before, after, strict=True))
        total += noise.cost(moved, scale) if moved else 0
    return total


def planned(sql: Sequence[str], noise: str, catalog: Catalog) -> Plan:
    """The plan of a request."""
    compiler = Compiler(catalog)
    items = tuple(
        compile_statement(each, compiler, lambda _: {}) for each in parse_script(";".join(sql))
    )
    return make_plan(Request(items, Fraction(1), Fraction(1, 10**6), noise)).plan


def draw_request(draw: random.Random) -> list[str]:
    return draw.sample(FORMS, draw.choice([1, 2, 2, 3]))


def largest_share(draw: random.Random, requests: int) -> Fraction:
    """The largest part of its cost that a request was seen to lose to the removal of one unit."""
    largest = Fraction(0)
    for _ in range(requests):
        catalog, noise = small(), draw.choice(["laplace", "gaussian"])
        plan = planned(draw_request(draw), noise, catalog)
        paid = plan.epsilon if plan.rho is None else plan.rho
        for _ in range(WORLDS):
            data = draw_data(draw)
            for unit in units_of(data):
                found = loss(plan, World(data), World(without(data, unit)), catalog)
                largest = max(largest, found / paid)
    return largest


@pytest.mark.parametrize("seed", range(effort(2)))
def test_a_request_is_charged_for_all_of_it_together(seed: int) -> None:
    share = largest_share(random.Random(seed), REQUESTS)
    assert Fraction(1, 4) < share <= 1


def test_a_charge_for_one_row_is_found() -> None:
    draw, catalog = random.Random(3), small()
    plan = planned(FORMS[:2], "laplace", catalog)
    cheap = replace(plan, parts=tuple(replace(part, rows_per_unit=1) for part in plan.parts))
    found = Fraction(0)
    for _ in range(12):
        data = draw_data(draw)
        for unit in units_of(data):
            pair = World(data), World(without(data, unit))
            found = max(found, loss(cheap, *pair, catalog))
    assert found > 1
