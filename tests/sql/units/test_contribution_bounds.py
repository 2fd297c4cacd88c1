"""Rows of a unit in so many groups, or so many of them: what counts, and with which noise."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import dpsql
from dpsql.dbapi.connection import Connection
from tests.support.seam import zero_noise

CATALOG = """
[budget]
epsilon = 100000
[table.visits]
source = "visits.csv"
privacy_unit = { column = "who", max_rows = 6 }
[table.visits.column]
ward = { type = "text", domain = ["a", "b", "c", "d"] }
age = { type = "integer", domain = [0, 59] }
cost = { type = "number", bounds = [0, 10] }
"""
RUNS = 60
UNITS = 50
ROWS = [(who, "aabcd"[(k * k + who) % 5], (7 * who + 11 * k) % 60, (who * k) % 11)
        for who in range(UNITS) for k in range(6)]  # fmt: skip
CLAUSE = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, {}) {} FROM visits {}"


@pytest.fixture(scope="module")
def visits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    folder = tmp_path_factory.mktemp("visits")
    lines = [",".join(map(str, row)) for row in ROWS]
    (folder / "visits.csv").write_text("\n".join(["who,ward,age,cost", *lines, ""]))
    (folder / "visits.toml").write_text(CATALOG)
    with dpsql.connect(folder / "visits.toml", epsilon=1) as connection:
        yield connection


def asked(visits: Connection, option: str, what: str, rest: str = "") -> list[Sequence[Any]]:
    return list(visits.execute(CLAUSE.format(option, what, rest)).fetchall())


@pytest.mark.parametrize("most", [1, 2, 3, 4])
def test_all_rows_of_as_many_groups_count(visits: Connection, most: int) -> None:
    option = f"max_groups_contributed = {most}"
    with zero_noise():
        rows = "GROUP BY ward ORDER BY ward"
        found = asked(visits, option, "ward, COUNT(*), COUNT(DISTINCT who), SUM(cost)", rows)
    sizes = Counter((ward, who) for who, ward, *_ in ROWS)
    wards = Counter(who for _, who in sizes)
    assert sum(row[2] for row in found) == pytest.approx(sum(min(most, n) for n in wards.values()))
    for ward, count, units, _ in found:
        few = sorted(n for (each, _), n in sizes.items() if each == ward)
        least, largest = sum(few[: round(units)]), sum(few[len(few) - round(units) :])
        assert least - 1e-6 <= count <= largest + 1e-6
    if most == 4:
        assert sum(row[1] for row in found) == pytest.approx(len(ROWS))


def test_everything_is_of_the_same_rows(visits: Connection) -> None:
    """Counts, sums, quantiles and variances of one SELECT, and of several, agree."""
    option, rest = "max_groups_contributed = 2, mechanism = identity", "GROUP BY ward"
    rest += " ORDER BY ward"
    with zero_noise():
        of_ages = asked(visits, option, "ward, age, COUNT(*) AS n", "GROUP BY ward, age")
        one = asked(visits, option, "ward, COUNT(*), AVG(age), VAR_POP(age), MEDIAN(age), "
                    "COUNT(DISTINCT who), SUM(cost, contribution_bounds_per_group => (0, 60))",
                    rest)  # fmt: skip
        two = asked(visits, option, "ward, COUNT(*), SUM(cost)", rest)
    assert sum(n for *_, n in of_ages) != sum(n for _, n, *_ in one)  # of other groups
    assert [row[1] for row in one] == pytest.approx([row[1] for row in two])
    assert [row[6] for row in one] == pytest.approx([row[2] for row in two], rel=1e-4)
    for _, count, mean, spread, median, units, _ in one:
        assert units <= count <= 6 * units
        assert 0 <= median <= 59
        assert 0 <= mean <= 59
        assert 0 < spread <= 30**2


def test_groups_are_of_all_keys_together(visits: Connection) -> None:
    with zero_noise():
        what = "ward, age // 30 AS half, COUNT(DISTINCT who) AS n"
        rows = asked(visits, "max_groups_contributed = 1", what, "GROUP BY ward, half")
        old = asked(visits, "max_groups_contributed = 1", "ward, COUNT(DISTINCT who) AS n",
                    "WHERE age >= 30 GROUP BY ward")  # fmt: skip
    assert sum(n for *_, n in rows) == pytest.approx(UNITS)
    some = {who for who, _, age, _ in ROWS if age >= 30}
    assert sum(n for *_, n in old) == pytest.approx(len(some))  # groups of rows that are left


@pytest.mark.parametrize("most", [1, 4])
def test_so_many_rows_of_a_unit_count(visits: Connection, most: int) -> None:
    option = f"max_rows_contributed = {most}"
    with zero_noise():
        found = asked(visits, option, "COUNT(*), MEDIAN(age), COUNT(DISTINCT who)")
        by_ward = asked(visits, option, "ward, COUNT(*) AS n", "GROUP BY ward")
        bounded = asked(visits, option, "COUNT(*, contribution_bounds_per_group => (0, 3))")
    assert found[0][0] == pytest.approx(UNITS * most)
    assert found[0][2] == pytest.approx(UNITS)
    assert sum(n for _, n in by_ward) == pytest.approx(UNITS * most)
    assert bounded[0][0] == pytest.approx(UNITS * min(most, 3))


def test_both_bounds_hold_together(visits: Connection) -> None:
    with zero_noise():
        option = "max_rows_contributed = 3, max_groups_contributed = 1"
        found = asked(visits, option, "ward, COUNT(*), COUNT(DISTINCT who)", "GROUP BY ward")
    assert sum(row[2] for row in found) == pytest.approx(UNITS)
    assert UNITS <= sum(row[1] for row in found) <= 3 * UNITS


def errors(visits: Connection, option: str, what: str, rest: str = "") -> list[float]:
    found = visits.execute(CLAUSE.format(option, what, rest)).result.stddev
    return [max(number or 0 for number in each) for each in found if each is not None]


def test_noise_follows_from_the_rows_that_a_unit_may_have(visits: Connection) -> None:
    rest = "WHERE age < 50 GROUP BY ward"
    plain = errors(visits, "weight = 1", "ward, COUNT(*)", rest)
    for most in (1, 2, 5):
        groups = errors(visits, f"max_groups_contributed = {most}", "ward, COUNT(*)", rest)
        assert groups == pytest.approx(plain, rel=1e-3)  # all rows may be in one group
        what = "ward, COUNT(DISTINCT who)"
        units = errors(visits, f"max_groups_contributed = {most}", what, rest)
        assert units == pytest.approx([math.sqrt(2) * min(most, 4)], rel=0.05)
        rows = errors(visits, f"max_rows_contributed = {most}", "ward, COUNT(*)", rest)
        assert rows == pytest.approx([math.sqrt(2) * most], rel=0.05)


def test_expected_and_measured_errors_agree(visits: Connection) -> None:
    what = "ward, COUNT(*) AS n, COUNT(DISTINCT who) AS m, SUM(cost) AS s, VAR_POP(age) AS v"
    options = "max_groups_contributed = 2, max_rows_contributed = 4"
    sql = CLAUSE.format(options, what, "GROUP BY ward ORDER BY ward").replace("= 1,", "= 4,", 1)
    visits.execute("SET fresh = on")  # one plan, of which nothing that is stored answers
    found = [visits.execute(sql).result for _ in range(RUNS)]
    visits.execute("SET fresh = off")
    assert len({tuple(result.rows) for result in found}) == RUNS
    for column in range(1, 5):
        ratios = []
        for row in range(4):
            # noise may leave so little of a group that its variance is NULL: once in some 10,000
            known = [result for result in found if result.rows[row][column] is not None]
            assert len(known) >= RUNS - 3
            values = [result.rows[row][column] for result in known]
            shown = [(result.stddev[column] or ())[row] for result in known]
            expected = statistics.fmean(each or 0 for each in shown)
            ratios.append(statistics.variance(values) / expected**2)
        # Of 60 runs of Laplace noise one in a million is beyond: simulated, as tails are long.
        assert 0.4 < statistics.fmean(ratios) < 2.3
