"""Together is never worse than apart: mixed scripts, of which EFFORT says how many more."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

import dpsql
from benchmarks import fair
from dpsql.plan.limits import FAIR
from dpsql.plan.request import Request
from tests.support.effort import IS_LARGE, beyond

QUICK = (2, 4, 6, 12, 14, 20)
"""Seeds of scripts of which most are planned in less than a second."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("DPSQL_CACHE", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, "")  # and set anew: as they were in the end
    return tmp_path


MORE = range(200, 200 + beyond(4))


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
