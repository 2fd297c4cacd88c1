"""SET nonnegative and OPTIONS(reconstruct = ...): other answers from the same release, free."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsql
from dpsql.answer import graphical
from dpsql.answer.result import Result
from dpsql.dbapi.connection import Connection

VISITS = """
[budget]
epsilon = 100
[ledger]
anchor = "anchors"
[table.visits]
source = "visits.csv"
privacy_unit = { column = "person", max_rows = 3 }
[table.visits.column]
person = { type = "integer" }
ward = { type = "text", domain = ["a", "b", "c", "d"] }
day = { type = "integer", domain = [1, 12] }
cost = { type = "number", bounds = [-5, 50] }
"""

CLAUSE = "WITH DIFFERENTIAL_PRIVACY OPTIONS(reconstruct = '{}') "


@pytest.fixture
def visits(tmp_path: Path) -> Iterator[Connection]:
    rows = ["person,ward,day,cost"]
    rows += [f"{i // 2},{'ab'[i % 2]},{i % 5 + 1},{i % 40}" for i in range(60)]
    (tmp_path / "visits.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "visits.toml").write_text(VISITS)
    with dpsql.connect(tmp_path / "visits.toml", epsilon=0.5) as connection:
        yield connection


def ask(connection: Connection, body: str, method: str | None = None) -> Result:
    clause = "" if method is None else CLAUSE.format(method)
    return connection.execute(f"SELECT {clause}{body}").result


def column(result: Result, name: str) -> np.ndarray[Any, Any]:
    return np.array([row[result.columns.index(name)] for row in result.rows], dtype=float)


def spent(connection: Connection) -> int:
    return connection.budget.entries


GROUPED = "ward, day, COUNT(*)::DOUBLE AS n FROM visits GROUP BY ward, day"


@pytest.mark.parametrize("method", ["nonnegative", "pgm"])
def test_another_reconstruction_is_free_and_biased(visits: Connection, method: str) -> None:
    plain = ask(visits, GROUPED)
    found = ask(visits, GROUPED, method)
    assert spent(visits) == 1
    assert found.cost is not None
    assert found.cost.free
    assert found.receipt == plain.receipt
    assert found.biased
    assert not plain.biased
    assert any("biased" in note for note in found.notes)
    assert found.stddev[2] == (None,) * 48
    assert found.intervals[2] == (None,) * 48
    assert plain.stddev[2] is not None
    assert (column(plain, "n") < 0).any()
    assert (column(found, "n") >= 0).all()
    total = max(1.0 if method == "pgm" else 0.0, column(plain, "n").sum())
    assert column(found, "n").sum() == pytest.approx(total)
    assert ask(visits, GROUPED, "gls").rows == plain.rows
    assert ask(visits, GROUPED, method).rows == found.rows


@pytest.mark.parametrize("method", ["nonnegative", "pgm"])
def test_the_first_request_may_be_reconstructed_at_once(visits: Connection, method: str) -> None:
    found = ask(visits, GROUPED, method)
    assert found.cost is not None
    assert not found.cost.free
    plain = ask(visits, GROUPED)
    assert plain.cost is not None
    assert plain.cost.free
    assert plain.receipt == found.receipt
    assert spent(visits) == 1


def test_counts_move_to_the_nearest_point_of_the_simplex(visits: Connection) -> None:
    raw, moved = (column(ask(visits, GROUPED, m), "n") for m in ("gls", "nonnegative"))
    shift = (raw - moved)[moved > 0]
    if not shift.size:
        assert raw.sum() <= 0
        return
    assert shift == pytest.approx(np.full(shift.size, shift[0]))
    assert (raw[moved == 0] <= shift[0] + 1e-9).all()


def test_the_session_setting_and_the_option_override_each_other(visits: Connection) -> None:
    visits.execute("SET nonnegative = on")
    assert visits.execute("SHOW nonnegative").fetchall() == [("on",)]
    assert (column(ask(visits, GROUPED), "n") >= 0).all()
    assert not ask(visits, GROUPED, "gls").biased
    visits.execute("SET nonnegative = off")
    assert not ask(visits, GROUPED).biased
    assert spent(visits) == 1


def test_running_totals_are_monotone(visits: Connection) -> None:
    body = "ward, day, SUM(COUNT(*)) OVER (PARTITION BY ward ORDER BY day) AS n FROM visits"
    found = ask(visits, f"{body} GROUP BY ward, day", "nonnegative")
    lines = column(found, "n").reshape(4, 12)
    assert (lines >= 0).all()
    assert (np.diff(lines, axis=1) >= 0).all()
    down = ask(
        visits,
        "day, SUM(COUNT(*)) OVER (ORDER BY day DESC) AS n FROM visits GROUP BY day",
        "nonnegative",
    )
    assert (np.diff(column(down, "n")) <= 0).all()


def test_signed_sums_are_left_alone_and_it_is_said(visits: Connection) -> None:
    body = "SUM(cost) AS s, SUM(day) AS d FROM visits WHERE ward IN ('c', 'd')"
    plain, found = ask(visits, body), ask(visits, body, "nonnegative")
    assert found.rows[0][0] == plain.rows[0][0]
    assert found.stddev[0] == plain.stddev[0]
    assert found.rows[0][1] == max(0.0, plain.rows[0][1])
    assert found.stddev[1] == (None,)
    assert any("either sign" in note for note in found.notes)


def test_units_overlap_between_groups_so_they_are_clipped(visits: Connection) -> None:
    body = "ward, COUNT(DISTINCT person) AS n FROM visits GROUP BY ward"
    plain, found = ask(visits, body), ask(visits, body, "nonnegative")
    assert column(found, "n") == pytest.approx(np.maximum(column(plain, "n"), 0))
    with pytest.raises(dpsql.NotSupportedError, match="units do not add up") as error:
        ask(visits, body, "pgm")
    assert error.value.hint is not None
    assert "nonnegative" in error.value.hint


def test_branches_of_a_cube_agree_on_the_total(visits: Connection) -> None:
    body = "ward, day, COUNT(*)::DOUBLE AS n FROM visits GROUP BY CUBE (ward, day)"
    found = ask(visits, body, "nonnegative")
    sums: dict[tuple[bool, bool], float] = {}
    for ward, day, n in found.rows:
        key = (ward is None, day is None)
        sums[key] = sums.get(key, 0.0) + n
    assert list(sums.values()) == pytest.approx([sums[True, True]] * 4, abs=1e-4)


def test_a_graphical_model_is_consistent_across_tables(visits: Connection) -> None:
    body = "ward, day, COUNT(*)::DOUBLE AS n FROM visits GROUP BY CUBE (ward, day)"
    found = ask(visits, body, "pgm")
    by_day = {day: n for ward, day, n in found.rows if ward is None and day is not None}
    for day, n in by_day.items():
        parts = [m for ward, d, m in found.rows if ward is not None and d == day]
        assert sum(parts) == pytest.approx(n, abs=1e-6)


def test_a_model_of_full_cells_says_what_the_estimate_says(visits: Connection) -> None:
    visits.execute("SET epsilon = 60")
    body = "day, COUNT(*) AS n FROM visits WHERE ward = 'a' AND day < 6 GROUP BY day"
    plain, found = (column(ask(visits, body, m), "n") for m in ("gls", "pgm"))
    assert (plain > 1).all()
    assert found == pytest.approx(plain, abs=0.1)


def test_expressions_and_having_see_the_projected_numbers(visits: Connection) -> None:
    body = "ward, COUNT(*) + 1 AS n, DP_STDDEV(n) AS e FROM visits GROUP BY ward HAVING n >= 1"
    found = ask(visits, body, "nonnegative")
    assert len(found.rows) == 4
    assert [row[2] for row in found.rows] == [None] * 4
    assert found.stddev[1] == (None,) * 4


def test_composite_statements_are_reconstructed_too(visits: Connection) -> None:
    body = (
        "a.n - b.n AS d FROM (SELECT COUNT(*) n FROM visits) a, "
        "(SELECT COUNT(*) n FROM visits WHERE day > 11) b"
    )
    found = ask(visits, body, "nonnegative")
    assert found.biased
    assert found.stddev[0] == (None,)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("ward, SUM(cost) FROM visits GROUP BY ward", "E_SETTING"),
        ("ward, COUNT(DISTINCT person) FROM visits GROUP BY ward", "E_SETTING"),
    ],
)
def test_what_no_model_fits_is_refused_before_the_charge(
    visits: Connection, body: str, code: str
) -> None:
    with pytest.raises(dpsql.NotSupportedError) as error:
        ask(visits, body, "pgm")
    assert error.value.code == code
    assert "visits" in error.value.message
    assert "nonnegative" in str(error.value.hint)
    assert spent(visits) == 0
    with pytest.raises(dpsql.NotSupportedError):
        visits.execute(f"EXPLAIN SELECT {CLAUSE.format('pgm')}{body}")


def test_the_cap_is_checked_before_the_charge(
    visits: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphical, "DEFAULT_CAP", 40)
    with pytest.raises(dpsql.ProgrammingError) as error:
        ask(visits, GROUPED, "pgm")
    assert error.value.code == "E_TOO_LARGE"
    assert "nonnegative" in str(error.value.hint)
    assert spent(visits) == 0


@pytest.mark.skipif(find_spec("mbi") is not None, reason="mbi is installed")
def test_a_missing_mbi_is_refused_before_the_charge(visits: Connection) -> None:
    with pytest.raises(dpsql.OperationalError) as error:
        ask(visits, GROUPED, "mbi")
    assert error.value.code == "E_BACKEND"
    assert spent(visits) == 0


@pytest.mark.jax
@pytest.mark.skipif(find_spec("mbi") is None, reason="mbi is not installed")
def test_mbi_fits_the_same_release(visits: Connection) -> None:
    """Ours ends where noise explains what is missed; what is converged misses no more than that."""
    told = [ask(visits, GROUPED, m) for m in ("gls", "pgm", "mbi")]
    released, ours, theirs = (column(each, "n") for each in told)
    missed = [float(np.square(fitted - released).sum()) for fitted in (ours, theirs)]
    assert missed[1] <= 1.01 * missed[0]
    assert theirs.sum() == pytest.approx(ours.sum())
    assert spent(visits) == 1


def test_unknown_methods_are_refused(visits: Connection) -> None:
    with pytest.raises(dpsql.ProgrammingError, match="reconstruct = magic"):
        ask(visits, GROUPED, "magic")
    with pytest.raises(dpsql.ProgrammingError, match="nonnegative = perhaps"):
        visits.execute("SET nonnegative = perhaps")


def test_explain_names_the_reconstruction(visits: Connection) -> None:
    def lines(method: str) -> list[str]:
        text = f"EXPLAIN SELECT {CLAUSE.format(method)}{GROUPED}"
        return [row[0] for row in visits.execute(text).fetchall()]

    assert sum("reconstruct = 'pgm'" in line for line in lines("pgm")) == 1
    assert not any("reconstruct" in line for line in lines("gls"))


def test_statements_of_a_script_may_differ(visits: Connection) -> None:
    cursor = visits.executescript(
        f"SELECT {GROUPED}; SELECT {CLAUSE.format('nonnegative')}{GROUPED};"
    )
    assert not cursor.result.biased
    cursor.nextset()
    assert cursor.result.biased
    assert spent(visits) == 1


def test_a_clip_has_a_mechanism_of_its_own(visits: Connection) -> None:
    clause = "WITH DIFFERENTIAL_PRIVACY OPTIONS(reconstruct = 'pgm', clip = 'svt') "
    with pytest.raises(dpsql.ProgrammingError, match="reconstruct contradicts a clip"):
        visits.execute(f"SELECT {clause}SUM(day) FROM visits")
    assert spent(visits) == 0
