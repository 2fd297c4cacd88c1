"""Generate the synthetic hospital of hospital.toml. No row describes a real person.

Independent draws from a small hand-written model: patients by age and sex, visits to wards that
depend on both, prescriptions that depend on the ward. The shape resembles a hospital's; the figures
are invented. As in real tables there are NULLs, a few visits of patients that nobody wrote down,
and prescriptions of visits that are gone.

Run ``python demo_data/make_hospital.py [--patients N] [--seed S] [--out FOLDER]``.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt

Rows = Mapping[str, npt.NDArray[Any]]

REGIONS = ("North", "South", "East", "West", "City")
WARDS = (
    "emergency",
    "surgery",
    "medicine",
    "maternity",
    "children",
    "cardiology",
    "oncology",
    "eye",
)
DRUGS = (
    *("paracetamol", "ibuprofen", "amoxicillin", "metformin", "atorvastatin", "lisinopril"),
    *("omeprazole", "salbutamol", "insulin", "warfarin", "prednisolone", "morphine"),
)
DAYS, MISSING, STRAY = 731, 0.02, 0.002
HOURS = np.array([1, 1, 1, 1, 1, 2, 3, 6, 9, 10, 10, 9, 7, 8, 9, 8, 7, 5, 4, 3, 3, 2, 2, 1.0])


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the three Parquet files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patients", type=int, default=40_000)
    parser.add_argument("--seed", type=int, default=1729)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--level", type=int, default=19, help="how far files are compressed")
    options = parser.parse_args(arguments)
    draw = np.random.default_rng(options.seed)
    patients = draw_patients(draw, options.patients)
    visits = draw_visits(draw, patients)
    tables = {
        "hospital_patients": patients,
        "hospital_visits": visits,
        "hospital_prescriptions": draw_prescriptions(draw, visits),
    }
    for name, rows in tables.items():
        write_parquet(rows, options.out / f"{name}.parquet", options.level)


def draw_patients(draw: np.random.Generator, count: int) -> Rows:
    """Return patients: old ones more often than in the population, some of unknown age."""
    age = np.clip(np.rint(draw.beta(1.6, 1.2, count) * 96), 0, 104)
    return {
        "patient_id": np.arange(100_000, 100_000 + count),
        "sex": np.where(draw.random(count) < 0.53, "f", "m"),
        "age": np.where(draw.random(count) < MISSING, np.nan, age),
        "region": draw.choice(REGIONS, count, p=[0.15, 0.2, 0.1, 0.2, 0.35]),
    }


def draw_visits(draw: np.random.Generator, patients: Rows) -> Rows:
    """Return visits: a few for most, many for some; a few of patients that are not there."""
    age = np.nan_to_num(patients["age"], nan=50.0)
    many = draw.gamma(1.1, 1.2 + age / 60)
    owner = np.repeat(np.arange(len(age)), draw.poisson(many))
    owner = owner[draw.permutation(len(owner))]
    count, old, young = len(owner), age[owner] / 100, age[owner] < 16
    women = patients["sex"][owner] == "f"
    fertile = women & (age[owner] > 17) & (age[owner] < 45)
    weight = np.stack(
        [
            *(np.full(count, 3.0), 1.0 + old, 0.5 + 3 * old, 2.0 * fertile, 4.0 * young),
            *(3 * old**2, 2 * old, 0.2 + old),
        ]
    )
    pick = draw.random(count) * weight.sum(axis=0)
    ward = (np.cumsum(weight, axis=0) < pick).sum(axis=0)
    day = draw.integers(0, DAYS, count)
    hour = draw.choice(24, count, p=HOURS / HOURS.sum())
    minutes = day * 1440 + hour * 60 + draw.integers(0, 60, count)
    stay = np.minimum(draw.geometric(1 / (1.5 + 5 * old), count) - 1, 60)
    cost = np.round(np.exp(draw.normal(5.4 + 0.12 * stay, 0.7)), 2)
    stray = draw.random(count) < STRAY
    return {
        "visit_id": 1_000_000 + np.arange(count),
        "patient_id": np.where(stray, 1 + np.arange(count), patients["patient_id"][owner]),
        "ward": np.array(WARDS)[ward],
        "arrived": np.datetime64("2023-01-01T00:00", "us") + minutes.astype("timedelta64[m]"),
        "days": stay.astype(np.float64),
        "cost": np.where(draw.random(count) < MISSING, np.nan, cost),
    }


def draw_prescriptions(draw: np.random.Generator, visits: Rows) -> Rows:
    """Return prescriptions: none, one or several for a visit; a few of visits that are gone."""
    each = draw.poisson(1.1, len(visits["visit_id"]))
    visit = np.repeat(visits["visit_id"], each)
    ward = np.repeat(np.searchsorted(sorted(WARDS), visits["ward"]), each)
    drug = (ward * 2 + draw.geometric(0.3, len(visit))) % len(DRUGS)
    gone = draw.random(len(visit)) < STRAY
    return {
        "visit_id": np.where(gone, visit + 5_000_000, visit),
        "drug": np.array(DRUGS)[drug],
        "packs": draw.integers(1, 6, len(visit)),
        "price": np.round(4 + drug * 2.5 + draw.integers(0, 8, len(visit)) * 0.25, 2),
    }


def write_parquet(rows: Rows, path: Path, level: int) -> None:
    """Write the rows; NaN is NULL, and whole numbers are stored as such."""
    with duckdb.connect(":memory:") as database:
        database.execute("SET threads = 1")
        database.register("found", dict(rows))
        numbers = {"age": "SMALLINT", "days": "SMALLINT", "cost": "DECIMAL(10, 2)"}
        numbers["price"] = "DECIMAL(6, 2)"
        columns = ", ".join(
            f"CASE WHEN NOT isnan({name}) THEN {name}::{numbers[name]} END AS {name}"
            if name in numbers
            else name
            for name in rows
        )
        database.execute(f"CREATE TABLE kept AS SELECT {columns} FROM found")
        database.execute(
            f"COPY kept TO '{path}' (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL {level})"
        )


if __name__ == "__main__":
    main()
