"""The benchmark of growth: exponents, what is flagged, and that its smallest parts run."""

from __future__ import annotations

import pytest

from benchmarks import growth
from benchmarks.growth import Taken


@pytest.mark.parametrize(("power", "flagged"), [(1.0, 0), (2.0, 1)])
def test_what_grows_faster_than_asked_is_flagged(
    power: float, flagged: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def alone(name: str, size: int) -> Taken:
        return Taken(size, 1e-3 * size**power, 100 + 1e-3 * size)

    monkeypatch.setattr(growth, "alone", alone)
    assert growth.report("cells", is_quick=True) == flagged
    shown = capsys.readouterr().out
    assert f"exponent of time: {power:.2f}" in shown
    assert ("ABOVE" in shown) == bool(flagged)


def test_what_takes_no_time_has_no_exponent() -> None:
    found = [Taken(10, 0.01, 100.0), Taken(100, 0.02, 101.0), Taken(1000, 0.5, 102.0)]
    assert growth.of_time(found) is None
    assert growth.of_memory(found) is None


def test_a_part_runs_in_a_process_of_its_own_and_unknown_ones_are_told() -> None:
    taken = growth.alone("times", 1)
    assert taken is not None
    assert taken.seconds > 0
    assert growth.main(["nothing"]) == 2
