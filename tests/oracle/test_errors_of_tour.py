"""Joined and per-person statements of the hospital tour err as they say: planned once, drawn often.

A statement is measured once without noise, through the seam; noise of its scales is added to the
numbers of that release again and again, and the answers are assembled from each.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsql
from dpsql.answer.codec import Release
from dpsql.answer.result import Result
from dpsql.dbapi.connection import Connection
from dpsql.engine.matrix import WorkloadJob
from dpsql.engine.statements import read_job
from dpsql.engine.terms import Terms
from dpsql.privacy.noise.samplers import SAMPLERS
from dpsql.sql.text.parse import reparse
from tests.privacy.seam import SeededBits
from tests.support.effort import effort
from tests.support.seam import zero_noise
from tests.support.tables import statements_of

DATA = Path(__file__).parents[2] / "demo_data"
RUNS = effort(40)
MOST = 1 + 4 * (5 / RUNS) ** 0.5
"""Squares of Laplace variables of variance one have a variance of 5; draws are seeded."""
TOUR = statements_of(DATA / "hospital_tour.sql")
CHOSEN = [
    sql
    for sql in TOUR
    if any(word in sql for word in (" JOIN ", "(SELECT", "DISTINCT")) and "contribution" not in sql
]


@pytest.fixture(scope="module")
def hospital(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    folder = tmp_path_factory.mktemp("hospital")
    for path in DATA.glob("hospital*"):
        shutil.copy(path, folder)
    catalog = folder / "hospital.toml"
    catalog.write_text(catalog.read_text().replace("epsilon = 100.0", "epsilon = 10000"))
    with dpsql.connect(catalog, epsilon=1) as connection:
        yield connection


def with_noise(release: Release, bits: SeededBits, factor: int = 1) -> Release:
    """A release without noise as it might have been."""
    draw, values = SAMPLERS[release.plan.noise], []
    for part, blocks in zip(release.plan.parts, release.values, strict=True):
        pairs = zip(part.scales, blocks, strict=True)
        values.append(tuple(b + factor * draw(bits, s, b.size).reshape(b.shape) for s, b in pairs))
    return replace(release, values=tuple(values))


def cells(result: Result) -> dict[Any, tuple[float, float]]:
    """Every number with a standard error, by the keys of its row and its column."""
    known = [k for k, errors in enumerate(result.stddev) if errors is not None]
    found = {}
    for place, row in enumerate(result.rows):
        key = tuple(value for k, value in enumerate(row) if k not in known)
        for k in known:
            errors = result.stddev[k]
            if errors is not None and errors[place] and row[k] is not None:
                found[key, k] = float(row[k]), float(errors[place] or 0)
    return found


def squares(connection: Connection, sql: str, factor: int = 1) -> list[float]:
    """The squared errors of all numbers and runs, in squared standard errors."""
    engine = connection._engine
    assert engine is not None
    terms = Terms(Fraction(100)).having(epsilon=Fraction(1, 2), reuse="never")
    job = read_job(engine, engine.compile([reparse(sql)]), terms).decided(engine)
    assert isinstance(job, WorkloadJob)
    with zero_noise():
        release, _ = engine.settle(job)
    (exact,) = job.results(engine, release, False)
    true, bits, found = cells(exact), SeededBits(6), []
    for _ in range(RUNS):
        (result,) = job.results(engine, with_noise(release, bits, factor), False)
        for place, (value, told) in cells(result).items():
            if place in true:
                found.append(((value - true[place][0]) / told) ** 2)
    return found


@pytest.mark.parametrize("sql", CHOSEN)
def test_expected_and_measured_error_agree(hospital: Connection, sql: str) -> None:
    agreement = float(np.mean(squares(hospital, sql)))
    assert 1 / MOST < agreement < MOST, agreement


def test_noise_of_another_scale_is_found(hospital: Connection) -> None:
    """Planted: rows of a unit are counted twice over."""
    assert float(np.mean(squares(hospital, CHOSEN[0], 2))) > MOST
