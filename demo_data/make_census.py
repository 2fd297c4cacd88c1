"""Generate the synthetic ``person`` table of census.toml. No row describes a real person.

The rows are independent draws from the small hand-written model below: an age pyramid, a sex ratio
that falls with age, two origins, and six race categories of which several may be marked. The
shape resembles a national census; the figures are invented. Rows are stored sorted, which is what
makes a million of them fit in a small file.

Run ``python demo_data/make_census.py [--rows N] [--seed S] [--out FILE]``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]

SEX, HISPANIC, RACE, AGE = 2, 2, 64, 115
HISPANIC_SHARE = 0.16
RACE_MARKS = {  # probability that each of the six categories (bits 0..5) is marked
    "hispanic": (0.55, 0.04, 0.02, 0.01, 0.004, 0.40),
    "other": (0.80, 0.14, 0.015, 0.06, 0.004, 0.006),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the Parquet file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=2010)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "census.parquet")
    options = parser.parse_args(arguments)
    write_parquet(draw_counts(options.rows, options.seed), options.out)


def age_pyramid() -> tuple[Vector, Vector]:
    """Return the share of each single year of age 0..114 and the share of females in it."""
    age = np.arange(AGE, dtype=np.float64)
    survivors = np.exp(-np.exp((age - 84.0) / 9.5))
    birth_waves = 1.0 + 0.12 * np.cos((age - 20.0) * 2 * np.pi / 30.0)
    share = survivors * birth_waves
    female = 0.49 + 0.25 / (1.0 + np.exp(-(age - 82.0) / 8.0))
    return share / share.sum(), female


def race_masks(marks: Sequence[float]) -> Vector:
    """Return the probability of every bit mask 0..63 when at least one category is marked.

    >>> bool(np.isclose(race_masks((0.5,) * 6).sum(), 1.0))
    True
    """
    masks = np.arange(RACE)
    share = np.ones(RACE)
    for bit, probability in enumerate(marks):
        share *= np.where(masks >> bit & 1, probability, 1.0 - probability)
    share[0] = 0.0
    several = (masks & (masks - 1)) != 0
    share[several] *= 0.15
    return np.asarray(share / share.sum(), dtype=np.float64)


def cell_shares() -> Vector:
    """Return the model's probability of every (sex, hispanic, race, age) cell, flat."""
    share, female = age_pyramid()
    by_sex = np.stack([share * (1.0 - female), share * female])
    by_origin = np.stack(
        [
            HISPANIC_SHARE * race_masks(RACE_MARKS["hispanic"]),
            (1.0 - HISPANIC_SHARE) * race_masks(RACE_MARKS["other"]),
        ]
    )
    return np.asarray(np.einsum("sa,hr->shra", by_sex, by_origin).ravel(), dtype=np.float64)


def draw_counts(rows: int, seed: int) -> npt.NDArray[np.int64]:
    """Draw how many of ``rows`` persons fall into each cell."""
    return np.random.default_rng(seed).multinomial(rows, cell_shares())


def write_parquet(counts: npt.NDArray[np.int64], out: Path) -> None:
    """Write one row per person, in cell order."""
    connection = duckdb.connect(config={"threads": "1"})
    connection.execute("CREATE TABLE cells (cell INTEGER, n BIGINT)")
    used = np.flatnonzero(counts)
    connection.execute(
        "INSERT INTO cells SELECT unnest(?::INTEGER[]), unnest(?::BIGINT[])",
        [used.tolist(), counts[used].tolist()],
    )
    target = str(out).replace("'", "''")
    connection.execute(f"""
        COPY (SELECT CAST(cell // {HISPANIC * RACE * AGE} AS INTEGER) AS sex,
                     CAST(cell // {RACE * AGE} % {HISPANIC} AS INTEGER) AS hispanic,
                     CAST(cell // {AGE} % {RACE} AS INTEGER) AS race,
                     CAST(cell % {AGE} AS INTEGER) AS age
              FROM (SELECT cell, unnest(range(n)) FROM cells ORDER BY cell))
        TO '{target}' (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 19)
    """)
    connection.close()


if __name__ == "__main__":
    main()
