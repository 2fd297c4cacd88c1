"""What other dialects say of privacy units, compared with what the catalog says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import dpsql
from dpsql.dbapi.connection import Connection
from tests.support.seam import zero_noise

CATALOG = """
[budget]
epsilon = 1000
[table.visits]
source = "visits.csv"
privacy_unit = { column = "who", max_rows = 3 }
[table.visits.column]
ward = { type = "text", domain = ["a", "b", "c"] }
age = { type = "integer", domain = [0, 99] }
"""
ROWS = [(i // 2, "aab"[i % 3], i % 100) for i in range(60)]
CLAUSE = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, {}) {} FROM visits"


@pytest.fixture(scope="module")
def visits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    folder = tmp_path_factory.mktemp("visits")
    lines = [f"{who},{ward},{age}" for who, ward, age in ROWS]
    (folder / "visits.csv").write_text("\n".join(["who,ward,age", *lines, ""]))
    (folder / "visits.toml").write_text(CATALOG)
    with dpsql.connect(folder / "visits.toml", epsilon=1) as connection, zero_noise():
        yield connection


@pytest.mark.parametrize(
    ("option", "what"),
    [
        ("privacy_unit_column = ward", "the privacy unit of visits is who"),
        ("group_selection_strategy = PRIVATE_GROUPS", "public_groups"),
        ("min_privacy_units_per_group = 0", "a whole number from 1"),
    ],
)
def test_what_the_catalog_does_not_say_is_refused_uncharged(
    visits: Connection, option: str, what: str
) -> None:
    before = visits.budget.entries
    with pytest.raises(dpsql.Error, match="E_SETTING") as caught:
        visits.execute(CLAUSE.format(option, "COUNT(*)"))
    assert what in str(caught.value)
    assert visits.budget.entries == before


def test_what_the_catalog_says_changes_nothing(visits: Connection) -> None:
    said = "max_groups_contributed = 3, privacy_unit_column = WHO"
    said += ", max_rows_contributed = 3, group_selection_strategy = LAPLACE_THRESHOLD"
    found = visits.execute(CLAUSE.format(said, "COUNT(*)")).fetchall()
    assert found == [(60.0,)]


def test_groups_of_few_units_are_left_out(visits: Connection) -> None:
    expected: dict[str, set[int]] = {}
    for who, ward, _ in ROWS:
        expected.setdefault(ward, set()).add(who)
    for least in (1, 20, 25, 30, 31):
        option = f"min_privacy_units_per_group = {least}"
        sql = CLAUSE.format(option, "ward, AVG(age)") + " GROUP BY ward HAVING COUNT(*) >= 0"
        kept = [row[0] for row in visits.execute(sql).fetchall()]
        assert kept == [w for w in "abc" if len(expected.get(w, ())) >= least]


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ("(0, 3)", 60),
        ("(0, 2)", 60),
        ("(0, 1)", 30),
        ("(3, 9)", 90),
        ("(5, 9)", 150),
        ("(-1, 0)", 0),
    ],
)
def test_counts_are_bounded_for_each_unit(visits: Connection, bounds: str, expected: float) -> None:
    sql = f"SELECT COUNT(*, contribution_bounds_per_group => {bounds}) FROM visits"
    assert visits.execute(sql).fetchall() == [(pytest.approx(expected),)]


def test_sums_are_bounded_for_each_unit_and_group(visits: Connection) -> None:
    sql = "SELECT ward, SUM(age, contribution_bounds_per_group => (5, 30)) AS s FROM visits"
    sql += " WHERE age < 50 GROUP BY ward HAVING COUNT(*) > 0"
    parts: dict[tuple[str, int], int] = {}
    for who, ward, age in ROWS:
        if age < 50:
            parts[ward, who] = parts.get((ward, who), 0) + age
    expected = {w: float(sum(min(max(v, 5), 30) for (x, _), v in parts.items() if x == w))
                for w in "ab"}  # fmt: skip
    found = dict(visits.execute(sql).fetchall())
    assert {ward: found[ward] for ward in "ab"} == pytest.approx(expected, rel=1e-3)


def test_groups_are_left_out_by_the_select_that_has_the_clause(visits: Connection) -> None:
    clause = "WITH DIFFERENTIAL_PRIVACY OPTIONS (min_privacy_units_per_group = 25)"
    units = {w: len({who for who, ward, _ in ROWS if ward == w}) for w in "ab"}
    assert units == {"a": 30, "b": 20}
    kept = sum(ward == "a" for _, ward, _ in ROWS)
    inner = f"SELECT {clause} ward, COUNT(*) AS n FROM visits GROUP BY ward"
    plain = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward HAVING COUNT(*) > 0"
    every = [("a", 40), ("a", 40), ("b", 20)]
    for sql, expected in (
        (f"SELECT SUM(n) FROM ({inner})", [(kept,)]),
        (f"SELECT * FROM ({inner}) UNION ALL ({plain}) ORDER BY 1, 2", every),
        (f"{plain} UNION ALL {inner} ORDER BY 1, 2", every),
        (f"SELECT ABS((SELECT {clause} COUNT(*) FROM visits v WHERE ward = 'b'))", [(None,)]),
        (f"SELECT (SELECT {clause} COUNT(*) FROM visits AS v) - 50 AS x", [(10,)]),
        (f"SELECT x, n FROM (SELECT {clause} x, COUNT(*) AS n FROM visits v CROSS JOIN "
         "UNNEST([1, 2]) AS u(x) WHERE ward = 'a' GROUP BY x) ORDER BY x", [(1, 40), (2, 40)]),
    ):  # fmt: skip
        assert visits.execute(sql).fetchall() == expected, sql
    for inner in ("SELECT * FROM visits", "SELECT who AS w, ward FROM visits WHERE age < 100"):
        for sql in (
            f"SELECT {clause} ward, COUNT(*) FROM ({inner}) GROUP BY ward",
            f"SELECT {clause} ward, COUNT(*) FROM ({inner}) AS s GROUP BY ward",
            f"WITH v AS ({inner}) SELECT {clause} ward, COUNT(*) FROM v AS s GROUP BY ward",
        ):
            assert visits.execute(sql).fetchall() == [("a", pytest.approx(kept))], sql
    before = visits.budget.entries
    for sql in (
        f"WITH v AS (SELECT ward FROM visits) SELECT {clause} COUNT(*) FROM v",
        f"SELECT {clause} SUM(n) FROM (SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward)",
    ):
        with pytest.raises(dpsql.Error, match="cannot be counted"):
            visits.execute(sql)
    assert visits.budget.entries == before


def test_a_row_that_public_rows_put_in_more_groups_is_told(visits: Connection) -> None:
    sql = CLAUSE.format("max_groups_contributed = {}", "{} COUNT(*)")
    sql += " CROSS JOIN UNNEST([1, 2, 3, 4]) AS u(x) {}"
    for most, keys in ((3, "x"), (3, "ward, x > 1")):
        with pytest.raises(dpsql.Error, match="meets 4 groups of public rows"):
            visits.execute(sql.format(most, f"{keys},", f"GROUP BY {keys}"))
    assert len(visits.execute(sql.format(4, "x,", "GROUP BY x")).fetchall()) == 4
    assert visits.execute(sql.format(3, "", "")).fetchall() == [(240,)]


def test_a_unit_counts_in_as_many_groups_as_are_told(visits: Connection) -> None:
    sql = CLAUSE.format("max_groups_contributed = {}", "ward, COUNT(*) AS n") + " GROUP BY ward"
    one, two = (visits.execute(sql.format(most)).fetchall() for most in (1, 2))
    assert sum(n for _, n in two) == pytest.approx(60)
    assert sum(n for _, n in one) < 60


def test_bounds_of_rows_clip_what_a_quantile_is_of(visits: Connection) -> None:
    sql = "SELECT QUANTILE_DISC(age, {}, contribution_bounds_per_row => (20, 40)) FROM visits"
    found = [visits.execute(sql.format(p)).fetchall()[0][0] for p in (0.1, 0.5, 0.9)]
    assert found == [20, 29, 40]
