"""The second sampler: certified by OpenDP, or refused before any charge."""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsql
from dpsql.algebra.integer_rows import KronRows
from dpsql.catalog.read import read_catalog
from dpsql.errors import OperationalError
from dpsql.privacy.doors.exact_products import apply_rows, apply_rows_unbounded, apply_unbounded
from dpsql.privacy.noise import opendp_noise
from dpsql.privacy.noise.opendp_noise import HIGHEST, LOWEST, certified
from dpsql.strategy.noise_law import Noise
from tests.privacy.judge import agrees, chi_square, gaussian_masses, laplace_masses

BY_SEX = "SELECT sex, COUNT(*) AS n FROM adult GROUP BY sex"


@pytest.fixture
def opendp() -> Any:
    return pytest.importorskip("opendp.prelude")


@pytest.fixture
def other(demo: Path) -> Path:
    """The Adult catalog with OpenDP's noise."""
    path = demo / "adult.toml"
    path.write_text('[noise]\nbackend = "opendp"\n\n' + path.read_text())
    return path


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_the_bound_never_exceeds_what_is_paid(noise: Noise, opendp: Any) -> None:
    random = np.random.default_rng(3)
    for _ in range(300):
        sensitivity = int(10 ** random.uniform(0, 15))
        scale = Fraction(int(random.integers(1, 2**40)), int(random.integers(1, 2**30)))
        found = certified(noise, sensitivity, scale)
        paid = sensitivity / scale if noise == "laplace" else sensitivity / (2 * scale)
        assert 0 < found.cost <= paid
        assert found.cost > paid * (1 - Fraction(1, 2**40))


@pytest.mark.parametrize("scale", [Fraction(7, 2), Fraction(200)], ids=str)
def test_the_law_is_the_declared_one(scale: Fraction, opendp: Any) -> None:
    zeros = np.zeros(20000, dtype=np.int64)
    reach = int(12 * scale)
    for noise, masses in (
        ("laplace", laplace_masses(float(scale), reach)),
        ("gaussian", gaussian_masses(float(scale), reach)),
    ):
        sampler = certified(noise, 1, scale)
        assert agrees(lambda s=sampler, m=masses: chi_square(s.release(zeros), m))  # type: ignore[misc]


def test_numbers_beyond_64_bits_are_clamped_before_the_noise(opendp: Any) -> None:
    sampler = certified("laplace", 1, Fraction(1, 1000))
    far = np.array([2**70, -(2**70), 5], dtype=object)
    assert sampler.release(far).tolist() == [HIGHEST, LOWEST, 5]
    assert sampler.release(np.zeros(0, dtype=np.int64)).tolist() == []


def test_exact_rows_do_not_wrap() -> None:
    rows = np.array([[2**20, 1], [0, -3]], dtype=np.int64)
    small, large = np.array([3, 4]), np.array([2**50, 1])
    one = KronRows((rows,), rows.shape[1:])
    assert apply_rows_unbounded(one, small).tolist() == apply_rows(one, small).tolist()
    assert apply_rows_unbounded(one, large).tolist() == [2**70 + 1, -3]
    both = apply_unbounded((rows, None), np.array([[2**50, 0], [1, 1]]))
    assert both.tolist() == [2**70 + 1, 1, -3, -3]


@pytest.mark.parametrize(
    ("sensitivity", "scale"),
    [(0, Fraction(1)), (-1, Fraction(1)), (1, Fraction(0)), (1, Fraction(-1)),
     (1, Fraction(10**400)), (2**64, Fraction(2**64)), (1, Fraction(1, 10**400))],
)  # fmt: skip
def test_what_is_not_certified_is_refused(sensitivity: int, scale: Fraction, opendp: Any) -> None:
    with pytest.raises(OperationalError, match="E_BACKEND"):
        certified("laplace", sensitivity, scale)


@pytest.mark.parametrize("bound", [math.inf, math.nan, 0.0, -1.0, 1.0])
def test_a_bound_that_says_too_much_or_nothing_is_refused(
    bound: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Odd:
        def map(self, _: float) -> float:
            return bound

    monkeypatch.setattr(opendp_noise, "_make", lambda *_: Odd())
    with pytest.raises(OperationalError, match="does not certify"):
        certified("laplace", 1, Fraction(2))


@pytest.mark.parametrize("options", [{}, {"noise": "gaussian", "delta": 1e-9}], ids=str)
def test_a_catalog_can_choose_it(other: Path, opendp: Any, options: dict[str, Any]) -> None:
    with dpsql.connect(other, epsilon=1, **options) as connection:
        result = connection.execute(BY_SEX).result
        assert [row[0] for row in result.rows] == ["Female", "Male"]
        assert result.rows[0][1] == pytest.approx(16192, abs=60)
        assert result.rows[0][1] == int(result.rows[0][1])
        assert connection.budget.entries == 1


def test_the_samplers_of_a_release_are_opendps(
    other: Path, opendp: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("sampler", "Bits"):
        monkeypatch.delattr(f"dpsql.privacy.doors.measure.{name}")
    with dpsql.connect(other, epsilon=1) as connection:
        connection.execute(BY_SEX)


def test_without_opendp_nothing_is_charged(other: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opendp.prelude", None)
    with dpsql.connect(other, epsilon=1) as connection:
        with pytest.raises(OperationalError, match=r"pip install dpsql\[opendp\]"):
            connection.execute(BY_SEX)
        assert connection.budget.entries == 0


@pytest.mark.parametrize("section", ['backend = "numpy"', "backend = 1", 'sampler = "opendp"'])
def test_other_backends_do_not_exist(other: Path, section: str) -> None:
    other.write_text(other.read_text().replace('backend = "opendp"', section))
    with pytest.raises(dpsql.CatalogError, match="E_POLICY"):
        read_catalog(other)
