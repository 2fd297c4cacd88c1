"""Noise laws of other packages: one that is sound is used end to end, broken ones are refused.

The sound one is tests/plugins/geometric_noise, written as a stranger would: a project file and a
module. Each is installed as pip does, by a dist-info folder with its entry points on the path.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from unittest import mock

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.answer.sql_types import ROUNDING
from dpsql.dbapi.connection import Connection
from dpsql.errors import DataError, Error, OperationalError
from dpsql.privacy.noise import samplers
from dpsql.strategy import noise_law
from dpsql.strategy.noise_law import LAPLACE, law
from tests.privacy.seam import SeededBits
from tests.support.packages import folder_of_packages, install

pytestmark = pytest.mark.slow

STRANGER = Path(__file__).parent / "geometric_noise"
CELLS = 1000
CATALOG = f"""
[budget]
epsilon = 1000
delta = 1e-9

[table.t]
source = "t.parquet"
privacy_unit = "row"

[table.t.column]
a = {{ type = "integer", domain = [0, {CELLS - 1}] }}
b = {{ type = "text", domain = ["x", "y"] }}
x = {{ type = "integer", bounds = [0, 50] }}
"""
GROUPS = "SELECT a, COUNT(*) AS n FROM t GROUP BY a"
SUMS = "SELECT b, COUNT(*) AS n, SUM(x) AS s FROM t GROUP BY b"
RANGES = (
    "SELECT "
    + ", ".join(f"COUNT(*) FILTER (WHERE a < {30 * i}) AS n{i}" for i in range(1, 11))
    + " FROM t"
)
SOUND = """
from fractions import Fraction
from dpsql.strategy.noise_law import NoiseLaw
from dpsql.privacy.noise.samplers import discrete_gaussian, discrete_laplace

LAW = NoiseLaw("{name}", {norm}, Fraction(1, {norm}), lambda scale: {variance}, 2.0)

def draw(bits, scale, size):
    return {draw}
"""
LAPLACE_DRAW = {
    "norm": 1,
    "variance": "2 * scale**2",
    "draw": "discrete_laplace(bits, scale, size)",
}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for installed packages; what was found in it is forgotten afterwards."""
    with folder_of_packages(tmp_path / "site", monkeypatch) as folder:
        yield folder
    noise_law.law.cache_clear()
    samplers._tried.clear()


@pytest.fixture
def geometric(site: Path) -> None:
    project = tomllib.loads((STRANGER / "pyproject.toml").read_text("utf-8"))["project"]
    module = (STRANGER / "geometric_noise.py").read_text("utf-8")
    install(site, "geometric_noise", module, project["entry-points"])


def make(site: Path, name: str, *, entry: str | None = None, **parts: object) -> None:
    """Install a package with one law and its sampler, from the parts of SOUND."""
    module = SOUND.format(**{"name": name, **LAPLACE_DRAW, **parts})
    package = f"law_{entry or name}".lower().replace("-", "_")
    install(
        site,
        package,
        module,
        {
            "dpsql.noise_laws": {entry or name: f"{package}:LAW"},
            "dpsql.noise_samplers": {entry or name: f"{package}:draw"},
        },
    )


@pytest.fixture
def database(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        opened.execute(
            "CREATE TABLE t AS SELECT (i * i) % 1000 AS a,"
            " CASE WHEN i % 3 = 0 THEN 'x' ELSE 'y' END AS b, i % 50 AS x FROM range(50000) v(i)"
        )
        opened.execute(f"COPY t TO '{tmp_path / 't.parquet'}'")
        yield opened


@pytest.fixture
def connection(tmp_path: Path, database: object) -> Iterator[Connection]:
    (tmp_path / "t.toml").write_text(CATALOG, encoding="utf-8")
    with dpsql.connect(tmp_path / "t.toml", epsilon=1, delta=0) as opened:
        yield opened


@pytest.fixture
def seeded() -> Iterator[None]:
    seeds = count(1)
    with mock.patch(
        "dpsql.privacy.doors.measure.Bits", side_effect=lambda: SeededBits(next(seeds))
    ):
        yield


def refused(work: Callable[[], object]) -> Error:
    with pytest.raises(Error) as caught:
        work()
    return caught.value


def test_standard_errors_are_those_of_the_law(
    connection: Connection, database: duckdb.DuckDBPyConnection, geometric: None, seeded: None
) -> None:
    connection.execute("SET noise = 'geometric'")
    (forecast,) = connection.explain(GROUPS).statements
    result = connection.execute(GROUPS).result
    true = dict(database.execute(GROUPS).fetchall())
    errors = np.array([n - true.get(a, 0) for a, n in result.rows], dtype=float)
    told = np.array(result.stddev[1], dtype=float)
    assert told == pytest.approx(np.full(CELLS, 2.0))  # 2 m (m - 1) for a die of two sides
    # The deviation of so many draws has a relative error of sqrt(5 / (4 * 1000)), about 3.5 %.
    assert errors.std() == pytest.approx(told[0], rel=0.18)
    assert abs(errors.mean()) < 5 * told[0] / np.sqrt(CELLS)
    (expected,) = forecast.errors
    assert (expected.rmse, expected.largest) == pytest.approx((2.0, 2.0))


@pytest.mark.parametrize("sql", [SUMS, RANGES])
def test_answers_of_every_strategy_are_within_their_errors(
    sql: str, connection: Connection, database: duckdb.DuckDBPyConnection, geometric: None
) -> None:
    connection.execute("SET noise = 'geometric'")
    connection.execute("SET epsilon = 20")  # the die is thrown as often as the scale is large
    result = connection.execute(sql).result
    true = database.execute(f"{sql} ORDER BY 1" if sql == SUMS else sql).fetchall()
    assert result.cost is not None
    assert str(result.cost) == "epsilon 20 (geometric)"
    for place, (errors, intervals) in enumerate(zip(result.stddev, result.intervals, strict=True)):
        for row, exact, told, interval in zip(
            result.rows, true, errors or (), intervals or (), strict=bool(errors)
        ):
            assert told is not None
            assert interval is not None
            assert abs(row[place] - exact[place]) < 25 * told
            assert interval[1] - interval[0] == pytest.approx(2 * 2.1184 * told)
    entry = connection.entries()[-1]
    assert (entry.noise, entry.epsilon, entry.rho) == ("geometric", "20", "")
    assert connection.execute(sql).result.cost == replace(result.cost, free=True)


def test_a_law_is_used_by_models_and_clipped_sums(connection: Connection, geometric: None) -> None:
    connection.execute("SET noise = 'geometric'")
    connection.execute("CREATE SYNTHETIC TABLE s FROM t FOR (SELECT a, COUNT(*) FROM t GROUP BY a)")
    clipped = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (clip = 'svt') SUM(x) FROM t"
    assert connection.execute(clipped).result.cost is not None
    charged = [entry for entry in connection.entries() if entry.kind == "debit"]
    assert [entry.noise for entry in charged] == ["geometric", "geometric"]


def test_the_ledger_and_the_store_outlive_the_package(
    connection: Connection, tmp_path: Path, geometric: None, site: Path
) -> None:
    connection.execute("SET noise = 'geometric'")
    connection.execute(SUMS)
    left = connection.budget.remaining_epsilon
    for each in site.glob("*"):
        each.rename(tmp_path / each.name)
    sys.modules.pop("geometric_noise")
    noise_law.law.cache_clear()
    with dpsql.connect(tmp_path / "t.toml", epsilon=1) as again:
        assert again.budget.remaining_epsilon == left
        assert again.entries()[-1].noise == "geometric"
        result = again.execute(SUMS).result
        assert result.cost is not None
        assert (result.cost.noise, result.cost.free) == ("laplace", False)


def test_a_law_of_the_l2_norm_is_planned_as_gaussian_noise_is(
    connection: Connection, site: Path
) -> None:
    draw = "discrete_gaussian(bits, 2 * scale, size)"
    make(site, "louder", norm=2, variance="2 * scale", draw=draw)
    connection.execute("SET noise = 'louder'")
    assert refused(lambda: connection.execute(SUMS)).code == "E_DELTA"
    connection.execute("SET delta = 1e-9")
    louder = connection.execute(SUMS).result
    assert connection.entries()[-1].rho != ""
    connection.execute("SET noise = 'gaussian'")
    connection.execute("SET fresh = on")
    plain = connection.execute(SUMS).result
    for one, other in zip(louder.stddev[1:], plain.stddev[1:], strict=True):
        estimated = np.square(np.array(other)) - ROUNDING  # integers are told
        assert np.array(one) == pytest.approx(np.sqrt(2 * estimated + ROUNDING))


@pytest.mark.parametrize(
    ("name", "parts", "why"),
    [
        ("other", {"entry": "named"}, "names no NoiseLaw of that name"),
        ("real", {"draw": "discrete_laplace(bits, scale, size) / 2"}, "whole numbers"),
        ("short", {"draw": "discrete_laplace(bits, scale, size - 1)"}, "whole numbers"),
        ("failing", {"draw": "1 / 0"}, "whole numbers"),
        ("none", {"draw": "[0] * size"}, "variance"),
        ("quiet", {"draw": "discrete_laplace(bits, scale / 4, size)"}, "variance"),
        ("threefold", {"norm": 3}, "norm 1 or 2"),
        ("Capital", {"entry": "capital"}, "plain word"),
        ("broken", {"variance": "("}, "cannot be loaded"),
    ],
)
def test_a_broken_law_is_refused_before_any_charge(
    name: str, parts: dict[str, object], why: str, connection: Connection, site: Path
) -> None:
    make(site, name, **parts)  # type: ignore[arg-type]

    def ask() -> None:
        connection.execute(f"SET noise = '{parts.get('entry', name)}'")
        connection.execute(SUMS)

    error = refused(ask)
    assert isinstance(error, OperationalError)
    assert error.code == "E_NOISE"
    assert why in error.message
    assert connection.budget.entries == 0


def test_a_law_without_a_sampler_is_refused_before_any_charge(
    connection: Connection, site: Path
) -> None:
    module = SOUND.format(**{"name": "silent", **LAPLACE_DRAW})
    install(site, "law_silent", module, {"dpsql.noise_laws": {"silent": "law_silent:LAW"}})
    connection.execute("SET noise = 'silent'")
    error = refused(lambda: connection.execute(SUMS))
    assert (error.code, "no sampler" in error.message) == ("E_NOISE", True)
    assert connection.budget.entries == 0


def test_our_own_laws_cannot_be_replaced(site: Path) -> None:
    make(site, "laplace", draw="[0] * size")
    assert law("laplace") is LAPLACE
    assert samplers.sampler("laplace", lambda: SeededBits(1)) is samplers.discrete_laplace


def test_a_name_that_two_packages_declare_is_refused(site: Path) -> None:
    make(site, "twice")
    group = {"dpsql.noise_laws": {"twice": "law_again:LAW"}}
    install(site, "law_again", SOUND.format(**{"name": "twice", **LAPLACE_DRAW}), group)
    assert "several" in refused(lambda: law("twice")).message


def test_an_unknown_law_is_told_with_those_that_are_installed(geometric: None) -> None:
    error = refused(lambda: law("uniform"))
    assert isinstance(error, DataError)
    assert (error.code, error.hint) == ("E_SETTING", "one of auto, laplace, gaussian, geometric")
