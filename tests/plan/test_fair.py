"""Together is never worse than apart: mixed scripts, of which EFFORT says how many more."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

import dpsql
from benchmarks import fair
from dpsql.plan.limits import FAIR, NEAR_ALONE
from dpsql.plan.request import Request
from dpsql.records import replace
from dpsql.search.select import choose
from dpsql.search.work_limit import BRIEF
from dpsql.workload.workload import Workload
from tests.support.effort import IS_LARGE, beyond

QUICK = (2, 4, 6, 12, 14, 20)
"""Seeds of scripts of which most are planned in less than a second."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("DPSQL_CACHE", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, "")  # and set anew: as they were in the end
    return tmp_path


MORE = range(200, 200 + beyond(4))

BESIDE = (1, 8) if IS_LARGE else (12,)
"""Seeds of scripts whose statements are planned briefly and in earnest."""


@pytest.mark.parametrize("seed", [*QUICK, *MORE])
def test_no_shown_column_is_further_off_than_alone(seed: int, folder: Path) -> None:
    """Before, 40 of 100 columns were, up to fourfold."""
    (script,) = fair.scripts(folder, [seed])
    found = fair.compare(script)
    assert found
    for each in found:
        assert each.ratio <= FAIR + fair.BELOW, (each, script.statements[each.statement])


PAIR = (
    "SELECT health, COUNT(*) AS n FROM rand_hie GROUP BY health",
    "SELECT site, MEDIAN(age) AS m FROM rand_hie GROUP BY site",
)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("effort", ["0.1", "1"] if IS_LARGE else ["0.1"])
def test_counts_beside_a_median_are_as_exact_as_alone(
    noise: str, effort: str, folder: Path
) -> None:
    """Counts had eight times the error that they have alone: the totals behind a median were many,
    and plain noise was scaled to them."""
    (script,) = fair.scripts(folder, [0])
    with dpsql.connect(script.catalog.parent / "rand_hie.toml", epsilon=1) as connection:
        compiled = fair.compiled_of(connection, PAIR)
        delta = Fraction(0) if noise == "laplace" else Fraction(1, 10**9)
        whole = Request(compiled, Fraction(1), delta, noise, effort=Fraction(effort), metric="fair")
        together = fair.errors_of(whole)
        plain = fair.errors_of(Request(compiled, Fraction(1), delta, noise, metric="mean"))
        for number, item in enumerate(compiled):
            part = whole.budget(whole.noises[0]) / 2
            own = Request((item,), Fraction(1), delta, noise, part=part)
            if noise == "laplace":
                own = Request((item,), Fraction(1, 2), delta, noise)
            for (_, name), alone in fair.errors_of(own).items():
                assert together[number, name] <= (FAIR + fair.BELOW) * alone
                if name == "n":
                    assert plain[number, name] > 1.5 * alone


@pytest.mark.parametrize("seed", BESIDE)
def test_a_brief_search_is_within_a_per_cent_of_one_in_earnest(seed: int, folder: Path) -> None:
    """What is compared with what a statement has alone is no further from that than is said."""
    (script,) = fair.scripts(folder, [seed])
    delta = Fraction(0) if script.noise == "laplace" else Fraction(1, 10**9)
    with dpsql.connect(script.catalog, epsilon=1) as connection:
        for item in fair.compiled_of(connection, script.statements):
            request = Request((item,), Fraction(1, 4), delta, script.noise)
            briefly = fair.errors_of(replace(request, effort=Fraction(BRIEF)))
            for name, earnest in fair.errors_of(request).items():
                assert briefly[name] <= NEAR_ALONE * earnest, (item.text, name)


@pytest.mark.parametrize("cells", [9, 24])
def test_a_brief_search_looks_for_learned_rows(cells: int) -> None:
    """Cells alone would be 2 to 14 % further off."""
    asked = Workload({"a": cells}, [{"a": "prefix"}])
    found = [choose(asked, effort=each).strategy.unit_error(asked) for each in (BRIEF, 1.0)]
    assert found[0] <= NEAR_ALONE**2 * found[1] < 0.98 * cells * (cells + 1) / 2


TABLES = (
    "SELECT COUNT(*) AS patients FROM patients",
    "SELECT COUNT(*) AS visits FROM visits",
    "SELECT age // 20 * 20 AS score, sex, COUNT(*) AS people FROM patients GROUP BY score, sex",
    "SELECT ward, COUNT(*) AS by_ward FROM visits GROUP BY ward",
)


@pytest.mark.parametrize("epsilon", ["0.4", "4"])
def test_tables_keep_within_what_their_statements_have(epsilon: str, folder: Path) -> None:
    """One table took what kept its own columns within the limits of all of the budget, which left
    the other too little, so that all statements stayed by themselves: nothing gained."""
    next(fair.scripts(folder, [0]))
    with dpsql.connect(folder / "hospital.toml", epsilon=1) as connection:
        compiled = fair.compiled_of(connection, TABLES)
    together = fair.errors_of(Request(compiled, Fraction(epsilon), Fraction(0), "laplace"))
    for number, item in enumerate(compiled):
        own = Request((item,), Fraction(epsilon) / len(compiled), Fraction(0), "laplace")
        for (_, name), alone in fair.errors_of(own).items():
            assert together[number, name] <= (FAIR + fair.BELOW) * alone
            assert name != "people" or together[number, name] < 0.9 * alone


def test_one_measurement_where_all_of_the_budget_has_far_less_noise(folder: Path) -> None:
    """Noise on whole numbers falls exponentially from an epsilon of two on: shares have far more
    than all of it, and the errors of fine noise tell nothing of that."""
    next(fair.scripts(folder, [0]))
    texts = ("SELECT sex, COUNT(*) AS n FROM adult GROUP BY sex", "SELECT COUNT(*) AS n FROM adult")
    with dpsql.connect(folder / "adult.toml", epsilon=1) as connection:
        compiled = fair.compiled_of(connection, texts)
    errors = fair.errors_of(Request(compiled, Fraction(20), Fraction(0), "laplace"))
    (alone,) = fair.errors_of(Request(compiled[:1], Fraction(10), Fraction(0), "laplace")).values()
    assert max(errors.values()) < 0.05 * alone


def test_measured_errors_are_those_forecast(folder: Path) -> None:
    """Thirty releases of thirty numbers and more, each as its forecast says."""
    (script,) = fair.scripts(folder, [13])
    found = [ratio for _, _, ratio in fair.measured(script, 30)]
    assert 0.5 < sum(found) / len(found) < 1.7
