"""The benchmark of growth: exponents, what is flagged, and that its smallest parts run."""

from __future__ import annotations

from pathlib import Path

import pytest

import dpsql
from benchmarks import growth
from benchmarks.growing import undeclare
from benchmarks.growth import Taken
from tests.support.seam import zero_noise


@pytest.mark.parametrize(("power", "flagged"), [(1.0, 0), (2.0, 1)])
def test_what_grows_faster_than_asked_is_flagged(
    power: float, flagged: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def alone(name: str, size: int, *_: object) -> Taken:
        return Taken(size, 1e-3 * size**power, 100 + 1e-3 * size)

    monkeypatch.setattr(growth, "alone", alone)
    assert growth.report("cells", is_quick=True) == flagged
    shown = capsys.readouterr().out
    assert f"exponent of time: {power:.2f}" in shown
    assert ("ABOVE" in shown) == bool(flagged)


@pytest.mark.parametrize("slower", [1.2, 2.5])
def test_values_that_are_not_declared_may_take_twice_as_long(
    slower: float, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def alone(name: str, size: int, *change: object) -> Taken:
        return Taken(size, 1e-3 * size * (slower if change else 1), 100)

    monkeypatch.setattr(growth, "alone", alone)
    assert growth.report("cells", is_quick=True) == (slower > growth.DECLARED)
    sizes = growth.PARTS["cells"].sizes
    assert capsys.readouterr().out.count(f"{slower:8.2f}\n") == len(sizes)


def test_a_catalog_is_written_with_no_value_declared(tmp_path: Path) -> None:
    part = growth.PARTS["joined"]
    part.prepare(tmp_path, 40)
    undeclare(tmp_path)
    with zero_noise(), dpsql.connect(tmp_path / "c.toml", epsilon=1) as connection:
        rows = connection.execute("SELECT ward, COUNT(*) FROM visits GROUP BY ward").fetchall()
    assert {count for _, count in rows} == {0}


def test_what_takes_no_time_has_no_exponent() -> None:
    found = [Taken(10, 0.01, 100.0), Taken(100, 0.02, 101.0), Taken(1000, 0.5, 102.0)]
    assert growth.of_time(found) is None
    assert growth.of_memory(found) is None


def test_a_part_runs_in_a_process_of_its_own_and_unknown_ones_are_told() -> None:
    taken = growth.alone("times", 1)
    assert taken is not None
    assert taken.seconds > 0
    assert growth.main(["nothing"]) == 2
