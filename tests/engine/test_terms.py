"""Terms of single statements: weight, max_stddev, contribution bounds; counts of privacy units."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.dbapi.connection import Connection
from dpsql.dbapi.run_options import demand
from tests.support.seam import zero_noise

DEMO = Path(__file__).parents[2] / "demo_data"
TABLE = (
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS({}) sex, race, COUNT(*) AS n FROM adult GROUP BY ALL"
)
WANTED = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(max_stddev = 5) {}"
TOLD = math.hypot(5, 12**-0.5)
"""The figure that an error of 5 is told as where the estimate is rounded."""
UNITS = "SELECT site, COUNT(DISTINCT person_id) AS persons FROM rand_hie {} GROUP BY site"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("adult", "rand_hie"):
        for suffix in ("toml", "parquet"):
            shutil.copy(DEMO / f"{name}.{suffix}", tmp_path)
    return tmp_path


@pytest.fixture
def adult(folder: Path) -> Iterator[Connection]:
    path = folder / "adult.toml"
    with dpsql.connect(path, epsilon=1, delta=1e-9, noise="laplace") as connection:
        yield connection


@pytest.fixture
def hie(folder: Path) -> Iterator[Connection]:
    with dpsql.connect(folder / "rand_hie.toml", epsilon=1) as connection:
        yield connection


def errors(connection: Connection, script: str, epsilon: Fraction | None = None) -> list[float]:
    """The forecast standard errors that EXPLAIN shows, in order."""
    if epsilon is not None:
        connection.set("epsilon", f"{float(epsilon):.9f}")
    text = str(connection.explain(script))
    return [float(number) for number in re.findall(r"\bn ± ([\d.e+]+)", text)]


@pytest.mark.slow
def test_weight_decides_which_statement_gets_the_accuracy(adult: Connection) -> None:
    script = (
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(weight = {}) sex, COUNT(*) AS n FROM adult "
        "GROUP BY sex; SELECT race, COUNT(*) AS n FROM adult GROUP BY race"
    )
    found = [errors(adult, script.format(weight)) for weight in ("0.05", "1", "20")]
    first, second = zip(*found, strict=True)
    assert first[0] > 1.2 * first[1] > 1.2 * first[2]
    assert second[0] < second[1] < second[2]


@pytest.mark.parametrize("weight", ["0", "-1", "'much'", "1e400", "NaN"])
def test_a_weight_is_a_positive_number(adult: Connection, weight: str) -> None:
    with pytest.raises(dpsql.Error, match=r"E_SETTING|E_LITERAL|E_PARSE"):
        adult.explain(TABLE.format(f"weight = {weight}"))


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("wanted", [0.75, 5.0, 123.0])
def test_max_stddev_takes_the_least_epsilon(adult: Connection, noise: str, wanted: float) -> None:
    adult.set("noise", noise)
    found = adult.explain(TABLE.format(f"max_stddev = {wanted}")).epsilon
    plain = TABLE.format("weight = 1")
    (at_it,) = errors(adult, plain, found)
    (below,) = errors(adult, plain, found * Fraction(99, 100))
    assert at_it <= wanted < below


def test_max_stddev_is_charged_as_explained(adult: Connection) -> None:
    statement = TABLE.format("max_stddev = 4")
    epsilon = adult.explain(statement).epsilon
    result = adult.execute(statement).result
    assert result.cost is not None
    assert result.cost.epsilon == epsilon
    assert largest(result.stddev[-1]) <= 4
    (entry,) = [entry for entry in adult.entries() if entry.kind == "debit"]
    assert Fraction(entry.epsilon) == epsilon


def test_the_strictest_statement_of_a_script_decides(adult: Connection) -> None:
    strict, loose = (TABLE.format(f"max_stddev = {wanted}") for wanted in (2, 9))
    both = adult.explain(f"{loose}; {strict}").epsilon
    assert both >= adult.explain(strict).epsilon > adult.explain(loose).epsilon


def test_max_stddev_out_of_reach_is_refused_free_of_charge(adult: Connection) -> None:
    for ask in (adult.explain, adult.execute):
        with pytest.raises(dpsql.Error, match="needs an epsilon above the limit of 100") as caught:
            ask(TABLE.format("max_stddev = 1e-20"))
        assert caught.value.code == "E_EPSILON"
    assert [entry.kind for entry in adult.entries()] in ([], ["created"])


@pytest.mark.parametrize("asked", ["COUNT(*) / 2", "1 + 3 * COUNT(*) - SUM(age) AS n"])
def test_max_stddev_of_what_is_linear_needs_no_number_of_rows(
    adult: Connection, asked: str
) -> None:
    found = adult.execute(WANTED.format(f"{asked} FROM adult")).result
    assert 4.99 < largest(found.stddev[0]) <= TOLD


NESTED = "(SELECT sex, COUNT(*) AS n, SUM(age) AS s FROM adult GROUP BY sex) AS q"


@pytest.mark.parametrize(
    "asked",
    [
        "MEDIAN(age) FROM adult",
        "MODE(age), AVG(age) FROM adult",
        "COUNT(*) FILTER (WHERE age > 999), AVG(age) FROM adult",
        f"SUM(n) FROM {NESTED}",
    ],
)
def test_max_stddev_that_nothing_shown_is_kept_to_is_refused(adult: Connection, asked: str) -> None:
    """Before: charged at an epsilon of 1, or at one for numbers that are not shown."""
    for ask in (adult.explain, adult.execute):
        with pytest.raises(dpsql.Error, match="E_SETTING"):
            ask(WANTED.format(asked))


def test_max_stddev_is_about_what_is_shown(adult: Connection) -> None:
    adult.set("fresh", "on")
    shown = adult.execute(WANTED.format(f"sex, n FROM {NESTED}")).result
    assert 4.9 < largest(shown.stddev[-1]) <= TOLD
    both = adult.execute(WANTED.format(f"sex, n, s FROM {NESTED}")).result
    assert max(map(largest, both.stddev[1:])) <= TOLD


@pytest.mark.usefixtures("full_plans")
@pytest.mark.parametrize(
    "beside",
    [
        "SUM(capital_gain) FROM adult",
        "education, AVG(capital_gain) FROM adult GROUP BY education",
        "STDDEV(capital_gain) FROM adult",
        "MEDIAN(age) FROM adult",
        "education, occupation, COUNT(*) FROM adult GROUP BY ALL",
    ],
)
def test_what_no_error_is_demanded_of_costs_little(folder: Path, beside: str) -> None:
    """Before: up to 3,300 times as much, since a sum weighed as a count does. No epsilon that an
    error took was assumed, as was said."""
    wanted = WANTED.format("COUNT(*) AS n FROM adult")
    with dpsql.connect(folder / "adult.toml") as connection:
        alone, both = map(connection.explain, (wanted, f"{wanted}; SELECT {beside}"))
    assert alone.epsilon < both.epsilon < Fraction(3, 2) * alone.epsilon
    assert not alone.assumed
    assert "assumed" not in str(both)


def test_an_error_demanded_of_all_is_that_of_those_that_have_one(adult: Connection) -> None:
    """Before: a mean or a median by itself in a script was refused for --max-stddev."""
    demand(adult.engine, "5")
    counted = "SELECT sex, COUNT(*) AS n FROM adult GROUP BY sex"
    others = ["SELECT AVG(age) FROM adult", "SELECT MEDIAN(age) FROM adult"]
    others += ["SELECT COUNT(*) FROM adult WHERE age > 999"]
    cursor = adult.executescript("; ".join([counted, *others]))
    assert 4.9 < largest(cursor.result.stddev[-1]) <= TOLD
    with pytest.raises(dpsql.Error, match="stated number of rows") as caught:
        adult.explain(WANTED.format("AVG(age) FROM adult"))
    assert "row_count_hint = 50000 in [table.adult]" in (caught.value.hint or "")


STATED = 48_842


@pytest.fixture
def stated(tmp_path: Path) -> Iterator[Connection]:
    """The same table, of which it is public how many rows it has."""
    folder = tmp_path / "stated"
    folder.mkdir()
    shutil.copy(DEMO / "adult.parquet", folder)
    text = (DEMO / "adult.toml").read_text()
    hint = f"[table.adult]\nrow_count_hint = {STATED}"
    (folder / "adult.toml").write_text(text.replace("[table.adult]", hint, 1))
    with dpsql.connect(folder / "adult.toml") as connection:
        connection.set("fresh", "on")
        yield connection


DEMANDED = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS({}) {}"
COMPUTED = [
    ("sex, AVG(age) AS x FROM adult GROUP BY sex", 0.5),
    ("sex, AVG(capital_gain) AS x FROM adult GROUP BY sex", 20),
    ("AVG(age) FILTER (WHERE sex = 'Male') AS x FROM adult", 0.1),
    ("sex, 100.0 * COUNT(*) FILTER (WHERE age > 40) / COUNT(*) AS x FROM adult GROUP BY sex", 0.7),
    (f"sex, 10 * n AS x FROM {NESTED}", 30),
    (f"sex, s / n AS x FROM {NESTED}", 0.2),
    (f"q.sex, q.n - y.b AS x FROM {NESTED}, (SELECT COUNT(*) AS b FROM adult) AS y", 9),
]


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize(("asked", "wanted"), COMPUTED)
def test_max_stddev_of_what_is_computed_is_kept_at_public_values(
    stated: Connection, asked: str, wanted: float, noise: str
) -> None:
    """Before: refused, or left out beside a count. Groups here are half to twice as large."""
    stated.set("delta", "1e-9")
    stated.set("noise", noise)
    sql = DEMANDED.format(f"max_stddev = {wanted}", asked)
    forecast = stated.explain(sql)
    found = stated.execute(sql).result
    assert found.cost is not None
    assert found.cost.epsilon == forecast.epsilon
    assert wanted / 4 < largest(found.stddev[-1]) < 2 * wanted
    assert any(text.startswith("x \u00b1 ") for _, text in forecast.details)


def test_within_is_a_part_of_what_is_public(stated: Connection, adult: Connection) -> None:
    """By a statement and for a file; counts of groups beside an equal share of the stated rows."""
    table = "education, COUNT(*) AS n FROM adult GROUP BY education"
    share = STATED / 16
    for part in ("5%", "'5 %'", "0.05"):
        found = stated.execute(DEMANDED.format(f"within = {part!r}".replace('"', ""), table)).result
        assert 0.0499 * share < largest(found.stddev[1]) <= 0.05 * share
    demand(stated.engine, None, "5%")
    means = "SELECT AVG(age) AS a FROM adult; SELECT education, MEDIAN(age) FROM adult GROUP BY 1"
    cursor = stated.executescript(f"SELECT {table}; {means}")
    assert largest(cursor.result.stddev[1]) <= 0.05 * share
    text = str(stated.explain(f"SELECT {table}; SELECT AVG(age) AS a FROM adult"))
    assert "n within 5 % of 3,052.62" in text
    assert "a: left alone, what it comes to is not public" in text
    demand(stated.engine, None)
    spent = stated.budget.spent_epsilon
    refused = [
        (stated, "SUM(capital_gain), MEDIAN(age) FROM adult", "what its columns come to"),
        (adult, table, "how many rows adult has is not public"),
    ]
    for connection, asked, reason in refused:
        for ask in (connection.explain, connection.execute):
            with pytest.raises(dpsql.ProgrammingError, match=reason) as caught:
                ask(DEMANDED.format("within = 0.05", asked))
            assert caught.value.code == "E_SETTING"
            assert "max_stddev" in (caught.value.hint or "")
    assert stated.budget.spent_epsilon == spent


def test_counts_of_a_file_are_within_their_parts_for_the_least_epsilon(stated: Connection) -> None:
    """Each grouping is as far off as it may be: equal weights took 1.8 times the epsilon."""
    demand(stated.engine, None, "5%")
    keys = {"education": 16, "sex, race": 10, "age": 74}
    table = "SELECT {0}, COUNT(*) AS n FROM adult GROUP BY {0}"
    forecast = stated.explain("; ".join(table.format(key) for key in keys))
    for statement, groups in zip(forecast.statements, keys.values(), strict=True):
        (column,) = statement.errors
        assert 0.04 < column.largest / (STATED / groups) <= 0.05


@pytest.mark.parametrize("part", ["0", "2", "-0.1", "'a'", "'200%'", "'%'"])
def test_parts_that_are_none_are_refused(stated: Connection, part: str) -> None:
    with pytest.raises(dpsql.Error, match="within"):
        stated.explain(DEMANDED.format(f"within = {part}", "COUNT(*) FROM adult"))


def test_max_stddev_of_what_is_known_is_free(adult: Connection) -> None:
    """Before: a defect."""
    for ask in (adult.explain, adult.execute):
        assert ask(WANTED.format("COUNT(*) FROM adult WHERE age > 999")) is not None
    assert [entry.kind for entry in adult.entries()] in ([], ["created"])


def test_contribution_bounds_clip_within_the_declared_ones(adult: Connection) -> None:
    asked = "SELECT sex, SUM(capital_gain{}) AS s FROM adult GROUP BY sex"
    narrow = asked.format(", contribution_bounds_per_group => (0, 5000)")
    with zero_noise():
        found = dict(adult.execute(narrow).fetchall())
    exact = duckdb.execute(
        "SELECT sex, SUM(LEAST(capital_gain, 5000)) AS s, COUNT(*) AS k "
        f"FROM '{DEMO / 'adult.parquet'}' GROUP BY sex"
    ).fetchall()
    for sex, total, rows in exact:
        assert abs(found[sex] - float(total)) <= rows * 5000 / 2**10
    adult.set("fresh", "on")
    errors_of = [adult.execute(sql).stddev[-1] for sql in (narrow, asked.format(""))]
    small, large = map(largest, errors_of)
    assert large == pytest.approx(small * 99999 / 5000, rel=0.01)


@pytest.mark.parametrize(
    ("bounds", "code"),
    [("(5, 5)", "E_DEGENERATE_BOUNDS"), ("(9, 1)", "E_DEGENERATE_BOUNDS"), ("(0)", "E_PARSE")],
)
def test_contribution_bounds_leave_something(adult: Connection, bounds: str, code: str) -> None:
    with pytest.raises(dpsql.Error) as caught:
        adult.explain(
            f"SELECT SUM(capital_gain, contribution_bounds_per_group => {bounds}) FROM adult"
        )
    assert caught.value.code == code


def test_bounds_of_means_are_of_each_unit(hie: Connection) -> None:
    sql = "SELECT AVG(drug_spending, contribution_bounds_per_group => (0, 9)) FROM rand_hie"
    with zero_noise():
        ((found,),) = hie.execute(sql).fetchall()
    assert 0 < found < 9


@pytest.mark.parametrize("where", ["", "WHERE md_visits >= 10 AND sex = 'Female'"])
def test_units_are_counted_once_in_every_group(hie: Connection, where: str) -> None:
    statement = UNITS.format(where)
    exact = duckdb.execute(statement.replace("rand_hie", f"'{DEMO / 'rand_hie.parquet'}'", 1))
    with zero_noise():
        found = hie.execute(statement).fetchall()
    assert rounded(found) == rounded(exact.fetchall())


def test_units_rows_and_sums_of_one_statement(hie: Connection) -> None:
    statement = (
        "SELECT COUNT(DISTINCT person_id) AS u, COUNT(*) AS n, SUM(md_visits) AS s FROM rand_hie"
    )
    exact = duckdb.execute(statement.replace("rand_hie", f"'{DEMO / 'rand_hie.parquet'}'"))
    with zero_noise():
        found = hie.execute(statement).fetchall()
    assert rounded(found) == rounded(exact.fetchall())


def test_a_unit_that_is_in_one_group_only_costs_less(hie: Connection) -> None:
    """Rows of a person may lie in five groups, and the noise on persons covers all of them."""
    (whole,) = hie.execute("SELECT COUNT(DISTINCT person_id) AS u FROM rand_hie").stddev
    (_, groups) = hie.execute(UNITS.format("")).stddev
    assert largest(groups) > largest(whole)


def largest(errors: Sequence[float | None] | None) -> float:
    """The largest of the standard errors of a column."""
    return max(error for error in errors or () if error is not None)


def rounded(rows: Sequence[Sequence[float]]) -> list[tuple[float, ...]]:
    return sorted(tuple(round(float(value), 6) for value in row) for row in rows)
