"""The membrane passes its audits."""

from __future__ import annotations

import sqlite3
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import dpsql
from dpsql.dbapi.connection import Connection
from dpsql.privacy.budget.anchor import read_anchor
from dpsql.privacy.noise.entropy import Bits
from dpsql.strategy.noise_law import Noise
from tests.audit import checks

AMOUNTS = [Fraction(3, 2), Fraction(1, 10), Fraction(1, 1000)]


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("amount", AMOUNTS, ids=str)
def test_residuals(noise: Noise, amount: Fraction) -> None:
    checks.residuals(noise, amount)


def test_p_values_are_uniform_over_repeated_measurements() -> None:
    found = [checks.residual_p_values("laplace", Fraction(1, 4), 100) for _ in range(60)]
    found += [checks.residual_p_values("gaussian", Fraction(1, 50), 100) for _ in range(60)]
    for column in np.array(found).T:
        assert stats.kstest(column, stats.uniform.cdf).pvalue > 1e-5


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_sensitivity(noise: Noise) -> None:
    checks.sensitivity(noise)


def test_epsilon_of_a_scalar_from_below() -> None:
    checks.scalar()


def test_epsilon_of_a_matrix_from_below_in_every_column() -> None:
    checks.columns()


def test_large_counts() -> None:
    checks.large_counts()


def test_single_use() -> None:
    checks.single_use()


def test_transcript(tmp_path: Path) -> None:
    checks.transcript(tmp_path)


def test_no_refund(tmp_path: Path) -> None:
    checks.no_refund(tmp_path)


def test_noise_is_drawn_after_the_debit_is_durable(
    demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with dpsql.connect(demo / "adult.toml", epsilon=1) as connection:
        watch_order(connection, demo, monkeypatch)


def watch_order(connection: Connection, demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a query and look, whenever bits are made, whether the debit is on disk and anchored."""
    drawn = []

    class WatchedBits(Bits):
        def __init__(self) -> None:
            db = sqlite3.connect(demo / "adult.ledger")
            (seq,) = db.execute("SELECT max(seq) FROM entry WHERE kind = 'debit'").fetchone()
            db.close()
            (path,) = demo.parent.rglob("*.anchor")
            anchor = read_anchor(path)
            drawn.append((seq, anchor and anchor.seq))
            super().__init__()

    monkeypatch.setattr("dpsql.privacy.doors.measure.Bits", WatchedBits)
    connection.execute("SELECT COUNT(*) FROM adult")
    assert drawn
    assert all(pair == (1, 1) for pair in drawn)
